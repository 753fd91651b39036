"""Runner on a GPU through PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import repeat
from typing import Any

from dscore.checking import bound
from dscore.checking.check import Guarded, GuardedOutput
from dscore.core.backend import Backend, GpuBackend
from dscore.core.device import Device
from dscore.core.once import once
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.measuring.clocks import TorchClock
from dscore.measuring.floors import Floors, torch_floors
from dscore.measuring.gpu_lock import gpu_lock
from dscore.measuring.runner import Arrays, Judging, KernelSubject
from dscore.measuring.timing import Clock, Effort, Subject
from dscore.measuring.vendor_runtime import runtime
from dscore.ops import Operand, operands_of, outputs_of, split


def torch_with_gpu() -> Any:
    """PyTorch; None where it is missing or sees no GPU."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def slot_of(torch: Any, index: int) -> str:
    """Name of a GPU of PyTorch's, by which `gpu_lock` keeps other processes from it."""
    return runtime("amd" if torch.version.hip else "nvidia").slot(index)


# Bytes, as allocators of GPU memory place what is asked for.
_ALIGNMENT = 512


# One product of the floors takes milliseconds, so that a few are enough for a sample.
_FLOORS_EFFORT = Effort(turns=3, probe_launches=2)


@once
def _floors_of(torch: Any, index: int) -> Floors:
    """Those of a GPU, measured once in a process: they take seconds."""
    return torch_floors(torch, TorchClock(torch, index), index, _FLOORS_EFFORT)


class TorchRunner:
    """CUDA or ROCm tensors of PyTorch."""

    on_host, calls, most_sets = False, True, 4096

    def __init__(self, torch: Any, device: Device, index: int) -> None:
        self._torch, self._index, self._device = torch, index, f"cuda:{index}"
        self._slot = slot_of(torch, index)
        self.clock: Clock = TorchClock(torch, index)
        self.effort = Effort()
        self.title = str(torch.cuda.get_device_name(index))
        toolkit = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"HIP {torch.version.hip}"
        self.versions = f"torch {torch.__version__}, {toolkit}, cuDNN {_cudnn(torch)}"
        self.cache_bytes = device.l2_bytes
        self.room_bytes = torch.cuda.mem_get_info(index)[0] / 2

    def sets(self, problem: ConvProblem, count: int, seed: int) -> list[Arrays]:
        torch, device = self._torch, self._device
        generator = torch.Generator(device).manual_seed(seed)
        drawn = self._drawn(problem, seed)

        def filled(operand: Operand, shape: tuple[int, int]) -> Any:
            if operand.role == "output":
                return self._full(operand, shape, operand.element.poison)
            if operand.name in drawn:
                row = torch.nn.functional.pad(drawn[operand.name].flatten(),
                                              (0, shape[1] - operand.elements))
                return row.expand(shape).contiguous()
            if operand.element.exact:
                return torch.randint(-128, 128, shape, generator=generator, device=device,
                                     dtype=torch.int8)
            return torch.randn(shape, generator=generator, device=device).to(
                getattr(torch, operand.element.name))

        def arrays(operand: Operand) -> Iterable[Any]:
            """An array of each set; all of them in one piece, each at an allocator's alignment."""
            if not operand.present:
                return repeat(None, count)
            step = _ALIGNMENT // operand.element.bytes
            whole = filled(operand, (count, -(-operand.elements // step) * step))
            return (row[:operand.elements].view(operand.shape) for row in whole.unbind())

        return [*zip(*map(arrays, operands_of(problem)), strict=True)]

    def _drawn(self, problem: ConvProblem, seed: int) -> dict[str, Any]:
        """Operands of a layer of int8 but for its images, which are drawn where they lie."""
        if not problem.spec.element.exact:
            return {}
        sample = bound.sample(problem.with_batch(1), seed)
        return {one.name: self._torch.from_numpy(array).to(self._device)
                for one, array in zip(operands_of(problem), sample, strict=False)
                if array is not None and not one.layout}

    def _full(self, operand: Operand, shape: tuple[int, ...], value: float) -> Any:
        return self._torch.full(shape, value, dtype=getattr(self._torch, operand.element.name),
                                device=self._device)

    def subject(self, backend: Backend, plan: Plan, sets: Sequence[Arrays]) -> Subject:
        assert isinstance(backend, GpuBackend)
        launch, index = backend.kernel_on(plan, self._index).launch, self._index
        # Launches of one stream share it, as those of an allocator do.
        workspace = [self._torch.empty(plan.workspace_bytes, dtype=self._torch.uint8,
                                       device=self._device)] * (plan.workspace_bytes > 0)
        # The tensors beside their addresses, so that they live as long.
        placed = [((*arrays, *workspace),
                   tuple(0 if a is None else a.data_ptr() for a in (*arrays, *workspace)))
                  for arrays in sets]

        def start(one: Any, stream: int) -> None:
            launch(*one[1], stream, index)

        return KernelSubject(placed, start)

    def guarded(self, problem: ConvProblem) -> Sequence[Guarded]:
        return [GuardedOutput(one, partial(self._full, one)) for one in outputs_of(problem)]

    def judge_of(self, problem: ConvProblem, arrays: Arrays) -> Judging:
        return bound.judge_of(self._torch, problem, split(problem, arrays)[0])

    def floors(self) -> Floors:
        floors = _floors_of(self._torch, self._index)
        self.release()
        return floors

    def exclusive(self) -> AbstractContextManager[None]:
        return gpu_lock(self._slot)

    def release(self) -> None:
        with suppress(RuntimeError):  # after a failure, which would not be told for this one
            self._torch.cuda.empty_cache()


def _cudnn(torch: Any) -> str:
    return str(torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else "none")
