"""Output helpers: lines folded at 100 columns, files written whole, the geometric mean."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import wrap

from dscore.core.errors import SpecError

MOST_COLUMNS = 100


def fold(line: str, indent: int = 0, columns: int = MOST_COLUMNS) -> list[str]:
    """Lines of *line*, the ones behind the first indented, where it is longer than *columns*.

    A word that is longer than a line stays whole.

    >>> [len(part) for part in fold("word " * 30, indent=4)]
    [99, 53]
    """
    if len(line) <= columns:
        return [line]
    return wrap(line, columns, subsequent_indent=" " * indent, break_long_words=False,
                break_on_hyphens=False)


def geomean(values: Sequence[float]) -> float:
    """Geometric mean of at least one value.

    >>> round(geomean([1, 2, 4]), 9)
    2.0
    """
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def write_whole(path: str | os.PathLike[str], data: str | bytes) -> None:
    """Write the file *path*: a reader sees all of *data*, or what was there before.

    Raises SpecError, which names the file, where it cannot be written.
    """
    target = Path(path)
    try:
        replace_whole(target, data.encode() if isinstance(data, str) else data)
    except OSError as failed:
        raise SpecError(f"{target}: cannot be written: {failed.strerror}") from None


def replace_whole(target: Path, data: bytes) -> None:
    """Write *data* to a temporary file beside *target*, and rename that; OSError where it fails."""
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(unfinished, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, target)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
