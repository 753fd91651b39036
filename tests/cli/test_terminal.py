"""The terminal: widths, -q and -v, completion, help, near misses, the cache by layer."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_calls import SMALL, Call, configuration, process
from profiles import deep

import dscore
from dscore.building.toolchain import Unit
from dscore.cache import store
from dscore.cli.show.layout import columns_of, fitted, shorten, total
from dscore.core.catalog import device
from dscore.core.plan import Check
from dscore.solving.verdict import ledger_lines

NO_MORE_THAN = 180  # seconds that a command here may take
LONG = "efficientnet_b0/57"

# Widths.

SCREENS = [["devices"], ["space", LONG], ["space", "P1-P3"], ["space", "P13", "--top", "4"],
           ["explain", LONG], ["explain", "VGG-3", "--device", "h200"], ["run", SMALL, LONG]]


@pytest.mark.parametrize("width", [80, deep(120)])
@pytest.mark.parametrize("command", SCREENS, ids=" ".join)
def test_a_screen_keeps_its_width_and_breaks_no_word(
        call: Call, monkeypatch: pytest.MonkeyPatch, width: int, command: list[str]) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    narrow = call(*command).out
    whole = set(call(*command, "-v").out.split())
    assert [line for line in narrow.splitlines() if len(line) > width] == []
    names = {word for word in narrow.split() if "_" in word or word.startswith("E-")}
    assert names
    assert {name for name in names - whole if not name.endswith("…")} == set()


def test_columns_go_before_names_are_shortened() -> None:
    heads = ("layer", "problem", "tiling", ">ms", "verdict")
    rows = [("P13", "64x14x14->384", "gemm_t64x32_w16x32_l8_s1_k32x2", "52.1", "right")]
    columns = columns_of(heads, rows)
    assert [column.head for column in fitted(columns, ["problem"], total(columns))] == [
        "layer", "problem", "tiling", "ms", "verdict"]
    dropped = fitted(columns, ["problem"], total(columns) - 1)
    assert [(column.head, column.width) for column in dropped] == [
        ("layer", 5), ("tiling", 30), ("ms", 4), ("verdict", 7)]
    shortened = fitted(columns, ["problem"], 40)
    assert total(shortened) == 40
    assert [column.width for column in shortened] == [5, 18, 4, 7]
    assert shorten(rows[0][2], 18) == "gemm_t64x32_w16x3…"


def test_a_real_terminal_tells_its_width() -> None:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 83, 0, 0))
    environment = {name: text for name, text in os.environ.items() if name != "COLUMNS"}
    code = "from dscore.cli.show.screen import columns; print(columns())"
    subprocess.run([sys.executable, "-c", code], stdout=follower, timeout=NO_MORE_THAN,
                   check=True, env=environment)
    shown = os.read(leader, 100)
    os.close(follower)
    os.close(leader)
    assert shown.split() == [b"83"]


def test_a_pipe_has_100_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    from dscore.cli.show.screen import columns

    monkeypatch.delenv("COLUMNS", raising=False)
    assert columns() == 100
    for text, width in (("72", 72), ("7", 40), ("wide", 100), ("0", 100), ("9" * 50, 100)):
        with monkeypatch.context() as patch:  # pytest itself writes before the test's own is undone
            patch.setenv("COLUMNS", text)
            assert columns() == width


# Ledgers.

def _check(code: str, used: int, allowed: int) -> Check:
    return Check(code, code.lower(), used, allowed, "", "")


def test_limits_that_cannot_bind_are_counted_only() -> None:
    checks = [_check("E-HALF", 32, 64), _check("E-MORE", 33, 64), _check("E-FULL", 1, 1),
              _check("E-OVER", 65, 64), _check("E-NONE", 0, 0), _check("E-WRONG", 1, 0)]
    lines = ledger_lines(checks)
    assert [line.split()[-1] for line in lines[:-1]] == ["E-MORE", "E-FULL", "E-OVER", "E-WRONG"]
    assert lines[-1] == "  2 more limits hold"
    assert len(ledger_lines(checks, every_limit=True)) == len(checks)
    assert ledger_lines(checks[:1]) == ["  all 1 limits hold"]
    assert ledger_lines(checks[:2])[-1] == "  1 more limit holds"


def test_explain_and_validate_show_every_limit_when_asked(call: Call, tmp_path: Path) -> None:
    path = configuration(tmp_path / "p28.toml")
    for command in (("explain", "P28"), ("validate", path)):
        few, all_of_them = call(*command), call(*command, "-v")
        assert "more limits hold" in few.out
        assert "more limits hold" not in all_of_them.out
        assert all_of_them.out.count("  E-") > few.out.count("  E-") > 0
        assert few.code == all_of_them.code
    assert "E-LDS" in call("validate", path).out, "a broken limit is never folded"


# -q and -v.

def test_quiet_leaves_the_result_alone(call: Call) -> None:
    loud, quiet = call("run", SMALL), call("run", SMALL, "-q")
    assert "1 layer, 1 right" in loud.out
    assert "plans for z100sm" in loud.out
    lines = quiet.out.strip().splitlines()
    assert lines[-1].startswith(SMALL)
    assert "right," not in quiet.out
    assert "plans for" not in quiet.out
    assert call("-q", "run", SMALL).out.count("\n") == quiet.out.count("\n")
    refused = call("run", SMALL, "-q", "-v")
    assert (refused.code, refused.err) == (
        2, "dscore: --quiet and --verbose exclude each other\n")


def test_run_says_whose_time_it_shows(call: Call, json_of: Callable[..., Any]) -> None:
    out = call("run", SMALL, "--backend", "reference", "--device", "h200").out
    assert out.startswith("plans for h200 (NVIDIA H200 SXM), run by the backend reference\n"
                          "times are of this computer's processor, and say nothing of h200\n\n")
    assert json_of("run", SMALL, "--backend", "reference")["host_time"] is True


def test_run_says_that_a_gpu_is_here_which_it_does_not_use(
        call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dscore.backends.hip.HipBackend.missing", lambda self: "no nvcc found")
    monkeypatch.setattr("dscore.backends.hip.HipBackend.device", lambda self: device("h200"))
    assert ("the NVIDIA H200 SXM of this computer is not used (hip: no nvcc found)\n\n"
            in call("run", SMALL).out)
    assert "not used" not in call("run", SMALL, "--backend", "reference").out


# Without a GPU.

@pytest.mark.parametrize("command", ["tune", "bench"])
def test_without_a_gpu_nothing_is_measured_unasked(call: Call, command: str,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dscore.backends.hip.HipBackend.missing", lambda self: "no GPU is here")
    result = call(command, SMALL)
    assert (result.code, result.out) == (3, "")
    assert "hip: no GPU is here" in result.err
    assert "--backend reference" in result.err
    assert {"tune": "dscore space", "bench": "--replay"}[command] in result.err
    peers = () if command == "tune" else ("--peer", "none", "--cache", "hot")
    assert call(command, "n1c2h2w2_o2k1", *peers, *(("--top", 1) if command == "tune" else ()),
                "--backend", "reference").code == 0


# Help and completion.

def test_help_names_arguments_options_and_variables(call: Call,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert "Usage: dscore run [OPTIONS] LAYER...\n" in call("run", "--help").out
    assert "Usage: dscore tune [OPTIONS] [LAYER...]\n" in call("tune", "--help").out
    assert "Usage: dscore explain [OPTIONS] LAYER\n" in call("explain", "--help").out
    assert "[FILE...]" in call("cache", "hints", "--help").out
    shown = call("--help").out
    for name in ("DSCORE_CACHE_DIR", "DSCORE_NVCC", "DSCORE_TUNE", "--install-completion", "-q"):
        assert name in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "..." not in shown.partition("\nCommands:")[2].partition("\n\n")[0]


def test_every_variable_that_dscore_reads_is_in_the_help(call: Call) -> None:
    folder = Path(dscore.__file__).parent
    shown = call("--help").out
    named = {name for path in [*folder.rglob("*.py"), *(folder.parent / "backends").rglob("*.py")]
             for name in re.findall(r'"(DSCORE_[A-Z_]+)"', path.read_text())}
    assert {"DSCORE_CACHE_DIR", "DSCORE_NVCC"} <= named
    assert [name for name in sorted(named) if name not in shown] == []


@pytest.mark.parametrize(("words", "names"), [
    ("dscore run mobilenet_v2/5", ["mobilenet_v2/5", "mobilenet_v2/50", "mobilenet_v2/51",
                                   "mobilenet_v2/52"]),
    ("dscore explain VGG-1", ["VGG-1"]),
    deep("dscore run P1 --device gfx94", ["gfx942"]),
    deep("dscore run P1 --backend em", ["emulated"]),
    deep("dscore expl", ["explain"])])
def test_a_shell_completes_names(words: str, names: list[str]) -> None:
    done = process(env={**os.environ, "_DSCORE_COMPLETE": "complete_bash", "COMP_WORDS": words,
                        "COMP_CWORD": str(len(words.split()) - 1)})
    assert done.returncode == 0, done.stderr
    assert [name for name in done.stdout.split() if not name.startswith("mobilenet_v2/5")
            or name in names] == names


def test_a_completion_script_is_shown() -> None:
    done = process("--show-completion", "bash", env={
        **os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})
    assert done.returncode == 0
    assert "_DSCORE_COMPLETE=complete_bash" in done.stdout


# Near misses.

@pytest.mark.parametrize(("line", "meant"), [
    ("run P1 --rules papr", "did you mean paper?"),
    ("run P1 --backend refrence", "did you mean reference?"),
    ("run P1 --device h20", "did you mean h200"),
    ("run mobilnet_v2", "did you mean mobilenet_v2"),
    ("run P1 --tiling wave_w=1,wave_c=64,repeat_v=1,repeat_c=4,group_c=8", "did you mean repeat_w"),
    ("run P1 --tiling algorithm=direkt,threads=64,thread_c=1", "did you mean direct?"),
    ("space P1 --algorithm gem", "did you mean gemm?"),
    ("conformance --algorithm row_reus", "did you mean row_reuse?"),
    ("emit P1 --sizes fix", "did you mean fixed?"),
    ("bench P1 --cache cool", "did you mean cold?"),
    ("bench P1 --peer toch", "did you mean torch?"),
    ("run P1 --bakend x", "--backend"),
    ("run P1,P2", "several are separated by spaces"),
    ("run P1 --tiling gemm_t64x32_w16x32_l8_s1_k32x2", "`dscore space LAYER --json`"),
    ("build P1 --target sm90", "did you mean sm_90?"),
    ("rum P1", "run")])
def test_near_misses_are_suggested(call: Call, line: str, meant: str) -> None:
    result = call(*line.split())
    assert result.code == 2
    assert meant in result.err


@pytest.mark.parametrize("tiling", ["threads=64 thread_c=2", " threads = 64 , thread_c = 2 "])
def test_a_tiling_is_taken_as_it_is_printed(call: Call, tiling: str) -> None:
    assert "direct_t64_c2" in call("run", SMALL, "--backend", "reference", "--tiling", tiling).out


def test_a_slip_in_a_file_is_told_from_a_tilings_field(call: Call, tmp_path: Path) -> None:
    path = configuration(tmp_path / "p28.toml", blok_n=2)
    assert "unknown key 'blok_n' (did you mean block_n?)" in call("validate", path).err


# The cache.

def test_the_cache_is_shown_by_layer(call: Call, json_of: Callable[..., Any], tmp_path: Path,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    libraries, tuning = store.Store("libraries"), store.Store("tuning")
    p13, p13_of_8 = "n1c64h14w14_o384k1", "n8c64h14w14_o384k1"
    libraries.put(store.key("a"), {"so": b"x" * 500},
                  {"target": "sm_90", "problems": [p13, "n1c5h5w5_o5k1"], "reports": [{}, {}]})
    for number in range(3):
        tuning.put(store.key(str(number)), {},
                   {"measurement": {"problem": p13_of_8, "device": "h200"}})
    rows = [line.split() for line in call("cache", "show").out.splitlines()]
    but_ages = [row[:-2] for row in rows]  # of a busy machine they are more than 0 s
    assert ["P13", "1", "sm_90"] in but_ages
    assert ["n1c5h5w5_o5k1", "1", "sm_90"] in but_ages
    assert ["P13", "batch", "8", "3", "h200"] in but_ages
    kinds = sorted(row[:3] for row in rows if row[0:1] in (["libraries"], ["tuning"]))
    assert kinds == [["libraries", "sm_90", "1"], ["tuning"], ["tuning", "h200", "3"]]
    assert len(json_of("cache", "show", "--layer", "P13")["entries"]) == 4
    assert [one["kind"] for one in json_of("cache", "show", "--layer", "n2c5h5w5_o5k1")["entries"]
            ] == ["libraries"]
    assert json_of("cache", "show", "--layer", "P42")["entries"] == []
    assert call("cache", "show", "--layer", "nosuch").code == 2


def test_a_unit_names_its_problems() -> None:
    assert Unit("kernels", "// dscore: n1c5h5w5_o5k1, n1c6h5w5_o5k1\n#include").problems == [
        "n1c5h5w5_o5k1", "n1c6h5w5_o5k1"]
    assert Unit("index", "extern").problems == []
