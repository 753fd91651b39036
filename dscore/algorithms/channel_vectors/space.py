"""The tilings of channel vectors that are tried: tiles of a thread and of a block."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from dscore.algorithms.channel_vectors.tiling import (
    FRAGMENT,
    UNIT_VECTORS,
    WORD,
    grid_size,
    has_units,
    shape_of,
    threads_of,
    vectors_of,
)
from dscore.algorithms.columns import (
    Count,
    ceil_div,
    concatenate,
    distinct,
    grid,
    select,
    select_or_all,
)
from dscore.algorithms.early_start import with_ahead
from dscore.algorithms.row_reuse.view import Axis, view_of
from dscore.algorithms.table_copies import table_bytes, with_banked
from dscore.core.device import Device
from dscore.core.problem import ConvProblem
from dscore.ops import compulsory_bytes

_THREAD_H, _THREAD_W = (1, 2, 4, 7, 8, 14, 28), (1, 2, 4, 7)
_LANES_H, _LANES_W = (1, 2, 4, 8), (1, 2, 4, 7, 8, 14, 28)
# Bytes of the channels of a block, which lie side by side in memory.
_CHANNEL_BYTES = (32, 64, 96, 128, 192, 256)
_BANDS = (1, 2, 4)
# Outputs of a thread; threads of a block, and the share of its wavefronts that they fill.
_MOST_OUTPUTS, _LEAST_THREADS, _MOST_THREADS, _LEAST_LANES = 256, 48, 512, 0.75
# What all blocks could write, over what there is, at most.
_MOST_BESIDE, _MOST_BESIDE_UNITS = 1.34, 1.8
# Of blocks that take several tiles: how many of these at most, and of the blocks on a compute unit;
# the share of the blocks that fill the device at least; what they could take, over the tiles that
# there are; their threads and bands.
_MOST_REPEATED, _MOST_RESIDENT, _LEAST_FILLED, _MOST_LEFT_OVER = 8, 4, 0.83, 1.02
_LEAST_REPEATED_THREADS, _MOST_REPEATED_BANDS = 96, 2
# Seconds that the operands take to move, at least: smaller layers gained some when they followed
# themselves, but took up to half as long again in networks (docs/network_notes.md).
_LEAST_MOVING_SECONDS = 2e-6
# Wavefronts over the channels, and segments of columns, of matrix units.
WAVES_C, SEGMENTS = (1, 2, 3, 4, 6, 8), (1, 2, 4, 7, 14)

Axes = tuple[Axis, Axis]


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Tiles of a thread and of a block, none of them twice what is written in a direction."""
    view = view_of(problem)
    axes = view.rows, view.columns
    columns = tiles(problem, axes, device)
    columns.arithmetic, columns.repeat = np.full(len(columns.vector), "plain"), _once(columns)
    shape = shape_of(problem, columns)
    columns = usual_tiles(problem, axes, device, columns,
                          problem.spec.element.bytes * (shape.tile + shape.filters))
    if has_units(problem, device):
        columns = concatenate(columns, _on_units(problem, axes, device))
    columns = _banded(columns, problem, device)
    columns = with_ahead(columns, grid_size(problem, columns), device)
    moving_seconds = compulsory_bytes(problem) / device.bandwidth
    if (problem.spec.element.exact and device.asynchronous_copies
            and moving_seconds >= _LEAST_MOVING_SECONDS):
        columns = concatenate(columns, _repeated(columns, problem, device))
    return with_banked(columns, problem.spec)


def _once(columns: SimpleNamespace) -> Count:
    """One tile for each block."""
    return 0 * columns.vector + 1


