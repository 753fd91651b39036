"""Traffic of a wavefront of the product of filters by planes, and the work that the cost model
makes of it."""

from __future__ import annotations

import numpy as np

from dscore.algorithms.base import LDS_BANKS, Case, Work
from dscore.algorithms.columns import Count
from dscore.algorithms.plane_gemm.tiling import EIGHT, MOVERS, shape_of
from dscore.algorithms.warpgroup_gemm.tiling import ROW, ROWS, WAVES
from dscore.core.numerics import WORD_BYTES

# `product`: clocks of a SIMD for an instruction's eight columns; `copy`: of a box of planes, and
# `rounds` of a step; `result`: of a pair of results; `step` and `tile`: of the end of either;
# `move`: of a row of LDS that is moved, `store`: of a vector of parts of planes. Fitted to 57
# timings in float16 of 13 layers, 12 of them at batch 32, on the scale on which gemm_universal's
# estimates are for the same layers, which calls compare these with (docs/model.md). `untimed` keeps
# the model from single images and input gradients, which no GPU has timed; who names the algorithm
# has them. `movers` puts other numbers of these, which none has timed either, behind the same with
# three.
WEIGHTS = {"wavefront": 0.5, "product": 3.39, "lds": 0.0268, "step": 212.0, "copy": 1.54,
           "rounds": 56.1, "result": 11.8, "tile": 124.0, "wait": 1180.0, "serial": 0.392,
           "block": 1410.0, "memory": 1.36, "loaded": 0.398, "first": 0.324, "norm": 1.7,
           "fill": 0.227, "move": 12.0, "store": 153.0, "untimed": 1e6, "movers": 1.0}


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
    rounds, busy = shape.steps * t.repeat, shape.groups * WAVES / shape.waves
    columns = t.images * t.tile_p
    results = t.repeat * columns * ROWS / (2 * WAVES * case.device.wavefront)
    # Rows of 128 bytes that the movers of a block turn in a step; vectors that a lane stores.
    moved_rows = t.step * t.images * shape.boxes / shape.apart * (1 - shape.vector / EIGHT)
    stores = np.where(shape.whole, 0, t.repeat * t.tile_p / (2 * shape.vector))
    # Once the ring is full, each turn of it waits for memory again.
    turns = np.maximum(0, rounds / np.maximum(t.stages - 1, 1) - 1)
    loads = footprint.blocks * (rounds * shape.plane_bytes + np.where(
        t.kept, shape.steps, rounds) * shape.filter_bytes)
    return Work(
        issue=weight["wavefront"] + busy * (weight["result"] * results + rounds * (
            weight["rounds"] + weight["copy"] * shape.boxes)),
        products=busy * weight["product"] * rounds * t.step / 16 * columns / 8,
        lds=weight["lds"] * named(case)["LDS clocks"], lines=0.0,
        waits=weight["wait"] * (1 + turns / 2) + weight["step"] * rounds
        + weight["tile"] * t.repeat + weight["move"] * rounds * moved_rows
        + weight["store"] * stores
        + weight["untimed"] * (problem.operation != "conv" or problem.batch == 1)
        + weight["movers"] * (t.movers != MOVERS),
        fill_bytes=weight["fill"] * (shape.plane_bytes + shape.filter_bytes
                                     + problem.spec.element.bytes * t.tile_m * columns),
        l2_bytes=weight["loaded"] * loads)
