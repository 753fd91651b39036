"""The backend gfx906: hipcc's machine code of a plan, executed by the interpreter."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dscore.algorithms.registry import algorithm_of
from dscore.backends.host import HostBackend, addresses_of, wall_seconds
from dscore.backends.machine_code.basic_blocks import translate
from dscore.backends.machine_code.counts import MachineCounts, count
from dscore.backends.machine_code.disassembly import disassemble, missing_objdump
from dscore.backends.machine_code.hazards import hazards
from dscore.backends.machine_code.launch import Grid, Program
from dscore.backends.machine_code.objects import Descriptor, kernel_object
from dscore.building.codegen import CALLED_SIZES, KernelSource, Sizes, sizes_of
from dscore.building.headers import sources
from dscore.building.kernels import StoredKernel, missing_kernels, provide, sources_identity
from dscore.building.reports import Report
from dscore.building.toolchain import target
from dscore.core.backend import BackendIdentity, Prepared, Progress, require_accepted
from dscore.core.device import Device
from dscore.core.errors import CompileError, LaunchError, UnavailableError
from dscore.core.once import once
from dscore.core.plan import Plan, ResourceUse, Violation
from dscore.core.spec import LAYOUTS
from dscore.ops import operands_of

_T = TypeVar("_T")
_WAVEFRONT = 64
_WORKSPACE = "workspace"
# FLOAT_MODE: round to nearest even, denormals kept (AMDGPUUsage, "Floating Point Rounding Mode
# Enumeration Values"). What `arithmetic` computes holds for this mode alone.
_FLOAT_MODE = 0xF0


class MachineKernel:
    """A kernel of gfx906 machine code, on NumPy arrays."""

    def __init__(self, plan: Plan, sizes: Sizes, programs: Sequence[Program],
                 report: Report | None = None) -> None:
        self.plan = plan
        self.use: ResourceUse = plan.use if report is None else report.use(plan.use)
        self.program, self._following = programs[0], programs[1:]
        self._rest = b"" if sizes == "fixed" else _shape_bytes(plan)

    def __call__(self, *arrays: Any) -> None:
        """Write the results of the inputs to the other operands.

        Raises LaunchError where an array does not fit the plan, or the machine code does what it
        must not do: the instruction and what it did.
        """
        self.run_blocks(None, *arrays)

    def run_blocks(self, numbers: Sequence[int] | None, *arrays: Any) -> None:
        """Run the blocks of these *numbers* alone, of the first launch, or all; as a call of the
        kernel else.

        A sample of the blocks of a big layer costs little. What the other blocks would write is
        left as it is.
        """
        self._with(partial(self._run, numbers), arrays)

    def _run(self, numbers: Sequence[int] | None, grid: Grid, named: Sequence[Any],
             rest: bytes) -> None:
        """Run these blocks of the first launch; where that is all, the further launches, too."""
        self.program.run(grid, named, rest, blocks=numbers)
        following = zip(self._following, self.plan.further_launches, strict=True)
        # Which read the workspace that the first has written to.
        named = [(name, array, written if written is None else written and name != _WORKSPACE)
                 for name, array, written in named]
        for program, launch in following if numbers is None else ():
            program.run(Grid(launch.blocks, launch.threads), named, rest)

    def counts(self, *arrays: Any) -> MachineCounts:
        """Counts of some blocks, which write their part of the result.

        Raises LaunchError as a call does.
        """
        return self._with(partial(count, self.program), arrays)

    def _with(self, run: Callable[..., _T], arrays: Sequence[Any]) -> _T:
        """What *run* gives for the grid, the named arrays and the further arguments."""
        addresses_of(self.plan, *arrays)  # raises for arrays that do not fit
        operands = operands_of(self.plan.problem)
        grid = Grid(self.plan.launch.blocks, self.plan.launch.threads)
        named: list[tuple[str, Any, bool | None]] = [
            (operand.name, array, operand.role == "output")
            for operand, array in zip(operands, arrays, strict=True)]
        if self.plan.workspace_bytes:
            algorithm, tiling = algorithm_of(self.plan.tiling), self.plan.tiling
            words = np.full(-(-self.plan.workspace_bytes // 4), np.nan, np.float32)
            cleared = algorithm.cleared_bytes(self.plan.problem, tiling)
            words[:(cleared or 0) // 4] = 0
            named.append((_WORKSPACE, words, True if cleared is None else None))
        try:
            return run(grid, named, self._rest)
        except LaunchError as fault:
            raise LaunchError(f"{self.plan.name}: {fault}") from None

    def seconds(self, *arrays: Any, repeats: int) -> list[float]:
        """Wall-clock time of each of *repeats* runs on the host; it says nothing of a device."""
        return wall_seconds(lambda: self(*arrays), repeats)


def _shape_bytes(plan: Plan) -> bytes:
    """`dscore_shape` (hip_src/abi.h) of a plan's problem."""
    problem = plan.problem
    return struct.pack("<11i", *sizes_of(problem).values(), LAYOUTS.index(problem.spec.layout))


