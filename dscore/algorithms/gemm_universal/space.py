"""The tilings of the product of matrices in any order of axes that are tried."""

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
from dscore.algorithms.gemm_universal.tiling import sizes_of
from dscore.core.device import Device
from dscore.core.numerics import ACCUMULATOR, ARITHMETICS, Element
from dscore.core.problem import ConvProblem

_MOST_WAVES = 16
_LEAST_FULL = 0.5
# Of a lane, in registers: beyond it too few wavefronts are resident to hide anything.
_MOST_SUMS = 128
# Of the pixels of a weight gradient: blocks beyond so many for each compute unit only add parts.
_MOST_SHARES = 2
_PARTS = (1, 2, 4, 8, 16, 32, 64, 128)


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of up to 16 wavefronts, none of which lies wholly past the result.

    Blocks share a tile's summed elements only where tiles alone leave compute units idle.
    """
    sizes, element = sizes_of(problem), problem.spec.element
    c = _tiles(device, element, problem.operation)
    c = select(c, (c.tile_m - sizes.m < c.wave_m) & (c.tile_n - sizes.n < c.wave_n)
               & (c.step * c.cluster * c.parts < max(2 * sizes.k, 32)))
    tiles = ceil_div(sizes.m, c.tile_m) * ceil_div(sizes.n, c.tile_n)
    steps = ceil_div(ceil_div(sizes.k, c.step), c.cluster * c.parts)
    keep = (c.stages <= np.maximum(3, steps + 1)) & ((c.stages != 1) | (steps == 1))
    keep &= (c.cluster == 1) | (tiles * c.cluster <= 2 * device.compute_units)
    keep &= (c.parts == 1) | (tiles * c.cluster * c.parts <= _MOST_SHARES * device.compute_units)
    columns = SimpleNamespace(**{name: column for name, column in vars(c).items()
                                 if name != "waves"})
    # Of tiles that are mostly empty, or wavefronts too few for a compute unit, others do the same.
    full = tiles * c.tile_m * c.tile_n * _LEAST_FULL <= sizes.m * sizes.n
    return select_or_all(columns, full & (c.waves > 1), keep)


@lru_cache(maxsize=16)
def _tiles(device: Device, element: Element, operation: str) -> SimpleNamespace:
    """The tilings of the axes, with their wavefronts, that suit the device whatever the problem."""
    c = _axes(device, element, operation)
    waves = c.waves_m * c.waves_n * c.slices
    return select(SimpleNamespace(
        tile_m=c.wave_m * c.waves_m, tile_n=c.wave_n * c.waves_n, wave_m=c.wave_m, wave_n=c.wave_n,
        lanes_m=c.lanes_m, slices=c.slices, step=c.slice_k * c.slices, stages=c.stages,
        cluster=c.cluster, parts=c.parts, arithmetic=np.asarray(ARITHMETICS)[c.arithmetic],
        waves=waves), (c.wave_m * c.wave_n <= _MOST_SUMS * device.wavefront)
        & (waves <= _MOST_WAVES) & (c.slice_k * c.slices <= 256))


def _axes(device: Device, element: Element, operation: str) -> SimpleNamespace:
    """Wavefronts by lanes of plain arithmetic, and by fragments of matrix units."""
    axes = {"waves_m": (1, 2, 4, 8), "waves_n": (1, 2, 3, 4), "slices": (1, 2, 4, 8),
            "stages": (1, 2, 3, 4, 6) if device.asynchronous_copies else (1, 2),
            "cluster": powers_of_two(device.cluster_blocks),
            "parts": _PARTS if operation == "weight_gradient" else (1,)}
    name = "tf32" if element == ACCUMULATOR else element.name
    if name in device.matrix_types:
        at = ARITHMETICS.index("tf32x3" if element == ACCUMULATOR else "matrix16")
        units = grid(arithmetic=[at], lanes_m=[8], wave_m=(16, 32, 64),
                     wave_n=(8, 16, 24, 32, 40, 48, 64), slice_k=(16, 32, 64), **axes)
        # Plain arithmetic for those who ask for it.
        few = {**axes, "stages": axes["stages"][1:3], "cluster": (1,)}
        return concatenate(units, _plain(device, few, (8,), (4,), (4,)))
    return _plain(device, axes, (4, 8, 16), (1, 2, 4, 8), (1, 2, 4, 8))


def _plain(device: Device, axes: dict[str, tuple[int, ...]], lanes_m: tuple[int, ...],
           rows: tuple[int, ...], columns: tuple[int, ...]) -> SimpleNamespace:
    c = grid(arithmetic=[0], lanes_m=lanes_m, rows=rows, columns=columns, slice_k=(8, 16, 32),
             **axes)
    c.wave_m, c.wave_n = c.lanes_m * c.rows, device.wavefront // c.lanes_m * c.columns
    del c.rows, c.columns
    return c
