"""The library of the HIP runtime through cffi: ROCm's libamdhip64, or the one of Hygon's DTK."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dscore.core.errors import LaunchError

# The library of the HIP runtime: ROCm's, and that of Hygon's DTK, which some releases of DTK also
# call by ROCm's name.
_LIBRARIES = ("libgalaxyhip.so", "libamdhip64.so")
_HOMES = ("$ROCM_PATH", "$DTK_ROOT", "$DTK_HOME", "$HIP_PATH", "/opt/dtk", "/opt/rocm")
_FOLDERS = ("lib", "hip/lib", "lib64")
_RELEASES = ("", *(f".{release}" for release in range(9, 4, -1)))
# hip_runtime_api.h of ROCm 5 to 7; handles and addresses are numbers. A pointer is where a result
# goes.
_DECLARED = """
int hipGetDeviceCount(int *); int hipGetDevice(int *); int hipSetDevice(int);
int hipDeviceGetName(char *, int, int); int hipDeviceTotalMem(size_t *, int);
int hipDeviceGetAttribute(int *, int, int); int hipDeviceGetPCIBusId(char *, int, int);
int hipGetDeviceProperties(void *, int); int hipGetDevicePropertiesR0600(void *, int);
int hipDriverGetVersion(int *); const char *hipGetErrorString(int); int hipGetLastError(void);
int hipMalloc(uintptr_t *, size_t); int hipFree(uintptr_t);
int hipMemcpy(uintptr_t, uintptr_t, size_t, int);
int hipMemcpyAsync(uintptr_t, uintptr_t, size_t, int, uintptr_t);
int hipMemsetAsync(uintptr_t, int, size_t, uintptr_t); int hipDeviceSynchronize(void);
int hipStreamCreate(uintptr_t *); int hipStreamBeginCapture(uintptr_t, int);
int hipStreamEndCapture(uintptr_t, uintptr_t *);
int hipGraphInstantiateWithFlags(uintptr_t *, uintptr_t, unsigned long long);
int hipGraphLaunch(uintptr_t, uintptr_t);
int hipGraphExecDestroy(uintptr_t); int hipGraphDestroy(uintptr_t);
int hipEventCreate(uintptr_t *); int hipEventRecord(uintptr_t, uintptr_t);
int hipEventSynchronize(uintptr_t); int hipEventElapsedTime(float *, uintptr_t, uintptr_t);
"""
# hipDeviceAttribute_t by the names of hipDeviceProp_t. ROCm's numbers have been the same since 4.5
# (hip_runtime_api.h). DTK goes on with those that HIP had before (its hip_runtime_defines.h, as
# projects on DCUs quote it); of these only what they quote.
_ATTRIBUTES = (
    {"warpSize": 87, "multiProcessorCount": 63, "maxThreadsPerBlock": 56, "sharedMemPerBlock": 74,
     "l2CacheSize": 19, "clockRate": 5, "memoryClockRate": 60, "memoryBusWidth": 59},
    {"warpSize": 27, "multiProcessorCount": 32, "sharedMemPerBlock": 25, "l2CacheSize": 34})
_ARCHITECTURE = re.compile(rb"gfx[0-9a-f]{3,4}(?::[a-z]+[+-])*(?=\0)")
_NAME_BYTES, _PROPERTIES_BYTES = 256, 8192


class _Code(int):
    """Code of a call, which prints as the runtime's own words."""

    words = ""

    def __str__(self) -> str:
        return f"{int(self)}, {self.words}"


