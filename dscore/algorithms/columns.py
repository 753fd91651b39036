"""Columns of many tilings: one int64 array for each field, so that one formula judges all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

# An int, or an int64 array with one entry per tiling.
Count = Any
_F = TypeVar("_F", bound=Callable[..., Any])
# Below it the quotient of two integers as float64 rounds to no other integer.
_EXACT = 2**52
_MOST_COUNTED = 2**18


class Columns(SimpleNamespace):
    """Columns that are not changed any more, with what `remembered` functions made of them."""

    __slots__ = ("results",)
    results: dict[Any, Any]

    def __init__(self, **columns: Any) -> None:
        super().__init__(**columns)
        self.results = {}


def remembered(function: _F) -> _F:
    """Decorator of a formula: for `Columns` among its arguments it is computed once.

    Limits, residency and cost of a space each ask for the same geometry.
    """
    @wraps(function)
    def remembering(*arguments: Any) -> Any:
        columns = next((one for one in arguments if type(one) is Columns), None)
        if columns is None:
            return function(*arguments)
        key = function, *[None if one is columns else one for one in arguments]
        if key not in columns.results:
            columns.results[key] = function(*arguments)
        return columns.results[key]
    return cast(_F, remembering)


def floor_div(a: Count, b: Count) -> Count:
    """The quotient rounded down; of arrays in a quarter of the time of ``//``."""
    return _rounded(np.floor, a, b) if _exactly(a, b) else a // b


def ceil_div(a: Count, b: Count) -> Count:
    """The quotient rounded up."""
    return _rounded(np.ceil, a, b) if _exactly(a, b) else -(-a // b)


def remainder(a: Count, b: Count) -> Count:
    """The rest of `floor_div`."""
    return a - b * floor_div(a, b) if np.ndim(b) else a % b


def _exactly(a: Count, b: Count) -> bool:
    """Whether the float64 quotient of two columns is on the right side of every integer.

    NumPy has vector instructions for it, and for no quotient of integers by columns.
    """
    return (isinstance(b, np.ndarray) and b.dtype == np.int64 and b.ndim > 0
            and np.asarray(a).dtype == np.int64 and bool(np.max(np.abs(a), initial=0) < _EXACT)
            and bool(b.all()))


def _rounded(towards: Any, a: Count, b: Count) -> Count:
    quotient = a / b
    return towards(quotient, out=quotient).astype(np.int64)


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


def select_or_all(columns: SimpleNamespace, keep: Any, allowed: Any = None) -> SimpleNamespace:
    """The columns that are *allowed* where *keep* holds; all of these, where it does nowhere."""
    if allowed is None:
        return select(columns, keep) if keep.any() else columns
    both = keep & allowed
    return select(columns, both if both.any() else allowed)


def concatenate(*parts: SimpleNamespace) -> SimpleNamespace:
    """The rows of all parts, one part after the other."""
    return SimpleNamespace(**{name: np.concatenate([vars(part)[name] for part in parts])
                              for name in vars(parts[0])})


def distinct(columns: SimpleNamespace) -> SimpleNamespace:
    """Each combination once, in the order of the fields."""
    first, _ = combinations(*vars(columns).values())
    return SimpleNamespace(**{name: column[first] for name, column in vars(columns).items()})


def once_for_each(formula: Callable[..., Count], *columns: Count) -> Count:
    """The columns that *formula* makes of others, computed once for each combination of these."""
    shape = np.broadcast_shapes((1,), *map(np.shape, columns))
    first, inverse = combinations(*columns)
    return formula(*[np.broadcast_to(column, shape)[first] for column in columns])[inverse]


def combinations(*columns: Count) -> tuple[Count, Count]:
    """Places where each combination stands first, in their order, and each row's combination."""
    shape = np.broadcast_shapes((1,), *map(np.shape, columns))
    codes, count = np.zeros(shape, dtype=np.int64), 1
    for column in columns:
        ranks, more = _ranks(np.asarray(column, dtype=np.int64))
        codes, count = _ranks(codes * more + ranks)
    first = np.empty(count, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    return first, codes


def _ranks(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """The rank of each value among the distinct ones, and how many these are.

    Values that lie close together are counted in a table, which takes a tenth of sorting them.
    """
    least = int(values.min(initial=0))
    size = int(values.max(initial=0)) - least + 1
    if size > _MOST_COUNTED:
        distinct, ranks = np.unique(values, return_inverse=True)
        return ranks.reshape(values.shape), len(distinct)
    present, ranks = np.zeros(size, dtype=np.bool_), np.empty(size, dtype=np.int64)
    present[values - least] = True
    distinct = np.flatnonzero(present)
    ranks[distinct] = np.arange(len(distinct))
    return ranks[values - least], len(distinct)
