"""Traffic of a wavefront of the product of matrices by warpgroups, and the work that the cost model
makes of it."""

from __future__ import annotations

import numpy as np

from dscore.algorithms.base import LDS_BANKS, Case, Work
from dscore.algorithms.columns import Count
from dscore.algorithms.warpgroup_gemm.tiling import ROWS, WAVES, shape_of
from dscore.core.numerics import ACCUMULATOR, WORD_BYTES

# `product`: clocks of a SIMD for an instruction's eight columns; `step`: of a wait for a step;
# `result`: instructions for a pair of results; `tile`: of the end of a tile. No timings were taken
# yet: these are estimates.
WEIGHTS = {"wavefront": 10.0, "product": 4.0, "lds": 1.0, "step": 60.0, "copy": 20.0, "result": 6.0,
           "tile": 400.0, "wait": 600.0, "serial": 1.0, "block": 900.0, "memory": 1.2,
           "loaded": 0.4, "first": 1500.0, "norm": 3.0, "fill": 0.3, "sum_launch": 2000.0,
           "part": 0.4}


def named(case: Case) -> dict[str, Count]:
    """The traffic of a case by the names of `Algorithm.traffic`."""
    t, shape = case.tiling, shape_of(case.problem, case.tiling)
    rounds = shape.steps * t.repeat
    words = (shape.bytes_a / shape.groups + shape.bytes_b) / WORD_BYTES / WAVES
    return {"LDS clocks": rounds * words / LDS_BANKS,
            "global stores": t.repeat * shape.groups / shape.waves}


def work(case: Case) -> Work:
    """The work of a case."""
    weight, t, problem = case.weights, case.tiling, case.problem
    shape = shape_of(problem, t)
    footprint, sizes = case.footprint, shape.sizes
    rounds, busy = shape.steps * t.repeat, shape.groups * WAVES / shape.waves
    results = t.repeat * t.tile_n * ROWS / (2 * WAVES * case.device.wavefront)
    # Once the ring is full, each turn of it waits for memory again.
    turns = np.maximum(0, rounds / np.maximum(t.stages - 1, 1) - 1)
    shared, bytes_ = t.parts > 1, problem.spec.element.bytes
    partial = shared * (2 * ACCUMULATOR.bytes * t.parts * sizes.m * sizes.n)
    loads = footprint.blocks * (rounds * shape.bytes_a + np.where(
        t.kept, shape.steps, rounds) * shape.bytes_b)
    return Work(
        issue=weight["wavefront"] + busy * (weight["result"] * results + weight["copy"] * rounds),
        products=busy * weight["product"] * rounds * t.step / 16 * t.tile_n / 8,
        lds=weight["lds"] * named(case)["LDS clocks"], lines=0.0,
        waits=weight["wait"] * (1 + turns / 2) + weight["step"] * rounds
        + weight["tile"] * t.repeat + weight["sum_launch"] * shared,
        fill_bytes=weight["fill"] * (shape.bytes_a + shape.bytes_b
                                     + bytes_ * t.tile_m * t.tile_n),
        l2_bytes=weight["loaded"] * loads + weight["part"] * partial)
