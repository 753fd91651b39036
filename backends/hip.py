"""The HIP kernels on a real device: built by hipcc for AMD and DCU, by nvcc for NVIDIA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dscore.algorithms.registry import algorithm_of
from dscore.backends.host import addresses_of
from dscore.building.codegen import CALLED_SIZES, Sizes
from dscore.building.compilers import compiler_kind
from dscore.building.headers import sources
from dscore.building.kernels import Kernels, missing_kernels, sources_identity
from dscore.building.library import LoadedKernel
from dscore.building.toolchain import Target, target
from dscore.calling.gpu_arrays import capturing
from dscore.core.backend import BackendIdentity, Prepared, Progress, require_accepted
from dscore.core.device import Device
from dscore.core.errors import UnavailableError
from dscore.core.plan import Plan, ResourceUse, Violation
from dscore.measuring.gpu_description import description
from dscore.measuring.runner import Runner, require_torch
from dscore.measuring.vendor_runtime import VENDORS, Runtime, missing_runtime, runtime
from dscore.ops import split

# Launches that one timing by events spans: an event's resolution is about half a microsecond.
_LAUNCHES_PER_EVENT = 20


class HipKernel:
    """A kernel on a device: of host arrays, which are copied there and back, or of addresses."""

    def __init__(self, loaded: LoadedKernel, runtime: Runtime, index: int) -> None:
        self.plan: Plan = loaded.plan
        self.use: ResourceUse = loaded.use
        self.launch = loaded.launch
        self._runtime, self._index = runtime, index

    def __call__(self, *arrays: Any) -> None:
        """Write the results of the inputs to the other operands; NumPy arrays, by device memory.

        Results go there as well, so that an element that the kernel did not write comes back as it
        was.
        Raises LaunchError with the device's code.
        """
        with self._on_device(*arrays) as addresses:
            self._start(addresses)
            self._fetch(arrays, addresses)

    def seconds(self, *arrays: Any, repeats: int) -> list[float]:
        """Device time of each of *repeats* runs, by events around a batch of launches."""
        runtime = self._runtime
        with self._on_device(*arrays) as addresses:
            start, end = runtime.event(), runtime.event()
            samples = []
            for _ in range(repeats):
                runtime.record(start)
                for _ in range(_LAUNCHES_PER_EVENT):
                    self._start(addresses)
                runtime.record(end)
                samples.append(runtime.elapsed_seconds(start, end) / _LAUNCHES_PER_EVENT)
            self._fetch(arrays, addresses)
        return samples

    def _fetch(self, arrays: Sequence[Any], addresses: Sequence[int]) -> None:
        """Copy the results from the device, once all of them are there."""
        self._runtime.synchronize()
        inputs, results = split(self.plan.problem, arrays)
        for result, address in zip(results, addresses[len(inputs):], strict=False):
            self._runtime.to_host(result.ctypes.data, address, result.nbytes)

    def _start(self, addresses: list[int]) -> None:
        self.launch(*addresses, 0, self._index)

    @contextmanager
    def _on_device(self, *arrays: Any) -> Iterator[list[int]]:
        """Addresses of copies on the device, 0 for an operand that is None; then the workspace's,
        if there is one."""
        addresses_of(self.plan, *arrays)  # raises for arrays that do not fit
        addresses: list[int] = []
        with self._runtime.on(self._index):
            try:
                for array in arrays:
                    addresses.append(0 if array is None else self._copied(array))
                if self.plan.workspace_bytes:
                    addresses.append(self._runtime.allocate(self.plan.workspace_bytes))
                yield addresses
            finally:
                for address in filter(None, addresses):
                    self._runtime.free(address)

    def _copied(self, array: np.ndarray[Any, Any]) -> int:
        address = self._runtime.allocate(array.nbytes)
        self._runtime.to_device(address, array.ctypes.data, array.nbytes)
        return address


class HipBackend:
    """Runs plans on the GPUs of this machine, an AMD or DCU one before an NVIDIA one.

    *sizes* is what the units are rendered for, *index* which device host arrays go to.
    """

    name = "hip"
    any_device = False
    compiles = True
    algorithms: tuple[str, ...] | None = None

    def __init__(self, sizes: Sizes = CALLED_SIZES["nvcc"], index: int = 0) -> None:
        self.sizes: Sizes = sizes
        self.index = index
        self._kernels = Kernels(sizes)

    def missing(self) -> str | None:
        """Which of a GPU, its bindings and its compiler is missing, for each vendor.

        A loaded file of kernels does for the compiler.
        """
        reasons = [self._missing(vendor) for vendor in VENDORS]
        return None if None in reasons else "; ".join(str(reason) for reason in reasons)

    def _missing(self, vendor: str) -> str | None:
        return missing_runtime(vendor) or missing_kernels(compiler_kind(vendor))

    @property
    def vendor(self) -> str:
        """The vendor whose devices are used: with kernels where there are several with devices.

        UnavailableError where no vendor has a device. A device alone, without compiler or kernels,
        is still a device: it has a description and plans.
        """
        present = [vendor for vendor in VENDORS if missing_runtime(vendor) is None]
        if not present:
            raise UnavailableError(f"backend hip cannot run here: {self.missing()}")
        if len(present) == 1:  # and no compiler need be looked for
            return present[0]
        return next((vendor for vendor in present
                     if missing_kernels(compiler_kind(vendor)) is None), present[0])

    def device(self) -> Device:
        """The description of the device that host arrays go to."""
        return self.device_at(self.index)

    def device_at(self, index: int) -> Device:
        """The description of a device: shipped, or made of what its driver reports.

        Raises UnavailableError where nothing is known of its architecture.
        """
        return description(runtime(self.vendor), index, measure=not capturing()).device

    def refuses(self, plan: Plan) -> tuple[Violation, ...]:
        """What the plan's algorithm does not run, plans for another wavefront, and algorithms that
        the device does not suit."""
        one, here = algorithm_of(plan.tiling), self.device()
        violations = [*one.refuses(plan.problem)]
        if not one.suits(here):
            violations.append(Violation("E-DEVICE", f"device of {one.name}", here.name,
                                        "one that it suits"))
        if plan.device.wavefront != here.wavefront:
            violations.append(Violation("E-WAVEFRONT", "wavefront", plan.device.wavefront,
                                        here.wavefront))
        return tuple(violations)

    def prepare(self, plans: Sequence[Plan], progress: Progress | None = None) -> Prepared:
        """Build the kernels of many plans at once, in parallel."""
        return self._kernels.prepare(plans, self._target(self.index), progress)

    def _target(self, index: int) -> Target:
        return target(runtime(self.vendor).identity(index)[1])

    def compile(self, plan: Plan) -> HipKernel:
        """The kernel of *plan*, its use as the compiler reported it; CompileError holds its log."""
        require_accepted(self, plan)
        loaded = self._kernels.loaded(plan, self._target(self.index))
        return HipKernel(loaded, runtime(self.vendor), self.index)

    def kernel_on(self, plan: Plan, index: int) -> LoadedKernel:
        """The kernel of *plan* built for the device numbered *index*, for arrays that lie there."""
        require_accepted(self, plan)
        return self._kernels.loaded(plan, self._target(index))

    def identity(self, architecture: str) -> BackendIdentity:
        """The C++ sources, and the compiler for *architecture*."""
        return sources_identity(sources(), self.sizes, compiler_kind(architecture), architecture)

    def runner(self, device: Device, peers: bool) -> Runner:
        """The GPU through PyTorch where that sees it, else through its vendor's runtime.

        Raises UnavailableError where *peers* need PyTorch, and it sees no GPU.
        """
        from dscore.measuring.torch_runner import TorchRunner, torch_with_gpu
        from dscore.measuring.vendor_runner import VendorRunner

        torch = require_torch(gpu=True) if peers else torch_with_gpu()
        if torch is not None:
            return TorchRunner(torch, device, self.index)
        return VendorRunner(runtime(self.vendor), device, self.index)

    def workers(self) -> tuple[Mapping[str, str], ...]:
        """An environment for each GPU of the vendor, in which a process sees that one alone."""
        return runtime(self.vendor).environments()


class HipAnySizes(HipBackend):
    """The backend `hip_any`: sizes are arguments of the kernels, so that one runs many problems."""

    def __init__(self) -> None:
        super().__init__(sizes="any")
