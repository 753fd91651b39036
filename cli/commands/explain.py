"""`dscore explain`: the plan of one layer, with its reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dscore.cli import options
from dscore.cli.inputs import plan_of
from dscore.cli.show.json import Record, check_record, plan_record, print_json
from dscore.cli.show.screen import prose_columns, screen
from dscore.cli.show.text import print_table

if TYPE_CHECKING:
    from dscore.backends.machine_code.counts import MachineCounts
    from dscore.core.plan import Plan
    from dscore.solving.explain import Explanation

# In the order in which they are shown.
NAMES = ("vector ALU", "multiply-adds", "scalar ALU", "scalar loads", "LDS reads",
         "LDS words read", "LDS writes", "LDS clocks", "bank conflicts", "lane permutes",
         "global loads", "lines loaded", "global stores", "lines stored", "branches", "barriers",
         "waits", "waits for memory", "waits for LDS", "no-ops")


def explain(
    layer: options.Layer,
    device: options.DeviceName = None,
    rules: options.RulesName = "hardware",
    tiling: options.TilingFields = None,
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

    \b
    dscore explain P13
    dscore explain mobilenet_v2/2 --device h200
    dscore explain D5 --device z100sm --counts
    dscore explain P28 --tiling wave_w=1,wave_c=64,repeat_w=1,repeat_c=4,group_c=8
    """
    from dscore import api

    explanation = api.explain(plan_of(layer, device, rules, tiling, batch))
    if device is None:
        explanation = replace(explanation, assumed=api.assumed_device()[1])
    counted = _counted(explanation.plan) if counts else None
    if json:
        print_json(_record(explanation) | ({"counts": _counts_record(*counted)} if counted else {}))
        return
    print(explanation.text(prose_columns(), every_limit=screen.verbose))
    if counted:
        _print_counts(*counted)


def _counted(plan: Plan) -> tuple[MachineCounts, dict[str, float]]:
    """Counts of the plan's machine code, and those that the cost model makes."""
    import numpy as np

    from dscore.algorithms.registry import algorithm_of, case_of
    from dscore.checking.bound import sample
    from dscore.core.backend import choose_backend
    from dscore.ops import output_of

    kernel: Any = choose_backend("gfx906").compile(plan)
    output = output_of(plan.problem)
    counts = kernel.counts(*sample(plan.problem, 0), np.empty(output.shape, output.element.name))
    case = case_of(plan.problem, plan.device, plan.tiling, plan.block_n)
    return counts, {name: float(count)
                    for name, count in algorithm_of(plan.tiling).traffic(case).items()}


def _print_counts(counts: MachineCounts, assumed: dict[str, float]) -> None:
    per_wave = counts.per_wave
    print(f"\nmachine code of gfx906, per wavefront ({counts.blocks} of {counts.grid_blocks:,} "
          "blocks counted)\n")
    print_table(("count", ">executed", ">cost model"), [
        (name, f"{per_wave.get(name, 0.0):,.1f}",
         f"{assumed[name]:,.1f}" if name in assumed else "") for name in NAMES
        if per_wave.get(name) or assumed.get(name)])


def _counts_record(counts: MachineCounts, assumed: dict[str, float]) -> Record:
    return {"blocks": counts.blocks, "grid_blocks": counts.grid_blocks, "waves": counts.waves,
            "per_wave": counts.per_wave, "cost_model": assumed}


def _record(explanation: Explanation) -> Record:
    from dscore.algorithms.registry import algorithm_of
    from dscore.solving.explain import wavefront_map

    plan = explanation.plan
    return {"plan": plan_record(plan), "chosen_by": explanation.chosen_by,
            "ledger": [check_record(check) for check in explanation.ledger],
            "floor_seconds": explanation.floor_seconds, "floor": explanation.floor,
            "note": explanation.note, "considered": explanation.considered,
            "picture": wavefront_map(plan), "caption": algorithm_of(plan.tiling).caption(plan)}
