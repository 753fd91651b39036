"""The tilings of the product of filters by planes that are tried."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from dscore.algorithms.columns import ceil_div, distinct, grid, select
from dscore.algorithms.plane_gemm.tiling import EIGHT, MORE_MOVERS, MOVERS, apart_of, vector_of
from dscore.algorithms.warpgroup_gemm.tiling import MOST_BOX, ROW, ROWS
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

_TILE_M, _IMAGES, _STAGES = (64, 128, 192, 256), (1, 2, 4, 8), (1, 2, 3, 4, 6, 8)
# Steps of all summed channels, parts of a small plane, and pixels of a large one.
_STEPS, _PARTS, _PIXELS = (1, 2, 3, 4), (1, 2, 3, 4), (64, 112, 128, 192, 224, 256)
# Summed channels of a step; blocks for each compute unit among which tiles are shared evenly.
_MOST_STEP, _RESIDENT = 128, (1, 2, 3, 4, 6)
# Channels of a block up to which its threads have the registers for more wavefronts that move.
_MOST_BESIDE_MOVERS = 128


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of up to four warpgroups, none of which lies wholly past the result.

    Blocks take one tile of pixels, or as many as leave a few blocks for each compute unit.
    """
    spec, area = problem.spec, problem.out_height * problem.out_width
    m, k = spec.out_channels, spec.in_channels
    if problem.operation != "conv":
        m, k = k, m
    movers = (MOVERS,) if vector_of(area) == EIGHT else (MOVERS, MORE_MOVERS)
    c = grid(tile_m=_TILE_M, tile_p=_pixels(area), images=_IMAGES, step=_steps(k, area),
             stages=_STAGES, resident=(0, *_RESIDENT), kept=(0, 1), movers=movers)
    steps = ceil_div(k, c.step)
    tiles = (ceil_div(m, c.tile_m) * ceil_div(problem.batch, c.images) * ceil_div(area, c.tile_p))
    repeat = np.where(c.resident == 0, 1,
                      ceil_div(tiles, np.maximum(c.resident, 1) * device.compute_units))
    keep = (c.tile_m - m < ROWS) & (c.tile_p * c.images <= MOST_BOX)
    keep &= (c.images == 1) | ((c.tile_p >= area) & (c.images <= problem.batch))
    keep &= ((c.resident == 0) | (repeat > 1)) & ((c.kept == 0) | (repeat > 1))
    keep &= (c.stages <= steps * repeat) & ((c.stages > 1) | (steps * repeat == 1))
    keep &= (c.movers == MOVERS) | (c.tile_m <= _MOST_BESIDE_MOVERS)
    chosen = distinct(select(SimpleNamespace(
        tile_m=c.tile_m, tile_p=c.tile_p, images=c.images, step=c.step, stages=c.stages,
        repeat=repeat, kept=c.kept, movers=c.movers), keep))
    chosen.kept = chosen.kept == 1
    return chosen


def _pixels(area: int) -> list[int]:
    """Sides of tiles: a plane and its parts, where it is no more than an instruction has."""
    if area > MOST_BOX:
        return list(_PIXELS)
    return sorted({-(-area // (parts * EIGHT)) * EIGHT for parts in _PARTS
                   if parts == 1 or area > parts * ROW // 2})


def _steps(k: int, area: int) -> list[int]:
    """All summed channels where they are few, else even parts of them and rows of filters, in whole
    tiles of LDS."""
    least = EIGHT * apart_of(area)
    even = {-(-k // (parts * least)) * least for parts in _STEPS}
    if k <= ROW:
        return [max(even)]
    return sorted({ROW, *[step for step in even if ROW < step <= _MOST_STEP]})
