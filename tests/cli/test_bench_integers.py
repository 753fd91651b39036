"""`dscore bench` of layers of int8: tables, file, Markdown, pictures."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_calls import Call, unwrapped

from dscore.bench.rows import Row, append_rows
from dscore.bench.summary import layer_results
from dscore.cli.show import tables

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None,
                                reason="PyTorch is not installed")
LAYERS = ("n1c8h5w7_o16k1", "n1c12h5w7_o16k1", "n1c8h5w6_o8k3s2p1g8")
FORM = ("--dtype", "int8", "--layout", "nhwc", "--backend", "reference", "--cache", "hot")


def rows() -> list[Row]:
    """D1 in int8 at two batches, and P1 beside all of its peers."""
    one = Row("depthwise", "D1", 1, "dscore", "cold", 2.0, 2.0, 2.0, 8000, 2000, 1.0, True,
              problem="token", device="a GPU")
    peer = replace(one, method="dscore_float16", microseconds=3.0)
    pointwise = [replace(one, kind="pointwise", layer="P1", method=method, microseconds=time)
                 for method, time in (("dscore", 2.0), ("int_mm", 8.0), ("int_mm_padded", 4.0),
                                      ("dscore_float16", 1.0))]
    return [one, peer, *(replace(row, batch=8, problem="n8") for row in (one, peer)), *pointwise]


def test_peers_of_int8_have_columns_of_their_own(call: Call, tmp_path: Path) -> None:
    result = call("bench", *LAYERS, *FORM, "--out", tmp_path / "rows.csv", "-v")
    assert result.code == 0, result.err
    head = " ".join(result.out.splitlines()[:2])
    for word in ("int_mm", "float16", "best"):
        assert word in head
    assert "default" not in head
    assert "multiples of 8 channels, not 12" in unwrapped(result.out)
    assert "over dscore's float16" in unwrapped(result.out)
    again = call("bench", "--replay", tmp_path / "rows.csv", "-v")
    assert again.code == 0
    assert again.out.splitlines()[:6] == result.out.splitlines()[:6]


def test_json_has_rows_and_means_of_float16(json_of: Callable[..., Any]) -> None:
    data = json_of("bench", *LAYERS, *FORM)
    assert [row["method"] for row in data["rows"] if row["kind"] == "depthwise"] == [
        "dscore", "dscore_float16"]
    pointwise, depthwise = data["standings"]
    assert pointwise["over_float16"]["layers"] == 2
    assert pointwise["over_best"]["layers"] == 1
    assert (depthwise["over_best"], depthwise["over_default"]) == (None, None)
    assert depthwise["float16_microseconds"] > 0


def test_markdown_of_int8(capsys: pytest.CaptureFixture[str]) -> None:
    tables.print_all(layer_results(rows()), markdown=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == ("| kind | cache | batch | layers | over the best | lost | over float16 "
                        "| lost | ÷ floor |")
    assert "| depthwise | cold | 1 | 1 | – | – | 1.50 | 0 | 2.00 |" in lines
    assert "| pointwise | cold | 1 | 1 | 2.00 | 0 | 0.50 | 1 | 2.00 |" in lines
    assert "| D1 | 2.00 · 1.50 · 2.00 | 2.00 · 1.50 · 2.00 |" in lines
    assert "| P1 | 2.00 · 2.00 · 0.50 · 2.00 |" in lines


@pytest.mark.deep
def test_a_picture_names_the_peers_that_there_are(call: Call, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    append_rows(tmp_path / "rows.csv", rows())
    result = call("bench", "--replay", tmp_path / "rows.csv", "--plot", tmp_path / "p")
    assert result.code == 0, result.err
    depthwise, pointwise = ((tmp_path / "p" / f"{kind}_cold.svg").read_text()
                            for kind in ("depthwise", "pointwise"))
    for text in (depthwise, pointwise):
        assert "dscore's float16" in text
        assert "PyTorch's default" not in text
    assert "the best of PyTorch's ways" in pointwise
    assert "the best of PyTorch's ways" not in depthwise
