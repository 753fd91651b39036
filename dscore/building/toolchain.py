"""Builds of C++ units: one shared library by a target's compiler, or from the cache."""

from __future__ import annotations

import os
import platform
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path

from dscore._version import __version__
from dscore.building.compiler_places import Kind
from dscore.building.compilers import Compiler, environment, find_compiler, own_flags, refused
from dscore.building.headers import digest_of, read_headers
from dscore.building.processes import Commands, Finished, Workspace, workspace
from dscore.building.reports import Report, parse, report_from
from dscore.cache.store import Store, key
from dscore.core import catalog
from dscore.core.backend import Progress
from dscore.core.errors import CompileError, SpecError, UnavailableError
from dscore.core.once import Locks

TARGET_FORMS = "emulated, gfx<processor> (as gfx906, gfx90a), sm_<capability> (as sm_90)"

_LIBRARIES = Store("libraries")
_FORMAT = "2"  # of what the metadata holds
_LOG_LINES = 200
# What compilers read beside their command, and the result depends on.
_VARIABLES = ("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "HIPCC_COMPILE_FLAGS_APPEND",
              "HIPCC_LINK_FLAGS_APPEND", "HIP_CLANG_PATH", "HIP_DEVICE_LIB_PATH", "NVCC_CCBIN",
              "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS")
_building = Locks()  # by the key of a library
_most_compilers: ContextVar[int | None] = ContextVar("most_compilers", default=None)


@dataclass(frozen=True)
class Target:
    """Architecture that units are compiled for, and the compiler's flags."""

    name: str
    kind: Kind
    architecture: str
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Unit:
    """Translation unit; its file bears its name, shortened and without odd characters."""

    name: str
    text: str

    @property
    def problems(self) -> list[str]:
        """Tokens of the problems that its first line names."""
        head, _, tokens = self.text.partition("\n")[0].partition("// dscore: ")
        return [] if head or not tokens else tokens.split(", ")


@dataclass(frozen=True)
class Built:
    """Shared library on disk, and what its compiler reported of the kernels in it."""

    key: str  # of the cache
    headers: str  # see dscore.building.headers
    path: Path
    sha256: str  # of the file, in hexadecimal
    reports: Mapping[str, Report]  # by symbol
    seconds: float  # that this took, the cache included
    from_cache: bool
    log: str  # of the compilers; empty from the cache


def target(name: str, *, sanitize: bool = False) -> Target:
    """Target called *name*; *sanitize* adds the address and undefined-behaviour sanitizers.

    Raises SpecError for an unknown name.

    >>> target("sm_90").architecture
    'sm_90'
    """
    if sanitize and name != "emulated":
        raise SpecError(f"only the target emulated can be sanitized, not {name!r}")
    if name == "emulated":
        # Never the machine's own instructions: results, and the cache, may move to another.
        flags: tuple[str, ...] = ("-std=c++17", "-O0" if sanitize else "-O1", "-fPIC",
                                  "-DDSCORE_HOST", "-ffp-contract=off",
                                  # Libraries of one process share nothing: each may have been
                                  # made of other headers.
                                  "-fvisibility=hidden")
        if sanitize:
            # Lines for what the sanitizers say; more of -g costs a quarter of the compiler's time.
            flags += ("-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-g1")
        return Target("emulated-sanitized" if sanitize else name, "host", platform.machine(), flags)
    if re.fullmatch(r"gfx[0-9a-f]{3,4}(:(xnack|sramecc)[+-])*", name):
        return Target(name, "hip", name, ("-std=c++17", "-O3", f"--offload-arch={name}", "-fPIC",
                                          "-Rpass-analysis=kernel-resource-usage"))
    if re.fullmatch(r"sm_\d{2,3}[af]?", name):
        # Hopper's own instructions, of warpgroups, are for sm_90a alone, which all of sm_90 run.
        own = "a" * (name == "sm_90")
        return Target(name, "nvcc", name, ("-std=c++17", "-O3", f"-arch={name}{own}", "-Xcompiler",
                                           "-fPIC", "-Xptxas", "-v"))
    raise SpecError(f"unknown target {name!r}{_meant(name)}; there are {TARGET_FORMS}")


