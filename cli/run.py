"""`dscore run`: plan, run and check every layer."""

from __future__ import annotations

import shlex
import statistics
import sys
import time
from dataclasses import dataclass
from typing import cast

import numpy as np
import typer

from dscore import api
from dscore.calling import choice
from dscore.checking import bound
from dscore.checking.bound import Accuracy
from dscore.checking.check import check_kernel
from dscore.cli.inputs import layers_of, reproduction, tiling_of
from dscore.cli.output import counted, finite, print_json, print_table, print_text, progress
from dscore.cli.records import Record, problem_record
from dscore.core.backend import Backend, choose_backend, require_accepted
from dscore.core.catalog import NamedProblem
from dscore.core.device import Device
from dscore.core.errors import (
    CompileError,
    DscoreError,
    InfeasibleError,
    LaunchError,
    SpecError,
    UnavailableError,
    require_int,
)
from dscore.core.plan import Plan, Rules
from dscore.core.tiling import Tiling
from dscore.core.token import problem_token

_VERDICTS = {InfeasibleError: "infeasible", CompileError: "not compiled", LaunchError: "not run"}
_COLUMNS = ("layer", "problem", "tiling", ">time ms", ">% of\nbound", "verdict")


@dataclass(frozen=True)
class Request:
    """The command line."""

    backend: str
    device: str | None
    rules: str
    tiling: str | None
    batch: int | None
    seed: int
    repeats: int


@dataclass(frozen=True)
class Job:
    """What all layers share."""

    asked: Request
    backend: Backend
    device: Device
    tiling: Tiling | None


@dataclass(frozen=True)
class Outcome:
    """What became of one layer; `message` is empty where it is right."""

    layer: NamedProblem
    plan: Plan | None = None
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


def run(layers: list[str], asked: Request, json: bool) -> None:
    """Run all layers and print what became of them; exit with the worst failure's code."""
    began = time.perf_counter()
    require_int(asked.repeats, "--repeats")
    require_int(asked.seed, "--seed", 0)
    found, tiling = layers_of(layers, asked.batch), tiling_of(asked.tiling)
    chosen = choose_backend(asked.backend)
    device = chosen.device() if asked.device is None else api.device_of(asked.device)
    job, done = Job(asked, chosen, device, tiling), list[Outcome]()
    stopped: BaseException | None = None
    try:
        with progress(len(found)) as begin:
            for layer in found:
                begin(layer.name)
                done.append(_outcome(job, layer))
    except (KeyboardInterrupt, DscoreError) as error:
        stopped = error
    if done:
        _report(job, done, len(found), time.perf_counter() - began, json)
    if stopped is not None:
        raise stopped
    raise typer.Exit(max(outcome.exit_code for outcome in done))


def _outcome(job: Job, layer: NamedProblem) -> Outcome:
    """Plan, run and judge one layer; what is wrong with the request itself is raised."""
    plan = None
    try:
        plan = api.plan_for(layer.problem, job.device, cast(Rules, job.asked.rules), job.tiling,
                            job.backend)
        require_accepted(job.backend, plan)
        judged, seconds = _measured(job, plan)
    except (SpecError, UnavailableError):
        raise
    except DscoreError as failed:
        verdict = next((said for kind, said in _VERDICTS.items() if isinstance(failed, kind)),
                       "FAILED")
        return Outcome(layer, plan, None, None, verdict, str(failed), failed.exit_code,
                       _reproduction(job, layer, plan))
    if judged.ok:
        return Outcome(layer, plan, seconds, judged)
    return Outcome(layer, plan, seconds, judged, "WRONG", str(judged), 1,
                   _reproduction(job, layer, plan))


def _measured(job: Job, plan: Plan) -> tuple[Accuracy, float]:
    """How one run compares with the exact result, and the median time of the repeats."""
    kernel, (x, w, bias) = job.backend.compile(plan), bound.sample(plan.problem, job.asked.seed)
    judged, out = check_kernel(plan, kernel, x, w, bias), np.empty(plan.problem.y_shape, x.dtype)
    return judged, statistics.median(kernel.seconds(x, w, bias, out, job.asked.repeats))


def _reproduction(job: Job, layer: NamedProblem, plan: Plan | None) -> str:
    asked = job.asked
    if plan is not None:
        return reproduction(asked.backend, plan, asked.seed, asked.device)
    words = ["dscore", "run", problem_token(layer.problem), "--backend", asked.backend,
             "--device", asked.device or job.device.name, "--rules", asked.rules]
    return shlex.join([*words, "--tiling", asked.tiling] if asked.tiling else words)


def _report(job: Job, done: list[Outcome], asked: int, seconds: float, json: bool) -> None:
    if json:
        print_json(_record(job, done, asked, seconds))
    else:
        print_table(_COLUMNS, [_row(outcome) for outcome in done], verdict=True)
        print()
    # With --json stdout is for the data alone.
    prose = sys.stderr if json else sys.stdout
    for outcome in done:
        if not outcome.ok:
            print_text(f"{outcome.layer.name}: {outcome.message}", prose)
            print(f"  reproduce  {outcome.reproduce}\n", file=prose)
    print(_summary(done, asked, seconds), file=prose)


def _row(outcome: Outcome) -> tuple[str, ...]:
    seconds, judged = outcome.seconds, outcome.accuracy
    # The tiling's name tells the kind of convolution.
    return (outcome.layer.name, str(outcome.layer.problem).partition(" ")[2],
            outcome.plan.tiling.name if outcome.plan else "",
            "" if seconds is None else f"{seconds * 1e3:,.3f}",
            "" if judged is None else _percent(judged.share), outcome.verdict)


def _percent(share: float) -> str:
    """A share in percent; one that is far out is told by its size."""
    return f"{share:.1%}" if share < 10 else f"{share * 100:.1e}%"


def _worst(done: list[Outcome]) -> float | None:
    return max((outcome.accuracy.share for outcome in done if outcome.accuracy), default=None)


def _summary(done: list[Outcome], asked: int, seconds: float) -> str:
    worst = _worst(done)
    count = f"{len(done)} of " if len(done) < asked else ""
    parts = [count + counted(asked, "layer"), f"{sum(outcome.ok for outcome in done)} right"]
    parts += [f"worst error {_percent(worst)} of the bound"] if worst is not None else []
    hinted = sum(o.plan is not None and choice.origin(o.plan) == "hint" for o in done)
    parts += [f"{hinted} by shipped hints"] if hinted else []
    return ", ".join([*parts, f"{seconds:.1f} s"])


def _record(job: Job, done: list[Outcome], asked: int, seconds: float) -> Record:
    worst = _worst(done)
    return {"backend": job.backend.name, "device": job.device.name, "rules": job.asked.rules,
            "seed": job.asked.seed, "repeats": job.asked.repeats, "asked": asked,
            "ran": len(done), "right": sum(outcome.ok for outcome in done),
            "worst_share": None if worst is None else finite(worst), "seconds": seconds,
            "layers": [_layer_record(outcome) for outcome in done]}


def _layer_record(outcome: Outcome) -> Record:
    plan, judged = outcome.plan, outcome.accuracy
    return {"layer": outcome.layer.name, **problem_record(outcome.layer.problem),
            "tiling": plan and plan.tiling.as_json(), "plan": plan and plan.name,
            "chosen_by": plan and choice.origin_said(plan),
            "seconds": outcome.seconds, "share": judged and finite(judged.share),
            "ok": outcome.ok, "verdict": outcome.verdict, "message": outcome.message,
            "reproduce": outcome.reproduce}
