"""The resource-constraint solver: every tiling that provably fits, ranked, and the plan it makes.

The space of a problem is enumerated as int64 columns, one per tiling field, and judged by the very
limits that judge a single tiling (dscore.solving.rules).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from heapq import merge
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscore.algorithms.base import Algorithm, Case, Footprint, SpaceGenerator
from dscore.algorithms.columns import Columns, select
from dscore.algorithms.registry import algorithm as algorithm_named
from dscore.algorithms.registry import case_of, names, require_runs, running
from dscore.core.device import Device
from dscore.core.errors import InfeasibleError, SpecError, did_you_mean
from dscore.core.numerics import Arithmetic, FilterForm
from dscore.core.plan import Plan, Rules
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling
from dscore.ops import parts_instead
from dscore.solving.cost import CostColumns, cost
from dscore.solving.rules import keeps_all, residency


@dataclass(frozen=True, eq=False)
class Space:
    """The tilings of one algorithm that fit a problem and a device, field by field.

    ``len(space)`` counts them, ``space[i]`` is one, ``space.ranked()`` orders them by the cost
    model, best first.
    """

    problem: ConvProblem
    device: Device
    rules: Rules
    algorithm: Algorithm
    masked: bool
    legal: int  # tilings that keep R1–R5 and the like, before the resource limits
    case: Case  # the columns, with their footprints
    note: str = ""  # why this algorithm or space was opened

    def __repr__(self) -> str:
        masked = "masked, " if self.masked else ""
        return (f"{len(self):,} tilings of {self.algorithm.name} for {self.problem} on "
                f"{self.device.name}, {masked}{self.rules} rules, of {self.legal:,} legal ones")

    def __len__(self) -> int:
        return _count(self.case.tiling)

    def __getitem__(self, index: int) -> Tiling:
        return self.algorithm.tiling.of_row({
            name: column[index] for name, column in vars(self.case.tiling).items()})

    def __iter__(self) -> Iterator[Tiling]:
        return (self[index] for index in range(len(self)))

    @cached_property
    def block_n(self) -> NDArray[np.int64]:
        """Residency of each tiling."""
        return np.broadcast_to(residency(self.case, self.rules), (len(self),))

    @cached_property
    def costs(self) -> CostColumns:
        """The model's estimate for each tiling."""
        return cost(self.case, self.block_n)

    def least_seconds(self, arithmetic: Arithmetic | None = None) -> float:
        """The least of the estimates; infinite where no tiling computes by *arithmetic*."""
        first = self.first(arithmetic)
        return math.inf if first is None else float(self.costs.seconds[first])

    def ranked(self) -> NDArray[np.int64]:
        """Indices by estimated time; among equals fuller lanes, then smaller blocks come first."""
        footprint = self.case.footprint
        return np.lexsort((np.broadcast_to(footprint.threads, (len(self),)),
                           -np.broadcast_to(footprint.utilisation, (len(self),)),
                           self.costs.seconds))

    def first(self, arithmetic: Arithmetic | None = None) -> int | None:
        """The first of `ranked` that computes by *arithmetic*, if one is named."""
        seconds, footprint = self.costs.seconds, self.case.footprint
        if arithmetic is not None:
            seconds = np.where(self._computing(arithmetic), seconds, math.inf)
        least = np.flatnonzero((seconds == seconds.min()) & np.isfinite(seconds))
        order = np.lexsort([np.broadcast_to(value, (len(self),))[least] for value in (
            footprint.threads, -footprint.utilisation)])
        return int(least[order[0]]) if len(least) else None

    def _computing(self, arithmetic: Arithmetic) -> NDArray[np.bool_]:
        """Which tilings compute by *arithmetic*: those alike whose field of that name is."""
        kinds = np.broadcast_to(vars(self.case.tiling).get("arithmetic", ""), (len(self),))
        _, examples, of = np.unique(kinds, return_index=True, return_inverse=True)
        return np.array([self[int(at)].computes(arithmetic) for at in examples])[of]

    def having(self, **values: Any) -> Space:
        """The tilings of these whose fields have *values*.

        >>> from dscore.core.catalog import device, layers
        >>> space = solve(layers()["P13"], device("h200"), algorithm="gemm")
        >>> {tiling.stages for tiling in space.having(stages=3)}
        {3}

        Raises SpecError for a field that tilings of the algorithm have not.
        """
        keep = np.ones(len(self), bool)
        for name, value in values.items():
            if name not in vars(self.case.tiling):
                raise SpecError(f"tilings of {self.algorithm.name} have no {name}"
                                f"{did_you_mean(name, list(vars(self.case.tiling)))}")
            keep &= np.asarray(vars(self.case.tiling)[name]) == value
        return replace(self, case=_kept(self.case, keep))

    def plan(self, index: int) -> Plan:
        """The plan of one tiling."""
        return make_plan(self.problem, self.device, self[index], self.rules)


