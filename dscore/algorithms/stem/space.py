"""The tilings of first layers that are tried."""

from __future__ import annotations

from types import SimpleNamespace

from dscore.algorithms.columns import ceil_div, grid, select, select_or_all
from dscore.algorithms.stem.tiling import EIGHT, FOUR, PIECE, steps_of
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

_TILE_H, _MOST_W = (1, 2, 4, 7, 8, 14, 16), 128
_WAVES_P, _WAVES_N, _MOST_WAVES = (1, 2, 4, 8), (1, 2, 3, 4), 8
_REPEAT = (1, 2, 4, 7, 8, 14)
# Channels of a wavefront, whose lanes store two of them side by side, four, and eight twice.
_WAVE_N = (EIGHT, 2 * EIGHT, 4 * EIGHT, 8 * EIGHT)
# Of the pixels of all tiles those that there are, at least; and of their channels.
_LEAST_FULL, _LEAST_CHANNELS = 0.7, 0.5
# Registers of a lane for filters; channels of a block.
_MOST_FILTERS, _MOST_N = 128, 128


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of up to 8 wavefronts, none of which lies wholly past the output."""
    outs, out_h, out_w = problem.spec.out_channels, problem.out_height, problem.out_width
    c = grid(tile_h=_TILE_H, tile_w=range(PIECE, _MOST_W + 1, PIECE), wave_n=_WAVE_N,
             waves_n=_WAVES_N, waves_p=_WAVES_P, repeat=_REPEAT)
    waves, tile_n = c.waves_p * c.waves_n, c.wave_n * c.waves_n
    whole = ceil_div(outs, tile_n) * tile_n
    keep = (waves <= _MOST_WAVES) & (c.waves_p <= c.tile_h * (c.tile_w // PIECE))
    keep &= (tile_n <= _MOST_N) & (c.tile_h < 2 * out_h) & (c.tile_w - out_w < PIECE)
    keep &= (whole - outs < FOUR * EIGHT) & (tile_n - outs < c.wave_n)
    # Several tiles of a block leave blocks for all compute units, and some of their pixels.
    row_blocks = ceil_div(ceil_div(out_h, c.tile_h), c.repeat)
    blocks = row_blocks * ceil_div(out_w, c.tile_w) * ceil_div(outs, tile_n) * problem.batch
    keep &= (c.repeat == 1) | ((blocks >= device.compute_units)
                               & (c.tile_h * c.repeat * row_blocks < out_h + c.tile_h))
    filters = 2 * steps_of(problem) * (c.wave_n // EIGHT)
    # Lanes that store few channels are for filters of which a wavefront holds no more.
    wide = (c.wave_n >= min(outs, FOUR * EIGHT)) | (4 * filters > _MOST_FILTERS)
    pixels = ceil_div(out_h, c.tile_h) * c.tile_h * ceil_div(out_w, c.tile_w) * c.tile_w
    full = (pixels * _LEAST_FULL <= out_h * out_w) & (whole * _LEAST_CHANNELS <= outs)
    # A compute unit's work is shared by several wavefronts.
    chosen = select(SimpleNamespace(
        tile_h=c.tile_h, tile_w=c.tile_w, tile_n=tile_n, wave_n=c.wave_n, waves_p=c.waves_p,
        repeat=c.repeat, full=full & wide & (waves > 1)), keep & (filters <= _MOST_FILTERS))
    full = chosen.full
    del chosen.full
    return select_or_all(chosen, full)
