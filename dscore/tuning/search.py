"""Search for the fastest tiling of a problem: all candidates once, then the fastest for long.

Every measurement is on record at once, so that a search may end at any time and another one goes
on from there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

import numpy as np

from dscore.algorithms import registry
from dscore.core.backend import Backend, refusals, require_accepted
from dscore.core.device import Device
from dscore.core.errors import DscoreError, InfeasibleError, SpecError, require_one_of
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling
from dscore.solving import solver
from dscore.solving.solver import Space
from dscore.tuning import records, shipped_hints
from dscore.tuning.behind import follows_pointwise
from dscore.tuning.builder import Builder, wave_size
from dscore.tuning.measurement import Configuration, TuningRecord
from dscore.tuning.measurement_policy import MeasurementPolicy
from dscore.tuning.trials import PairedTrials, SearchRequest, Trials, trials_of

Progress = Callable[[int, int, float | None], None]  # done, of how many, seconds of the best

# Runs of the first pass over all candidates, and of the second one over the best of them.
FIRST_RUNS, FINAL_RUNS = 3, 12
# Tilings that are the fastest cold on record, and are timed behind another layer as well.
BEST_COLD = 12
# Share of a problem's time that is left to the second pass.
_RESERVED = 0.15


@dataclass(frozen=True)
class SearchResult:
    """Result of a search: the record of the problem, and how far the search came."""

    problem: ConvProblem
    device: Device
    backend: str
    policy: MeasurementPolicy
    first_tiling: Tiling  # that the cost model ranks first
    candidates: int
    record: TuningRecord
    complete: bool  # every candidate has been tried, and the best of them for long

    @property
    def first(self) -> Configuration | None:
        """Configuration of the model's first tiling; None where it was not tried."""
        return self.record.configurations.get(self.first_tiling.name)

    @property
    def best(self) -> Configuration | None:
        """Fastest configuration that is right, by the sum of its times where it was also timed
        behind another layer; None where none is.
        """
        return self.record.best

    @property
    def gain(self) -> float | None:
        """Speed-up of the best over the first; None where either has no time."""
        first, best = self.first, self.best
        if first is None or best is None or first.seconds is None or best.seconds is None:
            return None
        return first.seconds / best.seconds

    @property
    def tried(self) -> int:
        """Number of configurations on record."""
        return len(self.record.configurations)


def candidates(request: SearchRequest, backend: Backend, problem: ConvProblem) -> list[Plan]:
    """Plans to try, in the model's order, then that of the shipped hint, which tuning replaces.

    They are of the algorithms that the solver compares, in one order, or so many of each that the
    request names. Plans that *backend* cannot run are left out, as is a hint of another algorithm
    than the request's. For times behind another layer there are more: see `_for_pairs`.

    Raises InfeasibleError where nothing fits, UnavailableError where the backend runs none,
    SpecError where no algorithm of the request's runs *problem*.
    """
    spaces, names = _spaces(request, problem), _names(request)
    if names:
        plans = [plan for space in spaces for plan in _first(space, request.top)]
    else:
        plans = [*islice(solver.ranked_plans(problem, request.device), request.top)]
    further = [shipped_hints.shipped_plan(problem, request.device)]
    if is_paired(request, problem):
        further += _for_pairs(request, backend, problem, spaces)
    tried = {plan.tiling for plan in plans}
    plans += [plan for plan in dict.fromkeys(further) if plan and plan.tiling not in tried
              and (not names or plan.tiling.algorithm in names)]
    accepted = [plan for plan in plans if not refusals(backend, plan)]
    if not accepted:
        require_accepted(backend, plans[0])
    return accepted


def _names(request: SearchRequest) -> list[str]:
    return request.algorithm.split(",") if request.algorithm else []


def _spaces(request: SearchRequest, problem: ConvProblem) -> list[Space]:
    """Space of each algorithm whose tilings are tried."""
    names = _names(request)
    if not names:
        return solver.compared_spaces(problem, request.device)
    if len(names) == 1:
        return [solver.solve(problem, request.device, algorithm=names[0])]
    return _spaces_of(names, problem, request.device)


def _first(space: Space, count: int | None) -> list[Plan]:
    return [space.plan(int(index)) for index in space.ranked()[:count]]


def is_paired(request: SearchRequest, problem: ConvProblem) -> bool:
    """Whether the tilings of *problem* are timed behind a pointwise layer, too."""
    return request.behind is not None and follows_pointwise(problem)


def _for_pairs(request: SearchRequest, backend: Backend, problem: ConvProblem,
               spaces: Sequence[Space]) -> list[Plan]:
    """Further plans to time behind another layer: of what is best cold on record, and the model's
    first of each size of a thread's tile, as the model is of cold times.
    """
    cold = records.load(records.identity_of(problem, request.device, backend, request.policy))
    plans = []
    for best in cold.ranking[:BEST_COLD]:
        with suppress(DscoreError):  # what no longer fits
            plans.append(shipped_hints.fitting_plan(problem, request.device, best.tiling))
    return [*plans, *(plan for space in spaces for plan in _varied(space, request.top))]


