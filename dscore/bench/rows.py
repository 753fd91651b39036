"""The rows of a comparison, and the CSV file that keeps them through interruptions."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from dscore.core.errors import (
    MOST_INT,
    CompileError,
    InfeasibleError,
    LaunchError,
    SpecError,
)
from dscore.core.text import read_whole
from dscore.core.token import parse_problem

Key = tuple[str, ...]
# Words for why nothing was timed.
NOT_OFFERED = "not offered"  # by a peer, for such a layer
FAULTS = ("", "wrong", NOT_OFFERED,
          *(error.fault for error in (InfeasibleError, CompileError, LaunchError)))
_ENCODING = "utf-8"


@dataclass(frozen=True)
class Row:
    """Measurement of one method on one layer, batch and state of the cache.

    Without *microseconds* nothing was timed, and *fault* says why in a word: "wrong" (the result
    failed the bound), "infeasible", "not compiled", "not run", and of a peer "not offered"; *note*
    says it in a sentence.
    """

    kind: str
    layer: str
    batch: int
    method: str
    cache: str  # cold, hot or eager
    microseconds: float | None  # the median
    low: float | None  # the quartiles
    high: float | None
    bytes: int
    flops: int
    floor_microseconds: float
    correct: bool
    share: float | None = None  # the worst error over its bound
    policy: str = ""
    sets: int = 0
    launches: int = 0  # of a sample
    samples: int = 0
    fault: str = ""
    note: str = ""
    problem: str = ""
    plan: str = ""  # of dscore's kernel
    device: str = ""
    versions: str = ""

    @property
    def key(self) -> Key:
        """All that the measurement depends on."""
        return key_of(self.layer, self.problem, self.method, self.cache, self.plan, self.device,
                      self.versions)

    @property
    def dtype(self) -> str:
        """Element type of the problem; float32 where no token says another."""
        try:
            return parse_problem(self.problem).spec.dtype
        except SpecError:
            return "float32"

    @property
    def over_floor(self) -> float | None:
        """Device time over floor; None where none was measured."""
        if self.microseconds is None or self.cache == "eager":
            return None
        return self.microseconds / self.floor_microseconds


def key_of(layer: str, problem: str, method: str, cache: str, plan: str, device: str,
           versions: str) -> Key:
    """What tells a measurement from all others."""
    return layer, problem, method, cache, plan, device, versions


_COLUMNS = tuple(field.name for field in fields(Row))


def read_rows(path: Path) -> dict[Key, Row]:
    """The rows of a file, the latest of each key; none where there is no file.

    A last line without an end was cut off as it was written, and is left out.
    Raises SpecError where the file is none of these.
    """
    if not os.path.exists(path):
        return {}
    text = _complete(read_whole(path)).decode(_ENCODING, "replace")
    try:
        lines = list(csv.reader(io.StringIO(text)))
    except csv.Error:  # a carriage return, a field of a hundred thousand characters
        lines = [[]]
    if not lines:
        return {}
    if tuple(lines[0]) != _COLUMNS:
        raise SpecError(f"{path}: is not a file of dscore bench, or one of another version; "
                        "name another file")
    rows = (_row(path, number, line) for number, line in enumerate(lines[1:], 2))
    return {row.key: row for row in rows}


def _complete(data: bytes) -> bytes:
    """*data* up to the end of its last whole line."""
    return data[:data.rfind(b"\n") + 1]


def _row(path: Path, number: int, line: Sequence[str]) -> Row:
    try:
        values: dict[str, Any] = {field.name: _value(str(field.type), text) for field, text
                                  in zip(fields(Row), line, strict=True)}
        row = Row(**values)
        _require_possible(row)
        return row
    except (ValueError, KeyError):
        raise SpecError(f"{path}: line {number} is no measurement: {','.join(line)[:80]}") from None


def _require_possible(row: Row) -> None:
    """Raise ValueError for what is measured nowhere, such as a time of 0 or an unknown fault."""
    times = (row.floor_microseconds, row.microseconds, row.low, row.high)
    if not all(time is None or 1e-9 < time < 1e15 for time in times):
        raise ValueError("a time of less than a femtosecond, or of years")
    counts = (row.batch, row.bytes, row.flops, row.sets, row.launches, row.samples)
    if not all(0 <= count <= MOST_INT for count in counts):
        raise ValueError("an odd count")
    if row.fault not in FAULTS or not (row.share is None or row.share >= 0):
        raise ValueError("an odd verdict")


def _value(kind: str, text: str) -> object:
    if kind == "bool":
        return {"True": True, "False": False}[text]
    if kind.endswith("None") and not text:
        return None
    return {"int": int, "float": float, "float | None": float}.get(kind, str)(text)


def append_rows(path: Path, rows: Iterable[Row]) -> None:
    """Add *rows* at the end, in one write that is on disk when this returns.

    What a killed run left of a line is cut off first. SpecError where that cannot be done.
    """
    try:
        with path.open("a+b") as file:
            file.seek(0)
            end = len(_complete(file.read()))
            file.truncate(end)
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            if not end:
                writer.writerow(_COLUMNS)
            writer.writerows([_cell(value) for value in asdict(row).values()] for row in rows)
            file.write(text.getvalue().encode(_ENCODING))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise SpecError(f"{path}: cannot be written: {error.strerror}") from None


def _cell(value: object) -> object:
    if isinstance(value, str):  # a line of the file is a row
        return " ".join(value.split())
    return value  # floats with all their digits, so that a replay prints what the run has printed
