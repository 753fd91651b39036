"""The emulated device: the kernel sources themselves, compiled for the host, threads as fibers.

``DSCORE_LANE_ORDER`` (forward, reverse, random) orders the threads between rendezvous; a result
that depends on it is a race.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dscore.algorithms.registry import algorithm_of
from dscore.backends.host import HostBackend, addresses_of, wall_seconds
from dscore.building import toolchain
from dscore.building.codegen import CALLED_SIZES, Sizes
from dscore.building.headers import sources
from dscore.building.kernels import Kernels, missing_kernels, sources_identity
from dscore.building.library import LoadedKernel
from dscore.core.backend import BackendIdentity, Prepared, Progress, require_accepted
from dscore.core.plan import Plan, ResourceUse, Violation
from dscore.ops import split


class EmulatedKernel:
    """A kernel of the emulated device, on NumPy arrays."""

    def __init__(self, loaded: LoadedKernel) -> None:
        self.plan: Plan = loaded.plan
        self.use: ResourceUse = loaded.plan.use
        self._loaded = loaded

    def __call__(self, *arrays: Any) -> None:
        """Write the results of the inputs to the other operands.

        Raises LaunchError where an array does not fit the plan, or a block overran its LDS or
        waits for threads that never come.
        """
        addresses_of(self.plan, *arrays)  # raises for arrays that do not fit
        aligned = [self._aligned(array) for array in arrays]
        workspace = [self._aligned(np.full(-(-self.plan.workspace_bytes // 4), np.nan, np.float32))
                     ] * (self.plan.workspace_bytes > 0)
        self._loaded.launch(*addresses_of(self.plan, *aligned),
                            *(one.ctypes.data for one in workspace))
        for result, written in zip(*(split(self.plan.problem, given)[1]
                                     for given in (arrays, aligned)), strict=True):
            if written is not result:
                result[...] = written

    def _aligned(self, array: Any) -> Any:
        """*array*, or a copy where its address, as a view's may be, is not that of a vector."""
        if array is None or array.ctypes.data % self._loaded.alignment == 0:
            return array
        return array.copy()

    def seconds(self, *arrays: Any, repeats: int) -> list[float]:
        """Wall-clock time of each of *repeats* runs on the host; it says nothing of a device."""
        return wall_seconds(lambda: self(*arrays), repeats)


class EmulatedBackend(HostBackend):
    """Runs the HIP kernels on the host, for any device's plans.

    *sizes* is what the units are rendered for; *sanitize* builds them with the address and
    undefined-behaviour sanitizers, whose runtime must be loaded into the process beforehand;
    *include* holds other kernel sources than those that are shipped.
    """

    name = "emulated"
    compiles = True

    def __init__(self, sizes: Sizes = CALLED_SIZES["host"], sanitize: bool = False,
                 include: Path | None = None) -> None:
        self.sizes: Sizes = sizes
        self.include = include or sources()
        self.target = toolchain.target("emulated", sanitize=sanitize)
        self._kernels = Kernels(sizes, self.include)

    def missing(self) -> str | None:
        """Why there are no kernels: no host compiler, and no loaded file. None where there are."""
        return missing_kernels("host")

    def refuses(self, plan: Plan) -> tuple[Violation, ...]:
        """What the plan's algorithm does not run."""
        return algorithm_of(plan.tiling).refuses(plan.problem)

    def prepare(self, plans: Sequence[Plan], progress: Progress | None = None) -> Prepared:
        """Build the kernels of many plans at once, in parallel."""
        return self._kernels.prepare(plans, self.target, progress)

    def compile(self, plan: Plan) -> EmulatedKernel:
        """The kernel of *plan*; CompileError holds the compiler's log."""
        return EmulatedKernel(self.loaded_kernel(plan))

    def loaded_kernel(self, plan: Plan) -> LoadedKernel:
        """The kernel of *plan* for those who have addresses of arrays."""
        require_accepted(self, plan)
        return self._kernels.loaded(plan, self.target)

    def identity(self, architecture: str) -> BackendIdentity:
        """The C++ sources, and the host's compiler."""
        return sources_identity(self.include, self.sizes, "host")
