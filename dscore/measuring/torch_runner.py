"""Runner on a GPU through PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from dscore.checking import bound
from dscore.checking.bound import Accuracy
from dscore.checking.check import Guarded, GuardedOutput
from dscore.core.backend import Backend, GpuBackend
from dscore.core.device import Device
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.measuring.clocks import TorchClock
from dscore.measuring.floors import Floors, torch_floors
from dscore.measuring.gpu_lock import gpu_lock
from dscore.measuring.runner import Arrays, KernelSubject
from dscore.measuring.timing import Clock, Effort, Subject
from dscore.measuring.vendor_runtime import runtime


def torch_with_gpu() -> Any:
    """PyTorch; None where it is missing or sees no GPU."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


class TorchRunner:
    """CUDA or ROCm tensors of PyTorch."""

    on_host, calls, most_sets = False, True, 4096

    def __init__(self, torch: Any, device: Device, index: int) -> None:
        self._torch, self._index = torch, index
        self._slot = runtime("amd" if torch.version.hip else "nvidia").slot(index)
        self.clock: Clock = TorchClock(torch, index)
        self.effort = Effort()
        self.title = str(torch.cuda.get_device_name(index))
        toolkit = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"HIP {torch.version.hip}"
        self.versions = f"torch {torch.__version__}, {toolkit}, cuDNN {_cudnn(torch)}"
        self.cache_bytes = device.l2_bytes
        self.room_bytes = torch.cuda.mem_get_info(index)[0] / 2

    def sets(self, problem: ConvProblem, count: int, seed: int) -> list[Arrays]:
        torch, spec, device = self._torch, problem.spec, f"cuda:{self._index}"
        generator = torch.Generator(device).manual_seed(seed)

        def normal(*shape: int) -> Any:
            return torch.randn(shape, generator=generator, device=device)

        return [(normal(*problem.x_shape), normal(*spec.w_shape),
                 normal(spec.out_channels) if spec.bias else None,
                 torch.full(problem.y_shape, float("nan"), device=device)) for _ in range(count)]

    def subject(self, backend: Backend, plan: Plan, sets: Sequence[Arrays]) -> Subject:
        assert isinstance(backend, GpuBackend)
        launch, index = backend.kernel_on(plan, self._index).launch, self._index
        # The tensors beside their addresses, so that they live as long.
        placed = [(arrays, tuple(0 if a is None else a.data_ptr() for a in arrays))
                  for arrays in sets]

        def start(one: Any, stream: int) -> None:
            x, w, bias, out = one[1]
            launch(x, w, bias, out, stream, index)

        return KernelSubject(placed, start)

    def guarded(self, problem: ConvProblem) -> Guarded:
        torch, device = self._torch, f"cuda:{self._index}"
        dtype = getattr(torch, problem.spec.dtype)
        return GuardedOutput(problem, lambda shape, value: torch.full(
            shape, value, dtype=dtype, device=device))

    def judge(self, problem: ConvProblem, arrays: Arrays, y: Any, tf32: bool = False) -> Accuracy:
        return bound.judge(self._torch, problem, arrays[:3], y, tf32)

    def floors(self) -> Floors:
        floors = torch_floors(self._torch, self.clock, self._index, self.effort)
        self.release()
        return floors

    def exclusive(self) -> AbstractContextManager[None]:
        return gpu_lock(self._slot)

    def release(self) -> None:
        self._torch.cuda.empty_cache()


def _cudnn(torch: Any) -> str:
    return str(torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else "none")
