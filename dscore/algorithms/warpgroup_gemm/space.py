"""The tilings of the product of matrices by warpgroups that are tried."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from dscore.algorithms.columns import ceil_div, distinct, grid, select
from dscore.algorithms.gemm_universal.tiling import GemmSizes, sizes_of
from dscore.algorithms.warpgroup_gemm.tiling import MOST_BOX, ROW, ROWS
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

_TILE_M, _STEPS, _STAGES = (64, 128, 192, 256), (64, 128), (2, 3, 4, 6, 8)
_PARTS = (1, 2, 4, 8, 16, 32, 64, 128)
# Blocks for each compute unit beyond which shares of the summed pixels only add up; and those among
# which tiles are shared evenly.
_MOST_SHARES, _RESIDENT = 2, (1, 2, 3, 4, 6)


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of up to four warpgroups, none of which lies wholly past the result.

    Blocks take one tile of rows, or as many as leave a few blocks for each compute unit. They share
    the summed pixels of a weight gradient where tiles leave compute units idle.
    """
    sizes = sizes_of(problem)
    axes = {"tile_m": _TILE_M, "tile_n": _columns(sizes), "step": _STEPS, "stages": _STAGES}
    if problem.operation == "weight_gradient":
        c = grid(**axes, resident=(0,), kept=(0,), parts=_PARTS)
    else:
        c = grid(**axes, resident=(0, *_RESIDENT), kept=(0, 1), parts=(1,))
    steps = ceil_div(sizes.k, c.step)
    tiles = ceil_div(sizes.m, c.tile_m) * ceil_div(sizes.n, c.tile_n)
    units = device.compute_units
    repeat = np.where(c.resident == 0, 1, ceil_div(tiles, np.maximum(c.resident, 1) * units))
    keep = (c.tile_m - sizes.m < ROWS) & (c.step - sizes.k < ROW)
    keep &= (c.resident == 0) | (repeat > 1)
    keep &= (c.kept == 0) | (repeat > 1)
    keep &= c.stages <= np.maximum(2, ceil_div(steps, c.parts) * repeat + 1)
    keep &= (c.parts == 1) | ((tiles * c.parts <= _MOST_SHARES * units) & (c.parts <= steps))
    # A step longer than all the summed elements is there for those that are fewer than a row.
    if not keep.any():
        keep = (c.tile_m == ROWS) & (c.step == ROW) & (c.resident == 0) & (c.parts == 1)
    columns = SimpleNamespace(
        tile_m=c.tile_m, tile_n=c.tile_n, step=c.step, stages=c.stages, repeat=repeat, kept=c.kept,
        parts=c.parts)
    chosen = distinct(select(columns, keep))
    chosen.kept = chosen.kept == 1
    return chosen


def _columns(sizes: GemmSizes) -> list[int]:
    """Sides of tiles: all columns, where they are no more than an instruction has; whole boxes."""
    boxes = range(ROW, min(-(-sizes.n // ROW) * ROW, MOST_BOX) + 1, ROW)
    return sorted({*boxes, *[-(-sizes.n // 8) * 8] * (sizes.n <= MOST_BOX)})
