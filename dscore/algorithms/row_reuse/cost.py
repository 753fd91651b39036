"""Traffic of a wavefront of row reuse, and the work that the cost model makes of it.

A load or store of a wavefront costs what its lanes touch: lines in the load-store unit, sectors in
the L2 cache. Lanes side by side share these; lanes of other rows and planes do not.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from dscore.algorithms.base import LDS_BANKS, VECTOR_BYTES, Case, Work
from dscore.algorithms.columns import Count, ceil_div, floor_div, once_for_each
from dscore.algorithms.early_start import packing
from dscore.algorithms.row_reuse import patches
from dscore.algorithms.row_reuse.tiling import (
    column_offsets,
    on_units,
    owned_columns,
    row_vectors,
    shape_of,
    staged,
)
from dscore.algorithms.row_reuse.view import view_of
from dscore.algorithms.row_reuse.words import words_of
from dscore.core.device import Device
from dscore.core.numerics import WORD_BYTES
from dscore.core.problem import ConvProblem

LINE_BYTES = 128
SECTOR_BYTES = 32

# Clocks of a unit for each of what is named (dscore.solving.cost says what all algorithms'
# weights are); `ahead`: what working ahead saves, `ahead_crowded`: where compute units do not hold
# two grids, `crowd`: what it costs a round of many.
WEIGHTS = {"wavefront": 6.98, "fma": 0.502, "load": 1.50, "store": 0.349, "shuffle": 1.03,
           "line": 0.556, "lds": 0.873, "wait": 41.8, "row": 230.0, "staging": 163.0,
           "both": 350.0, "serial": 1.34, "block": 150.0, "memory": 1.06, "loaded": 0.129,
           "stored": 0.663, "fill": 0.670, "first": 963.0, "norm": 2.33, "ahead": 1319.0,
           "ahead_crowded": 643.0, "crowd": 309.0}
# Of elements of 16 bits, which are converted before they are multiplied: fitted to 1,082 timings of
# D1-D30 in float16 at batches 8 and 32 on one NVIDIA H100, and from there to 3,038 at batches 1, 8
# and 32 on H200s, most of them of tilings drawn at random; `alone` was chosen by the same.
HALVES = {"wavefront": 4.53, "fma": 0.923, "load": 1.73, "store": 0.278, "shuffle": 1.09,
          "line": 0.372, "lds": 0.911, "wait": 30.0, "row": 313.0, "staging": 46.4, "both": 204.0,
          "serial": 1.40, "block": 213.0, "memory": 1.09, "loaded": 0.237, "stored": 1.09,
          "fill": 0.618, "first": 674.0, "norm": 2.67, "ahead": 949.0, "ahead_crowded": 983.0,
          "crowd": 315.0, "alone": 1.5,
          # On matrix units (patches.py): a wavefront; for each of its planes the matrices of taps
          # and words of rows; LDS and lines of stores; code that runs once; results through LDS.
          # Fitted to 4,249 timings of 150 layers and batches on H200s.
          "units": 83.7, "tap": 5.05, "word": 2.12, "bank": 2.69, "segment": 2.11, "code": 8.04,
          "left": 277.0}
# Multiply-adds of float32 in whose time one instruction on words of int8 is done.
_CLOCKS_OF_WORD = 2
# Rounds of a grid above which blocks that work ahead are in the way of those before them.
_ROUNDS_AHEAD = 4


@dataclass(frozen=True)
class RowReuseTraffic:
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
    """Loads of a lane for a row: whole vectors, single columns, and of these with column reuse
    those that only the last lanes of a row load, for which the others wait.
    """
    loaded, _ = row_vectors(problem, t)
    if problem.spec.element.exact:
        words = words_of(problem, t).read
        return words, 0 * words, 0 * words
    if isinstance(t.thread_w, int):
        return _loads_of_row(problem, t.thread_w, int(loaded), bool(t.column_reuse))
    loads = once_for_each(lambda *columns: np.array([
        _loads_of_row(problem, int(w), int(v), bool(r)) for w, v, r in zip(*columns, strict=True)]),
        t.thread_w, loaded, t.column_reuse)
    return loads[:, 0], loads[:, 1], loads[:, 2]


def _loads_of_row(problem: ConvProblem, thread_w: int, vector: int,
                  reuse: bool) -> tuple[int, int, int]:
    axis = view_of(problem).columns
    offsets, own = column_offsets(problem, thread_w), axis.step(thread_w)
    if reuse:
        past = sum(offset >= own for offset in offsets)
        return 0, len(owned_columns(problem, thread_w)) + past, past
    # Vectors begin at multiples of their size in memory (row_reuse/kernel.hpp, whole_vector).
    starts = range(-axis.first % vector, offsets[-1] + 2 - vector, vector)
    inside = [[start <= offset < start + vector for offset in offsets] for start in starts]
    whole = [row for row in inside if any(row)] if vector > 1 else []
    return len(whole), len(offsets) - sum(map(sum, whole)), 0


def _lds_clocks(t: Any, wavefront: int, width: Count, row: Count, plane: int, vector: Count,
                element: int) -> Count:
    """Clocks of LDS for one instruction of a wavefront that moves *vector* elements a lane.

    Lanes lie *width* apart in a row, strips *row* elements, planes *plane*. LDS
    serves as many lanes at once as take its 32 banks; of these, the most that meet in a bank
    decide. An element has *element* bytes.
    """
    def clocks(lanes_w: Count, lanes_h: Count, planes: Count, width: Count, row: Count,
               vector: Count) -> Count:
        lane, high = np.arange(wavefront), lanes_h[:, None]
        wide = lanes_w[:, None]
        lane_plane = floor_div(lane, wide * high)
        lane_row = floor_div(lane, wide)
        word = ((lane - lane_row * wide) * width[:, None]
                + (lane_row - lane_plane * high) * row[:, None] + lane_plane * plane)
        # Lanes that are left over do nothing; here they read what the first lane does.
        word = np.where(lane_plane < planes[:, None], word, 0) * element // WORD_BYTES
        words = np.maximum(vector * element // WORD_BYTES, 1)
        meeting = np.zeros(len(word))
        for size in (1, 2, 4):
            tilings = np.flatnonzero(words == size)
            meeting[tilings] = _meeting(word[tilings] // size, LDS_BANKS // size)
        return meeting

    result = once_for_each(clocks, t.lanes_w, t.lanes_h, t.planes, width, row, vector)
    return result if np.ndim(t.thread_w) else result[0]


def _meeting(address: Count, banks: int) -> Count:
    """Sum over groups of as many lanes as there are banks: the most that meet in one bank."""
    tilings, lanes = np.shape(address)
    group = np.arange(tilings * lanes) // banks
    meet = np.bincount(group * banks + np.ravel(address) % banks, minlength=tilings * lanes)
    most: Count = meet.reshape(tilings, lanes // banks, banks).max(axis=2).sum(axis=1)
    return most


def traffic_of(problem: ConvProblem, t: Any, device: Device) -> RowReuseTraffic:
    """The traffic of *t*, a RowReuseTiling or columns of many."""
    view, shape, element = view_of(problem), shape_of(problem, t), problem.spec.element.bytes
    rows, columns, taps = view.rows, view.columns, problem.spec.products
    wavefront = device.wavefront
    staging = np.asarray(t.staging)
    in_lds, out_lds = staging != "registers", staging == "both"
    rows_of_lanes = wavefront / np.minimum(t.lanes_w, wavefront)
    (whole, single, past), (vector_in, vector_out) = _row_loads(problem, t), row_vectors(problem, t)
    if problem.spec.element.exact:
        vector_in = WORD_BYTES + 0 * vector_in
    run_in, run_out = columns.step(t.lanes_w * t.thread_w), t.lanes_w * t.thread_w

    def touched(run: Count, width: int, unit: int) -> Count:
        return _units(run, width, rows_of_lanes, wavefront, element, unit)

    # Through LDS consecutive threads move consecutive vectors of 16 bytes, or a copy engine does.
    threads = ceil_div(t.planes * t.lanes_h * t.lanes_w, wavefront) * wavefront
    moved = 0 if device.bulk_copies else element / VECTOR_BYTES / threads
    vectors_in, vectors_out = (np.where(through, span * moved, 0) for through, span in (
        (in_lds, shape.span_in), (out_lds, shape.span_out)))
    lines, sectors = (wavefront * VECTOR_BYTES / unit for unit in (LINE_BYTES, SECTOR_BYTES))
    results = t.thread_h * t.thread_w / vector_out
    planes = np.maximum(1, wavefront / (t.lanes_h * t.lanes_w))
    width_in, width_out = columns.walked_size, columns.written_size
    walked = (columns.step(t.thread_w), rows.step(t.thread_h) * width_in,
              rows.walked_size * width_in)
    written = t.thread_w, t.thread_h * width_out, rows.written_size * width_out
    clocks_in, clocks_single, clocks_out = (
        _lds_clocks(t, wavefront, *apart, vector, element) for apart, vector in (
            (walked, vector_in), (walked, 0 * vector_in + 1), (written, vector_out)))
    from_memory = np.where(in_lds, 0, shape.rows)
    return RowReuseTraffic(
        loads=vectors_in + shape.rows * (whole + single) + taps,
        load_lines=vectors_in * lines + taps * planes + from_memory * (
            (whole + single - past) * touched(run_in, width_in, LINE_BYTES)
            + past * np.minimum(rows_of_lanes, 8)),
        load_sectors=vectors_in * sectors + taps * planes
        + from_memory * touched(run_in, width_in, SECTOR_BYTES),
        stores=results + vectors_out,
        store_lines=np.where(out_lds, vectors_out * lines, results * touched(
            run_out, width_out, LINE_BYTES)),
        store_sectors=np.where(out_lds, vectors_out * sectors, results * touched(
            run_out, width_out, SECTOR_BYTES)),
        lds_clocks=np.where(in_lds, shape.rows * (whole * clocks_in + single * clocks_single), 0)
        + np.where(out_lds, results * clocks_out, 0) + VECTOR_BYTES // WORD_BYTES * (
            vectors_in + vectors_out),
        shuffles=shape.rows * past)


def named(case: Case) -> dict[str, Count]:
    """The traffic of a case by the names of `Algorithm.traffic`; lines are `LINE_BYTES` long."""
    problem, t = case.problem, case.tiling
    traffic, (whole, single, _) = traffic_of(problem, t, case.device), _row_loads(problem, t)
    reads = np.where(staged(t), shape_of(problem, t).rows * (whole + single), 0)
    return {"multiply-adds": case.footprint.fmas, "LDS reads": reads,
            "LDS clocks": traffic.lds_clocks, "global loads": traffic.loads - reads,
            "global stores": traffic.stores, "lines loaded": traffic.load_lines,
            "lines stored": traffic.store_lines, "lane permutes": traffic.shuffles}


def work(case: Case, grids: Count) -> Work:
    """The work of a case whose grid fills the device *grids* times."""
    lanes, units = _work_of_lanes(case, grids), on_units(case.tiling)
    if not np.any(units):
        return lanes
    of_units = replace(patches.work(case), uneven=lanes.uneven, saved_seconds=lanes.saved_seconds)
    return Work(**{field.name: np.where(units, getattr(of_units, field.name),
                                        getattr(lanes, field.name)) for field in fields(Work)})


def _work_of_lanes(case: Case, grids: Count) -> Work:
    weight, footprint, t = case.weights, case.footprint, case.tiling
    traffic, rows = traffic_of(case.problem, t, case.device), shape_of(case.problem, t).rows
    moved = weight["loaded"] * traffic.load_sectors + weight["stored"] * traffic.store_sectors
    return Work(
        issue=weight["wavefront"] + weight["fma"] * _adds(case) + weight["load"] * traffic.loads
        + weight["store"] * traffic.stores + weight["shuffle"] * traffic.shuffles,
        products=0.0, lds=weight["lds"] * traffic.lds_clocks,
        lines=weight["line"] * (traffic.load_lines + traffic.store_lines),
        waits=weight["wait"] + np.where(staged(t), weight["staging"], weight["row"] * rows)
        + weight["both"] * (np.asarray(t.staging) == "both"),
        fill_bytes=weight["fill"] * footprint.lds_bytes,
        l2_bytes=footprint.blocks * footprint.waves * moved * SECTOR_BYTES,
        uneven=packing(t, grids), saved_seconds=_saved_ahead(case, grids))


def _adds(case: Case) -> Count:
    """Multiply-adds of a thread; of int8 as many as its products of four take the time of, with
    the words that are made for them."""
    if not case.problem.spec.element.exact:
        return case.footprint.fmas
    of_row = words_of(case.problem, case.tiling)
    rows = shape_of(case.problem, case.tiling).rows
    return _CLOCKS_OF_WORD * (case.footprint.fmas + rows * (of_row.shifted + of_row.words))


def _saved_ahead(case: Case, grids: Count) -> Count:
    """Seconds that working ahead saves a kernel whose grid fills the device *grids* times.

    Results that leave through LDS make blocks so alike that it matters less who begins where.
    """
    weight, both = case.weights, np.asarray(case.tiling.staging) == "both"
    saved = np.where((grids <= 1 / 2) | both, weight["ahead"], weight["ahead_crowded"])
    lost = weight["crowd"] * np.maximum(grids - _ROUNDS_AHEAD, 0)
    return case.tiling.ahead * (saved - lost) / case.device.clock_hz
