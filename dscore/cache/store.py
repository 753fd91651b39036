"""Stores of sealed entries on disk (libraries, records, figures); a damaged entry is a miss."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from dscore.cache.entries import DIGEST, FORMAT, SUFFIX, Entry, file_paths, load, seal
from dscore.cache.files import UntrustedError
from dscore.cache.folders import (
    configured_root,
    instead_of,
    make,
    readable,
    unusable,
    warn_once,
)
from dscore.core.errors import UnavailableError
from dscore.core.text import replace_whole

KINDS = ("libraries", "kernels", "tuning", "devices")
_NAME = r"[0-9a-f]{64}(\.json|\.log|-[0-9a-f]{16}\.[a-z][a-z0-9]{0,7})"
# The files of a store, and what a writer names them before it renames them.
_OWN = re.compile(rf"{_NAME}|\.dscore-[0-9a-f]{{16}}\.tmp")
# A file that no entry names may be the work of a writer that has not come to its end.
_GRACE_SECONDS = 3600.0
_T = TypeVar("_T")
_Stamp = tuple[int, int]


@dataclass(frozen=True)
class Damage:
    """Damage of an entry, which is never loaded."""

    key: str
    path: Path
    reason: str


@dataclass(frozen=True)
class Removed:
    """Counts of what prune or clear removed."""

    entries: int
    files: int
    size: int  # bytes
    kept: int = 0  # files that could not be removed, as in a folder that is read-only
    reason: str = ""  # why, of the first


def key(*parts: bytes | str) -> str:
    """SHA-256 of *parts* in hexadecimal, each part behind its length.

    >>> key("ab", "c") == key("a", "bc")
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def folder_key(folder: Path, suffixes: tuple[str, ...], *parts: str) -> str:
    """Key of *parts*, and of the files below *folder* that end in one of *suffixes*.

    A file counts by its path relative to *folder* and its contents. It is read again only when its
    size or the time of its last change differs.
    """
    paths = sorted(path for path in folder.rglob("*") if path.suffix in suffixes)
    states = ((path, path.stat()) for path in paths)
    return _files_key(folder, tuple((path, state.st_mtime_ns, state.st_size)
                                    for path, state in states), parts)


@lru_cache(maxsize=16)
def _files_key(folder: Path, files: tuple[tuple[Path, int, int], ...],
               parts: tuple[str, ...]) -> str:
    contents = [part for path, *_ in files
                for part in (path.relative_to(folder).as_posix(), path.read_bytes())]
    return key(*parts, *contents)


def _write(path: Path, data: bytes) -> None:
    """Write *path* with its folder: no reader ever meets half a file, and nobody else may write it.
    """
    make(path.parent)
    replace_whole(path, data, mode=0o644)


