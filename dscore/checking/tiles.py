"""Magnitude of Winograd's tiles: what its error is a part of, by the absolute matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.checking.rounding import LEAST_TILE
from dscore.core.problem import ConvProblem
from dscore.core.winograd import KERNEL, Matrix, transforms
from dscore.ops.conv import float64, pad


def tile_magnitude(xp: Any, problem: ConvProblem, m: int, x: Any, w: Any) -> Any:
    """``|Aᵀ| [Σ (|G| |w| |G|ᵀ) ⊙ (|Bᵀ| |x| |B|)] |A|`` over the channels, of each output.

    *x* is NCHW, of any number of images; arrays are of the library *xp*, NumPy or PyTorch.
    """
    spec, outs = problem.spec, (problem.out_height, problem.out_width)
    bt, g, at = (_absolute(xp, one, x) for one in transforms(m))
    images, tall, wide = int(x.shape[0]), *(-(-out // m) for out in outs)
    groups, (top, _, left, _) = spec.groups, problem.padding
    below, right = (count * m + KERNEL - 1 - before - size for count, before, size in zip(
        (tall, wide), (top, left), (problem.height, problem.width), strict=True))
    padded = pad(xp, xp.abs(float64(xp, x)), (top, below, left, right))
    # Axes: image, group, channel, tile, tile, row, column.
    tiles = xp.stack([xp.stack([padded[:, :, i:i + m * tall:m, j:j + m * wide:m]
                                for j in range(m + KERNEL - 1)], -1)
                      for i in range(m + KERNEL - 1)], -2)
    inputs = (bt @ tiles @ bt.T + LEAST_TILE).reshape(
        images, groups, spec.group_in, tall * wide, (m + KERNEL - 1)**2)
    filters = (g @ xp.abs(float64(xp, w)) @ g.T + LEAST_TILE).reshape(
        groups, spec.group_out, spec.group_in, (m + KERNEL - 1)**2)
    sums = xp.moveaxis(filters, -1, 0)[:, None] @ xp.moveaxis(inputs, -1, 0)
    sums = xp.moveaxis(sums, 0, -1).reshape(
        images, spec.out_channels, tall, wide, m + KERNEL - 1, m + KERNEL - 1)
    y = xp.moveaxis(at @ sums @ at.T, -2, -3).reshape(
        images, spec.out_channels, tall * m, wide * m)
    return y[:, :, :outs[0], :outs[1]]


def _absolute(xp: Any, matrix: Matrix, x: Any) -> Any:
    values = np.abs(np.array(matrix, dtype=np.float64))
    return values if xp is np else xp.as_tensor(values, device=x.device)
