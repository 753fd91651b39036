"""`dscore run`: plan, run and check every layer."""

from __future__ import annotations

import shlex
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import typer

from dscore import accuracy, api
from dscore.accuracy import Accuracy
from dscore.backend import Backend, choose_backend, require_accepted
from dscore.catalog import NamedProblem
from dscore.conformance import guarded_output, require_untouched
from dscore.device import Device
from dscore.errors import (
    CompileError,
    DscoreError,
    InfeasibleError,
    LaunchError,
    SpecError,
    UnavailableError,
    require_int,
)
from dscore.notation import problem_token
from dscore.plan import Plan, Rules
from dscore.tiling import Tiling

from .inputs import layers_of, reproduction, tiling_of
from .output import finite, print_json, print_table, progress
from .records import Record, problem_record

_VERDICTS = {InfeasibleError: "infeasible", CompileError: "not compiled", LaunchError: "not run"}
_COLUMNS = ("layer", "problem", "tiling", ">time ms", ">% of bound", "verdict")


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
    found = layers_of(layers, asked.batch)
    chosen, tiling = choose_backend(asked.backend), tiling_of(asked.tiling)
    device = chosen.device() if asked.device is None else api.device_of(asked.device)
    job, done = Job(asked, chosen, device, tiling), list[Outcome]()
    stopped: BaseException | None = None
    try:
        done.extend(_outcomes(job, found, done))
    except (KeyboardInterrupt, DscoreError) as error:
        stopped = error
    if done or stopped is None:
        _report(job, done, len(found), time.perf_counter() - began, json)
    if stopped is not None:
        raise stopped
    raise typer.Exit(max(outcome.exit_code for outcome in done))
