"""Compiled kernel libraries, loaded through cffi, and the call of one of their kernels."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from dscore._version import __version__
from dscore.building.abi import ABI
from dscore.building.codegen import KernelSource, Sizes, sizes_of
from dscore.building.compilers import Kind, find_compiler
from dscore.cache.store import folder_key
from dscore.core.backend import BackendIdentity
from dscore.core.errors import CompileError, LaunchError
from dscore.core.once import once
from dscore.core.plan import Plan

# Of x, w, bias, out and a stream; returns 0 or a code.
Start = Callable[[int, int, int, int, int], int]


def sources() -> Path:
    """The folder of the kernel sources, which units include."""
    return Path(str(files("dscore._hip_src")))


def sources_identity(include: Path, sizes: Sizes, compiler: Kind) -> BackendIdentity:
    """The identity of a backend that builds the kernel sources below *include*."""
    return BackendIdentity(folder_key(include, (".hpp", ".h"), __version__, sizes),
                           lambda: find_compiler(compiler).version)


@once
def _ffi() -> Any:
    """The declarations that the C++ units include, for cffi; its objects know no other FFI's."""
    from cffi import FFI

    ffi = FFI()
    ffi.cdef((sources() / "abi.h").read_text())
    return ffi


class Library:
    """A shared library of kernels.

    Raises CompileError where the file is no library of this version of dscore.
    """

    def __init__(self, path: Path) -> None:
        ffi = _ffi()
        try:
            self._lib = ffi.dlopen(str(path))
            abi = self._lib.dscore_abi()
        except (OSError, AttributeError) as failed:
            raise CompileError(f"{path} is not a kernel library: {failed}") from None
        if abi != ABI:
            raise CompileError(f"{path} was built for ABI {abi}, this dscore has {ABI}; "
                               "build it again")
        self.path = path
        count = ffi.new("int *")
        table = self._lib.dscore_kernels(count)
        self.kernels: Mapping[str, Any] = {
            ffi.string(table[n].name).decode(): table[n] for n in range(count[0])}

    def start(self, call: Any) -> Start:
        """A function that starts a dscore_call; the library must outlive it."""
        ffi = _ffi()
        if sys.implementation.name != "cpython":
            return lambda *places: int(call.launch(
                ffi.addressof(call, "shape"), ffi.new("dscore_places *", places), call.device))
        make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object,
                                 ctypes.c_void_p)(("PyCFunction_NewEx", ctypes.pythonapi))
        made: Start = make(int(ffi.cast("uintptr_t", self._lib.dscore_python_start())),
                           bytes(ffi.buffer(call)), None)
        return made

    def error(self, code: int) -> str:
        """What a launch's code means."""
        text: str = _ffi().string(self._lib.dscore_error(code)).decode()
        return text


class LoadedKernel:
    """One kernel of a library, bound to a plan: addresses in, launched."""

    def __init__(self, library: Library, source: KernelSource) -> None:
        if source.name not in library.kernels:
            raise CompileError(f"{library.path} has no kernel {source.name}; it has "
                               f"{', '.join(library.kernels)}")
        self.plan: Plan = source.plan
        self._library = library
        self._kernel = library.kernels[source.name]
        self._shape = _ffi().new("dscore_shape *", sizes_of(source.plan.problem))
        self._starts: dict[int, Start] = {}

    @property
    def wavefront(self) -> int:
        """The wavefront the kernel was built for."""
        return int(self._kernel.wavefront)

    @property
    def alignment(self) -> int:
        """Bytes that every array's address must be a multiple of."""
        return int(self._kernel.alignment)

    def launch(self, x: int, w: int, bias: int, out: int, stream: int = 0,
               device: int = 0) -> None:
        """Start the kernel on arrays at these addresses (0: none).

        Raises LaunchError with the device's own words.
        """
        code = self.start_on(device)(x, w, bias, out, stream)
        if code:
            raise self.failure(code)

    def start_on(self, device: int) -> Start:
        """`launch` on a device at the least cost; the kernel must outlive it."""
        if device not in self._starts:
            self._starts[device] = self._library.start(_ffi().new(
                "dscore_call *", (self._kernel.launch, self._shape[0], device)))
        return self._starts[device]

    def failure(self, code: int) -> LaunchError:
        """The error that a start's code stands for."""
        return LaunchError(f"{self.plan.name}: {self._library.error(code)}")
