"""Shipped tilings: looked up, judged before they are used, and ignored by name where they fail."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_calls import Call, unwrapped
from recorded import DEVICE, IDENTITY, PROBLEM, REFERENCE, SPACE, TILINGS, TOKEN, keep, measured

import dscore
from dscore import api
from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling
from dscore.algorithms.registry import names
from dscore.calling import choice, kernels
from dscore.checking import bound
from dscore.core import catalog
from dscore.core.backend import Backend
from dscore.core.errors import InfeasibleError, SpecError
from dscore.core.plan import Violation
from dscore.core.tiling import Tiling
from dscore.core.token import parse_problem
from dscore.solving import solver
from dscore.tuning import records, search, shipped_hints, tune

# Far down the model's order, so that it is chosen by nothing but a hint.
HINTED = SPACE[int(SPACE.ranked()[20])]
EXAMPLE = parse_problem("n2c6h7w5_o6k3s2p1g6")


def stated(tiling: Tiling, us: float = 3.25, **changes: object) -> str:
    fields = {"us": us, **tiling.as_json(), **changes}
    listed = ", ".join(f"{name} = {json.dumps(value)}" for name, value in fields.items())
    return f"{{ {listed} }}"


def hints(*lines: str, device: str = "z100sm") -> shipped_hints.ShippedHints:
    text = f'device = "{device}"\n[hints]\n' + "".join(f"{line}\n" for line in lines)
    return shipped_hints.parse_hints(text, "test.toml")


Ship = Callable[..., None]


@pytest.fixture
def ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ship]:
    """Make hints of lines known as those that are shipped for z100sm; the cache is empty."""
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(records, "_decisions", {})
    kernels.solved_kernel.cache_clear()
    tune.on_demand.cache_clear()

    def shipped(*lines: str) -> None:
        hints_of_lines = hints(*lines)
        monkeypatch.setattr(shipped_hints, "shipped", {"z100sm": hints_of_lines}.get)
        monkeypatch.setattr(shipped_hints, "all_shipped", lambda: [hints_of_lines])

    yield shipped
    kernels.solved_kernel.cache_clear()


# The look-up.

@pytest.mark.parametrize(("token", "known"), [
    (TOKEN, True), (f"{TOKEN}_bias", True), (f"{TOKEN}_silu", True), (f"{TOKEN}_bias_relu6", True),
    (f"{TOKEN}_float16", False), (f"{TOKEN}_nhwc", False), ("n2c8h6w6_o16k1", False),
    ("n1c8h6w6_o17k1", False)])
def test_bias_and_activation_do_not_matter(token: str, known: bool) -> None:
    device_hints, problem = hints(f"{TOKEN} = {stated(HINTED)}"), parse_problem(token)
    plan = solver.make_plan(problem, DEVICE, HINTED) if known else None
    assert device_hints.plan(problem, DEVICE) == plan
    assert device_hints.microseconds(problem, DEVICE) == (3.25 if known else None)
    assert device_hints.ignored(DEVICE) == ()


@pytest.mark.parametrize(("line", "name", "message"), [
    (f"{TOKEN} = {stated(ChannelDistributionTiling(1, 64, 64, 64, 64))}", TOKEN, "E-THREADS"),
    (f"{TOKEN} = {{ wave_w = 1 }}", TOKEN, "hint: not a ChannelDistributionTiling: missing"),
    (f"{TOKEN} = {stated(HINTED)[:-2]}, wide = 1 }}", TOKEN, "unknown wide"),
    (f"{TOKEN} = {stated(HINTED, algorithm='fourier')}", TOKEN,
     f"hint: algorithm must be one of {', '.join(names())}"),
    (f"{TOKEN} = {stated(HINTED, algorithm='direct')}", TOKEN, "hint: not a DirectTiling"),
    (f"{TOKEN} = {{ threads = 0, thread_c = 1 }}", TOKEN, "threads must be positive"),
    (f"{TOKEN} = {{ threads = [64], thread_c = 1 }}", TOKEN, "threads must be an integer"),
    (f"{TOKEN} = {{ thread_h = 1, thread_w = 1, lanes_h = 1, lanes_w = 1, planes = 1 }}", TOKEN,
     "does not run"),
    (f"{TOKEN} = 3", TOKEN, "a hint is a table"), (f"{TOKEN} = {{ }}", TOKEN, "hint: not a"),
    (f"{TOKEN}_bias = {stated(HINTED)}", f"{TOKEN}_bias", f"a hint for it is named {TOKEN}"),
    (f"n1c8h6w6_o16k1p0 = {stated(HINTED)}", "n1c8h6w6_o16k1p0", "is named"),
    (f"P13 = {stated(HINTED)}", "P13", "not a problem")])
def test_a_hint_at_fault_is_ignored_and_named(line: str, name: str, message: str) -> None:
    device_hints = hints(line)
    assert device_hints.plan(PROBLEM, DEVICE) is None
    [ignored] = device_hints.ignored(DEVICE)
    assert ignored.name == name
    assert message in ignored.reason


def test_a_hint_without_its_algorithm_is_read_as_before() -> None:
    named = f"{TOKEN} = {stated(HINTED)}"
    bare = named.replace(f'algorithm = "{HINTED.algorithm}", ', "")
    assert bare != named
    assert hints(bare).plan(PROBLEM, DEVICE) == hints(named).plan(PROBLEM, DEVICE) is not None


def test_a_device_of_that_name_with_tighter_limits_is_obeyed() -> None:
    device_hints = hints(f"{TOKEN} = {stated(HINTED)}")
    small = replace(DEVICE, threads_per_block=64, registers_per_thread=16)
    assert device_hints.plan(PROBLEM, small) is None
    assert device_hints.ignored(small)


@pytest.mark.parametrize("text", [
    "device = ", "", "device = 3", 'device = "z100sm"\nhints = 3', "[hints]", "\ufffd"])
def test_a_file_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"mine\.toml: "):
        shipped_hints.parse_hints(text, "mine.toml")


def test_a_time_that_is_no_number_is_none() -> None:
    timeless = hints(f"{TOKEN} = {stated(HINTED).replace('3.25', '[]')}")
    assert timeless.plan(PROBLEM, DEVICE) is not None
    assert timeless.microseconds(PROBLEM, DEVICE) is None
    assert hints(f"{TOKEN} = 1").microseconds(PROBLEM, DEVICE) is None


# What is shipped.

def test_a_device_without_a_file_has_no_hints() -> None:
    assert shipped_hints.shipped("xavier") is None
    assert shipped_hints.shipped_plan(PROBLEM, catalog.device("xavier")) is None


@pytest.mark.parametrize(("text", "message"), [
    ("device = ", "not TOML"), ('device = "h200"\n', "is of h200"), (b"\xff", "not TOML"),
    ('device = "z100sm"\n', None)])
def test_a_shipped_file_at_fault_is_ignored_and_named(
        text: str | bytes, message: str | None, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tunings").mkdir()
    (tmp_path / "tunings" / "z100sm.toml").write_bytes(
        text if isinstance(text, bytes) else text.encode())
    (tmp_path / "tunings" / "notes.txt").write_text("")
    monkeypatch.setattr(shipped_hints, "files", lambda package: tmp_path)
    shipped_hints.shipped.cache_clear()
    [shipped] = shipped_hints.all_shipped()
    shipped_hints.shipped.cache_clear()
    assert shipped.plan(PROBLEM, DEVICE) is None
    assert [one.name for one in shipped.ignored(DEVICE)] == ["tunings/z100sm.toml"] * bool(message)
    assert message is None or message in shipped.ignored(DEVICE)[0].reason


# Who is asked first.

def test_the_record_then_the_hint_then_the_models_first(ship: Ship) -> None:
    def tiling() -> Tiling:
        return choice.default_plan(PROBLEM, DEVICE, REFERENCE, "reference").tiling

    first = solver.best_plan(PROBLEM, DEVICE).tiling
    assert tiling() == dscore.plan_for(PROBLEM).tiling == first
    ship(f"{TOKEN} = {stated(HINTED)}")
    assert tiling() == dscore.plan_for(PROBLEM).tiling == HINTED != first
    assert dscore.plan_for(PROBLEM, rules="paper") == solver.best_plan(PROBLEM, DEVICE, "paper")
    keep(measured(TILINGS[3], 1e-6, identity=IDENTITY))
    assert tiling() == TILINGS[3] != HINTED


def test_the_arithmetic_asked_for_comes_before_all(ship: Ship) -> None:
    def tiling(arithmetic: Any, problem: Any = PROBLEM, device: Any = DEVICE) -> Tiling:
        return choice.default_plan(problem, device, REFERENCE, "reference", arithmetic).tiling

    hopper, layer = catalog.device("h200"), catalog.layers()["P13"]
    shipped = tiling(None, layer, hopper)
    assert tiling("tf32x3", layer, hopper) == shipped != tiling("plain", layer, hopper)
    assert getattr(tiling("plain", layer, hopper), "arithmetic", None) == "plain"
    ship(f"{TOKEN} = {stated(HINTED)}")
    keep(measured(TILINGS[3], 1e-6, identity=IDENTITY))
    assert tiling("plain") == tiling(None) == TILINGS[3]
    with pytest.raises(InfeasibleError, match="no tiling computes by tf32x3"):
        tiling("tf32x3")
    with pytest.raises(SpecError, match="must be one of plain, tf32x3, matrix16, matrix8; got"):
        tiling("exact")


def test_a_plan_of_another_arithmetic_is_refused() -> None:
    plan = dscore.plan_for("P13", "h200")
    assert choice.callers_plan(plan.problem, plan.device, plan) == plan
    with pytest.raises(SpecError, match="does not compute by arithmetic='plain'"):
        choice.callers_plan(plan.problem, plan.device, plan, "plain")


def test_a_call_runs_the_hint_and_is_right(ship: Ship) -> None:
    space = solver.solve(EXAMPLE, DEVICE)
    tiling = space[int(space.ranked()[-1])]
    ship(f"n2c6h7w5_o6k3s2p1g6 = {stated(tiling)}")
    x, w, _ = bound.sample(EXAMPLE, 0)
    y = dscore.conv(x, w, stride=2, padding=1, groups=6, backend="reference")
    assert bound.compare(y, bound.expected(EXAMPLE, x, w)).ok
    assert kernels.solved_kernel(EXAMPLE, "reference").plan.tiling == tiling


@pytest.mark.deep
def test_tuning_in_a_call_comes_before_the_hint(ship: Ship,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    ship(f"{TOKEN} = {stated(HINTED)}")
    monkeypatch.setenv("DSCORE_TUNE", "on")
    plan = choice.default_plan(PROBLEM, DEVICE, REFERENCE, "reference")
    assert plan == records.tuned_plan(PROBLEM, DEVICE, REFERENCE)


def test_tuning_in_a_call_gives_the_best_of_the_arithmetic_asked_for(
        ship: Ship, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fastest on record may compute otherwise."""
    arithmetics: list[Any] = []

    def recorded(*given: Any) -> None:
        arithmetics.append(given[3:])

    ship()
    monkeypatch.setenv("DSCORE_TUNE", "on")
    monkeypatch.setattr(tune, "on_demand", lambda *given: solver.best_plan(*given[:2]))
    monkeypatch.setattr(records, "tuned_plan", recorded)
    plan = choice.default_plan(PROBLEM, DEVICE, REFERENCE, "reference", "plain")
    assert arithmetics == [("plain",), ("plain",)]
    assert plan == solver.best_plan(PROBLEM, DEVICE, arithmetic="plain")


