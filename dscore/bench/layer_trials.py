"""Trials of one layer's tilings in a network: what is tried next, and what each took there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from dscore.core.backend import Backend, refusals
from dscore.core.errors import DscoreError
from dscore.core.plan import Plan
from dscore.core.tiling import Tiling
from dscore.solving import solver
from dscore.solving.solver import Space
from dscore.tuning import records
from dscore.tuning.neighbours import next_tilings
from dscore.tuning.trials import SearchRequest, Trials


class LayerTrials:
    """Trials of the tilings of one problem; `default` is the plan that it had before, `launches`
    how many layers of the network have that problem.
    """

    def __init__(self, request: SearchRequest, backend: Backend, default: Plan,
                 space: Space) -> None:
        self.default, self._space, self._backend = default, space, backend
        self.launches = 1
        self.exhausted = False
        identity = records.identity_of(default.problem, request.device, backend, request.policy)
        self._trials = Trials(request, backend, records.load(identity))
        self._ready: list[Plan] = []
        known = self._trials.known.configurations
        # Of the bound, by tiling, that the worst error takes.
        self._shares = {name: one.share for name, one in known.items() if one.share is not None}
        self._seen = set(known)  # tilings on record, and proposed ones

    @classmethod
    def of(cls, request: SearchRequest, backend: Backend, default: Plan) -> LayerTrials | None:
        """Trials of the problem of *default*, among tilings of its algorithm; None where there is
        no other.
        """
        with suppress(DscoreError):
            space = solver.solve(default.problem, request.device,
                                 algorithm=default.tiling.algorithm)
            if len(space) > 1:
                return cls(request, backend, default, space)
        return None

    @property
    def tried(self) -> int:
        """Number of tilings on record."""
        return len(self._trials.known.configurations)

    @property
    def seen(self) -> int:
        """Number of those, and of others that are being built or wait for their turn."""
        return len(self._seen)

    @property
    def waiting(self) -> int:
        """Number of plans that are right and have no time yet."""
        return len(self._ready)

    @property
    def refused(self) -> int:
        """Number of those whose kernels are not right."""
        return len(self._trials.known.refused)

    @property
    def best(self) -> Plan:
        """The fastest plan; the default one where none has a time."""
        return self.fastest(0)

    def fastest(self, place: int) -> Plan:
        """The plan at a *place* of the order by time; the last one behind that."""
        ranking = self._trials.known.ranking
        if not ranking:
            return self.default
        return self._plan(ranking[min(place, len(ranking) - 1)].tiling)

    def seconds(self, plan: Plan) -> float | None:
        """What a launch of *plan* takes in the network; None where that is not known."""
        one = self._trials.known.configurations.get(plan.tiling.name)
        return None if one is None else one.seconds

    def fault_of_default(self) -> str:
        """Why the default plan is not right, which is held to the bound before its times count;
        empty where it is.
        """
        name = self.default.tiling.name
        self._seen.add(name)
        self.make_ready([self.default], {})
        if self._ready:
            self._ready.clear()
            return ""
        known = self._trials.known.configurations.get(name)
        return known.refused if known and known.refused else "it crashed"

    def proposed(self, count: int) -> list[Plan]:
        """At most *count* plans to try next; fewer where no others are left."""
        tilings = next_tilings(self._space, self._seen, self.best.tiling, count)
        self.exhausted = len(tilings) < count
        self._seen |= {tiling.name for tiling in tilings}
        plans = [self._plan(tiling) for tiling in tilings]
        return [plan for plan in plans if not refusals(self._backend, plan)]

    def make_ready(self, plans: Sequence[Plan], unbuilt: Mapping[str, str]) -> None:
        """Hold *plans* to the bound, those that did not build for a reason of *unbuilt* aside."""
        for plan in plans:
            share = self._trials.check(plan, unbuilt.get(plan.tiling.name, ""))
            if share is not None:
                self._shares[plan.tiling.name] = share
                self._ready.append(plan)
        self._trials.release()

    def take_ready(self) -> Plan:
        """A plan that is to be timed next; the best one where none is waiting."""
        return self._ready.pop(0) if self._ready else self.best

    def add(self, plan: Plan, samples: tuple[float, ...]) -> bool:
        """Keep what launches of *plan* took; False where no sample says anything."""
        timed = tuple(seconds for seconds in samples if seconds > 0)
        if timed:
            self._trials.add(plan, self._shares[plan.tiling.name], timed)
        return bool(timed)

    def _plan(self, tiling: Tiling) -> Plan:
        return solver.make_plan(self.default.problem, self.default.device, tiling)
