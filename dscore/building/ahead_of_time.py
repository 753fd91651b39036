"""Builds ahead of time: plans into libraries, predictions beside what compilers report."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dscore.algorithms.base import LDS_ALIGNMENT_BYTES, TILE_ALIGNMENT_BYTES
from dscore.algorithms.columns import ceil_div
from dscore.building.codegen import KernelSource
from dscore.building.compilers import Compiler, find_compiler
from dscore.building.headers import headers_digest, sources
from dscore.building.kernel_files import write_file
from dscore.building.kernels import (
    StoredKernel,
    build_together,
    identity_of,
    provide,
)
from dscore.building.reports import Report, report_of
from dscore.building.toolchain import Target
from dscore.core import catalog
from dscore.core.backend import Progress
from dscore.core.device import Device
from dscore.core.errors import SpecError
from dscore.core.plan import Plan, ResourceUse
from dscore.solving.verdict import validate

# Words of a lane in memory that show no prediction wrong: nvcc trades a few outside of loops for
# more wavefronts.
MOST_SPILLS = 8
# As hip_src/support/portable.hpp has it for CUDA.
MOST_STATIC_LDS_BYTES = 48 * 1024
# Of devices of one architecture, the one that plans are made for unless another is named.
_DEVICES = {"emulated": "z100sm", "sm_70": "v100", "sm_72": "xavier", "sm_75": "rtx2080ti",
            "sm_80": "a100", "sm_86": "rtx3090", "sm_87": "orin", "sm_89": "rtx4090",
            "sm_90": "h200", "sm_100": "b200", "sm_120": "rtx5090", "gfx928": "k100_ai",
            "gfx936": "bw1000", "gfx1100": "rx7900xtx", "gfx1151": "radeon8060s",
            "gfx1200": "rx9060xt", "gfx1201": "rx9070xt"}


@dataclass(frozen=True)
class Comparison:
    """A kernel's plan, and what its compiler made of it."""

    plan: Plan
    predicted: ResourceUse
    reported: Report | None  # None: the host's compilers report nothing

    @property
    def lds_exact(self) -> bool:
        """Whether LDS is as predicted; where nothing is reported, a static_assert has seen to it.
        """
        if self.reported is None:
            return True
        planned, held = self.predicted.lds_bytes, self.reported.lds_bytes
        if self.plan.device.vendor != "nvidia":
            return held == planned
        if planned > MOST_STATIC_LDS_BYTES:
            return held == 0  # allocated at the launch, of which a compiler knows nothing
        # Beside such a kernel in its unit, ptxas rounds up to what arrays of a launch align to.
        return held in (planned, *(ceil_div(planned, to) * to
                                   for to in (LDS_ALIGNMENT_BYTES, TILE_ALIGNMENT_BYTES)))

    @property
    def spills(self) -> int:
        """Words of a lane that went to memory: registers, and arrays that are not in registers."""
        return 0 if self.reported is None else self.reported.words_in_memory

    @property
    def excess(self) -> int:
        """Registers above the prediction; negative where some are spare."""
        if self.reported is None:
            return 0
        return self.reported.held - self.plan.compiled_registers

    @property
    def tolerated(self) -> bool:
        """Whether it spills so few words that nvcc may have done so for more wavefronts."""
        return self.plan.device.vendor == "nvidia" and 0 < self.spills <= MOST_SPILLS

    @cached_property
    def faults(self) -> tuple[str, ...]:
        """Differences that show the solver to be wrong: other LDS, or spills of a valid plan.

        More registers than predicted are none as long as they are there, nor are a few spills of
        nvcc's.
        """
        return ("LDS differs",) * (not self.lds_exact) + ("spills",) * (
            self.spills > 0 and not self.tolerated and _valid(self.plan))


def _valid(plan: Plan) -> bool:
    return validate(plan.problem, plan.tiling, plan.device, "hardware", masked=True).ok


