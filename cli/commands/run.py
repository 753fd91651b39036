"""`dscore run`: plan, run and check every layer."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, cast

import typer

from dscore.cli import options
from dscore.cli.ending import error_record
from dscore.cli.inputs import layers_of, missing_for_gpus, reproduction, tiling_of
from dscore.cli.show.json import Record, accuracy_record, finite, print_json, problem_record
from dscore.cli.show.text import compiling, counted, print_note, print_table, print_text, progress
from dscore.core.errors import CompileError, DscoreError, SpecError, UnavailableError, require_int
from dscore.core.text import percent

if TYPE_CHECKING:
    from dscore.checking.bound import Accuracy
    from dscore.core.backend import Backend, Kernel
    from dscore.core.catalog import NamedProblem
    from dscore.core.device import Device
    from dscore.core.plan import Plan, ResourceUse, Rules
    from dscore.core.problem import ConvProblem
    from dscore.core.tiling import Tiling

_COLUMNS = ("layer", "problem", "tiling", ">time ms", ">% of\nbound", "verdict")
_SPARE = ("problem", "% of\nbound")


@dataclass(frozen=True)
class RunRequest:
    """The options of the command line."""

    backend: str
    device: str | None
    rules: str
    tiling: str | None
    batch: int | None
    seed: int
    repeats: int
    arithmetic: str


def run(
    layers: options.Layers,
    backend: options.BackendName = "auto",
    device: options.OwnDeviceName = None,
    rules: options.RulesName = "hardware",
    tiling: options.TilingFields = None,
    arithmetic: options.Arithmetic = "sum",
    batch: options.Batch = None,
    seed: options.Seed = 0,
    repeats: Annotated[int, typer.Option(
        "--repeats", metavar="N", help="Time N runs of each layer, and show their median.")] = 1,
    json: options.Json = False,
) -> None:
    """Run layers and check each result.

    Each layer is planned and run on random data. Its result is right if every output is as close
    to the exact one as the bound of its arithmetic asks, and no other memory was written to.

    \b
    dscore run mobilenet_v2
    dscore run P1-P45 --batch 8 --repeats 20
    dscore run n1c8h5w5_o8k3p1g8 --backend reference --device h200

    Ends with 1 if a layer fails, 4 or 5 if a compiler or a device failed.
    """
    _run(layers, RunRequest(backend, device, rules, tiling, batch, seed, repeats, arithmetic), json)


@dataclass(frozen=True)
class _Job:
    """Request, backend, device and tiling that all layers share."""

    request: RunRequest
    backend: Backend
    device: Device
    tiling: Tiling | None

    @property
    def on_host(self) -> bool:
        """Whether times are of this computer's processor, and not of the device."""
        from dscore.core.backend import GpuBackend

        return not isinstance(self.backend, GpuBackend)


@dataclass(frozen=True)
class _Outcome:
    """Result of one layer; `message` is empty where it is right."""

    layer: NamedProblem
    plan: Plan | None = None
    use: ResourceUse | None = None
    seconds: float | None = None
    accuracy: Accuracy | None = None
    verdict: str = "right"
    message: str = ""
    exit_code: int = 0
    reproduce: str = ""

    @property
    def ok(self) -> bool:
        """Whether the layer ran and is right."""
        return not self.message


def _run(names: list[str], request: RunRequest, json: bool) -> None:
    """Run all layers and print their results; exit with the worst failure's code."""
    from dscore import api
    from dscore.core.backend import choose_backend

    began = time.perf_counter()
    require_int(request.repeats, "--repeats")
    require_int(request.seed, "--seed", 0)
    layers, tiling = layers_of(names, request.batch, request.arithmetic), tiling_of(request.tiling)
    backend = choose_backend(request.backend)
    device = backend.device() if request.device is None else api.device_of(request.device)
    job, outcomes = _Job(request, backend, device, tiling), list[_Outcome]()
    stopped: BaseException | None = None
    try:
        _compile_together(job, layers)
        with progress(len(layers)) as begin:
            for layer in layers:
                begin(layer.name)
                outcomes.append(_outcome(job, layer))
    except (KeyboardInterrupt, DscoreError) as error:
        stopped = error
    if outcomes:
        _report(job, outcomes, len(layers), time.perf_counter() - began, json, stopped)
    if stopped is not None:
        raise stopped
    raise typer.Exit(max(outcome.exit_code for outcome in outcomes))


