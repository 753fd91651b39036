"""`dscore cache show|verify`: what is on disk, by layer and by kind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from dscore.cli.inputs import layers_of
from dscore.cli.show.json import Record, print_json
from dscore.cli.show.text import print_note, print_table, print_text

if TYPE_CHECKING:
    from dscore.cache.entries import Entry
    from dscore.cache.store import Damage
    from dscore.core.problem import ConvProblem

_BY_LAYER = ("layer", ">libraries", "built for", ">tuning\nrecords", "measured on",
             ">unused for")
_BY_KIND = ("kind", "for", ">entries", ">kernels", ">size", ">unused for", "compiler")
_SPARE = ("unused for", "kernels", "built for")


def show(layer: str | None, json: bool) -> None:
    """Print a line for each layer, or of one layer a line for each kind and target."""
    entries, damaged = entries_and_damage()
    records = [_record(kind, entry) for kind, entry in entries]
    if layer is not None:
        tokens = {_single(named.problem) for named in layers_of([layer], None)}
        records = [one for one in records if tokens & {_token(text) for text in one["problems"]}]
        damaged = []
    if not json and records:
        named = _grouped(records, lambda one: map(_layer_name, one["problems"]))
        if layer is None and named:
            print_table(_BY_LAYER, [_layer_row(*group) for group in named.items()], spare=_SPARE)
            print()
        print_table(_BY_KIND, [_kind_row(key, group) for key, group in _grouped(
            records, lambda one: [(one["kind"], one["target"] or "", one["compiler_version"] or "")]
            ).items()], spare=_SPARE)
        print()
    print_records(records, damaged, json)


def entries_and_damage() -> tuple[list[tuple[str, Entry]], list[tuple[str, Damage]]]:
    """Whole entries, and damaged ones, each with its kind."""
    from dscore.cache.store import stores

    entries = [(store.kind, entry) for store in stores() for entry in store.entries()]
    damaged = [(store.kind, damage) for store in stores() for damage in store.verify()]
    broken = {damage.path for _, damage in damaged}
    return [(kind, entry) for kind, entry in entries if entry.path not in broken], damaged


def verify(json: bool) -> bool:
    """Print what is damaged; whether anything is."""
    entries, damaged = entries_and_damage()
    print_records([_record(kind, entry) for kind, entry in entries], damaged, json)
    return bool(damaged)


def print_records(records: list[Record], damaged: list[tuple[str, Damage]], json: bool) -> None:
    """The damage and the sum, or with *json* all of it."""
    from dscore.cache.folders import root

    total = sum(one["size"] for one in records)
    if json:
        print_json({"root": str(root()), "size": total, "entries": records,
                    "damaged": [_damage_record(kind, damage) for kind, damage in damaged]})
        return
    for kind, damage in damaged:
        print_text(f"damaged, and never loaded: {kind} {damage.path}: {damage.reason}")
    print_note(f"{len(records):,} whole, {len(damaged):,} damaged, {size_text(total)}, in {root()}")


def _record(kind: str, entry: Entry) -> Record:
    meta, now = entry.meta, time.time()
    # The host's compilers report on no kernels, so that these are not known there.
    kernels = len(meta["reports"]) if isinstance(meta.get("reports"), list) else 0
    measurement = meta.get("measurement")
    measured = measurement if isinstance(measurement, dict) else {}
    problems = [measured["problem"]] if "problem" in measured else meta.get("problems")
    return {"kind": kind, "key": entry.key, "path": str(entry.path),
            "target": measured.get("device") or meta.get("target"), "kernels": kernels or None,
            "problems": problems if isinstance(problems, list) else [], "size": entry.size,
            "age_seconds": now - entry.created, "unused_seconds": now - entry.used,
            "compiler": meta.get("compiler"), "compiler_version": meta.get("compiler_version"),
            "dscore": meta.get("dscore")}


def _damage_record(kind: str, damage: Damage) -> Record:
    return {"kind": kind, "key": damage.key, "path": str(damage.path), "reason": damage.reason}


def _grouped(records: list[Record],
             keys: Callable[[Record], Iterable[Any]]) -> dict[Any, list[Record]]:
    """Records by each of their keys; the group used last comes first."""
    groups: dict[Any, list[Record]] = {}
    for record in sorted(records, key=lambda one: float(one["unused_seconds"])):
        for key in dict.fromkeys(keys(record)):
            groups.setdefault(key, []).append(record)
    return groups


def _layer_row(name: str, group: list[Record]) -> tuple[str, ...]:
    measured = [one for one in group if one["kind"] == "tuning"]
    built = [one for one in group if one["kind"] != "tuning"]
    return (name, _count(built), _targets(built), _count(measured), _targets(measured),
            _unused(group))


def _kind_row(key: tuple[str, ...], group: list[Record]) -> tuple[str, ...]:
    kind, target, compiler = key
    kernels = sum(one["kernels"] or 0 for one in group)
    return (kind, target, f"{len(group):,}", f"{kernels:,}" if kernels else "",
            size_text(sum(one["size"] for one in group)), _unused(group), compiler)


def _count(records: list[Record]) -> str:
    return f"{len(records):,}" if records else ""


def _targets(records: list[Record]) -> str:
    return ", ".join(sorted({one["target"] for one in records if one["target"]}))


def _unused(records: list[Record]) -> str:
    return age_text(min(one["unused_seconds"] for one in records))


def _layer_name(token: str) -> str:
    """The layer of the tables or of a network that a token stands for, else the token."""
    from dscore.core.errors import SpecError
    from dscore.core.token import parse_problem

    try:
        problem = parse_problem(token)
    except SpecError:
        return token
    name = _names().get(_single(problem))
    batch = f" batch {problem.batch}" if problem.batch > 1 else ""
    return token if name is None else name + batch


@cache
def _names() -> dict[str, str]:
    """Layers by their tokens at a batch of 1; the papers' names before the networks'."""
    from dscore.core import catalog

    networks = {_single(layer.problem): layer.name
                for network in catalog.networks().values() for layer in network.layers[::-1]}
    return {**networks, **{_single(problem): name for name, problem in catalog.layers().items()}}


def _single(problem: ConvProblem) -> str:
    """Token of a problem at a batch of 1."""
    from dscore.core.token import problem_token

    return problem_token(problem.with_batch(1))


def _token(text: str) -> str:
    """A token at a batch of 1; itself where it is none."""
    from dscore.core.errors import SpecError
    from dscore.core.token import parse_problem

    try:
        return _single(parse_problem(text))
    except SpecError:
        return text


def size_text(count: float) -> str:
    """Bytes as people read them.

    >>> size_text(5_000_000)
    '5.0 MB'
    """
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} B"


def age_text(seconds: float) -> str:
    """A time as people read it.

    >>> age_text(7200)
    '2 h'
    """
    for unit, scale in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= scale:
            return f"{seconds / scale:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
