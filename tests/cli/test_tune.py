"""`dscore tune` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_calls import Call, process, unwrapped
from tuning_backends import Scripted, behind_seconds, scripted_seconds

from dscore.core import catalog
from dscore.core.errors import SpecError
from dscore.core.token import parse_problem
from dscore.solving import solver
from dscore.tuning import records

TOKEN, OTHER = "n1c8h6w6_o16k1", "n1c8h6w6_o8k3p1g8"
SPACE = solver.solve(parse_problem(TOKEN), catalog.device("z100sm"))
NAMES = [SPACE[int(i)].name for i in SPACE.ranked()[:8]]
COMMAND = ("tune", TOKEN, "--top", "8", "--backend", "tuning_backends:Scripted")
SLOW = ("--backend", "tuning_backends:Slow", "--top", "8")
FASTEST = min(NAMES, key=scripted_seconds)


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subprocess_path: str) -> None:
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", subprocess_path)
    monkeypatch.setattr(records, "_decisions", {})
    for name, fresh in (("roles", {}), ("ran", []), ("timed", [])):
        monkeypatch.setattr(Scripted, name, fresh)


def test_the_table_of_what_was_found(call: Call) -> None:
    result = call(*COMMAND, OTHER, "-v")
    assert result.code == 0
    line = next(line for line in result.out.splitlines() if line.startswith(TOKEN))
    first, first_us, best, best_us, gain, count = line.split()[1:]
    assert (first, best) == (NAMES[0], FASTEST)
    assert (first_us, best_us, gain, count) == (
        f"{scripted_seconds(NAMES[0]) * 1e6:,.2f}", f"{scripted_seconds(FASTEST) * 1e6:,.2f}",
        f"{scripted_seconds(NAMES[0]) / scripted_seconds(FASTEST):.2f}", "8")
    assert "2 layers, gain " in result.out
    assert "2 layers complete" in unwrapped(result.out)
    assert "wall-clock times of the host" in unwrapped(result.out)
    assert "the same command" not in result.out


def test_spills_are_refused_and_counted(call: Call, json_of: Callable[..., Any],
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scripted, "roles", {NAMES[3]: "wrong", FASTEST: "spills"})
    result = call(*COMMAND)
    assert f"refused {TOKEN} {FASTEST}: spills 4 B of a lane to memory" in unwrapped(result.out)
    assert "1 kernel refused for spills" in unwrapped(result.out)
    layer = json_of(*COMMAND)["layers"][0]
    assert (layer["spilling"], len(layer["refused"])) == (1, 2)
    assert layer["best"]["name"] != FASTEST


def test_refused_tilings_are_shown_with_their_reason(
        call: Call, json_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scripted, "roles", {NAMES[0]: "wrong", FASTEST: "raises"})
    result = call(*COMMAND)
    assert result.code == 0
    assert f"refused {TOKEN} {NAMES[0]}: WRONG" in unwrapped(result.out)
    row = next(line for line in result.out.splitlines() if line.startswith(TOKEN))
    assert row.split()[1] == "refused"
    assert "no room for solver's first: -v shows all columns" in result.out
    [layer] = json_of(*COMMAND)["layers"]
    assert {c["name"] for c in layer["refused"]} == {NAMES[0], FASTEST}
    assert layer["best"]["name"] not in (NAMES[0], FASTEST)
    assert layer["first"]["seconds"] is None


def test_json_has_all_samples(json_of: Callable[..., Any]) -> None:
    data = json_of(*COMMAND)
    assert (data["policy"], data["host_time"], data["complete"]) == ("hot host", True, True)
    [layer] = data["layers"]
    assert layer["best"]["name"] == FASTEST
    assert len(layer["best"]["samples"]) == 15
    assert (layer["tried"], layer["candidates"], layer["problem"]) == (8, 8, TOKEN)


def test_a_layer_without_a_right_tiling_ends_with_1(call: Call,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scripted, "roles", dict.fromkeys(NAMES, "wrong"))
    result = call(*COMMAND)
    assert result.code == 1
    assert "... and 3 more; -v shows them" in result.out
    assert call(*COMMAND, "-v").out.count(": WRONG") == 8


def test_failures_of_the_machine(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scripted, "roles", dict.fromkeys(NAMES, "crashes"))
    result = call(*COMMAND)
    assert result.code == 5
    assert "no kernel of" in result.err
    assert TOKEN in result.out
    assert call("tune", TOKEN, "--backend", "faulty_backends:Absent").code == 3


def test_an_interruption_shows_the_best_so_far(call: Call,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scripted, "roles", {NAMES[5]: "interrupts"})
    result = call(*COMMAND)
    assert result.code == 130
    row = next(line for line in result.out.splitlines() if line.startswith(TOKEN))
    assert row.split()[-1] == "5"
    assert f"{min(map(scripted_seconds, NAMES[:5])) * 1e6:,.2f}" in row
    assert "the same command goes on from here" in result.out
    monkeypatch.setattr(Scripted, "roles", {})
    assert call(*COMMAND).code == 0
    assert [name for name, repeats in Scripted.timed if repeats == 3] == NAMES


def test_tilings_of_an_algorithm_asked_for_by_name(json_of: Callable[..., Any]) -> None:
    found = json_of(*COMMAND, "--algorithm", "channel_distribution")
    first = found["layers"][0]["first"]["tiling"]
    assert (found["algorithm"], "wave_w" in first) == ("channel_distribution", True)
    assert "wave_w" not in json_of(*COMMAND)["layers"][0]["first"]["tiling"]


def test_another_backend_and_device(call: Call) -> None:
    result = call("tune", TOKEN, "--backend", "reference", "--top", "2", "--device", "h200")
    assert result.code == 0
    assert "h200 by reference, hot host" in result.out


@pytest.mark.parametrize(("arguments", "said"), [
    ((), "name the layers"), ((TOKEN, "--budget", "fast"), "--budget must be a time"),
    ((TOKEN, "--budget", "0s"), "--budget"), ((TOKEN, "--top", "0"), "--top"),
    ((TOKEN, "--seed", "-1"), "--seed"), ((TOKEN, "--workers", "0"), "--workers"),
    ((TOKEN, "--workers", "2", "--executor", "a:b"), "take one"),
    ((TOKEN, "--executor", "nosuch:thing"), "--executor 'nosuch:thing' cannot be had"),
    ((TOKEN, "--executor", "json:loads"), "cannot be had"),
    ((TOKEN, "--executor", "builtins:dict"), "made a dict, which is no"),
    ((TOKEN, "--replay", "x"), "--replay takes"), (("--replay", "nosuch"), "cannot be read"),
    (("nosuch",), "nosuch")])
def test_usage(arguments: tuple[str, ...], said: str, call: Call) -> None:
    result = call("tune", *arguments, *(["--backend", "reference"] if TOKEN in arguments else []))
    assert result.code == 2
    assert said in result.err


@pytest.mark.parametrize(("text", "seconds"), [
    ("90s", 90), ("10m", 600), ("1.5h", 5400), ("30", 30), ("2 min", 120), (None, None)])
def test_budgets(text: str | None, seconds: float | None) -> None:
    from dscore.cli.commands.tune import seconds_of

    assert seconds_of(text) == seconds
    with pytest.raises(SpecError):
        seconds_of("-1s")


def test_a_budget_that_ends_too_early_says_so(call: Call) -> None:
    result = call("tune", TOKEN, *SLOW, "--budget", "0.2s")
    assert result.code == 0
    assert "0 layers complete" in result.out
    assert "the same command goes on from here" in result.out


def test_replay(call: Call, json_of: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    call(*COMMAND)
    call("cache", "export", path)
    ran = len(Scripted.ran)
    data = json_of("tune", "--replay", path)
    ratio = scripted_seconds(NAMES[0]) / scripted_seconds(FASTEST)
    assert data["means"] == {"1": pytest.approx(ratio), "8": 1.0, "32": 1.0}
    [layer] = data["layers"]
    assert layer["best"]["rank"] == NAMES.index(FASTEST) + 1
    assert (layer["measured"], layer["tilings"], layer["exhaustive"]) == (8, len(SPACE), False)
    result = call("tune", "--replay", path)
    assert f"the first at {ratio:.3f}, the first 8 at 1.000" in unwrapped(result.out)
    assert len(Scripted.ran) == ran


def test_executors(call: Call) -> None:
    result = call(*COMMAND, OTHER, "--executor", "concurrent.futures:ThreadPoolExecutor")
    assert result.code == 0
    assert "2 layers complete" in unwrapped(result.out)


@pytest.mark.deep
def test_workers(tmp_path: Path) -> None:
    done = process("tune", TOKEN, OTHER, *SLOW, "--workers", "2", "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert [layer["tried"] for layer in data["layers"]] == [8, 8]
    assert data["complete"]


def test_layers_are_tuned_by_halves_at_several_batches(json_of: Callable[..., Any], call: Call
                                                       ) -> None:
    command = (*COMMAND, "--halving", "--batch", "1,2")
    data = json_of(*command)
    # Of the second, the space has one alone.
    assert [one["candidates"] for one in data["layers"]] == [8, 1]
    assert [one["problem"] for one in data["layers"]] == [TOKEN, TOKEN.replace("n1", "n2", 1)]
    assert data["complete"]
    assert data["layers"][0]["best"]["name"] == FASTEST
    assert sorted({repeats for _, repeats in Scripted.timed}) == [2, 4, 6]
    assert "batch" in call(*command, "-v").out.splitlines()[1]


@pytest.mark.parametrize(("further", "option"), [
    (("--workers", "2"), "--workers"), (("--executor", "a:b"), "--executor")])
def test_halving_has_no_workers(call: Call, further: tuple[str, ...], option: str) -> None:
    result = call(*COMMAND, "--halving", *further)
    assert result.code == 2
    assert f"leave {option} out" in unwrapped(result.err)


BEHIND = ("tune", OTHER, "--top", "4", "--backend", "tuning_backends:Graphs", "--behind")


@pytest.mark.parametrize("further", [(), ("--halving",)])
def test_depthwise_layers_are_tuned_behind_a_pointwise_one(
        further: tuple[str, ...], call: Call, json_of: Callable[..., Any]) -> None:
    result = call(*BEHIND, TOKEN, *further)
    assert result.code == 0, result.err
    assert ("depthwise layers (forward): the cold time + that behind a pointwise layer; 1 other "
            "layer tuned as always") in unwrapped(result.out)
    data = json_of(*BEHIND, *further)
    assert (data["behind"], data["complete"], data["policy"]) == (True, True, "cold graph")
    best = data["layers"][0]["best"]
    cold, behind = scripted_seconds(best["name"]), behind_seconds(best["name"])
    assert f"{cold * 1e6:,.2f} + {behind * 1e6:,.2f}" in unwrapped(result.out)
    assert best["seconds"] == pytest.approx(cold + behind)
    assert best["samples"] == pytest.approx([cold] * len(best["samples"]))
    assert best["behind"] == pytest.approx([behind] * len(best["behind"]))
    assert "other layer" not in call(*BEHIND, *further).out


def test_a_backend_without_graphs_tunes_nothing_behind(call: Call) -> None:
    result = call(*COMMAND, "--behind")
    assert (result.code, result.out) == (2, "")
    assert "backend scripted has none here (it times by 'hot host')" in unwrapped(result.err)


@pytest.mark.parametrize(("further", "said"), [
    (("P13",), "leave out layers"), (("--halving",), "leave out --halving"),
    (("--behind", "--algorithm", "gemm"), "leave out --algorithm, --behind"),
    (("--device", "h200"), "leave out --device"),
    (("--input", "3x8x8"), "not the shape of one batch of images"),
    (("--backend", "reference"), "a captured graph of a GPU"),
    (("--batch", "two"), "--batch must be an integer"),
])
def test_what_does_not_go_with_a_network_is_refused(call: Call, further: tuple[str, ...],
                                                    said: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    result = call("tune", "--network", "tiny_networks:gated", "--backend", "reference", *further)
    assert result.code in (2, 3)
    assert said in unwrapped(result.err)
