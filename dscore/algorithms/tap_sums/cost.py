"""Traffic of a wavefront of tap sums, and the work that the cost model makes of it.

The weights were fitted to 1,100 timings of D1-D29 at batches 8 and 32 on one NVIDIA H200, so that
what is ranked first is near the fastest (docs/model.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dscore.algorithms.base import LDS_BANKS, VECTOR_BYTES, Case, Work
from dscore.algorithms.columns import Count, ceil_div, floor_div, once_for_each
from dscore.algorithms.tap_sums.tiling import column_offsets, row_vectors, shape_of, sums_of
from dscore.core.numerics import WORD_BYTES
from dscore.core.problem import ConvProblem
from dscore.ops import compulsory_bytes

SECTOR_BYTES = 32

# Clocks of a unit for each of what is named (dscore.solving.cost says what all algorithms' weights
# are); `unit`: what a block waits for each time it takes rows, `transfer` for each of their bytes,
# `copy` for each piece; `reduce`: for the sums of its threads; `then`: from its end to that of the
# launch which adds the slices, `part` for each slice; `ahead`: what
# working ahead saves, `ahead_share`: of the time of moving all operands once, what it costs.
WEIGHTS = {"wavefront": 22.5, "fma": 0.0853, "load": 0.567, "lds": 0.838, "wait": 124.0,
           "unit": 829.0, "transfer": 0.0274, "copy": 116.0, "reduce": 744.0, "serial": 1.63,
           "block": 100.0, "memory": 0.8, "loaded": 0.0546, "fill": 0.0, "first": 349.0,
           "norm": 1.2, "then": 2010.0, "part": 8.7, "cluster": 900.0, "cluster_share": 0.22,
           "ahead": 1860.0, "ahead_share": 0.508}


@dataclass(frozen=True)
class TapSumsTraffic:
    """Counts per wavefront for one unit, and for the reduction at the end of a block."""

    reads: Count  # of LDS, instructions
    lds_clocks: Count
    copies: Count  # of memory to LDS, instructions
    reduction: Count  # instructions
    sectors: Count  # of memory, of a block


def _reads_of_row(problem: ConvProblem, thread_w: int, taps_w: int,
                  vector: int) -> tuple[int, int]:
    """Reads of a lane for a row of x: whole vectors, and single columns."""
    offsets = column_offsets(problem, thread_w, taps_w)
    # Vectors begin at multiples of their size in memory (tap_sums/kernel.hpp, whole_vector).
    starts = range(problem.padding[2] % vector, offsets[-1] + 2 - vector, vector)
    inside = [[start <= offset < start + vector for offset in offsets] for start in starts]
    whole = [row for row in inside if any(row)] if vector > 1 else []
    return len(whole), len(offsets) - sum(map(sum, whole))


def _row_reads(problem: ConvProblem, t: Any) -> tuple[Count, Count]:
    vector, _ = row_vectors(problem, t)
    if isinstance(t.thread_w, int):
        return _reads_of_row(problem, t.thread_w, t.taps_w, int(vector))
    reads = once_for_each(lambda *columns: np.array([
        _reads_of_row(problem, *map(int, row)) for row in zip(*columns, strict=True)]),
        t.thread_w, t.taps_w, vector)
    return reads[:, 0], reads[:, 1]


def conflicts(t: Any, wavefront: int, lane: Count, strip: Count, plane: Count, image: Count,
               vector: Count, element: int) -> Count:
    """Clocks of LDS for one read of a wavefront, *vector* elements a lane.

    Lanes of a row lie *lane* elements apart, strips *strip*, planes *plane*, images *image*. LDS
    serves as many lanes at once as take its 32 banks; of these, the most that meet in a bank
    decide.
    """
    def clocks(lanes_w: Count, lanes_h: Count, planes: Count, lane: Count, strip: Count,
               plane: Count, image: Count, vector: Count) -> Count:
        thread, wide, high, deep = (np.arange(wavefront), lanes_w[:, None], lanes_h[:, None],
                                    planes[:, None])
        row = floor_div(thread, wide)
        of_plane = floor_div(thread, wide * high)
        of_image = floor_div(thread, wide * high * deep)
        word = ((thread - row * wide) * lane[:, None] + (row - of_plane * high) * strip[:, None]
                + (of_plane - of_image * deep) * plane[:, None]
                + of_image * image[:, None]) * element // WORD_BYTES
        words = np.maximum(vector * element // WORD_BYTES, 1)
        meeting = np.zeros(len(word))
        for size in (1, 2, 4):
            rows = np.flatnonzero(words == size)
            address, banks = word[rows] // size, LDS_BANKS // size
            group = np.arange(address.size) // banks
            meet = np.bincount(group * banks + np.ravel(address) % banks, minlength=address.size)
            meeting[rows] = meet.reshape(len(rows), wavefront // banks, banks).max(axis=2).sum(
                axis=1)
        return meeting

    result = once_for_each(clocks, t.lanes_w, t.lanes_h, t.planes, lane, strip, plane, image,
                           vector)
    return result if np.ndim(t.thread_w) else result[0]


def traffic_of(case: Case) -> TapSumsTraffic:
    """The traffic of a case."""
    problem, t, device = case.problem, case.tiling, case.device
    spec, shape, element = problem.spec, shape_of(problem, t), problem.spec.element.bytes
    (whole, single), (vector_x, vector_g) = _row_reads(problem, t), row_vectors(problem, t)
    x_apart = (t.thread_w * spec.stride[1], t.thread_h * spec.stride[0] * problem.width,
               problem.height * problem.width, shape.span_x)
    g_apart = (t.thread_w, t.thread_h * problem.out_width,
               problem.out_height * problem.out_width, shape.span_g)
    clocks_whole, clocks_single, clocks_g = (
        conflicts(t, device.wavefront, *apart, vector, element)
        for apart, vector in ((x_apart, vector_x), (x_apart, 0 * vector_x + 1),
                              (g_apart, vector_g)))
    gradients = t.thread_h * t.thread_w / vector_g
    bytes_of_unit = element * t.images * (shape.span_x + shape.span_g)
    threads = ceil_div(shape.threads, device.wavefront) * device.wavefront
    taps = t.taps_h * t.taps_w
    return TapSumsTraffic(
        reads=shape.rows * (whole + single) + gradients,
        lds_clocks=shape.rows * (whole * clocks_whole + single * clocks_single)
        + gradients * clocks_g,
        # Consecutive threads move consecutive vectors, or a copy engine does.
        copies=0 if device.bulk_copies else bytes_of_unit / VECTOR_BYTES / threads,
        reduction=np.where(t.images * t.lanes_h * t.lanes_w > 1, 3 * taps, taps),
        sectors=bytes_of_unit / SECTOR_BYTES * shape.unit_slices)


def named(case: Case) -> dict[str, Count]:
    """The traffic of a case by the names of `Algorithm.traffic`, for one unit."""
    traffic, shape = traffic_of(case), shape_of(case.problem, case.tiling)
    return {"multiply-adds": case.footprint.fmas / shape.unit_slices, "LDS reads": traffic.reads,
            "LDS clocks": traffic.lds_clocks, "global loads": traffic.copies}


def work(case: Case, grids: Count) -> Work:
    """The work of a case whose grid fills the device *grids* times."""
    weight, footprint, t = case.weights, case.footprint, case.tiling
    traffic, shape = traffic_of(case), shape_of(case.problem, t)
    units = shape.unit_slices
    # A unit's load is waited for, unless another stage's unit is summed meanwhile.
    transfer = weight["transfer"] * case.problem.spec.element.bytes * t.images * (
        shape.span_x + shape.span_g) + weight["copy"] * 2 * t.images
    waits = transfer + (weight["unit"] + transfer) * (units - 1) / t.stages
    then = np.where(t.slices > 1, weight["then"] + weight["part"] * t.slices, 0)
    return Work(
        issue=weight["wavefront"] + weight["fma"] * footprint.fmas
        + weight["load"] * ((traffic.reads + traffic.copies) * units + traffic.reduction),
        products=0.0, lds=weight["lds"] * (traffic.lds_clocks * units + traffic.reduction),
        lines=0.0, waits=weight["wait"] + waits + weight["reduce"],
        fill_bytes=weight["fill"] * footprint.lds_bytes,
        l2_bytes=footprint.blocks * weight["loaded"] * traffic.sectors * SECTOR_BYTES
        + 2 * np.where(t.slices > 1, t.slices, 0) * WORD_BYTES * sums_of(case.problem),
        saved_seconds=_saved(case, then) / case.device.clock_hz)


def _saved(case: Case, then: Count) -> Count:
    """Clocks that are saved: by working ahead those of a start, less a share of what must move, as
    the blocks that come early take some of its bandwidth. Less those of the launch that adds
    slices, and of a cluster's sums; its blocks come all at once, which costs a share, too."""
    device, weight, t = case.device, case.weights, case.tiling
    moving = compulsory_bytes(case.problem) / device.bandwidth * device.clock_hz
    return (t.ahead * (weight["ahead"] - weight["ahead_share"] * moving) - then
            - (t.cluster > 1) * (weight["cluster"] + weight["cluster_share"] * moving))
