"""Which plan a problem gets: the one tuned here, else the shipped hint, else the model's first."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Literal

from . import eager, records, solver, tunings
from .backend import Backend
from .device import Device
from .errors import InfeasibleError
from .plan import Plan, Rules
from .spec import ConvProblem

Origin = Literal["hint", "model", "caller"]


def decided(problem: ConvProblem, device: Device, chosen: Backend, backend: str) -> Plan:
    """What `dscore.conv` runs; tuned now where the environment asks for that."""
    plan = records.tuned_plan(problem, device, chosen)
    if plan is None and os.environ.get("DSCORE_TUNE") and not eager.capturing():
        from . import tune

        plan = tune.on_demand(problem, device, backend) if tune.wanted() else None
    return plan or untuned(problem, device, chosen=chosen)


def untuned(problem: ConvProblem, device: Device, rules: Rules = "hardware",
            chosen: Backend | None = None) -> Plan:
    """The plan where no record is looked at: the hint, or the model's first.

    Hints keep the hardware's limits, and are none under the paper's rules; one that *chosen*
    refuses is passed over.

    >>> from .catalog import device, layers
    >>> untuned(layers()["D1"], device("z100sm")).tiling.algorithm
    'row_reuse'
    """
    hinted = tunings.shipped_plan(problem, device) if rules == "hardware" else None
    if hinted is not None and not (chosen and chosen.refuses(hinted)):
        return hinted
    return solver.best_plan(problem, device, rules)


def origin(plan: Plan) -> Origin:
    """Who chooses *plan* where nothing was tuned: a shipped hint or the model; else the caller.

    >>> from .catalog import device, layers
    >>> origin(solver.best_plan(layers()["D1"], device("z100sm")))
    'model'
    """
    if plan.rules == "hardware" and plan == tunings.shipped_plan(plan.problem, plan.device):
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
    shipped = tunings.shipped(plan.device.name)
    taken = None if shipped is None else shipped.microseconds(plan.problem)
    return "a shipped hint" + ("" if taken is None else f", measured at {taken:,.2f} µs")
