"""The tilings of row reuse that are tried: tiles of a thread and of a block."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from dscore.algorithms.columns import (
    ceil_div,
    concatenate,
    distinct,
    floor_div,
    grid,
    powers_of_two,
    select,
    select_or_all,
)
from dscore.algorithms.early_start import with_ahead
from dscore.algorithms.row_reuse.patches import (
    PATCH,
    PATCH_WIDTHS,
    WINDOW,
    has_units,
    rows_beside_pairs,
)
from dscore.algorithms.row_reuse.tiling import ARITHMETICS, STAGINGS, blocks, waves_of
from dscore.algorithms.row_reuse.view import Axis, View, view_of
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

_THREAD_W = (1, 2, 4)
_THREAD_H = (1, 2, 4, 7, 8, 14, 16, 28)
# Through LDS a thread may take a whole row of a small image, which then has no halo to be tested.
_STAGED_THREAD_W = (1, 2, 4, 7, 8, 14, 16)
_MOST_OUTPUTS, _MOST_REGISTER_ROWS = 64, 16
# Threads of a block: fewer start too late, where each loads its own; more wait for one another.
# How much of their wavefronts they fill; columns side by side, for whole lines of memory.
_LEAST_THREADS, _MOST_THREADS = 48, 512
_LEAST_LANES = 0.75
_LEAST_RUN = 32
# Wavefronts of a block that several whole planes are to fill.
_STAGED_WAVES = (1, 2, 3, 4, 6, 8, 12)
# Patches of a lane on matrix units, and planes of their blocks.
_PATCHES = (1, 2, 3, 4, 7, 14)
_UNIT_PLANES, _REPEATS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32), (1, 2, 4)


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Tiles of a thread and of a block, none of them twice what is written in a direction."""
    view = view_of(problem)
    exact = problem.spec.element.exact
    columns = concatenate(_from_registers(view, device, exact), _through_lds(view, device))
    columns.units, columns.repeat = 0 * columns.planes, 0 * columns.planes + 1
    if has_units(problem, device):
        columns = concatenate(columns, _on_units(problem))
    columns = with_ahead(columns, blocks(problem, columns), device, columns.staging != 0)
    columns.arithmetic = np.asarray(ARITHMETICS)[columns.units]
    lanes = waves_of(columns, device.wavefront) * device.wavefront
    threads = np.where(columns.units, lanes, columns.planes * columns.lanes_h * columns.lanes_w)
    keep = columns.lanes_h * columns.thread_h < 2 * view.rows.written_size + view.rows.unit - 1
    keep &= columns.planes < 2 * view.planes
    keep &= threads <= device.threads_per_block
    usual = (threads >= _LEAST_LANES * lanes) & (threads <= _MOST_THREADS)
    columns = select_or_all(columns, usual, keep)
    if problem.spec.out_element != problem.spec.element:
        columns = select(columns, columns.staging != STAGINGS.index("both"))
    columns.staging = np.asarray(STAGINGS)[columns.staging]
    columns.column_reuse = columns.column_reuse == 1
    del columns.units
    return columns


def _thread_heights(view: View) -> list[int]:
    """Rows of a thread, in whole units of the axis."""
    height, unit = view.rows.written_size, view.rows.unit
    return sorted({ceil_div(min(h, height), unit) * unit for h in _THREAD_H})


def _from_registers(view: View, device: Device, exact: bool) -> SimpleNamespace:
    """Columns of int8 come by words of four, and are not passed between lanes."""
    width, unit = view.columns.written_size, view.columns.unit
    most = 2 * width + unit - 1
    columns = grid(thread_h=[h for h in _thread_heights(view) if h <= _MOST_REGISTER_ROWS],
                   thread_w=[w * unit for w in (*_THREAD_W, *[8] * exact) if w * unit < most],
                   lanes_h=[1, 2, 4, 8],
                   lanes_w=[w for w in powers_of_two(device.wavefront) if w < 2 * width],
                   planes=[1, 2, 4, 8, 16, 32], staging=[0],
                   column_reuse=[0] if exact else [0, 1])
    run = columns.lanes_w * columns.thread_w
    threads = columns.planes * columns.lanes_h * columns.lanes_w
    keep = (run >= min(width, _LEAST_RUN)) & (threads > _LEAST_THREADS)
    # Small problems may have none of these.
    return select_or_all(columns, keep, run < most)


def _through_lds(view: View, device: Device) -> SimpleNamespace:
    """Blocks of whole rows: some of one plane, or all of as many as fill whole wavefronts."""
    height, width = view.rows.written_size, view.columns.written_size
    c = grid(thread_h=_thread_heights(view), thread_w=_staged_widths(view.columns),
             strips=[0, 1, 2, 4, 8, 16], waves=(0, *_STAGED_WAVES), even=[0, 1], staging=[1, 2])
    whole = c.strips == 0
    lanes_h, lanes_w = np.where(whole, ceil_div(height, c.thread_h), c.strips), ceil_div(
        width, c.thread_w)
    full = floor_div(c.waves * device.wavefront, lanes_h * lanes_w)
    # Planes by fours lie in whole vectors, whatever the image.
    planes = np.where(c.waves == 0, 1, np.where(c.even == 1, full // 4 * 4, full))
    columns = SimpleNamespace(
        thread_h=c.thread_h, thread_w=c.thread_w, lanes_h=lanes_h, lanes_w=lanes_w,
        planes=planes, staging=c.staging, column_reuse=0 * planes)
    alone = (c.waves == 0) & (c.even == 0) & (whole | (lanes_h * c.thread_h < height))
    several = whole & (planes > 1) & ((c.even == 0) | (full % 4 != 0))
    return distinct(select(columns, (alone | several) & (c.thread_h * c.thread_w <= _MOST_OUTPUTS)))


def _on_units(problem: ConvProblem) -> SimpleNamespace:
    """Blocks of whole rows whose patches matrix units make."""
    view = view_of(problem)
    height, width = view.rows.written_size, view.columns.written_size
    c = grid(patches=_PATCHES, thread_w=PATCH_WIDTHS, strips=[0, 1, 2, 4, 8], planes=_UNIT_PLANES,
             staging=[1, 2], repeat=_REPEATS)
    thread_h = c.patches * (PATCH // c.thread_w)
    lanes_h = np.where(c.strips == 0, ceil_div(height, thread_h), c.strips)
    columns = SimpleNamespace(
        thread_h=thread_h, thread_w=c.thread_w, lanes_h=lanes_h,
        lanes_w=ceil_div(width, c.thread_w), planes=c.planes, staging=c.staging,
        repeat=c.repeat, column_reuse=0 * thread_h, units=0 * thread_h + 1)
    keep = (c.strips == 0) | ((c.planes == 1) & (lanes_h * thread_h < height))
    keep &= (thread_h < 2 * height + PATCH) & (c.planes % c.repeat == 0)
    keep &= view.columns.under(c.thread_w) <= WINDOW
    keep &= rows_beside_pairs(problem, c.thread_w) == 0
    return distinct(select(columns, keep))


def _staged_widths(axis: Axis) -> list[int]:
    """Tiles of a thread that divide the width, and the usual ones, in whole units of the axis."""
    width, unit = axis.written_size, axis.unit
    usual = {ceil_div(w, unit) * unit for w in _THREAD_W}
    tiles = sorted({ceil_div(w, unit) * unit for w in _STAGED_THREAD_W})
    return [w for w in tiles
            if width % w == 0 or (w in usual and w < 2 * width + unit - 1)]
