"""Tuning: the candidates of problems measured on a backend within a budget, here or by workers."""

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
from dscore.tuning.evaluator import HostEvaluator, Timer, default_evaluator
from dscore.tuning.measurement import Policy
from dscore.tuning.search import Tuned, candidates, search_one, standing
from dscore.tuning.trials import Builder, Search, wave_size

__all__ = ["Search", "Step", "Timer", "Tuned", "on_demand", "search_of",
           "standing", "tune", "tune_all"]

TOP = 32
# What tuning inside a call may take, where the environment asks for it.
_CALL_SECONDS = 30.0


@dataclass(frozen=True)
class Step:
    """How far tuning has come."""

    problem: ConvProblem
    number: int  # problems that are finished
    of: int
    done: int  # configurations of this one
    total: int
    best: float | None  # seconds


def search_of(device: Device | None = None, backend: str = "auto", top: int = TOP,
              exhaustive: bool = False, seed: int = 0, timer: Timer | None = None,
              policy: Policy | None = None, algorithm: str | None = None) -> Search:
    """The search that the arguments of `tune` ask for."""
    require_int(top, "top")
    require_int(seed, "seed", 0)
    if (timer is None) != (policy is None):
        raise SpecError("a timer and its policy go together, for records are kept by it")
    chosen = choose_backend(backend)
    target = device or chosen.device()
    if timer is None or policy is None:
        evaluator, policy = default_evaluator(chosen, target)
    else:
        evaluator = partial(HostEvaluator, timer=timer)
    return Search(chosen.name if backend == "auto" else backend, target,
                  None if exhaustive else top, seed, evaluator, policy, algorithm)


def tune(problem: ConvProblem, device: Device | None = None, backend: str = "auto",
         budget_seconds: float | None = None, top: int = TOP, exhaustive: bool = False,
         seed: int = 0, executor: Executor | None = None,
         progress: Callable[[Step], object] | None = None, timer: Timer | None = None,
         policy: Policy | None = None, algorithm: str | None = None) -> Tuned:
    """Find the fastest right tiling of *problem* among the model's first *top*, or among all.

    *algorithm* names whose (`dscore.solving.solver.algorithms`); by default the solver's first
    choice.

    Every candidate is built, held to the error bound on random data, and only then timed: on a GPU
    by graphs with cold caches, elsewhere by the kernel itself, or by a *timer* of the caller's
    (given a kernel, x, w, bias, out and a number of runs; returns seconds), which measures by
    *policy*. What is on record is not measured again, and all that is measured is on
    record at once: an interruption, or the end of *budget_seconds*, loses nothing.

    Raises UnavailableError where the backend cannot run, CompileError where nothing compiles,
    LaunchError where the device fails, SpecError where *algorithm* does not run *problem*.
    """
    return tune_all([problem], device, backend, budget_seconds, top, exhaustive, seed, executor,
                    progress, timer, policy, algorithm)[0]


def tune_all(problems: Sequence[ConvProblem], device: Device | None = None, backend: str = "auto",
             budget_seconds: float | None = None, top: int = TOP, exhaustive: bool = False,
             seed: int = 0, executor: Executor | None = None,
             progress: Callable[[Step], object] | None = None, timer: Timer | None = None,
             policy: Policy | None = None, algorithm: str | None = None) -> list[Tuned]:
    """`tune` for many problems, which share *budget_seconds*; equal ones are tuned once.

    An *executor* is given one task for each problem; without one, the kernels of several problems
    are built together.
    """
    if budget_seconds is not None and not (budget_seconds > 0):
        raise SpecError(f"budget_seconds must be positive, got {budget_seconds}")
    search = search_of(device, backend, top, exhaustive, seed, timer, policy, algorithm)
    distinct = {problem_token(problem): problem for problem in problems}
    budget = math.inf if budget_seconds is None else budget_seconds
    run = _Here(search, budget, progress) if executor is None else _There(search, budget, executor,
                                                                          progress)
    found = dict(zip(distinct, run.tuned(list(distinct.values())), strict=True))
    return [found[problem_token(problem)] for problem in problems]


