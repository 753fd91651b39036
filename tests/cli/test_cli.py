"""The commands as a user meets them: the entry point, devices, validate, conformance."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from cli_calls import DSCORE, SMALL, TILING, Call, configuration, process, unwrapped, words

import dscore
from dscore.algorithms import registry
from dscore.algorithms.registry import names
from dscore.core import catalog

# The entry point.

def test_the_console_script_teaches() -> None:
    done = process("--help")
    assert done.returncode == 0
    assert done.stderr == ""
    for taught in ("n1c64h14w14_o384k1", "mobilenet_v2/7", "--json", "Exit codes", *(
            f"dscore {command}" for command in (
                "devices", "validate", "space", "explain", "run", "conformance", "env"))):
        assert taught in done.stdout


def test_python_dash_m_is_the_same_program() -> None:
    done = subprocess.run([sys.executable, "-m", "dscore.cli", "--version"], capture_output=True,
                          text=True, timeout=180, check=False)
    assert (done.returncode, done.stdout) == (0, f"dscore {dscore.__version__}\n")


def test_without_arguments_the_help_is_shown(call: Call) -> None:
    assert call() == call("--help")


@pytest.mark.parametrize("command", ["devices", "validate", "space", "explain", "run",
                                     "conformance", "env"])
def test_every_command_has_help_and_json(call: Call, command: str) -> None:
    result = call(command, "--help")
    assert result.code == 0
    assert "--json" in result.out
    taught = {"env": "--json", "validate": "[[configuration]]"}.get(command, f"dscore {command} ")
    assert command == "devices" or taught in result.out


def test_the_command_line_is_loaded_quickly() -> None:
    code = ("import sys, dscore.cli; "
            "print([name for name in ('numpy', 'hypothesis', 'cffi') if name in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          timeout=180, check=True)
    assert done.stdout == "[]\n"


def test_a_reader_that_leaves_is_no_error() -> None:
    with subprocess.Popen([*DSCORE, "space", "P1-P9", "--json"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.read(10)
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 141


@pytest.mark.deep
def test_signs_that_the_encoding_lacks_are_replaced() -> None:
    done = process("explain", "P13", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "estimate" in done.stdout


@pytest.mark.parametrize("command", [
    ["devices"], ["devices", "h200"], ["env"], ["space", "P13"], ["space", "mobilenet_v2/2"],
    ["space", "mobilenet_v2"], ["space", "efficientnet_b0/57", "--top", "20", "--device", "xavier"],
    ["explain", "mobilenet_v2/8", "--device", "xavier"], ["explain", "efficientnet_b0/57"],
    ["explain", "VGG-3", "--device", "h200"], ["run", SMALL, "mobilenet_v2/41", "P42"],
    ["conformance", "--examples", "6"]])
def test_nothing_is_wider_than_100_columns_nor_coloured(call: Call, command: list[str],
                                                        few_hints: None) -> None:
    result = call(*command)
    assert result.code == 0
    assert max(len(line) for line in result.out.splitlines()) <= 100
    assert "\x1b" not in result.out
    assert result.err == ""
    assert all(line == line.rstrip() for line in result.out.splitlines())


# devices, env

def test_devices_shows_all_and_what_is_present(call: Call, json_of: Callable[..., Any]) -> None:
    out = call("devices").out
    assert all(name in out for name in catalog.devices())
    assert [line.split()[1] for line in out.splitlines() if line.startswith("reference")] == [
        "present"]
    data = json_of("devices")
    assert data["devices"] == json.loads(json.dumps(
        [asdict(device) for device in catalog.devices().values()]))
    assert {"name": "reference", "present": True, "missing": None} in data["backends"]


def test_one_device_is_shown_whole(call: Call, json_of: Callable[..., Any]) -> None:
    out = call("devices", "z100sm").out
    rows = {words(line)[0]: " ".join(words(line)[1:]) for line in out.splitlines()}
    assert set(rows) == set(asdict(catalog.device("z100sm"))) - {"assumed"}
    assert rows["clock_hz"] == "1,725 MHz (assumed)"
    assert rows["registers_per_cu"] == "65,536"
    assert rows["lds_bytes_per_cu"] == "65,536 B"
    assert rows["bandwidth_bytes_per_second"] == "1,000 GB/s"
    assert rows["measured_launch_seconds"] == "not measured"
    assert json_of("devices", "Z100SM") == json.loads(json.dumps(asdict(catalog.device("z100sm"))))


def test_env_tells_versions_and_backends(call: Call, json_of: Callable[..., Any],
                                         few_hints: None) -> None:
    data = json_of("env")
    assert data["dscore"] == dscore.__version__
    assert data["packages"]["numpy"]
    assert "torch" in data["packages"]
    assert {"name": "reference", "present": True, "missing": None} in data["backends"]
    out = call("env").out
    assert f"dscore         {dscore.__version__}" in out
    assert out.startswith("```text\n")
    assert out.endswith("```\n")


def test_env_tells_compilers_variables_and_the_cache(call: Call, json_of: Callable[..., Any],
                                                     tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch,
                                                     few_hints: None) -> None:
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho release 99.1, V99.1.2\n")
    nvcc.chmod(0o755)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_bytes(b"x" * 2_500_000)
    monkeypatch.setenv("DSCORE_NVCC", str(nvcc))
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "kept"))
    data = json_of("env")
    assert data["variables"]["DSCORE_NVCC"] == str(nvcc)
    assert data["cache"] == {"folder": str(tmp_path / "kept"), "files": 1, "bytes": 2_500_000}
    assert len(data["kernels"]) == 16
    [found] = [one for one in data["compilers"] if one["kind"] == "nvcc"]
    assert (found["path"], found["origin"]) == (str(nvcc), "DSCORE_NVCC")
    assert found["version"] == "release 99.1, V99.1.2"
    out = unwrapped(call("env").out)
    assert f"nvcc {nvcc}, from DSCORE_NVCC (release 99.1, V99.1.2)" in " ".join(out.split())
    assert "1 file, 2.5 MB" in out


def test_env_never_fails(call: Call, json_of: Callable[..., Any],
                         monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("all is lost")

    monkeypatch.setattr("dscore.building.compilers.all_compilers", broken)
    monkeypatch.setattr("dscore.cache.folders.configured_root", broken)
    monkeypatch.setattr("dscore.core.backend.backend_names", broken)
    monkeypatch.setattr("dscore.measuring.vendor_runtime.runtime", broken)
    monkeypatch.setattr("dscore.tuning.shipped_hints.all_shipped", broken)
    monkeypatch.setattr("importlib.metadata.version", broken)
    monkeypatch.setattr("platform.platform", broken)
    error = {"error": "RuntimeError: all is lost"}
    data = json_of("env")
    assert [name for name, value in data.items() if value == error] == [
        "platform", "packages", "compilers", "backends", "cache", "hints"]
    assert {gpu["name"] for gpu in data["gpus"]} == {"all is lost"}
    out = call("env").out
    assert out.count("RuntimeError: all is lost") == 6
    assert f"dscore         {dscore.__version__}" in out


# validate

def test_validate_answers_with_the_numbers_of_the_design(call: Call, tmp_path: Path) -> None:
    result = call("validate", configuration(tmp_path / "p28.toml"))
    assert result.code == 1
    lines = result.out.splitlines()
    assert lines[0] == "InvalidTiling: pointwise 320x7x7->1280 on z100sm (wavefront 64, " \
                       "64 KiB LDS per CU)"
    assert "wave_w=1 wave_c=64 repeat=(1,4) group_c=16 block_n=2" in lines[1]
    memory = next(line for line in lines if "shared memory" in line)
    for part in ("used 32,896 B", "limit 32,768 B (64 KiB / block_n=2)", "over by 128 B", "Eq. 4",
                 "E-LDS"):
        assert part in memory
    registers = next(line for line in lines if "Eq. 7" in line)
    assert words(registers)[:7] == ["registers", "used", "80", "limit", "128", "48", "spare"]
    nearest = result.out.partition("nearest valid")[2]
    assert "group_c 16->8 (16,448 B, 56 registers)" in nearest
    assert "block_n 2->1 (limit 65,536 B)" in nearest
    assert lines[-1] == "0 of 1 configurations are valid"


@pytest.mark.parametrize(("algorithm", "group_c", "code", "message"), [
    ("channel_distribution", 8, 0, "1 of 1 configurations are valid"),
    ("fourier", 8, 2, f"algorithm must be one of {', '.join(names())}; "
                       "got 'fourier'"),
    ("gemm", 8, 2, "not a GemmTiling: missing lanes_c")])
def test_validate_takes_the_algorithm(call: Call, tmp_path: Path, algorithm: str, group_c: int,
                                      code: int, message: str) -> None:
    path = configuration(tmp_path / "p28.toml", algorithm=algorithm, group_c=group_c, block_n=1)
    result = call("validate", path)
    assert result.code == code
    assert message in unwrapped(result.out + result.err)


def test_validate_as_json(json_of: Callable[..., Any], tmp_path: Path) -> None:
    verdict, = json_of("validate", configuration(tmp_path / "p28.toml"), code=1)
    assert verdict["problem"] == "n1c320h7w7_o1280k1"
    assert (verdict["device"], verdict["rules"], verdict["block_n"]) == ("z100sm", "hardware", 2)
    assert verdict["tiling"] == {"algorithm": "channel_distribution", **TILING}
    assert verdict["ok"] is False
    line = verdict["ledger"][0]
    assert (line["code"], line["used"], line["allowed"], line["slack"], line["ok"]) == (
        "E-LDS", 32896, 32768, -128, False)
    assert verdict["violations"][0]["code"] == "E-LDS"
    changes = [suggestion["changes"] for suggestion in verdict["nearest"]]
    assert {"group_c": {"from": 16, "to": 8}} in changes
    assert {"block_n": {"from": 2, "to": 1}} in changes


def test_validate_takes_many_configurations(call: Call, json_of: Callable[..., Any],
                                            tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("".join(
        f"{name} = {json.dumps(value)}\n"
        for name, value in asdict(catalog.device("z100sm")).items()
        if value is not None).replace('"z100sm"', '"mine"'))
    many = tmp_path / "many.toml"
    tilings = ("wave_w=1\nwave_c=64\nrepeat_w=1\nrepeat_c=4\ngroup_c=16",
               "thread_h=1\nthread_w=1\nlanes_h=8\nlanes_w=8\nplanes=1\nstaging='lds'",
               "wave_w=4\nwave_c=64\nrepeat_w=1\nrepeat_c=1\ngroup_c=4\nmasked=true")
    heads = ("layer='P28'\nrules='paper'\ndevice='mine.toml'", f"problem='{SMALL}'",
             "problem='n1c3h5w5_o7k1'\ndevice='h200'")
    many.write_text("\n".join(f"[[configuration]]\n{head}\n{tiling}"
                              for head, tiling in zip(heads, tilings, strict=True)))
    result = call("validate", many)
    assert result.code == 0, result
    assert result.out.splitlines()[-1] == "3 of 3 configurations are valid"
    data = json_of("validate", many, "--device", "gfx906")
    assert [verdict["device"] for verdict in data] == ["mine", "gfx906", "h200"]
    assert [verdict["rules"] for verdict in data] == ["paper", "hardware", "hardware"]


def test_a_mixed_file_counts_the_valid_and_fails(call: Call, tmp_path: Path) -> None:
    one = configuration(tmp_path / "one.toml").read_text()
    (tmp_path / "two.toml").write_text("[[configuration]]\n" + one + "[[configuration]]\n"
                                       + one.replace("block_n = 2", "block_n = 1"))
    result = call("validate", tmp_path / "two.toml")
    assert result.code == 1
    assert result.out.splitlines()[-1] == "1 of 2 configurations are valid"


# conformance

@pytest.mark.deep
def test_conformance_counts_by_algorithm(call: Call, json_of: Callable[..., Any]) -> None:
    examples = 2 * len(registry.names()) + 1
    result = call("conformance", "--examples", examples)
    assert result.code == 0
    first, *others = registry.names()
    counts = [words(line) for line in result.out.splitlines()[2:3 + len(others)]]
    assert counts == [[first, "3", "holds"], *([name, "2", "holds"] for name in others)]
    assert f"{examples} examples, every result within its bound, seed 0" in result.out
    data = json_of("conformance", "--examples", 6, "--algorithm", "direct,split_k",
                   "--algorithm", "gemm", "--device", "v100", "--seed", 7)
    assert data["examples"] == {"direct": 2, "split_k": 2, "gemm": 2}
    assert (data["devices"], data["seed"], data["failures"], data["ok"]) == (["v100"], 7, [], True)


def test_conformance_writes_reports_whole(call: Call, tmp_path: Path) -> None:
    for name in ("report.json", "report.xml"):
        assert call("conformance", "--examples", 2, "--report", tmp_path / name).code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "report.xml"]
    assert json.loads((tmp_path / "report.json").read_text())["ok"] is True
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert (suite.tag, suite.get("tests"), suite.get("failures"), suite.get("skipped")) == (
        "testsuite", str(len(registry.names())), "0", str(len(registry.names()) - 2))
    assert [case.get("name") for case in suite] == [*registry.names()]