def _compile_together(job: _Job, layers: list[NamedProblem]) -> None:
    """Compile the kernels of several layers on all cores, before the first is run.

    A layer that cannot be planned or compiled says so when its turn comes.
    """
    problems = dict.fromkeys(layer.problem for layer in layers)
    if not job.backend.compiles or len(problems) < 2:
        return
    plans = []
    for problem in problems:
        with suppress(DscoreError):
            plans.append(_plan(job, problem))
    with suppress(CompileError), compiling(len(plans)) as step:
        job.backend.prepare(plans, step)


def _plan(job: _Job, problem: ConvProblem) -> Plan:
    """The plan of a problem; UnavailableError where the backend refuses it."""
    from dscore import api
    from dscore.core.backend import require_accepted

    plan = api.plan_for(problem, job.device, cast("Rules", job.request.rules), job.tiling,
                        job.backend)
    require_accepted(job.backend, plan)
    return plan


def _outcome(job: _Job, layer: NamedProblem) -> _Outcome:
    """Plan, run and check one layer.

    Raises SpecError and UnavailableError: these are of the request, not of the layer.
    """
    from dscore.calling import choice

    plan = use = None
    try:
        plan = _plan(job, layer.problem)
        kernel = (choice.unspilled_kernel(job.backend, plan) if job.tiling is None
                  else job.backend.compile(plan))
        plan, use = kernel.plan, kernel.use
        accuracy, seconds = _measured(job, kernel)
    except (SpecError, UnavailableError):
        raise
    except DscoreError as error:
        return _Outcome(layer, plan, use, None, None, error.fault or "FAILED", str(error),
                        error.exit_code, _reproduction(job, layer, plan))
    if accuracy.ok:
        return _Outcome(layer, plan, use, seconds, accuracy)
    return _Outcome(layer, plan, use, seconds, accuracy, "WRONG", str(accuracy), 1,
                    _reproduction(job, layer, plan))


def _measured(job: _Job, kernel: Kernel) -> tuple[Accuracy, float]:
    """How one run compares with the exact result, and the median time of the repeats."""
    import statistics

    from dscore.checking.bound import blank, sample
    from dscore.checking.check import check_kernel

    problem, repeats = kernel.plan.problem, job.request.repeats
    inputs = sample(problem, job.request.seed)
    accuracy = check_kernel(kernel.plan, kernel, *inputs)
    return accuracy, statistics.median(kernel.seconds(*inputs, *blank(problem), repeats=repeats))


def _reproduction(job: _Job, layer: NamedProblem, plan: Plan | None) -> str:
    request = job.request
    if plan is not None:
        return reproduction(request.backend, plan, request.seed, request.device)
    token = problem_record(layer.problem)["problem"]
    words = ["dscore", "run", token, "--backend", request.backend, "--device",
             request.device or job.device.name, "--rules", request.rules]
    return shlex.join([*words, "--tiling", request.tiling] if request.tiling else words)


def _heading(job: _Job) -> str:
    """Which device and backend run, and whose time the table shows."""
    device = job.device
    whose = "the GPU's" if not job.on_host else (
        f"of this computer's processor, and say nothing of {device.name}")
    return (f"plans for {device.name} ({device.title}), run by the backend {job.backend.name}\n"
            f"times are {whose}\n{_unused_gpu(job)}\n")


