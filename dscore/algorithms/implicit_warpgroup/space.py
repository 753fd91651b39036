"""The tilings of the implicit product of matrices by warpgroups that are tried."""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace

import numpy as np

from dscore.algorithms.columns import (
    Count,
    ceil_div,
    grid,
    powers_of_two,
    select,
    select_or_all,
)
from dscore.algorithms.implicit_gemm.tiling import pixels_of, under_tile
from dscore.algorithms.implicit_warpgroup.tiling import beside_of
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

_MOST_GROUPS = 4
_LEAST_FULL = 0.6
# Of a lane, in registers: sums of a step and of all steps take twice as many.
_MOST_SUMS = 64
_COLUMNS = (8, 16, 24, 32, 40, 48, 64, 80, 96, 128)


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of up to 4 warpgroups, none of which lies wholly past the output.

    Blocks share a tile's input channels only where tiles alone leave compute units idle.
    """
    spec, pixels, c = problem.spec, pixels_of(problem), _tiles(device, problem.spec.kernel[0])
    c = select(c, (c.tile_c - spec.group_out < c.group_c) & (c.tile_p - pixels < c.group_p)
               & (c.step_c - c.step_c // c.slices < spec.group_in))
    tiles = ceil_div(spec.group_out, c.tile_c) * ceil_div(pixels, c.tile_p)
    all_steps = ceil_div(spec.group_in, c.step_c)
    steps = ceil_div(all_steps, c.cluster)
    keep = (c.stages <= steps.clip(2) + 1) & ((c.cluster - 1) * steps < all_steps)
    keep &= (c.cluster == 1) | (tiles <= device.compute_units)
    # Of tiles that are mostly empty others do the same.
    full = tiles * c.tile_c * c.tile_p * _LEAST_FULL <= spec.group_out * pixels
    kept = select_or_all(c, full, keep)
    kept.patch = patch_of(problem, kept)
    return kept


def patch_of(problem: ConvProblem, t: SimpleNamespace) -> Count:
    """The least patch of tilings from which lanes read in the fewest clocks: lanes of four channels
    by eight pixels side by side, or 4 apart, then meet no bank twice.
    """
    needed = under_tile(problem, t.tile_p)
    return needed + (np.where(beside_of(problem, t) > 1, 1, 8) - needed) % 32


@lru_cache(maxsize=32)
def _tiles(device: Device, kernel_h: int) -> SimpleNamespace:
    """The tilings of the axes that suit the device whatever the image; of any patch."""
    c = grid(group_c=_COLUMNS, group_p=(64, 128), groups_c=(1, 2), groups_p=(1, 2, 3, 4),
             slices=(1, 2, 4), eights=(1, 2), rows=sorted({1, kernel_h}), stages=(2, 3, 4),
             cluster=powers_of_two(device.cluster_blocks))
    tilings = SimpleNamespace(
        tile_c=c.group_c * c.groups_c, tile_p=c.group_p * c.groups_p, group_c=c.group_c,
        group_p=c.group_p, slices=c.slices, step_c=8 * c.eights * c.slices, rows=c.rows,
        stages=c.stages, patch=c.group_p, cluster=c.cluster)
    return select(tilings, (c.groups_c * c.groups_p * c.slices <= _MOST_GROUPS)
                  & (c.group_c * c.group_p <= 128 * _MOST_SUMS))
