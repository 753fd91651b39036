"""TOML files: those of users, and those that are shipped in the package's `specs`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from dscore.core.errors import SpecError, did_you_mean
from dscore.core.text import read_whole

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Table = dict[str, Any]


def load_toml(path: str | os.PathLike[str]) -> Table:
    """The table that a TOML file holds.

    Raises SpecError naming the file and the reason: it cannot be read, or is no UTF-8 or TOML.
    """
    return parse_toml(read_whole(path), os.fsdecode(path))


def parse_toml(raw: bytes, shown: str) -> Table:
    """The table that the bytes of a TOML file state; *shown* names the file in an error."""
    try:
        # Some editors begin a file with a byte order mark, which TOML does not know.
        table: Table = tomllib.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise SpecError(f"{shown}: not UTF-8: byte 0x{error.object[error.start]:02x} "
                        f"(at line {line})") from None
    except (ValueError, RecursionError) as error:  # ValueError: a number beyond Python's limit, too
        reason = "nested too deep" if isinstance(error, RecursionError) else error
        raise SpecError(f"{shown}: not TOML: {reason}") from None
    return table


def shipped_tables(folder: str) -> dict[str, Table]:
    """The parsed files of a folder of `specs`, by the name that errors show."""
    entries = (entry for entry in files("dscore._specs").joinpath(folder).iterdir()
               if entry.name.endswith(".toml"))
    return {f"{folder}/{entry.name}": parse_toml(entry.read_bytes(), f"{folder}/{entry.name}")
            for entry in sorted(entries, key=lambda entry: entry.name)}


def require_keys(table: Table, required: Iterable[str], known: Iterable[str]) -> None:
    """Raise SpecError naming a key of *table* that is not *known*, or *required* ones it lacks."""
    for key in table:
        if key not in known:
            raise SpecError(f"unknown key {key!r}{did_you_mean(key, known)}")
    missing = [key for key in required if key not in table]
    if missing:
        also = f" (and {', '.join(missing[1:])})" if missing[1:] else ""
        raise SpecError(f"{missing[0]} is missing{also}")
