"""`dscore tune`: search for the fastest right tilings, here or by workers."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from dscore.cli import options
from dscore.cli.ending import error_record
from dscore.cli.inputs import layers_of, measuring_backend
from dscore.cli.show.json import Record, print_json, problem_record
from dscore.cli.show.screen import screen
from dscore.cli.show.text import counted, print_note, print_table, print_text
from dscore.core.errors import DscoreError, SpecError, require_int
from dscore.core.text import geomean

if TYPE_CHECKING:
    from dscore.core.backend import Backend
    from dscore.core.catalog import NamedProblem
    from dscore.tuning.measurement import Configuration
    from dscore.tuning.search import SearchResult
    from dscore.tuning.trials import SearchRequest
    from dscore.tuning.tune import Step

_COLUMNS = ("layer", "solver's first", ">first\nµs", "best", ">best\nµs", ">gain", ">tried",
            ">refused")
_SPARE = ("solver's first", "refused", "tried")
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600}
_WALL = ("these are wall-clock times of the host, which say nothing of a device; they serve tests "
         "only")
_WITHOUT_GPU = ("Without one, `dscore space` ranks the tilings by the cost model, and `dscore "
                "cache import` takes what was tuned elsewhere")
_SHOWN = 5


@dataclass(frozen=True)
class TuneRequest:
    """The options of the command line."""

    backend: str
    device: str | None
    top: int
    exhaustive: bool
    algorithm: str | None
    seed: int
    workers: int | None
    executor: str | None


def tune(
    layers: options.LayersOrNone = None,
    backend: options.BackendName = "auto",
    device: options.OwnDeviceName = None,
    batch: options.Batch = None,
    budget: Annotated[str | None, typer.Option(
        "--budget", metavar="TIME", show_default=False,
        help="Stop after this much time in total (90s, 10m, 2h).  [default: when all tilings are "
             "tried]")] = None,
    top: Annotated[int, typer.Option(
        "--top", metavar="N", help="Try the first N tilings by the cost model.")] = 32,
    exhaustive: Annotated[bool, typer.Option(
        "--exhaustive", help="Try every tiling that fits.")] = False,
    algorithm: options.Algorithm = None,
    arithmetic: options.Arithmetic = "sum",
    seed: options.Seed = 0,
    workers: Annotated[int | None, typer.Option(
        "--workers", metavar="N", show_default=False,
        help="Share the layers among N processes.  [default: one for each GPU]")] = None,
    executor: Annotated[str | None, typer.Option(
        "--executor", metavar="module:factory", show_default=False,
        help="Share them by the concurrent.futures.Executor that this factory makes.")] = None,
    replay: Annotated[str | None, typer.Option(
        "--replay", metavar="FILE", show_default=False,
        help="Judge the cost model by the records in this file; nothing is run.")] = None,
    json: options.Json = False,
) -> None:
    """Find the fastest right tiling of layers.

    Each tiling is built, held to the error bound, and only then timed, on a GPU. Every measurement
    is kept at once. After an interruption the same command goes on, and conv uses the best so far.

    \b
    dscore tune P13
    dscore tune mobilenet_v2 --batch 8 --budget 10m
    dscore tune P1-P45 --exhaustive && dscore cache export h200.jsonl
    dscore tune P28 --algorithm channel_distribution
    dscore tune --replay h200.jsonl

    Ends with 1 if a layer has no right tiling, 3 without a GPU unless --backend names what to time.
    """
    if replay is not None:
        from dscore.cli.commands import tune_replay

        if layers:
            raise SpecError("--replay takes the layers of its file")
        tune_replay.run(replay, device, json)
        return
    if not layers:
        raise SpecError("name the layers to tune, or --replay a file")
    request = TuneRequest(backend, device, top, exhaustive, algorithm, seed, workers, executor)
    _tune(layers_of(layers, batch, arithmetic), request, seconds_of(budget), json)


def seconds_of(text: str | None) -> float | None:
    """The seconds of ``90s``, ``10m`` or ``2h``; a bare number is of seconds.

    >>> seconds_of("10m")
    600.0
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*(s|m|min|h)?", text.strip())
    if match is None or float(match[1]) == 0:
        raise SpecError(f"--budget must be a time such as 90s, 10m or 2h, got {text!r}")
    return float(match[1]) * _UNITS[match[2] or "s"]


