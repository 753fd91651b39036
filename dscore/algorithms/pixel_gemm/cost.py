"""Traffic of a wavefront of the product of pixels by filters, and the work that the cost model
makes of it."""

from __future__ import annotations

import numpy as np

from dscore.algorithms.base import LDS_BANKS, Case, Work
from dscore.algorithms.columns import Count
from dscore.algorithms.pixel_gemm.tiling import DEPTH, shape_of
from dscore.algorithms.products import ring_waits
from dscore.algorithms.warpgroup_gemm.tiling import (
    ROW_BYTES,
    ROWS,
    SECTOR_BYTES,
    WAVES,
)
from dscore.core.numerics import WORD_BYTES

# `product`: clocks of a SIMD for an instruction's eight columns; `copy` and `step`: of a step's
# begin and end; `result`: of a pair of results; `added`: of a pair to which lanes add what they
# read element by element; `tile`: of a tile's end; `row`: of a row of LDS that the copy engine
# brings or takes; `within`: bytes for a row of filters that begins within a sector of memory, which
# all blocks ask the L2 cache for at the same time. `product`, `result`, `serial`, `memory` and
# `norm` were chosen, `added` fitted to 1,310 timings in float16 of two runs, the others to 1,052
# of these, of 19 of P1-P45, with planes of 28x28 pixels and more, at batch 8, 32 and 64
# (docs/model.md).
WEIGHTS = {"wavefront": 0.5, "product": 4.0, "lds": 0.0256, "step": 53.8, "copy": 15.4,
           "result": 3.0, "added": 28.0, "tile": 165.0, "wait": 407.0, "serial": 1.62,
           "block": 796.0, "memory": 0.977, "loaded": 0.145, "first": 10.0, "norm": 1.6,
           "fill": 0.0195, "row": 0.584, "within": 464.0}


def named(case: Case) -> dict[str, Count]:
    """The traffic of a case by the names of `Algorithm.traffic`."""
    t, shape = case.tiling, shape_of(case.problem, case.tiling)
    rounds = shape.steps * t.repeat
    words = (shape.plane_bytes / shape.groups + shape.filter_bytes) / WORD_BYTES / WAVES
    return {"LDS clocks": rounds * words / LDS_BANKS,
            "global stores": t.repeat * shape.groups / shape.waves}


def work(case: Case) -> Work:
    """The work of a case."""
    weight, t, problem = case.weights, case.tiling, case.problem
    shape, footprint = shape_of(problem, t), case.footprint
    rounds, busy = shape.steps * t.repeat, shape.groups * WAVES / shape.waves
    results = t.repeat * t.tile_n * ROWS / (2 * WAVES * case.device.wavefront)
    filled = np.where(t.kept, shape.steps, rounds)  # buffers, by filters
    loads = rounds * shape.plane_bytes + filled * shape.filter_bytes
    # Rows of filters that begin within sectors of memory.
    within = shape.along and shape.k * problem.spec.element.bytes % SECTOR_BYTES != 0
    return Work(
        issue=weight["wavefront"] + busy * (
            (weight["result"] + weight["added"] * (problem.spec.residual is not None)) * results
            + weight["copy"] * rounds),
        products=busy * weight["product"] * rounds * t.step / DEPTH * t.tile_n / 8,
        lds=weight["lds"] * named(case)["LDS clocks"],
        # Rows of LDS that the copy engine brings, or takes from there.
        lines=weight["row"] * (loads + t.repeat * shape.result_bytes) / ROW_BYTES / shape.waves,
        waits=ring_waits(weight, rounds, t.stages) + weight["step"] * rounds
        + weight["tile"] * t.repeat,
        fill_bytes=weight["fill"] * (shape.plane_bytes + shape.filter_bytes + shape.result_bytes),
        l2_bytes=footprint.blocks * (weight["loaded"] * loads
                                     + weight["within"] * filled * t.tile_n * within))
