"""`dscore tune`: search for the fastest right tilings, here or by workers."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from dscore.cli import options
from dscore.cli.inputs import batches_of, layers_of, measuring_backend
from dscore.cli.show.screen import screen
from dscore.cli.show.tuning import report
from dscore.core.errors import DscoreError, SpecError, require_int

if TYPE_CHECKING:
    from dscore.core.backend import Backend
    from dscore.core.catalog import NamedProblem
    from dscore.tuning.search import SearchResult
    from dscore.tuning.trials import SearchRequest
    from dscore.tuning.tune import Step

_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600}
_WITHOUT_GPU = ("Without one, `dscore space` ranks the tilings by the cost model, and `dscore "
                "cache import` takes what was tuned elsewhere")
_Batches = Annotated[str | None, typer.Option(
    "--batch", metavar="N,N,...", show_default=False,
    help="Images in a batch, or several of these.  [default: the layers' own, of a network 1]")]
_Top = Annotated[int | None, typer.Option(
    "--top", metavar="N", show_default=False,
    help="Try the first N tilings by the cost model.  [default: 32, by halves 8]")]
_Halving = Annotated[bool, typer.Option(
    "--halving", help="Measure the better half again, and the best two alone for long.")]
_Behind = Annotated[bool, typer.Option(
    "--behind", help="Time depthwise layers also behind the pointwise layer that writes their "
    "input, as in a network: the least sum of both times wins.")]
_Algorithms = Annotated[str | None, typer.Option(
    "--algorithm", metavar="NAME,...", show_default=False,
    help="Take tilings of this algorithm, or the first of each of several.  [default: those "
         "that the solver compares]")]
_Budget = Annotated[str | None, typer.Option(
    "--budget", metavar="TIME", show_default=False,
    help="Stop after this much time in total (90s, 10m, 2h).  [default: when all tilings are "
         "tried]")]
_Exhaustive = Annotated[bool, typer.Option("--exhaustive", help="Try every tiling that fits.")]
_Workers = Annotated[int | None, typer.Option(
    "--workers", metavar="N", show_default=False,
    help="Share the layers among N processes.  [default: one for each GPU]")]
_Executor = Annotated[str | None, typer.Option(
    "--executor", metavar="module:factory", show_default=False,
    help="Share them by the concurrent.futures.Executor that this factory makes.")]
_Replay = Annotated[str | None, typer.Option(
    "--replay", metavar="FILE", show_default=False,
    help="Judge the cost model by the records in this file; nothing is run.")]
_Networks = Annotated[list[str] | None, typer.Option(
    "--network", metavar="MODULE:FACTORY", show_default=False,
    help="Tune all layers of a network of PyTorch in its graph (repeatable); named as for dscore "
         "scan. --top counts tilings of each layer.")]


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
    halving: bool
    behind: bool


def tune(
    layers: options.LayersOrNone = None,
    backend: options.BackendName = "auto",
    device: options.OwnDeviceName = None,
    batch: _Batches = None,
    budget: _Budget = None,
    top: _Top = None,
    halving: _Halving = False,
    behind: _Behind = False,
    exhaustive: _Exhaustive = False,
    algorithm: _Algorithms = None,
    arithmetic: options.Arithmetic = "sum",
    seed: options.Seed = 0,
    workers: _Workers = None,
    executor: _Executor = None,
    replay: _Replay = None,
    dtype: options.Dtype = None,
    layout: options.LayoutName = None,
    network: _Networks = None,
    image: options.Image = "1x3x224x224",
    json: options.Json = False,
) -> None:
    """Find the fastest right tiling of layers, each by itself or all of them in a network.

    Each tiling is built, held to the error bound, and only then timed, on a GPU. Every measurement
    is kept at once. After an interruption the same command goes on, and conv uses the best so far.

    \b
    dscore tune P13
    dscore tune mobilenet_v2 --batch 8 --budget 10m
    dscore tune P1-P45 D1-D30 --dtype int8 --layout nhwc --batch 1,8,32,64 --halving
    dscore tune D1-D30 --dtype float16 --layout nhwc --batch 32 --halving --behind
    dscore tune P1-P45 --exhaustive && dscore cache export h200.jsonl
    dscore tune P28 --algorithm channel_distribution
    dscore tune --network my_module:make --dtype float16 --layout nhwc --batch 32 --budget 5m
    dscore tune --replay h200.jsonl

    Ends with 1 if a layer has no right tiling, 3 without a GPU unless --backend names what to time.
    """
    if replay is not None:
        from dscore.cli.commands import tune_replay

        if layers:
            raise SpecError("--replay takes the layers of its file")
        tune_replay.run(replay, device, json)
        return
    count = top if top is not None else 8 if halving else 32
    request = TuneRequest(backend, device, count, exhaustive, algorithm, seed, workers, executor,
                          halving, behind)
    if network:
        _tune_networks(layers, network, request, image, batch, budget, arithmetic, dtype, layout,
                       json)
    elif not layers:
        raise SpecError("name the layers to tune, a --network, or --replay a file")
    else:
        formed = [options.formed(one, dtype, layout) for one in layers]
        _tune(layers_of(formed, batches_of(batch), arithmetic), request, seconds_of(budget), json)


def _tune_networks(layers: list[str] | None, networks: list[str], request: TuneRequest, image: str,
                   batch: str | None, budget: str | None, arithmetic: str, dtype: str | None,
                   layout: str | None, json: bool) -> None:
    """Tune *networks* by the options that hold for these."""
    from dscore.cli.commands import tune_network

    tune_network.require_alone(layers, asdict(request))
    tune_network.run(tune_network.NetworkTuneRequest(
        tuple(networks), image, batch, seconds_of(budget), request.backend, request.top,
        request.seed, arithmetic, dtype, layout, json))


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
    from dscore.tuning.tune import search_request, tune_all

    began = time.perf_counter()
    require_int(request.top, "--top")
    require_int(request.seed, "--seed", 0)
    backend = measuring_backend(request.backend, _WITHOUT_GPU)
    device = backend.device() if request.device is None else api.device_of(request.device)
    search = search_request(device, request.backend, request.top, request.exhaustive, request.seed,
                            algorithm=request.algorithm, halving=request.halving,
                            behind=request.behind)
    problems = [layer.problem for layer in layers]
    stopped: BaseException | None = None
    try:
        with _executor(backend, request, len(set(problems))) as executor, _bar(layers) as advance:
            tuned = tune_all(problems, device, request.backend, budget, request.top,
                             request.exhaustive, request.seed, executor, advance,
                             algorithm=request.algorithm, halving=request.halving,
                             behind=request.behind)
    except SpecError:  # nothing was begun
        raise
    except (KeyboardInterrupt, DscoreError) as error:
        stopped, tuned = error, _recorded(search, backend, layers, error)
    report(layers, tuned, search, time.perf_counter() - began, json, stopped)
    if stopped is not None:
        raise stopped
    if any(one.best is None and one.tried for one in tuned):
        raise typer.Exit(1)


def _executor(backend: Backend, request: TuneRequest, tasks: int
              ) -> AbstractContextManager[Executor | None]:
    """The executor that the request asks for; none where threads of this process build."""
    from dscore.cli.workers import executor_of

    if not request.halving:
        return executor_of(backend, request.workers, request.executor, tasks)
    if request.executor is not None or (request.workers or 1) > 1:
        raise SpecError("--halving tunes in one process, which builds in threads; leave "
                        f"{'--executor' if request.executor is not None else '--workers'} out")
    return nullcontext()


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
