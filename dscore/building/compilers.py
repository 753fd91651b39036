"""Compilers of this machine: where they are looked for, and the version that each reports."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from dscore.cache.store import key
from dscore.core.errors import UnavailableError, require_one_of

Kind = Literal["host", "hip", "nvcc"]
KINDS: tuple[Kind, ...] = ("host", "hip", "nvcc")
VARIABLES: dict[Kind, str] = {"host": "DSCORE_CXX", "hip": "DSCORE_HIPCC", "nvcc": "DSCORE_NVCC"}
_NAMES: dict[Kind, tuple[str, ...]] = {
    "host": ("g++", "clang++", "c++"), "hip": ("hipcc",), "nvcc": ("nvcc",)}
_HOMES: dict[Kind, tuple[str, ...]] = {
    "host": (),
    "hip": ("$ROCM_PATH/bin", "$DTK_ROOT/bin", "$DTK_ROOT/hip/bin", "$HIP_PATH/bin",
            "/opt/rocm/bin", "/opt/dtk/bin", "/opt/dtk/hip/bin"),
    "nvcc": ("$CUDA_HOME/bin", "$CUDA_PATH/bin", "/usr/local/cuda/bin"),
}
_FIXES: dict[Kind, str] = {
    "host": "install g++ (Debian's package g++) or set DSCORE_CXX",
    "hip": "install Debian's hipcc, ROCm or Hygon's DTK, or set DSCORE_HIPCC",
    "nvcc": "install the CUDA toolkit or set DSCORE_NVCC",
}
# Of each compiler of GPUs: the vendor, and how the names of its architectures begin.
_GPUS: dict[Kind, tuple[str, str]] = {"hip": ("amd", "gfx"), "nvcc": ("nvidia", "sm_")}
_PROBE_SECONDS = 60


@dataclass(frozen=True)
class Compiler:
    """A compiler of this machine. Finding one starts nothing; its version is asked when needed."""

    kind: Kind
    path: str

    def __str__(self) -> str:
        try:
            return f"{self.path} ({self.version})"
        except UnavailableError:
            return self.path

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


def find_compiler(kind: Kind, explicit: str | os.PathLike[str] | None = None) -> Compiler:
    """Compiler of *kind*: *explicit*, else the environment's, a toolkit's, or PATH's.

    Raises UnavailableError where there is none, or where the one that was named cannot be run.
    """
    require_one_of(kind, "kind of compiler", KINDS)
    path = _locate(kind, explicit)
    if path is None:
        searched = ", ".join([VARIABLES[kind], *_HOMES[kind], "PATH"])
        raise UnavailableError(f"no {' or '.join(_NAMES[kind])} found (looked at {searched}); "
                               f"{_FIXES[kind]}")
    return Compiler(kind, path)


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


def architectures(compiler: Compiler) -> tuple[str, ...]:
    """Architectures that nvcc lists as accepted; none for compilers that have no such list."""
    if compiler.kind != "nvcc":
        return ()
    listed = _ask(compiler.kind, compiler.path, "--list-gpu-code")
    return tuple(sorted(re.findall(r"^sm_\w+$", listed.stdout, re.MULTILINE),
                        key=lambda name: (len(name), name)))


def _locate(kind: Kind, explicit: str | os.PathLike[str] | None) -> str | None:
    if explicit is not None:
        return _named(os.fspath(explicit), "the compiler asked for")
    if os.environ.get(VARIABLES[kind]):
        return _named(os.environ[VARIABLES[kind]], VARIABLES[kind])
    for folder in _homes(kind):
        for name in _NAMES[kind]:
            if _runnable(Path(folder, name)):
                return os.path.join(folder, name)
    path = next(filter(None, map(shutil.which, _NAMES[kind])), None)
    return None if path is None else os.path.abspath(path)


def _homes(kind: Kind) -> Iterator[str]:
    """Folders of the toolkits, without those whose variable is unset or empty."""
    for folder in map(os.path.expandvars, _HOMES[kind]):
        if not folder.startswith("$") and folder not in ("/bin", "/hip/bin"):
            yield folder


def _named(name: str, origin: str) -> str:
    """Path of the compiler that the user named in *origin*; UnavailableError if it cannot be run.
    """
    path = shutil.which(name) if os.sep not in name else os.path.abspath(os.path.expanduser(name))
    if path is None:
        raise UnavailableError(f"{origin} is {name!r}, which is not on PATH")
    if not _runnable(Path(path)):
        state = "is not an executable file" if os.path.exists(path) else "does not exist"
        raise UnavailableError(f"{origin} is {path}, which {state}")
    return path


def _runnable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


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
