"""Headers of the kernels: the sources that units include, and the digest that they are known by."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from dscore.cache.store import key


def sources() -> Path:
    """Folder of the kernel sources, which units include."""
    return Path(str(files("dscore._hip_src")))


def read_headers(include: Path) -> dict[str, bytes]:
    """Files below *include* by relative path, without what Python keeps beside them."""
    return {path.relative_to(include).as_posix(): path.read_bytes() for path in _paths(include)}


def headers_digest(include: Path) -> str:
    """SHA-256 of the files below *include*, which are read again only when one of them has changed.

    >>> headers_digest(sources()) == digest_of(read_headers(sources()))
    True
    """
    states = ((path, path.stat()) for path in _paths(include))
    return _digest(include, tuple((path, state.st_mtime_ns, state.st_size)
                                  for path, state in states))


def digest_of(headers: Mapping[str, bytes]) -> str:
    """`headers_digest` of files that have been read."""
    return key(*(part for item in headers.items() for part in item))


@lru_cache(maxsize=16)
def _digest(include: Path, states: tuple[tuple[Path, int, int], ...]) -> str:
    return digest_of({path.relative_to(include).as_posix(): path.read_bytes()
                      for path, *_ in states})


def _paths(include: Path) -> list[Path]:
    return [path for path in sorted(Path(include).rglob("*"))
            if path.suffix not in (".py", ".pyc") and path.is_file()]