def _meant(name: str) -> str:
    """The target that somebody meant who wrote sm90, or a device's name; empty where none is."""
    device = catalog.devices().get(name.lower())
    if device is not None:
        return f" ({device.name} is a device of the target {device.architecture})"
    capability = re.fullmatch(r"(?:sm|compute)?[-_ ]?(\d{2,3}[af]?)", name.lower())
    return f" (did you mean sm_{capability[1]}?)" if capability else ""


def cores() -> int:
    """Cores that this process may use, and so the compilers that run side by side; fewer within
    `compilers_at_most`.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(count, _most_compilers.get() or count)


@contextmanager
def compilers_at_most(count: int) -> Iterator[None]:
    """Have builds of this thread take *count* cores at most, as where threads build side by side.

    >>> with compilers_at_most(1):
    ...     cores()
    1
    """
    before = _most_compilers.set(count)
    try:
        yield
    finally:
        _most_compilers.reset(before)


def build_library(units: Sequence[Unit], target: Target, *, include: Path,
                  compiler: Compiler | None = None, extra_key: Sequence[str | bytes] = (),
                  jobs: int | None = None, timeout_seconds: float = 600,
                  progress: Progress | None = None) -> Built:
    """Shared library of *units*, from the cache where they have been built before.

    Units are compiled side by side, *jobs* at a time, each command for at most *timeout_seconds*;
    *progress* is called in the caller's thread. What lies below *include* is copied
    first, so that what is compiled is what the cache's key was made of. Raises UnavailableError
    without a compiler or where it does not know the architecture, CompileError where it fails.
    """
    if not units:
        raise SpecError("a library needs at least one unit")
    start = time.perf_counter()
    compiler = compiler or find_compiler(target.kind, architecture=target.architecture)
    headers = read_headers(include)
    digest = digest_of(headers)
    name = _key(units, target, compiler, digest, extra_key)
    with _building.of(name):
        built = cached_library(name)
        if built is not None:
            return built
        # Before anything is compiled: a compiler that tells no version is broken, and nvcc needs
        # a host's.
        version, flags = compiler.version, (*target.flags, *own_flags(compiler))
        with workspace() as place:
            (place.folder / "tmp").mkdir()  # for the compilers' own files
            for header, data in headers.items():
                place.write(f"include/{header}", data)
            if progress is not None:
                progress(0, len(units), "")
            build = _Build(name, target, compiler, flags, place, timeout_seconds)
            library, log = build.run(units, jobs or cores(), progress)
            reports = parse(log)
            seconds = time.perf_counter() - start
            entry = _LIBRARIES.put(name, {"so": library}, {
                "target": target.name, "architecture": target.architecture,
                "flags": list(target.flags), "compiler": compiler.path,
                "compiler_version": version, "headers": digest,
                "units": [unit.name for unit in units],
                "problems": sorted({token for unit in units for token in unit.problems}),
                "reports": [asdict(report) for report in reports.values()],
                "seconds": seconds, "dscore": __version__})
    return Built(name, digest, entry.files["so"], entry.sha256["so"], reports, seconds, False, log)


def cached_library(name: str) -> Built | None:
    """Library as it was built, by its key; None where there is none of this dscore's making."""
    start, entry = time.perf_counter(), _LIBRARIES.get(name)
    if entry is None:
        return None
    try:
        reports = [report_from(fields) for fields in entry.meta["reports"]]
        return Built(name, str(entry.meta["headers"]), entry.files["so"], entry.sha256["so"],
                     {report.symbol: report for report in reports},
                     time.perf_counter() - start, True, "")
    except (KeyError, TypeError, ValueError):
        return None


def _key(units: Sequence[Unit], target: Target, compiler: Compiler, headers: str,
         extra: Sequence[str | bytes]) -> str:
    texts = [part for unit in units for part in (unit.name, unit.text)]
    return key(key(*texts), headers, compilation_key(target, compiler), key(*extra))


