"""`dscore build`: the kernels of many layers compiled, each compared with its plan."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, cast

import typer

from dscore.cli import options
from dscore.cli.inputs import layers_of, sizes_of
from dscore.cli.show.json import Record, plan_record, print_json
from dscore.cli.show.screen import screen
from dscore.cli.show.text import (
    compiled_text,
    compiling,
    counted,
    print_table,
    print_text,
    require_writable,
)
from dscore.core.errors import require_int

if TYPE_CHECKING:
    from dscore.building.ahead_of_time import BuiltKernels, Comparison
    from dscore.building.codegen import KernelSource
    from dscore.building.compilers import Compiler
    from dscore.building.toolchain import Target
    from dscore.core.device import Device
    from dscore.core.plan import Rules

_PLANNED = ("layer", "tiling", ">threads", ">LDS B", ">regs")
_COMPARED = ("layer", "tiling", ">threads", ">LDS B", ">built", ">regs", ">built", ">spills",
             ">waves\n/SIMD", "verdict")
_SPARE = ("threads", "waves\n/SIMD", "spills")
_Layers = dict[str, list[str]]  # the names of the layers that a kernel serves, by its symbol


@dataclass(frozen=True)
class BuildRequest:
    """The options of the command line."""

    target: str
    device: str | None
    rules: str
    batch: int | None
    sizes: str | None
    jobs: int | None
    out: str | None
    arithmetic: str


def build(
    layers: options.Layers,
    target: Annotated[str, typer.Option(
        "--target", metavar="TARGET", show_default=False,
        help="Architecture to build for: emulated, gfx906, gfx90a, sm_90, ... It needs the "
             "compiler, and no GPU.")],
    device: Annotated[str | None, typer.Option(
        "--device", metavar="NAME|FILE.toml", show_default=False,
        help="Plan for this device; it must be of the target's architecture.  [default: gfx906 "
             "for gfx906, h200 for sm_90, z100sm for emulated, ...]")] = None,
    rules: options.RulesName = "hardware",
    arithmetic: options.Arithmetic = "sum",
    batch: options.Batch = None,
    sizes: Annotated[str | None, typer.Option(
        "--sizes", metavar="fixed|any", show_default=False,
        help="Image sizes: constants of the kernel (fixed) or its arguments (any).  [default: as "
             "calls take them, any for emulated and fixed for GPUs]")] = None,
    jobs: Annotated[int | None, typer.Option(
        "--jobs", metavar="N", show_default=False,
        help="Compile N units at a time.  [default: one for each core]")] = None,
    out: Annotated[str | None, typer.Option(
        "--out", metavar="FILE.so", show_default=False,
        help="Also write the kernels to this file, for machines without a compiler.  [default: "
             "they stay in the cache]")] = None,
    json: options.Json = False,
) -> None:
    """Compile the kernels of layers ahead of time.

    They stay in the cache, where every call and command finds them; only those that are missing
    are compiled. The table shows the plan beside the compiler's report: LDS, registers, spills,
    wavefronts on a SIMD.

    \b
    dscore build mobilenet_v2 --target gfx906 --device z100sm
    dscore build P1-P45 D1-D30 --target sm_90 --jobs 4 --out layers.so
    DSCORE_LIBRARIES=layers.so dscore run P13

    The file of --out holds all kernels of the command. A machine without a compiler takes them
    from the files that DSCORE_LIBRARIES names, or from dscore.load("layers.so").

    Ends with 1 if LDS differs from the plan, or if a kernel spills although the hardware rules
    call its plan valid; nvcc may spill up to 8 words.
    """
    _build(layers, BuildRequest(target, device, rules, batch, sizes, jobs, out, arithmetic), json)


def _build(layers: list[str], request: BuildRequest, json: bool) -> None:
    """Build and compare; exit 1 where a kernel shows the solver to be wrong."""
    from dscore import api
    from dscore.building import ahead_of_time, compilers, toolchain

    target = toolchain.target(request.target)
    device = ahead_of_time.device_for(
        target, None if request.device is None else api.device_of(request.device))
    if request.jobs is not None:
        require_int(request.jobs, "--jobs")
    if request.out is not None:
        require_writable(request.out)
    kernels = _kernels(layers, request, target, device)
    served: _Layers = {}
    for name, kernel in kernels:
        served.setdefault(kernel.name, []).append(name)
    built = _built([kernel for _, kernel in kernels], target,
                   compilers.find_compiler(target.kind, architecture=target.architecture), request)
    if request.out is not None and built.ok:
        ahead_of_time.write_kernels(request.out, [kernel for _, kernel in kernels], built)
    _report(built, served, request, device, json)
    if not built.ok:
        raise typer.Exit(1)


def _kernels(layers: list[str], request: BuildRequest, target: Target,
             device: Device) -> list[tuple[str, KernelSource]]:
    """Each layer's name and its kernel."""
    from dscore import api
    from dscore.building.codegen import CALLED_SIZES, KernelSource

    sizes = CALLED_SIZES[target.kind] if request.sizes is None else sizes_of(request.sizes)
    kernels = []
    for layer in layers_of(layers, request.batch, request.arithmetic):
        plan = api.plan_for(layer.problem, device, cast("Rules", request.rules))
        kernels.append((layer.name, KernelSource(plan, sizes)))
    return kernels