def _unused_gpu(job: _Job) -> str:
    """A line on a GPU that is here, though nobody asked for a backend of the host's."""
    from dscore.core.backend import gpu_here

    gpu = gpu_here() if job.request.backend == "auto" and job.on_host else None
    return "" if gpu is None else (
        f"the {gpu.title} of this computer is not used ({missing_for_gpus()})\n")


def _report(job: _Job, outcomes: list[_Outcome], total: int, seconds: float, json: bool,
            stopped: BaseException | None) -> None:
    if json:
        print_json({**_record(job, outcomes, total, seconds), **error_record(stopped)})
    else:
        print_note(_heading(job))
        print_table(_COLUMNS, [_row(outcome) for outcome in outcomes], verdict=True, spare=_SPARE)
        print()
    # With --json stdout is for the data alone.
    prose = sys.stderr if json else sys.stdout
    for outcome in outcomes:
        if outcome.plan and outcome.use and outcome.plan.surprise(outcome.use):
            print_note(f"{outcome.layer.name}: {outcome.plan.surprise(outcome.use)}", prose)
        if not outcome.ok:
            print_text(f"{outcome.layer.name}: {outcome.message}", prose)
            print(f"  reproduce  {outcome.reproduce}\n", file=prose)
    print_note(_summary(outcomes, total, seconds), prose)


def _row(outcome: _Outcome) -> tuple[str, ...]:
    seconds, accuracy = outcome.seconds, outcome.accuracy
    # The tiling's name tells the kind of convolution.
    return (outcome.layer.name, str(outcome.layer.problem).partition(" ")[2],
            outcome.plan.tiling.name if outcome.plan else "",
            "" if seconds is None else f"{seconds * 1e3:,.3f}",
            "" if accuracy is None else accuracy.shown, outcome.verdict)


def _summary(outcomes: list[_Outcome], total: int, seconds: float) -> str:
    from dscore.calling import choice

    compared = [one.accuracy for one in outcomes if one.accuracy]
    worst = max((one.share for one in compared if one.arithmetic != "exact"), default=None)
    count = f"{len(outcomes)} of " if len(outcomes) < total else ""
    parts = [count + counted(total, "layer"), f"{sum(outcome.ok for outcome in outcomes)} right"]
    parts += [f"worst error {percent(worst)} of the bound"] if worst is not None else []
    for bound in sorted({one.arithmetic for one in compared} - {"sum"}):
        words = "held to equality" if bound == "exact" else f"by the bound of {bound}"
        parts.append(f"{counted(sum(x.arithmetic == bound for x in compared), 'layer')} {words}")
    hinted = sum(o.plan is not None and choice.origin(o.plan) == "hint" for o in outcomes)
    parts += [f"{hinted} planned by shipped hints"] if hinted else []
    return ", ".join([*parts, f"{seconds:.1f} s"])


def _record(job: _Job, outcomes: list[_Outcome], total: int, seconds: float) -> Record:
    worst = max((one.accuracy.share for one in outcomes if one.accuracy), default=None)
    return {"backend": job.backend.name, "device": job.device.name, "host_time": job.on_host,
            "rules": job.request.rules, "seed": job.request.seed, "repeats": job.request.repeats,
            "asked": total, "ran": len(outcomes), "right": sum(outcome.ok for outcome in outcomes),
            "worst_share": None if worst is None else finite(worst), "seconds": seconds,
            "layers": [_layer_record(one, job.tiling is not None) for one in outcomes]}


def _layer_record(outcome: _Outcome, named: bool) -> Record:
    from dscore.calling import choice

    plan = outcome.plan
    return {"layer": outcome.layer.name, **problem_record(outcome.layer.problem),
            "tiling": plan and plan.tiling.as_json(), "plan": plan and plan.name,
            "chosen_by": plan and choice.origin_text(plan, named),
            "use": outcome.use and asdict(outcome.use),
            "seconds": outcome.seconds, **accuracy_record(outcome.accuracy),
            "ok": outcome.ok, "verdict": outcome.verdict, "message": outcome.message,
            "reproduce": outcome.reproduce}
