"""Traffic of a wavefront of channel sums, and the work that the cost model makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from dscore.algorithms.base import Case, Work
from dscore.algorithms.channel_sums.tiling import (
    channel_tiles,
    copies,
    makes_both,
    shape_of,
)
from dscore.algorithms.channel_vectors.tiling import FRAGMENT, on_units
from dscore.algorithms.columns import Count, ceil_div
from dscore.algorithms.row_reuse.view import axes_of
from dscore.algorithms.tap_sums.cost import conflicts
from dscore.core.numerics import WORD_BYTES
from dscore.ops import compulsory_bytes

SECTOR_BYTES = 32

# Clocks of a unit for each of what is named (dscore.solving.cost says what all algorithms'
# weights are); `tile`: what a block waits for each time it takes one, `transfer` for each of its
# bytes of a band, both over the stages to the power of `overlap`; `band` for each other band;
# `reduce`: for the sums of its threads; `chain`: of the instructions of a wavefront, which follow
# one another; `fragment`: of each product on matrix units beside these; `row`: bytes for each pixel
# of a tile, whose channels lie apart from those of the next; `then`: from its end to that of the
# launch which adds the slices, `part` for each; `cluster`: for the sums of its blocks;
# `store`: of a pixel of the input's gradient, `mask`: of what `masks` counts; `ahead`:
# what working ahead saves, `ahead_share`: of the time of moving all operands once, what it costs.
# They were fitted to 260 timings of D1-D30 in float16 at batch 32 on one NVIDIA H200, few, of
# selections by earlier fits; there are none of matrix units in float32.
WEIGHTS = {"wavefront": 45.3, "fma": 1.52, "load": 0.155, "copy": 4.96, "convert": 1.46,
           "lds": 0.01, "wait": 1910.0, "tile": 50.0, "band": 173.0, "transfer": 0.0499,
           "reduce": 44.3, "serial": 0.767, "block": 1.0, "memory": 0.769, "loaded": 0.581,
           "fill": 0.0, "first": 100.0, "norm": 1.56, "then": 1080.0, "part": 0.3,
           "cluster": 772.0, "cluster_share": 0.322, "ahead": 100.0, "ahead_share": 0.23,
           "fragment": 0.0, "product": 0.0, "row": 0.0, "chain": 0.0, "overlap": 1.0,
           "store": 4.96, "mask": 0.0}
# Of 16 bits: fitted, from those on, to every second of 40 layers in float16, D1-D30 at batch 32 and
# MobileNetV2's at 128, of which there are 2,924 timings of mostly random tilings on H200s, 1,518 of
# them on matrix units, and 1,091 with clusters (docs/model.md).
HALVES = {"wavefront": 421.0, "fma": 0.823, "load": 0.0097, "copy": 13.9, "convert": 0.00949,
          "lds": 0.0518, "wait": 36.3, "tile": 987.0, "band": 192.0, "transfer": 0.0164,
          "reduce": 1.25, "serial": 0.726, "memory": 0.302, "loaded": 0.283, "fill": 0.239,
          "first": 1470.0, "norm": 1.2, "then": 1440.0, "part": 0.533, "cluster": 926.0,
          "cluster_share": 0.0498, "ahead": 943.0, "ahead_share": 0.191, "fragment": 4.8,
          "product": 0.409, "row": 12.3, "chain": 0.659, "overlap": 2.0, "store": 13.9,
          "mask": 0.0}
# Of both gradients in 16 bits: fitted, from those on, to 1,063 timings of mostly random tilings of
# 61 layers in float16 on one H200: D1-D30 at batch 8 and 32, MobileNetV2's at 128 (docs/model.md).
BOTH = {**HALVES, "wavefront": 2560.0, "fma": 1.47, "load": 1.76, "copy": 8.97, "convert": 1.53,
        "tile": 1650.0, "band": 239.0, "transfer": 0.00695, "serial": 0.476, "memory": 1.09,
        "loaded": 0.695, "store": 3.2, "row": 25.4, "chain": 1.77, "norm": 4.29, "cluster": 770.0,
        "ahead": 1040.0, "ahead_share": 0.0856, "mask": 0.516}


@dataclass(frozen=True)
class ChannelSumsTraffic:
    """Counts of a lane for one tile, but where others are named."""

    reads: Count  # of LDS; on matrix units of fragments, of a wavefront
    products: Count  # of fragments, of a wavefront
    lds_clocks: Count  # of a wavefront
    copies: Count  # of memory to LDS
    conversions: Count
    reduction: Count  # reads and writes of LDS at the end
    sectors: Count  # bytes of a block's tile
    pixels: Count  # of it, each of which is a row in memory
    stores: Count  # of the input's gradient
    masks: Count  # of both gradients: columns and taps whose products a lane may leave out


def traffic_of(case: Case) -> ChannelSumsTraffic:
    """The traffic of a case."""
    problem, t, threads = case.problem, case.tiling, case.footprint.threads
    shape, element = shape_of(problem, t), problem.spec.element.bytes
    rows, columns = axes_of(problem)
    (copy_walked, copy_own), alone = copies(problem, t), problem.spec.group_out == 1
    of_row = shape.columns * (1 if alone else t.vector)
    own = t.thread_h * t.thread_w
    reads = shape.rows * of_row + own
    lanes = SimpleNamespace(lanes_w=t.lanes_c, lanes_h=t.lanes_w, planes=t.lanes_h,
                            thread_w=t.thread_w)
    clocks = conflicts(lanes, case.device.wavefront, t.vector,
                       columns.step(t.thread_w) * shape.walked,
                       rows.step(t.thread_h) * shape.tile_w * shape.walked, 0 * t.lanes_h,
                       (t.vector if alone else 1) + 0 * t.vector, element)
    fragments, products = _fragments(case)
    units = on_units(t)
    copied = _copies(threads, shape.tile_w * shape.walked // copy_walked, shape.tile_h) + _copies(
        threads, t.lanes_w * t.thread_w * shape.channels // copy_own, t.lanes_h * t.thread_h)
    sharers, kernel = t.lanes_h * t.lanes_w, columns.kernel
    added = ceil_div(kernel * shape.channels, threads) * sharers
    of_walked = (np.minimum(shape.tile_h, rows.walked_size)
                 * np.minimum(shape.tile_w, columns.walked_size))
    of_own = (np.minimum(t.lanes_h * t.thread_h, rows.written_size)
              * np.minimum(t.lanes_w * t.thread_w, columns.written_size))
    both = makes_both(problem)  # what is made of the own image is as large
    return ChannelSumsTraffic(
        reads=np.where(units, fragments, reads), products=products,
        lds_clocks=np.where(units, 4 * fragments, reads * clocks), copies=copied,
        conversions=np.where(units, 0, (element < WORD_BYTES) * t.vector
                             * (shape.rows * shape.columns + own * (1 + both))),
        reduction=np.where(sharers > 1, rows.kernel * (kernel * t.vector + added), 0),
        sectors=(_sectors(shape.walked * element) * of_walked
                 + _sectors(shape.channels * element) * of_own * (1 + both)),
        pixels=of_walked + of_own * (1 + both), stores=both * own,
        masks=both * rows.products(t.thread_h) * columns.products(t.thread_w))


def _fragments(case: Case) -> tuple[Count, Count]:
    """What a wavefront reads for one tile on matrix units, and its products."""
    t, (kernel_h, kernel_w) = case.tiling, case.problem.spec.kernel
    rows, groups = axes_of(case.problem)[0], t.vector // FRAGMENT
    # Two rows of x at a time, under two filter columns, and the gradient's.
    steps = ceil_div(t.thread_h + (kernel_h - 1) * rows.dilation // rows.stride, 2)
    pairs = kernel_h * (kernel_w // 2) + kernel_w % 2 * ceil_div(kernel_h, 2)
    return (groups * steps * (rows.stride * ceil_div(kernel_w, 2) + 1),
            on_units(t) * groups * pairs * ceil_div(t.thread_h, 2))


def _copies(threads: Count, places: Count, rows: Count) -> Count:
    """Copies of a thread for a tile whose rows have *places*."""
    return ceil_div(places, threads) * ceil_div(rows, np.maximum(threads // places, 1))


def _sectors(size: Count) -> Count:
    return ceil_div(size, SECTOR_BYTES) * SECTOR_BYTES


def named(case: Case) -> dict[str, Count]:
    """The traffic of a case by the names of `Algorithm.traffic`."""
    traffic, units = traffic_of(case), shape_of(case.problem, case.tiling).unit_slices
    return {"multiply-adds": case.footprint.fmas, "LDS reads": traffic.reads * units,
            "LDS clocks": traffic.lds_clocks * units, "global loads": traffic.copies * units,
            "global stores": traffic.stores * units}


def work(case: Case, grids: Count) -> Work:
    """The work of a case whose grid fills the device *grids* times."""
    weight, footprint, t = case.weights, case.footprint, case.tiling
    traffic, shape = traffic_of(case), shape_of(case.problem, t)
    units, element = shape.unit_slices, case.problem.spec.element.bytes
    # A tile's first band is waited for, unless another stage's tile is summed meanwhile.
    transfer = weight["transfer"] * element * (shape.walked_tile + shape.own_tile) / t.bands
    waits = transfer + (weight["tile"] + transfer) * (units - 1) / t.stages ** weight["overlap"]
    waits = waits + weight["band"] * (t.bands - 1) * units
    then = np.where(t.slices > 1, weight["then"] + weight["part"] * t.slices, 0)
    sums = case.problem.spec.out_channels * case.problem.spec.products
    # Of a wavefront, for a tile.
    instructions = (weight["fma"] * np.where(on_units(t), 0, footprint.fmas / units)
                    + weight["load"] * traffic.reads + weight["copy"] * traffic.copies
                    + weight["store"] * traffic.stores + weight["mask"] * traffic.masks
                    + weight["convert"] * traffic.conversions
                    + weight["fragment"] * traffic.products)
    products = weight["product"] * traffic.products
    waits = waits + weight["chain"] * units * (instructions + products)
    return Work(
        issue=weight["wavefront"] + units * instructions + weight["load"] * traffic.reduction,
        products=products * units,
        lds=weight["lds"] * (traffic.lds_clocks * units + traffic.reduction),
        lines=0.0, waits=weight["wait"] + waits + weight["reduce"] * traffic.reduction,
        fill_bytes=weight["fill"] * footprint.lds_bytes,
        l2_bytes=channel_tiles(case.problem, t) * shape.units * (
            weight["loaded"] * traffic.sectors + weight["row"] * traffic.pixels)
        + 2 * np.where(t.slices > 1, t.slices, 0) * WORD_BYTES * sums,
        saved_seconds=_saved(case, then) / case.device.clock_hz)


def _saved(case: Case, then: Count) -> Count:
    """Clocks that are saved: by working ahead those of a start, less a share of what must move, as
    the blocks that come early take some of its bandwidth. Less those of the launch that adds
    slices, and of a cluster's sums; its blocks come all at once, which costs a share, too."""
    device, weight, t = case.device, case.weights, case.tiling
    moving = compulsory_bytes(case.problem) / device.bandwidth * device.clock_hz
    return (t.ahead * (weight["ahead"] - weight["ahead_share"] * moving) - then
            - (t.cluster > 1) * (weight["cluster"] + weight["cluster_share"] * moving))
