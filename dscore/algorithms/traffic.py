"""What a wavefront asks of the units of its CU: instructions, LDS, memory, matrix units.

A load or store of a wavefront costs what its lanes touch: lines in the load-store unit, sectors in
the L2 cache. Lanes side by side share these; lanes of other rows and planes do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dscore.algorithms.geometry import (
    Count,
    ceil_div,
    column_offsets,
    depthwise_shape,
    matrix_shape,
    owned_columns,
    row_vectors,
    vectors,
)
from dscore.algorithms.resources import footprint
from dscore.core.device import Device
from dscore.core.problem import ConvProblem
from dscore.core.spec import ELEMENT_BYTES
from dscore.core.tiling import GemmTiling

LINE_BYTES = 128
SECTOR_BYTES = 32
_VECTOR_BYTES = 16
# Words that LDS serves a clock, on all of these devices.
LDS_BANKS = 32


@dataclass(frozen=True)
class Traffic:
    """Counts per wavefront: instructions, and the lines and sectors that they touch."""

    loads: Count  # of memory and of LDS
    load_lines: Count
    load_sectors: Count
    stores: Count
    store_lines: Count
    store_sectors: Count
    lds_clocks: Count  # of reads and writes, bank conflicts counted
    shuffles: Count


def _units(run: Count, whole: int, rows: Count, lanes: int, element: int, unit: int) -> Count:
    """Units of *unit* bytes that one instruction touches: *rows* runs of *run* elements side by
    side, which follow one another where a run is a *whole* row of the image.
    """
    run = np.minimum(run, whole)
    apart = rows * np.ceil((run * element + unit / 2) / unit)
    joined = np.maximum(1, np.ceil(rows * run * element / unit))
    return np.minimum(np.where(run < whole, apart, joined), lanes)


def _row_loads(problem: ConvProblem, t: Any) -> tuple[Count, Count, Count]:
    """What a lane loads of a row: whole vectors, single columns, and of these with column reuse
    those that only the last lanes of a row load, for which the others wait.
    """
    loaded, _ = row_vectors(problem, t)
    if isinstance(t.thread_w, int):
        return _loads_of_row(problem, t.thread_w, int(loaded), bool(t.column_reuse))
    keys = np.stack([t.thread_w, loaded, 1 * np.asarray(t.column_reuse)], axis=1)
    distinct, inverse = np.unique(keys, axis=0, return_inverse=True)
    found = np.array([_loads_of_row(problem, int(w), int(v), bool(r)) for w, v, r in distinct])
    return found[inverse, 0], found[inverse, 1], found[inverse, 2]


def _loads_of_row(problem: ConvProblem, thread_w: int, vector: int,
                  reuse: bool) -> tuple[int, int, int]:
    offsets, own = column_offsets(problem, thread_w), thread_w * problem.spec.stride[1]
    if reuse:
        past = sum(offset >= own for offset in offsets)
        return 0, len(owned_columns(problem, thread_w)) + past, past
    # Vectors begin at multiples of their size in memory (row_reuse/kernel.hpp, whole_vector).
    starts = range(problem.padding[2] % vector, offsets[-1] + 2 - vector, vector)
    inside = [[start <= offset < start + vector for offset in offsets] for start in starts]
    whole = [row for row in inside if any(row)] if vector > 1 else []
    return len(whole), len(offsets) - sum(map(sum, whole)), 0


def _lds_clocks(t: Any, wavefront: int, width: int, row: Count, plane: int, vector: Count) -> Count:
    """Clocks of LDS for one instruction of a wavefront that moves *vector* words a lane.

    Lanes lie *width* times thread_w apart in a row, strips *row* words, planes *plane*. LDS serves
    as many lanes at once as take its 32 banks; of these, the most that meet in a bank decide.
    """
    def column(values: Count) -> Count:
        return np.asarray(values).reshape(-1, 1)

    lane, lanes_w, lanes_h = np.arange(wavefront), column(t.lanes_w), column(t.lanes_h)
    planes = lane // (lanes_w * lanes_h)
    word = (lane % lanes_w * column(t.thread_w) * width + lane // lanes_w % lanes_h * column(row)
            + planes * plane)
    # Lanes that are left over do nothing; here they read what the first lane does.
    word = np.where(planes < column(t.planes), word, 0)
    clocks = np.zeros(word.shape[0])
    for size in (1, 2, 4):
        served = (word // size).reshape(word.shape[0], -1, LDS_BANKS // size)
        meet = [(served % (LDS_BANKS // size) == bank).sum(axis=2) for bank in range(
            LDS_BANKS // size)]
        clocks = np.where(np.ravel(vector) == size, np.max(meet, axis=0).sum(axis=1), clocks)
    return clocks if np.ndim(t.thread_w) else clocks[0]


def depthwise_traffic(problem: ConvProblem, t: Any, device: Device) -> Traffic:
    """The traffic of *t*, a RowReuseTiling or columns of many."""
    spec, shape, element = problem.spec, depthwise_shape(problem, t), ELEMENT_BYTES[
        problem.spec.dtype]
    wavefront, taps, stride_w = device.wavefront, spec.products, spec.stride[1]
    staging = np.asarray(t.staging)
    in_lds, out_lds = staging != "registers", staging == "both"
    rows_of_lanes = wavefront / np.minimum(t.lanes_w, wavefront)
    (whole, single, past), (vector_in, vector_out) = _row_loads(problem, t), row_vectors(problem, t)
    run_in, run_out = t.lanes_w * t.thread_w * stride_w, t.lanes_w * t.thread_w

    def touched(run: Count, width: int, unit: int) -> Count:
        return _units(run, width, rows_of_lanes, wavefront, element, unit)

    # Through LDS consecutive threads move consecutive vectors of 16 bytes, or a copy engine does.
    threads = ceil_div(t.planes * t.lanes_h * t.lanes_w, wavefront) * wavefront
    moved = 0 if device.has_copy_engine else element / _VECTOR_BYTES / threads
    vectors_in, vectors_out = (np.where(through, span * moved, 0) for through, span in (
        (in_lds, shape.span_in), (out_lds, shape.span_out)))
    lines, sectors = (wavefront * _VECTOR_BYTES / unit for unit in (LINE_BYTES, SECTOR_BYTES))
    given = t.thread_h * t.thread_w / vector_out
    planes = np.maximum(1, wavefront / (t.lanes_h * t.lanes_w))
    clocks_in, clocks_single, clocks_out = (
        _lds_clocks(t, wavefront, width, t.thread_h * rows * image[1], image[0] * image[1], vector)
        for width, rows, image, vector in (
            (stride_w, spec.stride[0], (problem.height, problem.width), vector_in),
            (stride_w, spec.stride[0], (problem.height, problem.width), 0 * vector_in + 1),
            (1, 1, (problem.out_height, problem.out_width), vector_out)))
    from_memory = np.where(in_lds, 0, shape.rows)
    return Traffic(
        loads=vectors_in + shape.rows * (whole + single) + taps,
        load_lines=vectors_in * lines + taps * planes + from_memory * (
            (whole + single - past) * touched(run_in, problem.width, LINE_BYTES)
            + past * np.minimum(rows_of_lanes, 8)),
        load_sectors=vectors_in * sectors + taps * planes
        + from_memory * touched(run_in, problem.width, SECTOR_BYTES),
        stores=given + vectors_out,
        store_lines=np.where(out_lds, vectors_out * lines, given * touched(
            run_out, problem.out_width, LINE_BYTES)),
        store_sectors=np.where(out_lds, vectors_out * sectors, given * touched(
            run_out, problem.out_width, SECTOR_BYTES)),
        lds_clocks=np.where(in_lds, shape.rows * (whole * clocks_in + single * clocks_single), 0)
        + np.where(out_lds, given * clocks_out, 0) + 4 * (vectors_in + vectors_out),
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
    """The traffic of *t*, a GemmTiling or columns of many."""
    shape, element = matrix_shape(problem, t, wavefront), ELEMENT_BYTES[problem.spec.dtype]
    foot = footprint(problem, GemmTiling, t, wavefront)
    vector_p, vector_c = vectors(problem)
    split = np.asarray(t.arithmetic) == "tf32x3"
    depth = shape.steps * t.step_c / t.slices
    # Fragments of eight channels: 8 pixels or 8 output channels each (hip_src/gemm/kernel.hpp).
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
