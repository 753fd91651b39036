"""Kernels by what each was made of: taken from loaded files or the cache, else built together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from dscore._version import __version__
from dscore.algorithms.registry import algorithm, names
from dscore.building import kernel_files, toolchain
from dscore.building.codegen import CALLED_SIZES, KernelSource, Sizes, entry_points, units
from dscore.building.compiler_places import Kind
from dscore.building.compilers import Compiler, find_compiler, missing_compiler
from dscore.building.headers import headers_digest, sources
from dscore.building.library import LoadedKernel, open_library
from dscore.building.reports import Report, report_of
from dscore.building.toolchain import Built, Target
from dscore.cache.store import Store, folder_key, key
from dscore.core.backend import BackendIdentity, Prepared, Progress
from dscore.core.errors import CompileError, SpecError, UnavailableError
from dscore.core.once import Locks
from dscore.core.plan import Plan

_FORMAT = "1"  # of what an identity is made of, and of the index
# The index: an entry tells the library that holds a kernel. A library has the kernels that were
# built together, because GPU compilers take as long for a unit's headers as for several kernels.
_INDEX = Store("kernels")
_building = Locks()  # by the key of a kernel
_opened: dict[str, Built] = {}  # libraries of the cache that this process has read, by their keys
_PATIENCE_SECONDS = 1.0
_explains_waits: ContextVar[bool] = ContextVar("explains_waits", default=False)
_explained = threading.Lock()  # taken for good by the first explanation


@dataclass(frozen=True)
class StoredKernel:
    """Kernel of a library on disk, and what its compiler reported of it."""

    library: Path
    report: Report | None
    sha256: str | None = None  # of the file; None for one that the user has named


@dataclass(frozen=True)
class Provision:
    """Kernels by name, and how many of them had to be compiled."""

    kernels: Mapping[str, StoredKernel]
    compiled: int


def identity_of(kernel: KernelSource, target: Target, headers: str) -> str:
    """Hash of all that a kernel is made of, but for the compiler: the same on every machine."""
    return key(_FORMAT, headers, target.kind, target.architecture, key(*target.flags),
               kernel.include, kernel.text(), entry_points())


def provide(kernels: Sequence[KernelSource], target: Target, *, include: Path | None = None,
            compiler: Compiler | None = None, jobs: int | None = None,
            progress: Progress | None = None) -> Provision:
    """All of *kernels*, from loaded files and the cache; those that neither has are built together.

    Loaded files are passed over where a *compiler* is named. No two threads build one kernel.
    Raises UnavailableError where a kernel must be built and there is no compiler, CompileError
    where the compiler fails.
    """
    include = include or sources()
    headers = headers_digest(include)
    missing = {kernel.name: kernel for kernel in kernels}
    stored = {} if compiler else _taken(missing, _of_files(missing, target, headers))
    if not missing:
        return Provision(stored, 0)
    compiler = compiler or _compiler(target, missing)
    keys = {name: _key(kernel, target, compiler, headers) for name, kernel in missing.items()}
    stored |= _taken(missing, _of_cache(keys, missing))
    with ExitStack() as locks:
        # In one order, so that no two threads wait for one another.
        for held in sorted(keys[name] for name in missing):
            locks.enter_context(_building.of(held))
        stored |= _taken(missing, _of_cache(keys, missing))
        if missing:
            built = build_together([*missing.values()], target, compiler, include=include,
                                   jobs=jobs, progress=progress)
            stored |= {name: _stored(name, built) for name in missing}
    return Provision(stored, len(missing))


def build_together(kernels: Sequence[KernelSource], target: Target, compiler: Compiler, *,
                   include: Path | None = None, jobs: int | None = None,
                   progress: Progress | None = None) -> Built:
    """One library of exactly these kernels, each of which `provide` finds from then on."""
    kernels = sorted(kernels, key=lambda kernel: kernel.name)  # one library whatever their order
    jobs = jobs or toolchain.cores()
    with _explained_wait(kernels, compiler):
        built = toolchain.build_library(units(kernels, jobs), target, include=include or sources(),
                                        compiler=compiler, jobs=jobs, progress=progress)
    for kernel in kernels:
        _INDEX.put(_key(kernel, target, compiler, built.headers), {}, {
            "kernel": kernel.name, "library": built.key, "target": target.name,
            "compiler": compiler.path, "compiler_version": compiler.version,
            "dscore": __version__})
    return built


def _key(kernel: KernelSource, target: Target, compiler: Compiler, headers: str) -> str:
    return key(identity_of(kernel, target, headers), toolchain.compilation_key(target, compiler))


def _taken(missing: dict[str, KernelSource],
           kernels: dict[str, StoredKernel]) -> dict[str, StoredKernel]:
    """*kernels*, which are no longer *missing*."""
    for name in kernels:
        del missing[name]
    return kernels


def _of_files(missing: Mapping[str, KernelSource], target: Target,
              headers: str) -> dict[str, StoredKernel]:
    if not kernel_files.loaded_files():
        return {}
    stored = {name: kernel_files.kernel_of(identity_of(kernel, target, headers), target)
              for name, kernel in missing.items()}
    return {name: StoredKernel(*kernel) for name, kernel in stored.items() if kernel is not None}


def _of_cache(keys: Mapping[str, str], names: Iterable[str]) -> dict[str, StoredKernel]:
    """Those of *names* that a library of the cache holds."""
    stored = {}
    for name in names:
        entry = _INDEX.get(keys[name])
        built = None if entry is None else _library(str(entry.meta.get("library")))
        if built is not None:
            stored[name] = _stored(name, built)
    return stored


def _library(library_key: str) -> Built | None:
    """Library of the cache, read and hashed once in a process; None where it is gone or damaged."""
    built = _opened.get(library_key)
    if built is None or not built.path.is_file():
        built = toolchain.cached_library(library_key)
        if built is not None:
            _opened[library_key] = built
    return built


def _stored(name: str, built: Built) -> StoredKernel:
    return StoredKernel(built.path, report_of(name, built.reports), built.sha256)


def _compiler(target: Target, missing: Mapping[str, KernelSource]) -> Compiler:
    """Compiler of *target*; without one the error says which kernels no loaded file holds."""
    try:
        return find_compiler(target.kind, architecture=target.architecture)
    except UnavailableError as absent:
        files = kernel_files.files_of(target.kind)
        if not files:
            raise
        tokens = sorted({kernel.plan.token for kernel in missing.values()})
        raise UnavailableError(
            f"no kernel of {', '.join(tokens)} for {target.name} is in "
            f"{', '.join(str(file.path) for file in files)}, and here it cannot be compiled: "
            f"{absent}") from absent


@contextmanager
def explained_waits() -> Iterator[None]:
    """Have the first build in the process that takes over a second say what it is for.

    The line is a warning of the logger "dscore", which Python shows on stderr by default.
    """
    before = _explains_waits.set(True)
    try:
        yield
    finally:
        _explains_waits.reset(before)


@contextmanager
def _explained_wait(kernels: Sequence[KernelSource], compiler: Compiler) -> Iterator[None]:
    if not _explains_waits.get() or _explained.locked():
        yield
        return
    timer = threading.Timer(_PATIENCE_SECONDS, _explain, (kernels[0].plan, compiler))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _explain(plan: Plan, compiler: Compiler) -> None:
    if _explained.acquire(blocking=False):
        logging.getLogger("dscore").warning(
            "dscore: this call waits for %s to compile the kernel of %s; it is kept for the next "
            "time, and `dscore prepare` compiles many at once", compiler, plan.token)


class Kernels:
    """Kernels of one backend that this process has loaded, by name and target."""

    def __init__(self, sizes: Sizes, include: Path | None = None) -> None:
        self._sizes: Sizes = sizes
        self._include = include
        self._stored: dict[tuple[str, str], StoredKernel] = {}

    def prepare(self, plans: Sequence[Plan], target: Target,
                progress: Progress | None = None) -> Prepared:
        """Load the kernels of *plans*, and build those that are missing."""
        wanted = {kernel.name: kernel
                  for kernel in (KernelSource(plan, self._sizes) for plan in plans)}
        absent = [kernel for name, kernel in wanted.items()
                  if (name, target.name) not in self._stored]
        if not absent:
            return Prepared(len(wanted))
        provision = self._opened(absent, target, progress)
        for name, stored in provision.kernels.items():
            self._stored[name, target.name] = stored
        return Prepared(len(wanted), provision.compiled)

    def _opened(self, kernels: Sequence[KernelSource], target: Target, progress: Progress | None,
                attempts: int = 5) -> Provision:
        """Kernels whose libraries are open, so that no other process can take them away.

        One that another process removes before it is open is provided again.
        """
        provision = provide(kernels, target, include=self._include, progress=progress)
        try:
            for stored in provision.kernels.values():
                open_library(stored.library, stored.sha256)
        except CompileError:
            gone = any(stored.sha256 and not stored.library.exists()
                       for stored in provision.kernels.values())
            if not gone or attempts == 1:
                raise
            return self._opened(kernels, target, progress, attempts - 1)
        return provision

    def loaded(self, plan: Plan, target: Target) -> LoadedKernel:
        """The kernel of *plan*, its use as the compiler reported it."""
        self.prepare([plan], target)
        kernel = KernelSource(plan, self._sizes)
        stored = self._stored[kernel.name, target.name]
        return LoadedKernel(open_library(stored.library, stored.sha256), kernel, stored.report)


def report_on(plan: Plan) -> Report | None:
    """The compiler's report on the kernel that calls take for *plan* on its device.

    None where no loaded file and no library of the cache has that kernel; nothing is built.
    """
    with suppress(UnavailableError, SpecError):  # no compiler; no target of that name
        target = toolchain.target(plan.device.architecture)
        kernel = KernelSource(plan, CALLED_SIZES[target.kind])
        headers = headers_digest(sources())
        stored = _of_files({kernel.name: kernel}, target, headers)
        if not stored and _INDEX.folders():  # else there is no need to look for a compiler
            compiler = find_compiler(target.kind, architecture=target.architecture)
            key_of = {kernel.name: _key(kernel, target, compiler, headers)}
            stored = _of_cache(key_of, key_of)
        return stored[kernel.name].report if stored else None
    return None


def missing_kernels(kind: Kind) -> str | None:
    """Why no kernels of *kind* can be had here, and the fix; None with a compiler or a file."""
    return None if kernel_files.files_of(kind) else missing_compiler(kind)


def sources_identity(include: Path, sizes: Sizes, compiler: Kind,
                     architecture: str = "") -> BackendIdentity:
    """Identity of a backend that builds the kernel sources below *include*."""
    kernels = (algorithm(name).include for name in names())
    return BackendIdentity(folder_key(include, (".hpp", ".h"), __version__, sizes, *kernels),
                           lambda: _compiler_version(compiler, architecture))


def _compiler_version(kind: Kind, architecture: str) -> str:
    """Version of the compiler; without one, of those that built the loaded files."""
    try:
        return find_compiler(kind, architecture=architecture).version
    except UnavailableError:
        files = kernel_files.files_of(kind)
        if not files:
            raise
        return "; ".join(sorted({file.compiler for file in files}))
