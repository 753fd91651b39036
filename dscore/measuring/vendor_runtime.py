"""Devices, memory, copies, streams and events: hip-python on AMD, cuda-python on NVIDIA.

Both bindings name a call by the vendor's prefix and return (code, results…), so one class serves.

hip-python begins with ROCm 6.2. Beside an older runtime, as Hygon's DTK has one, it loads, counts
the devices and then lacks a call. There PyTorch takes its place, or the runtime's own library.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from dscore.core.driver import DriverProperties
from dscore.core.errors import LaunchError
from dscore.core.once import once
from dscore.measuring.hip_library import HipLibrary, libraries
from dscore.measuring.hip_torch import TorchHip, rocm_torch

# Package and module of each vendor's bindings.
_BINDINGS = {"amd": ("hip", "hip"), "nvidia": ("cuda.bindings", "runtime")}
_MISSING = {
    "nvidia": "an NVIDIA GPU needs cuda-bindings ({}): pip install cuda-bindings, or dscore[cuda]",
    "amd": "no AMD or Hygon GPU is found ({}): it needs a driver, and ROCm or DTK where the loader "
           "finds it, as by DTK's env.sh or by LD_LIBRARY_PATH"}
# How bindings fail that are not installed, or do not fit the runtime beside them.
_UNFIT = (ImportError, AttributeError, OSError, RuntimeError, LaunchError)
# The environment variables that say which devices a process sees.
_VISIBLE = {"amd": "HIP_VISIBLE_DEVICES", "nvidia": "CUDA_VISIBLE_DEVICES"}
VENDORS = tuple(_BINDINGS)  # in the order of preference
# Figures of `DriverProperties`, as CUDA's attributes of a device name them. They outlast the
# properties, of which CUDA 13 has no clocks.
_CUDA_ATTRIBUTES = {
    "compute_units": "MultiProcessorCount", "wavefront": "WarpSize",
    "threads_per_block": "MaxThreadsPerBlock", "threads_per_cu": "MaxThreadsPerMultiProcessor",
    "blocks_per_cu": "MaxBlocksPerMultiprocessor",
    "registers_per_cu": "MaxRegistersPerMultiprocessor",
    "lds_bytes_per_cu": "MaxSharedMemoryPerMultiprocessor",
    "lds_bytes_per_block": "MaxSharedMemoryPerBlockOptin", "l2_bytes": "L2CacheSize",
    "clock_hz": "ClockRate", "memory_clock_hz": "MemoryClockRate",
    "memory_bus_bits": "GlobalMemoryBusWidth"}
# As hipDeviceProp_t names them. Its figures of a CU are no measure: it states 65,536 registers of
# an MI300X's CUs, which have 131,072, and one CU's LDS where a block has two CUs (RDNA).
_HIP_PROPERTIES = {
    "compute_units": "multiProcessorCount", "wavefront": "warpSize",
    "threads_per_block": "maxThreadsPerBlock", "lds_bytes_per_block": "sharedMemPerBlock",
    "l2_bytes": "l2CacheSize", "clock_hz": "clockRate", "memory_clock_hz": "memoryClockRate",
    "memory_bus_bits": "memoryBusWidth"}
_KILOHERTZ = ("clock_hz", "memory_clock_hz")


class Runtime:
    """The runtime of one vendor. Every call raises LaunchError with the vendor's own code.

    *source* names the bindings; *passed_over* is what was not taken before them, and why.
    """

    def __init__(self, vendor: str, module: Any, prefix: str, source: str = "",
                 passed_over: tuple[str, ...] = ()) -> None:
        self.vendor, self._module, self._prefix = vendor, module, prefix
        self.source, self.passed_over = source, passed_over

    def _call(self, name: str, *arguments: Any) -> Any:
        """The results of a call: None, one, or a tuple."""
        try:
            code, *results = getattr(self._module, self._prefix + name)(*arguments)
        except RuntimeError as failed:  # PyTorch's way, and hip-python's where a call is missing
            raise LaunchError(f"{self._prefix}{name}: {failed}") from failed
        if int(code):
            # The thread's last error, which the next launch would take for its own.
            getattr(self._module, f"{self._prefix}GetLastError", lambda: None)()
            raise LaunchError(f"{self._prefix}{name}: {code}")
        return results[0] if len(results) == 1 else tuple(results) or None

    def _kind(self, direction: str) -> Any:
        kinds = getattr(self._module, f"{self._prefix}MemcpyKind")
        return getattr(kinds, f"{self._prefix}Memcpy{direction}")

    def require_devices(self) -> None:
        """Raise LaunchError where it finds no device, or cannot tell what the first one is."""
        if not self._call("GetDeviceCount"):
            raise LaunchError("it finds no device")
        self.identity(0)

    def count(self) -> int:
        """Devices that are present; 0 where the driver finds none or is missing."""
        try:
            return int(self._call("GetDeviceCount"))
        except LaunchError:
            return 0

    def environments(self) -> tuple[Mapping[str, str], ...]:
        """For each device, the environment of a process that sees that device alone."""
        variable = _VISIBLE[self.vendor]
        visible = [name for name in os.environ.get(variable, "").split(",") if name.strip()]
        return tuple({variable: visible[index % len(visible)] if visible else str(index)}
                     for index in range(self.count()))

    def identity(self, index: int) -> tuple[str, str]:
        """(marketing name, architecture as the compiler calls it) of a device."""
        properties = self._properties(index)
        if self.vendor == "nvidia":
            return _text(properties.name), f"sm_{properties.major}{properties.minor}"
        return _text(properties.name), _text(properties.gcnArchName).partition(":")[0]

    def slot(self, index: int) -> str:
        """PCI domain-bus-device of a device: the name that all processes know it by."""
        pci = self._properties(index)
        return f"{pci.pciDomainID:04x}-{pci.pciBusID:02x}-{pci.pciDeviceID:02x}"

    def driver_properties(self, index: int) -> DriverProperties:
        """What the driver reports of a device."""
        title, architecture = self.identity(index)
        stated = {"memory_bytes": int(self._properties(index).totalGlobalMem),
                  **(self._attributes(index) if self.vendor == "nvidia" else self._hip(index))}
        figures: dict[str, Any] = {
            name: value * 1e3 if name in _KILOHERTZ else value for name, value in stated.items()}
        return DriverProperties(self.vendor, title, architecture, **figures)

    def driver_version(self) -> int:
        """Version of the driver, as a number of the vendor's."""
        return int(self._call("DriverGetVersion"))

    def _attributes(self, index: int) -> dict[str, int]:
        figures = {}
        for name, attribute in _CUDA_ATTRIBUTES.items():
            # An older runtime, or a driver beside it, may not know one.
            with suppress(AttributeError, LaunchError):
                number = getattr(self._module.cudaDeviceAttr, f"cudaDevAttr{attribute}")
                figures[name] = max(int(self._call("DeviceGetAttribute", number, index)), 0)
        return figures

    def _hip(self, index: int) -> dict[str, int]:
        properties = self._properties(index)
        return {name: max(int(getattr(properties, stated, 0)), 0)
                for name, stated in _HIP_PROPERTIES.items()}

    def _properties(self, index: int) -> Any:
        try:
            return self._call("GetDeviceProperties", index)
        except TypeError:  # hip-python before 7.14
            properties = self._module.hipDeviceProp_t()
            self._call("GetDeviceProperties", properties, index)
            return properties

    @contextmanager
    def on(self, index: int) -> Iterator[None]:
        """Make a device current, and the former one again."""
        before = int(self._call("GetDevice"))
        self._call("SetDevice", index)
        try:
            yield
        finally:
            self._call("SetDevice", before)

    def allocate(self, size: int) -> int:
        """Bytes of device memory (at least one); their address."""
        return int(self._call("Malloc", max(size, 1)))

    def free(self, address: int) -> None:
        """Give memory back, once nothing runs on it."""
        self._call("Free", address)

    def fill(self, target: int, value: int, size: int, stream: int = 0) -> None:
        """Set *size* bytes of device memory to *value*, without waiting."""
        self._call("MemsetAsync", target, value, size, stream)

    def copy(self, target: int, source: int, size: int, stream: int = 0) -> None:
        """Copy *size* bytes within the device, without waiting."""
        self._call("MemcpyAsync", target, source, size, self._kind("DeviceToDevice"), stream)

    def to_device(self, target: int, source: int, size: int) -> None:
        """Copy *size* bytes from the host; returns when they are there."""
        self._call("Memcpy", target, source, size, self._kind("HostToDevice"))

    def to_host(self, target: int, source: int, size: int) -> None:
        """Copy *size* bytes to the host, after what runs on the default stream."""
        self._call("Memcpy", target, source, size, self._kind("DeviceToHost"))

    def synchronize(self) -> None:
        """Wait for everything on the current device, and raise what went wrong there."""
        self._call("DeviceSynchronize")

    def stream(self) -> Any:
        """A new stream on the current device; ``int(stream)`` is its address."""
        return self._call("StreamCreate")

    def capture(self, stream: Any, work: Callable[[], None]) -> Graph:
        """The launches that *work* makes on *stream*, as a graph to be launched there again.

        AttributeError or TypeError where the bindings, or an older runtime, lack one of the calls.
        """
        modes = getattr(self._module, f"{self._prefix}StreamCaptureMode")
        self._call("StreamBeginCapture", stream,
                   getattr(modes, f"{self._prefix}StreamCaptureModeThreadLocal"))
        try:
            work()
        finally:
            graph = self._call("StreamEndCapture", stream)
        # The two vendors' calls of the plain name differ in their arguments.
        instantiate = "GraphInstantiate" if self.vendor == "nvidia" else "GraphInstantiateWithFlags"
        return Graph(self._call, graph, self._call(instantiate, graph, 0), stream)

    def event(self) -> Any:
        """A new event."""
        return self._call("EventCreate")

    def record(self, event: Any, stream: int = 0) -> None:
        """Have *event* happen when the stream gets there."""
        self._call("EventRecord", event, stream)

    def elapsed_seconds(self, start: Any, end: Any) -> float:
        """Seconds between two events; waits for the second."""
        self._call("EventSynchronize", end)
        return float(self._call("EventElapsedTime", start, end)) * 1e-3


