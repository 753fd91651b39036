"""The HIP runtime through PyTorch: a build for ROCm or DTK brings one, or is linked to one."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_Results = tuple[Any, ...]
_OF_ROCM = re.compile(r"^hip\b[^=]*= *['\"]", re.MULTILINE)
_VISIBLE = "HIP_VISIBLE_DEVICES"


def rocm_torch() -> Any:
    """PyTorch, where its build is for ROCm or DTK; another one is not imported for this.

    Raises ImportError where there is none.
    """
    found = importlib.util.find_spec("torch") if "torch" not in sys.modules else None
    if found is not None and found.origin:
        version = Path(found.origin).with_name("version.py")
        if not (version.is_file() and _OF_ROCM.search(version.read_text(errors="replace"))):
            raise ImportError("PyTorch is not a build for ROCm")
    import torch

    if not torch.version.hip:
        raise ImportError("PyTorch is not a build for ROCm")
    return torch


class TorchHip:
    """Calls of PyTorch, with the names and the results of hip-python's.

    Those that capture a graph are missing: a graph of PyTorch's is `dscore.measuring.clocks`'s.
    """

    hipMemcpyKind = SimpleNamespace(
        hipMemcpyHostToDevice=1, hipMemcpyDeviceToHost=2, hipMemcpyDeviceToDevice=3)

    def __init__(self, torch: Any) -> None:
        self._torch, self._cuda = torch, torch.cuda
        self._blocks: dict[int, Any] = {}
        self._streams: dict[int, Any] = {}

    def hipGetDeviceCount(self) -> _Results:
        return 0, self._cuda.device_count()

    def hipGetDevice(self) -> _Results:
        return 0, self._cuda.current_device()

    def hipSetDevice(self, index: int) -> _Results:
        self._cuda.set_device(index)
        return (0,)

    def hipDriverGetVersion(self) -> _Results:
        major, minor, patch = (*map(int, re.findall(r"\d+", self._torch.version.hip)), 0, 0, 0)[:3]
        return 0, major * 10_000_000 + minor * 100_000 + patch

    def hipGetDeviceProperties(self, index: int) -> _Results:
        """hipDeviceProp_t of what PyTorch reports, 0 for a figure that its release leaves out."""
        known = self._cuda.get_device_properties(index)
        visible = os.environ.get(_VISIBLE, "").split(",")
        place = visible[index] if index < len(visible) else ""
        # Before PyTorch 2.8 no place on the bus: the number of the device among all takes it.
        number = int(place) if place.strip().isdigit() else index
        stated = {"multiProcessorCount": "multi_processor_count", "warpSize": "warp_size",
                  "sharedMemPerBlock": "shared_memory_per_block", "l2CacheSize": "L2_cache_size",
                  "clockRate": "clock_rate", "memoryClockRate": "memory_clock_rate",
                  "memoryBusWidth": "memory_bus_width", "maxThreadsPerBlock": "",
                  "pciDomainID": "pci_domain_id", "pciDeviceID": "pci_device_id"}
        return 0, SimpleNamespace(
            name=known.name, gcnArchName=known.gcnArchName, totalGlobalMem=known.total_memory,
            pciBusID=getattr(known, "pci_bus_id", number),
            **{name: getattr(known, attribute, 0) for name, attribute in stated.items()})

    def hipMalloc(self, size: int) -> _Results:
        block = self._torch.empty(size, dtype=self._torch.uint8,
                                  device=f"cuda:{self._cuda.current_device()}")
        self._blocks[block.data_ptr()] = block
        return 0, block.data_ptr()

    def hipFree(self, address: int) -> _Results:
        self._cuda.synchronize()  # as hipFree does: PyTorch gives memory on before work has ended
        del self._blocks[address]
        return (0,)

    def hipMemcpy(self, target: int, source: int, size: int, kind: int) -> _Results:
        return self.hipMemcpyAsync(target, source, size, kind, 0)

    def hipMemcpyAsync(self, target: int, source: int, size: int, kind: int,
                       stream: Any) -> _Results:
        with self._on(stream):
            self._bytes(target, size, kind != 2).copy_(self._bytes(source, size, kind != 1))
        return (0,)

    def hipMemsetAsync(self, target: int, value: int, size: int,
                       stream: Any) -> _Results:
        with self._on(stream):
            self._bytes(target, size, True).fill_(value)
        return (0,)

    def _bytes(self, address: int, size: int, on_device: bool) -> Any:
        """A tensor of *size* bytes of memory."""
        if not on_device:
            return self._torch.frombuffer((ctypes.c_uint8 * size).from_address(address),
                                          dtype=self._torch.uint8)
        for start, block in self._blocks.items():
            if start <= address and address + size <= start + block.numel():
                return block[address - start:address - start + size]
        raise RuntimeError(f"{size} bytes from {address:#x} on are no memory of dscore's")

    def _on(self, stream: Any) -> AbstractContextManager[Any]:
        where = self._streams.get(int(stream)) or self._cuda.default_stream()
        current: AbstractContextManager[Any] = self._cuda.stream(where)
        return current

    def hipDeviceSynchronize(self) -> _Results:
        self._cuda.synchronize()
        return (0,)

    def hipStreamCreate(self) -> _Results:
        stream = self._cuda.Stream()
        self._streams[stream.cuda_stream] = stream
        return 0, stream.cuda_stream

    def hipEventCreate(self) -> _Results:
        return 0, self._cuda.Event(enable_timing=True)

    def hipEventRecord(self, event: Any, stream: Any) -> _Results:
        with self._on(stream):
            event.record()
        return (0,)

    def hipEventSynchronize(self, event: Any) -> _Results:
        event.synchronize()
        return (0,)

    def hipEventElapsedTime(self, start: Any, end: Any) -> _Results:
        return 0, start.elapsed_time(end)