@dataclass(frozen=True)
class Store:
    """Store of the entries of one kind, each a ``<key>.json`` and the payloads that it names.

    Payloads are written first and the JSON last, each whole or not at all. A writer that is killed
    in between leaves a payload without an entry, which is a miss. A payload's name holds the hash
    of its contents: of two writers of one key, whose compilers need not agree to the byte, neither
    replaces a file that the other's JSON names.
    """

    kind: str

    def folders(self) -> tuple[Path, ...]:
        """Folders that are read, in this order; a read-only one may hold shipped entries.

        With one warning in a process's life, those that others may write are left out.
        """
        return readable(self.kind)

    def get(self, key: str) -> Entry | None:
        """Entry of *key* with whole payloads, which is marked as used; None where there is none.

        Another process may prune it at any time: a payload that cannot be opened is a miss.
        """
        for folder in self.folders():
            try:
                entry = load(folder, key, hashed=True)
            except UntrustedError as untrusted:
                warn_once("entry", f"an entry of dscore's cache may be another user's: {untrusted}")
            except (OSError, ValueError):
                pass
            else:
                with suppress(OSError):
                    os.utime(entry.path)
                return entry
        return None

    def put(self, key: str, files: Mapping[str, bytes | Path], meta: Mapping[str, Any]) -> Entry:
        """Write the entry of *key*: *files* by suffix, and *meta* (JSON values). Replaces another.

        The entry goes to the temporary folder where the configured one cannot take it (read-only,
        full). Raises UnavailableError where neither can.
        """
        if not DIGEST.fullmatch(key) or not all(map(SUFFIX.fullmatch, files)):
            raise ValueError(f"not a key of cache.key, or odd suffixes: {key}, {list(files)}")
        contents = {suffix: file if isinstance(file, bytes) else file.read_bytes()
                    for suffix, file in files.items()}
        payloads: dict[str, Any] = {
            suffix: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
            for suffix, data in contents.items()}
        body = json.loads(json.dumps({"format": FORMAT, "key": key, "created": time.time(),
                                      "files": payloads, "meta": dict(meta)}))
        document = json.dumps({"seal": seal(body), "body": body}, indent=1)

        def write(folder: Path) -> Entry:
            path, written = folder / f"{key}.json", file_paths(folder, body)
            for suffix, data in contents.items():
                _write(written[suffix], data)
            _write(path, document.encode())
            # Not read back: another process may prune it at any time.
            size = len(document) + sum(map(len, contents.values()))
            return Entry(key, path, written, {suffix: one["sha256"] for suffix, one in
                         payloads.items()}, body["meta"], body["created"], time.time(), size)
        return self._somewhere(write)

    def put_log(self, key: str, text: str) -> Path:
        """Write the log of a failure, which is no entry, and return its path."""
        def write(folder: Path) -> Path:
            _write(folder / f"{key}.log", text.encode(errors="replace"))
            return folder / f"{key}.log"
        return self._somewhere(write)

    def _somewhere(self, write: Callable[[Path], _T]) -> _T:
        """Result of *write* for the configured folder, else for the temporary one."""
        configured = configured_root()
        reason = unusable(configured, self.kind)
        if configured is not None and reason is None:
            try:
                return write(configured / self.kind)
            except OSError as failed:
                reason = str(failed)
        folder = instead_of(configured, reason)
        try:
            return write(folder / self.kind)
        except OSError as failed:
            raise UnavailableError(f"neither {configured} ({reason}) nor {folder} ({failed}) can "
                                   "be written; set DSCORE_CACHE_DIR to a folder that "
                                   "can") from failed

    def entries(self) -> tuple[Entry, ...]:
        """Entries that look whole, the last used first; `verify` reads the payloads, too."""
        entries = []
        for folder, key in self._keys():
            with suppress(OSError, ValueError):
                entries.append(load(folder, key, hashed=False))
        return tuple(sorted(entries, key=lambda entry: -entry.used))

    def verify(self) -> tuple[Damage, ...]:
        """Damaged entries."""
        damages = []
        for folder, key in self._keys():
            try:
                load(folder, key, hashed=True)
            except (OSError, ValueError) as failed:
                path = folder / f"{key}.json"
                if os.path.lexists(path):  # else another process has removed it meanwhile
                    damages.append(Damage(key, path, str(failed)))
        return tuple(damages)

    def prune(self, max_bytes: float = float("inf"), older_than_seconds: float = float("inf"),
              stale: Callable[[Mapping[str, Any]], bool] = lambda meta: False) -> Removed:
        """Remove entries that are damaged, not used for so long, or whose meta is *stale*.

        The least recently used follow until the rest takes *max_bytes*, and the leftovers of killed
        writers.
        """
        now, total = time.time(), 0
        before = {path: _stamp(path) for path in self._own()}
        kept: set[Path] = set()
        doomed = {damage.path for damage in self.verify()}
        for entry in self.entries():
            if entry.path in doomed or stale(entry.meta) or now - entry.used > older_than_seconds:
                doomed |= entry.paths
                continue
            total += entry.size
            (kept if total <= max_bytes else doomed).update(entry.paths)
        return self._remove(
            lambda path: path in doomed - kept or (path not in kept and _old(path)), before)

    def clear(self) -> Removed:
        """Remove all files, but for the temporary ones of writers at work."""
        return self._remove(lambda path: path.suffix != ".tmp" or _old(path))

    def _own(self) -> Iterator[Path]:
        """Files of the store, by their names."""
        for folder in self.folders():
            with suppress(OSError):
                yield from (path for path in sorted(folder.iterdir())
                            if _OWN.fullmatch(path.name) and not path.is_dir())

    def _keys(self) -> Iterator[tuple[Path, str]]:
        return ((path.parent, path.stem) for path in self._own() if path.suffix == ".json")

    def links(self) -> tuple[Path, ...]:
        """Folders that are links: entries behind them are read, but never removed."""
        paths = (path for folder in self.folders() for path in (folder.parent, folder))
        return tuple(path for path in paths if path.is_symlink())

    def _remove(self, doomed: Callable[[Path], bool],
                before: Mapping[Path, _Stamp] | None = None) -> Removed:
        """Remove files; of an entry that was written or read after *before*, none.

        The JSON goes first, so that a reader finds either all of an entry or none.
        """
        entries = files = size = 0
        links, busy, failures = self.links(), set[str](), list[OSError]()
        for path in sorted(self._own(), key=lambda path: path.suffix != ".json"):
            key = path.name[:64]
            try:
                if {path.parent, path.parent.parent} & {*links} or not doomed(path):
                    continue
                if key in busy or (before is not None and before.get(path) != _stamp(path)):
                    busy.add(key)
                    continue
                taken = path.lstat().st_size
                path.unlink()
            except FileNotFoundError:  # another process was faster
                continue
            except OSError as failure:
                busy.add(key)  # its payload stays with it
                failures.append(failure)
                continue
            entries += path.suffix == ".json"
            files, size = files + 1, size + taken
        return Removed(entries, files, size, len(failures), str(failures[0]) if failures else "")


def stores() -> tuple[Store, ...]:
    """Stores of the cache."""
    return tuple(Store(kind) for kind in KINDS)


def _old(path: Path) -> bool:
    return time.time() - path.lstat().st_mtime > _GRACE_SECONDS


def _stamp(path: Path) -> _Stamp:
    """What changes where a file is written or marked as used."""
    try:
        state = path.lstat()
    except OSError:
        return 0, 0
    return state.st_ino, state.st_mtime_ns
