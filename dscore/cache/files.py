"""Files of the cache, read and loaded only where nobody but this user and root can have written."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import BinaryIO

_BLOCK_BYTES = 1 << 20
_loads = count(1)


class UntrustedError(ValueError):
    """A file that others could have written."""


def distrust(state: os.stat_result) -> str | None:
    """Reason why others can have written a file or a folder; None where only we and root can.

    In a folder with the sticky bit others can add files but replace none of ours.
    """
    if not hasattr(os, "geteuid"):
        return None
    if state.st_uid not in (0, os.geteuid()):
        return f"it belongs to user {state.st_uid}"
    sticky = stat.S_ISDIR(state.st_mode) and state.st_mode & stat.S_ISVTX
    if state.st_mode & 0o022 and not sticky:
        return f"others may write to it (mode {stat.S_IMODE(state.st_mode):o}; chmod go-w)"
    return None


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file at *path*, opened for reading; what is checked is what is read.

    Raises OSError for a link too, UntrustedError where others can have written it, and ValueError
    for what is no regular file.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise ValueError(f"{path.name} is no regular file")
        if reason := distrust(state):
            raise UntrustedError(f"{path} is not used: {reason}")
        yield file


def digest(file: BinaryIO) -> str:
    """SHA-256 of the rest of *file*, in hexadecimal."""
    sha256 = hashlib.sha256()
    while block := file.read(_BLOCK_BYTES):
        sha256.update(block)
    return sha256.hexdigest()


@contextmanager
def loadable(path: Path, sha256: str) -> Iterator[str]:
    """Name by which the dynamic loader gets the very file that is checked, not another at its path.

    Raises OSError or ValueError where it is not of *sha256*, or where others can have written it.
    Without ``/proc`` the name is the path.
    """
    with opened(path) as file:
        if digest(file) != sha256:
            raise ValueError(f"{path.name} is not as it was written")
        yield _name(file.fileno()) or str(path)


def _name(descriptor: int) -> str | None:
    if not os.path.exists(f"/proc/self/fd/{descriptor}"):
        return None
    # For a name that it has seen, the loader hands out the library that it loaded then, and numbers
    # of descriptors come again: dots and slashes, which mean nothing, make each name a new one.
    dots = "".join("./" if bit == "1" else "/" for bit in f"{next(_loads):b}")
    return f"/proc/self/fd/{dots}{descriptor}"
