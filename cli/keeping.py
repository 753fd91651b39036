"""`dscore cache`: what is kept on disk, whether it is whole, and its removal."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import typer

from dscore._version import __version__
from dscore.building.compilers import compiler_kind, find_compiler
from dscore.cache.store import Damage, Entry, Removed, root, stores
from dscore.cli.output import counted, print_json, print_table, print_text
from dscore.cli.records import Record
from dscore.core.errors import SpecError, UnavailableError

_SIZES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9,
          "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_COLUMNS = ("kind", "target", ">kernels", ">size", ">unused for", "compiler")


@dataclass(frozen=True)
class Limits:
    """What prune is told to keep within."""

    max_size: str | None
    older_than: str | None
    stale: bool


def show(json: bool) -> None:
    """Print the entries."""
    entries, damaged = _found()
    if entries and not json:
        print_table(_COLUMNS, [_row(kind, entry) for kind, entry in entries])
        print()
    _print(entries, damaged, json)


def verify(json: bool) -> None:
    """Print how many entries are whole; exits with 1 where one is damaged."""
    entries, damaged = _found()
    _print(entries, damaged, json)
    if damaged:
        raise typer.Exit(1)


def prune(limits: Limits, json: bool) -> None:
    """Remove what is damaged, and what is beyond the limits."""
    _removed(_prune(limits), json)


def clear(json: bool) -> None:
    """Remove everything."""
    _removed([(store.kind, store.clear()) for store in stores()], json)


def _found() -> tuple[list[tuple[str, Entry]], list[tuple[str, Damage]]]:
    """The whole entries, and the damaged ones, each with its kind."""
    entries = [(store.kind, entry) for store in stores() for entry in store.entries()]
    damaged = [(store.kind, damage) for store in stores() for damage in store.verify()]
    broken = {damage.path for _, damage in damaged}
    return [(kind, entry) for kind, entry in entries if entry.path not in broken], damaged


def _print(entries: list[tuple[str, Entry]], damaged: list[tuple[str, Damage]],
           json: bool) -> None:
    size = sum(entry.size for _, entry in entries)
    if json:
        print_json({"root": str(root()), "size": size,
                    "entries": [_entry_record(kind, entry) for kind, entry in entries],
                    "damaged": [_damage_record(kind, damage) for kind, damage in damaged]})
        return
    for kind, damage in damaged:
        print_text(f"damaged, and never loaded: {kind} {damage.path}: {damage.reason}")
    print(f"{len(entries):,} whole, {len(damaged):,} damaged, {_size(size)}, in {root()}")


def _row(kind: str, entry: Entry) -> tuple[str, ...]:
    record = _entry_record(kind, entry)
    return (kind, record["target"] or "", "" if record["kernels"] is None else
            str(record["kernels"]), _size(entry.size), _age(record["unused_seconds"]),
            record["compiler_version"] or "")


def _entry_record(kind: str, entry: Entry) -> Record:
    meta, now = entry.meta, time.time()
    # The host's compilers report on no kernels, so that these are not known there.
    kernels = len(meta["reports"]) if isinstance(meta.get("reports"), list) else 0
    return {"kind": kind, "key": entry.key, "path": str(entry.path),
            "target": meta.get("target"), "kernels": kernels or None, "size": entry.size,
            "age_seconds": now - entry.created, "unused_seconds": now - entry.used,
            "compiler": meta.get("compiler"), "compiler_version": meta.get("compiler_version"),
            "dscore": meta.get("dscore")}


def _damage_record(kind: str, damage: Damage) -> Record:
    return {"kind": kind, "key": damage.key, "path": str(damage.path), "reason": damage.reason}


def _prune(limits: Limits) -> list[tuple[str, Removed]]:
    """Apply the limits. Tuning records are small and took long: libraries make room for them."""
    most = _quantity(limits.max_size, "--max-size", _SIZES, "500MB")
    age = _quantity(limits.older_than, "--older-than", _AGES, "30d")
    libraries, tuning = stores()
    done = [(tuning.kind, tuning.prune(older_than_seconds=age))]
    left = max(0.0, most - sum(entry.size for entry in tuning.entries()))
    stale = _stale if limits.stale else lambda meta: False
    return [(libraries.kind, libraries.prune(left, age, stale)), *done]


def _quantity(text: str | None, option: str, units: Mapping[str, int], example: str) -> float:
    """A number with a unit; infinity for none."""
    if text is None:
        return float("inf")
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*([A-Za-z]+)", text.strip())
    scale = {name.lower(): value for name, value in units.items()}.get(found[2].lower()
                                                                       if found else "")
    if found is None or scale is None:
        raise SpecError(f"{option} must be a number and one of {', '.join(units)}, such as "
                        f"{example}; got {text!r}")
    return float(found[1]) * scale


def _stale(meta: Mapping[str, Any]) -> bool:
    """Whether no build of today would find it: of another dscore, or of a compiler that is gone
    or has changed.
    """
    path, version = meta.get("compiler"), meta.get("compiler_version")
    if meta.get("dscore") != __version__ or not isinstance(path, str):
        return True
    try:
        return find_compiler(compiler_kind(str(meta.get("target"))), path).version != version
    except UnavailableError:
        return True


def _removed(done: list[tuple[str, Removed]], json: bool) -> None:
    if json:
        print_json({"root": str(root()), "removed": {kind: asdict(taken) for kind, taken in done}})
        return
    for kind, taken in done:
        entries = f"{taken.entries:,} {'entry' if taken.entries == 1 else 'entries'}"
        print(f"{kind}: removed {entries} ({counted(taken.files, 'file')}, {_size(taken.size)})")
    print(f"from {root()}")


def _size(count: float) -> str:
    """Bytes as people read them."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} B"


def _age(seconds: float) -> str:
    for unit, scale in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= scale:
            return f"{seconds / scale:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
