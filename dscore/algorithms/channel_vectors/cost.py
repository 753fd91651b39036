"""Traffic of a wavefront of channel vectors, and the work that the cost model makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from dscore.algorithms.base import Case, Work
from dscore.algorithms.channel_vectors.tiling import blocks, copies, shape_of
from dscore.algorithms.columns import Count, ceil_div
from dscore.algorithms.row_reuse.view import view_of
from dscore.algorithms.tap_sums.cost import conflicts
from dscore.core.numerics import WORD_BYTES

LINE_BYTES = 128
SECTOR_BYTES = 32

# Clocks of a unit for each of what is named (dscore.solving.cost says what all algorithms'
# weights are); `convert`: of an element of 16 bits; `ahead`: what working ahead saves, `crowd`:
# what it costs a round of many.
WEIGHTS = {"wavefront": 20.0, "fma": 0.55, "load": 1.0, "copy": 5.0, "convert": 0.55,
           "store": 2.0, "line": 0.5, "lds": 0.9, "wait": 500.0, "serial": 1.3, "block": 100.0,
           "memory": 1.0, "loaded": 0.13, "stored": 0.3, "fill": 0.3, "first": 900.0, "norm": 2.3,
           "ahead": 1000.0, "crowd": 300.0}
# Rounds of a grid above which blocks that work ahead are in the way of those before them.
_ROUNDS_AHEAD = 4


@dataclass(frozen=True)
class ChannelVectorsTraffic:
    """Counts of a lane, but where others are named."""

    reads: Count  # of LDS
    lds_clocks: Count  # of a wavefront
    copies: Count  # of memory to LDS
    conversions: Count
    stores: Count
    lines: Count  # of a wavefront, loaded and stored
    loaded: Count  # bytes of sectors, of a block
    stored: Count


def traffic_of(case: Case) -> ChannelVectorsTraffic:
    """The traffic of a case."""
    problem, t, wavefront = case.problem, case.tiling, case.device.wavefront
    shape, view, element = shape_of(problem, t), view_of(problem), problem.spec.element.bytes
    image, filters, results = copies(problem, t)
    taps, alone = problem.spec.products, view.multiplier == 1
    threads = case.footprint.threads
    reads, of_taps = shape.rows * shape.columns, taps * t.vector
    clocks = _clocks(case, t.vector if alone else 1)
    # A thread copies whole columns of its rows: places beyond the last are left out.
    places = shape.tile_w * shape.walked // image
    groups = np.maximum(threads // places, 1)
    pixels = ceil_div(places, threads) * ceil_div(shape.tile_h, groups)
    stores = t.thread_h * t.thread_w * t.vector / results
    bytes_out = wavefront * t.vector * element
    outputs = t.thread_h * t.thread_w * t.vector
    narrow = element < WORD_BYTES
    inside = (np.minimum(shape.tile_h, view.rows.walked_size)
              * np.minimum(shape.tile_w, view.columns.walked_size))
    sectors = ceil_div(shape.walked * element, SECTOR_BYTES) * SECTOR_BYTES
    return ChannelVectorsTraffic(
        reads=reads * (1 if alone else t.vector) + of_taps,
        lds_clocks=(reads * (1 if alone else t.vector) + of_taps) * clocks
        + pixels * image * element / WORD_BYTES,
        copies=pixels + ceil_div(shape.filters, filters * threads),
        conversions=narrow * ((reads + taps) * t.vector + outputs / 2), stores=stores,
        lines=pixels * wavefront * image * element / LINE_BYTES
        + stores * np.maximum(bytes_out * results / t.vector / LINE_BYTES,
                              wavefront / t.lanes_c),
        loaded=inside * sectors + shape.filters * element,
        stored=threads * outputs * element)


def _clocks(case: Case, vector: Count) -> Count:
    """Clocks of LDS for one read of a wavefront, *vector* elements a lane."""
    problem, t = case.problem, case.tiling
    shape, view = shape_of(problem, t), view_of(problem)
    lanes = SimpleNamespace(lanes_w=t.lanes_c, lanes_h=t.lanes_w, planes=t.lanes_h,
                            thread_w=t.thread_w)
    return conflicts(lanes, case.device.wavefront, t.vector,
                     view.columns.step(t.thread_w) * shape.walked,
                     view.rows.step(t.thread_h) * shape.tile_w * shape.walked, 0 * t.lanes_h,
                     vector + 0 * t.vector, problem.spec.element.bytes)


def named(case: Case) -> dict[str, Count]:
    """The traffic of a case by the names of `Algorithm.traffic`."""
    traffic = traffic_of(case)
    return {"multiply-adds": case.footprint.fmas, "LDS reads": traffic.reads,
            "LDS clocks": traffic.lds_clocks, "global loads": traffic.copies,
            "global stores": traffic.stores}


def work(case: Case, grids: Count) -> Work:
    """The work of a case whose grid fills the device *grids* times."""
    weight, footprint, traffic = case.weights, case.footprint, traffic_of(case)
    return Work(
        issue=weight["wavefront"] + weight["fma"] * footprint.fmas
        + weight["load"] * traffic.reads + weight["copy"] * traffic.copies
        + weight["convert"] * traffic.conversions + weight["store"] * traffic.stores,
        products=0.0, lds=weight["lds"] * traffic.lds_clocks, lines=weight["line"] * traffic.lines,
        waits=weight["wait"] + 0 * footprint.fmas, fill_bytes=weight["fill"] * footprint.lds_bytes,
        l2_bytes=blocks(case.problem, case.tiling) * (
            weight["loaded"] * traffic.loaded + weight["stored"] * traffic.stored),
        saved_seconds=_saved_ahead(case, grids))


def _saved_ahead(case: Case, grids: Count) -> Count:
    """Seconds that working ahead saves a kernel whose grid fills the device *grids* times."""
    weight = case.weights
    lost = weight["crowd"] * np.maximum(grids - _ROUNDS_AHEAD, 0)
    return case.tiling.ahead * (weight["ahead"] - lost) / case.device.clock_hz
