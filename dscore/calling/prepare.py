"""Preparation of many calls at once: their kernels built together, or loaded from a file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dscore.calling import choice
from dscore.core import catalog
from dscore.core.backend import (
    Backend,
    GpuBackend,
    Kernel,
    Prepared,
    Progress,
    choose_backend,
    require_accepted,
)
from dscore.core.errors import CompileError, SpecError, UnavailableError, shown
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem

if TYPE_CHECKING:
    from dscore.building.kernel_files import KernelFile


@dataclass(frozen=True)
class Preparation:
    """Report on the kernels of some layers: how many there are, and which had to be compiled.

    Several layers may share a kernel. Those that were not compiled were on disk, or loaded.
    """

    layers: int
    kernels: int
    compiled: int
    seconds: float
    backend: str
    device: str

    @property
    def found(self) -> int:
        """Kernels that were there."""
        return self.kernels - self.compiled


def prepare(layers: str | ConvProblem | Iterable[str | ConvProblem], batch: int | None = None,
            backend: str = "auto", progress: Progress | None = None) -> Preparation:
    """Compile the kernels of many layers at once, so that calls of `dscore.conv` need not wait.

    *layers*: problems, their tokens, and names of layers, of ranges ("P1-P45") or of a network
    ("mobilenet_v2"), alone or several of them. Each problem is planned as a call plans it, for
    *batch* images where that is given. All cores compile what neither the cache nor a loaded file
    has. *progress* is called with the units compiled, their number and the last's name.

    Raises SpecError for an unknown name, InfeasibleError where nothing fits the device,
    UnavailableError where the backend cannot run here, CompileError where the compiler fails.

    >>> prepare(["P13", "n1c64h14w14_o384k1"], backend="reference").layers
    2
    """
    start = time.perf_counter()
    runner = choose_backend(backend)
    device, name = runner.device(), runner.name if backend == "auto" else backend
    problems = problems_of(layers, batch)
    plans = []
    for problem in dict.fromkeys(problems):
        plans.append(choice.default_plan(problem, device, runner, name))
        require_accepted(runner, plans[-1])
    prepared = runner.prepare(plans, progress)
    if isinstance(runner, GpuBackend):
        prepared = _unspilled(plans, runner, prepared)
    return Preparation(len(problems), prepared.kernels, prepared.compiled,
                       time.perf_counter() - start, runner.name, device.name)


def _unspilled(plans: list[Plan], runner: Backend, prepared: Prepared) -> Prepared:
    """Counts with the kernels that calls take instead of those that spill, which are built, too."""
    compiled = 0

    def kernel_of(plan: Plan) -> Kernel:
        nonlocal compiled
        compiled += runner.prepare([plan]).compiled
        return runner.compile(plan)

    spilling = [plan for plan in plans if runner.compile(plan).use.spills]
    # The next plan of each, built side by side; a second one is rare.
    following = [plan for plan in map(partial(choice.following, backend=runner), spilling) if plan]
    if len(following) > 1:
        with suppress(CompileError, UnavailableError):
            compiled += runner.prepare(following).compiled
    passed = [one for plan in spilling for one in choice.unspilled(
        plan, kernel_of, lambda kernel: kernel.use.spills, runner)[2]]
    return Prepared(prepared.kernels + len(passed), prepared.compiled + compiled)


def problems_of(layers: str | ConvProblem | Iterable[str | ConvProblem],
                batch: int | None = None) -> list[ConvProblem]:
    """The problems that *layers* name, in order.

    >>> len(problems_of("mobilenet_v2")), len(problems_of(["P1-P3", "D1"], batch=8))
    (52, 4)
    """
    if isinstance(layers, str | ConvProblem):
        layers = [layers]
    try:
        named_layers = iter(layers)
    except Exception:  # an array's of no dimension as well as TypeError
        raise SpecError(f"layers must be problems or names, got {shown(layers)}") from None
    problems = []
    for layer in named_layers:
        if isinstance(layer, ConvProblem):
            problems.append(layer if batch is None else layer.with_batch(batch))
        else:
            problems += [named.problem for named in catalog.find(layer, batch)]
    return problems


def load(path: str | os.PathLike[str]) -> KernelFile:
    """Load a file of kernels that `dscore build --out` wrote, for a machine without a compiler.

    From then on calls and commands of this process take their kernels from it, if they are made
    of the same sources for the same target; others are looked for in the cache, and compiled. The
    environment variable DSCORE_LIBRARIES names such files for every process.

    Returns what it holds: `target`, `compiler`, and the names of the `kernels`.

    Raises SpecError where *path* is no such file, or not as it was written; UnavailableError where
    its ABI, its kernel sources, its machine or its architecture are not those that are here.

        dscore.load("layers.so")
        y = dscore.conv(x, w)

    >>> load("nowhere.so")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    dscore.core.errors.SpecError: ...nowhere.so: cannot be read: No such file or directory
    """
    from dscore.building import kernel_files

    file = kernel_files.read_file(path)
    _require_gpu(file)
    kernel_files.take_from(file)
    return file


def _require_gpu(file: KernelFile) -> None:
    """Raise UnavailableError where *file* is for GPUs of which this machine has none."""
    from dscore.building.compilers import compiler_kind
    from dscore.measuring.vendor_runtime import VENDORS, missing_runtime, runtime

    vendor = next((name for name in VENDORS if compiler_kind(name) == file.kind), None)
    if vendor is None:  # for the emulated device, which every machine has
        return
    missing = missing_runtime(vendor)
    if missing is not None:
        raise UnavailableError(f"{file.path} was built for {file.target}: {missing}")
    gpus = runtime(vendor)
    here = sorted({gpus.identity(index)[1] for index in range(gpus.count())})
    if file.target not in here:
        raise UnavailableError(f"{file.path} was built for {file.target}, and the GPU here is "
                               f"{', '.join(here)}; build it with --target {here[0]}")
