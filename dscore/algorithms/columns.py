"""Columns of many tilings: one int64 array for each field, so that one formula judges all."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

# An int, or an int64 array with one entry per tiling.
Count = Any


def ceil_div(a: Count, b: Count) -> Count:
    """The quotient rounded up."""
    return -(-a // b)


def power_of_two_within(value: Count, most: int) -> Count:
    """Largest power of two that is at most *value* and at most *most*."""
    return 2 ** np.log2(np.minimum(value, most)).astype(np.int64)


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    return [d for d in range(1, number + 1) if number % d == 0]


def powers_of_two(most: int) -> list[int]:
    """1, 2, 4, … up to *most*."""
    return [2**k for k in range(most.bit_length()) if 2**k <= most]


def grid(**axes: Sequence[int]) -> SimpleNamespace:
    """Every combination of the axes, as columns."""
    columns = np.meshgrid(*(np.asarray(axis, dtype=np.int64) for axis in axes.values()),
                          indexing="ij")
    return SimpleNamespace(**{name: column.ravel()
                              for name, column in zip(axes, columns, strict=True)})


def select(columns: SimpleNamespace, keep: Any) -> SimpleNamespace:
    """The columns where *keep* holds."""
    return SimpleNamespace(**{name: column[keep] for name, column in vars(columns).items()})


def select_or_all(columns: SimpleNamespace, keep: Any) -> SimpleNamespace:
    """The columns where *keep* holds; all, where it does nowhere."""
    return select(columns, keep) if keep.any() else columns


def concatenate(*parts: SimpleNamespace) -> SimpleNamespace:
    """The rows of all parts, one part after the other."""
    return SimpleNamespace(**{name: np.concatenate([vars(part)[name] for part in parts])
                              for name in vars(parts[0])})


def distinct(columns: SimpleNamespace) -> SimpleNamespace:
    """Each combination once, in the order of the fields."""
    values = np.unique(np.stack(list(vars(columns).values())), axis=1)
    return SimpleNamespace(**dict(zip(vars(columns), values, strict=True)))
