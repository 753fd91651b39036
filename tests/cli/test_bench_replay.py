"""`dscore bench`: pictures, Markdown, floors and files of rows that were measured before."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli_calls import Call, unwrapped

from dscore.bench.rows import Row, append_rows
from dscore.bench.summary import layer_results
from dscore.cli.commands.bench_replay import floors_of
from dscore.cli.show import tables
from dscore.cli.show.plots import draw
from dscore.measuring.floors import Floors

POINTWISE, DEPTHWISE = "n1c8h5w7_o16k1", "n1c8h5w6_o8k3s2p1g8"
ALONE = ("--backend", "reference", "--peer", "none")
FLOORS = Floors(4e12, 5e13, 1e-6, "measured in this run")
needs_matplotlib = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None,
                                      reason="matplotlib is not installed")


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


@pytest.mark.deep
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
@pytest.mark.deep
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
@pytest.mark.deep
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
