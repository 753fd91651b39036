"""What `dscore bench` does: compare, keep, report."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

import typer

from dscore import api
from dscore.bench.rows import Key, Row, read_rows
from dscore.bench.run import CACHES, Bench, Comparison, Planner, measure
from dscore.bench.summary import OURS, LayerResult, layer_results, summaries
from dscore.bench.torch_methods import WAYS
from dscore.cli import bench_replaying
from dscore.cli import bench_tables as tables
from dscore.cli.inputs import layers_of, tiling_of
from dscore.cli.output import counted, print_json, print_text, progress, require_writable
from dscore.cli.records import Record
from dscore.core.backend import GpuBackend, choose_backend
from dscore.core.errors import DscoreError, SpecError, require_int, require_one_of
from dscore.core.tiling import Tiling

BATCHES = (1, 8, 16, 32, 64)
_EXIT_CODES = {"": 0, "wrong": 1, "infeasible": 1, "not compiled": 4, "not run": 5}


@dataclass(frozen=True)
class Request:
    """The command line of `dscore bench`."""

    backend: str
    device: str | None
    tiling: str | None
    peer: str
    tf32: bool
    batch: str | None
    cache: str | None
    seed: int
    out: str | None
    plot: str | None
    replay: tuple[str, ...] = ()
    markdown: bool = False


def run(layers: list[str], asked: Request, json: bool) -> None:
    """Compare or replay, print, write the pictures; exit with the worst failure's code."""
    if json and asked.markdown:
        raise SpecError("--json and --markdown are two forms of the same; ask for one")
    _require_places(asked)
    if asked.replay:
        _require_files_alone(layers, asked)
        _exit(bench_replaying.run(asked.replay, asked.plot, asked.markdown, json))
    if not layers:
        raise SpecError("name the layers to compare, or --replay files of dscore bench --out")
    _compare(layers, asked, json)


def _compare(layers: list[str], asked: Request, json: bool) -> None:
    began = time.perf_counter()
    bench = _bench(layers, asked)
    out = None if asked.out is None else Path(asked.out)
    done = read_rows(out) if out is not None else {}
    stopped = _measured(bench, done, out)
    rows = [done[key] for case in bench.cases for key in bench.keys(case) if key in done]
    found = layer_results(rows)
    if rows:
        _report(bench, rows, found, time.perf_counter() - began, asked.markdown, json)
    if rows and asked.plot is not None:
        bench_replaying.draw_pictures(found, bench.floors, bench.title, asked.plot,
                                      json or asked.markdown)
    if stopped is not None:
        raise stopped
    _exit(rows)


def _exit(rows: list[Row]) -> NoReturn:
    """End with the worst failure's code."""
    raise typer.Exit(max((_EXIT_CODES[row.fault] for row in rows if row.method == OURS),
                         default=0))


def _require_files_alone(layers: list[str], asked: Request) -> None:
    """Raise SpecError for what a replay would leave aside."""
    given = {"layers": layers or None, "--batch": asked.batch, "--cache": asked.cache,
             "--device": asked.device, "--tiling": asked.tiling, "--out": asked.out}
    if named := [name for name, value in given.items() if value is not None]:
        raise SpecError(f"--replay takes all that its files hold; leave out {', '.join(named)}")


def _require_places(asked: Request) -> None:
    """Raise for what would fail only after the long work."""
    require_int(asked.seed, "--seed", 0)
    if asked.out is not None:
        require_writable(asked.out)
    if asked.plot is not None:
        from dscore.cli.plots import require_matplotlib

        require_matplotlib()
        if Path(asked.plot).exists() and not Path(asked.plot).is_dir():
            raise SpecError(f"--plot: {asked.plot} is a file, not a folder")


def _bench(layers: list[str], asked: Request) -> Bench:
    """The comparison that is asked for."""
    with_peers = require_one_of(asked.peer, "--peer", ("torch", "none")) == "torch"
    device = None if asked.device is None else api.device_of(asked.device)
    return Bench(Comparison(
        tuple(layers_of(layers, None)), _batches(asked), asked.backend,
        WAYS if with_peers else (), _caches(asked.cache), device,
        _planner(tiling_of(asked.tiling)), asked.tf32, asked.seed))


def _batches(asked: Request) -> tuple[int, ...]:
    """Those of ``1,8,64``; on a GPU those of the paper by default, elsewhere the layers' own."""
    if asked.batch is None:
        return BATCHES if isinstance(choose_backend(asked.backend), GpuBackend) else ()
    return tuple(require_int(int(part) if part.strip().isdecimal() else part, "--batch")
                 for part in asked.batch.split(","))


def _caches(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    return tuple(dict.fromkeys(require_one_of(part.strip(), "--cache", CACHES)
                               for part in text.split(",")))


def _planner(tiling: Tiling | None) -> Planner | None:
    if tiling is None:
        return None
    return lambda problem, device: api.plan_for(problem, device, tiling=tiling)


def _measured(bench: Bench, done: dict[Key, Row], out: Path | None) -> BaseException | None:
    """Measure what is missing; what stopped it, if anything did."""
    try:
        with progress(len(bench.missing(bench.cases, done))) as begin:
            measure(bench, done, out, begin)
    except (KeyboardInterrupt, DscoreError) as stopped:  # raised after the report
        return stopped
    return None


def _report(bench: Bench, rows: list[Row], found: list[LayerResult], seconds: float,
            markdown: bool, json: bool) -> None:
    prose = sys.stderr if json or markdown else sys.stdout
    if json:
        print_json(_record(bench, rows, found, seconds))
    else:
        tables.print_all(found, markdown)
    for text in (*tables.remarks(found), *_circumstances(bench)):
        print_text(text, prose)
    missing = len(bench.cases) - len({(row.layer, row.problem) for row in rows})
    left = f", {counted(missing, 'layer')} left" if missing else ""
    print(f"{counted(len(rows), 'measurement')}{left}, {seconds:.1f} s", file=prose)


def _circumstances(bench: Bench) -> list[str]:
    """What the figures depend on."""
    said = [f"on {bench.title}; {bench.versions}", tables.floors_said(bench.floors)]
    if bench.runner.on_host:
        said.append("note: these are wall-clock times on this machine's processor, and say "
                    "nothing of a GPU")
    return said


def _record(bench: Bench, rows: list[Row], found: list[LayerResult], seconds: float) -> Record:
    return {"backend": bench.backend.name, "device": bench.title, "versions": bench.versions,
            "host_time": bench.runner.on_host, "seed": bench.comparison.seed,
            "floors": asdict(bench.floors), "asked": len(bench.cases), "seconds": seconds,
            "rows": [asdict(row) for row in rows],
            "standings": [asdict(standing) for standing in summaries(found)]}
