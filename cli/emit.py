"""`dscore emit`: the C++ unit that a layer's kernel is compiled from."""

from __future__ import annotations

from typing import cast

from dscore import api
from dscore.building.ahead_of_time import require_kernel
from dscore.building.codegen import KernelSource, render
from dscore.cli.inputs import tiling_of
from dscore.cli.output import print_json
from dscore.cli.records import plan_record
from dscore.core.errors import require_one_of
from dscore.core.plan import Rules

SIZES = ("fixed", "any")


def run(layer: str, device: str, rules: str, tiling: str | None, batch: int | None, sizes: str,
        json: bool) -> None:
    """Print the unit."""
    problem = api.problem_of(layer)
    if batch is not None:
        problem = problem.with_batch(batch)
    plan = api.plan_for(problem, device, cast(Rules, rules), tiling_of(tiling))
    require_kernel(plan)
    kernel = KernelSource(plan, require_one_of(sizes, "--sizes", SIZES))
    unit = render([kernel])
    if json:
        print_json({"name": kernel.name, "sizes": sizes, "unit": unit, "plan": plan_record(plan)})
    else:
        print(unit, end="")
