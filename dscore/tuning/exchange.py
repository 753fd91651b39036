"""Exchange of tuning records as files: a line of JSON for each measurement, merged by union."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dscore.core.errors import SpecError
from dscore.core.text import read_whole, write_whole
from dscore.tuning import records
from dscore.tuning.freshness import Stale, stale_records
from dscore.tuning.measurement import Measurement

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class RecordFile:
    """Measurements of a file, or of several, and the lines that are none, each with the reason."""

    measurements: frozenset[Measurement]
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Import:
    """Measurements that files bring to the cache, and their records that are stale.

    The measurements of *ignored* do not hold here, and are left out. Whether those of *unjudged*
    hold cannot be told here (the GPU, the compiler or the backend is missing): they are imported,
    but no plan goes by them yet.
    """

    new: tuple[Measurement, ...]
    known: int  # measurements that are in the cache already
    ignored: tuple[Stale, ...]
    unjudged: tuple[Stale, ...]
    skipped: tuple[str, ...]


def read(path: PathLike) -> RecordFile:
    """Measurements of a file; a line that is none is skipped.

    Raises SpecError where the file cannot be read.
    """
    text = read_whole(path).decode("utf-8", "replace")
    measurements, skipped = set(), []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            if line.strip():
                measurements.add(Measurement.of_json(json.loads(line)))
        except (ValueError, RecursionError) as failed:
            skipped.append(f"{os.fspath(path)}:{number}: {failed}")
    return RecordFile(frozenset(measurements), tuple(skipped))


def read_all(paths: Sequence[PathLike]) -> RecordFile:
    """Measurements of all files.

    Raises SpecError for a file that cannot be read, or none of whose lines is a measurement.
    """
    files = [_read_some(path) for path in paths]
    return RecordFile(frozenset().union(*(file.measurements for file in files)),
                      tuple(line for file in files for line in file.skipped))


def _read_some(path: PathLike) -> RecordFile:
    file = read(path)
    if file.skipped and not file.measurements:
        raise SpecError(f"{os.fspath(path)} holds no tuning records: {file.skipped[0]}")
    return file


def write(path: PathLike, measurements: Iterable[Measurement]) -> None:
    """Write *measurements*, always in the same order; SpecError where the file cannot be written.
    """
    ordered = sorted(measurements, key=lambda m: (m.identity.problem, m.identity.prefix,
                                                  m.tiling.name, m.key))
    write_whole(path, "".join(
        json.dumps(m.as_json(), allow_nan=False, ensure_ascii=False) + "\n" for m in ordered))


def export(path: PathLike) -> frozenset[Measurement]:
    """Write all measurements of the cache to a file, which is replaced; returns them."""
    measurements = records.everything()
    write(path, measurements)
    return measurements


def plan_import(paths: Sequence[PathLike]) -> Import:
    """What the files of *paths* would bring to the cache; `import_new` puts it there."""
    file = read_all(paths)
    stale = stale_records(measurements=file.measurements)
    ignored = tuple(record for record in stale if not record.unjudged)
    identities = {record.identity for record in ignored}
    holding = {m for m in file.measurements if m.identity not in identities}
    new = sorted(holding - records.everything(), key=lambda m: m.key)
    return Import(tuple(new), len(holding) - len(new), ignored,
                  tuple(record for record in stale if record.unjudged), file.skipped)


def import_new(planned: Import, begin: Callable[[str], object] = lambda problem: None) -> None:
    """Put the new measurements into the cache; *begin* is called with the problem of each."""
    for measurement in planned.new:
        begin(measurement.identity.problem)
        records.keep(measurement)


def merge(paths: Sequence[PathLike], into: PathLike) -> RecordFile:
    """Write the measurements of all *paths* to *into*, beside those that it holds already.

    Returns the contents of *into*. Raises SpecError where *into* has lines that would be lost.
    """
    file = read_all(paths)
    # A pipe or a device holds nothing that is to stay, and reading it may never end.
    before = read(into) if os.path.isfile(into) else RecordFile(frozenset())
    if before.skipped:
        raise SpecError(f"merging into {os.fspath(into)} would lose a line that is no measurement: "
                        f"{before.skipped[0]}")
    union = file.measurements | before.measurements
    write(into, union)
    return RecordFile(union, file.skipped)
