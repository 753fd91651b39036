"""`dscore bench`: its tables, JSON, file, pictures and exit codes."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from cli_calls import Call, unwrapped, words

from dscore.bench.rows import Row, append_rows
from dscore.bench.summary import layer_results, summaries
from dscore.cli.commands.bench_replay import floors_of
from dscore.cli.show import tables
from dscore.cli.show.plots import draw
from dscore.measuring.floors import Floors

POINTWISE, DEPTHWISE = "n1c8h5w7_o16k1", "n1c8h5w6_o8k3s2p1g8"
ALONE = ("--backend", "reference", "--peer", "none")
FLOORS = Floors(4e12, 5e13, 1e-6, "measured in this run")
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None,
                                 reason="PyTorch is not installed")
needs_matplotlib = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None,
                                      reason="matplotlib is not installed")


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


def rows() -> list[Row]:
    """Two layers at three batches, in two states of the cache, one of them without a peer."""
    made = []
    for batch in (1, 8, 64):
        for cache in ("cold", "eager"):
            for layer, peer in (("D1", 3.0), ("D2", None)):
                common = dict(bytes=1000 * batch, flops=9000 * batch, floor_microseconds=0.5,
                              correct=True, problem=f"{layer}{batch}")
                made += [Row("depthwise", layer, batch, method, cache, time, time, time, **common)
                         for method, time in (("dscore", 1.0 * batch), ("default", peer))]
    return made


@needs_matplotlib
def test_pictures_that_cannot_be_written_are_refused_before_the_work(
        call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    result = call("bench", POINTWISE, *ALONE, "--plot", tmp_path / "new" / "p")
    assert (result.code, result.out) == (2, "")
    assert f"--plot: the folder {tmp_path} is not writable" in unwrapped(result.err)


@needs_matplotlib
def test_pictures_of_no_name_are_refused(call: Call) -> None:
    """As of a shell's variable that is not set: they were written to the folder that one is in."""
    result = call("bench", POINTWISE, *ALONE, "--plot", "")
    assert (result.code, result.out) == (2, "")
    assert "the name of a file or folder to write is empty" in unwrapped(result.err)


@needs_matplotlib
def test_pictures(tmp_path: Path) -> None:
    paths = draw(layer_results(rows()), FLOORS, "a device", tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["depthwise_cold.svg", "depthwise_eager.svg",
                                             "roofline.svg"]
    assert all(ElementTree.parse(path).getroot().tag.endswith("svg") for path in paths)
    assert all("the best of PyTorch" in path.read_text() for path in paths)
    kept = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in draw(layer_results(rows()), FLOORS, "a device",
                                               tmp_path)] == kept


@needs_matplotlib
def test_pictures_by_the_command(call: Call, tmp_path: Path) -> None:
    result = call("bench", POINTWISE, *ALONE, "--cache", "cold", "--plot", tmp_path / "p")
    assert result.code == 0
    assert [path.name for path in (tmp_path / "p").iterdir()] == ["roofline.svg"]
    assert f"wrote {tmp_path / 'p' / 'roofline.svg'}" in unwrapped(result.out)