@dataclass(frozen=True)
class BuiltKernels:
    """Kernels in libraries of the cache, each of them compared with its plan."""

    target: Target
    compiler: Compiler
    kernels: Mapping[str, Comparison]  # by symbol
    libraries: tuple[Path, ...]
    compiled: int  # the kernels that the cache did not have
    seconds: float  # that all took

    @property
    def ok(self) -> bool:
        """Whether no kernel shows the solver to be wrong."""
        return not any(kernel.faults for kernel in self.kernels.values())


def build(kernels: Sequence[KernelSource], target: Target, *, compiler: Compiler | None = None,
          jobs: int | None = None, progress: Progress | None = None,
          together: bool = False) -> BuiltKernels:
    """Kernels for *target* in the cache, where calls find them; those it has are not built again.

    *together*: in one library, which holds these kernels alone. Raises UnavailableError where
    there is no such compiler, or no kernel for a plan's element type or layout; CompileError where
    the compiler fails, as it does where a kernel's threads or LDS are not its plan's.
    """
    start = time.perf_counter()
    compiler = compiler or find_compiler(target.kind, architecture=target.architecture)
    distinct = {kernel.name: kernel for kernel in reversed(kernels)}  # of one name, the first
    if together:
        built = build_together([*distinct.values()], target, compiler, jobs=jobs,
                               progress=progress)
        stored = {name: StoredKernel(built.path, report_of(name, built.reports))
                  for name in distinct}
        compiled = 0 if built.from_cache else len(distinct)
    else:
        provision = provide([*distinct.values()], target, compiler=compiler, jobs=jobs,
                            progress=progress)
        stored, compiled = dict(provision.kernels), provision.compiled
    compared = {kernel.name: Comparison(kernel.plan, kernel.plan.use, stored[kernel.name].report)
                for kernel in map(distinct.__getitem__, dict.fromkeys(k.name for k in kernels))}
    libraries = tuple(dict.fromkeys(stored[name].library for name in compared))
    return BuiltKernels(target, compiler, compared, libraries, compiled,
                        time.perf_counter() - start)


def write_kernels(path: str | os.PathLike[str], kernels: Sequence[KernelSource],
                  built: BuiltKernels) -> None:
    """Write the kernels that were built together to a file that other machines load.

    Raises SpecError where it cannot be written.
    """
    headers = headers_digest(sources())
    write_file(path, built.libraries[0], built.target, built.compiler, headers, {
        identity_of(kernel, built.target, headers): (kernel.name,
                                                     built.kernels[kernel.name].reported)
        for kernel in kernels})


def device_for(target: Target, device: Device | None = None) -> Device:
    """The device whose plans are built for *target*: *device*, or the shipped one by default.

    Raises SpecError where *device* is of another architecture or wavefront than the target, or
    where none is shipped for it.
    """
    family = re.split("[:]", target.name)[0]
    family = re.sub(r"(?<=\d)[af]$", "", family) if family.startswith("sm_") else family
    if device is None:
        return _default_device(family)
    if target.kind == "host" or (device.architecture, device.wavefront) == (
            family, _wavefront(family)):
        return device
    fitting = [name for name, other in catalog.devices().items() if other.architecture == family]
    raise SpecError(f"{device.name} is {device.architecture} with wavefronts of "
                    f"{device.wavefront}, the target {target.name} is {family} with wavefronts of "
                    f"{_wavefront(family)}; devices for it: {', '.join(fitting) or 'none shipped'}")


def _default_device(family: str) -> Device:
    name = _DEVICES.get(family, family)
    if name not in catalog.devices():
        raise SpecError(f"no device is shipped for the target {family}; --device takes the path "
                        "of a .toml file that describes one")
    return catalog.device(name)


def _wavefront(family: str) -> int:
    """Lanes of a wavefront: AMD's have been 64 up to gfx9 and 32 since gfx10."""
    return 64 if re.fullmatch("gfx[0-9a-f]{3}", family) else 32
