"""The tilings of the split sum over pixels that are tried."""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace

import numpy as np

from dscore.algorithms.columns import (
    ceil_div,
    concatenate,
    floor_div,
    grid,
    powers_of_two,
    select,
    select_or_all,
)
from dscore.algorithms.split_k.tiling import pieces, pixels_of
from dscore.core.device import Device
from dscore.core.numerics import ARITHMETICS
from dscore.core.problem import ConvProblem

_MOST_WAVES = 8
_LEAST_FULL = 0.6
# Of a lane, in registers: beyond it too few wavefronts are resident to hide anything. Of 520
# tilings that were timed none with 96 or more was the fastest of its layer.
_MOST_SUMS = 80
# Blocks of all parts for each compute unit; 0: one part, whatever that leaves idle.
_FILLS = (0, 1, 2, 3, 4, 6)
# Blocks of a cluster, at most: larger ones lost on every layer that was timed.
_MOST_CLUSTER = 4
_LEAST_STEPS = 2  # of a block, where there are several parts
_PLANE = 0
_MOST_PLANE = 400  # pixels: three buffers of 32 channels fill LDS


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of up to 8 wavefronts, none of which lies wholly past the result, in as many parts as
    fill the device so and so often.
    """
    spec, pixels = problem.spec, pixels_of(problem)
    c = _tiles(device, _slices(problem, device))
    c = select(c, (c.tile_o - spec.out_channels < c.wave_o)
               & (c.tile_i - spec.in_channels < c.wave_i))
    planes = c.slice == _PLANE
    step = np.where(planes, problem.out_height * problem.out_width, c.slice) * c.slices
    tiles = ceil_div(spec.out_channels, c.tile_o) * ceil_div(spec.in_channels, c.tile_i)
    steps = ceil_div(pixels, step)
    most = np.maximum(steps // _LEAST_STEPS, 1)
    parts = np.where(c.fill == 0, 1, np.clip(
        floor_div(c.fill * device.compute_units, tiles), 1, most))
    # Fills that come to the same are tried once.
    fewer = np.where(c.fill == 0, 0, np.where(c.fill == 1, 1, np.clip(
        floor_div((c.fill - 1) * device.compute_units, tiles), 1, most)))
    keep = (c.fill == 0) | (parts > fewer)
    keep &= c.stages <= np.maximum(3, ceil_div(steps, parts) + 1)
    columns = SimpleNamespace(
        tile_o=c.tile_o, tile_i=c.tile_i, wave_o=c.wave_o, wave_i=c.wave_i, lanes_o=c.lanes_o,
        slices=c.slices, step=step, stages=c.stages, parts=parts, planes=planes,
        arithmetic=c.arithmetic, cluster=0 * parts + 1)
    # Of tiles that are mostly empty, or wavefronts too few for a compute unit, others do the same.
    full = tiles * c.tile_o * c.tile_i * _LEAST_FULL <= spec.out_channels * spec.in_channels
    usual = full & (c.waves > 1)
    # The blocks of one cluster in place of parts, where all of them run at once.
    joined = [select(SimpleNamespace(**{**vars(columns), "parts": 0 * parts + 1,
                                        "cluster": 0 * parts + size}),
                     usual & (c.fill == 1) & (size <= most)
                     & (tiles * size <= device.compute_units))
              for size in powers_of_two(min(device.cluster_blocks, _MOST_CLUSTER)) if size > 1]
    return concatenate(select_or_all(columns, usual, keep), *joined)


@lru_cache(maxsize=16)
def _tiles(device: Device, slices: tuple[int, ...]) -> SimpleNamespace:
    """The tiles of the axes, with their wavefronts, that suit the device whatever the problem."""
    c = _axes(device, slices)
    waves = c.waves_o * c.waves_i * c.slices
    wave_o, wave_i = c.rows * c.unit_o, c.columns * c.unit_i
    keep = (wave_o * wave_i <= _MOST_SUMS * device.wavefront) & (waves <= _MOST_WAVES)
    return select(SimpleNamespace(
        tile_o=wave_o * c.waves_o, tile_i=wave_i * c.waves_i, wave_o=wave_o, wave_i=wave_i,
        lanes_o=c.lanes_o, slices=c.slices, slice=c.slice, stages=c.stages, fill=c.fill,
        arithmetic=np.asarray(ARITHMETICS)[c.arithmetic], waves=waves), keep)


def _slices(problem: ConvProblem, device: Device) -> tuple[int, ...]:
    """Pixels of a step that a slice has; _PLANE for those of an image, where a channel's plane is
    no whole vectors, or eights of pixels would lie in two images."""
    area = problem.out_height * problem.out_width
    planes = pieces(problem) and area % 8 and area <= _MOST_PLANE
    return (8, 16, 32, _PLANE) if planes else (8, 16, 32)


def _axes(device: Device, slices: tuple[int, ...]) -> SimpleNamespace:
    """Wavefronts by `rows` of unit_o output channels and `columns` of unit_i input channels."""
    axes = {"waves_o": (1, 2, 4), "waves_i": (1, 2, 4), "slices": (1, 2, 4, 8),
            "stages": (3, 4, 6) if device.asynchronous_copies else (2,), "slice": slices,
            "fill": _FILLS}
    plain = grid(arithmetic=[0], lanes_o=(4, 8), rows=(1, 2, 4), columns=(1, 2, 4), **axes)
    plain.unit_o, plain.unit_i = plain.lanes_o, device.wavefront // plain.lanes_o
    if "tf32" not in device.matrix_types:
        return plain
    split = grid(arithmetic=[1], lanes_o=[8], rows=(1, 2, 3, 4), columns=(2, 3, 4, 5, 6, 8), **axes)
    split.unit_o, split.unit_i = 0 * split.lanes_o + 16, 0 * split.lanes_o + 8
    return concatenate(plain, split)
