"""The tilings of channel vectors that are tried: tiles of a thread and of a block."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from dscore.algorithms.channel_vectors.tiling import (
    VECTORS,
    blocks,
    shape_of,
    vector_elements,
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
from dscore.algorithms.row_reuse.view import Axis, view_of
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

_THREAD_H, _THREAD_W = (1, 2, 4, 7, 8, 14, 16, 28), (1, 2, 3, 4, 7, 8)
_LANES_H, _LANES_W = (1, 2, 4, 7, 8), (1, 2, 3, 4, 7, 8, 14, 16, 28)
# Bytes of the channels of a block, which lie side by side in memory.
_CHANNEL_BYTES = (32, 48, 64, 96, 128, 192, 256, 512)
# Outputs of a thread, registers of its sums; threads of a block, and the share of its wavefronts
# that they fill.
_MOST_OUTPUTS, _LEAST_THREADS, _MOST_THREADS, _LEAST_LANES = 256, 48, 512, 0.75
# Elements beyond the image that a block may write, as a share of what it does.
_MOST_BESIDE = 1.34
# Blocks for each compute unit up to which row_reuse was seen to gain by working ahead.
_MOST_BLOCKS_AHEAD = 32


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Tiles of a thread and of a block, none of them twice what is written in a direction."""
    columns = _tiles(problem, device)
    threads = columns.lanes_c * columns.lanes_w * columns.lanes_h
    lanes = ceil_div(threads, device.wavefront) * device.wavefront
    allowed = threads <= device.threads_per_block
    usual = (threads >= np.maximum(_LEAST_LANES * lanes, _LEAST_THREADS))
    usual &= threads <= _MOST_THREADS
    shape = shape_of(problem, columns)
    bytes_of_block = problem.spec.element.bytes * (shape.tile + shape.filters)
    usual &= bytes_of_block <= device.lds_bytes_per_block // 2
    usual &= _beside(problem, columns) <= _MOST_BESIDE
    return _with_ahead(select_or_all(columns, usual, allowed), problem, device)


def _tiles(problem: ConvProblem, device: Device) -> SimpleNamespace:
    view, channels = view_of(problem), problem.spec.out_channels
    element = problem.spec.element.bytes
    widths = sorted({1, *(size // element for size in _CHANNEL_BYTES), channels})
    most = vector_elements(problem)
    columns = grid(vector=[v for v in VECTORS if v <= most], channels=widths,
                   thread_h=_tiles_of(view.rows, _THREAD_H),
                   thread_w=_tiles_of(view.columns, _THREAD_W), lanes_h=_LANES_H,
                   lanes_w=_LANES_W)
    keep = (columns.channels % columns.vector == 0) & (columns.channels < 2 * channels)
    keep &= columns.channels <= columns.vector * device.threads_per_block
    keep &= columns.vector * columns.thread_h * columns.thread_w <= _MOST_OUTPUTS
    for axis, thread, lanes in ((view.rows, columns.thread_h, columns.lanes_h),
                                (view.columns, columns.thread_w, columns.lanes_w)):
        keep &= thread * lanes < 2 * axis.written_size + axis.unit - 1
    # A wide vector in few channels, where a narrower one has as many lanes.
    keep &= columns.channels * element <= _CHANNEL_BYTES[-1]
    columns = select(columns, keep)
    columns.lanes_c = columns.channels // columns.vector
    del columns.channels
    return distinct(columns)


def _tiles_of(axis: Axis, usual: tuple[int, ...]) -> list[int]:
    """Rows or columns of a thread, in whole units of the axis."""
    size, unit = axis.written_size, axis.unit
    return sorted({ceil_div(min(n, size), unit) * unit for n in usual})


def _beside(problem: ConvProblem, t: SimpleNamespace) -> Count:
    """What all blocks could write, over what there is."""
    view = view_of(problem)
    each = t.vector * t.lanes_c * t.thread_h * t.lanes_h * t.thread_w * t.lanes_w
    written = view.planes * view.rows.written_size * view.columns.written_size
    return blocks(problem, t) * each / written


def _with_ahead(columns: SimpleNamespace, problem: ConvProblem,
                device: Device) -> SimpleNamespace:
    """The columns as they are, and where it may gain anything, working ahead."""
    plain = SimpleNamespace(**vars(columns), ahead=columns.vector < 0)
    if not device.early_start:
        return plain
    few = blocks(problem, columns) <= _MOST_BLOCKS_AHEAD * device.compute_units
    return concatenate(plain, select(SimpleNamespace(**vars(columns), ahead=columns.vector > 0),
                                     few))
