"""Which plan a problem gets: the one tuned here, else the shipped hint, else the model's first."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Literal

from dscore.calling import call_cache
from dscore.core.backend import Backend
from dscore.core.device import Device
from dscore.core.errors import InfeasibleError, SpecError, require_one_of
from dscore.core.plan import Plan, Rules
from dscore.core.problem import ConvProblem
from dscore.core.tiling import ARITHMETICS, Arithmetic, Tiling
from dscore.core.token import problem_token
from dscore.solving import solver, verdict
from dscore.tuning import records, shipped_hints

Origin = Literal["hint", "model", "caller"]


def decided(problem: ConvProblem, device: Device, chosen: Backend, backend: str,
            arithmetic: Arithmetic | None = None) -> Plan:
    """What `dscore.conv` runs; tuned now where the environment asks for that."""
    _require_known(arithmetic)
    plan = records.tuned_plan(problem, device, chosen, arithmetic)
    if plan is None and os.environ.get("DSCORE_TUNE") and not call_cache.capturing():
        from dscore.tuning import tune

        if tune.wanted():
            tune.on_demand(problem, device, backend)
            plan = records.tuned_plan(problem, device, chosen, arithmetic)
    return plan or untuned(problem, device, chosen=chosen, arithmetic=arithmetic)


def untuned(problem: ConvProblem, device: Device, rules: Rules = "hardware",
            chosen: Backend | None = None, arithmetic: Arithmetic | None = None) -> Plan:
    """The plan where no record is looked at: the hint, or the model's first.

    Hints keep the hardware's limits, and are none under the paper's rules; one that *chosen*
    refuses, or that computes otherwise than by *arithmetic*, is passed over.

    >>> from dscore.core.catalog import device, layers
    >>> untuned(layers()["D1"], device("z100sm")).tiling.algorithm
    'row_reuse'
    """
    hinted = shipped_hints.shipped_plan(problem, device) if rules == "hardware" else None
    if (hinted is not None and hinted.tiling.computes(arithmetic)
            and not (chosen and chosen.refuses(hinted))):
        return hinted
    return solver.best_plan(problem, device, rules, arithmetic)


def given(problem: ConvProblem, device: Device, plan: Plan | Tiling,
          arithmetic: Arithmetic | None = None) -> Plan:
    """The caller's plan, or his tiling's on *device*; it must be for *problem*, and fit."""
    _require_known(arithmetic)
    if not isinstance(plan, Plan):
        if not isinstance(plan, Tiling):
            raise SpecError(f"plan must be a Plan or a tiling, got {type(plan).__name__}")
        plan = solver.make_plan(problem, device, plan)
    if problem_token(plan.problem) != problem_token(problem):
        raise SpecError(f"the plan is for {problem_token(plan.problem)}, "
                        f"the arrays make {problem_token(problem)}")
    if not plan.tiling.computes(arithmetic):
        raise SpecError(f"the plan's tiling {plan.tiling.name} does not compute by "
                        f"arithmetic={arithmetic!r}; leave one of both out")
    verdict.validate(plan.problem, plan.tiling, plan.device, plan.rules, masked=True).require()
    return plan


def _require_known(arithmetic: Arithmetic | None) -> None:
    if arithmetic is not None:
        require_one_of(arithmetic, "arithmetic", ARITHMETICS)


def origin(plan: Plan) -> Origin:
    """Who chooses *plan* where nothing was tuned: a shipped hint or the model; else the caller.

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


def origin_said(plan: Plan) -> str:
    """`origin` in words, with the time that a hint was measured at."""
    found = origin(plan)
    if found != "hint":
        return f"the {'cost model' if found == 'model' else 'caller'}"
    shipped = shipped_hints.shipped(plan.device.name)
    taken = None if shipped is None else shipped.microseconds(plan.problem)
    return "a shipped hint" + ("" if taken is None else f", measured at {taken:,.2f} µs")
