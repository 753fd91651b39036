"""Traffic of a wavefront of the product of matrices by warpgroups, and the work that the cost model
makes of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dscore.algorithms.base import LDS_BANKS, Case, Work
from dscore.algorithms.columns import Count, ceil_div
from dscore.algorithms.products import ring_waits
from dscore.algorithms.warpgroup_gemm.tiling import ROW, ROWS, WAVES, shape_of
from dscore.core.numerics import ACCUMULATOR, WORD_BYTES

# `product`: clocks of a SIMD for an instruction's eight columns; `copy`: of a step; `result`: of a
# pair of results; `step` and `tile`: of the end of either; `sum_launch`: of the kernel that adds
# parts, `part` bytes for a byte of them; `cluster`, an estimate, of the barriers of a cluster, as
# depthwise kernels have it, and `untimed` keeps the model from clusters, which in this form no GPU
# has timed; `ragged`, an estimate, those of results whose boxes begin
# within sectors; `odd`: of results that leave as a span, of 135 timings of which 68 were such.
# The other weights were fitted to 238 timings in float16 of P1-P45 at batches 1 to 64, and of the
# gradients of six layers at batch 32 (docs/model.md).
WEIGHTS = {"wavefront": 0.5, "product": 3.39, "lds": 0.0268, "step": 0.164, "copy": 49.3, "result":
           0.0149, "tile": 0.604, "wait": 1290.0, "serial": 0.854, "block": 1290.0, "memory": 1.19,
           "loaded": 0.199, "first": 0.324, "norm": 1.7, "fill": 0.208, "sum_launch": 3780.0,
           "part": 1.02, "cluster": 1670.0, "untimed": 1e6, "ragged": 1.0, "odd": 500.0}
# Of the weight gradient, fitted to 256 timings in float16 of P1-P45 at batch 32: `within` and
# `straddled` are bytes for a row of a box that begins within a sector, or lies in two lines.
WEIGHT_GRADIENT = {"copy": 43.3, "product": 2.14, "wait": 553.0, "loaded": 0.205, "fill": 0.412,
                   "sum_launch": 1780.0, "part": 1.1, "block": 3160.0, "memory": 1.28,
                   "within": 63.3, "straddled": 27.5}
# Of int8, whose results take instructions that those of floats do not: fitted to 887 timings of
# P1-P45 at batches 1 to 64.
BYTES = {"product": 1.66, "copy": 39.1, "result": 3.77, "tile": 366.0, "wait": 702.0,
         "serial": 4.92, "block": 2800.0, "loaded": 0.0645, "fill": 0.213, "odd": 223.0,
         "memory": 1.21}
# Elements of which rows of results are a multiple where they are not odd (whole_rows in
# hip_src/warpgroup_gemm/product.hpp).
EVEN_ROW = 32
# Elements of 16 bits in a sector of memory.
SECTOR = 16


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
    shared, bytes_ = t.parts > 1, problem.spec.element.bytes
    partial = shared * (2 * ACCUMULATOR.bytes * t.parts * sizes.m * sizes.n)
    alone = t.parts * t.cluster == 1
    boxed = alone & (not problem.spec.element.exact)
    ragged = boxed & (shape.tiles_n > 1) & (sizes.n % ROW != 0)
    odd = (sizes.n % EVEN_ROW != 0) & alone
    loads = footprint.blocks * (rounds * shape.bytes_a + np.where(
        t.kept, shape.steps, rounds) * shape.bytes_b)
    return Work(
        issue=weight["wavefront"] + busy * (weight["result"] * results + weight["copy"] * rounds),
        products=busy * weight["product"] * rounds * t.step * bytes_ / 32 * t.tile_n / 8,
        lds=weight["lds"] * named(case)["LDS clocks"], lines=0.0,
        waits=ring_waits(weight, rounds, t.stages) + weight["step"] * rounds
        + weight["tile"] * t.repeat + weight["sum_launch"] * shared + weight["odd"] * odd
        + (weight["cluster"] + weight["untimed"]) * (t.cluster > 1),
        fill_bytes=weight["fill"] * (shape.bytes_a + shape.bytes_b
                                     + bytes_ * t.tile_m * t.tile_n),
        l2_bytes=weight["loaded"] * loads + weight["part"] * partial
        + _rows_apart(case)
        + weight["ragged"] * ragged * (bytes_ * sizes.m * sizes.n))


def _rows_apart(case: Case) -> Count:
    """Bytes that rows of boxes cost beside their own: of a weight gradient, whose operands' pixels
    begin within sectors, or lie across the ends of lines of memory, as long as a row of LDS."""
    if case.problem.operation != "weight_gradient":
        return 0
    t, shape = case.tiling, shape_of(case.problem, case.tiling)
    each = sum(ceil_div(side, ROW) * _row_apart(case.weights, channels)
               for side, channels in ((t.tile_m, shape.sizes.m), (t.tile_n, shape.sizes.n)))
    return case.footprint.blocks * shape.steps * t.step * each


def _row_apart(weights: Mapping[str, float], channels: int) -> float:
    """Such bytes of one row, in a tensor of so many channels."""
    return (weights["within"] * (channels % SECTOR > 0)
            + weights["straddled"] * (channels % ROW > 0 and ROW % channels > 0))
