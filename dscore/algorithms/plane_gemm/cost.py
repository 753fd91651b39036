"""Traffic of a wavefront of the product of filters by planes, and the work that the cost model
makes of it."""

from __future__ import annotations

import numpy as np

from dscore.algorithms.base import LDS_BANKS, Case, Work
from dscore.algorithms.columns import Count
from dscore.algorithms.plane_gemm.tiling import EIGHT, result_pixels, shape_of
from dscore.algorithms.products import ring_waits
from dscore.algorithms.warpgroup_gemm.tiling import ROW, ROWS, SECTOR_BYTES, WAVES
from dscore.core.numerics import WORD_BYTES

# `product`: clocks of a SIMD for an instruction's eight columns; `copy`: of a box of planes, and
# `rounds` of a step; `result`: of a pair of results; `step` and `tile`: of the end of either;
# `move`: of a row of LDS that one wavefront moves, `store`: of a vector of parts of planes;
# `within`: bytes for a row of filters that begins within a sector of memory, which all blocks ask
# the L2 cache for at the same time; `ragged`: for a byte of results that leave by boxes which end
# within sectors. `product`, `step`, `rounds`, `result`, `tile`, `serial`, `memory`, `loaded`,
# `fill`, `move`, `within` and `ragged` were fitted to 940 timings in float16 of P1-P45 at batch 8,
# 32 and 64, the others to 611, beside gemm_universal's estimates for the same layers, with which
# calls compare these (docs/model.md). `untimed` keeps the model from single images and input
# gradients, which no GPU has timed; who names the algorithm has them.
WEIGHTS = {"wavefront": 0.5, "product": 2.88, "lds": 0.0256, "step": 315.0, "copy": 0.0564,
           "rounds": 10.3, "result": 5.25, "tile": 161.0, "wait": 0.139, "serial": 0.534,
           "block": 2330.0, "memory": 0.977, "loaded": 0.528, "first": 0.106, "norm": 1.57,
           "fill": 0.496, "move": 60.2, "within": 227.0, "store": 0.108, "ragged": 0.389,
           "untimed": 1e6}


def named(case: Case) -> dict[str, Count]:
    """The traffic of a case by the names of `Algorithm.traffic`."""
    t, shape = case.tiling, shape_of(case.problem, case.tiling)
    rounds = shape.steps * t.repeat
    words = (shape.filter_bytes / shape.groups + shape.plane_bytes) / WORD_BYTES / WAVES
    return {"LDS clocks": rounds * words / LDS_BANKS,
            "global stores": t.repeat * t.images * ROWS * t.tile_p / shape.vector / ROW / WAVES}


def work(case: Case) -> Work:
    """The work of a case."""
    weight, t, problem = case.weights, case.tiling, case.problem
    shape, footprint = shape_of(problem, t), case.footprint
    bytes_ = problem.spec.element.bytes
    rounds, busy = shape.steps * t.repeat, shape.groups * WAVES / shape.waves
    columns = t.images * t.tile_p
    results = t.repeat * columns * ROWS / (2 * WAVES * case.device.wavefront)
    # Rows of 128 bytes that the movers of a block turn in a step; vectors that a lane stores.
    moved_rows = t.step * t.images * shape.boxes / shape.apart * (1 - shape.vector / EIGHT)
    stores = np.where(shape.whole | shape.boxed, 0, t.repeat * t.tile_p / (2 * shape.vector))
    loads = footprint.blocks * (rounds * shape.plane_bytes + np.where(
        t.kept, shape.steps, rounds) * shape.filter_bytes)
    # Rows of filters that begin within sectors of memory.
    within = shape.along and shape.k * bytes_ % SECTOR_BYTES != 0
    rows = footprint.blocks * np.where(t.kept, shape.steps, rounds) * t.tile_m * within
    # Results by boxes of which some end within sectors.
    ragged = shape.boxed & (result_pixels(t.tile_p) * bytes_ % SECTOR_BYTES != 0)
    return Work(
        issue=weight["wavefront"] + busy * (weight["result"] * results + rounds * (
            weight["rounds"] + weight["copy"] * shape.boxes)),
        products=busy * weight["product"] * rounds * t.step / 16 * columns / 8,
        lds=weight["lds"] * named(case)["LDS clocks"], lines=0.0,
        waits=ring_waits(weight, rounds, t.stages) + weight["step"] * rounds
        + weight["tile"] * t.repeat + weight["move"] * rounds * moved_rows / t.movers
        + weight["store"] * stores
        + weight["untimed"] * (problem.operation != "conv" or problem.batch == 1),
        fill_bytes=weight["fill"] * (shape.plane_bytes + shape.filter_bytes
                                     + bytes_ * t.tile_m * columns),
        l2_bytes=weight["loaded"] * loads + weight["within"] * rows
        + weight["ragged"] * ragged * (bytes_ * problem.batch * shape.m * shape.area))
