"""Helpers: lines folded at 100 columns, files read and written whole, the geometric mean."""

from __future__ import annotations

import errno
import math
import os
import secrets
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import wrap
from typing import Any

from dscore.core.errors import SpecError, shown

MOST_COLUMNS = 100
# Of what is no regular file: a device may have no end.
_MOST_STREAM_BYTES = 1 << 26


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


def path_text(path: Any, what: str) -> str:
    """The text of a path; SpecError, which says of *what*, for any other object.

    >>> path_text(b"mine.toml", "a device's file")
    'mine.toml'
    """
    try:
        return os.fsdecode(path)
    except Exception:  # an object's own, as well as TypeError
        raise SpecError(f"{what} is named by its path, got {shown(path)}") from None


def read_whole(path: str | os.PathLike[str]) -> bytes:
    """Contents of the file *path*, or of a pipe or device with an end.

    Raises SpecError, which names the file, where it cannot be read.

    >>> read_whole(os.devnull)
    b''
    """
    try:
        with open(path, "rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return file.read()
            data = file.read(_MOST_STREAM_BYTES + 1)
    except (OSError, ValueError) as failed:  # ValueError: a null character in the path
        reason = getattr(failed, "strerror", None) or failed
        raise SpecError(f"{os.fsdecode(path)}: cannot be read: {reason}") from None
    if len(data) > _MOST_STREAM_BYTES:
        raise SpecError(f"{os.fsdecode(path)}: cannot be read: it is no file, and does not end "
                        f"after {_MOST_STREAM_BYTES >> 20} MiB")
    return data


def write_whole(path: str | os.PathLike[str], data: str | bytes) -> None:
    """Write the file *path*: a reader sees all of *data*, or what was there before.

    A link is followed, and a file that is there keeps its mode and its owner. What is no regular
    file (a pipe, a device), or is this process's own output, is written into.
    Raises SpecError, which names the file, where it cannot be written.

    >>> write_whole(os.devnull, "words")
    """
    try:
        _write(Path(path), data.encode() if isinstance(data, str) else data)
    except (OSError, ValueError) as failed:
        reason = getattr(failed, "strerror", None) or failed
        raise SpecError(f"{os.fspath(path)}: cannot be written: {reason}") from None


def _write(path: Path, data: bytes) -> None:
    try:
        state = path.stat()
    except FileNotFoundError:  # a link to nothing among them
        replace_whole(Path(os.path.realpath(path)), data)
        return
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    output = _own_output(state)
    if output is None and stat.S_ISREG(state.st_mode):
        replace_whole(Path(os.path.realpath(path)), data, like=state)
        return
    # Never made and never emptied: it is there, and holds nothing of its own.
    with open(os.open(path, os.O_WRONLY | os.O_NOCTTY) if output is None else output, "wb",
              closefd=output is None) as file:
        file.write(data)


def _own_output(state: os.stat_result) -> int | None:
    """Descriptor of this process's output or errors that leads to the file of *state*, if any.

    Behind ``/dev/stdout >> all.jsonl`` is a file with lines of others, which must not be replaced.
    """
    for descriptor in (1, 2):
        with suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), state):
                return descriptor
    return None


def replace_whole(target: Path, data: bytes, mode: int = 0o666,
                  like: os.stat_result | None = None) -> None:
    """Write *data* to a temporary file beside *target*, and rename that; OSError where it fails.

    The file gets the mode and the owner of *like*, as far as this process may give them; without
    it, *mode* less the umask.
    """
    unfinished = target.with_name(f".dscore-{secrets.token_hex(8)}.tmp")
    try:
        with open(unfinished, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as file:
            if like is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))
                with suppress(OSError):
                    os.fchown(file.fileno(), like.st_uid, like.st_gid)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, target)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise


def percent(share: float) -> str:
    """A share in percent; of one of 10 or more only the power of ten and two figures."""
    return f"{share:.1%}" if share < 10 else f"{share * 100:.1e}%"
