"""Entries of a store: their files, and the sealed JSON that names and describes them."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dscore.cache.files import digest, opened

FORMAT = 1
SUFFIX = re.compile(r"[a-z][a-z0-9]{0,7}")
DIGEST = re.compile(r"[0-9a-f]{64}")
# Metadata of all kinds of entries, where they are there.
_TEXTS = ("target", "compiler", "compiler_version", "dscore")
# The JSON holds a few measurements or reports; what is longer is none.
_MOST_JSON_BYTES = 1 << 26


@dataclass(frozen=True)
class Entry:
    """Entry of a store: its files by suffix, and their metadata."""

    key: str
    path: Path  # of the JSON
    files: Mapping[str, Path]
    sha256: Mapping[str, str]  # of the files, in hexadecimal
    meta: Mapping[str, Any]
    created: float  # seconds since the epoch
    used: float
    size: int  # bytes of all files

    @property
    def paths(self) -> set[Path]:
        """Files of the entry, the JSON among them."""
        return {self.path, *self.files.values()}


def seal(body: Any) -> str:
    """Hash of the body of an entry's JSON, in hexadecimal."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def load(folder: Path, key: str, hashed: bool) -> Entry:
    """Entry of *key*; OSError or ValueError, which says why, where there is no sound one."""
    path = folder / f"{key}.json"
    with opened(path) as file:
        state = os.fstat(file.fileno())
        text = file.read(_MOST_JSON_BYTES)
    try:
        document = json.loads(text)
        body = document["body"]
        if document["seal"] != seal(body) or body["format"] != FORMAT:
            raise ValueError("the JSON is not as it was written")
        if body["key"] != key:
            raise ValueError(f"the JSON is that of {body['key']}")
        entry = _described(path, body, state)
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError) as failed:
        raise ValueError(f"the JSON is not an entry ({failed!r})") from failed
    for suffix in entry.files if hashed else ():
        with opened(entry.files[suffix]) as payload:
            if digest(payload) != entry.sha256[suffix]:
                raise ValueError(f"{entry.files[suffix].name} is not as it was written")
    return entry


def file_paths(folder: Path, body: Mapping[str, Any]) -> dict[str, Path]:
    """Payloads in *folder*, by suffix, that the body of an entry's JSON names."""
    return {suffix: folder / f"{body['key']}-{payload['sha256'][:16]}.{suffix}"
            for suffix, payload in body["files"].items()}


def _described(path: Path, body: Mapping[str, Any], state: os.stat_result) -> Entry:
    """Entry that the body of the JSON at *path* describes.

    Raises ValueError, KeyError, TypeError, AttributeError or OverflowError where it describes none,
    or where a payload has another size.
    """
    sha256 = {suffix: payload["sha256"] for suffix, payload in body["files"].items()}
    if not all(map(SUFFIX.fullmatch, sha256)) or not all(map(DIGEST.fullmatch, sha256.values())):
        raise ValueError("the JSON names odd files")
    files, size = file_paths(path.parent, body), state.st_size
    for suffix, file in files.items():
        stated, length = body["files"][suffix]["bytes"], file.lstat().st_size
        if type(stated) is not int or stated != length:
            raise ValueError(f"{file.name} is not of the {stated} bytes stated")
        size += length
    created, meta = float(body["created"]), body["meta"]
    if not math.isfinite(created) or not isinstance(meta, dict) or not all(
            isinstance(meta.get(name, ""), str) for name in _TEXTS):
        raise ValueError("the JSON holds odd values")
    return Entry(body["key"], path, files, sha256, meta, created, state.st_mtime, size)
