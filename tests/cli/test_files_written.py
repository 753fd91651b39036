"""Commands that write a file: what stands at its path, be it a link, a pipe or a device, stays."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_calls import Call
from recorded import TILINGS, keep, measured

from dscore.tuning import exchange

# A compiler that makes a library of these words and reports no kernels.
FAKE = """#!/bin/sh
[ "$1" = --version ] && { echo "fake 1.2.3"; exit 0; }
while [ $# -gt 0 ]; do case "$1" in -o) out=$2; shift;; esac; shift; done
echo "a library" > $out
"""
ONE, TWO = (measured(tiling, 1e-6) for tiling in TILINGS[:2])
COMMANDS: dict[str, tuple[list[str], str, Callable[[bytes], bool]]] = {
    "export": (["cache", "export"], "file", lambda data: data.count(b"\n") == 1),
    "merge": (["cache", "merge", "one", "--into"], "file",
              lambda data: data.count(b"\n") in (1, 2)),
    "build": (["build", "P13", "--target", "emulated", "--out"], "file",
              lambda data: data.startswith(b"a library\n")),
    "conformance": (["conformance", "--examples", "1", "--algorithm", "direct", "--report"],
                    "file.json", lambda data: b'"ok": true' in data)}


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("DSCORE_CXX", str(tmp_path / "c++"))
    monkeypatch.chdir(tmp_path)
    Path("c++").write_text(FAKE)
    Path("c++").chmod(0o755)
    keep(ONE)
    exchange.write("one", [ONE])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_link_is_followed(name: str, call: Call) -> None:
    command, path, holds = COMMANDS[name]
    exchange.write("target", [TWO])
    Path("target").chmod(0o640)
    Path(path).symlink_to("target")
    assert call(*command, path).code == 0
    assert Path(path).is_symlink()
    assert holds(Path("target").read_bytes())
    assert stat.S_IMODE(Path("target").stat().st_mode) == 0o640


@pytest.mark.parametrize("name", COMMANDS)
def test_a_pipe_is_written_into(name: str, call: Call) -> None:
    command, path, holds = COMMANDS[name]
    os.mkfifo(path)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(Path(path).read_bytes()), daemon=True)
    reader.start()
    assert call(*command, path).code == 0
    reader.join(10)
    assert [*map(holds, received)] == [True]
    assert stat.S_ISFIFO(os.lstat(path).st_mode)


@pytest.mark.parametrize("name", ["export", "merge", "build"])
def test_a_device_stays(name: str, call: Call) -> None:
    command, path, _ = COMMANDS[name]
    Path(path).symlink_to(os.devnull)  # as a device of the test's own, which needs rights
    assert call(*command, path).code == 0
    assert (Path(path).is_symlink(), stat.S_ISCHR(os.stat(path).st_mode)) == (True, True)


def test_bench_says_that_it_must_read_its_file_again(call: Call) -> None:
    os.mkfifo("rows.csv")
    result = call("bench", "P13", "--backend", "reference", "--peer", "none", "--out", "rows.csv")
    assert result.code == 2
    assert "rows.csv is no file that can be read again" in result.err