def _varied(space: Space, count: int | None) -> list[Plan]:
    """The first plans that differ in the tile of a thread; none where threads have no tiles."""
    columns, order = vars(space.case.tiling), space.ranked()
    sizes = [np.broadcast_to(columns[name], (len(space),))[order]
             for name in ("thread_h", "thread_w") if name in columns]
    if not sizes:
        return []
    _, firsts = np.unique(sizes, axis=1, return_index=True)
    return [space.plan(int(order[at])) for at in sorted(firsts)[:count]]


def _spaces_of(names: Sequence[str], problem: ConvProblem, device: Device) -> list[Space]:
    """Space of each of several algorithms that has tilings for *problem*."""
    spaces, failed = [], None
    for name in names:
        require_one_of(name, "algorithm", registry.names())
        try:
            spaces.append(solver.solve(problem, device, algorithm=name))
        except (SpecError, InfeasibleError) as error:
            failed = failed or error
    if failed is not None and not spaces:
        raise failed
    return spaces


def known_result(request: SearchRequest, backend: Backend, problem: ConvProblem,
                 plans: Sequence[Plan] | None = None,
                 record: TuningRecord | None = None) -> SearchResult:
    """Result for *problem* by *record*, or by what is on record now; nothing is measured."""
    plans = candidates(request, backend, problem) if plans is None else plans
    if record is None:
        load = records.load_paired if is_paired(request, problem) else records.load
        record = load(records.identity_of(problem, request.device, backend, request.policy))
    complete = not _untried(plans, record) and not _finalists(plans, record, request.finalists)
    return SearchResult(problem, request.device, backend.name, request.policy, plans[0].tiling,
                        len(plans), record, complete)


def _untried(plans: Sequence[Plan], record: TuningRecord) -> list[Plan]:
    return [plan for plan in plans if plan.tiling.name not in record.configurations]


def _finalists(plans: Sequence[Plan], record: TuningRecord, count: int) -> list[Plan]:
    """Plans among the *count* fastest that have not been timed for long yet."""
    right = [c for c in record.configurations.values() if not c.refused]
    fastest = sorted(right, key=lambda c: (c.seconds, c.tiling.name))[:count]
    names = {c.tiling.name for c in fastest if c.count < FINAL_RUNS}
    return [plan for plan in plans if plan.tiling.name in names]


def _built(plans: Sequence[Plan], builder: Builder,
           until: float) -> Iterator[tuple[Plan, str]]:
    """Plans one by one, built in waves, each with the reason if it does not compile.

    Ends at *until*.
    """
    for at in range(0, len(plans), wave_size()):
        # Nothing ends a build that is under way: one that would last too long is not begun.
        if time.monotonic() + (builder.slowest if at else 0) >= until:
            return
        wave = plans[at:at + wave_size()]
        unbuilt = builder.build(wave)
        for plan in wave:
            if time.monotonic() >= until:
                return
            yield plan, unbuilt.get(plan.tiling.name, "")


def search_one(request: SearchRequest, backend: Backend, problem: ConvProblem, builder: Builder,
               until: float = math.inf, progress: Progress | None = None,
               plans: Sequence[Plan] | None = None) -> SearchResult:
    """Search for *problem*: candidates that are not on record yet, then the best for long.

    Ends at *until*, on the monotonic clock, after the configuration or the build in hand.
    """
    plans = candidates(request, backend, problem) if plans is None else plans
    record = known_result(request, backend, problem, plans).record
    trials, todo = trials_of(request, backend, record), _untried(plans, record)
    report = progress or (lambda done, total, best: None)
    done = len(plans) - len(todo)
    for plan, unbuilt in _built(todo, builder, _reserved(until)):
        trials.try_out(plan, FIRST_RUNS, unbuilt)
        done += 1
        report(done, len(plans), trials.fastest)
    _time_finalists(trials, plans, builder, until, request.finalists)
    trials.finish()
    result = known_result(request, backend, problem, plans)
    report(len(plans) if result.complete else done, len(plans), trials.fastest)
    return result


def _reserved(until: float) -> float:
    """End of the first pass, which leaves the second pass its time."""
    now = time.monotonic()
    return until if math.isinf(until) else now + (1 - _RESERVED) * max(until - now, 0)


def _time_finalists(trials: Trials | PairedTrials, plans: Sequence[Plan], builder: Builder,
                    until: float, count: int) -> None:
    """Time the fastest for long, and those that then are the fastest, until all of them are."""
    while time.monotonic() < until:
        finalists = _finalists(plans, trials.record(), count)
        if not finalists:
            return
        for plan, unbuilt in _built(finalists, builder, until):
            trials.try_out(plan, FINAL_RUNS, unbuilt)
