"""Traffic of a wavefront of channel vectors, and the work that the cost model makes of it.

The weights were fitted to 2,935 timings of D1-D30, forward in float16 at batches 1, 8 and 32 and in
float32 at 32, and of input gradients, on one NVIDIA H200, and once more, from these on, to 439 of
today's kernels in float16 at batches 1, 8, 32 and 64 (docs/model.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from dscore.algorithms.base import Case, Work
from dscore.algorithms.channel_vectors.tiling import (
    FRAGMENT,
    WORD,
    copies,
    grid_size,
    on_units,
    row_words,
    shape_of,
)
from dscore.algorithms.columns import Count, ceil_div
from dscore.algorithms.early_start import packing
from dscore.algorithms.row_reuse.view import view_of
from dscore.algorithms.tap_sums.cost import conflicts
from dscore.core.numerics import WORD_BYTES
from dscore.ops import compulsory_bytes

LINE_BYTES = 128
SECTOR_BYTES = 32

# Clocks of a unit for each of what is named (dscore.solving.cost says what all algorithms'
# weights are); `convert`: of an element of 16 bits; `product`: of a fragment's on matrix units;
# `band`: of the wait for one; `ahead`: what working ahead saves, `crowd`: what it costs a round of
# many; `code`: of an FMA of a thread, once a round: all of them stand one after the other, and code
# that is executed once has to come first. Of a result by exponentials, or from a table:
# `activation` of a unit, `activated` of a thread, once a round; these two were fitted alone, to 887
# timings of layers of MobileNetV2 and EfficientNet-B0 in float16 and int8 at batch 32.
WEIGHTS = {"wavefront": 4.99, "fma": 0.617, "load": 0.238, "copy": 3.78, "convert": 0.452,
           "store": 0.856, "line": 2.45, "lds": 0.656, "product": 13.0, "wait": 25.3, "band": 24.3,
           "serial": 1.14, "block": 159.0, "memory": 0.812, "loaded": 0.00306, "stored": 0.0192,
           "fill": 0.251, "first": 502.0, "norm": 1.55, "ahead": 501.0, "crowd": 703.0,
           "code": 0.986, "activation": 1.9, "activated": 53.0, "uneven": 0.0, "packed": 0.0}
# Of elements of 16 bits: chosen by 3,852 timings of D1-D30 in float16 at batches 1, 8, 32 and 64 on
# H200s, most of tilings drawn at random (docs/model.md).
HALVES = {"uneven": 0.3, "packed": 0.4}
# Of int8: fitted, from those on, to 941 timings of D1-D30 at batches 8 and 32, and from there to
# every second of 20 layers of networks at batch 32 (409 timings on H200s). From there ten of them,
# and `uneven`, were fitted to every second of 22 such layers: 539 timings on an H200, of which 446
# are of several tiles of a block, and 190 earlier ones. Of the other 11 layers the first of the
# timed tilings takes 1.08 times as long as the fastest (docs/model.md). `uneven`: bytes for a
# compulsory byte that the compute unit with the most blocks has beside an even share. `packed`: of
# what that unit has beside an even share where blocks come early, what counts. It and `alone` were
# chosen by 1,648 timings at batch 64, most of tilings drawn at random. That few blocks of several
# tiles crowd together, too, cold times do not show, but networks do (docs/network_notes.md).
BYTES = {"wavefront": 5.29, "fma": 0.333, "load": 0.365, "copy": 7.42, "convert": 0.227, "line":
         0.78, "lds": 0.463, "band": 510.0, "serial": 2.33, "block": 606.0, "memory": 1.14,
         "fill": 0.209, "first": 338.0, "norm": 1.5, "ahead": 943.0, "code": 0.87,
         "activation": 3.81, "activated": 12.1, "uneven": 0.794, "packed": 0.4, "alone": 1.5}
# Instructions of a window of four columns and channels, of which neighbours share some; and of a
# sum that becomes a result of int8.
_OF_WINDOW, _REQUANTISED = 6, 7
# Rounds of a grid above which blocks that work ahead are in the way of those before them.
_ROUNDS_AHEAD = 4


@dataclass(frozen=True)
class ChannelVectorsTraffic:
    """Counts of a lane, but where others are named."""

    reads: Count  # of LDS
    lds_clocks: Count  # of a wavefront
    copies: Count  # of memory to LDS
    products: Count  # of fragments, of a wavefront
    conversions: Count
    activations: Count  # of results, that take more than a few instructions, or a table
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
    threads, repeat = case.footprint.threads, t.repeat
    units, groups_c = on_units(t), t.vector // FRAGMENT
    kernel_w = problem.spec.kernel[1]
    reads = shape.rows * shape.columns * (1 if alone else t.vector)
    fragments = shape.rows * groups_c * ceil_div(kernel_w, 2)
    of_taps = np.where(units, groups_c, t.vector) * taps
    clocks = np.where(units, fragments * 4, (repeat * reads + of_taps) * _clocks(
        case, t.vector if alone else 1))
    # A thread copies whole columns of its rows: places beyond the last are left out.
    places = shape.tile_w * shape.walked // image
    groups = np.maximum(threads // places, 1)
    pixels = repeat * ceil_div(places, threads) * ceil_div(shape.tile_h, groups)
    # On matrix units half a wavefront has what a lane has else.
    outputs = repeat * t.thread_h * t.thread_w * t.vector / np.where(units, wavefront // 2, 1)
    stores = outputs / results
    turned = _turned(case)
    bytes_out = wavefront * t.vector * element
    narrow = element < WORD_BYTES
    inside = (np.minimum(shape.tile_h, view.rows.walked_size)
              * np.minimum(shape.tile_w, view.columns.walked_size))
    sectors = ceil_div(shape.walked * element, SECTOR_BYTES) * SECTOR_BYTES
    return ChannelVectorsTraffic(
        reads=np.where(units, fragments, repeat * reads) + of_taps,
        lds_clocks=clocks + pixels * image * element / WORD_BYTES,
        copies=pixels + ceil_div(shape.filters, filters * threads),
        products=np.where(units, view.rows.products(t.thread_h) * groups_c * kernel_w / 2, 0),
        conversions=repeat * turned + _REQUANTISED * outputs if problem.spec.element.exact
        else narrow * (np.where(units, outputs, repeat * shape.rows * shape.columns * t.vector
                                       + of_taps) + outputs / 2),
        activations=problem.spec.costly_results * outputs, stores=stores,
        lines=pixels * wavefront * image * element / LINE_BYTES
        + stores * np.where(units, FRAGMENT, np.maximum(
            bytes_out * results / t.vector / LINE_BYTES, wavefront / t.lanes_c)),
        loaded=repeat * inside * sectors + shape.filters * element,
        stored=threads * outputs * element)


def _turned(case: Case) -> Count:
    """Instructions of a lane that turn words of four channels into words of four columns."""
    problem, t = case.problem, case.tiling
    if not problem.spec.element.exact:
        return 0
    words, phases = row_words(problem.spec, t.thread_w)
    windows = words * ceil_div(t.thread_w, phases)
    return shape_of(problem, t).rows * (t.vector // WORD) * windows * _OF_WINDOW


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
        issue=weight["wavefront"] + traffic.products + weight["fma"] * np.where(
            on_units(case.tiling), 0, footprint.fmas)
        + weight["activation"] * traffic.activations
        + weight["load"] * traffic.reads + weight["copy"] * traffic.copies
        + weight["convert"] * traffic.conversions + weight["store"] * traffic.stores,
        products=weight["product"] * traffic.products, lds=weight["lds"] * traffic.lds_clocks,
        lines=weight["line"] * traffic.lines,
        waits=weight["wait"] + weight["band"] * case.tiling.bands
        + weight["code"] * np.where(on_units(case.tiling), 0, footprint.fmas)
        + weight["activated"] * traffic.activations / case.tiling.repeat,
        fill_bytes=weight["fill"] * footprint.lds_bytes / case.tiling.bands,
        l2_bytes=grid_size(case.problem, case.tiling) * (
            weight["loaded"] * traffic.loaded + weight["stored"] * traffic.stored)
        + weight["uneven"] * _uneven(case, grids) * compulsory_bytes(case.problem),
        uneven=1 + weight["packed"] * (
            packing(case.tiling, grids, case.tiling.repeat > 1) - 1),
        saved_seconds=_saved_ahead(case, grids))


def _uneven(case: Case, grids: Count) -> Count:
    """What the compute unit with the most blocks has beside an even share of them, over that share,
    where all are resident at once; of more blocks the units that end early take the next ones."""
    share = case.footprint.blocks / case.device.compute_units
    return np.where((grids <= 1) & (share > 1), np.ceil(share) / share - 1, 0)


def _saved_ahead(case: Case, grids: Count) -> Count:
    """Seconds that working ahead saves a kernel whose grid fills the device *grids* times."""
    weight = case.weights
    lost = weight["crowd"] * np.maximum(grids - _ROUNDS_AHEAD, 0)
    return case.tiling.ahead * (weight["ahead"] - lost) / case.device.clock_hz
