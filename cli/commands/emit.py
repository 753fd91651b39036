"""`dscore emit`: the C++ unit that a layer's kernel is compiled from."""

from __future__ import annotations

from dscore.cli import options
from dscore.cli.inputs import plan_of, sizes_of
from dscore.cli.show.json import plan_record, print_json


def emit(
    layer: options.Layer,
    device: options.DeviceName = None,
    rules: options.RulesName = "hardware",
    tiling: options.TilingFields = None,
    arithmetic: options.Arithmetic = "sum",
    batch: options.Batch = None,
    sizes: options.Sizes = "fixed",
    json: options.Json = False,
) -> None:
    """Print the C++ unit of a layer's kernel.

    The unit asserts the plan's threads and LDS bytes: if plan and kernel differ, it does not
    compile.

    \b
    dscore emit P13
    dscore emit mobilenet_v2/2 --device h200 --sizes any
    dscore emit ResNet-1 --batch 64 --device h200 --arithmetic winograd
    """
    from dscore.building.codegen import KernelSource, render

    plan = plan_of(layer, device, rules, tiling, batch, arithmetic)
    kernel = KernelSource(plan, sizes_of(sizes))
    unit = render([kernel])
    if json:
        print_json({"name": kernel.name, "sizes": sizes, "unit": unit, "plan": plan_record(plan)})
    else:
        print(unit, end="")
