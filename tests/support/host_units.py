"""Pieces of kernel sources as host libraries, for tests of single functions."""

import ctypes
import shutil
import subprocess

import pytest

from dscore.building.headers import sources

needs_host = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


def host_library(folder, text, level="-O1"):
    """The library of the unit *text*, built in *folder* at that *level* of optimisation; any
    warning is an error."""
    (folder / "unit.cpp").write_text(text)
    subprocess.run(["g++", "-std=c++17", level, "-Wall", "-Wextra", "-Werror", "-fPIC",
                    "-shared", "-DDSCORE_HOST", f"-I{sources()}", "unit.cpp", "-o", "unit.so"],
                   cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "unit.so"))


def pointer(array):
    """The address of an array, as such a library takes it."""
    return ctypes.c_void_p(array.ctypes.data)
