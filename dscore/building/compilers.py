"""Which compilers this machine has, where they were looked for, and what each says it is."""

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
    """A compiler of this machine."""

    kind: Kind
    path: str
    version: str

    def __str__(self) -> str:
        return f"{self.path} ({self.version})"


def find_compiler(kind: Kind, explicit: str | os.PathLike[str] | None = None) -> Compiler:
    """The compiler of *kind*: *explicit*, else the environment's, a toolkit's, or PATH's.

    Raises UnavailableError where there is none, or where the one that was named cannot be run.
    """
    require_one_of(kind, "kind of compiler", KINDS)
    path = _locate(kind, explicit)
    if path is None:
        raise UnavailableError(f"no {' or '.join(_NAMES[kind])} found (looked at "
                               f"{', '.join(_places(kind))}); {_FIXES[kind]}")
    return Compiler(kind, path, _version(kind, path, os.stat(path).st_mtime_ns))


def compiler_kind(target: str) -> Kind:
    """The compiler for an architecture or all GPUs of a vendor; "host" for any other target.

    >>> compiler_kind("sm_90"), compiler_kind("amd"), compiler_kind("emulated")
    ('nvcc', 'hip', 'host')
    """
    return next((kind for kind, (vendor, prefix) in _GPUS.items()
                 if target == vendor or target.startswith(prefix)), "host")


def missing_compiler(kind: Kind) -> str | None:
    """Why this machine has no compiler of *kind*, and the fix; None if it has one."""
    try:
        find_compiler(kind)
    except UnavailableError as missing:
        return str(missing)
    return None


def environment(kind: Kind) -> dict[str, str]:
    """This process's environment as a compiler of *kind* needs it."""
    made = dict(os.environ)
    if kind == "hip":
        # With nvcc on PATH, hipcc silently compiles for NVIDIA unless it is told not to.
        made["HIP_PLATFORM"] = "amd"
    return made


def architectures(compiler: Compiler) -> tuple[str, ...]:
    """The architectures that nvcc says it accepts; empty for those that do not say."""
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
    found = next(filter(None, map(shutil.which, _NAMES[kind])), None)
    return None if found is None else os.path.abspath(found)


def _homes(kind: Kind) -> Iterator[str]:
    """The toolkits' folders, without those whose variable is unset or empty."""
    for folder in map(os.path.expandvars, _HOMES[kind]):
        if not folder.startswith("$") and folder not in ("/bin", "/hip/bin"):
            yield folder


def _places(kind: Kind) -> list[str]:
    return [VARIABLES[kind], *_HOMES[kind], "PATH"]


def _named(path: str, by: str) -> str:
    """The path of a compiler that somebody named; it is used, or it is an error."""
    found = shutil.which(path) if os.sep not in path else os.path.abspath(os.path.expanduser(path))
    if found is None:
        raise UnavailableError(f"{by} is {path!r}, which is not on PATH")
    if not _runnable(Path(found)):
        state = "is not an executable file" if os.path.exists(found) else "does not exist"
        raise UnavailableError(f"{by} is {found}, which {state}")
    return found


def _runnable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


@lru_cache(maxsize=32)
def _version(kind: Kind, path: str, changed_ns: int) -> str:
    """The lines of ``--version`` that hold a version; *changed_ns* makes it ask again."""
    done = _ask(kind, path, "--version")
    said = done.stdout.strip() or done.stderr.strip()
    if done.returncode or not said:
        raise UnavailableError(f"{path} --version failed with status {done.returncode}: "
                               f"{said[-500:] or 'it said nothing'}")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"\d+\.\d+", line) and not re.match(
        r"(InstalledDir|Target|Configuration file|Copyright|Built on)\b", line)]
    return ", ".join(telling[:2] or lines[:1])


def _ask(kind: Kind, path: str, option: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run([path, option], capture_output=True, text=True, errors="replace",
                              env=environment(kind), stdin=subprocess.DEVNULL, check=False,
                              timeout=_PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as failed:
        raise UnavailableError(f"{path} {option} could not be run: {failed}") from failed