def _count(columns: SimpleNamespace) -> int:
    return len(next(iter(vars(columns).values())))


def _space(problem: ConvProblem, device: Device, rules: Rules, algorithm: Algorithm,
           generator: SpaceGenerator) -> Space:
    masked, columns = generator.masked, Columns(**vars(generator.columns(problem, device)))
    case = Case(problem, device, algorithm, columns,
                algorithm.footprint(problem, columns, device.wavefront))
    legal = _kept(case, keeps_all(case, rules, masked, legality=True))
    fitting = _kept(legal, keeps_all(legal, rules, masked, legality=False))
    return Space(problem, device, rules, algorithm, masked, _count(legal.tiling), fitting)


def _kept(case: Case, keep: Any) -> Case:
    """The case of the tilings that *keep* holds for."""
    keep = np.broadcast_to(keep, (_count(case.tiling),))
    if keep.all():
        return case
    footprint = Footprint(**{name: value[keep] if np.ndim(value) else value
                             for name, value in vars(case.footprint).items()})
    return replace(case, tiling=Columns(**vars(select(case.tiling, keep))), footprint=footprint)


def solve(problem: ConvProblem, device: Device, rules: Rules = "hardware",
          masked: bool | None = None, algorithm: str | None = None,
          among: tuple[str, ...] | None = None, arithmetic: Arithmetic | None = None) -> Space:
    """Every tiling of *problem* that fits *device* under *rules*.

    The algorithms that run *problem* are tried in the registry's order (under the ``paper`` rules
    the paper's own first), each with its spaces in their order, until one has a tiling that fits;
    ``space.note`` names those that had none. What a problem permits beside sums, and any other that
    is ``compared``, is compared with the next algorithm, by the estimates of both. *masked* True or
    False asks for a space of that kind, of the algorithms that know both; *algorithm* asks for one
    by name, *among* leaves out all others, *arithmetic* spaces where no tiling computes by it.

    Raises InfeasibleError where nothing fits, SpecError where *algorithm* does not run *problem*.

    >>> from dscore.core.catalog import device, layers
    >>> len(solve(layers()["P13"], device("z100sm"), "paper")) > 1000
    True
    """
    spaces = compared_spaces(problem, device, rules, masked, algorithm, among, arithmetic)
    return (spaces[0] if len(spaces) == 1 else
            min(spaces, key=lambda space: space.least_seconds(arithmetic)))


def compared_spaces(problem: ConvProblem, device: Device, rules: Rules = "hardware",
                    masked: bool | None = None, algorithm: str | None = None,
                    among: tuple[str, ...] | None = None, arithmetic: Arithmetic | None = None
                    ) -> list[Space]:
    """The spaces of which `solve` takes the one with the least estimate; raises as it does.

    >>> from dscore.core.catalog import device, layers
    >>> [space.algorithm.name for space in compared_spaces(layers()["P13"], device("h200"))]
    ['warpgroup_tf32', 'gemm']
    """
    empty: list[str] = []
    otherwise = False  # whether there are tilings, of another arithmetic
    spaces: list[Space] = []
    for space in _spaces(problem, device, rules, masked, algorithm, among):
        if not len(space):
            empty.append(f"no {'masked' if space.masked else 'exact'} {space.algorithm.name} "
                         "tiling fits")
            continue
        if arithmetic is not None and space.first(arithmetic) is None:
            otherwise = True
            continue
        spaces.append(replace(space, note="; ".join(empty)))
        one = space.algorithm
        if algorithm is not None or (one.permission == "sum" and not one.compared):
            break
    if spaces:
        return spaces
    if otherwise:
        raise InfeasibleError(f"{problem} on {device}: no tiling computes by {arithmetic}; leave "
                              "arithmetic to the solver")
    fix = ("masked tilings are not asked for" if masked is False else
           f"it has {device.registers_per_thread} registers per thread and "
           f"{device.lds_bytes_per_cu:,} B of LDS per CU")
    if not empty:
        raise InfeasibleError(f"{problem}: {_unable(problem, among or names())}")
    if (form := problem.spec.filter) != "plain":
        fix += (f"; a filter packed as {form} is for {' or '.join(_taking(form))} alone, and one "
                "that is not packed for all algorithms: pass w itself")
    raise InfeasibleError(f"{problem} on {device} by {rules} rules: {'; '.join(empty)}; {fix}")


