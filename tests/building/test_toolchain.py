"""Building libraries: with fake compilers what goes wrong, with a real one what must work."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from unittest.mock import Mock

import pytest
from heard_signals import hear

from dscore.building import compilers
from dscore.building.toolchain import Unit, build_library, target
from dscore.cache import folders, store
from dscore.core.errors import CompileError, SpecError, UnavailableError

EMULATED = target("emulated")
needs_host = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")),
                                reason="no g++ or clang++ on this machine")

# Copies its sources to what it makes, and writes its arguments down.
FAKE = """#!/bin/sh
[ "$1" = --version ] && { echo "fake 1.0"; exit 0; }
echo "$@" >> "HERE/calls"
out=; sources=
while [ $# -gt 0 ]; do
  case "$1" in -o) out=$2; shift;; *.cpp|*.o) sources="$sources $1";; esac; shift
done
"""


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    """A cache, a temporary folder with a space in its name, and headers, of the test's own."""
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "the cache"))
    (tmp_path / "a tmp").mkdir()
    (tmp_path / "inc").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "a tmp"))


@pytest.fixture
def include(tmp_path):
    (tmp_path / "inc/deep").mkdir()
    (tmp_path / "inc/deep/three.hpp").write_text("#pragma once\nconst int three = 3;\n")
    return tmp_path / "inc"


def fake(tmp_path, then="cat $sources > $out"):
    path = tmp_path / "fake compiler"
    path.write_text(FAKE.replace("HERE", str(tmp_path)) + then + "\n")
    path.chmod(0o755)
    return compilers.find_compiler("host", path)


def calls(tmp_path):
    path = tmp_path / "calls"
    return path.read_text().splitlines() if path.exists() else []


def left_behind(tmp_path):
    return list((tmp_path / "a tmp").iterdir())


