"""Compilers of AMD GPUs: ROCm's hipcc or a clang alone, and which architectures they build for.

A clang needs neither ROCm's headers nor its device libraries: hip_src/support/no_rocm.hpp declares
what kernels use of them. It does need lld and clang-offload-bundler, which it starts.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

# Code objects of version 4, as the compilers of ROCm 5 make them: later clangs would make version
# 5, which older runtimes do not know. Every function is part of its kernel, as hipcc has it: else
# some arrays of a thread, whose addresses functions are given, stay in scratch memory.
CLANG_FLAGS = ("-nogpuinc", "-nogpulib", "-no-hip-rt", "-Wno-unused-command-line-argument",
               "-DDSCORE_NO_ROCM", "-mcode-object-version=4",
               "-mllvm", "-amdgpu-early-inline-all=true", "-mllvm", "-amdgpu-function-calls=false")
UNKNOWN_ARCHITECTURE = re.compile(
    r".*(?:invalid target ID '|cannot find ROCm device library for |unsupported HIP gpu arch).*")
_PROBED = "gfx906"  # where any architecture will do
_PROBE = "#if __clang_major__ < 15\n#error clang 15 or later is needed\n#endif\n"
_PROBE_SECONDS = 60
# Those that every hipcc of ROCm 5 knows, for which it need not be asked.
_OF_EVERY_HIPCC = ("gfx900", "gfx906", "gfx908", "gfx90a", "gfx1030")


def is_clang(path: str) -> bool:
    """Whether a compiler of AMD GPUs is a clang alone, by its name.

    >>> is_clang("/usr/bin/clang++-19"), is_clang("/opt/rocm/bin/hipcc")
    (True, False)
    """
    return "clang" in os.path.basename(path)


def refusal(path: str, architecture: str, variables: Mapping[str, str]) -> str | None:
    """Reason why a compiler is not for *architecture* ("": for any); None if it is.

    The compiler is started for it, with these environment *variables*, once in a process.
    """
    if is_clang(path):
        return _probed(path, architecture or _PROBED, tuple(sorted(variables.items())))
    family = architecture.partition(":")[0]
    if not family or family in _OF_EVERY_HIPCC:
        return None
    return _probed(path, architecture, tuple(sorted(variables.items())))


@lru_cache(maxsize=64)
def _probed(path: str, architecture: str, variables: tuple[tuple[str, str], ...]) -> str | None:
    """What a compiler says against an empty unit; hipcc is only asked for its commands, as its
    headers take a second.
    """
    how = ("-c", *CLANG_FLAGS) if is_clang(path) else ("-c", "-###")
    with tempfile.TemporaryDirectory(prefix="dscore-probe-") as folder:
        Path(folder, "probe.hip").write_text(_PROBE)
        try:
            done = subprocess.run(
                [path, "-x", "hip", f"--offload-arch={architecture}", *how, "probe.hip"],
                cwd=folder, env=dict(variables) | {"TMPDIR": folder}, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, errors="replace", check=False,
                timeout=_PROBE_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as failed:
            return f"it could not be run: {failed}"
    if UNKNOWN_ARCHITECTURE.search(done.stderr):
        return f"it does not know {architecture}"
    if done.returncode == 0:
        return None
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    said = errors[0].partition("error:")[2] if errors else done.stderr[-200:]
    return f"it builds nothing for {architecture}: {said.strip() or 'it does not say why'}"
