"""`dscore bench`: its tables, JSON, file and exit codes."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_calls import Call, unwrapped, words
from emulated_gpus import GpuBackend

from dscore.backends.reference.backend import ReferenceBackend
from dscore.bench.rows import Row
from dscore.bench.summary import layer_results, summaries
from dscore.cli.commands.bench import _usual_batches
from dscore.cli.show import tables

POINTWISE, DEPTHWISE = "n1c8h5w7_o16k1", "n1c8h5w6_o8k3s2p1g8"
ALONE = ("--backend", "reference", "--peer", "none")
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None,
                                 reason="PyTorch is not installed")


def test_alone_on_the_host(call: Call) -> None:
    result = call("bench", POINTWISE, DEPTHWISE, *ALONE, "--cache", "hot,eager", "--batch", "1,2")
    assert result.code == 0
    assert "wall-clock times on this machine's processor" in unwrapped(result.out)
    assert "over" not in result.out.splitlines()[0]
    assert "8 measurements" in result.out
    assert all(len(line) <= 100 for line in result.out.splitlines())


def test_a_share_that_is_no_number_is_null_in_json(
        json_of: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    record = json_of("bench", POINTWISE, "--backend", "faulty_backends:Unwritten", "--peer", "none",
                     "--cache", "hot", "--out", out, code=1)
    for rows in (record["rows"], json_of("bench", "--replay", out, code=1)["rows"]):
        assert [(row["fault"], row["share"]) for row in rows] == [("wrong", None)]


@needs_torch
def test_beside_pytorch(call: Call) -> None:
    result = call("bench", POINTWISE, "D24", "--backend", "reference", "--cache", "hot")
    assert result.code == 0  # a loss is no failure
    assert all(len(line) <= 100 for line in result.out.splitlines())
    for way in ("default", "native", "matmul", "channels"):
        assert way in result.out


@needs_torch
def test_ways_of_pytorch_may_be_named(call: Call) -> None:
    result = call("bench", POINTWISE, "--backend", "reference", "--cache", "hot",
                  "--ways", "default,matmul")
    assert result.code == 0
    assert "matmul" in result.out
    assert "native" not in result.out
    assert "the best of PyTorch's ways is of default, matmul alone" in unwrapped(result.out)


@pytest.mark.parametrize(("arguments", "message"), [
    ((POINTWISE, "--ways", "matmull"), "--ways must be one of default, channels_last, native, "
                                       "matmul; got 'matmull'"),
    ((POINTWISE, "--ways", "default", "--peer", "none"), "which --peer none leaves out"),
    ((POINTWISE, "--ways", "default,"), "got ''"),
    (("P1_int8_nhwc", "--ways", "default"), "--ways is of floats, and P1_int8_nhwc is of int8"),
])
def test_ways_that_cannot_be_timed_are_refused(
        call: Call, arguments: tuple[str, ...], message: str) -> None:
    result = call("bench", *arguments, "--backend", "reference", "--batch", "1")
    assert result.code == 2
    assert message in unwrapped(result.err)


def test_losses_are_listed_as_plainly_as_wins(capsys: pytest.CaptureFixture[str]) -> None:
    times = {"D1": (2.0, 8.0, 4.0), "D2": (8.0, 16.0, 4.0), "D3": (4.0, 2.0, 3.0)}
    found = layer_results(
        Row("depthwise", layer, 8, method, "cold", time, time, time, 1, 1, 2.0, True)
        for layer, three in times.items()
        for method, time in zip(("dscore", "default", "native"), three, strict=True))
    tables.print_layers(found)
    tables.print_summaries(summaries(found))
    lines = capsys.readouterr().out.splitlines()
    assert [words(line) for line in lines[3:6]] == [
        ["D1", "8", "cold", "2.00", "8.00", "4.00", "4.00", "2.00", "1.00"],
        ["D2", "8", "cold", "8.00", "16.00", "4.00", "2.00", "0.50", "4.00", "not", "best"],
        ["D3", "8", "cold", "4.00", "2.00", "3.00", "0.50", "0.50", "2.00", "LOST"]]
    standing = next(line for line in lines if line.startswith("depthwise"))
    assert words(standing) == ["depthwise", "cold", "8", "3", "4.67", "8.67", "1.59", "1", "0.79",
                               "2", "2.00"]
    assert list(tables.remarks(found)) == [
        "depthwise cold batch 8, over PyTorch's default: best D1 4.00x, worst D3 0.50x, 1 layer "
        "lost: D3 0.50x",
        "depthwise cold batch 8, over the best of PyTorch's ways: best D1 2.00x, worst D2 0.50x, 2 "
        "layers lost: D2 0.50x, D3 0.50x"]


def test_json_is_the_data_alone(json_of: Callable[..., Any]) -> None:
    data = json_of("bench", POINTWISE, *ALONE, "--cache", "cold")
    row, = data["rows"]
    assert (row["method"], row["cache"], row["correct"], row["sets"]) == (
        "dscore", "cold", True, 8)
    assert data["host_time"] is True
    assert data["standings"][0]["over_default"] is None
    assert data["standings"][0]["over_floor"] == pytest.approx(
        row["microseconds"] / row["floor_microseconds"])
    assert data["floors"]["source"] == "measured in this run"


def test_a_file_saves_work(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    line = ("bench", POINTWISE, *ALONE, "--cache", "hot", "--out", path)
    first = call(*line)
    kept = path.read_bytes()
    again = call(*line)
    assert (first.code, again.code) == (0, 0)
    assert path.read_bytes() == kept
    assert first.out.splitlines()[:4] == again.out.splitlines()[:4]


def test_of_a_tiling_in_part_the_first_ranked_is_timed(
        json_of: Callable[..., Any]) -> None:
    """Each value of a field gives another tiling, which has it."""
    for stages in (2, 3):
        record = json_of("bench", POINTWISE, *ALONE, "--device", "h200", "--cache", "hot",
                         "--batch", "1", "--tiling", f"algorithm=gemm,stages={stages}")
        [row] = record["rows"]
        assert f"x{stages}__h200" in row["plan"]
    record = json_of("bench", POINTWISE, *ALONE, "--device", "h200", "--cache", "hot",
                     "--batch", "1", "--tiling", "algorithm=gemm,stages=77", code=1)
    assert "no tiling has algorithm=gemm,stages=77" in record["rows"][0]["note"]


@pytest.mark.parametrize(("backend", "code", "said"), [
    ("Wrong", 1, "WRONG: WRONG at output"), ("NotCompiled", 4, "no such architecture"),
    ("NotLaunched", 5, "the device is lost"), ("Absent", 3, "no DCU is installed")])
def test_faults_set_the_exit_code(call: Call, backend: str, code: int, said: str) -> None:
    result = call("bench", POINTWISE, "--backend", f"faulty_backends:{backend}", "--peer", "none",
                  "--cache", "hot")
    assert result.code == code
    assert said in unwrapped(result.out + result.err)


def test_an_interrupted_run_shows_what_it_has(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    result = call("bench", POINTWISE, DEPTHWISE, "--backend", "faulty_backends:Interrupted",
                  "--peer", "none", "--cache", "hot", "--out", path)
    assert result.code == 130
    result = call("bench", POINTWISE, *ALONE, "--cache", "hot", "--out", path)
    assert result.code == 0


@pytest.mark.parametrize(("options", "said"), [
    (("--peer", "jax"), "--peer must be one of torch, none; got 'jax'"),
    (("--cache", "warm"), "--cache must be one of cold, hot, eager; got 'warm'"),
    (("--batch", "1,x"),
     "--batch must be an integer, or several between commas as in 1,8,64; got '1,x'"),
    (("--batch", "1,,2"), "several between commas as in 1,8,64; got '1,,2'"),
    (("--batch", "9" * 20), "--batch must be at most 9,223,372,036,854,775,807, got 99999999999"),
    (("--batch", "-1"), "--batch must be positive, got -1"),
    (("--out", ""), "the name of a file or folder to write is empty"),
    (("--batch", "0"), "--batch must be positive, got 0"),
    (("--seed", "-1"), "--seed must be at least 0"),
    (("--out", "/nowhere/rows.csv"), "there is no folder /nowhere"),
    (("--tiling", "wave"), "is not FIELD=VALUE"),
    (("--tiling", "algorithm=gemm,stage=3"),
     "tilings of gemm have no stage (did you mean stages?)"),
])
def test_usage_errors(call: Call, options: tuple[str, ...], said: str) -> None:
    result = call("bench", POINTWISE, "--backend", "reference", *options)
    assert result.code == 2
    assert said in unwrapped(result.err)


def test_what_is_missing_is_named_before_the_work(
        call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    result = call("bench", POINTWISE, "--backend", "reference")
    assert (result.code, "pip install dscore[torch]" in unwrapped(result.err)) == (3, True)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = call("bench", POINTWISE, *ALONE, "--plot", tmp_path)
    assert (result.code, "pip install dscore[plot]" in unwrapped(result.err)) == (3, True)


@pytest.mark.parametrize(("layers", "batches"), [
    (("D1", "P13_float16"), (1, 8, 16, 32, 64)), (("n8c16h9w9_o16k3p1g16_float16_nhwc",), ()),
    (("input_gradient:n8c16h9w9_o4k1", "weight_gradient_n8c16h9w9_o4k1_float16"), ()),
    (("input_gradient:D4",), (1, 8, 16, 32, 64)), (("n8c16h9w9_o4k1", "D1"), (1, 8, 16, 32, 64))])
def test_problems_keep_their_batch_and_names_have_the_usual_ones_on_a_gpu(
        layers: tuple[str, ...], batches: tuple[int, ...]) -> None:
    assert _usual_batches(layers, GpuBackend()) == batches
    assert _usual_batches(layers, ReferenceBackend()) == ()
