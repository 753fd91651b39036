"""Hints out of records: the best that is right and fits, in a file that is read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_calls import Call, unwrapped
from recorded import COLD, DEVICE, HOT, IDENTITY, PROBLEM, TILINGS, TOKEN, keep, measured

from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling
from dscore.core import backend, catalog
from dscore.core.tiling import Tiling
from dscore.core.toml import parse_toml
from dscore.tuning import exchange, records, shipped_hints
from dscore.tuning.hint_file import Hint, best_hints
from dscore.tuning.measurement import Identity, Measurement
from dscore.tuning.measurement_policy import MeasurementPolicy

EVENTS = MeasurementPolicy("hot", "events")
# What hip would have measured there.
OWN = replace(IDENTITY, backend="hip", compiler="hipcc 5.2", policy=COLD,
              kernels=backend.backend("hip").identity("sm_90").kernels)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def timed(tiling: Tiling, seconds: float, **changes: Any) -> Measurement:
    return measured(tiling, *[seconds] * 15, identity=replace(OWN, **changes))


def only(*measurements: Measurement) -> Hint:
    hint, = best_hints(measurements, DEVICE).hints
    return hint


def test_the_fastest_right_tiling() -> None:
    hint = only(timed(TILINGS[0], 3e-6), timed(TILINGS[1], 2e-6),
                measured(TILINGS[2], identity=OWN, refused="WRONG"))
    assert (hint.problem, hint.tiling, hint.seconds) == (TOKEN, TILINGS[1], 2e-6)
    assert not hint.outdated


def test_a_tiling_that_another_record_refuses_is_no_hint() -> None:
    refused = measured(TILINGS[0], refused="WRONG", identity=replace(OWN, policy=EVENTS))
    fast, slow = timed(TILINGS[0], 1e-6), timed(TILINGS[1], 2e-6)
    assert only(fast, slow, refused).tiling == TILINGS[1]
    elsewhere = replace(refused, identity=replace(refused.identity, compiler="hipcc 4"))
    assert only(fast, slow, elsewhere).tiling == TILINGS[0]


def test_what_no_longer_fits_is_no_hint() -> None:
    large = ChannelDistributionTiling(1, 64, 64, 64, 64)
    assert only(timed(large, 1e-9), timed(TILINGS[0], 1e-6)).tiling == TILINGS[0]
    hint_file = best_hints([timed(large, 1e-9)], DEVICE)
    assert not hint_file.hints
    assert [(one.name, one.reason) for one in hint_file.left_out] == [
        (TOKEN, "no tiling of it that was right fits any more")]


@pytest.mark.parametrize(("preferred", "other"), [
    (dict(), dict(kernels="0" * 64)), (dict(policy=EVENTS), dict(kernels="0" * 64)),
    (dict(), dict(policy=EVENTS)), (dict(), dict(policy=HOT)),
    (dict(policy=EVENTS), dict(policy=HOT, backend="reference")),
    (dict(), dict(problem=f"{TOKEN}_bias_relu6")), (dict(), dict(device="mine"))])
def test_which_record_is_preferred(preferred: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = timed(TILINGS[0], 5e-6, **preferred), timed(TILINGS[1], 1e-6, **other)
    assert only(first, second).tiling == only(second, first).tiling == TILINGS[0]


def test_records_of_other_sources_serve_where_there_are_no_others() -> None:
    assert only(timed(TILINGS[0], 1e-6, kernels="0" * 64)).outdated
    assert only(timed(TILINGS[0], 1e-6, backend="mine")).outdated


def test_problems_that_differ_in_bias_and_activation_share_a_hint() -> None:
    hint = only(timed(TILINGS[0], 2e-6, problem=f"{TOKEN}_bias"),
                timed(TILINGS[1], 1e-6, problem=f"{TOKEN}_relu"))
    assert (hint.problem, hint.tiling) == (TOKEN, TILINGS[1])


@pytest.mark.parametrize(("measurement", "message"), [
    (timed(TILINGS[0], 1e-6, policy=HOT), "the host's clock"),
    (measured(TILINGS[0], identity=OWN, refused="WRONG"), "no tiling of it was right")])
def test_what_gives_no_hint_is_named(measurement: Measurement, message: str) -> None:
    hint_file = best_hints([measurement], DEVICE)
    assert not hint_file.hints
    [left_out] = hint_file.left_out
    assert left_out.name == TOKEN
    assert message in left_out.reason


def test_the_file_is_read_back_whole_and_does_not_depend_on_the_order() -> None:
    depthwise = catalog.find("D4")[0].problem
    tiling = records.solver.best_plan(depthwise, DEVICE).tiling
    measurements = [timed(TILINGS[2], 1.23456789e-6), timed(TILINGS[0], 4e-6),
                    timed(TILINGS[1], 5e-6, problem="n2c8h6w6_o16k1", compiler='odd "hipcc" 9'),
                    timed(tiling, 7e-6, problem="n1c384h14w14_o384k3p1g384")]
    command = "dscore cache hints --device z100sm"
    text = best_hints(measurements, DEVICE).text(command)
    assert text == best_hints(reversed(measurements), DEVICE).text(command)
    lines = text.partition("[hints]\n")[2].splitlines()
    assert lines == sorted(lines)
    assert len(lines) == 3
    assert lines[1].startswith(f"{TOKEN} = {{ us = 1.235, algorithm = \"gemm\", tile_c = ")
    hints = shipped_hints.parse_hints(text, "made")
    assert hints.ignored(DEVICE) == ()
    assert hints.plan(PROBLEM, DEVICE).tiling == TILINGS[2]  # type: ignore[union-attr]
    assert hints.plan(depthwise, DEVICE).tiling == tiling  # type: ignore[union-attr]
    head = parse_toml(text.encode(), "made")
    assert (head["device"], head["measured"]) == ("z100sm", "hip cold graph")
    assert head["machine"] == f"{DEVICE.title}, Linux x86_64"
    assert head["command"] == command
    assert head["versions"] == ('dscore 0.1.0, hipcc 5.2, odd "hipcc" 9, '
                                f"kernels {OWN.kernels[:8]}")


def test_the_command(call: Call, json_of: Callable[..., Any]) -> None:
    keep(timed(TILINGS[0], 4e-6), timed(TILINGS[1], 3e-6),
         timed(TILINGS[0], 1e-6, problem="n2c8h6w6_o16k1", policy=HOT))
    result = call("cache", "hints", "--device", "z100sm")
    assert result.code == 0
    assert shipped_hints.parse_hints(result.out, "out").plan(PROBLEM, DEVICE) is not None
    assert unwrapped(result.err) == (
        "no hint for n2c8h6w6_o16k1: timed by the host's clock, which says nothing of a device "
        "1 hint for z100sm")
    data = json_of("cache", "hints", "--device", "z100sm")
    assert [hint["tiling"] for hint in data["hints"]] == [TILINGS[1].as_json()]
    assert [one["problem"] for one in data["left_out"]] == ["n2c8h6w6_o16k1"]


def test_the_command_takes_files(call: Call) -> None:
    exchange.write("one", [timed(TILINGS[0], 4e-6, kernels="0" * 64)])
    exchange.write("two", [timed(TILINGS[1], 3e-6, kernels="0" * 64)])
    result = call("cache", "hints", "one", "two", "--device", "z100sm")
    assert 'command = "dscore cache hints one two --device z100sm"' in result.out
    assert shipped_hints.parse_hints(result.out, "out").plan(PROBLEM, DEVICE).tiling == (  # type: ignore[union-attr]
        TILINGS[1])
    assert "1 hint for z100sm, 1 of other kernel sources than today's" in result.err


@pytest.mark.parametrize(("arguments", "code", "message"), [
    ("--device z100sm", 1, "no right tiling of z100sm (gfx906) is on record"),
    ("", 2, "Missing option '--device'"), ("--device nosuch", 2, "no device is named"),
    ("nosuch --device z100sm", 2, "cannot be read")])
def test_where_there_is_nothing(call: Call, arguments: str, code: int, message: str) -> None:
    result = call("cache", "hints", *arguments.split())
    assert (result.code, result.out) == (code, "")
    assert message in unwrapped(result.err)


def test_a_hint_names_the_record_it_comes_from() -> None:
    hint = only(timed(TILINGS[0], 1e-6))
    assert isinstance(hint.record.identity, Identity)
    assert json.loads(json.dumps(hint.tiling.as_json())) == hint.tiling.as_json()


OLD = """# What was measured in spring.
# Two lines.