class _Here:
    """Tuning in this process, problem by problem."""

    def __init__(self, search: Search, budget: float,
                 progress: Callable[[Step], object] | None) -> None:
        self._search, self._progress = search, progress
        self._until = time.monotonic() + budget
        self._chosen = choose_backend(search.backend)
        self._builder = Builder(self._chosen)

    def tuned(self, problems: list[ConvProblem]) -> list[Tuned]:
        """All of them, and again those that were short of time as long as any is left."""
        found: list[Tuned] = []
        for number, plans in enumerate(self._ahead(problems)):
            share = (self._until - time.monotonic()) / (len(problems) - number)
            found.append(self._one(problems, number, plans, time.monotonic() + max(share, 0)))
        if time.monotonic() < self._until < math.inf:
            for number, known in enumerate(found):
                if not known.complete:
                    found[number] = self._one(problems, number, None, self._until)
        return found

    def _ahead(self, problems: list[ConvProblem]) -> Iterator[list[Plan]]:
        """The plans of each problem; of several at once they are built, to use all cores."""
        group: list[list[Plan]] = []
        for number, problem in enumerate(problems):
            group.append(candidates(self._search, self._chosen, problem))
            if sum(map(len, group)) >= wave_size() or number + 1 == len(problems):
                self._build(group)
                yield from group
                group = []

    def _build(self, group: list[list[Plan]]) -> None:
        """Build what is not on record; where something does not compile, problems are built one
        by one, and then it is found.
        """
        if len(group) == 1 or not self._chosen.compiles:
            return
        known = [standing(self._search, self._chosen, plans[0].problem, plans).record
                 for plans in group]
        untried = [plan for plans, record in zip(group, known, strict=True) for plan in plans
                   if plan.tiling.name not in record.configurations]
        if untried and time.monotonic() + self._builder.slowest < self._until:
            with suppress(CompileError):
                self._chosen.prepare(untried)

    def _one(self, problems: list[ConvProblem], number: int, plans: list[Plan] | None,
             until: float) -> Tuned:
        def told(done: int, total: int, best: float | None) -> None:
            if self._progress is not None:
                self._progress(Step(problems[number], number, len(problems), done, total, best))

        return search_one(self._search, self._chosen, problems[number], self._builder, until, told,
                          plans)


class _There:
    """Tuning by an executor, a task for each problem."""

    def __init__(self, search: Search, budget: float, executor: Executor,
                 progress: Callable[[Step], object] | None) -> None:
        self._search, self._executor, self._progress = search, executor, progress
        # Of the clock that machines share, as far as they do.
        self._deadline = time.time() + budget

    def tuned(self, problems: list[ConvProblem]) -> list[Tuned]:
        """All of them; what is not begun when one fails is taken back."""
        workers = int(getattr(self._executor, "_max_workers", 1) or 1)
        tasks = [self._executor.submit(_task, self._search, problem_token(problem),
                                       -(-(len(problems) - number) // workers), self._deadline)
                 for number, problem in enumerate(problems)]
        found: list[Tuned] = []
        try:
            for task, problem in zip(tasks, problems, strict=True):
                found.append(task.result())
                self._tell(found[-1], problem, len(found), len(problems))
        except SystemExit:  # that of a worker which was told to stop
            raise KeyboardInterrupt from None
        except BrokenExecutor as broken:
            raise LaunchError(f"a worker died: {broken}; begin again, what was measured is "
                              "kept") from broken
        finally:
            for task in tasks:
                task.cancel()
        return found

    def _tell(self, found: Tuned, problem: ConvProblem, number: int, of: int) -> None:
        if self._progress is not None:
            best = None if found.best is None else found.best.seconds
            self._progress(Step(problem, number, of, found.candidates, found.candidates, best))


def _task(search: Search, token: str, rounds: int, deadline: float) -> Tuned:
    """What a worker does: one problem, in its share of the time; *rounds* are left for a worker."""
    chosen = choose_backend(search.backend)
    share = max(deadline - time.time(), 0) / rounds
    return search_one(search, chosen, parse_problem(token), Builder(chosen),
                      time.monotonic() + share)


def wanted() -> bool:
    """Whether the environment asks for tuning inside calls (``DSCORE_TUNE=on``)."""
    return bool(require_one_of(os.environ.get("DSCORE_TUNE", "") or "off", "DSCORE_TUNE",
                               ("on", "off")) == "on")


@once
def on_demand(problem: ConvProblem, device: Device, backend: str) -> Plan | None:
    """Tune *problem* for a call, once in a process's life; None where nothing came of it.

    Not to be called while a graph is captured: building and timing would become part of it.
    """
    with suppress(DscoreError):
        tune(problem, device, backend, budget_seconds=_CALL_SECONDS)
    return records.tuned_plan(problem, device, backend)
