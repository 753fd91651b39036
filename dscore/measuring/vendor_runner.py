"""Runner on a GPU through its vendor's runtime alone, for machines without PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from dscore.checking import bound
from dscore.checking.check import GUARD, Guarded, GuardedOutput
from dscore.core.backend import Backend, GpuBackend
from dscore.core.device import Device
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.measuring.clocks import VendorClock
from dscore.measuring.floors import Floors, stated_floors
from dscore.measuring.gpu_lock import gpu_lock
from dscore.measuring.runner import Arrays, Judging, KernelSubject
from dscore.measuring.timing import Clock, Effort, Subject
from dscore.measuring.vendor_runtime import Runtime
from dscore.ops import Operand, outputs_of, split


class _Memory:
    """A copy of a NumPy array in device memory, which is freed with the last reference."""

    def __init__(self, runtime: Runtime, values: Any) -> None:
        self._shape, self._dtype, self._runtime = values.shape, values.dtype, runtime
        self.address = runtime.allocate(values.nbytes)
        runtime.to_device(self.address, values.ctypes.data, values.nbytes)

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self._runtime.free(self.address)

    def copied(self) -> Any:
        values = np.empty(self._shape, self._dtype)
        self._runtime.to_host(values.ctypes.data, self.address, values.nbytes)
        return values


class _Inside:
    """The output within the device memory of a guarded one."""

    def __init__(self, memory: _Memory, host: GuardedOutput) -> None:
        self._memory, self._host = memory, host
        self.address = memory.address + GUARD * host.out.itemsize

    def copied(self) -> Any:
        self._host.buffer[...] = self._memory.copied()
        return self._host.out


class _GuardedMemory:
    """A guarded output in device memory, made on the host and looked at there."""

    def __init__(self, runtime: Runtime, output: Operand) -> None:
        self._host = GuardedOutput(output)
        self.out = _Inside(_Memory(runtime, self._host.buffer), self._host)

    def changed(self) -> int:
        self.out.copied()
        return self._host.changed()


class VendorRunner:
    """A GPU's memory through its vendor's runtime; only dscore's kernels run there."""

    on_host, calls, most_sets = False, False, 4096

    def __init__(self, runtime: Runtime, device: Device, index: int) -> None:
        self._runtime, self._device, self._index = runtime, device, index
        self._slot = runtime.slot(index)
        self.clock: Clock = VendorClock(runtime, index)
        self.effort = Effort()
        self.title = runtime.identity(index)[0]
        self.versions = f"numpy {np.__version__}"
        self.cache_bytes, self.room_bytes = device.l2_bytes, device.memory_bytes / 4

    def sets(self, problem: ConvProblem, count: int, seed: int) -> list[Arrays]:
        with self._runtime.on(self._index):
            return [self._moved(*bound.sample(problem, seed + number), *bound.blank(problem))
                    for number in range(count)]

    def _moved(self, *arrays: Any) -> Arrays:
        return tuple(None if a is None else _Memory(self._runtime, a) for a in arrays)

    def subject(self, backend: Backend, plan: Plan, sets: Sequence[Arrays]) -> Subject:
        assert isinstance(backend, GpuBackend)
        launch, index = backend.kernel_on(plan, self._index).launch, self._index

        with self._runtime.on(index):
            workspace = self._moved(*[np.empty(plan.workspace_bytes, np.uint8)]
                                    * (plan.workspace_bytes > 0))

        def start(arrays: Arrays, stream: int) -> None:
            launch(*(0 if a is None else a.address for a in (*arrays, *workspace)), stream, index)

        return KernelSubject(sets, start)

    def guarded(self, problem: ConvProblem) -> Sequence[Guarded]:
        return [_GuardedMemory(self._runtime, one) for one in outputs_of(problem)]

    def judge_of(self, problem: ConvProblem, arrays: Arrays) -> Judging:
        inputs, _ = split(problem, arrays)
        judged = bound.judge_of(np, problem, [None if a is None else a.copied() for a in inputs])
        return lambda results, rounding: judged([y.copied() for y in results], rounding)

    def floors(self) -> Floors:
        return stated_floors(self._device)

    def exclusive(self) -> AbstractContextManager[None]:
        return gpu_lock(self._slot)

    def release(self) -> None:
        """Nothing: memory is freed with its last reference."""