class HipLibrary:
    """Calls of a HIP runtime's library, with the names and the results of hip-python's.

    Raises OSError where the file cannot be loaded, AttributeError at a call that it lacks.
    """

    hipMemcpyKind = SimpleNamespace(
        hipMemcpyHostToDevice=1, hipMemcpyDeviceToHost=2, hipMemcpyDeviceToDevice=3)
    hipStreamCaptureMode = SimpleNamespace(
        hipStreamCaptureModeThreadLocal=1)

    def __init__(self, path: str) -> None:
        from cffi import FFI

        self._ffi = FFI()
        self._ffi.cdef(_DECLARED)
        self._library = self._ffi.dlopen(path)
        self.path = path

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        if not name.startswith("hip"):
            raise AttributeError(name)
        function = getattr(self._library, name)
        kinds = self._ffi.typeof(function).args

        def call(*given: Any) -> tuple[Any, ...]:
            inputs, cells, arguments = iter(given), [], []
            for kind in kinds:
                if kind.kind == "pointer":
                    cells.append(self._ffi.new(kind))
                    arguments.append(cells[-1])
                else:
                    arguments.append(int(next(inputs)))
            return (self._code(function(*arguments)), *(cell[0] for cell in cells))
        self.__dict__[name] = call
        return call

    def _code(self, number: int) -> _Code:
        code = _Code(number)
        if number:
            self._library.hipGetLastError()  # which the next launch would take for its own
            code.words = self._ffi.string(self._library.hipGetErrorString(number)).decode()
        return code

    def hipGetDeviceProperties(self, index: int) -> tuple[Any, ...]:
        """What dscore reads of hipDeviceProp_t, without its layout, which runtimes do not share."""
        name, slot = (self._text(getattr(self._library, call), index)
                      for call in ("hipDeviceGetName", "hipDeviceGetPCIBusId"))
        code, memory = self.hipDeviceTotalMem(index)
        if code:
            return (code,)
        domain, bus, device = (int(part, 16) for part in re.split("[:.]", slot)[:3])
        return code, SimpleNamespace(
            name=name, gcnArchName=self._architecture(index), totalGlobalMem=memory,
            pciDomainID=domain, pciBusID=bus, pciDeviceID=device, **self._figures(index))

    def _text(self, call: Callable[..., int], index: int) -> str:
        text = self._ffi.new("char[]", _NAME_BYTES)
        code = self._code(call(text, _NAME_BYTES, index))
        if code:
            raise LaunchError(f"{self.path} tells nothing of device {index}: {code}")
        return self._ffi.string(text).decode(errors="replace")  # type: ignore[no-any-return]

    def _architecture(self, index: int) -> str:
        """gcnArchName, which no call reports alone: the one such text behind a device's name."""
        properties = self._ffi.new("char[]", _PROPERTIES_BYTES)
        try:
            call = self._library.hipGetDevicePropertiesR0600
        except AttributeError:  # before ROCm 6
            call = self._library.hipGetDeviceProperties
        code = self._code(call(properties, index))
        match = _ARCHITECTURE.search(bytes(self._ffi.buffer(properties)), _NAME_BYTES)
        if code or match is None:
            raise LaunchError(f"{self.path} does not tell the architecture of device {index}"
                              + f": {code}" * bool(code))
        return match[0].decode()

    def _figures(self, index: int) -> dict[str, int]:
        """Figures by those numbers of attributes that give a wavefront; else none."""
        for numbers in _ATTRIBUTES:
            figures = {}
            for name, number in numbers.items():
                code, value = self.hipDeviceGetAttribute(number, index)
                figures[name] = 0 if code else value
            if figures["warpSize"] in (32, 64) and figures["multiProcessorCount"] > 0:
                return figures
        return {}


def libraries() -> Iterator[str]:
    """Each library of the HIP runtime that the loader finds, or that the usual folders hold.

    They stay loaded: DTK's leaves functions to be called at the end of the process.
    """
    names = [library + release for library in _LIBRARIES for release in _RELEASES]
    homes = [home for home in map(os.path.expandvars, _HOMES) if home.startswith("/")]
    paths = [Path(home, folder, name) for home in homes for folder in _FOLDERS for name in names]
    for path in (*names, *(str(path) for path in paths if path.is_file())):
        try:
            ctypes.CDLL(path)  # cffi takes much longer to be imported than this to fail
        except OSError:
            continue
        yield path
