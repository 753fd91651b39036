"""JSON that commands print, and problems, limits, plans and verdicts as its plain values."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dscore.cli.show.screen import screen

if TYPE_CHECKING:
    from dscore.bench.rows import Row
    from dscore.checking.bound import Accuracy
    from dscore.core.plan import Check, Plan
    from dscore.core.problem import ConvProblem
    from dscore.solving.verdict import Suggestion, Verdict

Record = dict[str, Any]


def print_json(value: Any, indent: int | None = 2) -> None:
    """*value* as JSON on stdout; NaN and infinities are a bug here."""
    print(json_text(value, indent))
    screen.data_printed = True


def json_text(value: Any, indent: int | None = 2) -> str:
    """*value* as JSON."""
    return json.dumps(value, indent=indent, allow_nan=False, ensure_ascii=False)


def finite(value: float) -> float | None:
    """*value*, or None (JSON's null) where JSON has no number for it."""
    return value if math.isfinite(value) else None


def problem_record(problem: ConvProblem) -> Record:
    """A problem as its token and in words."""
    from dscore.core.token import problem_token

    return {"problem": problem_token(problem), "title": str(problem)}


def row_records(rows: Iterable[Row]) -> list[Record]:
    """Rows of a benchmark; the share of a result that is not finite has no number in JSON."""
    return [{**asdict(row), "share": row.share and finite(row.share)} for row in rows]


def accuracy_record(accuracy: Accuracy | None) -> Record:
    """How near a result is to the exact one: its share of the bound, whose bound that is, and its
    share of a float32 sum's; null where nothing was compared."""
    return {"share": accuracy and finite(accuracy.share),
            "bound_of": accuracy and accuracy.arithmetic,
            "share_of_sum": accuracy and finite(accuracy.share_of_sum)}


def check_record(check: Check) -> Record:
    """One line of a ledger."""
    return {**asdict(check), "slack": check.slack, "ok": check.slack >= 0}


def plan_record(plan: Plan) -> Record:
    """A plan, field by field; what its launch asks for of LDS by itself and behind another one."""
    from dscore.algorithms.registry import algorithm_of  # imports NumPy

    ask = algorithm_of(plan.tiling).asked_lds_bytes
    return {"name": plan.name, **problem_record(plan.problem), "device": plan.device.name,
            "algorithm": plan.tiling.algorithm, "tiling": plan.tiling.as_json(),
            "rules": plan.rules, "masked": plan.masked, "launch": asdict(plan.launch),
            "use": asdict(plan.use),
            "asked_lds_bytes": {"alone": ask(plan, False), "behind": ask(plan, True)},
            "registers_at_most": plan.compiled_registers,
            "registers_compiled": plan.reported_registers,
            "block_n": plan.block_n, "cost": asdict(plan.cost)}


def verdict_record(verdict: Verdict) -> Record:
    """A verdict on a configuration."""
    return {**problem_record(verdict.problem), "device": verdict.device.name,
            "tiling": verdict.tiling.as_json(), "block_n": verdict.block_n,
            "masked": verdict.masked, "rules": verdict.rules, "ok": verdict.ok,
            "ledger": [check_record(check) for check in verdict.ledger],
            "violations": [asdict(violation) for violation in verdict.violations],
            "nearest": [_suggestion_record(suggestion) for suggestion in verdict.nearest]}


def _suggestion_record(suggestion: Suggestion) -> Record:
    return {"changes": {name: {"from": old, "to": new} for name, old, new in suggestion.changes},
            "tiling": suggestion.tiling.as_json(), "block_n": suggestion.block_n,
            "masked": suggestion.masked, "use": asdict(suggestion.use), "text": str(suggestion)}