def _on_units(problem: ConvProblem, axes: Axes, device: Device) -> SimpleNamespace:
    """Tiles of matrix units."""
    columns = grid(vector=UNIT_VECTORS, lanes_c=WAVES_C, thread_h=_tiles_of(axes[0], _THREAD_H),
                   thread_w=[FRAGMENT * axes[1].unit], lanes_h=_LANES_H, lanes_w=SEGMENTS)
    keep = columns.vector * columns.lanes_c < 2 * problem.spec.out_channels
    for axis, thread, lanes in ((axes[0], columns.thread_h, columns.lanes_h),
                                (axes[1], columns.thread_w, columns.lanes_w)):
        # A tile of half its columns does as well where there are fewer than in one segment.
        keep &= (lanes == 1) | (thread * (lanes - 1) < axis.written_size)
    columns = select(columns, keep)
    columns.arithmetic, columns.repeat = np.full(len(columns.vector), "matrix16"), _once(columns)
    threads, shape = threads_of(columns, device.wavefront), shape_of(problem, columns)
    usual = (threads >= _LEAST_THREADS) & (threads <= _MOST_THREADS)
    usual &= problem.spec.element.bytes * (shape.tile + shape.filters) <= (
        device.lds_bytes_per_block // 2)
    return select(columns, usual & (beside(problem, axes, columns) <= _MOST_BESIDE_UNITS))


def tiles(problem: ConvProblem, axes: Axes, device: Device) -> SimpleNamespace:
    """Vectors, lanes and tiles over axes that are written, or summed over."""
    channels, element = problem.spec.out_channels, problem.spec.element.bytes
    widths = sorted({1, *(size // element for size in _CHANNEL_BYTES), channels,
                     ceil_div(channels, vectors_of(problem)[0]) * vectors_of(problem)[0]})
    columns = grid(vector=vectors_of(problem), channels=widths,
                   thread_h=_tiles_of(axes[0], _THREAD_H), thread_w=_tiles_of(axes[1], _THREAD_W),
                   lanes_h=_LANES_H, lanes_w=_LANES_W)
    keep = (columns.channels % columns.vector == 0) & (columns.channels < 2 * channels)
    keep &= columns.channels * element <= _CHANNEL_BYTES[-1]
    keep &= columns.vector * columns.thread_h * columns.thread_w <= _MOST_OUTPUTS
    for axis, thread, lanes in ((axes[0], columns.thread_h, columns.lanes_h),
                                (axes[1], columns.thread_w, columns.lanes_w)):
        keep &= thread * lanes < 2 * axis.written_size + axis.unit - 1
    columns = select(columns, keep)
    columns.lanes_c = columns.channels // columns.vector
    del columns.channels
    columns = distinct(columns)
    threads = columns.lanes_c * columns.lanes_w * columns.lanes_h
    return select(columns, threads <= device.threads_per_block)


def _tiles_of(axis: Axis, usual: tuple[int, ...]) -> list[int]:
    """Rows or columns of a thread, in whole units of the axis."""
    size, unit = axis.written_size, axis.unit
    return sorted({ceil_div(min(n, size), unit) * unit for n in usual})


def usual_tiles(problem: ConvProblem, axes: Axes, device: Device, columns: SimpleNamespace,
                lds_bytes: Count) -> SimpleNamespace:
    """Of *columns* those of usual blocks, or all if none is."""
    threads = columns.lanes_c * columns.lanes_w * columns.lanes_h
    lanes = ceil_div(threads, device.wavefront) * device.wavefront
    usual = threads >= np.maximum(_LEAST_LANES * lanes, _LEAST_THREADS)
    usual &= threads <= _MOST_THREADS
    usual &= lds_bytes <= device.lds_bytes_per_block // 2
    return select_or_all(columns, usual & (beside(problem, axes, columns) <= _MOST_BESIDE))


def beside(problem: ConvProblem, axes: Axes, columns: SimpleNamespace) -> Count:
    """What all blocks could write, over what there is."""
    share = 1.0
    for size, tile in ((problem.spec.out_channels, columns.vector * columns.lanes_c),
                       (axes[0].written_size, columns.thread_h * columns.lanes_h),
                       (axes[1].written_size, columns.thread_w * columns.lanes_w)):
        share = share * (ceil_div(size, tile) * tile / size)
    return share


def _repeated(columns: SimpleNamespace, problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Of *columns* those that gained by several tiles of a block, with so many of them that all
    blocks are resident at once. Floats gained nothing (docs/benchmark_notes.md)."""
    usual = (columns.vector == WORD) & (columns.bands <= _MOST_REPEATED_BANDS)
    usual &= columns.ahead == device.early_start
    usual &= threads_of(columns, device.wavefront) >= _LEAST_REPEATED_THREADS
    columns = select(columns, usual)
    tiles = grid_size(problem, columns)
    return concatenate(*(_resident(columns, tiles, count, problem, device)
                         for count in range(1, _MOST_RESIDENT + 1)))


def _resident(once: SimpleNamespace, tiles: Count, count: int, problem: ConvProblem,
              device: Device) -> SimpleNamespace:
    """Columns whose blocks share the *tiles* so that compute units hold *count* of them, most
    units as many."""
    units = count * device.compute_units
    columns = SimpleNamespace(**{**vars(once), "repeat": ceil_div(tiles, units)})
    blocks, shape = grid_size(problem, columns), shape_of(problem, columns)
    lds = problem.spec.element.bytes * (shape.tiles + shape.filters) + table_bytes(problem.spec)
    waves = ceil_div(threads_of(columns, device.wavefront), device.wavefront)
    keep = (columns.repeat > 1) & (columns.repeat <= _MOST_REPEATED)
    keep &= (columns.repeat * blocks <= _MOST_LEFT_OVER * tiles) & (blocks <= units)
    keep &= (blocks >= _LEAST_FILLED * units) & (count * (lds + device.lds_reserved_bytes)
                                                <= device.lds_bytes_per_cu)
    return select(columns, keep & (count * waves <= device.waves_per_cu))


def _banded(columns: SimpleNamespace, problem: ConvProblem, device: Device) -> SimpleNamespace:
    """The columns with some bands, where copies are not waited for."""
    rows = shape_of(problem, columns).rows
    return concatenate(*(select(SimpleNamespace(**vars(columns), bands=0 * rows + count),
                                count <= rows)
                         for count in (_BANDS if device.asynchronous_copies else (1,))))