def until(condition):
    """Whether *condition* comes true in time."""
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def gone(pid):
    """Whether the process has ended, be it that nobody has waited for it yet."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_build_is_made_once_and_then_found(tmp_path, include):
    compiler, steps = fake(tmp_path), []
    units = [Unit(f"n1c64/h{n} x", f"text {n}\n") for n in range(3)]
    built = build_library(units, EMULATED, include=include, compiler=compiler,
                          progress=lambda *step: steps.append(step))
    assert not built.from_cache
    assert built.path.read_text() == "text 0\ntext 1\ntext 2\n"
    assert [(done, total) for done, total, _ in steps] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert {name for *_, name in steps[1:]} == {unit.name for unit in units}
    assert len(calls(tmp_path)) == 4, "three units and the link"
    assert all(f"{EMULATED.flags[-1]} -I include" in call for call in calls(tmp_path))
    again = build_library(units, EMULATED, include=include, compiler=compiler)
    assert (again.path, again.from_cache, again.log) == (built.path, True, "")
    assert len(calls(tmp_path)) == 4
    [meta] = [entry.meta for entry in store.Store("libraries").entries()]
    assert (meta["target"], meta["compiler_version"]) == ("emulated", "fake 1.0")
    assert meta["units"] == [unit.name for unit in units]
    assert left_behind(tmp_path) == []


def test_one_unit_is_compiled_and_linked_by_one_command(tmp_path, include):
    build_library([Unit("u", "x")], EMULATED, include=include, compiler=fake(tmp_path))
    assert [call.split()[-4:] for call in calls(tmp_path)] == [
        ["0_u.cpp", "-shared", "-o", "library.so"]]


def test_whatever_could_change_the_library_makes_another_one(tmp_path, include, monkeypatch):
    compiler = fake(tmp_path)
    first = dict(units=[Unit("u", "x")], target=EMULATED, include=include, compiler=compiler)
    paths = [build_library(**first).path]

    def differs(**change):
        paths.append(build_library(**(first | change)).path)

    differs(units=[Unit("u", "y")])
    differs(units=[Unit("u", "x"), Unit("v", "x")])
    differs(target=target("emulated", sanitize=True))
    (tmp_path / "another").mkdir()
    differs(compiler=fake(tmp_path / "another"))  # of the same version, at another path
    differs(compiler=fake(tmp_path, "cat $sources $sources > $out"))  # at the same path
    fake(tmp_path)
    differs(extra_key=["x"])
    (include / "deep" / "three.hpp").write_text("const int three = 4;\n")
    differs()
    (include / "more.h").write_text("")
    differs()
    monkeypatch.setenv("CPATH", "/somewhere")
    differs()
    assert len({path.name.partition("-")[0] for path in paths}) == len(paths)
    (include / "__init__.py").write_text("")
    (include / "__pycache__").mkdir()
    (include / "__pycache__" / "__init__.pyc").write_text("")
    assert build_library(**first).from_cache, "what Python keeps there is nothing to a compiler"


def test_units_are_compiled_side_by_side_but_no_more_than_asked(tmp_path, include):
    compiler = fake(tmp_path, f"echo + >> {tmp_path}/level; sleep 0.1; echo - >> {tmp_path}/level; "
                    "cat $sources > $out")
    build_library([Unit(str(n), str(n)) for n in range(6)], EMULATED, include=include,
                  compiler=compiler, jobs=3)
    level, most = 0, 0
    for sign in (tmp_path / "level").read_text().split():
        level += 1 if sign == "+" else -1
        most = max(most, level)
    assert 1 < most <= 3


@pytest.mark.parametrize("lines", [3, 1000])
def test_a_failure_shows_the_command_the_status_and_the_log(lines, tmp_path, include):
    compiler = fake(tmp_path, f"seq -f 'error %g.' {lines} >&2; exit 3")
    with pytest.raises(CompileError, match="status 3 on u for emulated") as raised:
        build_library([Unit("u", "x")], EMULATED, include=include, compiler=compiler)
    message = str(raised.value)
    assert "-std=c++17 -O1 -fPIC -DDSCORE_HOST" in message
    assert "error 1." in message
    assert f"error {lines}." in message
    assert len(message.splitlines()) < 210
    assert "error 500." not in message
    if lines == 1000:
        assert "[... 800 lines ...]" in message
        with open(message.rpartition("the whole log is in ")[2]) as log:
            assert "error 500." in log.read()
    assert left_behind(tmp_path) == []
    assert store.Store("libraries").entries() == ()


def test_one_failing_unit_ends_the_others(tmp_path, include):
    pids = tmp_path / "pids"
    compiler = fake(tmp_path, f'case "$sources" in *bad*) until [ -s "{pids}" ]; do sleep 0.01; '
                              f'done; exit 1;; esac; echo $$ >> "{pids}"; sleep 600')
    start = time.monotonic()
    with pytest.raises(CompileError, match="on bad"):
        build_library([Unit(name, "") for name in ("a", "b", "bad", "c", "d")], EMULATED,
                      include=include, compiler=compiler, jobs=3)
    assert time.monotonic() - start < 300
    assert all(map(gone, pids.read_text().split()))
    assert left_behind(tmp_path) == []


def test_the_time_limit_ends_a_compiler_and_its_children(tmp_path, include):
    compiler = fake(tmp_path, f'sleep 600 & echo $! > "{tmp_path}/child"; wait')
    with pytest.raises(CompileError, match=r"limit of 2 seconds"):
        build_library([Unit("u", "x")], EMULATED, include=include, compiler=compiler,
                      timeout_seconds=2)
    assert until(lambda: gone((tmp_path / "child").read_text().strip()))
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("then", ["exit 0", "rm -f $0; exit 0"])
def test_a_compiler_that_makes_nothing_or_cannot_be_started_is_an_error(then, tmp_path, include):
    compiler = fake(tmp_path, then)
    for _ in range(2):
        with pytest.raises(CompileError, match=r"made no library|not found"):
            build_library([Unit("u", "x")], EMULATED, include=include, compiler=compiler)


BUILD = """
import sys
from pathlib import Path
from dscore.building import compilers, toolchain
compiler = compilers.find_compiler("host", sys.argv[1])
units = [toolchain.Unit(name, name) for name in "abc"]
print(toolchain.build_library(units, toolchain.target("emulated"), include=Path(sys.argv[2]),
                              compiler=compiler).path.read_text())