def _built(kernels: list[KernelSource], target: Target, compiler: Compiler,
           request: BuildRequest) -> BuiltKernels:
    from dscore.building import ahead_of_time

    with compiling(len({kernel.name for kernel in kernels})) as step:
        return ahead_of_time.build(kernels, target, compiler=compiler, jobs=request.jobs,
                                   progress=step, together=request.out is not None)


def _report(built: BuiltKernels, served: _Layers, request: BuildRequest, device: Device,
            json: bool) -> None:
    path = request.out if request.out is not None and built.ok else None
    if json:
        print_json(_record(built, served, request, device, path))
    else:
        _print_kernels(built, served)
    prose = sys.stderr if json else sys.stdout
    if path != request.out:
        print_text(f"nothing was copied to {request.out}", prose)
    if built.compiler.passed_over:
        print_text(f"built by {built.compiler.path}: {'; '.join(built.compiler.passed_over)}",
                   prose)
    if not screen.quiet:  # not wrapped: its end is a path
        print(f"{_summary(built)}, {path or _place(built)}", file=prose)


def _place(built: BuiltKernels) -> str:
    """The library in the cache, or the folder of several."""
    first, *others = built.libraries
    return f"in {1 + len(others)} libraries of {first.parent}" if others else str(first)


def _print_kernels(built: BuiltKernels, served: _Layers) -> None:
    """The table; without what is reported where the compiler, a host's, reports nothing."""
    rows = [_row(kernel, served[name]) for name, kernel in built.kernels.items()]
    if any(kernel.reported for kernel in built.kernels.values()):
        print_table(_COMPARED, rows, verdict=True, spare=_SPARE)
    else:
        print_table(_PLANNED, [(*row[:4], row[5]) for row in rows], spare=_SPARE)
    print()


def _row(kernel: Comparison, layers: list[str]) -> tuple[str, ...]:
    planned, report = kernel.predicted, kernel.reported
    more = f" (+{len(layers) - 1})" if len(layers) > 1 else ""
    built = ("", "", "", "") if report is None else (
        f"{report.lds_bytes:,}", str(report.held), str(kernel.spills),
        "" if report.occupancy_waves is None else str(report.occupancy_waves))
    return (layers[0] + more, kernel.plan.tiling.name, str(planned.threads),
            f"{planned.lds_bytes:,}", built[0], str(kernel.plan.compiled_registers), *built[1:],
            _verdict(kernel))


def _verdict(kernel: Comparison) -> str:
    if kernel.faults:
        return ", ".join(kernel.faults)
    if kernel.tolerated:
        return counted(kernel.spills, "word") + " spilled"
    return f"+{kernel.excess} regs" if kernel.excess > 0 else "holds"


def _summary(built: BuiltKernels) -> str:
    from dscore.building.ahead_of_time import MOST_SPILLS

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
    return ", ".join([*parts, compiled_text(built.compiled, len(kernels), built.seconds)])


def _record(built: BuiltKernels, served: _Layers, request: BuildRequest, device: Device,
            path: str | None) -> Record:
    from dscore.building.codegen import CALLED_SIZES

    return {"target": built.target.name, "device": device.name, "rules": request.rules,
            "sizes": request.sizes or CALLED_SIZES[built.target.kind],
            "flags": list(built.target.flags),
            "compiler": {**asdict(built.compiler), "version": built.compiler.version},
            "out": path,
            "libraries": [str(path) for path in built.libraries], "seconds": built.seconds,
            "compiled": built.compiled, "ok": built.ok,
            "kernels": [_kernel_record(name, kernel, served[name])
                        for name, kernel in built.kernels.items()]}


def _kernel_record(name: str, kernel: Comparison, layers: list[str]) -> Record:
    report = kernel.reported
    return {"name": name, "layers": layers, "plan": plan_record(kernel.plan),
            "predicted": asdict(kernel.predicted), "reported": report and asdict(report),
            "lds_exact": kernel.lds_exact, "excess_registers": report and kernel.excess,
            "faults": list(kernel.faults)}
