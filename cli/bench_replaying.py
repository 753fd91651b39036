"""`dscore bench --replay`: what is on file told again, on a machine that needs no GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from dscore.bench.rows import Row, read_rows
from dscore.bench.summary import LayerResult, layer_results, summaries
from dscore.cli import bench_tables as tables
from dscore.cli.output import counted, print_json, print_text
from dscore.core.errors import SpecError
from dscore.measuring.floors import Floors


def run(paths: Sequence[str], plot: str | None, markdown: bool, json: bool) -> list[Row]:
    """Print the files' tables, and draw their pictures; the rows."""
    rows = rows_of(paths)
    found, floors = layer_results(rows), floors_of(rows)
    prose = sys.stderr if json or markdown else sys.stdout
    if json:
        print_json({"files": list(paths), "floors": asdict(floors),
                    "rows": [asdict(row) for row in rows],
                    "standings": [asdict(standing) for standing in summaries(found)]})
    else:
        tables.print_all(found, markdown)
    said = dict.fromkeys(f"on {row.device}; {row.versions}" for row in rows)
    for text in (*tables.remarks(found), *said, tables.floors_said(floors)):
        print_text(text, prose)
    print(f"{counted(len(rows), 'measurement')} of {counted(len(paths), 'file')}", file=prose)
    if plot is not None:
        draw_pictures(found, floors, rows[0].device, plot, prose is sys.stderr)
    return rows


def rows_of(paths: Sequence[str]) -> list[Row]:
    """The rows of all files, of one device.

    Raises SpecError for what was measured twice, in two files or in one: both sides belong to one
    run.
    """
    runs: dict[tuple[str, str, str], tuple[str, str]] = {}
    rows: dict[tuple[str, str, str, str], Row] = {}
    for path in dict.fromkeys(paths):
        if not Path(path).exists():
            raise SpecError(f"--replay: there is no file {path}")
        for row in read_rows(Path(path)).values():
            what, run = (row.layer, row.problem, row.cache), (path, row.versions)
            if runs.setdefault(what, run) != run or (*what, row.method) in rows:
                raise SpecError(f"{row.layer} at batch {row.batch}, {row.cache}, was measured "
                                f"twice ({runs[what][0]}, {path}); what is compared must be of one "
                                "run: leave one out")
            rows[(*what, row.method)] = row
    devices = {row.device for row in rows.values()}
    if len(devices) != 1:
        raise SpecError(f"{', '.join(paths)}: measurements of {len(devices)} devices, and one at a "
                        f"time is told of: {', '.join(sorted(devices)) or 'none'}")
    return [*rows.values()]


def floors_of(rows: Iterable[Row]) -> Floors:
    """The bounds that the rows' floors were computed with, as far as some row reaches them."""
    floors = [(row.bytes, row.flops, row.floor_microseconds * 1e-6) for row in rows]
    return Floors(max(moved / least for moved, _, least in floors),
                  max(flops / least for _, flops, least in floors),
                  min(least for *_, least in floors), "as far as the rows on file reach them")


def draw_pictures(found: Sequence[LayerResult], floors: Floors, title: str, folder: str,
                  to_stderr: bool) -> None:
    """Draw the pictures, and say where they are."""
    from dscore.cli.plots import draw

    for path in draw(found, floors, title, Path(folder)):
        print(f"wrote {path}", file=sys.stderr if to_stderr else sys.stdout)
