"""Places where compilers are looked for, in the order of preference."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from dscore.building.cuda_releases import package_folders
from dscore.core.errors import UnavailableError

Kind = Literal["host", "hip", "nvcc"]
KINDS: tuple[Kind, ...] = ("host", "hip", "nvcc")
VARIABLES: dict[Kind, str] = {"host": "DSCORE_CXX", "hip": "DSCORE_HIPCC", "nvcc": "DSCORE_NVCC"}
NAMES: dict[Kind, tuple[str, ...]] = {
    "host": ("g++", "clang++", "c++"), "hip": ("hipcc",), "nvcc": ("nvcc",)}
_HOMES: dict[Kind, tuple[str, ...]] = {
    "host": (),
    "hip": ("$ROCM_PATH/bin", "$DTK_ROOT/bin", "$DTK_ROOT/hip/bin", "$HIP_PATH/bin",
            "/opt/rocm/bin", "/opt/dtk/bin", "/opt/dtk/hip/bin"),
    "nvcc": ("$CONDA_PREFIX/bin", "$CUDA_HOME/bin", "$CUDA_PATH/bin", "/usr/local/cuda/bin"),
}
WHEELS, USUAL = "this environment's wheels", "the usual folders"
# Where there is no hipcc, or none for an architecture: the first clang that builds for it.
CLANGS = ("clang++", *(f"clang++-{release}" for release in range(30, 14, -1)))


def origins(kind: Kind) -> list[str]:
    """Names of the places, first those that a user sets.

    >>> origins("host")
    ['DSCORE_CXX', 'PATH']
    """
    return [VARIABLES[kind], *[WHEELS] * (kind == "nvcc"), *_HOMES[kind], "PATH"]


def places(kind: Kind) -> Iterator[tuple[str, str]]:
    """Path of each compiler, and who named it or where it was found."""
    variable = VARIABLES[kind]
    if os.environ.get(variable):
        yield named(os.environ[variable], variable), variable
    if kind == "nvcc":
        yield from ((path, WHEELS) for path in _in_wheels())
    for home, folder in _homes(kind):
        for path in (os.path.join(folder, name) for name in NAMES[kind]):
            if _runnable(Path(path)):
                yield path, home if home.startswith("$") else USUAL
    names = (*NAMES[kind], *(CLANGS if kind == "hip" else ()))
    for path in filter(None, map(shutil.which, names)):
        yield os.path.abspath(path), "PATH"


def _in_wheels() -> Iterator[str]:
    """Every nvcc of this Python's packages; wheels of CUDA 13 install it as nvidia/cu13/bin/nvcc.

    The package cuda-pathfinder does not serve: where no wheel has an nvcc, it starts a Python to
    ask the loader for one (0.2 s in each process), and it looks at CUDA_HOME in the same call.
    """
    for folder in package_folders("nvidia"):
        for path in sorted(Path(folder).glob("cu[0-9]*/bin/nvcc"), reverse=True):
            if _runnable(path):
                yield str(path)


def _homes(kind: Kind) -> Iterator[tuple[str, str]]:
    """Folders of the toolkits, as they are written above and as they are called here.

    Those whose variable is unset or empty are left out.
    """
    for home in _HOMES[kind]:
        folder = os.path.expandvars(home)
        if not folder.startswith("$") and folder not in ("/bin", "/hip/bin"):
            yield home, folder


def named(name: str, origin: str) -> str:
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
    # Path.is_file raises for a name that is too long.
    return os.path.isfile(path) and os.access(path, os.X_OK)
