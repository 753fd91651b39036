"""Tuning records as files, a line of JSON for each measurement: written whole, merged by union."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dscore.core.errors import SpecError
from dscore.core.text import write_whole
from dscore.tuning import records
from dscore.tuning.measurement import Measurement
from dscore.tuning.records import Stale

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Read:
    """What files hold: measurements, and the lines that were skipped, each with the reason."""

    measurements: frozenset[Measurement]
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Arrived:
    """What files bring: measurements for the cache, and records that are stale.

    What provably does not hold here is in *ignored*. Of what is in *unjudged* that cannot be told
    here (the GPU, the compiler or the backend is missing): it is taken, and no plan goes by it yet.
    """

    new: tuple[Measurement, ...]
    known: int  # measurements that the cache has already
    ignored: tuple[Stale, ...]
    unjudged: tuple[Stale, ...]
    skipped: tuple[str, ...]


def read(path: PathLike) -> Read:
    """The measurements of a file, a line of JSON for each; what is no such line is skipped.

    Raises SpecError where the file cannot be read.
    """
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as failed:
        raise SpecError(f"{os.fspath(path)}: cannot be read: {failed.strerror}") from None
    found, skipped = set(), []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            if line.strip():
                found.add(Measurement.of_json(json.loads(line)))
        except (ValueError, RecursionError) as failed:
            skipped.append(f"{os.fspath(path)}:{number}: {failed}")
    return Read(frozenset(found), tuple(skipped))


def read_all(paths: Sequence[PathLike]) -> Read:
    """The measurements of all files.

    Raises SpecError for one that cannot be read, or has no measurement among its lines.
    """
    parts = [_some(path) for path in paths]
    return Read(frozenset().union(*(part.measurements for part in parts)),
                tuple(line for part in parts for line in part.skipped))


def _some(path: PathLike) -> Read:
    found = read(path)
    if found.skipped and not found.measurements:
        raise SpecError(f"{os.fspath(path)} holds no tuning records: {found.skipped[0]}")
    return found


def write(path: PathLike, measurements: Iterable[Measurement]) -> None:
    """Write *measurements*, in an order that does not depend on theirs; SpecError where it fails.
    """
    order = sorted(measurements, key=lambda m: (m.identity.problem, m.identity.prefix,
                                                m.tiling.name, m.key))
    lines = [json.dumps(m.as_json(), allow_nan=False, ensure_ascii=False) + "\n" for m in order]
    write_whole(path, "".join(lines))


def export(path: PathLike) -> frozenset[Measurement]:
    """Write all that the cache knows to a file, in place of what it held; returns that."""
    found = records.everything()
    write(path, found)
    return found


def arrived(paths: Sequence[PathLike]) -> Arrived:
    """What the files of *paths* would bring to the cache; `take` puts it there."""
    found = read_all(paths)
    stale = records.stale(measurements=found.measurements)
    ignored = tuple(one for one in stale if not one.unjudged)
    identities = {one.identity for one in ignored}
    sound = {m for m in found.measurements if m.identity not in identities}
    new = sorted(sound - records.everything(), key=lambda m: m.key)
    return Arrived(tuple(new), len(sound) - len(new), ignored,
                   tuple(one for one in stale if one.unjudged), found.skipped)


def take(found: Arrived, begin: Callable[[str], object] = lambda problem: None) -> None:
    """Put what is new into the cache, measurement by measurement; *begin* is told of each."""
    for measurement in found.new:
        begin(measurement.identity.problem)
        records.keep(measurement)


def merge(paths: Sequence[PathLike], into: PathLike) -> Read:
    """Write what all files of *paths* hold to *into*, beside what that holds already.

    Returns what *into* holds then. Raises SpecError where it holds lines that would be lost.
    """
    found = read_all(paths)
    before = read(into) if os.path.lexists(into) else Read(frozenset())
    if before.skipped:
        raise SpecError(f"merging into {os.fspath(into)} would lose a line that is no measurement: "
                        f"{before.skipped[0]}")
    together = found.measurements | before.measurements
    write(into, together)
    return Read(together, found.skipped)