"""


def start_build(compiler, include, tmp_path):
    pipe, env = subprocess.PIPE, os.environ | {"TMPDIR": str(tmp_path / "a tmp")}
    return subprocess.Popen([sys.executable, "-c", BUILD, compiler.path, include], env=env,
                            stdout=pipe, stderr=pipe, text=True, preexec_fn=hear)  # noqa: PLW1509


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_an_interrupted_build_leaves_nothing_running_and_nothing_behind(name, tmp_path, include):
    compiler = fake(tmp_path, f'sleep 600 & echo $$ $! >> "{tmp_path}/pids"; wait')
    build = start_build(compiler, include, tmp_path)
    assert until((tmp_path / "pids").exists)
    build.send_signal(getattr(signal, name))
    try:
        _, errors = build.communicate(timeout=60)
    finally:
        build.kill()
    assert ("KeyboardInterrupt" in errors) == (name == "SIGINT")
    pids = (tmp_path / "pids").read_text().split()
    assert until(lambda: all(map(gone, pids)))
    assert until(lambda: left_behind(tmp_path) == [])


def test_processes_that_build_the_same_library_at_once_all_get_it(tmp_path, include):
    compiler = fake(tmp_path, "sleep 0.2; (cat $sources; echo $$) > $out")
    builds = [start_build(compiler, include, tmp_path) for _ in range(2)]
    ends = [build.communicate(timeout=60) for build in builds]
    assert [build.returncode for build in builds] == [0, 0], ends
    assert all(out.startswith("a") for out, _ in ends)
    assert store.Store("libraries").verify() == ()
    assert len(store.Store("libraries").entries()) == 1


def test_threads_that_build_the_same_library_at_once_build_it_once(tmp_path, include):
    compiler, built = fake(tmp_path, "sleep 0.1; cat $sources > $out"), []
    threads = [threading.Thread(target=lambda: built.append(build_library(
        [Unit("u", "x")], EMULATED, include=include, compiler=compiler))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 8
    assert len({one.path for one in built}) == 1
    assert len(calls(tmp_path)) == 1


def test_metadata_of_another_making_is_built_again(tmp_path, include):
    compiler = fake(tmp_path)
    first = dict(units=[Unit("u", "x")], target=EMULATED, include=include, compiler=compiler)
    entry = store.Store("libraries").get(build_library(**first).path.name.partition("-")[0])
    for meta in ({}, {"reports": 3}, {"reports": [{"unknown": 1}]}):
        store.Store("libraries").put(entry.key, {"so": b"x"}, meta)
        assert not build_library(**first).from_cache
    assert build_library(**first).from_cache


def test_no_units_are_no_library(include):
    with pytest.raises(SpecError):
        build_library([], EMULATED, include=include)


SOURCE = ('#include "deep/three.hpp"\nextern "C" [[gnu::visibility("default")]] '
          'int %s() { return three + %d; }\n')


@needs_host
def test_a_real_library_of_two_units_loads_and_runs(include):
    units = [Unit(name, SOURCE % (name, n)) for n, name in enumerate(("plus_one", "plus_two"), 1)]
    library = ctypes.CDLL(str(build_library(units, EMULATED, include=include).path))
    assert (library.plus_one(), library.plus_two()) == (4, 5)


@needs_host
def test_a_real_library_is_built_although_the_cache_cannot_be_written(include, monkeypatch):
    monkeypatch.setenv("DSCORE_CACHE_DIR", "/dev/null/x")
    monkeypatch.setattr(folders, "_warned", set())
    with pytest.warns(RuntimeWarning, match="/dev/null/x"):
        built = build_library([Unit("u", SOURCE % ("answer", 39))], EMULATED, include=include)
    assert ctypes.CDLL(str(built.path)).answer() == 42


def test_a_full_temporary_folder_is_named(include, monkeypatch):
    no_space = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # which names no file
    monkeypatch.setattr("pathlib.Path.write_bytes", Mock(side_effect=no_space))
    with pytest.raises(UnavailableError, match="No space left on device; set TMPDIR"):
        build_library([Unit("one", "int one;\n")], EMULATED, include=include)
