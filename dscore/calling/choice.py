"""Plan of a problem: the one tuned here, else the shipped hint, else the model's first.

A plan whose kernel spills is passed over for the next of these (`unspilled`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Literal, TypeVar

from dscore.algorithms.registry import as_tiling
from dscore.calling.gpu_arrays import capturing
from dscore.core.backend import Backend, Kernel, refusals
from dscore.core.device import Device
from dscore.core.errors import (
    CompileError,
    InfeasibleError,
    SpecError,
    UnavailableError,
    require_one_of,
)
from dscore.core.numerics import ARITHMETICS, WORD_BYTES, Arithmetic
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling
from dscore.core.token import problem_token
from dscore.solving import solver, verdict
from dscore.tuning import records, shipped_hints
from dscore.tuning.shipped_hints import untuned_plan

Origin = Literal["hint", "model", "caller"]
# A plan as a caller of `dscore.conv` may give it: whole, or as a tiling, or as a tiling's fields.
PlanLike = Plan | Tiling | Mapping[str, Any]
# Plans whose kernels spill before the least of these evils is taken: each costs a compilation.
MOST_PASSED_OVER = 8
_K = TypeVar("_K")


@dataclass(frozen=True)
class Assignment:
    """Plans that calls take in place of their own, by the problems' tokens; `defaults` has their
    own plans, of all problems that were asked for.
    """

    plans: Mapping[str, Plan]
    defaults: dict[str, Plan] = field(default_factory=dict)

    def of(self, default: Plan) -> Plan:
        """The plan in place of *default*, which is noted down."""
        self.defaults[default.token] = default
        return self.plans.get(default.token, default)


# Of `dscore.calling.assignment.assigned`; the last one counts.
ASSIGNMENTS: list[Assignment] = []


def default_plan(problem: ConvProblem, device: Device, backend: Backend, name: str,
                 arithmetic: Arithmetic | None = None) -> Plan:
    """The plan that `dscore.conv` runs; tuned now where the environment asks for that.

    *name* is the backend's as the caller wrote it, by which workers find it.
    """
    _require_known(arithmetic)
    plan = _own_plan(problem, device, backend, name, arithmetic)
    return ASSIGNMENTS[-1].of(plan) if ASSIGNMENTS else plan


def _own_plan(problem: ConvProblem, device: Device, backend: Backend, name: str,
              arithmetic: Arithmetic | None) -> Plan:
    """The plan on record, else one that is tuned now, a hint's, or the model's first."""
    plan = records.tuned_plan(problem, device, backend, arithmetic)
    if plan is None and os.environ.get("DSCORE_TUNE") and not capturing():
        from dscore.tuning import tune

        if tune.wanted():
            tune.on_demand(problem, device, name)
            plan = records.tuned_plan(problem, device, backend, arithmetic)
    return plan or untuned_plan(problem, device, backend=backend, arithmetic=arithmetic)


@dataclass(frozen=True)
class PassedOver:
    """Plan that is not taken, because a lane of its kernel keeps so many words in memory."""

    plan: Plan
    spills: int

    def __str__(self) -> str:
        return f"{self.plan.tiling.name} (spills {WORD_BYTES * self.spills} B of a lane to memory)"


def unspilled(plan: Plan, kernel_of: Callable[[Plan], _K], spills_of: Callable[[_K], int],
              backend: Backend | None = None, arithmetic: Arithmetic | None = None
              ) -> tuple[Plan, _K, tuple[PassedOver, ...]]:
    """*plan* and its kernel; where that spills, those of the first plan after it that does not.

    After it come the shipped hint and the model's order. Where the first `MOST_PASSED_OVER` all
    spill, or the others cannot be built here, that of the fewest spills is taken. The last of the
    result are the plans that were passed over; each is also said to the logger "dscore" (info).
    """
    kernel = kernel_of(plan)
    spilling = [(plan, kernel, spills_of(kernel))]
    if not spilling[0][2]:
        return plan, kernel, ()
    for other in islice(_others(plan, backend, arithmetic), MOST_PASSED_OVER - 1):
        try:
            kernel = kernel_of(other)
        except (UnavailableError, CompileError):  # a machine of loaded files alone has no others
            continue
        if not spills_of(kernel):
            return other, kernel, _passed_over(spilling, other)
        spilling.append((other, kernel, spills_of(kernel)))
    taken = min(spilling, key=lambda one: one[2])
    return *taken[:2], _passed_over([one for one in spilling if one is not taken], taken[0])


def following(plan: Plan, backend: Backend | None) -> Plan | None:
    """The plan that `unspilled` tries after *plan*; None where there is no other."""
    return next(_others(plan, backend, None), None)


def unspilled_kernel(backend: Backend, plan: Plan) -> Kernel:
    """The kernel for *plan* that a call of *backend* on host arrays takes, as `unspilled` has it.
    """
    return unspilled(plan, backend.compile, lambda kernel: kernel.use.spills, backend)[1]


def _passed_over(spilling: list[tuple[Plan, _K, int]], taken: Plan) -> tuple[PassedOver, ...]:
    passed = tuple(PassedOver(plan, spills) for plan, _, spills in spilling)
    for one in passed:
        logging.getLogger("dscore").info("dscore: %s: %s is passed over for %s", taken.token, one,
                                         taken.tiling.name)
    return passed


def _others(plan: Plan, backend: Backend | None, arithmetic: Arithmetic | None) -> Iterator[Plan]:
    """The plans after *plan*: the shipped hint, then those of the model's order."""
    problem, device = plan.problem, plan.device
    hint = shipped_hints.shipped_plan(problem, device) if plan.rules == "hardware" else None
    ranked: Iterator[Plan] = iter(())
    with suppress(InfeasibleError):  # the solver may think of none that computes so
        ranked = solver.ranked_plans(problem, device, plan.rules, arithmetic=arithmetic,
                                     among=None if backend is None else backend.algorithms)
    seen = {plan.tiling}
    for other in chain([hint] if hint else [], ranked):
        if (other.tiling not in seen and other.tiling.computes(arithmetic)
                and not (backend and refusals(backend, other))):
            seen.add(other.tiling)
            yield other