@needs_matplotlib
def test_pictures_of_files(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    append_rows(path, rows())
    result = call("bench", "--replay", path, "--plot", tmp_path / "p", "--json")
    assert result.code == 0
    assert json.loads(result.out)["floors"]["launch_seconds"] == pytest.approx(5e-7)
    assert {one.name for one in (tmp_path / "p").iterdir()} == {
        "depthwise_cold.svg", "depthwise_eager.svg", "roofline.svg"}


def test_files_are_told_as_when_they_were_measured(call: Call, tmp_path: Path) -> None:
    paths = [tmp_path / f"{batch}.csv" for batch in (1, 2)]
    told = []
    for batch, path in zip((1, 2), paths, strict=True):
        told += [line for line in call("bench", POINTWISE, DEPTHWISE, *ALONE, "--cache", "hot",
                                       "--batch", batch, "--out", path).out.splitlines()
                 if line.startswith(("n1c8", "pointwise ", "depthwise "))]
    result = call("bench", "--replay", paths[0], "--replay", paths[1])
    assert result.code == 0
    assert {*told} <= {*result.out.splitlines()}
    assert "4 measurements of 2 files" in result.out


def test_markdown_has_a_column_for_each_batch(capsys: pytest.CaptureFixture[str]) -> None:
    tables.print_all(layer_results(rows()), markdown=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "| kind | cache | batch | layers | over the default | lost | over the best | lost "
        "| ÷ floor |", "|---|---|---|---|---|---|---|---|---|",
        "| depthwise | cold | 1 | 2 | 3.00 | 0 | 3.00 | 0 | 2.00 |"]
    assert "| layer | 1 | 8 | 64 |" in lines
    assert ("| D1 | 1.00 · 3.00 · 3.00 · 2.00 | 8.00 · 0.38 · 0.38 · 16.00 "
            "| 64.00 · 0.05 · 0.05 · 128.00 |") in lines
    assert "| D2 | 1.00 · – · – · – | 8.00 · – · – · – | 64.00 · – · – · – |" in lines


def test_floors_are_found_in_the_rows() -> None:
    sizes = ((8_000_000, 1), (1, 10**9), (1, 1))
    found = floors_of(replace(rows()[0], bytes=moved, flops=flops,
                              floor_microseconds=FLOORS.seconds(moved, flops) * 1e6)
                      for moved, flops in sizes)
    assert (found.bytes_per_second, found.flops_per_second, found.launch_seconds) == (
        pytest.approx(4e12), pytest.approx(5e13), pytest.approx(1e-6))


def row_of(dtype: str, moved: int, flops: int, floors: Floors) -> Row:
    """A row of a problem of *dtype* with its floor."""
    return replace(rows()[0], layer=dtype, bytes=moved, flops=flops,
                   problem=f"n1c8h5w5_o8k1_{dtype}",
                   floor_microseconds=floors.seconds(moved, flops, dtype) * 1e6)


def test_each_type_has_the_floor_of_its_rows() -> None:
    known = replace(FLOORS, by_type={"float16": 8e14})
    mixed = [row_of("float16", 1, 10**10, known), row_of("float32", 1, 10**9, known)]
    found = floors_of(mixed)
    assert found.flops_per_second == pytest.approx(5e13)
    assert found.by_type == {"float16": pytest.approx(8e14)}
    of_one = floors_of(mixed[:1])
    assert (of_one.flops_per_second, of_one.rate("float16")) == (None, pytest.approx(8e14))


@pytest.mark.parametrize(("floors", "said"), [
    (FLOORS, "4,000 GB/s, 50 TFLOP/s, 1.00 µs"),
    (replace(FLOORS, by_type={"int8": 2e15}), "50 TFLOP/s (2000 in int8), 1.00 µs"),
    (replace(FLOORS, flops_per_second=None, by_type={"int8": 2e15, "float16": 1e15}),
     "4,000 GB/s, 2000 TFLOP/s in int8, 1000 TFLOP/s in float16, 1.00 µs"),
    (replace(FLOORS, flops_per_second=None), "4,000 GB/s, 1.00 µs")])
def test_the_rates_of_all_types_are_told(floors: Floors, said: str) -> None:
    assert said in tables.floors_text(floors)


@needs_matplotlib
@pytest.mark.parametrize(("by_type", "ceilings"), [
    ({"float16": 8e14}, ["800 TFLOP/s in float16"]), ({}, [])])
def test_the_roof_is_of_the_types_that_are_drawn(
        tmp_path: Path, by_type: dict[str, float], ceilings: list[str]) -> None:
    floors = replace(FLOORS, by_type=by_type)
    drawn = draw(layer_results([row_of("float16", 10**6, 10**9, floors)]), floors, "a device",
                 tmp_path)
    text = drawn[-1].read_text()
    assert re.findall(r">(\d+ TFLOP/s.*?)<", text) == ceilings


def test_what_is_compared_is_of_one_run(call: Call, tmp_path: Path) -> None:
    for name in "ab":
        append_rows(tmp_path / f"{name}.csv", rows())
    result = call("bench", "--replay", tmp_path / "a.csv", "--replay", tmp_path / "b.csv")
    assert result.code == 2
    assert "what is compared must be of one run" in unwrapped(result.err)


@pytest.mark.parametrize(("change", "said"), [
    (dict(versions="another"), "must be of one run"), (dict(plan="another"), "must be of one run"),
    (dict(device="another", layer="D9"), "measurements of 2 devices (, another)")])
def test_a_file_of_two_runs_is_refused(call: Call, tmp_path: Path, change: dict[str, str],
                                       said: str) -> None:
    path, first = tmp_path / "rows.csv", rows()[0]
    append_rows(path, [first, replace(first, **change)])
    result = call("bench", "--replay", path)
    assert result.code == 2
    assert said in unwrapped(result.err)


def test_a_wrong_kernel_on_file_ends_with_1(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    append_rows(path, [replace(rows()[0], fault="wrong", correct=False, microseconds=None)])
    assert call("bench", "--replay", path, "--replay", path).code == 1


@pytest.mark.parametrize(("options", "said"), [
    ((), "name the layers to compare, or --replay files"),
    (("--replay", "nosuch.csv"), "there is no file nosuch.csv"),
    (("--replay", os.devnull), f"--replay: there are no measurements in {os.devnull}"),
    (("D1", "--replay", "rows.csv"), "leave out layers"),
    (("--replay", "rows.csv", "--batch", "8"), "leave out --batch"),
    (("D1", "--json", "--markdown"), "ask for one")])
def test_replay_refuses(call: Call, options: tuple[str, ...], said: str) -> None:
    result = call("bench", *options)
    assert result.code == 2
    assert said in unwrapped(result.err)
