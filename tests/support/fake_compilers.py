"""Fake compilers, and a machine that has none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dscore.building import compiler_places, cuda_releases

VARIABLES = ("DSCORE_CXX", "DSCORE_HIPCC", "DSCORE_NVCC", "ROCM_PATH", "DTK_ROOT", "HIP_PATH",
             "CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS",
             "NVCC_APPEND_FLAGS")


def empty_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with an empty PATH (but for /bin/sh, by its path), no toolkit and no driver.

    PATH is the folder path in *tmp_path*, Python's packages are in packages.
    """
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    homes = {kind: tuple(home for home in found if home.startswith("$"))
             for kind, found in compiler_places._HOMES.items()}
    monkeypatch.setattr(compiler_places, "_HOMES", homes)
    for module in (compiler_places, cuda_releases):
        monkeypatch.setattr(module, "package_folders",
                            lambda name: [str(tmp_path / "packages" / name)])
    monkeypatch.setattr(cuda_releases, "driver_release", lambda: None)


def fake(path: Path, says: str) -> str:
    """A compiler whose whole art is to tell its version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nprintf '%s\\n' '{says}'\n")
    path.chmod(0o755)
    return str(path)


def wheel(tmp_path: Path, cuda: int, named: str = "cu13") -> str:
    """An nvcc of NVIDIA's wheels, with the header that states its release of CUDA."""
    root = tmp_path / "packages" / "nvidia" / named
    (root / "include").mkdir(parents=True, exist_ok=True)
    (root / "include" / "cuda.h").write_text(f"/* */\n#define CUDA_VERSION {cuda}\n")
    return fake(root / "bin" / "nvcc", "wheel")


def binary(path: Path, contents: bytes = b"", changed: int = 1) -> str:
    """A compiler that is no script, and that nothing can run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x7fELF" + contents)
    path.chmod(0o755)
    os.utime(path, (changed, changed))
    return str(path)
