"""The tilings of the product of matrices by warpgroups that are tried."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from dscore.algorithms.columns import Count, ceil_div, distinct, grid, powers_of_two, select
from dscore.algorithms.gemm_universal.tiling import sizes_of
from dscore.algorithms.table_copies import with_banked
from dscore.algorithms.warpgroup_gemm.tiling import MOST_BOX, ROWS, SECTOR_BYTES, row_of
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

_TILE_M, _STAGES = (64, 128, 192, 256), (2, 3, 4, 6, 8)
_PARTS = (1, 2, 4, 8, 16, 32, 64, 128)
# Columns of the narrowest tile that has a share of all.
_LEAST_SHARE = 32
# Blocks for each compute unit beyond which shares of the summed pixels only add up; and those among
# which tiles are shared evenly.
_MOST_SHARES, _RESIDENT = 2, (1, 2, 3, 4, 6)


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of up to four warpgroups, none of which lies wholly past the result.

    Blocks take one tile of rows, or as many as leave a few blocks for each compute unit. They share
    the summed pixels of a weight gradient where tiles leave compute units idle, by powers of two,
    or so that they fill one or two places of each compute unit; there the blocks of a cluster share
    the steps of any operation, too.
    """
    sizes, row = sizes_of(problem), row_of(problem)
    axes = {"tile_m": _TILE_M, "tile_n": _columns(problem), "step": (row, 2 * row, 4 * row),
            "stages": _STAGES}
    if problem.operation == "weight_gradient":
        axes |= {"resident": range(_MOST_SHARES + 1), "kept": (0,), "parts": _PARTS}
    else:
        axes |= {"resident": (0, *_RESIDENT), "kept": (0, 1), "parts": (1,)}
    exact = problem.spec.element.exact
    spans = sizes.along_a and (exact or not problem.spec.scaled)
    c = grid(**axes, spans=(0, 1) if spans else (0,), cluster=(1,) if exact
             else powers_of_two(device.cluster_blocks))
    steps = ceil_div(sizes.k, c.step)
    tiles = ceil_div(sizes.m, c.tile_m) * ceil_div(sizes.n, c.tile_n)
    units = device.compute_units
    sums_pixels = problem.operation == "weight_gradient"
    aimed = c.resident > 0
    repeat = np.where(aimed & (not sums_pixels),
                      ceil_div(tiles, np.maximum(c.resident, 1) * units), 1)
    parts = np.where(aimed & sums_pixels, _filling(tiles * c.cluster, steps, c.resident * units),
                     c.parts)
    keep = (c.tile_m - sizes.m < ROWS) & (c.step - sizes.k < row)
    if problem.spec.scaled and exact:
        # Lanes scale byte by byte, and have no registers for two longer steps.
        keep &= (c.step == row) | (c.spans == 1)
    keep &= (c.spans == 0) | ((steps == 1) & (c.cluster == 1))
    # Longer steps than two rows of LDS are spans', which have all elements.
    keep &= (c.step <= 2 * row) | ((c.spans == 1) & (sizes.k > 2 * row))
    keep &= ~aimed | (repeat > 1) | (sums_pixels & (c.parts == 1))
    keep &= (c.kept == 0) | (repeat > 1)
    keep &= (c.kept == 1) | (repeat == 1) | (steps > 1)  # one step takes no more LDS if it stays
    shares = parts * c.cluster
    keep &= c.stages <= np.maximum(2, ceil_div(steps, shares) * repeat + 1)
    keep &= (shares == 1) | ((tiles * shares <= _MOST_SHARES * units) & (shares <= steps))
    keep &= (c.cluster == 1) | ((repeat == 1) & (tiles * parts < units)
                                & ((shares - 1) * ceil_div(steps, shares) < steps))
    # A step longer than all the summed elements is there for those that are fewer than a row.
    if not keep.any():
        keep = (c.tile_m == ROWS) & (c.step == row) & (c.resident == 0) & (shares == 1)
        keep &= c.spans == 0
    columns = SimpleNamespace(
        tile_m=c.tile_m, tile_n=c.tile_n, step=c.step, stages=c.stages, repeat=repeat, kept=c.kept,
        parts=parts, cluster=c.cluster, spans=c.spans)
    chosen = distinct(select(columns, keep))
    chosen.kept, chosen.spans = chosen.kept == 1, chosen.spans == 1
    return with_banked(chosen, problem.spec)


def _filling(blocks: Count, steps: Count, places: Count) -> Count:
    """Parts of the summed pixels by which so many *blocks* come closest to filling the *places*,
    none of which is without a step.

    >>> int(_filling(9, 98, 132)), int(_filling(9, 12, 132)), int(_filling(200, 12, 132))
    (14, 12, 1)
    """
    wanted = np.clip(places // blocks, 1, steps)
    return ceil_div(steps, ceil_div(steps, wanted))


def _columns(problem: ConvProblem) -> list[int]:
    """Sides of tiles: all columns, where they are no more than an instruction has; whole boxes of
    results, of int8, which leaves by rows, halves of boxes, too; and even shares of all columns,
    whose rows begin with sectors."""
    sizes, exact = sizes_of(problem), problem.spec.element.exact
    unit, eights = (32, 16) if exact else (row_of(problem), 8)
    of_sector = SECTOR_BYTES // problem.spec.element.bytes
    boxes = range(unit, min(-(-sizes.n // unit) * unit, MOST_BOX) + 1, unit)
    shares = [] if exact or not sizes.along_b else [
        side for side in range(_LEAST_SHARE, min(sizes.n, MOST_BOX) + 1, of_sector)
        if sizes.n % side == 0]
    return sorted({*boxes, *shares, *[-(-sizes.n // eights) * eights] * (sizes.n <= MOST_BOX)})
