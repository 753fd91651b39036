"""Libraries of compiled kernels, loaded through cffi, and launches of their kernels."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from dscore.building.codegen import KernelSource, sizes_of
from dscore.building.headers import sources
from dscore.building.reports import Report
from dscore.cache.files import loadable
from dscore.core.errors import CompileError, LaunchError
from dscore.core.once import once
from dscore.core.plan import Plan, ResourceUse
from dscore.core.spec import LAYOUTS
from dscore.ops import operands_of

# Of the operands' addresses and a stream; returns 0 or a code.
Start = Callable[..., int]


@once
def _ffi() -> Any:
    """FFI with the declarations of abi.h; there is one, as objects of two cannot be mixed."""
    from cffi import FFI

    ffi = FFI()
    ffi.cdef((sources() / "abi.h").read_text())
    return ffi


class Library:
    """Shared library of kernels; with *sha256*, one of the cache, which must still be of that hash.

    Raises CompileError where the file is no library of this version of dscore, or is not as it was
    written.
    """

    def __init__(self, path: Path, sha256: str | None = None) -> None:
        ffi = _ffi()
        try:
            with nullcontext(str(path)) if sha256 is None else loadable(path, sha256) as name:
                # It stays when cffi closes it at the end of Python: the functions of `start` are
                # objects that a last collection of garbage may still visit.
                self._lib = ffi.dlopen(name, ffi.RTLD_NOW | ffi.RTLD_NODELETE)
            abi = self._lib.dscore_abi()
        except (OSError, AttributeError, ValueError) as failed:
            raise CompileError(f"{path} is not a kernel library: {failed}") from None
        if abi != self._lib.DSCORE_ABI:
            raise CompileError(f"{path} was built for ABI {abi}, this dscore has "
                               f"{self._lib.DSCORE_ABI}; build it again")
        self.path = path
        count = ffi.new("int *")
        table = self._lib.dscore_kernels(count)
        self.kernels: Mapping[str, Any] = {
            ffi.string(table[n].name).decode(): table[n] for n in range(count[0])}

    def start(self, calls: Sequence[Any]) -> Start:
        """Function that makes the launches of some dscore_calls, all with the same operands.

        It takes their addresses and a stream, and raises TypeError for another number of arguments
        or one that is no integer, OverflowError for an integer that is no address. The library
        must outlive it.
        """
        ffi = _ffi()
        record = ffi.new("dscore_call[]", [call[0] for call in calls])
        if sys.implementation.name != "cpython":
            return lambda *addresses: _launched(ffi, record, addresses)
        make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object,
                                 ctypes.c_void_p)(("PyCFunction_NewEx", ctypes.pythonapi))
        start: Start = make(int(ffi.cast("uintptr_t", self._lib.dscore_python_start())),
                            bytes(ffi.buffer(record)), None)
        return start

    def error(self, code: int) -> str:
        """Meaning of a launch's code."""
        text: str = _ffi().string(self._lib.dscore_error(code)).decode()
        return text


@once
def open_library(path: Path, sha256: str | None = None) -> Library:
    """The library at *path*, opened once in the life of a process."""
    return Library(path, sha256)


def _launched(ffi: Any, calls: Any, addresses: Sequence[int]) -> int:
    """Launches as dscore_python_start makes them, for Pythons without CPython's API."""
    count = calls[0].operands
    if len(addresses) != count + 1:
        raise TypeError(f"{count} operands and a stream were expected, got {len(addresses)}")
    operands = ffi.new("dscore_operands *", (addresses[:count], addresses[count]))
    codes = (call.launch(ffi.addressof(call, "shape"), operands, call.device) for call in calls)
    return next((int(code) for code in codes if code), 0)


class LoadedKernel:
    """Kernel of a library for a plan, launched on the addresses of its operands.

    *report* is what its compiler said of it, where it said anything.
    """

    def __init__(self, library: Library, source: KernelSource,
                 report: Report | None = None) -> None:
        if source.name not in library.kernels:
            raise CompileError(f"{library.path} has no kernel {source.name}; it has "
                               f"{', '.join(library.kernels)}")
        self.plan: Plan = source.plan
        self.use: ResourceUse = source.plan.use if report is None else report.use(source.plan.use)
        self._library = library
        self._kernel = library.kernels[source.name]
        problem = source.plan.problem
        self._shape = _ffi().new("dscore_shape *", {
            **sizes_of(problem), "layout": LAYOUTS.index(problem.spec.layout)})
        self._require_operands()
        self._starts: dict[tuple[int, bool], Start] = {}

    def _require_operands(self) -> None:
        """Raise CompileError unless it takes the operands of the plan, and its workspace if any."""
        problem = self.plan.problem
        names = [one.name for one in operands_of(problem)]
        names += ["workspace"] * (self.plan.workspace_bytes > 0)
        if self.operands != len(names):
            raise CompileError(f"{self.plan.name}: its kernel takes {self.operands} operands, but "
                               f"{problem.operation} has {len(names)}: {', '.join(names)}")
        if self.workspace_bytes != self.plan.workspace_bytes:
            raise CompileError(f"{self.plan.name}: its kernel was built for a workspace of "
                               f"{self.workspace_bytes:,} B, the plan has one of "
                               f"{self.plan.workspace_bytes:,} B; build it again")

    @property
    def wavefront(self) -> int:
        """Lanes of the wavefronts that the kernel was built for."""
        return int(self._kernel.wavefront)

    @property
    def alignment(self) -> int:
        """Bytes that every array's address must be a multiple of."""
        return int(self._kernel.alignment)

    @property
    def operands(self) -> int:
        """Addresses that a launch takes: the operation's operands, then a workspace if any."""
        return int(self._kernel.operands)

    @property
    def workspace_bytes(self) -> int:
        """Memory that a launch needs beside the operands of the operation."""
        return int(self._kernel.workspace_bytes(self._shape))

    def launch(self, *addresses: int) -> None:
        """Start the kernel on operands at these addresses (0: none), without waiting.

        A stream and a device may follow them, each 0 by default. Raises LaunchError with the
        device's own words.
        """
        count = self.operands
        stream, device = (*addresses[count:], 0, 0)[:2]
        code = self.start_on(device)(*addresses[:count], stream)
        if code:
            raise self.failure(code)

    def start_on(self, device: int, behind: bool = False) -> Start:
        """`launch` on a device at the least cost, or one *behind* another kernel's; the kernel must
        outlive it."""
        if (device, behind) not in self._starts:
            self._starts[device, behind] = self._library.start([self.call_on(device, behind)])
        return self._starts[device, behind]

    def call_on(self, device: int, behind: bool = False) -> Any:
        """Launch as a dscore_call; `Library.start` takes one or several of them."""
        launch = self._kernel.launch_behind if behind else self._kernel.launch
        return _ffi().new("dscore_call *", (launch, self._shape[0], device, self.operands))

    def failure(self, code: int) -> LaunchError:
        """Error that a start's code stands for."""
        return LaunchError(f"{self.plan.name}: {self._library.error(code)}")
