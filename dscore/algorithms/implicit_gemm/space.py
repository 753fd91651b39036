"""The tilings of the implicit product of matrices that are tried."""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace

import numpy as np

from dscore.algorithms.columns import (
    Count,
    ceil_div,
    concatenate,
    grid,
    powers_of_two,
    select,
    select_or_all,
)
from dscore.algorithms.implicit_gemm.tiling import beside_of, pixels_of, shape_of, under_tile
from dscore.core.device import Device
from dscore.core.numerics import ARITHMETICS
from dscore.core.problem import ConvProblem

_MOST_WAVES = 8
_LEAST_FULL = 0.6
# Of a lane, in registers: beyond it too few wavefronts are resident to hide anything.
_MOST_SUMS = 128
# Elements on their way through a thread's registers: beyond it compilers spill some.
_MOST_FETCHED = 64
# Pixels of a lane that slides along a row.
_ODD = (5, 7)
# Channels of an image, in the first layers of networks.
_COLOURS = 3


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of up to 8 wavefronts, none of which lies wholly past the output.

    Blocks share a tile's input channels only where tiles alone leave compute units idle.
    """
    spec, pixels, c = problem.spec, pixels_of(problem), _tiles(device)
    c = select(c, ((c.lanes_c == 1) & (c.slice_c == 1) & (c.wave_c == 1) & (c.slices == 1)
                   if spec.kind == "depthwise" else ~np.isin(c.wave_p, _odd_runs(device))))
    # No slice of a step is without channels, nor are steps of three but for images of colours.
    c = select(c, (c.tile_c - spec.group_out < c.wave_c) & (c.tile_p - pixels < c.wave_p)
               & (c.step_c - c.slice_c < spec.group_in)
               & ((c.slice_c != _COLOURS) | (spec.group_in == _COLOURS)))
    tiles = ceil_div(spec.group_out, c.tile_c) * spec.groups * ceil_div(pixels, c.tile_p)
    steps = ceil_div(ceil_div(spec.group_in, c.step_c), c.cluster)
    keep = (c.stages <= steps + 1) & ((c.stages == 1) | (steps > 1))
    # Nor is a block of a cluster.
    keep &= (c.cluster == 1) | ((tiles <= device.compute_units)
                                & ((c.cluster - 1) * steps * c.step_c < spec.group_in))
    columns = SimpleNamespace(**{name: column for name, column in vars(c).items()
                                 if name not in ("waves", "slice_c")})
    # Of tiles that are mostly empty, or wavefronts too few for a compute unit, others do the same.
    full = tiles * c.tile_c * c.tile_p * _LEAST_FULL <= spec.out_channels * pixels
    kept = select_or_all(columns, full & (c.waves > 1), keep)
    kept.patch = patch_of(problem, kept)
    shape = shape_of(problem, kept, device.wavefront)
    return select_or_all(kept, (kept.stages != 2) | (shape.fetched <= _MOST_FETCHED))


def _odd_runs(device: Device) -> list[int]:
    """Pixels of a wavefront whose lanes slide along an odd number, and meet no bank twice."""
    return [odd * device.wavefront for odd in _ODD]


@lru_cache(maxsize=8)
def _tiles(device: Device) -> SimpleNamespace:
    """The tilings of the axes, with their wavefronts and the channels of a slice, that suit the
    device whatever the problem; of any patch.
    """
    c = _axes(device)
    waves = c.waves_c * c.waves_p * c.slices
    wave_c, wave_p = c.rows * c.lanes_c, c.runs * c.pixels
    return select(SimpleNamespace(
        tile_c=wave_c * c.waves_c, tile_p=wave_p * c.waves_p, wave_c=wave_c, wave_p=wave_p,
        lanes_c=c.lanes_c, slices=c.slices, step_c=c.slice_c * c.slices, stages=c.stages,
        patch=wave_p, cluster=c.cluster, arithmetic=np.asarray(ARITHMETICS)[c.arithmetic],
        waves=waves, slice_c=c.slice_c),
        (wave_c * wave_p <= _MOST_SUMS * device.wavefront) & (waves <= _MOST_WAVES))


def patch_of(problem: ConvProblem, t: SimpleNamespace) -> Count:
    """The least patch of tilings from which lanes of fragments read in the fewest clocks: lanes of
    four channels by eight pixels side by side, or 4 apart, then meet no bank twice.
    """
    needed = under_tile(problem, t.tile_p)
    bank = np.where(beside_of(problem, t) > 1, 1, 8)
    return np.where(t.arithmetic == "tf32x3", needed + (bank - needed) % 32, needed)


def _axes(device: Device) -> SimpleNamespace:
    """Wavefronts by `rows` of lanes_c channels and `runs` of `pixels` pixels."""
    axes = {"waves_c": (1, 2, 4), "waves_p": (1, 2, 4), "slices": (1, 2, 4),
            "stages": (1, 2, 3, 4) if device.asynchronous_copies else (1, 2),
            "cluster": powers_of_two(device.cluster_blocks)}
    # One row of lanes is for groups of few channels.
    plain = grid(arithmetic=[0], lanes_c=(1, 4, 8), rows=(1, 2, 4, 8), runs=(2, 4, *_ODD, 8),
                 slice_c=(1, 2, _COLOURS, 4, 8), **axes)
    plain.pixels = device.wavefront // plain.lanes_c
    if "tf32" not in device.matrix_types:
        return plain
    split = grid(arithmetic=[1], lanes_c=[8], rows=(1, 2, 3, 4, 6, 8), runs=(1, 2, 4, 8),
                 slice_c=(4, 8, 16), **axes)
    split.pixels = 0 * split.lanes_c + 16
    return concatenate(plain, split)
