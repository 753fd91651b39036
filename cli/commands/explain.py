"""`dscore explain`: the plan of one layer, with its reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from dscore.cli import options
from dscore.cli.inputs import plan_of, problem_of
from dscore.cli.show.counts import counted_code, counts_record, print_counts
from dscore.cli.show.json import Record, check_record, plan_record, print_json
from dscore.cli.show.screen import prose_columns, screen

if TYPE_CHECKING:
    from dscore.core.plan import Rules
    from dscore.solving.explain import Explanation


def explain(
    layer: options.Layer,
    device: options.DeviceName = None,
    rules: options.RulesName = "hardware",
    tiling: options.TilingFields = None,
    arithmetic: options.Arithmetic = "sum",
    batch: options.Batch = None,
    counts: options.Counts = False,
    json: options.Json = False,
) -> None:
    """Show the plan of a layer and its reasons.

    It shows the plan's figures, each limit with what is left of it, how wavefronts cover the
    output, and the least time that the problem can take. Limits of which less than half is used
    are counted only; -v shows them.

    With --counts some blocks of the plan's machine code for gfx906 (a DCU, or an AMD GPU of that
    line) run in the interpreter. What a wavefront executes is shown beside what the cost model
    counts for it. It needs hipcc and llvm-objdump, and no GPU.

    Once the kernel has been compiled here (dscore build, prepare, or a call), registers, residency
    and limits are by the compiler's report.

    \b
    dscore explain P13
    dscore explain mobilenet_v2/2 --device h200
    dscore explain D5 --device z100sm --counts
    dscore explain P28 --tiling wave_w=1,wave_c=64,repeat_w=1,repeat_c=4,group_c=8
    """
    from dscore import api

    if tiling is None:
        explanation = api.explain(problem_of(layer, batch, arithmetic), device,
                                  cast("Rules", rules))
    else:
        explanation = api.explain(plan_of(layer, device, rules, tiling, batch,
                                          arithmetic))
        if device is None:
            explanation = replace(explanation, assumed=api.assumed_device()[1])
    counted = counted_code(explanation.plan) if counts else None
    if json:
        print_json(_record(explanation) | ({"counts": counts_record(*counted)} if counted else {}))
        return
    print(explanation.text(prose_columns(), every_limit=screen.verbose))
    if counted:
        print_counts(*counted)


def _record(explanation: Explanation) -> Record:
    from dscore.algorithms.registry import algorithm_of
    from dscore.solving.explain import wavefront_map

    plan = explanation.plan
    return {"plan": plan_record(plan), "arithmetic": explanation.arithmetic,
            "chosen_by": explanation.chosen_by,
            "ledger": [check_record(check) for check in explanation.ledger],
            "floor_seconds": explanation.floor_seconds, "floor": explanation.floor,
            "note": explanation.note, "considered": explanation.considered,
            "spills": explanation.spills, "passed_over": explanation.passed_over,
            "picture": wavefront_map(plan), "caption": algorithm_of(plan.tiling).caption(plan)}
