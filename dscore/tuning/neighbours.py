"""Tilings to try next: those that the cost model ranks first, and those near the fastest so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from dscore.core.tiling import Tiling
from dscore.solving.solver import Space

# Of the model's order; what it ranks behind these was never among the fastest.
_MOST_RANKED = 4096


def next_tilings(space: Space, tried: Iterable[str], best: Tiling, count: int) -> list[Tiling]:
    """At most *count* tilings of *space* whose names are not among *tried*: by turns the first of
    the model's order, and one that differs from *best* in the fewest fields.

    >>> from dscore.core.catalog import device, layers
    >>> from dscore.solving.solver import solve
    >>> space = solve(layers()["P13"], device("h200"))
    >>> first = space[int(space.ranked()[0])]
    >>> len(next_tilings(space, [first.name], first, 4))
    4
    """
    order = space.ranked()[:_MOST_RANKED]
    nearest = order[np.argsort(_differences(space, order, best), kind="stable")]
    known = set(tried)
    chosen: list[Tiling] = []
    sources = [(space[int(index)] for index in indices) for indices in (order, nearest)]
    while sources and len(chosen) < count:
        source = sources.pop(0)
        tiling = _first_untried(source, known)
        if tiling is not None:
            known.add(tiling.name)
            chosen.append(tiling)
            sources.append(source)
    return chosen


def _first_untried(tilings: Iterator[Tiling], known: set[str]) -> Tiling | None:
    return next((tiling for tiling in tilings if tiling.name not in known), None)


def _differences(space: Space, order: NDArray[np.int64], tiling: Tiling) -> NDArray[np.int64]:
    """Number of fields in which each tiling of *order* differs from *tiling*."""
    fields = vars(space.case.tiling)
    differences = np.zeros(len(order), np.int64)
    for name, column in fields.items():
        differences += np.broadcast_to(column, (len(space),))[order] != getattr(tiling, name, None)
    return differences
