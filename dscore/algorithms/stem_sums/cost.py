"""Traffic of a wavefront of the weight gradient of first layers, and the work that the cost model
makes of it."""

from __future__ import annotations

from dscore.algorithms.base import Case, Work
from dscore.algorithms.columns import Count, ceil_div
from dscore.algorithms.stem.tiling import EIGHT, FOUR, copy_of, unit_of
from dscore.algorithms.stem_sums.tiling import fragments_of, shape_of, unit_loads
from dscore.core.device import MATRIX_WAVEFRONT
from dscore.core.numerics import WORD_BYTES

# Clocks of a SIMD for an instruction of each kind: `copy`, of a vector of the gradient; `load` and
# `unit`, of a unit of pixels, and of a word of it that comes to LDS; `piece`, beside products. Of a
# wavefront, which others do not shorten: `wait`, for the first tile, `tile`, of each further one,
# `chain`, of a piece; `sum_launch`, of the kernel that adds slices, `part` bytes for a byte of
# them. Fitted to 496 timings of ten layers on an H200, 10 % off.
WEIGHTS = {"wavefront": 100.0, "load": 4.44, "unit": 1.19, "copy": 21.5, "lds_load": 0.41,
           "piece": 2.41, "product": 6.26, "lds": 0.292, "wait": 1070.0, "tile": 1210.0,
           "chain": 264.0, "serial": 1.36, "block": 580.0, "memory": 1.35, "loaded": 0.505,
           "first": 100.0, "norm": 2.0, "fill": 0.847, "sum_launch": 1690.0, "part": 4.29}


def pieces_each(case: Case) -> Count:
    """Pieces of 16 pixels of a wavefront, of all tiles of a block, in the mean."""
    shape = shape_of(case.problem, case.tiling)
    return shape.unit_slices * shape.pieces / case.tiling.waves_p


def piece_loads(case: Case) -> Count:
    """Reads of LDS of a piece: of two fragments of pixels each, and of the gradient."""
    return (ceil_div(fragments_of(case.problem), 2)
            + shape_of(case.problem, case.tiling).fragments_m)


def gradient_copies(case: Case) -> Count:
    """Copies of a thread, of vectors of a tile of the gradient."""
    t, shape = case.tiling, shape_of(case.problem, case.tiling)
    return ceil_div(t.tile_h * t.tile_w * t.tile_m // EIGHT, shape.waves * MATRIX_WAVEFRONT)


def named(case: Case) -> dict[str, Count]:
    """The traffic of a case by the names of `Algorithm.traffic`."""
    shape, reads = shape_of(case.problem, case.tiling), pieces_each(case) * piece_loads(case)
    loads = shape.turns * unit_loads(case.problem) + gradient_copies(case)
    return {"LDS reads": reads, "LDS clocks": 4 * reads,
            "global loads": shape.unit_slices * loads,
            "global stores": case.tiling.tile_m * case.problem.spec.products
            / (shape.waves * MATRIX_WAVEFRONT)}


def work(case: Case) -> Work:
    """The work of a case."""
    weight, problem, t = case.weights, case.problem, case.tiling
    shape, pieces, spec = shape_of(problem, t), pieces_each(case), problem.spec
    size, tiles = spec.element.bytes, shape.unit_slices
    words = unit_of(problem) * FOUR * size / WORD_BYTES * (1 + spec.stride[1] % 2)
    brought = size * (shape.rows * shape.row_units * unit_loads(problem) * copy_of(problem)
                      + t.tile_h * t.tile_w * t.tile_m)
    writes = tiles * shape.turns * words / 2
    partial = (t.slices > 1) * 2 * WORD_BYTES * t.slices * spec.out_channels * spec.products
    return Work(
        issue=weight["wavefront"] + tiles * (
            shape.turns * (weight["load"] * unit_loads(problem) + weight["unit"] * words)
            + weight["copy"] * gradient_copies(case))
        + pieces * (weight["piece"] + weight["lds_load"] * piece_loads(case)),
        products=weight["product"] * pieces * fragments_of(problem) * shape.fragments_m,
        lds=weight["lds"] * (named(case)["LDS clocks"] + 2 * writes), lines=0.0,
        waits=weight["wait"] + weight["tile"] * tiles + weight["chain"] * pieces
        + weight["sum_launch"] * (t.slices > 1),
        fill_bytes=weight["fill"] * shape.stage_bytes,
        l2_bytes=weight["loaded"] * case.footprint.blocks * tiles * brought
        + weight["part"] * partial)