device = "z100sm"
machine = "Hygon Z100SM, Linux"
versions = "dscore 0.0.9, hipcc 5.2"
measured = "hip cold events"
command = "by hand"

[hints]
n1c8h6w6_o16k1 = { us = 9.5, algorithm = "direct", threads = 64, thread_c = 2 }
n9c8h6w6_o16k1 = { us = 1.25, algorithm = "direct", threads = 64, thread_c = 2 }
"""


def test_hints_go_into_a_file_that_keeps_its_others(call: Call) -> None:
    assert OLD.count(TOKEN + " ") == 1
    Path("old.toml").write_text(OLD)
    keep(timed(TILINGS[0], 4e-6), timed(TILINGS[1], 3e-6))
    result = call("cache", "hints", "--device", "z100sm", "--onto", "old.toml")
    assert result.code == 0, result.err
    hints = shipped_hints.parse_hints(result.out, "out")
    assert hints.plan(PROBLEM, DEVICE).tiling == TILINGS[1]  # type: ignore[union-attr]
    assert hints.microseconds(PROBLEM, DEVICE) == 3.0
    assert hints.microseconds(PROBLEM.with_batch(9), DEVICE) == 1.25
    assert OLD.splitlines()[-1] in result.out.splitlines()
    assert result.out.startswith("# What was measured in spring.\n# Two lines.\n\ndevice")
    head = parse_toml(result.out.encode(), "out")
    assert head["versions"] == ("dscore 0.0.9, hipcc 5.2, dscore 0.1.0, "
                                f"kernels {OWN.kernels[:8]}")
    assert head["measured"] == "hip cold events, hip cold graph"
    lines = result.out.partition("[hints]\n")[2].splitlines()
    assert lines == sorted(lines)
    Path("new.toml").write_text(result.out)
    assert call("cache", "hints", "--device", "z100sm", "--onto", "new.toml"
                ).out.partition("[hints]")[2] == result.out.partition("[hints]")[2]


@pytest.mark.parametrize(("text", "message"), [
    (OLD.replace("z100sm", "h200", 1), "old.toml holds hints of h200, not of z100sm"),
    ("nonsense", "old.toml"), (None, "cannot be read")])
def test_a_file_of_another_kind_is_refused(call: Call, text: str | None, message: str) -> None:
    if text is not None:
        Path("old.toml").write_text(text)
    keep(timed(TILINGS[0], 4e-6))
    result = call("cache", "hints", "--device", "z100sm", "--onto", "old.toml")
    assert (result.code, result.out) == (2, "")
    assert message in unwrapped(result.err)
