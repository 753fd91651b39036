"""Hypothesis profiles, and arrays and plans that several rooms of tests share."""

import gc
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

# Before NumPy and PyTorch are loaded, and for the Pythons that tests start. The products of tests
# are small: threads that look out for the next one take the cores from compilers and other workers.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from clang_of_hipcc import clang_of_hipcc
from hypothesis import HealthCheck, settings
from profiles import DEEP

from dscore import api
from dscore.building import amd_compilers, toolchain
from dscore.measuring import floors

_COMMON = {"deadline": None, "print_blob": True,
           "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much]}
settings.register_profile("fast", max_examples=20, **_COMMON)
settings.register_profile("ci", max_examples=100, derandomize=True, **_COMMON)
settings.register_profile("deep", max_examples=5000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

pytest_plugins = ["cli_calls"]
_MEMORY, _ROOM_BYTES = Path("/dev/shm"), 4 << 30  # a run keeps 0.5 GB, and pytest three runs
# Where a test names no device, the same one is assumed on machines with a GPU; before any test is
# read, since some make plans at once.
api.gpu_here = lambda: None


def pytest_configure(config):
    """Marks are told.

    Temporary folders lie in memory where there is room for them and what is there can be loaded
    as a library: each of some thousand entries of caches is waited for until a disk has it.
    """
    config.addinivalue_line("markers", "deep: runs with HYPOTHESIS_PROFILE=deep alone")
    with suppress(OSError, AttributeError):  # no such folder; no such call on this system
        memory = os.statvfs(_MEMORY)
        if (memory.f_bavail * memory.f_frsize >= _ROOM_BYTES and os.access(_MEMORY, os.W_OK)
                and not memory.f_flag & os.ST_NOEXEC):
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


def pytest_collection_modifyitems(config, items):
    """What is marked deep runs in the deep profile alone."""
    left_out = [] if DEEP else [item for item in items if item.get_closest_marker("deep")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("deep")]


def pytest_collection_finish():
    """What has been read stays to the end: Python need not look for garbage in it, time after time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 10, 50)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A worker that is done takes tests from another: those that take long stand together."""
    if config.getvalue("dist") != "load":  # which -n means
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory, worker_id):
    """No test reads what its user has built or tuned, and all workers build a kernel once."""
    base = tmp_path_factory.getbasetemp()
    run = base if worker_id == "master" else base.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DSCORE_CACHE_DIR", str(run / "cache"))
        # Where that cannot be written, dscore takes a folder below the temporary one.
        temporary = run / "tmp"
        temporary.mkdir(exist_ok=True)
        patch.setenv("TMPDIR", str(temporary))
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _cores_of_this_worker():
    """Compilers of a worker take its share of the cores. One unit more for a core that the other
    workers keep busy is the headers compiled once more, and a link.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    with toolchain.compilers_at_most(max(1, toolchain.cores() // workers)):
        yield


@pytest.fixture(scope="module", autouse=True)
def _clang_for_machine_code(request):
    """Machine code that is interpreted is made by the clang that hipcc starts, which is spared
    ROCm's headers, a second of each unit. The kernels are the same (test_amd_compilers.py).
    """
    interpreted = (request.path.parent.name == "conformance"
                   or request.path.name.startswith("test_machine_code"))
    clang = clang_of_hipcc() if interpreted else None
    with pytest.MonkeyPatch.context() as patch:
        if clang is not None:
            patch.setenv("DSCORE_HIPCC", clang)
        yield


@pytest.fixture(scope="session", autouse=True)
def _compilers_asked_once():
    """Whether a compiler knows an architecture is asked once for each environment. pytest names the
    test in a variable, and tests choose dscore's own; compilers read neither.
    """
    ask = amd_compilers.refusal
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(amd_compilers, "refusal", lambda path, architecture, variables: ask(
            path, architecture, {name: value for name, value in variables.items()
                                 if not name.startswith(("PYTEST_", "DSCORE_"))}))
        yield


@pytest.fixture(scope="session", autouse=True)
def _small_products_for_floors():
    """The host's own floors, which commands measure each time and no test looks at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(floors, "_HOST_COPY_BYTES", 1 << 20)
        patch.setattr(floors, "_HOST_PRODUCT_SIZE", 128)
        yield


@pytest.fixture(autouse=True)
def _screen_of_no_terminal(monkeypatch):
    """Each test prints as wide as into a pipe, and not as quietly as a command before it.

    Workers of pytest-xdist are told the terminal's width.
    """
    monkeypatch.delenv("COLUMNS", raising=False)
    screen = sys.modules.get("dscore.cli.show.screen")
    if screen is not None:
        screen.begin()
