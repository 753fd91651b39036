"""The tilings of the implicit product of matrices of both layouts that are tried."""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from dscore.algorithms.columns import (
    ceil_div,
    concatenate,
    grid,
    powers_of_two,
    select,
    select_or_all,
)
from dscore.algorithms.implicit_gemm.tiling import pixels_of, under_tile
from dscore.algorithms.implicit_gemm_universal.tiling import FOUR, shape_of
from dscore.core.device import MATRIX_WAVEFRONT, Device
from dscore.core.numerics import ACCUMULATOR, ARITHMETICS, Element
from dscore.core.problem import ConvProblem

_MOST_WAVES = 8
_LEAST_FULL = 0.6
# Of a lane, in registers: beyond it too few wavefronts are resident to hide anything.
_MOST_SUMS = 128
# Bytes on their way through a thread's registers: beyond it compilers spill some.
_MOST_FETCHED = 256
_MOST_FETCHED_BYTES = 128  # of int8, whose filters are put in another order there
# Channels of a step and a slice.
_SLICE_C = (4, 8, 16, 32, 64)


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of up to 8 wavefronts, none of which lies wholly past the output.

    Blocks share a tile's input channels only where tiles alone leave compute units idle.
    """
    spec, pixels, c = problem.spec, pixels_of(problem), _tiles(device, problem.spec.element)
    # No slice of a step is without channels.
    c = select(c, (c.tile_c - spec.group_out < c.wave_c) & (c.tile_p - pixels < c.wave_p)
               & (c.step_c - c.slice_c < spec.group_in))
    tiles = ceil_div(spec.group_out, c.tile_c) * spec.groups * ceil_div(pixels, c.tile_p)
    steps = ceil_div(ceil_div(spec.group_in, c.step_c), c.cluster)
    keep = (c.stages <= steps + 1) & ((c.stages == 1) | (steps > 1))
    # Nor is a block of a cluster.
    keep &= (c.cluster == 1) | ((tiles <= device.compute_units)
                                & ((c.cluster - 1) * steps * c.step_c < spec.group_in))
    # Fours of channels are for images and groups of few; of int8 eights as well.
    few = 2 * FOUR if spec.element.exact else FOUR
    keep &= (c.slice_c > few) | (spec.group_in <= few) | (c.arithmetic == "plain")
    columns = SimpleNamespace(**{name: column for name, column in vars(c).items()
                                 if name not in ("waves", "slice_c")})
    # Of tiles that are mostly empty, or wavefronts too few for a compute unit, others do the same.
    full = tiles * c.tile_c * c.tile_p * _LEAST_FULL <= spec.out_channels * pixels
    kept = select_or_all(columns, full & (c.waves > 1), keep)
    kept.patch = under_tile(problem, kept.tile_p)
    shape = shape_of(problem, kept, device.wavefront)
    return select_or_all(kept, (kept.stages != 2)
                         | (spec.element.bytes * shape.fetched <= (
                             _MOST_FETCHED_BYTES if spec.element.exact else _MOST_FETCHED)))


@lru_cache(maxsize=8)
def _tiles(device: Device, element: Element) -> SimpleNamespace:
    """The tilings of the axes, with their wavefronts and the channels of a slice, that suit the
    device whatever the problem; of any patch."""
    c = _axes(device, element)
    waves = c.waves_c * c.waves_p * c.slices
    return select(SimpleNamespace(
        tile_c=c.wave_c * c.waves_c, tile_p=c.wave_p * c.waves_p, wave_c=c.wave_c,
        wave_p=c.wave_p, lanes_c=c.lanes_c, slices=c.slices, step_c=c.slice_c * c.slices,
        stages=c.stages, patch=c.wave_p, cluster=c.cluster,
        arithmetic=np.asarray(ARITHMETICS)[c.arithmetic], waves=waves, slice_c=c.slice_c),
        (c.wave_c * c.wave_p <= _MOST_SUMS * device.wavefront) & (waves <= _MOST_WAVES))


def _axes(device: Device, element: Element) -> SimpleNamespace:
    """Wavefronts by fragments of matrix units, and by lanes of plain arithmetic."""
    axes: dict[str, Any] = {
        "waves_c": (1, 2, 4), "waves_p": (1, 2, 4, 8), "slices": (1, 2, 4), "slice_c": _SLICE_C,
        "stages": (1, 2, 3, 4) if device.asynchronous_copies else (1, 2),
        "cluster": powers_of_two(device.cluster_blocks)}
    units = "tf32" if element == ACCUMULATOR else element.name
    if units not in device.matrix_types:
        return _plain(device, axes, (4, 8), (1, 2, 4, 8), (2, 4, 8))
    at = ARITHMETICS.index("tf32x3" if element == ACCUMULATOR else
                           "matrix8" if element.exact else "matrix16")
    wave_c = (8, 16, 24, 32, 48, 64, 96, 128) if device.wavefront == MATRIX_WAVEFRONT else (
        16, 32, 48, 64, 96)
    fragments = grid(arithmetic=[at], lanes_c=[8], wave_c=wave_c, wave_p=(16, 32, 64), **axes)
    # Plain arithmetic for those who ask for it.
    few = {**axes, "cluster": (1,), "slices": (1,), "slice_c": (4, 8, 16), "stages": (1, 2)}
    return concatenate(fragments, _plain(device, few, (8,), (1, 4), (2, 4)))


def _plain(device: Device, axes: dict[str, Any], lanes_c: tuple[int, ...], rows: tuple[int, ...],
           runs: tuple[int, ...]) -> SimpleNamespace:
    c = grid(arithmetic=[0], lanes_c=lanes_c, rows=rows, runs=runs, **axes)
    c.wave_c, c.wave_p = c.lanes_c * c.rows, device.wavefront // c.lanes_c * c.runs
    del c.rows, c.runs
    return c
