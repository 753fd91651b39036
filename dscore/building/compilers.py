"""Compilers of this machine: where they are looked for, which one is taken, and what it is."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from dscore.building import amd_compilers, cuda_releases
from dscore.building.compiler_places import KINDS, NAMES, VARIABLES, Kind, named, origins, places
from dscore.cache.store import key
from dscore.core.errors import UnavailableError, require_one_of

_FIXES: dict[Kind, str] = {
    "host": "install g++ (Debian's package g++) or set DSCORE_CXX",
    "hip": "install ROCm, Hygon's DTK or Debian's hipcc, or clang 15 or later with the amdgcn "
           "target, lld and clang-offload-bundler (Debian's clang-19, lld-19 and clang-tools-19), "
           "or set DSCORE_HIPCC",
    "nvcc": "{install}, install the CUDA toolkit, or set DSCORE_NVCC",
}
# Of each compiler of GPUs: the vendor, and how the names of its architectures begin.
_GPUS: dict[Kind, tuple[str, str]] = {"hip": ("amd", "gfx"), "nvcc": ("nvidia", "sm_")}
_PROBE_SECONDS = 60
_UNKNOWN_TO_NVCC = re.compile(r".*Unsupported gpu architecture '.*")
# From nvcc's header host_config.h, before anything of dscore's is compiled.
_UNKNOWN_HOST = re.compile(r"#error -- (unsupported .*?) The nvcc flag")


@dataclass(frozen=True)
class Compiler:
    """A compiler of this machine. Finding one starts nothing; its version is asked when needed."""

    kind: Kind
    path: str
    origin: str = field(default="named", compare=False)  # who named it, or where it was found
    # Those that stand before it in the order of preference, and why they were not taken.
    passed_over: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        try:
            return f"{self.path} ({self.version})"
        except UnavailableError:
            return self.path

    @property
    def needs_no_rocm(self) -> bool:
        """Whether it is a clang alone, for which dscore declares HIP's words itself."""
        return self.kind == "hip" and amd_compilers.is_clang(self.path)

    @property
    def version(self) -> str:
        """Lines of ``--version`` that hold a version.

        The compiler is started for it, once in a process. Raises UnavailableError where it fails.
        """
        return _version(self.kind, self.path, _stamp(self.path))

    @property
    def identity(self) -> tuple[str, ...]:
        """Path and state of the executable: what stands for the compiler in a library's key.

        The version alone will not do, because a patched compiler reports the same one. Only a
        wrapper is started. Raises UnavailableError where the compiler is gone.
        """
        return _identity(self.kind, self.path, _stamp(self.path))


def find_compiler(kind: Kind, explicit: str | os.PathLike[str] | None = None,
                  architecture: str = "") -> Compiler:
    """Compiler of *kind*: *explicit*, else the variable's, the wheels', a toolkit's, or PATH's.

    One that is not for *architecture*, and an nvcc whose kernels the driver here would not run,
    is passed over, unless it was named. Raises UnavailableError where there is none, or where the
    one that was named cannot be run.
    """
    require_one_of(kind, "kind of compiler", KINDS)
    if explicit is not None:
        return Compiler(kind, named(os.fspath(explicit), "the compiler asked for"))
    compilers, passed_over = [*_search(kind)], list[str]()
    for compiler in compilers:
        # What an only one does not know is best told by its own words, when it compiles.
        reason = refusal(compiler, architecture if len(compilers) > 1 else "")
        if reason is None:
            return replace(compiler, passed_over=tuple(passed_over))
        passed_over.append(f"{compiler.path} is passed over: {reason}")
    none = f"no {' or '.join(NAMES[kind])} found (looked at {', '.join(origins(kind))})"
    if passed_over:
        none = (f"no {NAMES[kind][0]} that builds for this machine's driver" if kind == "nvcc" else
                f"no compiler that builds for {architecture or 'AMD GPUs'}")
    fix = _FIXES[kind].replace("{install}", cuda_releases.install_line())
    raise UnavailableError("; ".join([none, *passed_over, fix]))


def all_compilers(kind: Kind) -> list[Compiler]:
    """Every compiler of *kind* that this machine has, in the order of preference.

    Raises UnavailableError where the one that a variable names cannot be run.
    """
    return [*_search(kind)]


def refusal(compiler: Compiler, architecture: str = "") -> str | None:
    """Reason why a compiler is passed over; None for one that is not, or that was named."""
    if compiler.kind == "host" or compiler.origin == VARIABLES[compiler.kind]:
        return None
    if compiler.kind == "hip":
        return amd_compilers.refusal(compiler.path, architecture, environment("hip"))
    if cuda_releases.driver_release() is None:  # before nvcc may have to be started
        return None
    release = cuda_releases.header_release(compiler.path)
    if release is None:
        with suppress(UnavailableError):
            release = cuda_releases.version_release(compiler.version)
    return cuda_releases.refusal(release)


def own_flags(compiler: Compiler) -> tuple[str, ...]:
    """Flags that a compiler needs beside the target's: nvcc, and a clang in place of hipcc.

    Those of nvcc name its host compiler and the folder of its runtime. Raises UnavailableError
    where nvcc has no host compiler, without which it compiles nothing.
    """
    if compiler.needs_no_rocm:
        return amd_compilers.CLANG_FLAGS
    if compiler.kind != "nvcc":
        return ()
    folder = os.path.realpath(os.path.join(os.path.realpath(compiler.path), "../../lib"))
    # The wheels of CUDA 13.0 have their libraries in lib, but their nvcc looks in lib64.
    wheels = ("-L", folder) if os.path.exists(os.path.join(folder, "libcudart_static.a")) else ()
    named = " ".join(os.environ.get(name, "") for name in (
        "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"))
    if os.environ.get("NVCC_CCBIN") or re.search(r"(^|\s)--?(ccbin|compiler-bindir)\b", named):
        return wheels
    try:
        return ("-ccbin", find_compiler("host").path, *wheels)
    except UnavailableError as missing:
        raise UnavailableError(
            f"{compiler.path} needs a C++ compiler of the host: {missing}") from missing


