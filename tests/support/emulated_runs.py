"""Plans on the emulated device, and on copies of the kernel sources with a fault in them."""

import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
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
    """The result of a plan on random data; of several one after the other, in one array."""
    outs = bound.blank(plan.problem)
    backend.compile(plan)(*bound.sample(plan.problem, seed), *outs)
    return outs[0] if len(outs) == 1 else np.concatenate(
        [one.astype(np.float64).ravel() for one in outs])


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


def unoptimised(copy):
    """The emulated device on the sources *copy*, which the compiler takes half as long for.

    The sanitizers' runs, which find nothing, show that sound sources are right so, too.
    """
    backend = EmulatedBackend(include=copy)
    backend.target = replace(backend.target, flags=(*backend.target.flags, "-O0"))
    return backend


def reports_of(plan, copy, monkeypatch, words=None):
    """What is said of *plan* on the sources *copy*, for each order of lanes.

    Of some random data the first that show a fault: a zero point of 0 may hide it. The orders after
    the first in which *words* are said are left out.
    """
    for seed in range(4):
        reports = _reports_of(plan, unoptimised(copy), seed, monkeypatch, words)
        if not all(text.startswith("right") for text in reports.values()):
            break
    return reports


def _reports_of(plan, backend, seed, monkeypatch, words):
    reports = {}
    for order in ORDERS:
        monkeypatch.setenv("DSCORE_LANE_ORDER", order)
        try:
            reports[order] = str(check_plan(backend, plan, seed))
        except DscoreError as failed:
            reports[order] = str(failed)
        if words and words in reports[order]:
            break
    return reports


def require_caught(folder, monkeypatch, plan, name, right, wrong, words):
    """*words* are said of *plan* in some order of lanes, with *wrong* for *right* in the source
    file *name*."""
    reports = reports_of(plan, altered(folder, name, right, wrong), monkeypatch, words)
    assert any(words in text for text in reports.values()), reports


def require_right(plans, monkeypatch):
    """Without a fault nothing is said of *plans*, in any order of lanes."""
    backend = EmulatedBackend()
    backend.prepare(plans)
    for order in ORDERS:
        monkeypatch.setenv("DSCORE_LANE_ORDER", order)
        assert all(check_plan(backend, plan, 0).ok for plan in plans)


# Arrays lie between fences that the address sanitizer knows, so that it sees what reads or writes
# outside of them, whatever the heap holds there.
SANITIZED = '''
import ctypes
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from dscore.backends.emulated import EmulatedBackend, EmulatedKernel
from dscore.ops import split

FENCE, ALIGNMENT = 4096, 64
# Compilers are started without the sanitizers' runtimes, which would watch each of their accesses
# to the heap.
os.environ.pop("LD_PRELOAD")

def mark(what, memory, first, end):
    """Have the sanitizer "poison" or "unpoison" some bytes of an array of bytes."""
    getattr(ctypes.CDLL(None), f"__asan_{{what}}_memory_region")(
        ctypes.c_void_p(memory.ctypes.data + first), ctypes.c_size_t(end - first))

def fenced(array):
    """A copy, and the bytes that it lies amid."""
    memory = np.empty(array.nbytes + 2 * FENCE + ALIGNMENT, np.uint8)
    first = -(-(memory.ctypes.data + FENCE) // ALIGNMENT) * ALIGNMENT - memory.ctypes.data
    end = first + array.nbytes
    copy = memory[first:end].view(array.dtype).reshape(array.shape)
    copy[...] = array
    mark("poison", memory, 0, first)
    mark("poison", memory, end, memory.size)
    return copy, memory

class FencedKernel(EmulatedKernel):
    def __call__(self, *arrays):
        fences = {{at: fenced(array) for at, array in enumerate(arrays) if array is not None}}
        try:
            super().__call__(*(fences[at][0] if at in fences else None
                               for at in range(len(arrays))))
        finally:
            for _, memory in fences.values():
                mark("unpoison", memory, 0, memory.size)
        inputs, results = split(self.plan.problem, arrays)
        for at, result in enumerate(results, len(inputs)):
            result[...] = fences[at][0]

class Sanitized(EmulatedBackend):
    def __init__(self):
        super().__init__(sanitize=True, include={include})
        # A thread's variables, which are looked up at each access to LDS, lie where no function
        # is to be called for: the sanitizer would stand before that call, half of a run's time.
        self.target = replace(self.target, flags=(*self.target.flags, "-ftls-model=initial-exec"))

    def compile(self, plan):
        return FencedKernel(super().compile(plan)._loaded)
'''


@cache
def runtime_of(sanitizer):
    """The sanitizer's runtime, which must be loaded before Python itself."""
    path = subprocess.run(["g++", f"-print-file-name=lib{sanitizer}.so"], capture_output=True,
                           text=True, check=False).stdout.strip()
    return path if os.path.isabs(path) else None


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


def _sanitized(folder, arguments, include, stdin=b""):
    asan, ubsan = runtime_of("asan"), runtime_of("ubsan")
    if not (asan and ubsan):
        pytest.skip("g++ has no runtime of the address and undefined-behaviour sanitizers")
    (folder / "sanitized.py").write_text(SANITIZED.format(
        include=f"Path({str(include)!r})" if include else None))
    env = {**os.environ, "PYTHONPATH": str(folder), "LD_PRELOAD": f"{asan} {ubsan}",
           "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1",
           # Room for such variables of several libraries.
           "GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=65536"}
    done = subprocess.run([sys.executable, *arguments], input=stdin, capture_output=True,
                          check=False, env=env, timeout=300)
    return SimpleNamespace(returncode=done.returncode, stdout=done.stdout.decode(),
                           stderr=done.stderr.decode())
