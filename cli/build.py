"""`dscore build`: the kernels of many layers in one library, each compared with its plan."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import cast

import typer

from dscore import api
from dscore.building.ahead_of_time import (
    BuiltKernels,
    Comparison,
    build,
    device_for,
    require_kernel,
)
from dscore.building.codegen import KernelSource, units
from dscore.building.reports import MOST_SPILLS
from dscore.building.toolchain import Compiler, Target, find_compiler, target
from dscore.cli.emit import SIZES
from dscore.cli.inputs import layers_of
from dscore.cli.output import (
    counted,
    print_json,
    print_table,
    print_text,
    progress,
    require_writable,
)
from dscore.cli.records import Record, plan_record
from dscore.core.device import Device
from dscore.core.errors import require_int, require_one_of
from dscore.core.plan import Rules

_PLANNED = ("layer", "tiling", ">threads", ">LDS B", ">regs")
_COMPARED = ("layer", "tiling", ">threads", ">LDS B", ">built", ">regs", ">built", ">spills",
             ">waves\n/SIMD", "verdict")
Layers = dict[str, list[str]]  # the names of the layers that a kernel serves, by its symbol


@dataclass(frozen=True)
class Request:
    """The command line."""

    target: str
    device: str | None
    rules: str
    batch: int | None
    sizes: str
    jobs: int | None
    out: str | None


def run(layers: list[str], asked: Request, json: bool) -> None:
    """Build and compare; exit 1 where a kernel shows the solver to be wrong."""
    aim = target(asked.target)
    device = device_for(aim, None if asked.device is None else api.device_of(asked.device))
    if asked.jobs is not None:
        require_int(asked.jobs, "--jobs")
    if asked.out is not None:
        require_writable(asked.out)
    kernels = _kernels(layers, asked, device)
    served: Layers = {}
    for name, kernel in kernels:
        served.setdefault(kernel.name, []).append(name)
    built = _built([kernel for _, kernel in kernels], aim, find_compiler(aim.kind), asked.jobs)
    if asked.out is not None and built.ok:
        built.copy_to(asked.out)
    _report(built, served, asked, device, json)
    if not built.ok:
        raise typer.Exit(1)


def _kernels(layers: list[str], asked: Request, device: Device) -> list[tuple[str, KernelSource]]:
    """Each layer's name and its kernel."""
    sizes = require_one_of(asked.sizes, "--sizes", SIZES)
    found = []
    for layer in layers_of(layers, asked.batch):
        plan = api.plan_for(layer.problem, device, cast(Rules, asked.rules))
        require_kernel(plan)
        found.append((layer.name, KernelSource(plan, sizes)))
    return found


def _built(kernels: list[KernelSource], aim: Target, compiler: Compiler,
           jobs: int | None) -> BuiltKernels:
    with progress(len(units(kernels))) as begin:
        begin(f"compiling {counted(len({kernel.name for kernel in kernels}), 'kernel')}")
        return build(kernels, aim, compiler=compiler, jobs=jobs,
                     progress=lambda done, total, _: begin("" if done < total else "linking"))


def _report(built: BuiltKernels, served: Layers, asked: Request, device: Device,
            json: bool) -> None:
    path = asked.out if asked.out is not None and built.ok else str(built.path)
    if json:
        print_json(_record(built, served, asked, device, path))
    else:
        _print_kernels(built, served)
    prose = sys.stderr if json else sys.stdout
    if path != asked.out and asked.out is not None:
        print_text(f"nothing was copied to {asked.out}", prose)
    # Not wrapped: its end is a path.
    print(f"{_summary(built)}, {path}", file=prose)


def _print_kernels(built: BuiltKernels, served: Layers) -> None:
    """The table; without what is reported where the compiler, a host's, reports nothing."""
    rows = [_row(kernel, served[name]) for name, kernel in built.kernels.items()]
    if any(kernel.reported for kernel in built.kernels.values()):
        print_table(_COMPARED, rows, verdict=True)
    else:
        print_table(_PLANNED, [(*row[:4], row[5]) for row in rows])
    print()


def _row(kernel: Comparison, layers: list[str]) -> tuple[str, ...]:
    planned, said = kernel.predicted, kernel.reported
    more = f" (+{len(layers) - 1})" if len(layers) > 1 else ""
    built = ("", "", "", "") if said is None else (
        f"{said.lds_bytes:,}", str(said.registers + said.accumulators), str(said.spills),
        "" if said.occupancy_waves is None else str(said.occupancy_waves))
    return (layers[0] + more, kernel.plan.tiling.name, str(planned.threads),
            f"{planned.lds_bytes:,}", built[0], str(kernel.plan.compiled_registers), *built[1:],
            _verdict(kernel))


def _verdict(kernel: Comparison) -> str:
    if kernel.faults:
        return ", ".join(kernel.faults)
    if kernel.tolerated:
        return counted(kernel.spills, "word") + " spilled"
    if kernel.reported is not None and kernel.reported.scratch_bytes:
        return f"{kernel.reported.scratch_bytes} B scratch"
    return f"+{kernel.excess} regs" if kernel.excess > 0 else "holds"


def _summary(built: BuiltKernels) -> str:
    kernels = [*built.kernels.values()]
    reported = [kernel for kernel in kernels if kernel.reported is not None]
    differ = sum(not kernel.lds_exact for kernel in kernels)
    parts = [counted(len(kernels), "kernel"), f"LDS differs in {differ}" if differ else "LDS exact"]
    if reported:
        spilling = sum(kernel.spills > 0 for kernel in reported)
        few = sum(kernel.tolerated for kernel in reported)
        parts += [f"{counted(spilling, 'kernel')} with spills" if spilling else "0 spills",
                  *[f"{few} of them of up to {MOST_SPILLS} words, which are no fault"] * (few > 0),
                  "registers within the prediction: "
                  f"{sum(kernel.excess <= 0 for kernel in reported)} of {len(reported)}"]
    return ", ".join([*parts, f"{built.seconds:.1f} s" + " from the cache" * built.from_cache])


def _record(built: BuiltKernels, served: Layers, asked: Request, device: Device,
            path: str) -> Record:
    return {"target": built.target.name, "device": device.name, "rules": asked.rules,
            "sizes": asked.sizes, "flags": list(built.target.flags),
            "compiler": asdict(built.compiler), "library": path, "seconds": built.seconds,
            "from_cache": built.from_cache, "ok": built.ok,
            "kernels": [_kernel_record(name, kernel, served[name])
                        for name, kernel in built.kernels.items()]}


def _kernel_record(name: str, kernel: Comparison, layers: list[str]) -> Record:
    said = kernel.reported
    return {"name": name, "layers": layers, "plan": plan_record(kernel.plan),
            "predicted": asdict(kernel.predicted), "reported": said and asdict(said),
            "lds_exact": kernel.lds_exact, "excess_registers": said and kernel.excess,
            "faults": list(kernel.faults)}