def callers_plan(problem: ConvProblem, device: Device, plan: PlanLike,
                 arithmetic: Arithmetic | None = None) -> Plan:
    """The caller's plan, or that of the caller's tiling on *device*.

    Raises SpecError where it is for another problem or computes by another arithmetic,
    InfeasibleError where it does not fit.
    """
    _require_known(arithmetic)
    if not isinstance(plan, Plan):
        plan = solver.make_plan(problem, device, as_tiling(plan, "plan"))
    if problem_token(plan.problem) != problem_token(problem):
        raise SpecError(f"the plan is for {problem_token(plan.problem)}, "
                        f"the arrays make {problem_token(problem)}")
    if not plan.tiling.computes(arithmetic):
        raise SpecError(f"the plan's tiling {plan.tiling.name} does not compute by "
                        f"arithmetic={arithmetic!r}; leave one of both out")
    verdict.validate(plan.problem, plan.tiling, plan.device, plan.rules, masked=True).require()
    require_made(plan)
    return plan


def require_made(plan: Plan) -> None:
    """Raise SpecError where *plan* is not what its tiling makes: a launch, say, was replaced."""
    if plan != solver.make_plan(plan.problem, plan.device, plan.tiling, plan.rules, plan.block_n,
                                plan.reported_registers):
        raise SpecError(f"the plan is not the one that its tiling {plan.tiling.name} makes on "
                        f"{plan.device.name}: something of it was replaced; dscore.plan_for makes "
                        "plans")


def _require_known(arithmetic: Arithmetic | None) -> None:
    if arithmetic is not None:
        require_one_of(arithmetic, "arithmetic", ARITHMETICS)


def origin(plan: Plan) -> Origin:
    """The source of *plan* where nothing was tuned: a shipped hint or the model; else the caller.

    >>> from dscore.core.catalog import device, layers
    >>> origin(solver.best_plan(layers()["D1"], device("z100sm")))
    'model'
    """
    if plan.rules == "hardware" and plan == shipped_hints.shipped_plan(plan.problem, plan.device):
        return "hint"
    with suppress(InfeasibleError):  # a tiling may fit that the solver does not think of
        if plan == solver.best_plan(plan.problem, plan.device, plan.rules):
            return "model"
    return "caller"


def origin_text(plan: Plan, named: bool = True) -> str:
    """The origin in words, with the time that a hint was measured at.

    *named*: a plan that is neither the hint nor the model's first was named by the caller; else it
    is the next one after some that spill.
    """
    source = origin(plan)
    if source == "caller" and not named:
        return "the cost model, after what spills"
    if source != "hint":
        return f"the {'cost model' if source == 'model' else 'caller'}"
    timing = shipped_hints.timing(plan)
    if timing is None:
        return "a shipped hint"
    device, microseconds = timing
    elsewhere = f" on {device}" * (device != plan.device.name)
    return f"a shipped hint, measured at {microseconds:,.2f} µs{elsewhere}"