def ranked_plans(problem: ConvProblem, device: Device, rules: Rules = "hardware",
                 among: tuple[str, ...] | None = None, arithmetic: Arithmetic | None = None
                 ) -> Iterator[Plan]:
    """The plans of all spaces that `solve` compares, by their estimates; raises as it does."""
    spaces = compared_spaces(problem, device, rules, among=among, arithmetic=arithmetic)
    in_order = merge(*([(float(space.costs.seconds[index]), space, int(index))
                        for index in space.ranked()] for space in spaces), key=itemgetter(0))
    return (space.plan(index) for _, space, index in in_order)


def _unable(problem: ConvProblem, tried: Sequence[str]) -> str:
    """Why none of the algorithms *tried* runs a problem: of those of its operation, if any is."""
    able = [one for one in tried if problem.operation in algorithm_named(one).operations] or tried
    reasons = "; ".join(map(str, algorithm_named(able[-1]).refuses(problem)))
    nobody = f"none of {', '.join(able)} runs it" if len(able) > 1 else f"{able[0]} does not run it"
    return f"{nobody} ({reasons})" + parts_instead(problem)


def _taking(form: FilterForm) -> tuple[str, ...]:
    """Names of the algorithms that take filters of a form."""
    return tuple(name for name in names() if form in algorithm_named(name).filters)


def _spaces(problem: ConvProblem, device: Device, rules: Rules, masked: bool | None,
            name: str | None, among: tuple[str, ...] | None) -> Iterator[Space]:
    algorithms = tuple(one for one in running(problem, rules, device)
                       if among is None or one.name in among)
    exact = [one for one in algorithms if _knows_exact(one)]
    if name is not None:
        algorithms = tuple(one for one in algorithms if one.name == name)
        if not algorithms:
            able = [one.name for one in running(problem, rules, device)]
            if name in [one.name for one in running(problem, rules)]:
                raise InfeasibleError(f"{name} does not suit {device.name}; the algorithms of "
                                      f"{problem} there are {', '.join(able)}")
            raise SpecError(f"{name!r} does not run {problem}; its algorithms are "
                            f"{', '.join(able)}{did_you_mean(name, able)}")
    elif masked is not None and exact:
        algorithms = tuple(exact)
    for algorithm in algorithms:
        for generator in algorithm.spaces:
            if masked in (None, generator.masked) or not _knows_exact(algorithm):
                yield _space(problem, device, rules, algorithm, generator)


def _knows_exact(algorithm: Algorithm) -> bool:
    """Whether it has a space of tilings that divide the output, apart from the masked one."""
    return any(not generator.masked for generator in algorithm.spaces)


def make_plan(problem: ConvProblem, device: Device, tiling: Tiling, rules: Rules = "hardware",
              block_n: int | None = None, reported_registers: int | None = None) -> Plan:
    """The plan that *tiling* makes, whether or not it fits (dscore.solving.verdict judges that).

    With *reported_registers*, which a compiler took, residency and cost go by these. Raises
    SpecError where the algorithm of the tiling does not run *problem*.
    """
    require_runs(problem, tiling)
    case = case_of(problem, device, tiling, reported=reported_registers)
    resident = block_n or int(residency(case, rules))
    return Plan(problem, device, tiling, rules, case.launch, case.use,
                int(replace(case, reported=None).compiled), resident,
                case.algorithm.overhangs(problem, tiling, device.wavefront),
                cost(case, resident).one(case.footprint.utilisation),
                case.algorithm.workspace_bytes(problem, tiling),
                case.algorithm.further_launches(problem, tiling), reported_registers)


@lru_cache(maxsize=4096)
def best_plan(problem: ConvProblem, device: Device, rules: Rules = "hardware",
              arithmetic: Arithmetic | None = None,
              among: tuple[str, ...] | None = None) -> Plan:
    """The plan the cost model ranks first, of those that compute by *arithmetic* if one is named.

    Raises InfeasibleError where nothing fits.
    """
    space = solve(problem, device, rules, among=among, arithmetic=arithmetic)
    first = space.first(arithmetic)
    assert first is not None  # else it would be no space of that arithmetic
    return space.plan(first)
