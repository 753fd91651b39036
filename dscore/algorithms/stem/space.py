"""The tilings of first layers that are tried."""

from __future__ import annotations

from types import SimpleNamespace

from dscore.algorithms.columns import ceil_div, grid, select, select_or_all
from dscore.algorithms.stem.tiling import EIGHT, FOUR, PIECE, steps_of
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

_TILE_H, _MOST_W = (1, 2, 4, 8, 16), 128
_WAVES_P, _MOST_N, _MOST_WAVES = (2, 4, 8), 64, 8
# Of the pixels of all tiles those that there are, at least.
_LEAST_FULL = 0.7
# Registers of a lane for filters.
_MOST_FILTERS = 128


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of up to 8 wavefronts, none of which lies wholly past the output."""
    outs = problem.spec.out_channels
    whole = -(-outs // EIGHT) * EIGHT
    tiles_n = sorted({min(whole, tile_n) for tile_n in (8, 16, 24, 32, 40, 48, 56, _MOST_N)})
    c = grid(tile_h=_TILE_H, tile_w=range(PIECE, _MOST_W + 1, PIECE), tile_n=tiles_n,
             wave_n=range(EIGHT, _MOST_N + 1, EIGHT), waves_p=_WAVES_P)
    c = select(c, c.tile_n % c.wave_n == 0)
    waves = c.waves_p * (c.tile_n // c.wave_n)
    c = select(c, (waves <= _MOST_WAVES) & (c.waves_p <= c.tile_h * (c.tile_w // PIECE))
               & (c.tile_h < 2 * problem.out_height) & (c.tile_w - problem.out_width < PIECE))
    if not len(c.tile_h):
        return grid(tile_h=(1,), tile_w=(PIECE,), tile_n=tiles_n[:1], wave_n=(EIGHT,),
                    waves_p=(1,))
    pixels = (ceil_div(problem.out_height, c.tile_h) * c.tile_h
              * ceil_div(problem.out_width, c.tile_w) * c.tile_w)
    full = pixels * _LEAST_FULL <= problem.out_height * problem.out_width
    kept = 2 * steps_of(problem) * (c.wave_n // EIGHT) <= _MOST_FILTERS
    # Channels that lanes store as vectors, and tiles of as many as there are.
    even = ceil_div(outs, c.tile_n) * c.tile_n == outs
    return select_or_all(c, full & even & (c.wave_n % (EIGHT * FOUR) == 0), kept)