def _tune(layers: list[NamedProblem], request: TuneRequest, budget: float | None,
          json: bool) -> None:
    """Tune, and print what is on record at the end, after an interruption too.

    Exits with 1 where a layer has no right tiling.
    """
    from dscore import api
    from dscore.cli.workers import executor_of
    from dscore.tuning.tune import search_request, tune_all

    began = time.perf_counter()
    require_int(request.top, "--top")
    require_int(request.seed, "--seed", 0)
    backend = measuring_backend(request.backend, _WITHOUT_GPU)
    device = backend.device() if request.device is None else api.device_of(request.device)
    search = search_request(device, request.backend, request.top, request.exhaustive, request.seed,
                       algorithm=request.algorithm)
    problems = [layer.problem for layer in layers]
    stopped: BaseException | None = None
    try:
        with executor_of(backend, request.workers, request.executor, len(set(problems))
                         ) as executor, _bar(layers) as advance:
            tuned = tune_all(problems, device, request.backend, budget, request.top,
                             request.exhaustive, request.seed, executor, advance,
                             algorithm=request.algorithm)
    except SpecError:  # nothing was begun
        raise
    except (KeyboardInterrupt, DscoreError) as error:
        stopped, tuned = error, _recorded(search, backend, layers, error)
    _report(layers, tuned, search, time.perf_counter() - began, json, stopped)
    if stopped is not None:
        raise stopped
    if any(one.best is None and one.tried for one in tuned):
        raise typer.Exit(1)


def _recorded(search: SearchRequest, backend: Backend, layers: list[NamedProblem],
              error: BaseException) -> list[SearchResult]:
    """Records of each layer, where *error* ended the search."""
    from dscore.tuning.search import known_result

    try:
        return [known_result(search, backend, layer.problem) for layer in layers]
    except DscoreError:
        raise error from None  # what stopped the search stops this too


@contextmanager
def _bar(layers: list[NamedProblem]) -> Iterator[Callable[[Step], None] | None]:
    """A bar on stderr with the time left; none where stderr is no terminal, nor with --quiet."""
    if screen.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    names = {layer.problem: layer.name for layer in reversed(layers)}
    with Progress(BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}",
                  markup=False), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("building", total=1.0)

        def advance(step: Step) -> None:
            best = "" if step.best is None else f", best {step.best * 1e6:,.2f} µs"
            share = step.done / step.total if step.number < step.of else 0.0
            bar.update(task, completed=(step.number + share) / step.of, description=(
                f"{names.get(step.problem, '')} {step.done}/{step.total}{best}"))

        yield advance


def _report(layers: list[NamedProblem], tuned: list[SearchResult], search: SearchRequest,
            seconds: float, json: bool, stopped: BaseException | None) -> None:
    if json:
        print_json({**_record(layers, tuned, search, seconds), **error_record(stopped)})
    else:
        print_table(_COLUMNS, [_row(layer, one) for layer, one in zip(layers, tuned, strict=True)],
                    spare=_SPARE)
        print()
    prose = sys.stderr if json else sys.stdout
    _print_refused(layers, tuned, prose)
    _print_surprises(layers, tuned, search, prose)
    print_note(_summary(tuned, search, seconds), prose)
    if search.policy.clock == "host":
        print_note(_WALL, prose)
    if not all(one.complete for one in tuned):
        print_note("not all is tried; the same command goes on from here", prose)


def _row(layer: NamedProblem, one: SearchResult) -> tuple[str, ...]:
    best, refused = one.best, len(one.record.refused)
    same = best is not None and best.tiling == one.first_tiling
    return (layer.name, one.first_tiling.name, _micro(one.first),
            "the same" if same else "" if best is None else best.tiling.name, _micro(best),
            "" if one.gain is None else f"{one.gain:.2f}", f"{one.tried:,}",
            f"{refused:,}" if refused else "")


