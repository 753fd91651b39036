"""Text for people: lines of at most 100 columns."""

from __future__ import annotations

from textwrap import wrap

MOST_COLUMNS = 100


def fold(line: str, indent: int = 0) -> list[str]:
    """*line*, continued on lines indented by *indent* where it is longer than 100 columns.

    >>> [len(part) for part in fold("word " * 30, indent=4)]
    [99, 53]
    """
    if len(line) <= MOST_COLUMNS:
        return [line]
    return wrap(line, MOST_COLUMNS, subsequent_indent=" " * indent, break_long_words=False,
                break_on_hyphens=False, drop_whitespace=True)
