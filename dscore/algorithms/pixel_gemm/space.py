"""The tilings of the product of pixels by filters that are tried."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from dscore.algorithms.columns import ceil_div, distinct, grid, select
from dscore.algorithms.pixel_gemm.tiling import DEPTH, EIGHT
from dscore.algorithms.warpgroup_gemm.tiling import MOST_BOX, ROW, ROWS
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

_TILE_P, _STAGES = (64, 128, 192, 256), (1, 2, 3, 4, 6, 8)
# Parts of the channels that tiles have, and the fewest and most channels of one.
_PARTS, _FEWEST, _MOST = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16), 16, 256
# Parts of the summed channels that steps have; blocks for each compute unit among which tiles are
# shared evenly.
_STEPS, _RESIDENT = (1, 2, 3, 4), (1, 2, 3, 4, 6)


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of up to four warpgroups.

    Blocks take one tile of pixels, or as many as leave a few blocks for each compute unit.
    """
    spec = problem.spec
    m, k = spec.out_channels, spec.in_channels
    if problem.operation != "conv":
        m, k = k, m
    runs = problem.batch * ceil_div(problem.out_height * problem.out_width, ROWS)
    c = grid(tile_p=_TILE_P, tile_n=_columns(m), step=_steps(k), stages=_STAGES,
             resident=(0, *_RESIDENT), kept=(0, 1))
    steps = ceil_div(k, c.step)
    tiles = ceil_div(m, c.tile_n) * ceil_div(runs, c.tile_p // ROWS)
    repeat = np.where(c.resident == 0, 1,
                      ceil_div(tiles, np.maximum(c.resident, 1) * device.compute_units))
    keep = c.tile_p // ROWS <= runs
    keep &= ((c.resident == 0) | (repeat > 1)) & ((c.kept == 0) | (repeat > 1))
    keep &= (c.stages <= steps * repeat) & ((c.stages > 1) | (steps * repeat == 1))
    chosen = distinct(select(SimpleNamespace(
        tile_p=c.tile_p, tile_n=c.tile_n, step=c.step, stages=c.stages, repeat=repeat,
        kept=c.kept), keep))
    chosen.kept = chosen.kept == 1
    return chosen


def _columns(channels: int) -> list[int]:
    """Sides of tiles: even parts of the channels, by eights."""
    sides = {-(-channels // (parts * EIGHT)) * EIGHT for parts in _PARTS}
    most = min(_MOST, max(sides))
    return sorted(side for side in sides if min(_FEWEST, most) <= side <= most) or [_MOST]


def _steps(k: int) -> list[int]:
    """All summed channels where they are few, else even parts of them and rows of filters."""
    even = {-(-k // (parts * DEPTH)) * DEPTH for parts in _STEPS}
    if k <= ROW:
        return [max(even)]
    return sorted({ROW, *[step for step in even if ROW < step <= MOST_BOX]})
