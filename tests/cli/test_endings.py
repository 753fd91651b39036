"""How a command ends: errors as JSON, streams that fail, warnings, defects, junk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_calls import DSCORE, SMALL, Call

from dscore.core import backend

NO_MORE_THAN = 180  # seconds that a command here may take

@pytest.mark.parametrize(("line", "kind", "code"), [
    ("run P1 --rules papr", "SpecError", 2), ("rum P1", "UsageError", 2),
    ("run P1 --batch many", "UsageError", 2), ("run P42 --backend absent", "UnavailableError", 3),
    ("explain P28 --tiling wave_w=1,wave_c=64,repeat_w=4,repeat_c=9,group_c=16", "InvalidTiling",
     1)])
def test_an_error_under_json_is_json(call: Call, line: str, kind: str, code: int,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_REGISTRY", dict(backend._REGISTRY))
    backend.register("absent", "faulty_backends:Absent")
    result = call(*line.split(), "--json")
    backend.backend.cache_clear()
    assert result.code == code
    error = json.loads(result.out)["error"]
    assert (error["kind"], error["exit"]) == (kind, code)
    assert result.err == f"dscore: {error['message']}\n"


def test_data_that_were_cut_short_hold_the_error(call: Call) -> None:
    result = call("run", "P42-P45", "--backend", "faulty_backends:Interrupted", "--json")
    data = json.loads(result.out)
    assert (data["ran"], data["error"]["kind"], data["error"]["exit"]) == (2, "Interrupted", 130)


@pytest.mark.parametrize(("command", "message"), [
    ("devices >/dev/full", "dscore: standard output: No space left on device\n"),
    ("devices >&-", "dscore: standard output is closed; > /dev/null discards it\n"),
    ("devices >/dev/full 2>/dev/full", ""), ("devices h200 >&- 2>&-", ""),
    ("nosuch --json >/dev/full", "dscore: No such command 'nosuch'; see 'dscore --help'\n")])
def test_output_that_cannot_be_written_ends_with_6(command: str, message: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    done = subprocess.run(f"{' '.join(DSCORE)} {command}", shell=True, timeout=NO_MORE_THAN,
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (6, message)


@pytest.mark.deep
def test_a_warning_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environment = {**os.environ, "DSCORE_CACHE_DIR": str(tmp_path / "file" / "cache"),
                   "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "dscore.cli", "cache", "show"]

    def run(*words: str) -> tuple[int, list[str]]:
        done = subprocess.run([*command[:1], *words, *command[1:]], capture_output=True, text=True,
                              timeout=NO_MORE_THAN, check=False, env=environment)
        return done.returncode, done.stderr.splitlines()

    code, lines = run()
    assert code == 0
    assert [line[:len("warning: dscore's cache")] for line in lines] == ["warning: dscore's cache"]
    code, [line] = run("-W", "error")
    assert code == 1
    assert line.startswith("dscore: dscore's cache folder")


@pytest.mark.deep
def test_warnings_as_errors_leave_a_command_alone() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-m", "dscore.cli", "run", SMALL],
                          capture_output=True, text=True, timeout=NO_MORE_THAN, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_defect_is_one_line_with_a_code_of_its_own(call: Call,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("the sky fell")

    monkeypatch.setattr("dscore.api.explain", broken)
    result = call("explain", "P13")
    assert (result.code, result.out) == (70, "")
    assert result.err == ("dscore: a defect of dscore: RuntimeError: the sky fell; -v shows where "
                          "it is\n")
    from dscore.cli import main

    assert main(["explain", "P13", "-v"]) == 70


# Junk.

GARBAGE = bytes(range(256)) * 8
NAME = "a" * 300
DIGITS = "9" * 5000


@pytest.mark.parametrize("line", [
    "bench --replay garbage", "tune --replay garbage", "cache import garbage",
    f"bench --replay {NAME}", f"tune --replay {NAME}", f"validate {NAME}.toml",
    f"devices {NAME}.toml", f"bench {SMALL} --out {NAME}", f"build {SMALL} --target emulated --out "
    f"{NAME}", f"conformance --report {NAME}.xml", f"cache export {NAME}", f"cache import {NAME}",
    f"cache merge garbage --into {NAME}", f"bench {SMALL} --plot {NAME} --backend reference",
    f"run {SMALL} --backend builtins:exit", f"run {SMALL} --backend os:getcwd",
    f"tune {SMALL} --executor builtins:exit --backend reference",
    f"run P1 --batch {DIGITS}", f"run P1 --seed {DIGITS}",
    f"bench P1 --batch {DIGITS}", f"tune P1 --budget {DIGITS}", f"run P1-P{DIGITS}",
    f"explain mobilenet_v2/{DIGITS}", f"run P1 --device {DIGITS}", f"run P1 --rules {DIGITS}",
    f"run P1 --tiling threads={DIGITS},thread_c=1", f"space P1 --algorithm {DIGITS}",
    f"run n{DIGITS}c3h3w3_o3k1", f"run n1c3h3w3_o3k{DIGITS}",
    f"cache prune --max-size {DIGITS}MB"], ids=lambda line: line[:44])
def test_junk_is_refused_in_one_short_line(call: Call, line: str, tmp_path: Path,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("garbage").write_bytes(GARBAGE)
    result = call(*line.split())
    assert result.code in (1, 2) if line.startswith("cache import g") else result.code == 2
    assert result.out == ""
    assert len(result.err) < 1500
    assert result.err.startswith(("dscore: ", "skipped "))
    assert [path.name for path in tmp_path.iterdir()] == ["garbage"]
