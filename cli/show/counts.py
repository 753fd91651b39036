"""Counts of executed machine code, beside those of the cost model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dscore.cli.show.json import Record
from dscore.cli.show.text import print_table

if TYPE_CHECKING:
    from dscore.backends.machine_code.counts import MachineCounts
    from dscore.core.plan import Plan

# In the order in which they are shown.
_NAMES = ("vector ALU", "multiply-adds", "scalar ALU", "scalar loads", "LDS reads",
          "LDS words read", "LDS writes", "LDS clocks", "bank conflicts", "lane permutes",
          "global loads", "lines loaded", "global stores", "lines stored", "branches", "barriers",
          "waits", "waits for memory", "waits for LDS", "no-ops")


def counted_code(plan: Plan) -> tuple[MachineCounts, dict[str, float]]:
    """Counts of the plan's machine code, and those that the cost model makes."""
    from dscore.algorithms.registry import algorithm_of, case_of
    from dscore.checking.bound import blank, sample
    from dscore.core.backend import choose_backend

    kernel: Any = choose_backend("gfx906").compile(plan)
    counts = kernel.counts(*sample(plan.problem, 0), *blank(plan.problem))
    case = case_of(plan.problem, plan.device, plan.tiling, plan.block_n)
    return counts, {name: float(count)
                    for name, count in algorithm_of(plan.tiling).traffic(case).items()}


def print_counts(counts: MachineCounts, assumed: dict[str, float]) -> None:
    """Print a table of the counts of a wavefront."""
    per_wave = counts.per_wave
    print(f"\nmachine code of gfx906, per wavefront ({counts.blocks} of {counts.grid_blocks:,} "
          "blocks counted)\n")
    print_table(("count", ">executed", ">cost model"), [
        (name, f"{per_wave.get(name, 0.0):,.1f}",
         f"{assumed[name]:,.1f}" if name in assumed else "") for name in _NAMES
        if per_wave.get(name) or assumed.get(name)])


def counts_record(counts: MachineCounts, assumed: dict[str, float]) -> Record:
    """The counts as JSON shows them."""
    return {"blocks": counts.blocks, "grid_blocks": counts.grid_blocks, "waves": counts.waves,
            "per_wave": counts.per_wave, "cost_model": assumed}
