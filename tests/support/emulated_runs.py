"""Plans on the emulated device, and on copies of the kernel sources with a fault in them."""

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dscore.backends.emulated import EmulatedBackend
from dscore.backends.reference.backend import ReferenceBackend
from dscore.building.library import sources
from dscore.checking import bound
from dscore.checking.check import check_plan
from dscore.core.errors import DscoreError

ORDERS = ("forward", "reverse", "random")


def result(backend, plan, seed=0):
    x, w, bias = bound.sample(plan.problem, seed)
    out = np.full(plan.problem.y_shape, np.nan, np.float32)
    backend.compile(plan)(x, w, bias, out)
    return out


def require_bit_equal(plans, sizes, monkeypatch):
    """The emulated device, in every order of lanes, gives the reference's very bits."""
    emulated = EmulatedBackend(sizes=sizes)
    emulated.prepare(plans)
    for plan in plans:
        wanted = result(ReferenceBackend(), plan)
        for order in ORDERS:
            monkeypatch.setenv("DSCORE_LANE_ORDER", order)
            assert np.array_equal(result(emulated, plan), wanted), f"{plan.name} {order}"


def altered(folder, name, right, wrong):
    """A copy of the kernel sources in *folder*, with *wrong* for *right* in the file *name*."""
    copy = Path(shutil.copytree(sources(), folder / "hip_src"))
    text = (copy / name).read_text()
    assert text.count(right) == 1, "the source to be altered has moved"
    (copy / name).write_text(text.replace(right, wrong))
    return copy


def said_of(plan, copy, monkeypatch):
    """What is said of *plan* on the sources *copy*, for each order of lanes."""
    said = {}
    for order in ORDERS:
        monkeypatch.setenv("DSCORE_LANE_ORDER", order)
        try:
            said[order] = str(check_plan(EmulatedBackend(include=copy), plan, 0))
        except DscoreError as failed:
            said[order] = str(failed)
    return said


SANITIZED = """
from pathlib import Path
from dscore.backends.emulated import EmulatedBackend

class Sanitized(EmulatedBackend):
    def __init__(self):
        super().__init__(sanitize=True, include={include})
"""


def runtime_of(sanitizer):
    """The sanitizer's runtime, which must be loaded before Python itself."""
    found = subprocess.run(["g++", f"-print-file-name=lib{sanitizer}.so"], capture_output=True,
                           text=True, check=False).stdout.strip()
    return found if os.path.isabs(found) else None


CHECKED = """
import pickle, sys
from dscore.checking.check import check_plan
from sanitized import Sanitized

plans, backend = pickle.loads(sys.stdin.buffer.read()), Sanitized()
backend.prepare(plans)
verdicts = [check_plan(backend, plan, 0) for plan in plans]
print(*verdicts, sep="\\n")
sys.exit(not all(verdict.ok for verdict in verdicts))
"""


def checked_under_sanitizers(folder, plans, include=None):
    """*plans* checked in one process."""
    return _sanitized(folder, ["-c", CHECKED], include, pickle.dumps(plans))


def sanitized(folder, *arguments, include=None):
    """The command line on the emulated device with sanitizers, from the sources *include*."""
    return _sanitized(folder, ["-m", "dscore.cli", *arguments, "--backend",
                               "sanitized:Sanitized"], include)


def require_silence(done):
    """The run ended well, and no sanitizer said anything."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert "runtime error" not in done.stderr
    assert "AddressSanitizer" not in done.stderr


def _sanitized(folder, arguments, include, given=b""):
    asan, ubsan = runtime_of("asan"), runtime_of("ubsan")
    if not (asan and ubsan):
        pytest.skip("g++ has no runtime of the address and undefined-behaviour sanitizers")
    (folder / "sanitized.py").write_text(SANITIZED.format(
        include=f"Path({str(include)!r})" if include else None))
    env = {**os.environ, "PYTHONPATH": str(folder), "LD_PRELOAD": f"{asan} {ubsan}",
           "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run([sys.executable, *arguments], input=given, capture_output=True,
                          check=False, env=env, timeout=300)
    return SimpleNamespace(returncode=done.returncode, stdout=done.stdout.decode(),
                           stderr=done.stderr.decode())
