"""Traffic of a wavefront of the product of filters by planes, and the work that the cost model
makes of it."""

from __future__ import annotations

import numpy as np

from dscore.algorithms.base import LDS_BANKS, Case, Work
from dscore.algorithms.columns import Count
from dscore.algorithms.plane_gemm.tiling import shape_of
from dscore.algorithms.warpgroup_gemm.tiling import ROW, ROWS, WAVES
from dscore.core.numerics import WORD_BYTES

# `product`: clocks of a SIMD for an instruction's eight columns; `copy`: of a box of planes, and
# `rounds` of a step; `result`: of a pair of results; `step` and `tile`: of the end of either.
# Estimates, by those of warpgroup_gemm. `untimed` keeps the model from this algorithm, which no GPU
# has timed; who names it has it.
WEIGHTS = {"wavefront": 0.5, "product": 3.39, "lds": 0.0268, "step": 300.0, "copy": 16.0,
           "rounds": 49.3, "result": 1.0, "tile": 400.0, "wait": 1290.0, "serial": 0.854,
           "block": 1290.0, "memory": 1.19, "loaded": 0.199, "first": 0.324, "norm": 1.7,
           "fill": 0.208, "untimed": 1e6}


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
        + weight["tile"] * t.repeat + weight["untimed"],
        fill_bytes=weight["fill"] * (shape.plane_bytes + shape.filter_bytes
                                     + problem.spec.element.bytes * t.tile_m * columns),
        l2_bytes=weight["loaded"] * loads)
