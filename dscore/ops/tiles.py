"""Winograd's tiles in float64: what a transformed filter computes, and the magnitude of its error.

Arrays are of the library *xp*, NumPy or PyTorch; images are NCHW, of any number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.core.problem import ConvProblem
from dscore.core.sizes import Sides
from dscore.core.spec import ConvSpec
from dscore.core.winograd import KERNEL, transforms


def matrices(xp: Any, m: int, like: Any, absolute: bool = False) -> tuple[Any, Any, Any]:
    """Bᵀ, G and Aᵀ of F(m x m, 3x3), or their absolute values, beside an array *like*."""
    exact = (np.array(matrix, dtype=np.float64) for matrix in transforms(m))
    bt, g, at = (np.abs(one) if absolute else one for one in exact)
    if xp is np:
        return bt, g, at
    if not hasattr(xp, "as_tensor"):  # CuPy
        return xp.asarray(bt), xp.asarray(g), xp.asarray(at)
    return tuple(xp.as_tensor(one, device=like.device)
                 for one in (bt, g, at))


def unpacked(xp: Any, spec: ConvSpec, w: Any) -> Any:
    """A transformed filter as (out channels, in channels of a group, m + 2, m + 2)."""
    planes, fours, outs, four = w.shape
    side = round(planes**0.5)
    by_channel = xp.moveaxis(xp.moveaxis(w, 0, -1), 1, 0).reshape(outs, fours * four, side, side)
    return by_channel[:, :spec.group_in]


def tile_padding(problem: ConvProblem, m: int) -> Sides:
    """The padding of a problem with what its last tiles reach past it."""
    top, _, left, _ = problem.padding
    tall, wide = (-(-out // m) * m + KERNEL - 1
                  for out in (problem.out_height, problem.out_width))
    return top, tall - top - problem.height, left, wide - left - problem.width


def of_tiles(xp: Any, problem: ConvProblem, m: int, padded: Any, filters: Any,
             absolute: bool = False, least: float = 0.0) -> Any:
    """``Aᵀ [Σ U ⊙ (Bᵀ x B)] A`` of each tile, the sum over channels, as images.

    *padded*: x, by `tile_padding`. *filters*: U, of shape (out channels, in channels of a group,
    m + 2, m + 2). *absolute*: by the absolute matrices; *least* is added to both factors.
    """
    spec, outs, size = problem.spec, (problem.out_height, problem.out_width), (m + KERNEL - 1)**2
    bt, _, at = matrices(xp, m, padded, absolute)
    images, tall, wide = int(padded.shape[0]), *(-(-out // m) for out in outs)
    side = range(m + KERNEL - 1)
    # Axes: image, channel, tile downwards and across, row and column.
    tiles = xp.stack([xp.stack([padded[:, :, i:i + m * tall:m, j:j + m * wide:m] for j in side], -1)
                      for i in side], -2)
    inputs = (bt @ tiles @ bt.T + least).reshape(
        images, spec.groups, spec.group_in, tall * wide, size)
    by_group = (filters + least).reshape(spec.groups, spec.group_out, spec.group_in, size)
    sums = xp.moveaxis(by_group, -1, 0)[:, None] @ xp.moveaxis(inputs, -1, 0)
    sums = xp.moveaxis(sums, 0, -1).reshape(images, spec.out_channels, tall, wide,
                                            m + KERNEL - 1, m + KERNEL - 1)
    y = xp.moveaxis(at @ sums @ at.T, -2, -3).reshape(images, spec.out_channels, tall * m, wide * m)
    return y[:, :, :outs[0], :outs[1]]