def _micro(configuration: Configuration | None) -> str:
    if configuration is None:
        return ""
    if configuration.seconds is None:
        return "refused"
    return f"{configuration.seconds * 1e6:,.2f}"


def _print_refused(layers: list[NamedProblem], tuned: list[SearchResult], prose: TextIO) -> None:
    """The first lines of why configurations are refused, or all with --verbose."""
    reasons = {(layer.problem, refused.tiling.name):
               f"{layer.name} {refused.tiling.name}: {refused.refused.partition(chr(10))[0]}"
               for layer, one in zip(layers, tuned, strict=True) for refused in one.record.refused}
    shown = len(reasons) if screen.verbose else _SHOWN
    for line in list(reasons.values())[:shown]:
        print_text(f"refused {line}", prose)
    if len(reasons) > shown:
        print_note(f"... and {len(reasons) - shown:,} more; -v shows them", prose)


def _print_surprises(layers: list[NamedProblem], tuned: list[SearchResult],
                     search: SearchRequest, prose: TextIO) -> None:
    """What the compiler took above the prediction for the best kernels, of those that a GPU ran."""
    from dscore.building.kernels import report_on
    from dscore.solving.solver import make_plan

    for layer, one in zip(layers, tuned, strict=True):
        if one.best is None or search.policy.clock == "host":
            continue
        plan = make_plan(one.problem, one.device, one.best.tiling)
        report = report_on(plan)
        if report is not None and plan.surprise(report.use(plan.use)):
            print_text(f"{layer.name}: {plan.surprise(report.use(plan.use))}", prose)


def _mean_gain(tuned: list[SearchResult]) -> float | None:
    """Geometric mean of the gains; None where there are none."""
    gains = [one.gain for one in tuned if one.gain is not None]
    return geomean(gains) if gains else None


def _summary(tuned: list[SearchResult], search: SearchRequest, seconds: float) -> str:
    gain = _mean_gain(tuned)
    parts = [f"{search.device.name} by {search.backend}, {search.policy}",
             counted(len(tuned), "layer")]
    parts += [f"gain {gain:.2f} (geometric mean)"] if gain is not None else []
    parts += [f"{counted(sum(one.complete for one in tuned), 'layer')} complete"]
    spilling = sum(len(one.record.spilling) for one in tuned)
    parts += [f"{counted(spilling, 'kernel')} refused for spills"] if spilling else []
    return ", ".join([*parts, f"{seconds:.1f} s"])


def _record(layers: list[NamedProblem], tuned: list[SearchResult], search: SearchRequest,
            seconds: float) -> Record:
    return {"backend": search.backend, "device": search.device.name,
            "policy": str(search.policy), "host_time": search.policy.clock == "host",
            "top": search.top, "algorithm": search.algorithm, "seed": search.seed,
            "seconds": seconds,
            "complete": all(one.complete for one in tuned), "gain": _mean_gain(tuned),
            "layers": [_layer_record(layer, one)
                       for layer, one in zip(layers, tuned, strict=True)]}


def _layer_record(layer: NamedProblem, one: SearchResult) -> Record:
    return {"layer": layer.name, **problem_record(layer.problem), "candidates": one.candidates,
            "tried": one.tried, "complete": one.complete, "gain": one.gain,
            "first": _configuration_record(one.first) or {"tiling": one.first_tiling.as_json()},
            "best": _configuration_record(one.best), "spilling": len(one.record.spilling),
            "refused": [_configuration_record(c) for c in one.record.refused]}


def _configuration_record(configuration: Configuration | None) -> Record | None:
    """A configuration and what is known of it."""
    if configuration is None:
        return None
    return {"name": configuration.tiling.name, "tiling": configuration.tiling.as_json(),
            "seconds": configuration.seconds, "samples": list(configuration.samples),
            "share": configuration.share, "refused": configuration.refused}
