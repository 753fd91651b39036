"""Fake compilers, and a machine that has none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dscore.building import compiler_places, cuda_releases

VARIABLES = ("DSCORE_CXX", "DSCORE_HIPCC", "DSCORE_NVCC", "ROCM_PATH", "DTK_ROOT", "HIP_PATH",
             "CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS",
             "NVCC_APPEND_FLAGS")

# Speaks as hipcc does of every kernel in its sources, and makes something.
_HIPCC = r"""#!/bin/sh
[ "$1" = --version ] && { echo "fake 1.0"; exit 0; }
while [ $# -gt 0 ]; do
  case "$1" in -o) out=$2; shift;; *.cpp) sources="$sources $1";; esac; shift
done
for n in $(sed -n 's/^struct \([a-z0-9_]*\) : .*/\1/p' $sources); do
  say() { echo "x.hpp:1:1: remark: $1 [-Rpass-analysis=kernel-resource-usage]"; }
  say "Function Name: _ZN6dscore5entryIN12_GLOBAL__N_1${#n}${n}EEEv11dscore_argsNT_5ShapeE"
  say "    VGPRs: VGPRS"
  case "$n" in *ONLY*) spilled=SPILLS scratch=SCRATCH;; *) spilled=0 scratch=0;; esac
  say "    ScratchSize [bytes/lane]: $scratch"
  say "    Occupancy [waves/SIMD]: 7"
  say "    VGPRs Spill: $spilled"
  say "    LDS Size [bytes/block]: LDS_BYTES"
done >&2
THEN
echo made > $out
"""


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


def fake_hipcc(path: Path, vgprs: int = 20, spills: int = 0, lds: int = 0, scratch: int = 0,
               then: str = "", only: str = "") -> Path:
    """A hipcc that reports these numbers of every kernel it is given.

    *spills* are of the kernels alone whose names hold *only*; *then* is done after the reports.
    """
    text = _HIPCC
    for name, value in (("VGPRS", vgprs), ("SPILLS", spills), ("LDS_BYTES", lds), ("THEN", then),
                        ("SCRATCH", scratch), ("ONLY", only)):
        text = text.replace(name, str(value))
    path.write_text(text)
    path.chmod(0o755)
    return path
