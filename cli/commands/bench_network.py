"""`dscore bench --network`: whole networks timed beside PyTorch, and the ablation."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dscore.cli.ending import error_record
from dscore.cli.inputs import (
    image_shape_of,
    measuring_backend,
    names_of,
    require_torch_package,
    workplace_of,
)
from dscore.cli.show.json import finite, print_json
from dscore.cli.show.text import counted, print_note, progress
from dscore.core.errors import DscoreError, SpecError, require_int

if TYPE_CHECKING:
    from dscore.bench.ablation import AblationRow
    from dscore.bench.network import NetworkComparison
    from dscore.bench.network_rows import NetworkRow
    from dscore.bench.network_workplace import Workplace

_BATCHES = "1,8,32,128"
_WITHOUT_GPU = "Without one, `dscore scan NETWORK --device h200` shows what is expected there"


@dataclass(frozen=True)
class NetworkRequest:
    """The options of the command line."""

    networks: tuple[str, ...]
    image: str
    task: str | None
    ablation: bool
    ways: str | None
    batch: str | None
    backend: str
    seed: int
    plot: str | None
    json: bool
    arithmetic: str
    dtype: str | None
    layout: str | None


def require_alone(layers: list[str] | None, replay: list[str] | None,
                  options: Mapping[str, Any]) -> None:
    """Raise SpecError for what a comparison of networks would ignore, of layers' *options*."""
    of_layers = ("cache", "device", "tiling", "out", "tf32", "markdown")
    given = {"layers": layers, "--replay": replay,
             **{f"--{name}": options[name] for name in of_layers},
             "--peer": options["peer"] != "torch"}
    if named := [name for name, value in given.items() if value]:
        raise SpecError(f"--network compares whole networks; leave out {', '.join(named)}")


def run(request: NetworkRequest) -> list[NetworkRow]:
    """Measure and report; the rows. What stopped the measurement is raised afterwards."""
    require_torch_package()
    began = time.perf_counter()
    comparison = _comparison(request)
    training = "training" in comparison.tasks
    if request.dtype == "int8" and (training or request.ablation):
        raise SpecError(f"{'--task training' if training else '--ablation'} is of floats: a model "
                        "of int8 has no gradients, and is quantised as a whole")
    measuring_backend(request.backend, _WITHOUT_GPU)
    workplace = workplace_of(request.backend, request.seed, request.arithmetic, request.dtype,
                             request.layout)
    rows: list[NetworkRow] = []
    ablations: list[AblationRow] = []
    stopped = _measure(request, comparison, workplace, rows, ablations)
    _report(request, workplace, rows, ablations, stopped, time.perf_counter() - began)
    if stopped is not None:
        raise stopped
    return rows


def _comparison(request: NetworkRequest) -> NetworkComparison:
    from dscore.bench.network import TASKS, NetworkComparison
    from dscore.bench.network_methods import WAYS
    from dscore.torch.models import factory_of

    shape = image_shape_of(request.image)
    for network in request.networks:
        factory_of(network)
    ways = WAYS if request.ways is None else names_of(request.ways, "--ways", WAYS)
    batches = tuple(require_int(int(part) if part.strip().isdecimal() else part, "--batch")
                    for part in (request.batch or _BATCHES).split(","))
    tasks = TASKS[:1] if request.task is None else names_of(request.task, "--task", TASKS)
    return NetworkComparison(request.networks, batches, shape, tasks, ways, request.backend,
                             request.seed)


def _measure(request: NetworkRequest, comparison: NetworkComparison, workplace: Workplace,
             rows: list[NetworkRow], ablations: list[AblationRow]) -> BaseException | None:
    """Measure case by case; the error that stopped this, or None."""
    from dscore.bench.ablation import ablation
    from dscore.bench.network import compare

    steps = len(request.networks) * len(comparison.batches)
    try:
        if request.ablation:
            with progress(steps) as begin:
                for one in comparison.single():
                    ablations += ablation(one, workplace, begin)
        else:
            with progress(steps * len(comparison.tasks)) as begin:
                for one in comparison.single():
                    rows += compare(one, workplace, begin)
    except (KeyboardInterrupt, DscoreError) as error:  # raised after the report
        return error
    return None


def _report(request: NetworkRequest, workplace: Workplace, rows: list[NetworkRow],
            ablations: list[AblationRow], stopped: BaseException | None, seconds: float) -> None:
    from dscore.cli.show import network as show

    prose = sys.stderr if request.json else sys.stdout
    if request.json:
        print_json({
            "device": workplace.title, "versions": workplace.versions, "seed": request.seed,
            "host_time": workplace.on_host, "seconds": seconds,
            "rows": [{**asdict(row), "error": row.error and finite(row.error)} for row in rows],
            "ablation": list(map(asdict, ablations)), **error_record(stopped)})
    else:
        show.print_rows(rows)
        show.print_ablation(ablations)
    for text in (*show.remarks(rows), f"on {workplace.title}; {workplace.versions}"):
        print_note(text, prose)
    if workplace.on_host:
        print_note("note: these are wall-clock times on this machine's processor, and say nothing "
                   "of a GPU", prose)
    if request.plot is not None:
        from dscore.cli.show.network_plots import draw

        for path in draw(rows, ablations, workplace.title, request.plot):
            print(f"wrote {path}", file=prose)
    print_note(f"{counted(len(rows) + len(ablations), 'measurement')}, {seconds:.1f} s", prose)
