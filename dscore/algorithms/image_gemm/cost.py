"""Traffic of a wavefront of the product of whole images by filters, and the work that the cost
model makes of it."""

from __future__ import annotations

import numpy as np

from dscore.algorithms.base import LDS_BANKS, Case, Work
from dscore.algorithms.columns import Count
from dscore.algorithms.image_gemm.tiling import DEPTH, conflicts_of, shape_of, sums_of
from dscore.algorithms.products import ring_waits
from dscore.algorithms.warpgroup_gemm.tiling import WAVES
from dscore.core.numerics import WORD_BYTES

# `product`: clocks of a SIMD for an instruction's eight columns; `read`: of an instruction's pixels
# of a wavefront; `result`: of a pair of results; `step`: of the end of a step; `join`: of a sum
# that is handed over. `cluster`: of sums that blocks share, and `sent` for a byte of those that
# come to a block, over the compute units for each block. `ragged`: bytes of the L2 cache for a row
# of a part of a plane, as those of many channels lose; why is not known. Fitted to 3,593
# timings in float16 of the layers of P1-P45 with such planes at batch 8, 32 and 64, those of
# 14 x 14 at batch 1 as well, but for `memory` (docs/model.md).
WEIGHTS = {"wavefront": 0.515, "product": 4.31, "lds": 0.889, "read": 42.4, "step": 142.0,
           "result": 12.1, "join": 13.7, "wait": 309.0, "serial": 0.544, "block": 834.0,
           "memory": 1.0, "loaded": 0.375, "first": 0.1, "norm": 2.43, "fill": 0.354,
           "cluster": 495.0, "sent": 0.0943, "ragged": 292.0}


def named(case: Case) -> dict[str, Count]:
    """The traffic of a case by the names of `Algorithm.traffic`."""
    t, shape = case.tiling, shape_of(case.problem, case.tiling)
    instructions = shape.rows * _steps_each(case) * t.step / DEPTH
    # An odd plane's second pixels are read apart.
    reads = instructions * 4 * (1 + (shape.area % 2) / 2)
    pixels = reads * np.where(t.parts > 1, 1, conflicts_of(shape.area))
    # The units read filters for all lanes of a warpgroup.
    filters = instructions * t.tile_n * DEPTH / 2 / LDS_BANKS / WAVES
    return {"LDS clocks": pixels + filters, "LDS reads": reads,
            "global stores": shape.results_bytes / (WORD_BYTES * LDS_BANKS * WAVES)}


def work(case: Case) -> Work:
    """The work of a case."""
    weight, t, problem = case.weights, case.tiling, case.problem
    shape, footprint = shape_of(problem, t), case.footprint
    steps, sums = _steps_each(case), sums_of(shape.rows, t)
    busy = (shape.waves - 1) / shape.waves
    instructions = shape.rows * steps * t.step / DEPTH
    loads = footprint.blocks * shape.steps * t.repeat * (shape.plane_bytes + shape.filter_bytes)
    rows = (t.parts > 1) * t.tile_n / t.cluster  # of parts of planes, which a block stores
    return Work(
        issue=weight["wavefront"] + busy * (
            weight["read"] * instructions * (1 + (shape.area % 2) / 4)
            + weight["result"] * sums * t.repeat / (2 * t.slices)
            + weight["join"] * sums * (t.slices > 1)),
        products=busy * weight["product"] * instructions * t.tile_n / 8,
        lds=busy * weight["lds"] * named(case)["LDS clocks"], lines=0.0,
        waits=ring_waits(weight, shape.steps * t.repeat, t.stages) + weight["step"] * steps
        + (t.cluster > 1) * weight["cluster"]
        + weight["sent"] * shape.sent_bytes * footprint.blocks / case.device.compute_units,
        fill_bytes=weight["fill"] * (shape.stage_bytes + shape.results_bytes),
        l2_bytes=weight["loaded"] * loads + weight["ragged"] * footprint.blocks * rows)


def _steps_each(case: Case) -> Count:
    """Steps of a slice in all tiles, in the mean."""
    shape, t = shape_of(case.problem, case.tiling), case.tiling
    return shape.steps * t.repeat / t.slices
