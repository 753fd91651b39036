"""Libraries of the cache as they are loaded: each for itself, and only as it was hashed."""

import ctypes
import subprocess
import sys

import pytest

from dscore.building.compilers import missing_compiler
from dscore.building.library import Library
from dscore.building.toolchain import Unit, build_library, target
from dscore.cache.files import loadable
from dscore.core.errors import CompileError

ABSENT = missing_compiler("host")


@pytest.mark.skipif(ABSENT is not None, reason=str(ABSENT))
def test_the_loader_gets_the_file_that_was_hashed_and_no_other_one(tmp_path, monkeypatch):
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "include").mkdir()
    answers = []
    for number in (1, 2):
        unit = Unit("u", 'extern "C" [[gnu::visibility("default")]] '
                         f"int answer() {{ return {number}; }}\n")
        built = build_library([unit], target("emulated"), include=tmp_path / "include")
        with loadable(built.path, built.sha256) as name:
            answers.append(ctypes.CDLL(name).answer())
    # The loader hands out the first library again where it is given the same name.
    assert answers == [1, 2]
    built.path.write_bytes(built.path.read_bytes() + b"x")
    with pytest.raises(CompileError, match="not as it was written"):
        Library(built.path, built.sha256)


# As at the end of Python, where the loader's handles are closed and garbage is collected once more.
ENDING = """
import gc
from dscore import plan_for
from dscore.backends.emulated import EmulatedBackend
from dscore.building.library import _ffi

loaded = EmulatedBackend().loaded_kernel(plan_for("n1c8h5w5_o8k3p1g8"))
start = loaded._library.start([_ffi().new("dscore_call *")])
_ffi().dlclose(loaded._library._lib)
gc.collect()
print(start.__name__)
"""


@pytest.mark.deep
@pytest.mark.skipif(ABSENT is not None, reason=str(ABSENT))
def test_a_function_of_a_library_may_outlive_its_handle():
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stdout) == (0, "start\n"), done.stderr
