"""Layout of a table: which columns it has room for, and how wide each is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

GAP = 2
_LEAST_NAME = 12
_LEAST_PROSE = 24
# Words are folded to this before a column is left out for them.
_PROSE = 32


@dataclass(frozen=True)
class Column:
    """Column of a table: its place among the row's cells, its head, and its width."""

    place: int
    head: str  # may hold a line break
    right: bool  # numbers: aligned to the right, and never shortened
    last: bool  # words: folded between them, and not shortened
    width: int

    @property
    def least(self) -> int:
        """Width below which it is not shortened."""
        floor = _LEAST_PROSE if self.last else _LEAST_NAME
        return self.width if self.right else min(self.width, max(floor, _widest([self.head])))


def columns_of(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Column]:
    """The columns at the width of what they hold; a head that begins with > stands for numbers."""
    return [Column(place, head.removeprefix(">"), head.startswith(">"), place == len(heads) - 1,
                   _widest([head.removeprefix(">"), *(row[place] for row in rows)]))
            for place, head in enumerate(heads)]


def _widest(texts: Iterable[str]) -> int:
    return max((len(line) for text in texts for line in text.split("\n")), default=0)


def total(columns: Sequence[Column]) -> int:
    """Width of the table.

    >>> total(columns_of(["layer", ">µs"], [["P13", "6.08"]]))
    11
    """
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)


def fitted(columns: Sequence[Column], spare: Iterable[str], width: int) -> list[Column]:
    """The columns within *width*: without those of *spare*, the first of them first, then shorter.

    A table whose names are as short as may be passes *width* rather than lose a number.

    >>> columns = columns_of(["layer", "tiling", ">µs"], [["P13", "t" * 40, "6.08"]])
    >>> [column.width for column in fitted(columns, ["layer"], 60)]
    [5, 40, 4]
    >>> [column.width for column in fitted(columns, ["layer"], 30)]
    [24, 4]
    """
    kept = list(columns)
    for head in spare:
        folded = sum(max(0, column.width - _PROSE) for column in kept if column.last)
        if total(kept) - folded <= width:
            break
        kept = [column for column in kept if column.head != head]
    return _shortened(kept, total(kept) - width)


def _shortened(columns: list[Column], excess: int) -> list[Column]:
    """The columns, narrower by *excess*: the words that can be folded first, then the widest."""
    for at, column in enumerate(columns):
        if column.last and excess > 0:
            cut = min(excess, column.width - column.least)
            columns[at], excess = replace(column, width=column.width - cut), excess - cut
    while excess > 0:
        at = max(range(len(columns)), key=lambda i: (columns[i].width > columns[i].least,
                                                     not columns[i].right, columns[i].width))
        if columns[at].width <= columns[at].least:
            break
        columns[at], excess = replace(columns[at], width=columns[at].width - 1), excess - 1
    return columns


def shorten(text: str, width: int) -> str:
    """*text* with an ellipsis where it is longer than *width*.

    >>> shorten("gemm_t64x32_w16x32", 10)
    'gemm_t64x…'
    """
    return text if len(text) <= width else text[:width - 1] + "…"
