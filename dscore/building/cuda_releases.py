"""Releases of CUDA: of nvcc, the driver and the installed PyTorch, and which go together.

A library of kernels holds the runtime of its nvcc. The driver runs it when the driver's CUDA is of
the same major release or a later one, whatever the minor release: its kernels are machine code for
one architecture, so that nothing is left for the driver to compile
(https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html).
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
from contextlib import suppress
from pathlib import Path

from dscore.core.once import once

Release = tuple[int, int]
# Since CUDA 13 wheels hold nvcc itself; those of CUDA 12 hold ptxas alone.
FIRST_IN_WHEELS = 13


def refusal(release: Release | None) -> str | None:
    """Reason why this machine's driver does not run what nvcc of *release* builds; None if it does.

    Without a driver, or where the release is not known, nothing is refused.
    """
    driver = driver_release()
    if driver is None or release is None or release[0] <= driver[0]:
        return None
    return (f"CUDA {text(release)} is newer than this machine's driver admits, which is CUDA "
            f"{driver[0]} ({text(driver)})")


def install_line() -> str:
    """What a user types for an nvcc that PyTorch and the driver here go with.

    >>> "install" in install_line()
    True
    """
    driver, torch = driver_release(), torch_release()
    if driver is not None and driver[0] < FIRST_IN_WHEELS:
        return (f"install the toolkit of CUDA {driver[0]}, or a driver of version 580 or later "
                "and dscore[cuda]")
    fitting = torch if torch is not None and refusal(torch) is None else driver
    if fitting is None or fitting[0] < FIRST_IN_WHEELS:
        return "pip install 'dscore[cuda]'"
    return f"pip install 'dscore[cuda]' 'cuda-toolkit=={text(fitting)}.*'"


def text(release: Release) -> str:
    """A release as people write it.

    >>> text((13, 0))
    '13.0'
    """
    return f"{release[0]}.{release[1]}"


def header_release(nvcc: str) -> Release | None:
    """Release of the headers beside an nvcc; None where there are none. nvcc is not started."""
    header = Path(os.path.realpath(nvcc)).parent.parent / "include" / "cuda.h"
    with suppress(OSError), header.open(errors="replace") as file:
        found = re.search(r"#define CUDA_VERSION (\d+)", file.read(1 << 17))
        return None if found is None else _decoded(int(found[1]))
    return None


def version_release(version: str) -> Release | None:
    """Release in what nvcc says of its version.

    >>> version_release("Cuda compilation tools, release 13.0, V13.0.88")
    (13, 0)
    """
    found = re.search(r"release (\d+)\.(\d+)", version)
    return None if found is None else (int(found[1]), int(found[2]))


@once
def driver_release() -> Release | None:
    """Newest release of CUDA that the driver here knows; None without a driver."""
    number = ctypes.c_int()
    try:
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return None
    return None if failed or not number.value else _decoded(number.value)


def torch_release() -> Release | None:
    """Release of CUDA that the installed PyTorch was built for; PyTorch is not imported."""
    for folder in package_folders("torch"):
        with suppress(OSError, UnicodeDecodeError):
            version = Path(folder, "version.py").read_text()
            found = re.search(r"^cuda\b.*= *'(\d+)\.(\d+)", version, re.MULTILINE)
            return None if found is None else (int(found[1]), int(found[2]))
    return None


def package_folders(name: str) -> list[str]:
    """Folders of an installed package, which is not imported; none where there is none."""
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(name)
        return [*(spec.submodule_search_locations or ())] if spec is not None else []
    return []


def _decoded(number: int) -> Release:
    """Release of CUDA's own number for it, as 13 020 for 13.2."""
    return number // 1000, number % 1000 // 10