def compilation_key(target: Target, compiler: Compiler) -> str:
    """Key of all that a library depends on beside its units and their headers."""
    machine = (platform.system(), platform.machine())
    variables = [f"{name}={os.environ[name]}" for name in _VARIABLES if os.environ.get(name)]
    flags = (*target.flags, *(own_flags(compiler) if compiler.needs_no_rocm else ()))
    groups: list[Sequence[str | bytes]] = [
        flags, variables, machine,
        (_FORMAT, target.kind, target.architecture, compiler.kind), compiler.identity]
    return key(*(key(*group) for group in groups))


class _Build:
    """Commands of one build. Their paths are relative, because the folder's name may hold spaces,
    which hipcc and nvcc hand on to shells, and because messages are then shorter.
    """

    def __init__(self, name: str, target: Target, compiler: Compiler, flags: Sequence[str],
                 place: Workspace, limit: float) -> None:
        self._name, self._target, self._compiler, self._flags = name, target, compiler, flags
        self._place, self._folder, self._limit = place, place.folder, limit
        # hipcc's clang leaves temporary folders behind; these go when the build's own does.
        surroundings = environment(compiler.kind) | {"TMPDIR": str(self._folder / "tmp")}
        self._commands = Commands(place, surroundings, limit)

    def run(self, units: Sequence[Unit], jobs: int,
            progress: Progress | None) -> tuple[Path, str]:
        """Library and log. Whatever goes wrong, no command is left running."""
        sources = [self._source(number, unit) for number, unit in enumerate(units)]
        library = self._folder / "library.so"
        if len(units) == 1:
            commands = [[*sources, "-shared", "-o", library.name]]
        else:
            commands = [["-c", source, "-o", f"{source}.o"] for source in sources]
        logs = self._together(commands, [unit.name for unit in units], jobs, progress)
        if len(units) > 1:
            objects = [f"{source}.o" for source in sources]
            logs += self._together([[*objects, "-shared", "-o", library.name]], ["link"], 1, None)
        if not library.is_file():
            raise CompileError(f"{self._compiler} reported success, but made no library")
        return library, "".join(logs)

    def _source(self, number: int, unit: Unit) -> str:
        """File of a unit, with a name that no two share and every file system takes."""
        suffix = ("cu" if self._compiler.kind == "nvcc" else
                  "hip" if self._compiler.needs_no_rocm else "cpp")
        name = f"{number}_{re.sub(r'[^A-Za-z0-9_]', '_', unit.name)[:120]}.{suffix}"
        self._place.write(name, unit.text.encode())
        return name

    def _together(self, commands: list[list[str]], names: list[str], jobs: int,
                  progress: Progress | None) -> list[str]:
        """Run *commands* side by side and return their logs, in order; the first failure ends all.
        """
        begin = [self._compiler.path, *self._flags, "-I", "include"]
        logs = [""] * len(commands)
        running = self._commands.together([begin + command for command in commands], jobs)
        with closing(running):
            for done, (number, finished) in enumerate(running, 1):
                logs[number] = self._succeeded(finished, names[number])
                if progress is not None:
                    progress(done, len(commands), names[number])
        return logs

    def _succeeded(self, finished: Finished, name: str) -> str:
        """Log of a command that succeeded; else raises the error that tells why it did not."""
        if finished.status == 0:
            return finished.log
        command = shlex.join(finished.command)
        reason = refused(self._compiler, self._target.architecture, finished.log)
        if reason:
            raise UnavailableError(f"{reason}\n  {command}")
        ended = (f"did not end within the limit of {self._limit:g} seconds"
                 if finished.status is None else f"failed with status {finished.status}")
        lines = finished.log.splitlines()
        whole = ""
        if len(lines) > _LOG_LINES:
            path = _LIBRARIES.put_log(self._name, f"{command}\n{finished.log}")
            half = _LOG_LINES // 2
            lines = [*lines[:half], f"[... {len(lines) - 2 * half} lines ...]", *lines[-half:]]
            whole = f"\nthe whole log is in {path}"
        raise CompileError("\n".join([f"{self._compiler} {ended} on {name} for "
                                      f"{self._target.name}", f"  {command}", *lines]) + whole)
