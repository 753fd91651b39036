"""Libraries of the cache as they are loaded: each for itself, and only as it was hashed."""

import ctypes

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
