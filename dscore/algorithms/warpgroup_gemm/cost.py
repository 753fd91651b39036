"""Traffic of a wavefront of the product of matrices by warpgroups, and the work that the cost model
makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dscore.algorithms.base import LDS_BANKS, VECTOR_BYTES, Case, Work
from dscore.algorithms.clusters import filled_units
from dscore.algorithms.columns import Count, ceil_div
from dscore.algorithms.products import ring_waits
from dscore.algorithms.warpgroup_gemm.tiling import (
    ROW,
    ROW_BYTES,
    ROWS,
    SECTOR_BYTES,
    WAVES,
    shape_of,
    whole_rows,
)
from dscore.core.numerics import ACCUMULATOR, WORD_BYTES
from dscore.core.problem import ConvProblem
from dscore.ops import compulsory_bytes

# `product`: clocks of a SIMD for an instruction's eight columns; `copy`: of a step; `result`: of a
# pair of results; `step` and `tile`: of the end of either; `column`: of a block, for a column of a
# tile's results; `sum_launch`: of the kernel that adds parts, `part` bytes for a byte of them;
# `cluster`, an estimate, of the barriers of a cluster, as depthwise kernels have it, and `untimed`
# keeps the model from clusters but for weight gradients: of other layers two of ten were fastest by
# one; `activation`, of two results by silu or sigmoid, by which 53 timings with silu are right in
# the mean; `odd`: of results that leave as a span. `boxed` and `within` are bytes for a row of a
# box, and for one that begins within a sector; `crowded`, for a byte of the problem, where blocks
# lie unevenly; `banks`, for a clock that rows of a span wait for banks of LDS; `two`, of each step
# of a ring of two buffers, of which but one is under way; `three`: the same of a ring of three;
# `large`, for a column of a tile's warpgroups beyond `LARGE_COLUMNS`, chosen by 1,408 timings of 73
# layers; `few`, over the blocks that a compute unit has room for: where there is room, those of the
# next kernel begin early.
# `tile` and `serial` were fitted to every second layer of 1,964 timings in float16 on an H200 and
# on H100s, `three` and `few` to 2,447 on an H200. `product`, `copy`, `wait`, `loaded`, `fill`,
# `odd`, `boxed`, `within`, `column`, `crowded`, `banks`, `two`, `large`, `block` and `memory` were
# fitted anew to 1,954 timings on an H200, of P1-P45 at batch 8, 32 and 64 and of 40 layers of many
# sizes, when all blocks began with the first step. The others were fitted to 238 timings on an H200
# of P1-P45 at batches 1 to 64, and of the gradients of six layers at batch 32 (docs/model.md).
WEIGHTS = {"wavefront": 0.5, "product": 3.19, "lds": 0.0268, "step": 0.164, "copy": 37.2,
           "result": 0.0149, "tile": 0.604, "wait": 648.0, "serial": 0.819, "block": 1190.0,
           "memory": 1.1, "loaded": 0.113, "first": 0.324, "norm": 1.7, "fill": 0.0776,
           "sum_launch": 3780.0, "part": 1.02, "cluster": 1670.0, "untimed": 1e6,
           "activation": 27.0, "odd": 308.0, "boxed": 1.98, "within": 134.0, "column": 1.07,
           "crowded": 0.627, "table": 0.0, "scale": 0.0, "added": 0.0, "rows": 0.0,
           "brought": 0.0, "spared": 0.0, "filled": 0.0, "handed": 0.0,
           "doubled": 0.0, "banks": 0.156, "two": 143.0, "three": 85.6, "large": 16.8,
           "few": 108.0}
# Of the weight gradient, fitted to every second of 108 layers, 3,572 timings of mostly random
# tilings in float16 on two H200s: P1-P45 at batch 32, some of them at 8, 64 and 128. `brought` and
# `handed`: for a byte of operands, or of sums of a cluster's other blocks, that comes to a compute
# unit; `doubled`: for each doubling of a cluster; `within` and `straddled` are bytes for a row of a
# box that begins within a sector, or lies in two lines.
WEIGHT_GRADIENT = {"copy": 3.12, "product": 5.89, "wait": 1100.0, "loaded": 0.0, "fill": 0.133,
                   "sum_launch": 2540.0, "part": 1.68, "block": 44.4, "memory": 0.858,
                   "within": 69.7, "straddled": 19.9, "odd": 500.0, "column": 0.3, "crowded": 0.0,
                   "serial": 0.0, "first": 0.0, "norm": 1.5, "cluster": 653.0,
                   "doubled": 399.0, "untimed": 0.0, "brought": 0.0117, "handed": 0.0768,
                   "two": 300.0, "three": 0.0, "large": 0.0, "few": 0.0}
# Of int8, whose results take instructions that those of floats do not: fitted to every second
# of 212 layers, 1,922 timings on H200s of P1-P45 at batches 1 to 64 and of layers with biases,
# residuals, tables or scales.
# `table`, `added`: for each two results that are looked up, or that something is added to; `scale`:
# for four bytes of rows that lanes scale; `rows`: of results that leave row by row, for each tile
# behind a block's first, and each block beside the first on a compute unit. `spared`, of `table`,
# and `filled`, of a block, where a table lies in each bank: these three were chosen by 379 timings
# of 19 layers in EfficientNet-B0.
BYTES = {"product": 1.5, "copy": 16.8, "result": 2.76, "tile": 40.6, "wait": 223.0,
         "serial": 4.58, "block": 1770.0, "loaded": 0.0241, "fill": 0.402, "odd": 18.5,
         "memory": 1.0, "boxed": 11.5, "within": 188.0, "column": 0.861, "crowded": 0.18,
         "table": 2.8, "spared": 1.0, "filled": 500.0, "scale": 4.78, "added": 7.65, "rows": 540.0,
         "two": 0.0, "three": 0.0, "large": 0.0, "few": 0.0}
# Columns of all warpgroups of a block, from which on a tile is large.
LARGE_COLUMNS = 384


def named(case: Case) -> dict[str, Count]:
    """The traffic of a case by the names of `Algorithm.traffic`."""
    t, shape = case.tiling, shape_of(case.problem, case.tiling)
    rounds = shape.steps * t.repeat
    words = (shape.bytes_a / shape.groups + shape.bytes_b) / WORD_BYTES / WAVES
    return {"LDS clocks": rounds * words / LDS_BANKS,
            "global stores": t.repeat * shape.groups / shape.waves}


def work(case: Case, grids: Count) -> Work:
    """The work of a case, whose blocks are so many times those that the device holds."""
    weight, t, problem = case.weights, case.tiling, case.problem
    shape = shape_of(problem, t)
    footprint, sizes = case.footprint, shape.sizes
    rounds, busy = shape.steps * t.repeat, shape.groups * WAVES / shape.waves
    results = t.repeat * t.tile_n * ROWS / (2 * WAVES * case.device.wavefront)
    spec = problem.spec
    shared, bytes_ = t.parts > 1, spec.element.bytes
    partial = shared * (2 * ACCUMULATOR.bytes * t.parts * sizes.m * sizes.n)
    whole = whole_rows(problem, t) & (t.parts * t.cluster == 1)
    by_rows = spec.element.exact & ~whole
    costly = spec.costly_results and not spec.element.exact
    words = t.step * bytes_ * ROWS / (WAVES * case.device.wavefront * WORD_BYTES)
    loads = footprint.blocks * (rounds * shape.bytes_a + np.where(
        t.kept, shape.steps, rounds) * shape.bytes_b)
    return Work(
        issue=weight["wavefront"] + busy * (
            (weight["result"] + weight["activation"] * costly + spec.table * (
                weight["table"] - weight["spared"] * t.banked)
             + weight["added"] * (spec.residual is not None)) * results
            + (weight["copy"] + weight["scale"] * spec.scaled * words) * rounds),
        products=busy * weight["product"] * rounds * t.step * bytes_ / 32 * t.tile_n / 8,
        lds=weight["lds"] * named(case)["LDS clocks"], lines=0.0,
        waits=ring_waits(weight, rounds, t.stages)
        + (weight["step"] + weight["two"] * (t.stages == 2) + weight["three"] * (t.stages == 3))
        * rounds
        + (weight["tile"] + weight["column"] * t.tile_n
           + weight["large"] * np.maximum(shape.groups * t.tile_n - LARGE_COLUMNS, 0)) * t.repeat
        + weight["few"] / _room(case, grids)
        + weight["sum_launch"] * shared + weight["odd"] * whole + weight["filled"] * t.banked
        + weight["rows"] * by_rows * (t.repeat - 1) * _beside(case, grids)
        + _of_unit(case, grids) * (
            weight["brought"] * loads / footprint.blocks + weight["handed"] * shape.handed_bytes
            + weight["banks"] * t.repeat * _bank_conflicts(problem, t))
        + weight["doubled"] * np.log2(t.cluster)
        + (weight["cluster"] + weight["untimed"]) * (t.cluster > 1),
        fill_bytes=weight["fill"] * (shape.bytes_a + shape.bytes_b
                                     + bytes_ * t.tile_m * t.tile_n),
        l2_bytes=weight["loaded"] * loads + weight["part"] * partial
        + _rows_apart(case) + weight["crowded"] * _crowded(case, grids) * compulsory_bytes(problem))


def _beside(case: Case, grids: Count) -> Count:
    """Blocks of a compute unit beside the first, in the mean."""
    units = case.device.compute_units
    return np.maximum(case.footprint.blocks / (units * np.maximum(np.ceil(grids), 1)) - 1, 0)


def _bank_conflicts(problem: ConvProblem, t: Any) -> Count:
    """Clocks that LDS takes more for a tile's rows as a span, where rows that lanes read at once
    begin in the same banks: the eight of a matrix, of 16 bytes each."""
    shape, bytes_ = shape_of(problem, t), problem.spec.element.bytes
    pitch = shape.sizes.k * bytes_
    apart = len({row * pitch % ROW_BYTES // VECTOR_BYTES for row in range(8)})
    matrices = 4 * WAVES * shape.groups * ceil_div(pitch, 2 * VECTOR_BYTES)
    return t.spans * matrices * (8 // apart - 1)


def _room(case: Case, grids: Count) -> Count:
    """Blocks that a compute unit has room for."""
    units = filled_units(case.device, case.tiling)
    return np.maximum(np.round(case.footprint.blocks / (units * grids)), 1)


def _of_unit(case: Case, grids: Count) -> Count:
    """Blocks that the compute unit with the most of them has at a time."""
    units = filled_units(case.device, case.tiling)
    return np.ceil(case.footprint.blocks / (units * np.maximum(np.ceil(grids), 1)))


def _crowded(case: Case, grids: Count) -> Count:
    """Whether blocks lie unevenly: where a unit needs two or more and has room for another, some
    units take that, and end last."""
    units, blocks = case.device.compute_units, case.footprint.blocks
    return (grids < 1) & (blocks > units) & (ceil_div(blocks, units) < _room(case, grids))


def _rows_apart(case: Case) -> Count:
    """Bytes that rows of boxes cost beside their own: where they begin within sectors, or, of a
    weight gradient, whose rows are pixels, lie across the ends of lines of memory; and each by
    itself, where a span would bring it."""
    t, shape, weight = case.tiling, shape_of(case.problem, case.tiling), case.weights
    bytes_ = case.problem.spec.element.bytes
    if case.problem.operation != "weight_gradient":
        each = (weight["boxed"] * ceil_div(t.step, ROW)
                + weight["within"] * (shape.sizes.k * bytes_ % SECTOR_BYTES > 0))
        rows = np.where(t.spans, 0, t.repeat * t.tile_m) + np.where(t.kept, 1, t.repeat) * t.tile_n
        return each * case.footprint.blocks * rows * shape.steps
    sides = sum(ceil_div(side, ROW) * _row_apart(weight, channels, bytes_)
                for side, channels in ((t.tile_m, shape.sizes.m), (t.tile_n, shape.sizes.n)))
    return case.footprint.blocks * shape.steps * t.step * sides


def _row_apart(weights: Mapping[str, float], channels: int, bytes_: int) -> float:
    """Such bytes of one row, in a tensor of so many channels of *bytes_* each."""
    return (weights["within"] * (channels * bytes_ % SECTOR_BYTES > 0)
            + weights["straddled"] * (channels % ROW > 0 and ROW % channels > 0))
