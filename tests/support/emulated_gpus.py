"""Arrays of a made-up library that has GPUs, and the emulated device as two of these."""

from contextlib import contextmanager

import numpy as np

from dscore.backends.emulated import EmulatedBackend
from dscore.calling import arguments, gates, means
from dscore.calling.arrays import Dlpack
from dscore.calling.call_cache import CALLS
from dscore.core import backend, catalog


class Tensor:
    """An array of a library that has GPUs; its memory is the host's."""

    def __init__(self, array, device=0):
        self.array, self.device = array, device

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)
    nbytes = property(lambda self: self.array.nbytes)
    itemsize = property(lambda self: self.array.itemsize)

    def __setitem__(self, key, other):
        self.array[key] = other.array

    def __dlpack__(self, **options):
        raise AssertionError("memory of a GPU is not read from the host")

    def __dlpack_device__(self):
        return 2, self.device


def _laid_out(array, last):
    """The array as it lies in memory, where the channels do *last*."""
    return np.moveaxis(array, 1, -1) if last and array.ndim == 4 else array


class TensorAdapter(Dlpack):
    def __init__(self):
        super().__init__("emulated_gpus")

    def matcher(self, example):
        dtype, device = example.dtype, example.device
        return lambda array: (type(array) is Tensor and array.dtype == dtype
                              and array.device == device)

    def guard(self, examples):
        return None

    def address(self, array):
        return array.array.ctypes.data

    def memory(self, image):
        if not _laid_out(image.array, True).flags.c_contiguous:
            return "nchw"
        return None if image.array.flags.c_contiguous else "nhwc"

    def direct_address(self, array, last=False):
        lies = _laid_out(array.array, last).flags.c_contiguous
        return array.array.ctypes.data if lies else 0

    def contiguous(self, array, last=False):
        if self.direct_address(array, last):
            return array
        copy = np.ascontiguousarray(_laid_out(array.array, last))
        return Tensor(np.moveaxis(copy, -1, 1) if last else copy, array.device)

    def copy(self, array):
        return Tensor(array.array.copy(order="K"), array.device)

    def allocator(self, shape, like, last=False, dtype=None):
        dtype, device = np.dtype(dtype or like.dtype), like.device
        value = np.nan if dtype.kind == "f" else -86
        if last:
            images, channels, height, width = shape
            return lambda: Tensor(np.moveaxis(np.full((images, height, width, channels), value,
                                                      dtype), -1, 1), device)
        return lambda: Tensor(np.full(shape, value, dtype), device)

    def placed(self, array, example):
        return Tensor(array.copy(), example.device)

    def stream(self, index):
        return 1000 + index


class GpuBackend(EmulatedBackend):
    """The emulated device as two GPUs."""

    name = "gpu"
    launches = ()
    prepared = 0

    def device_at(self, index):
        return catalog.device(("z100sm", "h200")[index])

    def kernel_on(self, plan, index):
        GpuBackend.prepared += 1
        loaded = self.loaded_kernel(plan)

        class Launched:
            alignment, failure, use = loaded.alignment, loaded.failure, loaded.use
            workspace_bytes = loaded.workspace_bytes

            def launch(self, *given):
                addresses, (stream, device) = given[:loaded.operands], (
                    *given[loaded.operands:], 0, 0)[:2]
                assert self.start_on(device)(*addresses, stream) == 0

            @staticmethod
            def start_on(device, behind=False):
                def start(*given):
                    code, stream = loaded.start_on(device, behind)(*given), given[-1]
                    if code == 0:
                        GpuBackend.launches += ((plan.device.name, stream, device),)
                    return code
                return start
        return Launched()


@contextmanager
def emulated_gpus(monkeypatch):
    """The library and its GPUs are known, as backend gpu, and no call is remembered."""
    monkeypatch.setitem(arguments._GPU_LIBRARIES, "emulated_gpus", TensorAdapter)
    monkeypatch.setitem(backend._REGISTRY, "gpu", "emulated_gpus:GpuBackend")
    monkeypatch.setattr(GpuBackend, "launches", ())
    monkeypatch.setattr(GpuBackend, "prepared", 0)
    _forget()
    yield
    _forget()


def _forget():
    backend.backend.cache_clear()
    arguments.adapter_of.cache_clear()
    CALLS.clear()
    means._PREPARED.clear()
    gates.forget()