def test_a_hint_that_the_backend_refuses_is_passed_over(ship: Ship) -> None:
    class Choosy:
        any_device, compiles, name, algorithms = True, False, "choosy", None

        def refuses(self, plan: Any) -> tuple[Violation, ...]:
            return (Violation("E-X", "x", 1, 0),) * (plan.tiling == HINTED)

    ship(f"{TOKEN} = {stated(HINTED)}")
    backend: Any = Choosy()
    assert isinstance(REFERENCE, Backend)
    plan = shipped_hints.untuned_plan(PROBLEM, DEVICE, backend=backend)
    assert plan == solver.best_plan(PROBLEM, DEVICE)
    assert shipped_hints.untuned_plan(PROBLEM, DEVICE, backend=REFERENCE).tiling == HINTED


def test_tuning_tries_the_hint_too(ship: Ship) -> None:
    ship(f"{TOKEN} = {stated(HINTED)}")
    request = tune.search_request(DEVICE, "reference", top=3)
    tilings = [plan.tiling for plan in search.candidates(request, REFERENCE, PROBLEM)]
    assert tilings == [*TILINGS[:3], HINTED]
    ship(f"{TOKEN} = {stated(TILINGS[1])}")
    assert [plan.tiling for plan in search.candidates(request, REFERENCE, PROBLEM)] == TILINGS[:3]


