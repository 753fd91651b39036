"""Tuning of problems on a backend within a budget of time, in this process or by workers."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from dscore.core.backend import choose_backend
from dscore.core.device import Device
from dscore.core.errors import (
    CompileError,
    DscoreError,
    LaunchError,
    SpecError,
    require_int,
    require_one_of,
)
from dscore.core.once import once
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.core.token import parse_problem, problem_token
from dscore.tuning import records
from dscore.tuning.behind import BehindEvaluator, require_graphs
from dscore.tuning.builder import Builder, wave_size
from dscore.tuning.evaluator import HostEvaluator, Timer, default_evaluator
from dscore.tuning.halving import halve_all
from dscore.tuning.measurement_policy import MeasurementPolicy
from dscore.tuning.search import SearchResult, candidates, known_result, search_one
from dscore.tuning.trials import SearchRequest

TOP = 32
# What tuning inside a call may take, where the environment asks for it.
_CALL_SECONDS = 30.0


@dataclass(frozen=True)
class Step:
    """Progress of tuning."""

    problem: ConvProblem
    number: int  # problems that are finished
    of: int
    done: int  # configurations of *problem*
    total: int
    best: float | None  # seconds


def search_request(device: Device | None = None, backend: str = "auto", top: int = TOP,
                   exhaustive: bool = False, seed: int = 0, timer: Timer | None = None,
                   policy: MeasurementPolicy | None = None,
                   algorithm: str | None = None, halving: bool = False,
                   behind: bool = False) -> SearchRequest:
    """Request that the arguments of `tune` make."""
    require_int(top, "top")
    require_int(seed, "seed", 0)
    if (timer is None) != (policy is None):
        raise SpecError("a timer and its policy go together, for records are kept by it")
    if timer is not None and behind:
        raise SpecError("a timer of the caller's own times one kernel, and none behind another "
                        "layer; leave timer or behind out")
    loaded = choose_backend(backend)
    target = device or loaded.device()
    if timer is None or policy is None:
        evaluator, policy = default_evaluator(loaded, target, halving)
    else:
        evaluator = partial(HostEvaluator, timer=timer)
    if behind:
        require_graphs(loaded, policy)
    return SearchRequest(loaded.name if backend == "auto" else backend, target,
                         None if exhaustive else top, seed, evaluator, policy, algorithm, halving,
                         BehindEvaluator if behind else None)


def tune(problem: ConvProblem, device: Device | None = None, backend: str = "auto",
         budget_seconds: float | None = None, top: int = TOP, exhaustive: bool = False,
         seed: int = 0, executor: Executor | None = None,
         progress: Callable[[Step], object] | None = None, timer: Timer | None = None,
         policy: MeasurementPolicy | None = None, algorithm: str | None = None,
         behind: bool = False) -> SearchResult:
    """Find the fastest right tiling of *problem* among the model's first *top*, or among all.

    *algorithm* names whose tilings (`dscore.solving.solver.algorithms`); by default those that
    the solver compares.

    Every candidate is built, held to the error bound on random data, and only then timed: on a GPU
    by graphs with cold caches, elsewhere by the kernel itself. One whose kernel spills is refused
    untimed. The caller's own *timer* takes a kernel, its operands and a number of runs, returns
    seconds, and measures by *policy*. Tilings on record are not measured again. Every measurement
    is on record at once: an interruption, or the end of *budget_seconds*, loses nothing.

    *behind*: tilings of a depthwise layer are also timed behind a pointwise layer that writes their
    input, and the least sum of both times wins (dscore.tuning.behind).

    Raises UnavailableError where the backend cannot run, CompileError where nothing compiles,
    LaunchError where the device fails, SpecError where *algorithm* does not run *problem*, or
    where *backend* captures no graphs of a GPU to time kernels *behind* another layer in.
    """
    return tune_all([problem], device, backend, budget_seconds, top, exhaustive, seed, executor,
                    progress, timer, policy, algorithm, behind=behind)[0]


def tune_all(problems: Sequence[ConvProblem], device: Device | None = None, backend: str = "auto",
             budget_seconds: float | None = None, top: int = TOP, exhaustive: bool = False,
             seed: int = 0, executor: Executor | None = None,
             progress: Callable[[Step], object] | None = None, timer: Timer | None = None,
             policy: MeasurementPolicy | None = None, algorithm: str | None = None,
             halving: bool = False, behind: bool = False) -> list[SearchResult]:
    """`tune` for many problems, which share *budget_seconds*; equal ones are tuned once.

    An *executor* is given one task for each problem; without one, the kernels of several problems
    are built together. *halving* searches by `dscore.tuning.halving`, without an executor.
    """
    if budget_seconds is not None and not (budget_seconds > 0):
        raise SpecError(f"budget_seconds must be positive, got {budget_seconds}")
    request = search_request(device, backend, top, exhaustive, seed, timer, policy, algorithm,
                             halving, behind)
    distinct = {problem_token(problem): problem for problem in problems}
    budget = math.inf if budget_seconds is None else budget_seconds
    if halving and executor is not None:
        raise SpecError("halving builds in threads of this process; leave the executor out")
    tuning = (_InProcess(request, budget, progress) if executor is None
              else _ByExecutor(request, budget, executor, progress))
    results = dict(zip(distinct, tuning.results(list(distinct.values())), strict=True))
    return [results[problem_token(problem)] for problem in problems]


class _InProcess:
    """Tuning in this process, problem by problem."""

    def __init__(self, request: SearchRequest, budget: float,
                 progress: Callable[[Step], object] | None) -> None:
        self._request, self._progress = request, progress
        self._until = time.monotonic() + budget
        self._backend = choose_backend(request.backend)
        self._builder = Builder(self._backend)

    def results(self, problems: list[ConvProblem]) -> list[SearchResult]:
        """Results of all problems; those that were short of time go on while any is left."""
        if self._request.halving:
            return self._halved(problems)
        results: list[SearchResult] = []
        for number, plans in enumerate(self._built_plans(problems)):
            share = (self._until - time.monotonic()) / (len(problems) - number)
            results.append(self._search(problems, number, plans, time.monotonic() + max(share, 0)))
        if time.monotonic() < self._until < math.inf:
            for number, result in enumerate(results):
                if not result.complete:
                    results[number] = self._search(problems, number, None, self._until)
        return results

    def _halved(self, problems: list[ConvProblem]) -> list[SearchResult]:
        """Results of all problems; of those that were not begun in time by what is on record."""
        def report(number: int, done: int, total: int, best: float | None) -> None:
            if self._progress is not None:
                self._progress(Step(problems[number], number, len(problems), done, total, best))

        halved = halve_all(self._request, self._backend, problems, self._until, report)
        return [halved.get(number) or known_result(self._request, self._backend, problem)
                for number, problem in enumerate(problems)]

    def _built_plans(self, problems: list[ConvProblem]) -> Iterator[list[Plan]]:
        """Plans of each problem; those of several problems are built together, to use all cores."""
        group: list[list[Plan]] = []
        for number, problem in enumerate(problems):
            group.append(candidates(self._request, self._backend, problem))
            if sum(map(len, group)) >= wave_size() or number + 1 == len(problems):
                self._build(group)
                yield from group
                group = []

    def _build(self, group: list[list[Plan]]) -> None:
        """Build the plans that are not on record; a plan that does not compile is found later, when
        its problem is built alone.
        """
        if len(group) == 1 or not self._backend.compiles:
            return
        known = [known_result(self._request, self._backend, plans[0].problem, plans).record
                 for plans in group]
        untried = [plan for plans, record in zip(group, known, strict=True) for plan in plans
                   if plan.tiling.name not in record.configurations]
        if untried and time.monotonic() + self._builder.slowest < self._until:
            with suppress(CompileError):
                self._backend.prepare(untried)

    def _search(self, problems: list[ConvProblem], number: int, plans: list[Plan] | None,
                until: float) -> SearchResult:
        def report(done: int, total: int, best: float | None) -> None:
            if self._progress is not None:
                self._progress(Step(problems[number], number, len(problems), done, total, best))

        return search_one(self._request, self._backend, problems[number], self._builder, until,
                          report, plans)


class _ByExecutor:
    """Tuning by an executor, a task for each problem."""

    def __init__(self, request: SearchRequest, budget: float, executor: Executor,
                 progress: Callable[[Step], object] | None) -> None:
        self._request, self._executor, self._progress = request, executor, progress
        # Of the clock that machines share, as far as they do.
        self._deadline = time.time() + budget

    def results(self, problems: list[ConvProblem]) -> list[SearchResult]:
        """Results of all problems; where one fails, those that are not begun are cancelled."""
        workers = int(getattr(self._executor, "_max_workers", 1) or 1)
        tasks = [self._executor.submit(_task, self._request, problem_token(problem),
                                       -(-(len(problems) - number) // workers), self._deadline)
                 for number, problem in enumerate(problems)]
        results: list[SearchResult] = []
        try:
            for task, problem in zip(tasks, problems, strict=True):
                results.append(task.result())
                self._report(results[-1], problem, len(results), len(problems))
        except BrokenExecutor as broken:
            raise LaunchError(f"a worker died: {broken}; begin again, what was measured is "
                              "kept") from broken
        finally:
            for task in tasks:
                task.cancel()
        return results

    def _report(self, result: SearchResult, problem: ConvProblem, number: int, of: int) -> None:
        if self._progress is not None:
            best = None if result.best is None else result.best.seconds
            self._progress(Step(problem, number, of, result.candidates, result.candidates, best))


def _task(request: SearchRequest, token: str, rounds: int, deadline: float) -> SearchResult:
    """Task of a worker: one problem, in its share of the time; *rounds* are left for a worker."""
    backend = choose_backend(request.backend)
    share = max(deadline - time.time(), 0) / rounds
    return search_one(request, backend, parse_problem(token), Builder(backend),
                      time.monotonic() + share)


def wanted() -> bool:
    """Whether the environment asks for tuning inside calls (``DSCORE_TUNE=on``)."""
    return bool(require_one_of(os.environ.get("DSCORE_TUNE", "") or "off", "DSCORE_TUNE",
                               ("on", "off")) == "on")


@once
def on_demand(problem: ConvProblem, device: Device, backend: str) -> Plan | None:
    """Plan of *problem* after tuning it, once in a process's life; None where nothing is right.

    Must not be called while a graph is captured: building and timing would become part of it.
    """
    with suppress(DscoreError):
        tune(problem, device, backend, budget_seconds=_CALL_SECONDS)
    return records.tuned_plan(problem, device, backend)
