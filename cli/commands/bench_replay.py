"""`dscore bench --replay`: tables and pictures of rows on file, on a machine that needs no GPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from dscore.cli.show.json import print_json, row_records
from dscore.cli.show.text import counted, print_note
from dscore.core.errors import SpecError

if TYPE_CHECKING:
    from dscore.bench.rows import Row
    from dscore.measuring.floors import Floors


def run(paths: Sequence[str], plot: str | None, markdown: bool, json: bool) -> list[Row]:
    """Print the files' tables, and draw their pictures; the rows."""
    from dscore.bench.summary import layer_results, summaries
    from dscore.cli.show import tables

    rows = rows_of(paths)
    results, floors = layer_results(rows), floors_of(rows)
    prose = sys.stderr if json or markdown else sys.stdout
    if json:
        print_json({"files": list(paths), "floors": asdict(floors),
                    "rows": row_records(rows),
                    "standings": [asdict(summary) for summary in summaries(results)]})
    else:
        tables.print_all(results, markdown)
    runs = dict.fromkeys(f"on {row.device}; {row.versions}" for row in rows)
    for text in (*tables.remarks(results), *runs, tables.floors_text(floors)):
        print_note(text, prose)
    print_note(f"{counted(len(rows), 'measurement')} of {counted(len(paths), 'file')}", prose)
    if plot is not None:
        from dscore.cli.show.plots import print_drawn

        print_drawn(results, floors, rows[0].device, plot, to_stderr=prose is sys.stderr)
    return rows


def rows_of(paths: Sequence[str]) -> list[Row]:
    """The rows of all files, of one device.

    Raises SpecError for what was measured twice, in two files or in one: both sides belong to one
    run.
    """
    from dscore.bench.rows import read_rows

    runs: dict[tuple[str, str, str], tuple[str, str]] = {}
    rows: dict[tuple[str, str, str, str], Row] = {}
    for path in dict.fromkeys(paths):
        if not os.path.exists(path):
            raise SpecError(f"--replay: there is no file {path}")
        for row in read_rows(Path(path)).values():
            what, run = (row.layer, row.problem, row.cache), (path, row.versions)
            if runs.setdefault(what, run) != run or (*what, row.method) in rows:
                raise SpecError(f"{row.layer} at batch {row.batch}, {row.cache}, was measured "
                                f"twice ({runs[what][0]}, {path}); what is compared must be of one "
                                "run: leave one out")
            rows[(*what, row.method)] = row
    if not rows:
        raise SpecError(f"--replay: there are no measurements in {', '.join(paths)}")
    devices = {row.device for row in rows.values()}
    if len(devices) != 1:
        raise SpecError(f"{', '.join(paths)}: measurements of {len(devices)} devices "
                        f"({', '.join(sorted(devices))}); replay those of one at a time")
    return [*rows.values()]


def floors_of(rows: Iterable[Row]) -> Floors:
    """The bounds that the rows' floors were computed with, as far as some row reaches them."""
    from dscore.measuring.floors import Floors

    rows = list(rows)
    rates: dict[str, float] = {}
    for row in rows:
        rates[row.dtype] = max(rates.get(row.dtype, 0.0), row.flops / _floor_seconds(row))
    return Floors(max(row.bytes / _floor_seconds(row) for row in rows),
                  rates.pop("float32", None), min(map(_floor_seconds, rows)),
                  "as far as the rows on file reach them", rates)


def _floor_seconds(row: Row) -> float:
    return row.floor_microseconds * 1e-6
