"""The tilings of tap sums that are tried: tiles of a thread, of a block, and slices of the work."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from dscore.algorithms.columns import (
    Count,
    ceil_div,
    concatenate,
    distinct,
    grid,
    powers_of_two,
    select,
    select_or_all,
)
from dscore.algorithms.early_start import with_ahead
from dscore.algorithms.tap_sums.tiling import blocks, shape_of
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

_THREAD_H = (1, 2, 4, 7, 8, 14, 16, 28)
_THREAD_W = (1, 2, 4, 7, 8, 14)
_STRIPS = (1, 2, 4, 8, 16)  # of threads one above the other, where a block does not take all rows
_PLANES = (1, 2, 4, 8, 16, 32, 64)
_IMAGES = (1, 2, 4, 8, 16)
# Outputs of a thread for one unit; threads of a block, and the share of its wavefronts that they
# fill.
_MOST_OUTPUTS, _LEAST_THREADS, _MOST_THREADS, _LEAST_LANES = 64, 48, 512, 0.75
# Sums of a thread. The taps of a larger filter are tiled.
_MOST_TAPS, _MOST_TAPS_W = 49, 32
# Blocks for each compute unit that slices are to make, and of one slice, at most.
_BLOCKS_PER_CU, _MOST_SLICES = (1, 2, 4, 8), 128


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Tiles of a thread and of a block, none of them twice the output in a direction."""
    tiles = _tiles(problem, device)
    threads = shape_of(problem, _alone(tiles)).threads
    tiles = select(tiles, threads <= device.threads_per_block)
    threads = threads[threads <= device.threads_per_block]
    lanes = ceil_div(threads, device.wavefront) * device.wavefront
    usual = (threads >= _LEAST_THREADS) & (threads <= _MOST_THREADS)
    usual &= threads >= _LEAST_LANES * lanes
    columns = _sliced(select_or_all(tiles, usual), problem, device)
    return with_ahead(columns, blocks(problem, columns), device)


def _tap_rows(problem: ConvProblem, device: Device) -> int:
    """Filter rows of a tile: one where LDS does not hold all rows under an output row."""
    taps_h, taps_w = problem.spec.kernel
    row_bytes = problem.spec.element.bytes * problem.width
    if problem.spec.span[0] * row_bytes > device.lds_bytes_per_block // 2:
        return 1
    return max(1, min(taps_h, _MOST_TAPS // min(taps_w, _MOST_TAPS_W)))


def _tiles(problem: ConvProblem, device: Device) -> SimpleNamespace:
    height, width = problem.out_height, problem.out_width
    heights = sorted({min(h, height) for h in _THREAD_H})
    widths = [w for w in _THREAD_W if width % w == 0 or (w in (1, 2, 4) and w < 2 * width)]
    c = grid(thread_h=heights, thread_w=widths, strips=(0, *_STRIPS), planes=_PLANES,
             images=_IMAGES, taps_h=[_tap_rows(problem, device)],
             taps_w=[min(problem.spec.kernel[1], _MOST_TAPS_W)])
    whole = c.strips == 0
    columns = SimpleNamespace(
        thread_h=c.thread_h, thread_w=c.thread_w,
        lanes_h=np.where(whole, ceil_div(height, c.thread_h), c.strips),
        lanes_w=ceil_div(width, c.thread_w), planes=c.planes, images=c.images, taps_h=c.taps_h,
        taps_w=c.taps_w)
    keep = whole | ((c.planes == 1) & (c.images == 1) & (c.strips * c.thread_h < height))
    keep &= c.thread_h * c.thread_w <= _MOST_OUTPUTS
    keep &= (c.planes < 2 * problem.spec.out_channels) & (c.images < 2 * problem.batch)
    return distinct(select(columns, keep))


def _alone(tiles: SimpleNamespace) -> SimpleNamespace:
    """The tiles as one block takes them all."""
    one = 0 * tiles.planes + 1
    return SimpleNamespace(**vars(tiles), slices=one, cluster=one, stages=one)


def _sliced(tiles: SimpleNamespace, problem: ConvProblem, device: Device) -> SimpleNamespace:
    """The tiles shared by as many blocks as give each compute unit some, in slices of one block or
    of a cluster; one or two stages."""
    shape = shape_of(problem, _alone(tiles))
    alone = ceil_div(problem.spec.out_channels, tiles.planes) * shape.tap_tiles
    parts = [_with(tiles, 1, 1, shape.units)]
    for count in _BLOCKS_PER_CU:
        for cluster in powers_of_two(device.cluster_blocks):
            wanted = np.clip(ceil_div(count * device.compute_units, alone), 1,
                             np.minimum(shape.units, _MOST_SLICES * cluster))
            # As many as are needed for shares of that size, so that none is short of work.
            slices = ceil_div(shape.units, ceil_div(shape.units, wanted))
            useful = slices > 0
            if cluster > 1:  # of several slices another launch adds the sums in any case
                slices = np.maximum(slices // cluster, 1)
                useful = (slices == 1) & (
                    (cluster - 1) * ceil_div(shape.units, cluster) < shape.units)
            parts.append(_with(select(tiles, useful), slices[useful], cluster,
                               shape.units[useful]))
    return distinct(concatenate(*parts))


def _with(tiles: SimpleNamespace, slices: Count, cluster: int, units: Count) -> SimpleNamespace:
    slices, cluster = slices + 0 * tiles.planes, cluster + 0 * tiles.planes
    columns = SimpleNamespace(**vars(tiles), slices=slices, cluster=cluster)
    double = ceil_div(units, slices * cluster) > 1
    return concatenate(SimpleNamespace(**vars(columns), stages=0 * slices + 1),
                       select(SimpleNamespace(**vars(columns), stages=0 * slices + 2), double))
