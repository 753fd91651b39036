"""`dscore explain`: the plan of one layer, with its reasons."""

from __future__ import annotations

from typing import cast

from dscore import api
from dscore.algorithms.registry import algorithm_of
from dscore.cli.inputs import tiling_of
from dscore.cli.output import print_json, print_text
from dscore.cli.records import Record, check_record, plan_record
from dscore.core.plan import Rules
from dscore.solving.explain import Explanation, wavefront_map


def run(layer: str, device: str, rules: str, tiling: str | None, batch: int | None,
        json: bool) -> None:
    """Print the explanation."""
    problem = api.problem_of(layer)
    if batch is not None:
        problem = problem.with_batch(batch)
    plan = api.plan_for(problem, device, cast(Rules, rules), tiling_of(tiling))
    explanation = api.explain(plan)
    if json:
        print_json(_record(explanation))
    else:
        # The values of a plan's rows stand in column 22.
        print_text(str(explanation), hanging=22)


def _record(explanation: Explanation) -> Record:
    plan = explanation.plan
    return {"plan": plan_record(plan), "chosen_by": explanation.chosen_by,
            "ledger": [check_record(check) for check in explanation.ledger],
            "floor_seconds": explanation.floor_seconds, "floor": explanation.floor,
            "note": explanation.note, "considered": explanation.considered,
            "picture": wavefront_map(plan), "caption": algorithm_of(plan.tiling).caption(plan)}
