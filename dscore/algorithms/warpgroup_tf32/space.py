"""The tilings of the product of matrices by warpgroups that are tried."""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace

from dscore.algorithms.columns import (
    ceil_div,
    grid,
    powers_of_two,
    select,
    select_or_all,
)
from dscore.algorithms.gemm.tiling import sizes_of
from dscore.algorithms.warpgroup_tf32.tiling import MOST_COLUMNS
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

_MOST_GROUPS = 6
_LEAST_FULL = 0.6
# Of a lane, in registers: sums of a step and of all steps take twice as many.
_MOST_SUMS = 96


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of up to 6 warpgroups, none of which lies wholly past the output.

    Blocks share a tile's input channels only where tiles alone leave compute units idle.
    """
    sizes = sizes_of(problem)
    pixels, channels = sizes.pixels, sizes.channels
    c = _tiles(device)
    c = select(c, (c.tile_c - channels < c.group_c) & (c.tile_p - pixels < c.group_p)
               & (c.step_c * c.cluster < max(sizes.depth + 8 * c.slices.max(), 16)))
    tiles = ceil_div(channels, c.tile_c) * ceil_div(pixels, c.tile_p)
    steps = ceil_div(ceil_div(sizes.depth, c.step_c), c.cluster)
    keep = (c.stages <= steps.clip(2) + 1) & (
        (c.cluster - 1) * steps < ceil_div(sizes.depth, c.step_c))
    keep &= (c.cluster == 1) | (tiles <= device.compute_units)
    # Of tiles that are mostly empty others do the same.
    full = tiles * c.tile_c * c.tile_p * _LEAST_FULL <= channels * pixels
    full &= c.cluster * steps * c.step_c * _LEAST_FULL <= sizes.depth
    return select_or_all(c, full, keep)


@lru_cache(maxsize=8)
def _tiles(device: Device) -> SimpleNamespace:
    """The tilings of the axes that suit the device whatever the problem."""
    c = grid(group_c=[*range(8, MOST_COLUMNS + 8, 8)], group_p=(64, 128), groups_c=(1, 2, 3),
             groups_p=(1, 2, 3, 4), slices=(1, 2, 4), eights=(1, 2, 3, 4, 5, 6, 8),
             stages=(3, 4, 6), cluster=powers_of_two(device.cluster_blocks))
    tilings = SimpleNamespace(
        tile_c=c.group_c * c.groups_c, tile_p=c.group_p * c.groups_p, group_c=c.group_c,
        group_p=c.group_p, slices=c.slices, step_c=8 * c.eights * c.slices, stages=c.stages,
        cluster=c.cluster)
    return select(tilings, (c.groups_c * c.groups_p * c.slices <= _MOST_GROUPS)
                  & (c.group_c * c.group_p <= 128 * _MOST_SUMS) & (tilings.step_c <= 128))
