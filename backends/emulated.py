"""The emulated device: the kernel sources themselves, compiled for the host, threads as fibers.

``DSCORE_LANE_ORDER`` (forward, reverse, random) orders the threads between rendezvous; a result
that depends on it is a race.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dscore.backends.reference.backend import wall_seconds
from dscore.building import toolchain
from dscore.building.codegen import KernelSource, Sizes, refused, units
from dscore.building.library import Library, LoadedKernel, sources
from dscore.core import catalog
from dscore.core.backend import require_accepted
from dscore.core.device import Device
from dscore.core.errors import LaunchError
from dscore.core.plan import Plan, ResourceUse, Violation


class EmulatedKernel:
    """A kernel of the emulated device, on NumPy arrays."""

    def __init__(self, loaded: LoadedKernel) -> None:
        self.plan: Plan = loaded.plan
        self.use: ResourceUse = loaded.plan.use
        self._loaded = loaded

    def __call__(self, x: Any, w: Any, bias: Any, out: Any) -> None:
        """Write ``activation(conv(x, w) + bias)`` to *out*.

        Raises LaunchError where an array does not fit the plan, or a block overran its LDS or
        waits for threads that never come.
        """
        problem, spec = self.plan.problem, self.plan.problem.spec
        shapes = {"x": problem.x_shape, "w": spec.w_shape, "out": problem.y_shape,
                  "bias": (spec.out_channels,) if spec.bias else None}
        arrays = {"x": x, "w": w, "bias": bias, "out": out}
        for name, array in arrays.items():
            address_of(self.plan, name, array, shapes[name])
        placed = {name: self._aligned(array) for name, array in arrays.items()}
        self._loaded.launch(*(address_of(self.plan, name, array, shapes[name])
                              for name, array in placed.items()))
        if placed["out"] is not out:
            out[...] = placed["out"]

    def _aligned(self, array: Any) -> Any:
        """*array*, or a copy where it begins amid a vector, as a view of another may."""
        if array is None or array.ctypes.data % self._loaded.alignment == 0:
            return array
        return array.copy()

    def seconds(self, x: Any, w: Any, bias: Any, out: Any, repeats: int) -> list[float]:
        """Wall-clock time of each of *repeats* runs on the host; it says nothing of a device."""
        return wall_seconds(lambda: self(x, w, bias, out), repeats)


def address_of(plan: Plan, name: str, array: Any, shape: tuple[int, ...] | None) -> int:
    """Where *array* lies, once it is known to be what the kernel takes it for."""
    if array is None and shape is None:
        return 0
    fits = (isinstance(array, np.ndarray) and shape is not None and array.shape == shape
            and array.dtype == plan.problem.spec.dtype and array.flags.c_contiguous)
    if not fits:
        given = f"{getattr(array, 'dtype', type(array).__name__)} of shape {np.shape(array)}"
        wanted = f"{plan.problem.spec.dtype} of shape {shape}, C-contiguous" if shape else "none"
        raise LaunchError(f"{plan.name}: {name} must be {wanted}; got {given}")
    return int(array.ctypes.data)


class EmulatedBackend:
    """Runs the HIP kernels on the host, for any device's plans.

    *sizes* is what the units are rendered for; *sanitize* builds them with the address and
    undefined-behaviour sanitizers, whose runtime must be loaded into the process beforehand;
    *include* holds other kernel sources than those that are shipped.
    """

    name = "emulated"
    any_device = True
    compiles = True

    def __init__(self, sizes: Sizes = "any", sanitize: bool = False,
                 include: Path | None = None) -> None:
        self.sizes: Sizes = sizes
        self.include = include or sources()
        self.target = toolchain.target("emulated", sanitize=sanitize)
        self._kernels: dict[str, Library] = {}

    def missing(self) -> str | None:
        """Why there is no host compiler, and how to mend that; None where there is one."""
        return toolchain.missing_compiler("host")

    def device(self) -> Device:
        """The device of the papers, whose wavefronts are imitated."""
        return catalog.device("z100sm")

    def refuses(self, plan: Plan) -> tuple[Violation, ...]:
        """Element types and layouts for which there is no kernel."""
        return refused(plan)

    def prepare(self, plans: Sequence[Plan]) -> None:
        """Build the kernels of many plans at once, in parallel."""
        wanted = [KernelSource(plan, self.sizes) for plan in plans]
        absent = [source for source in wanted if source.name not in self._kernels]
        if absent:
            built = toolchain.build_library(units(absent), self.target, include=self.include)
            library = Library(built.path)
            self._kernels.update(dict.fromkeys(library.kernels, library))

    def compile(self, plan: Plan) -> EmulatedKernel:
        """The kernel of *plan*; CompileError holds the compiler's log."""
        require_accepted(self, plan)
        self.prepare([plan])
        source = KernelSource(plan, self.sizes)
        return EmulatedKernel(LoadedKernel(self._kernels[source.name], source))
