"""`dscore bench`: layers timed beside PyTorch; rows kept on file, tables, pictures."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from dscore.cli import options
from dscore.cli.commands import bench_options
from dscore.cli.ending import error_record
from dscore.cli.inputs import (
    batches_of,
    is_problem,
    layers_of,
    measuring_backend,
    names_of,
    planner_of,
)
from dscore.cli.show.json import Record, print_json, row_records
from dscore.cli.show.text import counted, print_note, progress, require_name, require_writable
from dscore.core.errors import (
    CompileError,
    DscoreError,
    InfeasibleError,
    LaunchError,
    SpecError,
    require_int,
    require_one_of,
)

if TYPE_CHECKING:
    from dscore.bench.network_rows import NetworkRow
    from dscore.bench.rows import Key, Row
    from dscore.bench.run import Bench
    from dscore.bench.summary import LayerResult
    from dscore.core.backend import Backend
    from dscore.core.catalog import NamedProblem

_BATCHES = (1, 8, 16, 32, 64)
_WITHOUT_GPU = ("Without one, `dscore bench --replay FILE.csv` shows what was measured elsewhere, "
                "and `dscore run` checks results")
_EXIT_CODES = {"": 0, "wrong": 1, **{error.fault: error.exit_code for error in (
    InfeasibleError, CompileError, LaunchError)}}  # of bench.rows.FAULTS


@dataclass(frozen=True)
class BenchRequest:
    """The options of the command line."""

    peer: str
    batch: str | None
    cache: str | None
    backend: str
    device: str | None
    tiling: str | None
    tf32: bool
    seed: int
    out: str | None
    plot: str | None
    markdown: bool
    json: bool
    arithmetic: str
    ways: str | None


def bench(
    layers: options.LayersOrNone = None,
    peer: bench_options.Peer = "torch",
    batch: bench_options.Batches = None,
    cache: bench_options.Caches = None,
    backend: options.BackendName = "auto",
    device: options.OwnDeviceName = None,
    tiling: options.TilingFields = None,
    arithmetic: options.Arithmetic = "sum",
    dtype: options.Dtype = None,
    layout: options.LayoutName = None,
    tf32: bench_options.Tf32 = False,
    seed: options.Seed = 0,
    out: bench_options.Measurements = None,
    plot: bench_options.Plot = None,
    network: bench_options.Networks = None,
    image: options.Image = "1x3x224x224",
    task: bench_options.Task = None,
    ablation: bench_options.Ablation = False,
    ways: bench_options.Ways = None,
    replay: bench_options.Replay = None,
    markdown: bench_options.Markdown = False,
    json: options.Json = False,
) -> None:
    """Time layers beside PyTorch.

    Both sides run in turns on the same random data. Each result is checked first, and a wrong
    kernel is never timed. dscore runs what conv would: the tilings tuned here, else those of an
    untuned machine. The tables show microseconds, dscore's speed-up over PyTorch's default
    and over the fastest of its ways, and the time over the least time possible (÷ floor).

    \b
    dscore bench D1-D30 P1-P45 --out layers.csv --plot pictures
    dscore bench P1-P45 --batch 32 --cache cold --ways default,matmul
    dscore bench mobilenet_v2 --dtype float16 --layout nhwc --peer none
    dscore bench --network mobilenet_v2 --network my_module:make --batch 32 --task training

    Ends with 1 if a kernel is wrong, 4 or 5 if a compiler or a device failed, 3 without a GPU
    unless --backend names what to time. A layer that PyTorch wins is no failure.
    """
    request = BenchRequest(peer, batch, cache, backend, device, tiling, tf32, seed, out, plot,
                           markdown, json, arithmetic, ways)
    _require_usable(request)
    if network:
        from dscore.cli.commands import bench_network

        bench_network.require_alone(layers, replay, asdict(request))
        _exit(bench_network.run(bench_network.NetworkRequest(
            tuple(network), image, task, ablation, ways, batch, backend, seed, plot, json,
            arithmetic, dtype, layout)))
    if task is not None or ablation:
        raise SpecError("--task and --ablation are of whole networks: name --network")
    if replay:
        from dscore.cli.commands import bench_replay

        _require_files_alone(layers, request)
        _exit(bench_replay.run(replay, plot, markdown, json))
    if not layers:
        raise SpecError("name the layers to compare, or --replay files of dscore bench --out")
    _compare([options.formed(one, dtype, layout) for one in layers], request)


def _compare(names: list[str], request: BenchRequest) -> None:
    """Measure and report; what stopped the measurement is raised after the report."""
    from dscore.bench.rows import read_rows
    from dscore.bench.summary import layer_results

    began = time.perf_counter()
    bench = _bench(names, request)
    out = None if request.out is None else Path(request.out)
    done = read_rows(out) if out is not None else {}
    stopped = _measure(bench, done, out)
    rows = [done[key] for case in bench.cases for key in bench.keys(case) if key in done]
    results = layer_results(rows)
    if rows:
        _report(bench, rows, results, time.perf_counter() - began, request, stopped)
    if rows and request.plot is not None:
        from dscore.cli.show.plots import print_drawn

        print_drawn(results, bench.floors, bench.title, request.plot,
                    to_stderr=request.json or request.markdown)
    if stopped is not None:
        raise stopped
    _exit(rows)


def _exit(rows: Sequence[Row | NetworkRow]) -> NoReturn:
    """End with the worst failure's code."""
    from dscore.bench.summary import COMPILED, OURS

    # torch.compile may not run here; what it makes of dscore's layers may not be wrong.
    own = [row for row in rows
           if row.method == OURS or (row.method, row.fault) == (COMPILED, "wrong")]
    raise typer.Exit(max((_EXIT_CODES[row.fault] for row in own), default=0))


