"""`dscore tune --network` as a user meets it, on a GPU of a script."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cli_calls import Call, unwrapped
from tuning_backends import Scripted

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from network_graphs import SCRIPTED, Graph  # noqa: E402

from dscore.bench import network_tuning  # noqa: E402
from dscore.tuning import records  # noqa: E402

COMMAND = ("tune", "--network", "tiny_networks:gated", "--backend", SCRIPTED, "--input", "1x3x8x8",
           "--top", 3)


@pytest.fixture(autouse=True)
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    graph = Graph()
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(records, "_decisions", {})
    monkeypatch.setattr(Scripted, "name", SCRIPTED)
    monkeypatch.setattr(network_tuning, "_TURNS", 1)
    monkeypatch.setattr(network_tuning, "_AGAIN", 0)
    monkeypatch.setattr(network_tuning, "NetworkTuning",
                        partial(network_tuning.NetworkTuning, measure=graph))
    return graph


def test_the_table_has_the_layers_that_changed(call: Call) -> None:
    result = call(*COMMAND, "-v")
    assert result.code == 0, result.err
    said = unwrapped(result.out)
    assert "tiny_networks:gated, batch 1" in said
    assert "have another one now" in said
    assert "µs before and" in said
    assert "the same command goes on" not in said
    before, now = next([*map(float, line.replace(",", "").split()[4:6])]
                       for line in result.out.splitlines() if line.startswith("tiny_networks"))
    assert now < before


def test_json_has_every_layer(json_of: Callable[..., Any]) -> None:
    data = json_of(*COMMAND, "--batch", "1,2")
    assert [one["batch"] for one in data["networks"]] == [1, 2]
    for one in data["networks"]:
        assert one["complete"] is True
        assert one["after_seconds"] <= one["before_seconds"]
        for layer in one["layers"]:
            assert layer["tried"] == 3
            assert layer["best"]["seconds"] <= layer["before"]["seconds"]
            assert layer["changed"] == (layer["best"]["name"] != layer["before"]["name"])


@pytest.mark.deep
def test_a_plan_that_the_network_has_and_that_is_wrong_is_named(
        call: Call, json_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    layer = json_of(*COMMAND)["networks"][0]["layers"][0]
    wrong = layer["before"]["name"]
    monkeypatch.setattr(Scripted, "roles", {wrong: "wrong"})
    result = call(*COMMAND, "--batch", 2)
    assert result.code == 0, result.err
    assert f"by {wrong}: " in unwrapped(result.out)
    data = json_of(*COMMAND, "--batch", 3)["networks"][0]
    assert {one["name"] for one in data["wrong"]} == {wrong}
    assert not {one["problem"] for one in data["wrong"]} & {
        one["problem"] for one in data["layers"]}


def test_an_interruption_reports_what_is_known(call: Call, graph: Graph) -> None:
    graph.stop_after = 3
    result = call(*COMMAND)
    assert result.code == 130
    assert "the same command goes on" in unwrapped(result.out)
    again = call(*COMMAND)
    assert again.code == 0, again.err
