"""Bad usage and bad files: exit code 2, the message, and never a traceback."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from cli_calls import Call, unwrapped

from dscore.algorithms.registry import names

POINTWISE = "wave_w = 1\nwave_c = 64\nrepeat_w = 1\nrepeat_c = 4\ngroup_c = 16\n"


# What must be refused: the command line after `dscore`, and what the message says.
BAD_USAGE = [
    ("nosuch", "No such command"),
    ("run", "Missing argument"),
    ("run P1 --nosuch", "No such option"),
    ("run P1 --batch many", "--batch"),
    ("run P1 --seed 1.5", "not a valid integer; see"),
    ("run P1 --batch -1", "batch must be positive, got -1"),
    ("run P1 --batch 0", "batch must be positive, got 0"),
    ("run P1 --repeats 0", "--repeats must be positive"),
    ("run P1 --seed -1", "--seed must be at least 0"),
    ("run P1 --rules lax", "rules must be one of paper, hardware; got 'lax'"),
    ("run P1 --backend nosuch", "unknown backend 'nosuch'"),
    ("run P1 --backend nosuch:Backend", "No module named 'nosuch'"),
    ("run P1 --backend faulty_backends:Nosuch", "Nosuch"),
    ("run P1 --device nosuch", "no device is named 'nosuch'"),
    ("run Q7", "nothing is named 'Q7'"),
    ("run n1c4h5w5_o8k9", "no output rows"),
    ("run P1 --tiling wave_w", "'wave_w' is not FIELD=VALUE"),
    ("run P1 --tiling =", "'=' is not FIELD=VALUE"),
    ("run P1 --tiling wave_w=1", "missing group_c, repeat_c, repeat_w, wave_c"),
    ("run P1 --tiling wave_w=1,wave_w=1", "wave_w comes twice"),
    ("run P1 --tiling threads=x,thread_c=1", "threads must be an integer, got 'x'"),
    ("run P1 --tiling threads=0,thread_c=1", "threads must be positive, got 0"),
    ("run P1 --tiling threads=64,thread_c=1,wide=2", "unknown wide"),
    ("run P1 --tiling algorithm=lds,threads=64,thread_c=1",
     f"--tiling: algorithm must be one of {', '.join(names())}; got 'lds'"),
    ("run P1 --tiling algorithm=gemm,threads=64,thread_c=1", "unknown thread_c, threads"),
    (f"run P1 --tiling threads=64,thread_c={10**17}", "thread_c must be at most 65,536"),
    (f"run P1 --tiling threads=64,thread_c={'9' * 5000}", "thread_c must be an integer"),
    ("run D1 --tiling wave_w=1,wave_c=64,repeat_w=1,repeat_c=1,group_c=1",
     "ChannelDistributionTiling"),
    ("devices ''", "no device is named ''"),
    ("devices nosuch", "no device is named 'nosuch'"),
    ("devices nosuch.toml", "nosuch.toml"),
    ("space P1 --top 0", "--top must be positive"),
    ("space P1 --device .", "no device is named '.'"),
    ("explain P1-P3", "names 3 layers"),
    ("explain", "Missing argument"),
    ("explain n1c1h1w1", "not a problem"),
    ("conformance --algorithm fourier",
     f"--algorithm must be one of {', '.join(names())}"),
    ("space P1 --algorithm gem",
     f"--algorithm must be one of {', '.join(names())}; got 'gem' (did you mean gemm?)"),
    ("conformance --examples 0", "--examples must be positive"),
    ("conformance --seed -3", "--seed must be at least 0"),
    ("conformance --backend nosuch", "unknown backend 'nosuch'"),
    ("conformance --report report.txt", "must end in .json, or .xml"),
    ("conformance --report nosuch/report.xml", "there is no folder nosuch"),
    ("validate", "Missing argument"),
    ("validate nosuch.toml", "nosuch.toml"),
    ("validate .", ".:"),
]


@pytest.mark.parametrize(("line", "message"), BAD_USAGE, ids=[line[:40] for line, _ in BAD_USAGE])
def test_bad_usage_is_refused(call: Call, line: str, message: str, tmp_path: Path,
                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = call(*shlex.split(line))
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("dscore: ")
    assert message in result.err
    assert list(tmp_path.iterdir()) == []


# Files that must be refused, and what follows "FILE: " in the message.
BAD_FILES = {
    "empty": ("", "layer (or problem) is missing"),
    "a key that a terminal obeys": ('"\\u001b[31m" = 1\n[[configuration]]\nlayer = "P28"',
                                    r"'\x1b[31m' stands beside [[configuration]]"),
    "a table of one name": (f"layer = 'P28'\n{POINTWISE}configurations = 1",
                            "unknown key 'configurations' (did you mean configuration?)"),
    "a slip in the algorithm": (f"layer = 'P28'\n{POINTWISE}algoritm = 'gemm'",
                                "unknown key 'algoritm' (did you mean algorithm?)"),
    "not toml": ("layer = ", "not TOML"),
    "not utf-8": (b"layer = \xff", "not UTF-8"),
    "nan": (f"layer = 'P28'\n{POINTWISE}block_n = nan", "block_n must be an integer, got nan"),
    "a broken number": (f"layer = 'P28'\n{POINTWISE}".replace("w = 1", "w = 1.5"),
                        "wave_w must be an integer, got 1.5"),
    "a huge number": (f"layer = 'P28'\n{POINTWISE}".replace("64", "9" * 30),
                      "wave_c must be at most 65,536"),
    "a huge residency": (f"layer = 'P28'\n{POINTWISE}block_n = {2**63}", "block_n must be at most"),
    "no fields": ("layer = 'P28'", "no field of a tiling"),
    "a field is missing": ("layer = 'P28'\nwave_w = 1", "missing group_c"),
    "an unknown field": (f"layer = 'P28'\n{POINTWISE}wide = 1", "unknown wide"),
    "no layer": (POINTWISE, "layer (or problem) is missing"),
    "two layers": (f"layer = 'P1'\nproblem = 'P2'\n{POINTWISE}", "problem stands beside layer"),
    "many layers": (f"layer = 'P1-P3'\n{POINTWISE}", "layer: 'P1-P3' names 3 layers"),
    "a layer's number": (f"layer = 28\n{POINTWISE}", "layer must be a text"),
    "another kind": (f"layer = 'D1'\n{POINTWISE}", "ChannelDistributionTiling does not run"),
    "an unknown device": (f"layer = 'P1'\ndevice = 'x'\n{POINTWISE}", "device: no device"),
    "a device's number": (f"layer = 'P1'\ndevice = 3\n{POINTWISE}", "device: a device is a name"),
    "a long file name": (f"layer = 'P1'\ndevice = '{'x' * 300}.toml'\n{POINTWISE}",
                         "cannot be read: File name too long"),
    "unknown rules": (f"layer = 'P1'\nrules = 'lax'\n{POINTWISE}", "rules must be one of"),
    "masked as a number": (f"layer = 'P1'\nmasked = 1\n{POINTWISE}", "masked must be one of"),
    "no tables": ("configuration = 3", "configuration must be [[configuration]] tables"),
    "an empty array": ("configuration = []", "configuration must be [[configuration]] tables"),
    "an array of numbers": ("configuration = [3]", "configuration[0] must be a table, got 3"),
    "both forms": ("layer = 'P1'\n[[configuration]]\nlayer = 'P1'", "layer stands beside"),
    "the third": ("[[configuration]]\nlayer = 'P28'\n" + POINTWISE
                  + "[[configuration]]\nlayer = 'P28'\n" + POINTWISE
                  + "[[configuration]]\nlayer = 'P28'\n" + POINTWISE.replace("16", "true"),
                  "configuration[2].group_c must be an integer, got True"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_refused_by_file_and_key(call: Call, tmp_path: Path, name: str) -> None:
    text, message = BAD_FILES[name]
    path = tmp_path / "bad.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    result = call("validate", path)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith(f"dscore: {path}: {message}") or (
        message in unwrapped(result.err) and str(path) in unwrapped(result.err))


def test_an_unreadable_file_is_refused(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "secret.toml"
    path.write_text("layer = 'P1'")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user reads every file")
    result = call("validate", path)
    assert result.code == 2
    assert str(path) in unwrapped(result.err)


def test_a_report_that_is_a_folder_is_refused(call: Call, tmp_path: Path) -> None:
    (tmp_path / "report.xml").mkdir()
    result = call("conformance", "--report", tmp_path / "report.xml")
    assert result.code == 2
    assert "is a folder" in result.err
