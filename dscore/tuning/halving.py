"""Successive halving: all candidates once, the better half again, and the best two for long.

It takes a fraction of the GPU's time that `dscore.tuning.search` takes, and is for many layers in a
few minutes: kernels of the next problems are built while those of one are timed.
"""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

from dscore.building.toolchain import compilers_at_most, cores
from dscore.core.backend import Backend
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.tuning import records
from dscore.tuning.behind import plan_before
from dscore.tuning.builder import Builder
from dscore.tuning.measurement import Configuration, Measurement, TuningRecord
from dscore.tuning.search import (
    FINAL_RUNS,
    Progress,
    SearchResult,
    candidates,
    is_paired,
    known_result,
)
from dscore.tuning.trials import HALVED_FINALISTS, SearchRequest, trials_of

# Samples of a candidate after each round; the best two are measured as long as any search does.
ROUNDS = (2, 6, FINAL_RUNS)
FINALISTS = 2
# A candidate that took so many times what the model says of it, beside the others, is timed again:
# something else may have had the GPU (docs/tuning.md).
_DISTURBED = 3.0
# A core is left to the process that times.
_OWN_CORES = 1


def due(plans: Sequence[Plan], record: TuningRecord) -> list[tuple[Plan, int]]:
    """The plans that are to be measured next, each with the samples that it lacks; [] at the end.
    """
    untried = [plan for plan in plans if plan.tiling.name not in record.configurations]
    if untried:
        return [(plan, ROUNDS[0]) for plan in untried]
    known = {plan.tiling.name: plan for plan in plans}
    right = sorted((c for name, c in record.configurations.items()
                    if name in known and not c.refused),
                   key=lambda c: (c.seconds, c.tiling.name))
    if disturbed := _disturbed(right, known):
        return [(known[c.tiling.name], ROUNDS[1] - c.count) for c in disturbed]
    for count, samples in ((math.ceil(len(right) / 2), ROUNDS[1]), (HALVED_FINALISTS, ROUNDS[2])):
        short = [(known[c.tiling.name], samples - c.count) for c in right[:count]
                 if c.count < samples]
        if short:
            return short
    return []


def _disturbed(right: Sequence[Configuration], known: Mapping[str, Plan]) -> list[Configuration]:
    """Those of the first round that took far longer than the others, by what the model says."""
    if not right:
        return []
    slower = {c.tiling.name: (c.seconds or 0.0) / known[c.tiling.name].cost.seconds for c in right}
    most = _DISTURBED * statistics.median(slower.values())
    return [c for c in right if c.count < ROUNDS[1] and slower[c.tiling.name] > most]


@dataclass(frozen=True)
class Prepared:
    """Candidates of a problem whose kernels are built, but for those that do not compile."""

    number: int  # of the problem
    plans: list[Plan]
    record: TuningRecord
    reasons: dict[str, str]  # why kernels do not compile, by tiling


class BuildAhead:
    """Candidates of many problems, planned and built in threads; a problem's by one compiler.

    So no core waits for another one, as the compilers of one library would, and a problem can be
    timed as soon as its kernels are there.
    """

    def __init__(self, request: SearchRequest, backend: Backend,
                 problems: Sequence[ConvProblem]) -> None:
        self._request, self._backend, self._problems = request, backend, problems
        self._stopped = False
        self._waiting: SimpleQueue[int] = SimpleQueue()
        self._done: SimpleQueue[Prepared | BaseException] = SimpleQueue()
        self._builder = Builder(backend)

    def prepared(self) -> Iterator[Prepared]:
        """Each problem when it is built, whichever is first.

        Raises what planning or building raised. What is not begun when the iterator is closed is
        not built.
        """
        for number in range(len(self._problems)):
            self._waiting.put(number)
        count = max(1, cores() - _OWN_CORES) if self._backend.compiles else 1
        for _ in range(min(count, len(self._problems))):
            threading.Thread(target=self._work, daemon=True).start()
        try:
            for _ in self._problems:
                outcome = self._done.get()
                if isinstance(outcome, BaseException):
                    raise outcome
                yield outcome
        finally:
            self._stopped = True

    def _work(self) -> None:
        with compilers_at_most(1), suppress(Empty):
            while not self._stopped:
                number = self._waiting.get(block=False)
                try:
                    self._done.put(self._prepare(number))
                except BaseException as failed:  # told in the thread that waits for it
                    self._done.put(failed)

    def _prepare(self, number: int) -> Prepared:
        problem = self._problems[number]
        plans = candidates(self._request, self._backend, problem)
        record = known_result(self._request, self._backend, problem, plans).record
        wanted = _lacking(plans, record) if due(plans, record) else []
        if wanted and is_paired(self._request, problem):
            # What does not compile of it is said where it is to run.
            self._builder.build([plan_before(problem, self._request.device, self._backend)])
        return Prepared(number, plans, record, self._builder.build(wanted))


class Keeping:
    """Measurements written to the records by a thread, as a disk takes milliseconds for each.

    At its end, however that comes, all of them are there. Raises then what a write raised.
    """

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Measurement | None] = SimpleQueue()
        self._failed: list[Exception] = []
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Callable[[Measurement], None]:
        self._thread.start()
        return self._waiting.put

    def __exit__(self, *raised: object) -> None:
        self._waiting.put(None)
        self._thread.join()
        if self._failed and raised[0] is None:
            raise self._failed[0]

    def _work(self) -> None:
        while (measurement := self._waiting.get()) is not None:
            try:
                records.keep(measurement)
            except Exception as failed:  # told at the end
                self._failed.append(failed)


def halve(request: SearchRequest, backend: Backend, prepared: Prepared, until: float,
          report: Progress, keep: Callable[[Measurement], None]) -> SearchResult:
    """Search among the candidates of one problem.

    Ends at *until*, on the monotonic clock, after the candidate in hand.
    """
    plans, trials = prepared.plans, trials_of(request, backend, prepared.record, keep)
    crashed: set[str] = set()  # which are not on record before another one has run
    while round_of := due([plan for plan in plans if plan.tiling.name not in crashed],
                          trials.known):
        for plan, runs in round_of:
            if time.monotonic() >= until:
                break
            trials.try_out(plan, runs, prepared.reasons.get(plan.tiling.name, ""))
            tried = trials.known.configurations
            if plan.tiling.name not in tried:
                crashed.add(plan.tiling.name)
            report(len(tried), len(plans), trials.fastest)
        else:
            continue
        break
    trials.finish()
    return known_result(request, backend, plans[0].problem, plans, trials.known)


def halve_all(request: SearchRequest, backend: Backend, problems: Sequence[ConvProblem],
              until: float, report: Callable[[int, int, int, float | None], None]
              ) -> dict[int, SearchResult]:
    """Results of the *problems*, by number, that were searched before *until*, on the monotonic
    clock. *report* is told a problem's number, its candidates that are done, all of them, and the
    least seconds.
    """
    results: dict[int, SearchResult] = {}
    with Keeping() as keep:
        for prepared in BuildAhead(request, backend, problems).prepared():
            results[prepared.number] = halve(request, backend, prepared, until,
                                             partial(report, prepared.number), keep)
            if time.monotonic() >= until:
                break
    return results


def _lacking(plans: Sequence[Plan], record: TuningRecord) -> list[Plan]:
    """Those of *plans* whose kernels may be wanted again."""
    return [plan for plan in plans if plan.tiling.name not in record.configurations
            or not record.configurations[plan.tiling.name].refused]
