"""The resource-constraint solver: every tiling that provably fits, ranked, and the plan it makes.

The space of a problem is enumerated as int64 columns, one per tiling field, and judged by the very
constraints that judge a single configuration (dscore.solving.rules).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscore.algorithms.case import Case, case_of
from dscore.algorithms.enumeration import (
    depthwise_columns,
    direct_columns,
    kept,
    matrix_columns,
    pointwise_exact,
    pointwise_masked,
)
from dscore.algorithms.resources import launch_of, resource_use
from dscore.core.device import Device
from dscore.core.errors import InfeasibleError, SpecError
from dscore.core.plan import Plan, Rules
from dscore.core.problem import ConvProblem
from dscore.core.tiling import FAMILIES, TILINGS, Arithmetic, DirectTiling, Tiling, computes
from dscore.solving.cost import CostColumns, cost
from dscore.solving.rules import keeps_all, overhangs, residency


@dataclass(frozen=True, eq=False)
class Space:
    """The tilings of one kind that fit a problem and a device, field by field.

    ``len(space)`` counts them, ``space[i]`` is one, ``space.ranked()`` orders them by the cost
    model, best first.
    """

    problem: ConvProblem
    device: Device
    rules: Rules
    kind: type[Tiling]
    masked: bool
    legal: int  # tilings that keep R1–R5, before the resource limits
    case: Case  # the columns, with their footprints
    note: str = ""  # why this kind or space was opened

    def __len__(self) -> int:
        return len(next(iter(vars(self.case.tiling).values())))

    def __getitem__(self, index: int) -> Tiling:
        return self.kind(**{name: _plain(name, column[index])
                            for name, column in vars(self.case.tiling).items()})

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

    def ranked(self) -> NDArray[np.int64]:
        """Indices by estimated time; among equals fuller lanes, then smaller blocks come first."""
        foot = self.case.foot
        return np.lexsort((np.broadcast_to(foot.threads, (len(self),)),
                           -np.broadcast_to(foot.utilisation, (len(self),)),
                           self.costs.seconds))

    def plan(self, index: int) -> Plan:
        """The plan of one tiling."""
        return make_plan(self.problem, self.device, self[index], self.rules)


def _plain(name: str, value: Any) -> Any:
    if name in ("staging", "arithmetic"):
        return str(value)
    return bool(value) if name in ("column_reuse", "ahead") else int(value)


def _space(problem: ConvProblem, device: Device, rules: Rules, kind: type[Tiling],
           columns: SimpleNamespace, masked: bool, note: str = "") -> Space:
    legal = kept(columns, keeps_all(case_of(problem, device, kind, columns), rules, masked,
                                     legality=True))
    case = case_of(problem, device, kind, legal)
    fitting = kept(legal, keeps_all(case, rules, masked, legality=False))
    count = len(next(iter(vars(legal).values())))
    return Space(problem, device, rules, kind, masked, count,
                 case_of(problem, device, kind, fitting), note)


# By algorithm: the spaces to open in this order, as (masked, what enumerates it).
_SPACES: dict[str, tuple[tuple[bool, Callable[[ConvProblem, Device], SimpleNamespace]], ...]] = {
    "gemm": ((True, matrix_columns),),
    "channel_distribution": ((False, pointwise_exact), (True, pointwise_masked)),
    "row_reuse": ((True, depthwise_columns),),
    "direct": ((True, direct_columns),)}


def solve(problem: ConvProblem, device: Device, rules: Rules = "hardware",
          masked: bool | None = None, algorithm: str | None = None) -> Space:
    """Every tiling of *problem* that fits *device* under *rules*.

    Pointwise layers get register tiles, or, by the ``paper`` rules, the paper's exact space and,
    where that is empty (or *masked* is True), its masked one; depthwise layers the row-reuse space;
    every other layer, and a layer whose own spaces are empty, the direct algorithm. ``space.note``
    says so where a space was opened in another's stead. *algorithm* asks for one by name.

    Raises InfeasibleError where nothing fits, SpecError where *algorithm* does not run *problem*.

    >>> from dscore.core.catalog import device, layers
    >>> len(solve(layers()["P13"], device("z100sm"), "paper")) > 1000
    True
    """
    empty: list[str] = []
    for space in _spaces(problem, device, rules, masked, algorithm):
        if len(space):
            return replace(space, note="; ".join(empty))
        empty.append(f"no {'masked' if space.masked else 'exact'} {space.kind.algorithm} tiling "
                     "fits")
    fix = ("masked tilings are not asked for" if masked is False else
           f"it has {device.registers_per_thread} registers per thread and "
           f"{device.lds_bytes_per_cu:,} B of LDS per CU")
    raise InfeasibleError(f"{problem} on {device} by {rules} rules: {'; '.join(empty)}; {fix}")


def algorithms(problem: ConvProblem, rules: Rules = "hardware") -> tuple[str, ...]:
    """The algorithms that run *problem*, in the order in which they are tried.

    >>> from dscore.core.catalog import layers
    >>> algorithms(layers()["P13"])
    ('gemm', 'channel_distribution', 'direct')
    """
    own = [family.algorithm for family in FAMILIES.get(problem.spec.kind, ())]
    return (*(own if rules == "paper" else reversed(own)), DirectTiling.algorithm)


def _spaces(problem: ConvProblem, device: Device, rules: Rules, masked: bool | None,
            algorithm: str | None) -> Iterator[Space]:
    names = algorithms(problem, rules)
    if algorithm is not None:
        if algorithm not in names:
            raise SpecError(f"{algorithm!r} does not run {problem}; its algorithms are "
                            f"{', '.join(names)}")
        names = (algorithm,)
    elif problem.spec.kind == "pointwise" and masked is not None:
        # Exact and masked are words of the paper's space alone.
        names = ("channel_distribution",)
    for name in names:
        for reaches_past, columns in _SPACES[name]:
            if name != "channel_distribution" or masked in (None, reaches_past):
                yield _space(problem, device, rules, TILINGS[name], columns(problem, device),
                             reaches_past)


def make_plan(problem: ConvProblem, device: Device, tiling: Tiling, rules: Rules = "hardware",
              block_n: int | None = None) -> Plan:
    """The plan that *tiling* makes, whether or not it fits (dscore.solving.verdict judges that).

    Raises SpecError where the tiling is of another kind than the problem.
    """
    require_kind(problem, tiling)
    case = case_of(problem, device, type(tiling), tiling)
    resident = block_n or int(residency(case, rules))
    return Plan(problem, device, tiling, rules, launch_of(problem, tiling, device.wavefront),
                resource_use(problem, tiling, device.wavefront), int(case.compiled), resident,
                overhangs(problem, tiling, device.wavefront),
                cost(case, resident).one(case.foot.utilisation))


def require_kind(problem: ConvProblem, tiling: Tiling) -> None:
    """Raise SpecError where *tiling* belongs to another kind of convolution than *problem*."""
    if isinstance(tiling, DirectTiling):
        return
    wanted = FAMILIES.get(problem.spec.kind, ())
    if not isinstance(tiling, wanted):
        takes = " or ".join(cls.__name__ for cls in (*wanted, DirectTiling))
        raise SpecError(f"a {type(tiling).__name__} does not run {problem}, a {problem.spec.kind} "
                        f"convolution; it takes a {takes}")


@lru_cache(maxsize=4096)
def best_plan(problem: ConvProblem, device: Device, rules: Rules = "hardware",
              arithmetic: Arithmetic | None = None) -> Plan:
    """The plan the cost model ranks first, of those that compute by *arithmetic* if one is named.

    Raises InfeasibleError where nothing fits.
    """
    space = solve(problem, device, rules)
    for index in space.ranked():
        if computes(space[int(index)], arithmetic):
            return space.plan(int(index))
    raise InfeasibleError(f"{problem} on {device}: no tiling computes by {arithmetic}; leave "
                          "arithmetic to the solver")