class Graph:
    """Captured launches, to be made again by a call; destroyed with the last reference."""

    def __init__(self, call: Callable[..., Any], graph: Any, executable: Any, stream: Any) -> None:
        self._call, self._graph, self._executable, self._stream = call, graph, executable, stream

    def __call__(self) -> None:
        """Launch them on the stream that they were captured on."""
        self._call("GraphLaunch", self._executable, self._stream)

    def __del__(self) -> None:
        self._call("GraphExecDestroy", self._executable)
        self._call("GraphDestroy", self._graph)


def _text(name: Any) -> str:
    raw = bytes(name) if isinstance(name, bytes | bytearray) else str(name).encode()
    return raw.split(b"\0")[0].decode(errors="replace")


@once
def runtime(vendor: str) -> Runtime:
    """The runtime of "amd" or "nvidia".

    Raises ImportError where there are no bindings, and on AMD where none of them finds a device.
    """
    if vendor == "nvidia":
        return Runtime(vendor, _bindings(vendor), "cuda", "cuda-bindings")
    passed_over: dict[str, None] = {}
    for source, module in _ways_to_hip():
        try:
            candidate = Runtime(vendor, module(), "hip", source, tuple(passed_over))
            candidate.require_devices()
            return candidate
        except _UNFIT as failed:
            passed_over[f"{source}: {failed}"] = None
    raise ImportError("; ".join(passed_over))


def _bindings(vendor: str) -> Any:
    """The module of a vendor's own bindings."""
    package, name = _BINDINGS[vendor]
    # The module is a submodule in some releases of the bindings, an attribute in others.
    return getattr(__import__(package, fromlist=[name]), name)


def _ways_to_hip() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Name of each way to AMD's runtime, the best one first, and what makes it."""
    yield "hip-python", lambda: _bindings("amd")
    yield "PyTorch", lambda: TorchHip(rocm_torch())
    for path in libraries():
        yield path, partial(HipLibrary, path)


@once
def missing_runtime(vendor: str) -> str | None:
    """Why there is no device of a vendor, and how to mend that; None where there is one."""
    try:
        here = runtime(vendor)
    except _UNFIT as failed:
        return _MISSING[vendor].format(failed)
    return None if here.count() else f"{here.source} finds no NVIDIA GPU and driver"
