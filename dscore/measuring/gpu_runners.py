"""GPUs as places to measure in: through PyTorch, or through their vendor's runtime alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from dscore.checking import bound
from dscore.checking.bound import Accuracy
from dscore.core.backend import Backend, GpuBackend
from dscore.core.device import Device
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.measuring.clocks import RuntimeEngine, TorchEngine
from dscore.measuring.floors import Floors, stated_floors, torch_floors
from dscore.measuring.gpu_lock import alone_on
from dscore.measuring.runner import FENCE, Arrays, Kernels, fenced_output
from dscore.measuring.timing import Effort, Engine, Subject
from dscore.measuring.vendor_runtime import Runtime, runtime


class TorchGround:
    """CUDA or ROCm tensors of PyTorch."""

    on_host, calls, most_sets = False, True, 4096

    def __init__(self, torch: Any, device: Device, index: int) -> None:
        self._torch, self._index = torch, index
        self._slot = runtime("amd" if torch.version.hip else "nvidia").slot(index)
        self.engine: Engine = TorchEngine(torch, index)
        self.effort = Effort()
        self.title = str(torch.cuda.get_device_name(index))
        toolkit = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"HIP {torch.version.hip}"
        self.versions = f"torch {torch.__version__}, {toolkit}, cuDNN {_cudnn(torch)}"
        self.cache_bytes = device.l2_bytes
        self.room_bytes = torch.cuda.mem_get_info(index)[0] / 2

    def sets(self, problem: ConvProblem, count: int, seed: int) -> list[Arrays]:
        torch, spec, place = self._torch, problem.spec, f"cuda:{self._index}"
        drawn = torch.Generator(place).manual_seed(seed)

        def normal(*shape: int) -> Any:
            return torch.randn(shape, generator=drawn, device=place)

        return [(normal(*problem.x_shape), normal(*spec.w_shape),
                 normal(spec.out_channels) if spec.bias else None,
                 torch.full(problem.y_shape, float("nan"), device=place)) for _ in range(count)]

    def subject(self, chosen: Backend, plan: Plan, sets: Sequence[Arrays]) -> Subject:
        assert isinstance(chosen, GpuBackend)
        launch, index = chosen.kernel_on(plan, self._index).launch, self._index
        # The tensors beside their addresses, so that they live as long.
        held = [(arrays, tuple(0 if a is None else a.data_ptr() for a in arrays))
                for arrays in sets]

        def start(one: Any, stream: int) -> None:
            x, w, bias, out = one[1]
            launch(x, w, bias, out, stream, index)

        return Kernels(held, start)

    def fenced(self, arrays: Arrays) -> tuple[Arrays, Callable[[], bool]]:
        like = arrays[3]
        out, untouched = fenced_output(self._torch.full, tuple(like.shape), like.dtype,
                                       device=like.device)
        return (*arrays[:3], out), untouched

    def judge(self, problem: ConvProblem, arrays: Arrays, y: Any, tf32: bool = False) -> Accuracy:
        return bound.judge(self._torch, problem, arrays[:3], y, tf32)

    def floors(self) -> Floors:
        found = torch_floors(self._torch, self.engine, self._index, self.effort)
        self.release()
        return found

    def alone(self) -> AbstractContextManager[None]:
        return alone_on(self._slot)

    def release(self) -> None:
        self._torch.cuda.empty_cache()


def _cudnn(torch: Any) -> str:
    return str(torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else "none")


class _Memory:
    """float32 values in device memory, which is freed with the last reference."""

    def __init__(self, runtime: Runtime, values: Any) -> None:
        self.shape, self.nbytes, self._runtime = values.shape, values.nbytes, runtime
        self.address = runtime.allocate(values.nbytes)
        runtime.to_device(self.address, values.ctypes.data, values.nbytes)

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self._runtime.free(self.address)

    def copied(self) -> Any:
        values = np.empty(self.shape, np.float32)
        self._runtime.to_host(values.ctypes.data, self.address, self.nbytes)
        return values


class _Inside:
    """An output within a larger memory."""

    def __init__(self, around: _Memory, shape: tuple[int, ...]) -> None:
        self._around, self.shape = around, shape
        self.address = around.address + 4 * FENCE

    def copied(self) -> Any:
        return self._around.copied()[FENCE:-FENCE].reshape(self.shape)


class RuntimeGround:
    """A GPU's memory through its vendor's runtime; only dscore's kernels run there."""

    on_host, calls, most_sets = False, False, 4096

    def __init__(self, runtime: Runtime, device: Device, index: int) -> None:
        self._runtime, self._device, self._index = runtime, device, index
        self._slot = runtime.slot(index)
        self.engine: Engine = RuntimeEngine(runtime, index)
        self.effort = Effort()
        self.title = runtime.identity(index)[0]
        self.versions = f"numpy {np.__version__}"
        self.cache_bytes, self.room_bytes = device.l2_bytes, device.memory_bytes / 4

    def sets(self, problem: ConvProblem, count: int, seed: int) -> list[Arrays]:
        with self._runtime.on(self._index):
            return [self._moved(*bound.sample(problem, seed + at),
                                np.full(problem.y_shape, np.nan, np.float32))
                    for at in range(count)]

    def _moved(self, *arrays: Any) -> Arrays:
        x, w, bias, out = (None if a is None else _Memory(self._runtime, a) for a in arrays)
        return x, w, bias, out

    def subject(self, chosen: Backend, plan: Plan, sets: Sequence[Arrays]) -> Subject:
        assert isinstance(chosen, GpuBackend)
        launch, index = chosen.kernel_on(plan, self._index).launch, self._index

        def start(arrays: Arrays, stream: int) -> None:
            x, w, bias, out = (0 if a is None else a.address for a in arrays)
            launch(x, w, bias, out, stream, index)

        return Kernels(sets, start)

    def fenced(self, arrays: Arrays) -> tuple[Arrays, Callable[[], bool]]:
        whole: list[Any] = []

        def full(*arguments: Any, **options: Any) -> Any:
            whole.append(np.full(*arguments, **options))
            return whole[0]

        fenced_output(full, arrays[3].shape, np.float32)
        memory = _Memory(self._runtime, whole[0])

        def untouched() -> bool:
            now = memory.copied()
            return all(np.array_equal(now[part], whole[0][part])
                       for part in (slice(FENCE), slice(-FENCE, None)))

        return (*arrays[:3], _Inside(memory, arrays[3].shape)), untouched

    def judge(self, problem: ConvProblem, arrays: Arrays, y: Any, tf32: bool = False) -> Accuracy:
        x, w, bias, _ = arrays
        return bound.compare(y.copied(), bound.expected(
            problem, x.copied(), w.copied(), None if bias is None else bias.copied()))

    def floors(self) -> Floors:
        return stated_floors(self._device)

    def alone(self) -> AbstractContextManager[None]:
        return alone_on(self._slot)

    def release(self) -> None:
        """Nothing: memory is freed with its last reference."""
