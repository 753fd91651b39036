"""`dscore tune`: search for the fastest tilings, here or by workers, and show what was found."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dscore import api
from dscore.cli import replaying
from dscore.cli.inputs import layers_of
from dscore.cli.output import counted, print_json, print_table, print_text
from dscore.cli.records import Record, problem_record
from dscore.cli.workers import executor_of
from dscore.core.backend import Backend, choose_backend
from dscore.core.catalog import NamedProblem
from dscore.core.errors import DscoreError, SpecError, require_int
from dscore.core.text import geomean
from dscore.tuning.measurement import Configuration
from dscore.tuning.search import SearchResult, known_result
from dscore.tuning.trials import SearchRequest
from dscore.tuning.tune import Step, search_request, tune_all

_COLUMNS = ("layer", "solver's first", ">µs", "best", ">µs", ">gain", ">tried", ">refused")
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600}
_WALL = ("these are wall-clock times of the host, which say nothing of a device; they serve tests "
         "only")
_SHOWN = 5


@dataclass(frozen=True)
class Request:
    """The command line."""

    backend: str
    device: str | None
    batch: int | None
    budget: str | None
    top: int
    exhaustive: bool
    algorithm: str | None
    seed: int
    workers: int | None
    executor: str | None
    replay: str | None


def run(layers: list[str], asked: Request, json: bool) -> None:
    """Tune, or replay."""
    if asked.replay is not None:
        if layers:
            raise SpecError("--replay takes the layers of its file")
        replaying.run(asked.replay, asked.device, json)
        return
    if not layers:
        raise SpecError("name the layers to tune, or --replay a file")
    _tune(layers_of(layers, asked.batch), asked, seconds_of(asked.budget), json)


def seconds_of(text: str | None) -> float | None:
    """The seconds of ``90s``, ``10m`` or ``2h``; a bare number is of seconds.

    >>> seconds_of("10m")
    600.0
    """
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*(s|m|min|h)?", text.strip())
    if found is None or float(found[1]) == 0:
        raise SpecError(f"--budget must be a time such as 90s, 10m or 2h, got {text!r}")
    return float(found[1]) * _UNITS[found[2] or "s"]


def _tune(layers: list[NamedProblem], asked: Request, budget: float | None, json: bool) -> None:
    """Tune, print what is known at the end, however it comes, and exit accordingly."""
    began = time.perf_counter()
    require_int(asked.top, "--top")
    require_int(asked.seed, "--seed", 0)
    chosen = choose_backend(asked.backend)
    device = chosen.device() if asked.device is None else api.device_of(asked.device)
    search = search_request(device, asked.backend, asked.top, asked.exhaustive, asked.seed,
                            algorithm=asked.algorithm)
    problems = [layer.problem for layer in layers]
    stopped: BaseException | None = None
    try:
        with executor_of(chosen, asked.workers, asked.executor, len(set(problems))
                         ) as executor, _bar(layers) as told:
            found = tune_all(problems, device, asked.backend, budget, asked.top, asked.exhaustive,
                             asked.seed, executor, told, algorithm=asked.algorithm)
    except (KeyboardInterrupt, DscoreError) as error:
        stopped, found = error, _standing(search, chosen, layers, error)
    _report(layers, found, search, time.perf_counter() - began, json)
    if stopped is not None:
        raise stopped
    if any(one.best is None and one.tried for one in found):
        raise typer.Exit(1)


def _standing(search: SearchRequest, chosen: Backend, layers: list[NamedProblem],
              error: BaseException) -> list[SearchResult]:
    """What is on record of each layer, where the search did not come to its end."""
    try:
        return [known_result(search, chosen, layer.problem) for layer in layers]
    except DscoreError:
        raise error from None  # what stopped the search stands in the way of this too


@contextmanager
def _bar(layers: list[NamedProblem]) -> Iterator[Callable[[Step], None] | None]:
    """A bar on stderr with the time left; none where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    names = {layer.problem: layer.name for layer in reversed(layers)}
    with Progress(BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}",
                  markup=False), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("building", total=1.0)

        def told(step: Step) -> None:
            best = "" if step.best is None else f", best {step.best * 1e6:,.2f} µs"
            share = step.done / step.total if step.number < step.of else 0.0
            bar.update(task, completed=(step.number + share) / step.of, description=(
                f"{names.get(step.problem, '')} {step.done}/{step.total}{best}"))

        yield told


def _report(layers: list[NamedProblem], found: list[SearchResult], search: SearchRequest,
            seconds: float, json: bool) -> None:
    if json:
        print_json(_record(layers, found, search, seconds))
    else:
        print_table(_COLUMNS, [_row(layer, one) for layer, one in zip(layers, found, strict=True)])
        print()
    prose = sys.stderr if json else sys.stdout
    _tell_refused(layers, found, prose)
    print(_summary(found, search, seconds), file=prose)
    if search.policy.clock == "host":
        print_text(_WALL, prose)
    if not all(one.complete for one in found):
        print_text("not all is tried; the same command goes on from here", prose)


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


def _tell_refused(layers: list[NamedProblem], found: list[SearchResult], prose: Any) -> None:
    """The first lines of why configurations are refused; JSON has all of it."""
    said = {(layer.problem, c.tiling.name): f"{layer.name} {c.tiling.name}: "
            + c.refused.partition("\n")[0]
            for layer, one in zip(layers, found, strict=True) for c in one.record.refused}
    for line in list(said.values())[:_SHOWN]:
        print_text(f"refused {line}", prose)
    if len(said) > _SHOWN:
        print(f"... and {len(said) - _SHOWN:,} more; --json has them", file=prose)


def _mean_gain(found: list[SearchResult]) -> float | None:
    """Geometric mean of the gains; None where there are none."""
    gains = [one.gain for one in found if one.gain is not None]
    return geomean(gains) if gains else None


def _summary(found: list[SearchResult], search: SearchRequest, seconds: float) -> str:
    gain = _mean_gain(found)
    parts = [f"{search.device.name} by {search.backend}, {search.policy}",
             counted(len(found), "layer")]
    parts += [f"gain {gain:.2f} (geometric mean)"] if gain is not None else []
    parts += [f"{counted(sum(one.complete for one in found), 'layer')} complete"]
    return ", ".join([*parts, f"{seconds:.1f} s"])


def _record(layers: list[NamedProblem], found: list[SearchResult], search: SearchRequest,
            seconds: float) -> Record:
    return {"backend": search.backend, "device": search.device.name,
            "policy": str(search.policy), "host_time": search.policy.clock == "host",
            "top": search.top, "algorithm": search.algorithm, "seed": search.seed,
            "seconds": seconds,
            "complete": all(one.complete for one in found), "gain": _mean_gain(found),
            "layers": [_layer_record(layer, one)
                       for layer, one in zip(layers, found, strict=True)]}


def _layer_record(layer: NamedProblem, one: SearchResult) -> Record:
    return {"layer": layer.name, **problem_record(layer.problem), "candidates": one.candidates,
            "tried": one.tried, "complete": one.complete, "gain": one.gain,
            "first": configuration_record(one.first) or {"tiling": one.first_tiling.as_json()},
            "best": configuration_record(one.best),
            "refused": [configuration_record(c) for c in one.record.refused]}


def configuration_record(configuration: Configuration | None) -> Record | None:
    """A configuration and what is known of it."""
    if configuration is None:
        return None
    return {"name": configuration.tiling.name, "tiling": configuration.tiling.as_json(),
            "seconds": configuration.seconds, "samples": list(configuration.samples),
            "share": configuration.share, "refused": configuration.refused}