@once
def _program(library: Path, name: str, plan_lds_bytes: int, architecture: str) -> Program:
    """The kernel called *name* in a library, translated."""
    kernel = kernel_object(library, name, architecture)
    descriptor = kernel.descriptor
    if descriptor.lds_bytes != plan_lds_bytes:
        raise CompileError(f"{name} has {descriptor.lds_bytes:,} B of LDS in its machine code, "
                           f"its plan {plan_lds_bytes:,} B")
    _require_known(name, descriptor)
    code = disassemble(kernel, architecture)
    too_close = hazards(code)
    if too_close:
        raise CompileError(f"{name} was compiled wrongly: {'; '.join(too_close)}")
    return Program(translate(code, name), descriptor)


def _require_known(name: str, descriptor: Descriptor) -> None:
    """UnavailableError for what the interpreter does not set up."""
    if descriptor.float_mode != _FLOAT_MODE:
        raise UnavailableError(f"{name} runs in float mode {descriptor.float_mode:#x}; the "
                               f"interpreter knows {_FLOAT_MODE:#x}, which keeps denormals")
    if descriptor.scratch_bytes:
        raise UnavailableError(f"{name} keeps {descriptor.scratch_bytes} B of a thread's registers "
                               "in scratch memory, which the interpreter does not have")


class Gfx906Backend(HostBackend):
    """Runs the machine code that hipcc makes for gfx906, and is stricter than the hardware.

    *sizes* is what the units are rendered for: fixed, as `dscore build --target gfx906` makes them.
    """

    name = "gfx906"
    architecture = "gfx906"
    any_device = False
    compiles = True

    def __init__(self, sizes: Sizes = CALLED_SIZES["hip"]) -> None:
        self.sizes: Sizes = sizes
        self.target = target(self.architecture)
        self._stored: dict[str, StoredKernel] = {}

    def missing(self) -> str | None:
        """Which of hipcc, or a loaded file of kernels, and llvm-objdump is missing."""
        reasons = [missing_kernels("hip"), missing_objdump()]
        return "; ".join(filter(None, reasons)) or None

    def refuses(self, plan: Plan) -> tuple[Violation, ...]:
        """What the plan's algorithm does not run, and plans for wavefronts of other than 64."""
        violations = [*algorithm_of(plan.tiling).refuses(plan.problem)]
        if plan.device.wavefront != _WAVEFRONT:
            violations.append(Violation("E-WAVEFRONT", "wavefront", plan.device.wavefront,
                                        _WAVEFRONT))
        return tuple(violations)

    def prepare(self, plans: Sequence[Plan], progress: Progress | None = None) -> Prepared:
        """Build the kernels of many plans at once, in parallel."""
        kernels = {one.name: one for one in (KernelSource(plan, self.sizes) for plan in plans)}
        absent = [one for name, one in kernels.items() if name not in self._stored]
        if not absent:
            return Prepared(len(kernels))
        provision = provide(absent, self.target, progress=progress)
        self._stored.update(provision.kernels)
        return Prepared(len(kernels), provision.compiled)

    def compile(self, plan: Plan) -> MachineKernel:
        """The kernel of *plan*, built and translated.

        Raises CompileError with the compiler's log, and UnavailableError that names every opcode
        which the interpreter does not know.
        """
        require_accepted(self, plan)
        self.prepare([plan])
        source = KernelSource(plan, self.sizes)
        stored = self._stored[source.name]
        programs = [_program(stored.library, kernel, launch.lds_bytes, self.architecture)
                    for kernel, launch in source.launches().items()]
        return MachineKernel(plan, self.sizes, programs, stored.report)

    def identity(self, architecture: str) -> BackendIdentity:
        """The C++ sources, and hipcc."""
        return sources_identity(sources(), self.sizes, "hip")


class Gfx906AnySizes(Gfx906Backend):
    """The backend `gfx906_any`: sizes are arguments of the kernels, so that one runs many problems.
    """

    def __init__(self) -> None:
        super().__init__(sizes="any")


class Gfx90aBackend(Gfx906Backend):
    """The same for gfx90a, whose packed instructions and accumulator registers gfx906 lacks."""

    name = "gfx90a"
    architecture = "gfx90a"

    def device(self) -> Device:
        """The device that `dscore build --target gfx90a` makes plans for."""
        from dscore.core import catalog  # reads files that running a plan does not need

        return catalog.device(self.architecture)
