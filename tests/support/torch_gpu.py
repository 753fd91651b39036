"""PyTorch's tensors of the host, taken for those of a GPU whose kernels are the reference's.

So all of the way from a call to a launch is that of a GPU, and no GPU is needed.
"""

import ctypes
from contextlib import contextmanager
from typing import ClassVar

import numpy as np

from dscore.backends.reference.backend import ReferenceBackend
from dscore.calling import arguments, both, gates, gpu_arrays, means
from dscore.calling.call_cache import CALLS
from dscore.core import backend, catalog
from dscore.core.backend import MISPLACED
from dscore.ops import operands_of

NAME = "torch_gpu:TorchGpu"


class Launched:
    """Kernel on addresses; `TorchGpu.launches` lists the operations that it has run."""

    alignment, workspace_bytes = 16, 0

    def __init__(self, kernel):
        self._kernel, self.use = kernel, kernel.use

    def failure(self, code):
        return AssertionError(f"a launch failed: {code}")

    def launch(self, *given):
        *addresses, stream, _ = given
        assert self.start_on(0)(*addresses, stream) == 0

    def start_on(self, device, behind=False):
        operands = operands_of(self._kernel.plan.problem)

        def start(*given):
            *addresses, stream = given
            assert stream == 7
            assert len(addresses) == len(operands)
            if any(address % self.alignment for address in addresses):
                return MISPLACED
            self._kernel(*map(_array_at, operands, addresses))
            TorchGpu.launches.append(self._kernel.plan.problem.operation)
            TorchGpu.behind.append(behind)
            return 0
        return start


def _array_at(operand, address):
    """The array of an operand at an address; None where there is none."""
    if not address:
        return None
    kind = np.dtype(operand.element.numpy)
    memory = (ctypes.c_uint8 * (int(np.prod(operand.shape)) * kind.itemsize)).from_address(address)
    return np.frombuffer(memory, kind).reshape(operand.shape)


class TorchGpu(ReferenceBackend):
    name, launches, device_name = "torch_gpu", [], "z100sm"
    behind: ClassVar[list[bool]] = []  # of each launch, whether it is one behind another

    def device(self):
        return catalog.device(self.device_name)

    def device_at(self, index):
        return self.device()

    def kernel_on(self, plan, index):
        return Launched(self.compile(plan))


@contextmanager
def torch_gpu(monkeypatch, device="z100sm"):
    """Tensors of the host lie on GPU 0, a *device*; its backend is called `NAME`; no call is
    remembered."""
    import torch

    monkeypatch.setattr(gpu_arrays.Torch, "index", lambda self, array: 0)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 7, raising=False)
    monkeypatch.setattr(TorchGpu, "launches", [])
    monkeypatch.setattr(TorchGpu, "behind", [])
    monkeypatch.setattr(TorchGpu, "device_name", device)
    _forget()
    yield TorchGpu.launches
    _forget()


def _forget():
    from dscore.torch import recorded

    backend.backend.cache_clear()
    arguments.adapter_of.cache_clear()
    CALLS.clear()
    both._known.clear()
    means._PREPARED.clear()
    gates.forget()
    recorded._calls.clear()
