"""What a wavefront asks of the units of its CU: instructions, LDS, memory, matrix units.

A load or store of a wavefront costs what its lanes touch: lines in the load-store unit, sectors in
the L2 cache. Lanes side by side share these; lanes of other rows and planes do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .geometry import (
    Count,
    ceil_div,
    column_offsets,
    depthwise_shape,
    matrix_shape,
    owned_columns,
    vectors,
)
from .resources import footprint
from .spec import ELEMENT_BYTES, ConvProblem
from .tiling import MatrixTiling

LINE_BYTES = 128
SECTOR_BYTES = 32
_VECTOR_BYTES = 16


@dataclass(frozen=True)
class Traffic:
    """Counts per wavefront: instructions, and the lines and sectors that they touch."""

    loads: Count
    load_lines: Count
    load_sectors: Count
    stores: Count
    store_lines: Count
    store_sectors: Count
    lds_reads: Count  # and writes, in clocks of LDS, bank conflicts counted
    shuffles: Count


def _units(run: Count, whole: int, rows: Count, lanes: int, element: int, unit: int) -> Count:
    """Units of *unit* bytes that one instruction touches: *rows* runs of *run* elements side by
    side, which follow one another where a run is a *whole* row of the image.
    """
    run = np.minimum(run, whole)
    apart = rows * np.ceil((run * element + unit / 2) / unit)
    joined = np.maximum(1, np.ceil(rows * run * element / unit))
    return np.minimum(np.where(run < whole, apart, joined), lanes)


def _fetched(problem: ConvProblem, t: Any) -> tuple[Count, Count]:
    """(columns that a lane loads of a row, columns that it takes from its neighbours)."""
    def of(thread_w: int) -> tuple[int, int]:
        own = thread_w * problem.spec.stride[1]
        return (len(owned_columns(problem, thread_w)),
                sum(offset >= own for offset in column_offsets(problem, thread_w)))

    if isinstance(t.thread_w, int):
        return of(t.thread_w)
    distinct, inverse = np.unique(t.thread_w, return_inverse=True)
    found = np.array([of(int(width)) for width in distinct])
    return found[inverse, 0], found[inverse, 1]


def depthwise_traffic(problem: ConvProblem, t: Any, wavefront: int) -> Traffic:
    """The traffic of *t*, a DepthwiseTiling or columns of many."""
    spec, shape, element = problem.spec, depthwise_shape(problem, t), ELEMENT_BYTES[
        problem.spec.dtype]
    taps, stride_w, staging = spec.products, spec.stride[1], np.asarray(t.staging)
    in_lds, out_lds = staging != "registers", staging == "both"
    reuse = np.asarray(t.column_reuse)
    rows_of_lanes = wavefront / np.minimum(t.lanes_w, wavefront)
    owned, halo = _fetched(problem, t)
    own = np.where(reuse, owned, shape.columns)
    past = np.where(reuse, halo, 0)  # loaded by the last lanes of a row, for all of which it waits
    run_in, run_out = t.lanes_w * t.thread_w * stride_w, t.lanes_w * t.thread_w

    def touched(run: Count, whole: int, unit: int) -> Count:
        return _units(run, whole, rows_of_lanes, wavefront, element, unit)

    # Through LDS consecutive threads move consecutive vectors of 16 bytes.
    threads = ceil_div(t.planes * t.lanes_h * t.lanes_w, wavefront) * wavefront
    vectors_in, vectors_out = (span * element / _VECTOR_BYTES / threads
                               for span in (shape.span_in, shape.span_out))
    lines, sectors = (wavefront * _VECTOR_BYTES / unit for unit in (LINE_BYTES, SECTOR_BYTES))
    outputs = t.thread_h * t.thread_w
    # Lanes that read every second word of LDS meet in half of the banks.
    step = t.thread_w * stride_w
    conflicts = np.minimum(np.where(step % 2 == 0, step, 1), 8)
    stores = np.where(out_lds, vectors_out, outputs)
    # Filters are copied to LDS a word a lane, or read by each lane, of every plane elsewhere.
    filters_in = t.planes * taps / threads
    planes = np.maximum(1, wavefront / (t.lanes_h * t.lanes_w))
    return Traffic(
        loads=np.where(in_lds, vectors_in + filters_in, shape.rows * (own + past) + taps),
        load_lines=np.where(in_lds, vectors_in * lines + filters_in, taps * planes + shape.rows * (
            own * touched(run_in, problem.width, LINE_BYTES)
            + past * np.minimum(rows_of_lanes, 8))),
        load_sectors=np.where(in_lds, vectors_in * sectors + 4 * filters_in, taps * planes
                              + shape.rows * touched(run_in, problem.width, SECTOR_BYTES)),
        stores=stores,
        store_lines=stores * np.where(out_lds, lines, touched(
            run_out, problem.out_width, LINE_BYTES)),
        store_sectors=stores * np.where(out_lds, sectors, touched(
            run_out, problem.out_width, SECTOR_BYTES)),
        lds_reads=np.where(in_lds, shape.rows * shape.columns * conflicts + taps, 0)
        + np.where(out_lds, outputs + 4 * vectors_out, 0),
        shuffles=shape.rows * past)


@dataclass(frozen=True)
class MatrixTraffic:
    """Counts per wavefront of a product of matrices."""

    fmas: Count
    splits: Count  # instructions that make two TF32 of a float32
    products: Count  # instructions of the matrix units
    lds_loads: Count
    lds_clocks: Count
    fragments: Count  # rounds of loads and products that follow one another
    copies: Count  # from memory to LDS
    stores: Count
    joined: Count  # sums that pass through LDS
    load_bytes: Count  # of all blocks


def matrix_traffic(problem: ConvProblem, t: Any, wavefront: int) -> MatrixTraffic:
    """The traffic of *t*, a MatrixTiling or columns of many."""
    shape, element = matrix_shape(problem, t, wavefront), ELEMENT_BYTES[problem.spec.dtype]
    foot = footprint(problem, MatrixTiling, t, wavefront)
    vector_p, vector_c = vectors(problem)
    split = np.asarray(t.arithmetic) == "tf32x3"
    depth = shape.steps * t.step_c / t.slices
    # Fragments of eight channels: 8 pixels or 8 output channels each (hip_src/matrix.hpp).
    eights_p, eights_c = t.wave_p / 8, t.wave_c / 8
    group = np.where(vector_p == 1, 1, np.where(t.wave_p % 32 == 0, 4, 2))
    # Plain, by four channels: vectors of filters, and of four pixels each.
    thread_c, fours = t.wave_c / t.lanes_c, t.wave_p * t.lanes_c / wavefront / 4
    lds_loads = np.where(split, depth / 8 * (2 * eights_p / group + eights_c),
                         depth / 4 * (thread_c + 4 * fours))
    lds_clocks = np.where(split, depth / 8 * (2 * eights_p + 2 * eights_c),
                          depth * (thread_c + 4 * fours))
    threads, step = foot.threads, t.step_c
    copies = shape.steps * (np.ceil(t.tile_c * step / vector_c / threads)
                            + np.ceil(t.tile_p * step / vector_p / threads))
    return MatrixTraffic(
        fmas=np.where(split, 0, depth * thread_c * 4 * fours),
        splits=np.where(split, depth / 8 * 8 * (eights_p + eights_c), 0),
        products=np.where(split, depth / 8 * 3 * eights_p / 2 * eights_c, 0),
        lds_loads=lds_loads, lds_clocks=lds_clocks,
        fragments=np.where(split, depth / 8, depth / 4), copies=copies,
        stores=shape.sums / np.where(split, np.minimum(group, vector_p), vector_p),
        joined=(t.slices - 1) * shape.sums / foot.waves,
        load_bytes=foot.blocks * element * (t.tile_c + t.tile_p) * shape.steps * step)