def compiler_kind(target: str) -> Kind:
    """The compiler for an architecture or all GPUs of a vendor; "host" for any other target.

    >>> compiler_kind("sm_90"), compiler_kind("amd"), compiler_kind("emulated")
    ('nvcc', 'hip', 'host')
    """
    return next((kind for kind, (vendor, prefix) in _GPUS.items()
                 if target == vendor or target.startswith(prefix)), "host")


def missing_compiler(kind: Kind) -> str | None:
    """Reason why this machine has no compiler of *kind*, and the fix; None if it has one."""
    try:
        find_compiler(kind)
    except UnavailableError as missing:
        return str(missing)
    return None


def environment(kind: Kind) -> dict[str, str]:
    """Environment variables of this process, as a compiler of *kind* needs them."""
    variables = dict(os.environ)
    if kind == "hip":
        # With nvcc on PATH, hipcc silently compiles for NVIDIA unless it is told not to.
        variables["HIP_PLATFORM"] = "amd"
    return variables


def refused(compiler: Compiler, architecture: str, log: str) -> str | None:
    """Reason, and the fix, where a *log* says that the compiler does not go with a machine's parts.

    That is an architecture that it does not know yet, or no longer, or the host's compiler.
    """
    host = _UNKNOWN_HOST.search(log)
    if host:
        return (f"{compiler} does not go with the host's compiler: {host[1]}\n"
                f"{VARIABLES['host']} names another one, such as g++-12")
    message = _UNKNOWN_TO_NVCC.search(log) or amd_compilers.UNKNOWN_ARCHITECTURE.search(log)
    if not message:
        return None
    known, fix = architectures(compiler), (
        "a newer ROCm or clang, or Hygon's DTK for its own processors, may")
    if known:
        older = _number(architecture) < _number(known[0])
        fix = f"it accepts {', '.join(known)}" + "; CUDA 12 builds for older ones" * older
    return (f"{compiler} does not build for {architecture}: {message[0].strip()}\n"
            f"{fix}. {VARIABLES[compiler.kind]} names another compiler")


def _number(architecture: str) -> int:
    return int(re.sub(r"\D", "", architecture))


def architectures(compiler: Compiler) -> tuple[str, ...]:
    """Architectures that nvcc lists as accepted; none for compilers that have no such list."""
    if compiler.kind != "nvcc":
        return ()
    listed = _ask(compiler.kind, compiler.path, "--list-gpu-code")
    return tuple(sorted(re.findall(r"^sm_\w+$", listed.stdout, re.MULTILINE),
                        key=lambda name: (len(name), name)))


def _search(kind: Kind) -> Iterator[Compiler]:
    """Compilers in the order of preference, each executable once."""
    found = set()
    for path, origin in places(kind):
        real = os.path.realpath(path)
        if real not in found:
            found.add(real)
            yield Compiler(kind, path, origin)


_Stamp = tuple[tuple[str, int, int], ...]  # path, size and time of the last change in ns


def _stamp(path: str) -> _Stamp:
    """State of the compiler's files, by which it is noticed that one was replaced.

    nvcc starts ptxas and cicc, which registries hold in packages of their own.
    """
    files = [os.path.realpath(path)]
    files += [part for part in (os.path.join(os.path.dirname(files[0]), name)
                                for name in ("ptxas", "../nvvm/bin/cicc"))
              if os.path.basename(files[0]) == "nvcc" and os.path.exists(part)]
    try:
        states = [(file, os.stat(file)) for file in files]
    except OSError as failed:
        raise UnavailableError(f"the compiler {path} is gone: {failed}") from failed
    return tuple((file, state.st_size, state.st_mtime_ns) for file, state in states)


@lru_cache(maxsize=32)
def _identity(kind: Kind, path: str, stamp: _Stamp) -> tuple[str, ...]:
    """Path and files; of a script its text, of a wrapper the version behind it, too."""
    real = stamp[0][0]
    with open(real, "rb") as file:
        script = file.read(2) == b"#!"
    # A script, or ccache under a compiler's name, stays as it is when what it starts is replaced.
    if script or not re.search(r"\+\+|gcc|clang|nvcc", os.path.basename(real)):
        contents = key(Path(real).read_bytes()) if script else str(stamp)
        return path, real, contents, _version(kind, path, stamp)
    # Whole seconds, because archives and the layers of containers keep no more.
    return path, *(f"{file} {size} {changed_ns // 10**9}" for file, size, changed_ns in stamp)


@lru_cache(maxsize=32)
def _version(kind: Kind, path: str, stamp: _Stamp) -> str:
    """Lines of ``--version`` that hold a version; another *stamp* makes it ask again."""
    done = _ask(kind, path, "--version")
    output = done.stdout.strip() or done.stderr.strip()
    if done.returncode or not output:
        raise UnavailableError(f"{path} --version failed with status {done.returncode}: "
                               f"{output[-500:] or 'it said nothing'}")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    versions = [line for line in lines if re.search(r"\d+\.\d+", line) and not re.match(
        r"(InstalledDir|Target|Configuration file|Copyright|Built on)\b", line)]
    return ", ".join(versions[:2] or lines[:1])


def _ask(kind: Kind, path: str, option: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run([path, option], capture_output=True, text=True, errors="replace",
                              env=environment(kind), stdin=subprocess.DEVNULL, check=False,
                              timeout=_PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as failed:
        raise UnavailableError(f"{path} {option} could not be run: {failed}") from failed
