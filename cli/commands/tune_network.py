"""`dscore tune --network`: tilings of all layers of a network, tried in its captured graph."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dscore.cli.inputs import (
    batches_of,
    image_shape_of,
    measuring_backend,
    require_torch_package,
    workplace_of,
)
from dscore.cli.show.network_tuning import report
from dscore.cli.show.screen import screen
from dscore.core.errors import DscoreError, SpecError

if TYPE_CHECKING:
    from dscore.bench.network_tuning import NetworkTuning
    from dscore.bench.network_workplace import Workplace

_BATCH = (1,)
_WITHOUT_GPU = "Without one, `dscore scan NETWORK --device h200` shows what is expected there"


@dataclass(frozen=True)
class NetworkTuneRequest:
    """The options of the command line."""

    networks: tuple[str, ...]
    image: str
    batch: str | None
    budget: float | None  # seconds
    backend: str
    top: int
    seed: int
    arithmetic: str
    dtype: str | None
    layout: str | None
    json: bool


def require_alone(layers: list[str] | None, options: Mapping[str, Any]) -> None:
    """Raise SpecError for what tuning in a network would ignore, of the other *options*."""
    of_layers = ("device", "exhaustive", "algorithm", "workers", "executor", "halving", "behind")
    given = {"layers": layers, **{f"--{name}": options[name] for name in of_layers}}
    if named := [name for name, value in given.items() if value]:
        raise SpecError("--network tunes the layers of a network where they run; leave out "
                        f"{', '.join(named)}")


def run(request: NetworkTuneRequest) -> None:
    """Tune, and print what is known at the end, after an interruption too."""
    require_torch_package()
    from dscore.torch.models import factory_of

    began, shape = time.perf_counter(), image_shape_of(request.image)
    for network in request.networks:
        factory_of(network)
    measuring_backend(request.backend, _WITHOUT_GPU)
    workplace = workplace_of(request.backend, request.seed, request.arithmetic, request.dtype,
                             request.layout)
    tunings: list[NetworkTuning] = []
    stopped = _tune(request, shape[1:], workplace, tunings)
    report([one.result for one in tunings], workplace, time.perf_counter() - began, request.json,
           stopped)
    if stopped is not None:
        raise stopped


def _tune(request: NetworkTuneRequest, image: tuple[int, ...], workplace: Workplace,
          tunings: list[NetworkTuning]) -> BaseException | None:
    """Tune network by network, each in its share of the time; the error that ended this, or None.
    """
    from dscore.bench.network_tuning import NetworkTuning

    cases = [(network, batch) for network in request.networks
             for batch in batches_of(request.batch) or _BATCH]
    ends = time.monotonic() + (request.budget or math.inf)
    try:
        for number, (network, batch) in enumerate(cases):
            with _bar(f"{network} batch {batch}") as advance:
                now = time.monotonic()
                until = now + (ends - now) / (len(cases) - number)
                tunings.append(NetworkTuning(network, (batch, *image), workplace, request.top,
                                             until, advance))
                tunings[-1].run()
            workplace.runner.release()
    except SpecError:  # nothing was begun
        raise
    except (KeyboardInterrupt, DscoreError) as error:  # raised after the report
        return error
    return None


@contextmanager
def _bar(name: str) -> Iterator[Callable[[int, int, float], None]]:
    """A bar of rounds on stderr with the time left; none where stderr is no terminal, nor with
    --quiet.
    """
    if screen.quiet or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}",
                  markup=False), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{name}: building", total=1.0)

        def advance(done: int, total: int, seconds: float) -> None:
            bar.update(task, completed=done, total=total, description=(
                f"{name}: round {done} of {total}, {seconds * 1e6:,.1f} µs"))

        yield advance
