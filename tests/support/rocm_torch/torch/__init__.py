"""A made-up PyTorch for ROCm, on the stand-in for AMD's runtime: what dscore asks one for memory,
copies, streams and events. Its tensors are bytes, and its memory is the stand-in's."""

import contextlib
import ctypes
import functools
import types

import numpy as np

from . import version

__version__ = version.__version__
uint8 = np.uint8
_hip = ctypes.CDLL("libamdhip64.so.5")


def _call(name, *arguments):
    code = getattr(_hip, f"hip{name}")(*arguments)
    if code:
        raise RuntimeError(f"HIP error: {code}")


def _result(name, *arguments, kind=ctypes.c_int):
    value = kind()
    _call(name, ctypes.byref(value), *arguments)
    return value.value


class Tensor:
    """Bytes at an address, of the host or of the device; *owner* keeps them."""

    def __init__(self, address, size, on_device, owner):
        self._address, self._size, self._on_device, self._owner = address, size, on_device, owner

    def data_ptr(self):
        return self._address

    def numel(self):
        return self._size

    def __getitem__(self, part):
        assert 0 <= part.start <= part.stop <= self._size
        return Tensor(self._address + part.start, part.stop - part.start, self._on_device, self)

    def copy_(self, source):
        assert source._size == self._size
        kind = {(True, False): 1, (False, True): 2, (True, True): 3}[
            self._on_device, source._on_device]
        _call("MemcpyAsync", *map(ctypes.c_void_p, (self._address, source._address)),
              ctypes.c_size_t(self._size), kind, cuda.current_stream().handle)

    def fill_(self, value):
        _call("MemsetAsync", ctypes.c_void_p(self._address), value, ctypes.c_size_t(self._size),
              cuda.current_stream().handle)


class _Memory:
    """Device memory, given back with the last tensor of it."""

    def __init__(self, size):
        self.address = _result("Malloc", ctypes.c_size_t(size), kind=ctypes.c_void_p)

    def __del__(self):
        _hip.hipFree(ctypes.c_void_p(self.address))


def empty(size, dtype, device):
    assert dtype is uint8
    with cuda.device(int(device.removeprefix("cuda:"))):
        memory = _Memory(size)
    return Tensor(memory.address, size, True, memory)


def frombuffer(buffer, dtype):
    assert dtype is uint8
    return Tensor(ctypes.addressof(buffer), len(buffer), False, buffer)


class _Stream:
    def __init__(self, handle=None):
        self.handle = ctypes.c_void_p(
            _result("StreamCreate", kind=ctypes.c_void_p) if handle is None else handle)

    @property
    def cuda_stream(self):
        return self.handle.value or 0


class _Event:
    def __init__(self, enable_timing):
        assert enable_timing
        self.handle = ctypes.c_void_p(_result("EventCreate", kind=ctypes.c_void_p))

    def record(self):
        _call("EventRecord", self.handle, cuda.current_stream().handle)

    def synchronize(self):
        _call("EventSynchronize", self.handle)

    def elapsed_time(self, end):
        return _result("EventElapsedTime", self.handle, end.handle, kind=ctypes.c_float)


class _Cuda:
    """The module torch.cuda."""

    Stream, Event = _Stream, _Event

    def __init__(self):
        self._default = self._current = _Stream(0)
        self.device_count = functools.partial(_result, "GetDeviceCount")
        self.current_device = functools.partial(_result, "GetDevice")
        self.set_device = functools.partial(_call, "SetDevice")
        self.synchronize = functools.partial(_call, "DeviceSynchronize")

    def is_available(self):
        return self.device_count() > 0

    def is_current_stream_capturing(self):
        return False

    def default_stream(self):
        return self._default

    def current_stream(self):
        return self._current

    @contextlib.contextmanager
    def stream(self, stream):
        before, self._current = self._current, stream
        yield
        self._current = before

    @contextlib.contextmanager
    def device(self, index):
        before = self.current_device()
        self.set_device(index)
        yield
        self.set_device(before)

    def get_device_properties(self, index):
        """As PyTorch 2.1 has them: without the place on the bus, clocks and the block's LDS."""
        return types.SimpleNamespace(
            name="Z100SM", gcnArchName="gfx906:sramecc+:xnack-", multi_processor_count=64,
            total_memory=_result("DeviceTotalMem", index, kind=ctypes.c_size_t),
            max_threads_per_multi_processor=2560)


cuda = _Cuda()
