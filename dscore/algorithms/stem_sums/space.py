"""The tilings of the weight gradient of first layers that are tried."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from dscore.algorithms.columns import ceil_div, distinct, grid, select, select_or_all
from dscore.algorithms.stem.tiling import PIECE
from dscore.algorithms.stem_sums.tiling import FRAGMENT, fragments_of, shape_of
from dscore.algorithms.tap_sums import MOST_SLICES
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

_TILE_H, _MOST_W = (1, 2, 3, 4, 7, 8), 128
_WAVES_P, _WAVES_M, _MOST_WAVES = (1, 2, 4, 8), (1, 2, 4), 8
_WAVE_M = (FRAGMENT, 2 * FRAGMENT, 4 * FRAGMENT)
# Blocks of a compute unit that slices are made for.
_RESIDENT = (1, 2, 3, 4)
# Registers of a lane for sums; units of a tile's pixels that a thread brings; of the pixels of all
# tiles those that there are, at least; channels of a block.
_MOST_SUMS, _MOST_TURNS, _LEAST_FULL, _MOST_M = 128, 6, 0.7, 128


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of up to 8 wavefronts, none of which lies wholly past the gradient, and as many slices
    as fill so many places of each compute unit."""
    outs, out_h, out_w = problem.spec.out_channels, problem.out_height, problem.out_width
    c = grid(tile_h=_TILE_H, tile_w=range(PIECE, _MOST_W + 1, PIECE), wave_m=_WAVE_M,
             waves_m=_WAVES_M, waves_p=_WAVES_P, resident=_RESIDENT)
    waves, c.tile_m, c.slices = c.waves_p * c.waves_m, c.wave_m * c.waves_m, np.ones_like(c.wave_m)
    shape = shape_of(problem, c)
    keep = (waves <= _MOST_WAVES) & (c.waves_p <= c.tile_h * (c.tile_w // PIECE))
    keep &= (c.tile_m <= _MOST_M) & (c.tile_h < 2 * out_h) & (c.tile_w - out_w < PIECE)
    keep &= (c.tile_m - outs < c.wave_m) & (shape.turns <= _MOST_TURNS)
    sums = c.wave_m // FRAGMENT * fragments_of(problem) * 4
    keep &= (sums <= _MOST_SUMS) | (c.wave_m == FRAGMENT)
    wanted = np.clip(c.resident * device.compute_units // shape.channel_tiles, 1,
                     np.minimum(shape.units, MOST_SLICES))
    slices = ceil_div(shape.units, ceil_div(shape.units, wanted))
    full = (shape.row_tiles * c.tile_h * shape.column_tiles * c.tile_w * _LEAST_FULL
            <= out_h * out_w) & (waves > 1)
    chosen = distinct(select(SimpleNamespace(
        tile_h=c.tile_h, tile_w=c.tile_w, tile_m=c.tile_m, wave_m=c.wave_m, waves_p=c.waves_p,
        slices=slices, full=full), keep))
    full = chosen.full
    del chosen.full
    return select_or_all(chosen, full)
