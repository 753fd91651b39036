"""The search of one problem: the model's candidates once, then the fastest of them for long.

Everything found is kept in the records at once, so that a search may end at any time and another
one goes on from there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dscore.core.backend import Backend, require_accepted
from dscore.core.device import Device
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling
from dscore.solving import solver
from dscore.tuning import records, shipped_hints
from dscore.tuning.measurement import Configuration, Policy, Record
from dscore.tuning.trials import Builder, Search, Trials, wave_size

Progress = Callable[[int, int, float | None], None]  # done, of how many, seconds of the best

# Runs of the first pass over all candidates, and of the second one over the best of them.
QUICK, LONG, FINALISTS = 3, 12, 8
# Share of a problem's time that is left to the second pass.
_RESERVED = 0.15


@dataclass(frozen=True)
class Tuned:
    """What is known of a problem after a search."""

    problem: ConvProblem
    device: Device
    backend: str
    policy: Policy
    first_tiling: Tiling  # that the cost model ranks first
    candidates: int  # that the search was for
    record: Record
    complete: bool  # every candidate has been tried, and the best of them for long

    @property
    def first(self) -> Configuration | None:
        """What was measured of the solver's first; None where it was not tried."""
        return self.record.configurations.get(self.first_tiling.name)

    @property
    def best(self) -> Configuration | None:
        """The fastest that is right; None where none is."""
        return self.record.best

    @property
    def gain(self) -> float | None:
        """How many times as fast as the first the best is; None where either has no time."""
        first, best = self.first, self.best
        if first is None or best is None or first.seconds is None or best.seconds is None:
            return None
        return first.seconds / best.seconds

    @property
    def tried(self) -> int:
        """Configurations of which anything is known."""
        return len(self.record.configurations)


def candidates(search: Search, chosen: Backend, problem: ConvProblem) -> list[Plan]:
    """The plans to try, in the model's order, then the shipped hint: what is tuned replaces it.

    Those that *chosen* cannot run are none, nor is a hint of another algorithm than is asked for.

    Raises InfeasibleError where nothing fits, UnavailableError where the backend runs none,
    SpecError where the algorithm does not run *problem*.
    """
    space = solver.solve(problem, search.device, algorithm=search.algorithm)
    plans = [space.plan(int(index)) for index in space.ranked()[:search.top]]
    hinted = shipped_hints.shipped_plan(problem, search.device)
    if (hinted is not None and hinted not in plans
            and search.algorithm in (None, hinted.tiling.algorithm)):
        plans.append(hinted)
    accepted = [plan for plan in plans if not chosen.refuses(plan)]
    if not accepted:
        require_accepted(chosen, plans[0])
    return accepted


def standing(search: Search, chosen: Backend, problem: ConvProblem,
             plans: Sequence[Plan] | None = None) -> Tuned:
    """What the records know of *problem* now."""
    plans = candidates(search, chosen, problem) if plans is None else plans
    record = records.load(records.identity_of(problem, search.device, chosen, search.policy))
    untried = _untried(plans, record)
    return Tuned(problem, search.device, chosen.name, search.policy, plans[0].tiling, len(plans),
                 record, not untried and not _finalists(plans, record))


def _untried(plans: Sequence[Plan], record: Record) -> list[Plan]:
    return [plan for plan in plans if plan.tiling.name not in record.configurations]


def _finalists(plans: Sequence[Plan], record: Record) -> list[Plan]:
    """Those of the fastest that have not been timed for long yet."""
    right = [c for c in record.configurations.values() if not c.refused]
    fastest = sorted(right, key=lambda c: (c.seconds, c.tiling.name))[:FINALISTS]
    names = {c.tiling.name for c in fastest if len(c.samples) < LONG}
    return [plan for plan in plans if plan.tiling.name in names]


def _built(plans: Sequence[Plan], builder: Builder,
           until: float) -> Iterator[tuple[Plan, str]]:
    """*plans* as they are built, each with the reason why it is not; none after *until*."""
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


def search_one(search: Search, chosen: Backend, problem: ConvProblem, builder: Builder,
               until: float = math.inf, progress: Progress | None = None,
               plans: Sequence[Plan] | None = None) -> Tuned:
    """Try the candidates of *problem* that the records do not know yet, then the best for long.

    Ends at *until*, on the monotonic clock, after the configuration or the build in hand.
    """
    plans = candidates(search, chosen, problem) if plans is None else plans
    before = standing(search, chosen, problem, plans)
    trials, todo = Trials(search, chosen, before.record), _untried(plans, before.record)
    told = progress or (lambda done, total, best: None)
    done = len(plans) - len(todo)
    for plan, unbuilt in _built(todo, builder, _reserved(until)):
        trials.try_out(plan, QUICK, unbuilt)
        done += 1
        told(done, len(plans), trials.fastest)
    _time_finalists(trials, plans, builder, until)
    trials.finish()
    after = standing(search, chosen, problem, plans)
    told(len(plans) if after.complete else done, len(plans), trials.fastest)
    return after


def _reserved(until: float) -> float:
    """When the first pass must end, so that the second has its time."""
    now = time.monotonic()
    return until if math.isinf(until) else now + (1 - _RESERVED) * max(until - now, 0)


def _time_finalists(trials: Trials, plans: Sequence[Plan], builder: Builder, until: float) -> None:
    """Time the fastest until none of them has been timed for a short while only."""
    while time.monotonic() < until:
        finalists = _finalists(plans, trials.record())
        if not finalists:
            return
        for plan, unbuilt in _built(finalists, builder, until):
            trials.try_out(plan, LONG, unbuilt)
