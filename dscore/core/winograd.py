"""Winograd's minimal filtering F(m x m, 3x3): its transforms, exact, and the layers it is for.

A tile of m x m outputs of a 3x3 convolution is ``Aᵀ [(G w Gᵀ) ⊙ (Bᵀ x B)] A``, of the m + 2 rows
and columns of input under it. ``Bᵀ`` and ``G`` make (m + 2)² numbers of a tile of input and of a
filter, which are summed over channels as (m + 2)² products of matrices; ``Aᵀ`` makes outputs of
them. Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016, sections 4.1 and 4.2.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import NamedTuple

Matrix = tuple[tuple[Fraction, ...], ...]  # of rows
KERNEL = 3  # rows and columns of a filter
TILES = (2, 4)  # m: rows and columns of outputs of a tile


class Transforms(NamedTuple):
    """The matrices of F(m x m, 3x3): BT of m+2 x m+2, G of m+2 x 3, AT of m x m+2."""

    BT: Matrix
    G: Matrix
    AT: Matrix


# BT, G times 24, and AT, all of integers.
_F2 = (((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
       ((24, 0, 0), (12, 12, 12), (12, -12, 12), (0, 0, 24)),
       ((1, 1, 1, 0), (0, 1, -1, -1)))
_F4 = (((4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0), (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0), (0, 4, 0, -5, 0, 1)),
       ((6, 0, 0), (-4, -4, -4), (-4, 4, -4), (1, 2, 4), (1, -2, 4), (0, 0, 24)),
       ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)))


@cache
def transforms(m: int) -> Transforms:
    """The exact matrices BT, G and AT of F(m x m, 3x3), of which m is 2 or 4.

    >>> transforms(2).G[1]
    (Fraction(1, 2), Fraction(1, 2), Fraction(1, 2))
    """
    bt, g, at = {2: _F2, 4: _F4}[m]
    return Transforms(_over(bt, 1), _over(g, 24), _over(at, 1))


def _over(rows: tuple[tuple[int, ...], ...], whole: int) -> Matrix:
    return tuple(tuple(Fraction(number, whole) for number in row) for row in rows)


# Input channels that lie side by side in a transformed filter.
FILTER_FOUR = 4


def tile_of(form: str) -> int:
    """m of a filter's form, "winograd2" or "winograd4"; 0 of a plain one."""
    return int(form.removeprefix("winograd")) if form.startswith("winograd") else 0


def filter_shape(m: int, out_channels: int, group_in: int) -> tuple[int, int, int, int]:
    """Shape of a filter transformed for F(m x m, 3x3): an element of G w Gᵀ, then the input
    channels in fours, output channels, and a four's channels, past the last one zero.

    >>> filter_shape(4, 64, 30)
    (36, 8, 64, 4)
    """
    return (m + KERNEL - 1)**2, -(-group_in // FILTER_FOUR), out_channels, FILTER_FOUR


def has_tiles(kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int],
              groups: int = 1) -> bool:
    """Whether these tiles compute a layer: 3x3 without stride, dilation and groups.

    >>> has_tiles((3, 3), (1, 1), (1, 1)), has_tiles((3, 3), (2, 2), (1, 1))
    (True, False)
    """
    return kernel == (KERNEL, KERNEL) and stride == dilation == (1, 1) and groups == 1
