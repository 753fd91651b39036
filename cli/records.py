"""Problems, tilings, limits and plans as the plain values that JSON holds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dscore.core.plan import Check, Plan
from dscore.core.problem import ConvProblem
from dscore.core.token import problem_token
from dscore.solving.verdict import Suggestion, Verdict

Record = dict[str, Any]


def problem_record(problem: ConvProblem) -> Record:
    """A problem as its token and in words."""
    return {"problem": problem_token(problem), "title": str(problem)}


def check_record(check: Check) -> Record:
    """One line of a ledger."""
    return {**asdict(check), "slack": check.slack, "ok": check.slack >= 0}


def plan_record(plan: Plan) -> Record:
    """A plan, field by field."""
    return {"name": plan.name, **problem_record(plan.problem), "device": plan.device.name,
            "algorithm": plan.tiling.algorithm, "tiling": plan.tiling.as_json(),
            "rules": plan.rules, "masked": plan.masked, "launch": asdict(plan.launch),
            "use": asdict(plan.use), "block_n": plan.block_n, "cost": asdict(plan.cost)}


def verdict_record(verdict: Verdict) -> Record:
    """A judged configuration."""
    return {**problem_record(verdict.problem), "device": verdict.device.name,
            "tiling": verdict.tiling.as_json(), "block_n": verdict.block_n,
            "rules": verdict.rules, "ok": verdict.ok,
            "ledger": [check_record(check) for check in verdict.ledger],
            "violations": [asdict(violation) for violation in verdict.violations],
            "nearest": [_suggestion_record(suggestion) for suggestion in verdict.nearest]}


def _suggestion_record(suggestion: Suggestion) -> Record:
    return {"changes": {name: {"from": old, "to": new} for name, old, new in suggestion.changes},
            "tiling": suggestion.tiling.as_json(), "block_n": suggestion.block_n,
            "use": asdict(suggestion.use), "text": str(suggestion)}