def _require_files_alone(layers: list[str] | None, request: BenchRequest) -> None:
    """Raise SpecError for what a replay would ignore."""
    given = {"layers": layers or None, "--batch": request.batch, "--cache": request.cache,
             "--device": request.device, "--tiling": request.tiling, "--ways": request.ways,
             "--out": request.out}
    if named := [name for name, value in given.items() if value is not None]:
        raise SpecError(f"--replay takes all that its files hold; leave out {', '.join(named)}")


def _require_usable(request: BenchRequest) -> None:
    """Raise before the long work for what would fail only after it."""
    if request.json and request.markdown:
        raise SpecError("--json and --markdown are two forms of the same; ask for one")
    require_int(request.seed, "--seed", 0)
    if request.out is not None:
        require_writable(request.out)
        if os.path.exists(request.out) and not os.path.isfile(request.out):
            raise SpecError(f"--out: {request.out} is no file that can be read again to go on from")
    if request.plot is not None:
        from dscore.cli.show.plots import require_matplotlib

        require_matplotlib()
        require_name(request.plot)
        if os.path.exists(request.plot) and not os.path.isdir(request.plot):
            raise SpecError(f"--plot: {request.plot} is a file, not a folder")
        above = Path(os.path.abspath(request.plot))
        while not above.exists():
            above = above.parent
        if not os.access(above, os.W_OK):
            raise SpecError(f"--plot: the folder {above} is not writable")


def _bench(names: list[str], request: BenchRequest) -> Bench:
    """The benchmark that the options state."""
    from dscore import api
    from dscore.bench.run import Bench, Comparison

    device = None if request.device is None else api.device_of(request.device)
    layers = layers_of(names, None, request.arithmetic)
    ways = _ways(request, layers)
    batches, caches = batches_of(request.batch), _caches(request.cache)
    planner = planner_of(request.tiling)
    backend = measuring_backend(request.backend, _WITHOUT_GPU)
    if batches is None:
        batches = _usual_batches(names, backend)
    return Bench(Comparison(
        tuple(layers), batches, request.backend, ways, caches, device, planner, request.tf32,
        request.seed))


def _ways(request: BenchRequest, layers: Sequence[NamedProblem]) -> tuple[str, ...]:
    """PyTorch's ways that are timed: all, or those of --ways; none where dscore runs alone."""
    from dscore.bench.torch_methods import WAYS

    alone = require_one_of(request.peer, "--peer", ("torch", "none")) == "none"
    if request.ways is None:
        return () if alone else WAYS
    if alone:
        raise SpecError("--ways names ways of PyTorch, which --peer none leaves out; give one of "
                        "the two")
    if exact := [layer.name for layer in layers if layer.problem.spec.element.exact]:
        raise SpecError(f"--ways is of floats, and {exact[0]} is of int8, which has other peers; "
                        "leave --ways out")
    return names_of(request.ways, "--ways", WAYS)


def _usual_batches(names: Sequence[str], backend: Backend) -> tuple[int, ...]:
    """The batches that are timed where none is stated; (): each layer's own."""
    from dscore.core.backend import GpuBackend

    usual = isinstance(backend, GpuBackend) and not all(map(is_problem, names))
    return _BATCHES if usual else ()


def _caches(text: str | None) -> tuple[str, ...]:
    from dscore.bench.run import CACHES

    return () if text is None else names_of(text, "--cache", CACHES)


def _measure(bench: Bench, done: dict[Key, Row], out: Path | None) -> BaseException | None:
    """Measure the rows that are missing; the error that stopped this, or None."""
    from dscore.bench.run import measure

    try:
        with progress(len(bench.missing(bench.cases, done))) as begin:
            measure(bench, done, out, begin)
    except (KeyboardInterrupt, DscoreError) as error:  # raised after the report
        return error
    return None


def _report(bench: Bench, rows: list[Row], results: list[LayerResult], seconds: float,
            request: BenchRequest, stopped: BaseException | None) -> None:
    from dscore.cli.show import tables

    prose = sys.stderr if request.json or request.markdown else sys.stdout
    if request.json:
        print_json({**_record(bench, rows, results, seconds), **error_record(stopped)})
    else:
        tables.print_all(results, request.markdown)
    for text in (*tables.remarks(results), *_circumstances(bench)):
        print_note(text, prose)
    missing = len(bench.cases) - len({(row.layer, row.problem) for row in rows})
    left = f", {counted(missing, 'layer')} left" if missing else ""
    print_note(f"{counted(len(rows), 'measurement')}{left}, {seconds:.1f} s", prose)


def _circumstances(bench: Bench) -> list[str]:
    """What the figures depend on."""
    from dscore.bench.torch_methods import WAYS
    from dscore.cli.show.tables import floors_text

    lines = [f"on {bench.title}; {bench.versions}", floors_text(bench.floors)]
    if 0 < len(ways := bench.comparison.ways) < len(WAYS):
        lines.append(f"note: the best of PyTorch's ways is of {', '.join(ways)} alone")
    if bench.runner.on_host:
        lines.append("note: these are wall-clock times on this machine's processor, and say "
                    "nothing of a GPU")
    return lines


def _record(bench: Bench, rows: list[Row], results: list[LayerResult], seconds: float) -> Record:
    from dscore.bench.summary import summaries

    return {"backend": bench.backend.name, "device": bench.title, "versions": bench.versions,
            "host_time": bench.runner.on_host, "seed": bench.comparison.seed,
            "floors": asdict(bench.floors), "asked": len(bench.cases), "seconds": seconds,
            "rows": row_records(rows),
            "standings": [asdict(summary) for summary in summaries(results)]}
