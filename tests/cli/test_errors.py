"""Faulty backends and interrupts: the exit code, the message, and a line that reproduces it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from cli_calls import DSCORE, SMALL, Call, unwrapped

from dscore.core import backend
from dscore.core.token import parse_problem
from dscore.ops import output_of

# Exit codes 1, 3, 4, 5 and 130.

def test_a_tiling_that_does_not_fit_ends_with_1(call: Call) -> None:
    fields = "wave_w=1,wave_c=64,repeat_w=4,repeat_c=9,group_c=16"
    result = call("explain", "P28", "--tiling", fields)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("dscore: InvalidTiling: pointwise 320x7x7->1280")
    result = call("run", "P28", "P42", "--tiling", fields)
    assert result.code == 1
    assert result.out.count("infeasible") == 2
    assert f"--tiling {fields}" in result.out
    assert "2 layers, 0 right, " in result.out


@pytest.mark.parametrize(("name", "code", "verdict", "message"), [
    ("Wrong", 1, "WRONG", "WRONG at output (0, "),
    ("Unwritten", 1, "WRONG", "got nan"),
    ("Scribbler", 1, "FAILED", "wrote outside its output"),
    ("NotCompiled", 4, "not compiled", "hipcc: no such architecture"),
    ("NotLaunched", 5, "not run", "the device is lost"),
])
def test_a_failing_layer_is_told_with_its_reproduction(call: Call, name: str, code: int,
                                                       verdict: str, message: str) -> None:
    asked = f"faulty_backends:{name}"
    result = call("run", SMALL, "P42", "--backend", asked, "--seed", 5, "--rules", "paper")
    assert result.code == code
    assert result.out.count(verdict) >= 2
    assert message in unwrapped(result.out)
    assert "2 layers, 0 right" in result.out
    lines = [line.partition("reproduce  dscore ")[2] for line in result.out.splitlines()
             if "reproduce  dscore " in line]
    assert len(lines) == 2
    again = call(*shlex.split(lines[0]))
    assert again.code == code
    assert message in unwrapped(again.out)
    assert lines[0] in again.out
    assert "--rules paper" in lines[0]


def test_a_failure_is_valid_json(call: Call) -> None:
    result = call("run", SMALL, "--backend", "faulty_backends:Unwritten", "--json")
    assert result.code == 1
    data = json.loads(result.out)
    assert (data["right"], data["worst_share"]) == (0, None)
    layer, = data["layers"]
    assert (layer["ok"], layer["share"], layer["verdict"]) == (False, None, "WRONG")
    assert layer["reproduce"].startswith(f"dscore run {SMALL} --tiling ")
    assert layer["message"] in unwrapped(result.err)


@pytest.mark.deep
def test_a_reproduction_names_the_device_by_its_file(call: Call, tmp_path: Path) -> None:
    shown = json.loads(call("devices", "z100sm", "--json").out)
    path = tmp_path / "my device.toml"
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in shown.items()
                            if value is not None).replace('"z100sm"', '"mine"'))
    for command in (["run", SMALL],
                    ["conformance", "--examples", "30", "--algorithm", "row_reuse"]):
        result = call(*command, "--backend", "faulty_backends:Wrong", "--device", path, "--json")
        assert result.code == 1
        data = json.loads(result.out)
        line = (data.get("layers") or data.get("failures"))[0]["reproduce"]
        assert f"--device {shlex.quote(str(path))} " in line
        assert call(*shlex.split(line)[1:]).code == 1


@pytest.mark.parametrize("command", ["run P42", "conformance"])
def test_an_absent_backend_ends_with_3(call: Call, command: str, few_hints: None,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_REGISTRY", dict(backend._REGISTRY))
    backend.register("absent", "faulty_backends:Absent")
    result = call(*command.split(), "--backend", "absent")
    assert (result.code, result.out) == (3, "")
    assert result.err == ("dscore: backend absent cannot run here: no DCU is installed; "
                          "install one\n")
    assert "no DCU is installed; install one" in call("devices").out
    listed = json.loads(call("env", "--json").out)["backends"][-1]
    assert listed == {"name": "absent", "present": False,
                      "missing": "no DCU is installed; install one"}
    backend.backend.cache_clear()


def test_a_refusing_backend_ends_with_3(call: Call) -> None:
    result = call("run", "P42", "--backend", "faulty_backends:Choosy")
    assert (result.code, result.out) == (3, "")
    assert "does not run n1c" in result.err
    assert "E-DTYPE" in result.err


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_an_interrupted_run_shows_what_was_done(call: Call, form: list[str]) -> None:
    result = call("run", "P42-P45", "--backend", "faulty_backends:Interrupted", *form)
    assert result.code == 130
    assert "2 of 4 layers, 2 right" in (result.err if form else result.out)
    assert result.err.endswith("dscore: interrupted\n")
    if form:
        data = json.loads(result.out)
        assert (data["asked"], data["ran"], len(data["layers"])) == (4, 2, 2)


# Conformance that fails.

@pytest.mark.deep
def test_conformance_shows_a_minimal_case_that_really_fails(call: Call, tmp_path: Path,
                                                            subprocess_path: str) -> None:
    path = tmp_path / "report.xml"
    result = call("conformance", "--backend", "faulty_backends:Wrong", "--algorithm", "row_reuse",
                  "--algorithm", "direct", "--report", path)
    assert result.code == 1
    assert result.out.count("FAILED") == 2
    assert "WRONG at output (0, " in result.out
    assert "2 algorithms failed, seed 0" in result.out
    line = next(line.strip() for line in result.out.splitlines() if "reproduce  " in line)
    command = shlex.split(line.removeprefix("reproduce  dscore "))
    assert output_of(parse_problem(command[1])).shape[3] == 3, "the fewest columns that are wrong"
    again = subprocess.run([*DSCORE, *command], capture_output=True, text=True, timeout=180,
                           check=False, env={**os.environ, "PYTHONPATH": subprocess_path})
    assert again.returncode == 1
    assert "WRONG at output (0, " in again.stdout
    assert again.stderr == ""
    suite = ElementTree.parse(path).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "2")
    told = suite.find("testcase/failure")
    assert told is not None
    assert told.text is not None
    assert line in told.text


def test_a_failing_conformance_is_reported_as_json_too(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    result = call("conformance", "--backend", "faulty_backends:NotLaunched", "--algorithm",
                  "gemm", "--report", path, "--json")
    assert result.code == 1
    data: Any = json.loads(result.out)
    assert data == json.loads(path.read_text())
    failure, = data["failures"]
    assert (data["ok"], failure["algorithm"]) == (False, "gemm")
    assert "the device is lost" in failure["message"]
    assert failure["reproduce"] in result.err