def test_a_hint_of_another_algorithm_than_is_tuned_is_not_tried(ship: Ship) -> None:
    ship(f"{TOKEN} = {stated(HINTED)}")
    request = tune.search_request(DEVICE, "reference", top=3, algorithm="direct")
    tilings = [plan.tiling for plan in search.candidates(request, REFERENCE, PROBLEM)]
    assert len(tilings) == 3
    assert {tiling.algorithm for tiling in tilings} == {"direct"}
    own = tune.search_request(DEVICE, "reference", top=3, algorithm=HINTED.algorithm)
    assert HINTED in [plan.tiling for plan in search.candidates(own, REFERENCE, PROBLEM)]


# What a user is told.

def test_explain_and_run_say_who_chose(ship: Ship, call: Call, json_of: Callable[..., Any]) -> None:
    fields = ",".join(f"{name}={value}" for name, value in TILINGS[4].as_dict().items())
    assert re.search(r"^chosen by +the cost model$", call("explain", TOKEN).out, re.M)
    assert "hints" not in call("run", TOKEN, "--backend", "reference").out
    ship(f"{TOKEN} = {stated(HINTED)}")
    out = call("explain", TOKEN).out
    assert re.search(r"^chosen by +a shipped hint, measured at 3.25 µs$", out, re.M)
    assert call("explain", TOKEN, "--device", "z100sm").out == f"{api.explain(TOKEN, 'z100sm')}\n"
    assert json_of("explain", TOKEN, "--tiling", fields)["chosen_by"] == "the caller"
    result = call("run", TOKEN, f"{TOKEN}_relu", "P42", "--backend", "reference")
    assert result.code == 0
    assert "2 planned by shipped hints" in result.out
    layer, = json_of("run", TOKEN, "--backend", "reference")["layers"]
    assert layer["chosen_by"] == "a shipped hint, measured at 3.25 µs"
    assert layer["tiling"] == HINTED.as_json()


def test_env_counts_hints_and_names_the_ignored(ship: Ship, call: Call,
                                                json_of: Callable[..., Any]) -> None:
    ship(f"{TOKEN} = {stated(HINTED)}", "n1c8h6w6_o8k1 = 3")
    out = unwrapped(call("env").out)
    assert "z100sm: 2 hints shipped, 1 ignored n1c8h6w6_o8k1: a hint is a table" in out
    [record] = json_of("env")["hints"]
    assert (record["device"], record["shipped"]) == ("z100sm", 2)
    assert [one["name"] for one in record["ignored"]] == ["n1c8h6w6_o8k1"]
