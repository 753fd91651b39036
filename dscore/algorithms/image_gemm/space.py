"""The tilings of the product of whole images by filters that are tried."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from dscore.algorithms.clusters import filled_units
from dscore.algorithms.columns import Count, distinct, grid, remainder, select
from dscore.algorithms.image_gemm.tiling import DEPTH, ImageShape, shape_of, sums_of
from dscore.algorithms.warpgroup_gemm.tiling import ROW, ROWS
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

_IMAGES, _GROUPS, _SLICES = (1, 2, 3, 4, 5, 8, 16), (1, 2, 3, 4), (1, 2, 3, 4)
_STAGES, _REPEAT, _CLUSTERS = (1, 2, 3, 4, 5, 6, 8), (1, 2, 3, 4), (1, 2, 3, 4, 6, 8)
# Parts of the channels that tiles have, and the fewest and most channels of one.
_PARTS, _FEWEST, _MOST = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24), 16, 256
_EIGHT = 8
# Pixels of a part that come to LDS in one box, half a vector of which belongs to the plane before.
_OF_GROUP = ROWS - _EIGHT // 2
# Summed channels of a step for clusters alone.
_OF_CLUSTERS = 3 * ROW // 4
# Warpgroups of a block; instructions whose rows a warpgroup has, and sums of a lane.
MOST_GROUPS, MOST_ROWS, MOST_SUMS = 4, 4, 128


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of up to four warpgroups, all of which have pixels or steps."""
    shape = shape_of(problem, SimpleNamespace(tile_n=8, images=1, groups=1, slices=1, step=DEPTH,
                                              stages=1, repeat=1, cluster=1, parts=1))
    c = grid(tile_n=_columns(shape.m), images=_IMAGES, groups=_GROUPS, slices=_SLICES,
             step=_steps(shape.k), stages=_STAGES, repeat=_REPEAT,
             cluster=[blocks for blocks in _CLUSTERS if blocks <= device.cluster_blocks],
             parts=_parts(shape.area))
    c = select(c, (c.groups * c.slices <= MOST_GROUPS) & (c.images * c.repeat <= problem.batch)
               & ((c.repeat == 1) | (c.slices * c.cluster == 1))
               & ((c.parts == 1) | (c.images * c.repeat == 1)))
    of = shape_of(problem, c)
    keep = (of.rows * (c.groups - 1) < of.instructions) & (
        c.slices * c.cluster <= of.all_steps)
    keep &= (c.cluster == 1) | (of.tiles_n * of.tiles_i * c.cluster <= _places(device, c, of))
    # A step of three quarters of a row is there for clusters, as of half as many channels.
    keep &= (c.step != _OF_CLUSTERS) | (c.cluster > 1) | (shape.k <= _OF_CLUSTERS)
    keep &= (of.rows <= MOST_ROWS) & (sums_of(of.rows, c) <= MOST_SUMS)
    keep &= (remainder(c.stages, c.slices) == 0) & (
        (c.stages >= 2 * c.slices) | (c.stages >= of.steps * c.repeat))
    keep &= c.stages < of.steps * c.repeat + c.slices
    keep &= (c.repeat == 1) | ((of.tiles_n * of.tiles_i > device.compute_units) & (c.stages > 1))
    return distinct(select(c, keep))


def _places(device: Device, c: SimpleNamespace, of: ImageShape) -> Count:
    """Blocks of clusters that the device has room for at once: a second round of them costs as much
    as the first."""
    return filled_units(device, c) * np.maximum(device.lds_bytes_per_cu // of.lds_bytes, 1)


def _parts(area: int) -> list[int]:
    """Parts of a plane: all of it, and as many as one or two warpgroups have the pixels of."""
    if area % _EIGHT != _EIGHT // 2:
        return [1]
    return sorted({1, *(-(-area // pixels) for pixels in (_OF_GROUP, 2 * _OF_GROUP))})


def _columns(channels: int) -> list[int]:
    """Sides of tiles: even parts of the channels, by eights."""
    sides = {-(-channels // (parts * _EIGHT)) * _EIGHT for parts in _PARTS}
    most = min(_MOST, max(sides))
    return sorted(side for side in sides if min(_FEWEST, most) <= side <= most) or [_MOST]


def _steps(k: int) -> list[int]:
    """Half a row of filters, three quarters, one, and two; all summed channels, if they are few."""
    all_ = -(-k // DEPTH) * DEPTH
    return sorted({step for step in (ROW // 2, _OF_CLUSTERS, ROW, 2 * ROW) if step < all_}
                  | ({all_} if all_ <= 2 * ROW else set()))
