"""The tilings of the product of matrices that are tried."""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace

import numpy as np

from dscore.algorithms.columns import (
    ceil_div,
    concatenate,
    grid,
    powers_of_two,
    select,
    select_or_all,
)
from dscore.algorithms.gemm.tiling import sizes_of
from dscore.core.device import Device
from dscore.core.numerics import ARITHMETICS
from dscore.core.problem import ConvProblem

_LANES_C = (4, 8)
_MOST_WAVES = 8
_LEAST_FULL = 0.6
# Of a lane, in registers: beyond it too few wavefronts are resident to hide anything.
_MOST_SUMS = 128


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of up to 8 wavefronts, none of which lies wholly past the output.

    Blocks share a tile's input channels only where tiles alone leave compute units idle.
    """
    sizes = sizes_of(problem)
    pixels, channels = sizes.pixels, sizes.channels
    c = _tiles(device)
    c = select(c, (c.tile_c - channels < c.wave_c) & (c.tile_p - pixels < c.wave_p)
               & (c.step_c * c.cluster < max(2 * sizes.depth, 16)))
    tiles = ceil_div(channels, c.tile_c) * ceil_div(pixels, c.tile_p)
    steps = ceil_div(ceil_div(sizes.depth, c.step_c), c.cluster)
    keep = c.stages <= np.maximum(3, steps + 1)
    keep &= (c.cluster == 1) | (tiles <= device.compute_units)
    columns = SimpleNamespace(**{name: column for name, column in vars(c).items()
                                 if name != "waves"})
    # Of tiles that are mostly empty, or wavefronts too few for a compute unit, others do the same.
    full = tiles * c.tile_c * c.tile_p * _LEAST_FULL <= channels * pixels
    return select_or_all(columns, full & (c.waves > 1), keep)


@lru_cache(maxsize=8)
def _tiles(device: Device) -> SimpleNamespace:
    """The tilings of the axes, with their wavefronts, that suit the device whatever the problem."""
    c = _axes(device)
    waves = c.waves_c * c.waves_p * c.slices
    wave_c, wave_p = c.rows * c.lanes_c, c.fours * c.pixels
    return select(SimpleNamespace(
        tile_c=wave_c * c.waves_c, tile_p=wave_p * c.waves_p, wave_c=wave_c, wave_p=wave_p,
        lanes_c=c.lanes_c, slices=c.slices, step_c=c.slice_c * c.slices, stages=c.stages,
        cluster=c.cluster, arithmetic=np.asarray(ARITHMETICS)[c.arithmetic], waves=waves),
        (wave_c * wave_p <= _MOST_SUMS * device.wavefront) & (waves <= _MOST_WAVES))


def _axes(device: Device) -> SimpleNamespace:
    """Wavefronts by `rows` of lanes_c channels and `fours` of `pixels` pixels."""
    axes = {"waves_c": (1, 2, 3, 4), "waves_p": (1, 2, 4), "slices": (1, 2, 4),
            "stages": (2, 3, 4, 6, 8) if device.asynchronous_copies else (2,),
            "cluster": powers_of_two(device.cluster_blocks)}
    plain = grid(arithmetic=[0], lanes_c=_LANES_C, rows=(1, 2, 4, 8), fours=(1, 2),
                 slice_c=(8, 16, 32), **axes)
    plain.pixels = 4 * (device.wavefront // plain.lanes_c)
    if "tf32" not in device.matrix_types:
        return plain
    split = grid(arithmetic=[1], lanes_c=[8], rows=(1, 2, 3, 4, 5, 6, 8, 9, 12),
                 fours=(1, 2, 4, 8), slice_c=(8, 16, 32), **axes)
    split.pixels = 0 * split.lanes_c + 16
    return concatenate(plain, split)
