"""Tuning in a network: what a graph's kernels take by their ends, and which tilings are tried."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tuning_backends import Scripted, scripted_seconds

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from network_graphs import SCRIPTED, Graph  # noqa: E402

import dscore  # noqa: E402
from dscore.bench import network_tuning  # noqa: E402
from dscore.bench.network_tuning import NetworkTuning  # noqa: E402
from dscore.bench.network_workplace import Workplace  # noqa: E402
from dscore.calling import choice  # noqa: E402
from dscore.core.backend import backend  # noqa: E402
from dscore.core.errors import SpecError, UnavailableError  # noqa: E402
from dscore.measuring.kernel_ends import KernelEnd, KernelTimes, times_by_ends  # noqa: E402
from dscore.measuring.timing import NoGraphError  # noqa: E402
from dscore.tuning import records  # noqa: E402
from dscore.tuning.hint_file import best_hints  # noqa: E402
from dscore.tuning.measurement import records_of  # noqa: E402
from dscore.tuning.shipped_hints import hint_token  # noqa: E402

NETWORK, SHAPE = "tiny_networks:gated", (1, 3, 8, 8)


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(records, "_decisions", {})
    for name, fresh in (("roles", {}), ("ran", []), ("timed", []), ("name", SCRIPTED)):
        monkeypatch.setattr(Scripted, name, fresh)
    monkeypatch.setattr(network_tuning, "_TURNS", 1)
    monkeypatch.setattr(network_tuning, "_AGAIN", 1)
    monkeypatch.setattr(network_tuning, "_FINALISTS", 2)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def tuning(graph: Any, **options: Any) -> NetworkTuning:
    return NetworkTuning(NETWORK, SHAPE, Workplace(SCRIPTED, 0), measure=graph,
                         **{"top": 4, **options})


def test_every_layer_gets_the_fastest_of_what_was_tried() -> None:
    graph = Graph()
    one = tuning(graph)
    one.run()
    result = one.result
    assert len(result.layers) > 3
    assert result.complete
    for layer in result.layers:
        tried = {names[layer.default.token] for names in graph.rounds}
        assert len(tried) == 4
        assert layer.best.tiling.name == min(tried, key=scripted_seconds)
        assert layer.seconds(layer.best) == pytest.approx(min(map(scripted_seconds, tried)))
    assert result.layers[0].launches == 2
    assert choice.ASSIGNMENTS == []  # calls choose for themselves again
    assert result.before is not None
    assert result.after is not None
    assert result.after < result.before
    assert {layer.default.token for layer in result.changed} == {
        layer.default.token for layer in result.layers if layer.best != layer.default}


def test_records_have_the_short_name_of_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_tuning, "short_name", {NETWORK: "gated"}.get)
    tuning(Graph(), top=1).run()
    assert {str(record.identity.policy) for record in records_of(records.everything())} == {
        "network graph gated"}


def test_calls_and_hints_then_take_what_was_fastest_in_the_network() -> None:
    one = tuning(Graph())
    one.run()
    layer = one.result.changed[0]
    problem, device = layer.default.problem, layer.default.device
    assert records.tuned_plan(problem, device, backend(SCRIPTED)) == layer.best
    kept = records.everything()
    assert {str(record.identity.policy) for record in records_of(kept)} == {
        f"network graph {NETWORK}"}
    hints = best_hints(kept, device)
    worth = {hint_token(one.default.problem) for one in one.result.changed
             if one.seconds(one.default) >= 1.02 * one.seconds(one.best)}
    assert {hint.problem for hint in hints.hints} == worth
    assert len(worth) < len(one.layers)
    assert all("no tiling gained 2%" in left.reason for left in hints.left_out)
    line = next(hint.line for hint in hints.hints if hint.problem == hint_token(problem))
    assert f'network = "{NETWORK}"' in line
    assert "us = " not in line


def test_a_wrong_kernel_is_refused_and_never_runs_in_the_network() -> None:
    first = tuning(Graph())
    first.run()
    wrong = {layer.best.tiling.name for layer in first.result.changed}
    Scripted.roles = dict.fromkeys(wrong, "wrong")
    graph = Graph()
    again = NetworkTuning(NETWORK, (2, *SHAPE[1:]), Workplace(SCRIPTED, 0), 4, measure=graph)
    again.run()
    ran = {names[layer.default.token] for layer in again.layers for names in graph.rounds[1:]}
    assert len(ran) > 4
    assert not ran & wrong
    assert sum(layer.refused for layer in again.layers) > 0


def test_the_same_command_goes_on_where_a_run_ended() -> None:
    short, long = Graph(), Graph()
    tuning(short, top=2).run()
    rest = tuning(long, top=4)
    rest.run()
    layer = rest.layers[0]
    before = {names[layer.default.token] for names in short.rounds}
    assert len(before) == 2
    assert layer.tried == 4
    first_rounds = [names[layer.default.token] for names in long.rounds[1:3]]
    assert not before & set(first_rounds)


def test_no_round_is_begun_past_the_end_of_the_time() -> None:
    graph = Graph()
    one = tuning(graph, until=0.0)
    one.run()
    assert not one.result.complete
    assert one.result.after == one.result.before  # nothing else was tried


def test_what_was_built_and_not_timed_is_not_done() -> None:
    class Ending(Graph):
        """Ends the time in the first round of a wave."""

        def __call__(self, subject: Any) -> Any:
            if len(self.rounds) == 1:
                one._until = 0.0
            return super().__call__(subject)

    one = tuning(Ending())
    one.run()
    assert sum(layer.waiting for layer in one.layers) > 0
    assert not one.result.complete


def test_a_wave_that_does_not_build_tells_so_to_whom_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Any, plans: Any) -> None:
        raise OSError("no room on the disk")

    monkeypatch.setattr(NetworkTuning, "_build", fails)
    with pytest.raises(OSError, match="no room"):
        tuning(Graph()).run()


def test_what_does_not_compile_is_refused_by_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    bad: set[str] = set()

    def builds(self: Any, plans: list[list[Any]]) -> list[dict[str, str]]:
        bad.update(of_layer[0].tiling.name for of_layer in plans if of_layer)
        return [{of_layer[0].tiling.name: "too hard"} if of_layer else {} for of_layer in plans]

    monkeypatch.setattr(NetworkTuning, "_build", builds)
    graph = Graph()
    one = tuning(graph)
    one.run()
    reasons = {m.refused for m in records.everything() if m.refused}
    assert reasons == {"not compiled: too hard"}
    assert sum(layer.refused for layer in one.layers) >= len(bad) > 0
    for layer in one.layers:
        ran = {names[layer.default.token] for names in graph.rounds}
        assert len(ran) == layer.tried - layer.refused


def test_a_host_and_a_count_of_none_are_refused() -> None:
    with pytest.raises(UnavailableError, match="a captured graph of a GPU"):
        NetworkTuning(NETWORK, SHAPE, Workplace("reference", 0))
    with pytest.raises(SpecError, match="top"):
        tuning(Graph(), top=0)


def ends(*pairs: tuple[str, float]) -> list[KernelEnd]:
    return [KernelEnd(name, at) for name, at in pairs]


def test_times_by_ends_add_up_and_leave_the_first_replays_out() -> None:
    replays = 5
    given = [one for k in range(replays) for one in ends(
        ("a", 10.0 * k + 1), ("b", 10.0 * k + 4), ("a", 10.0 * k + 9))]
    times = times_by_ends(given[::-1], replays)
    assert [(one.name, len(one.samples)) for one in times] == [("a", 2), ("b", 2), ("a", 2)]
    assert [one.samples[0] for one in times] == [2.0, 3.0, 5.0]  # the first since the end before
    assert sum(one.samples[-1] for one in times) == 10.0


@pytest.mark.parametrize("given", [
    [], ends(("a", 1), ("b", 2), ("a", 3)), ends(("a", 1), ("b", 2), ("b", 3), ("a", 4))])
def test_ends_that_make_no_equal_replays_are_refused(given: list[KernelEnd]) -> None:
    with pytest.raises(UnavailableError, match="do not make equal replays"):
        times_by_ends(given, 2)


def test_a_name_within_another_one_is_not_it() -> None:
    plan = dscore.plan_for("n1c8h4w4_o8k1", "z100sm")
    kernel = KernelTimes(f"<gate_{plan.name}>", (1.0,))
    assert re.search(re.escape(plan.name), kernel.name)
    assert network_tuning._kernels_of([kernel], plan) == []


def test_a_plan_of_two_kernels_takes_both_of_each_launch() -> None:
    plan = dscore.plan_for("n1c8h4w4_o8k1", "z100sm")
    kernels = [KernelTimes(f"run<{plan.name}{then}>", (seconds,))
               for then, seconds in (("", 1.0), ("::Then", 0.5), ("", 3.0), ("::Then", 0.5))]
    own = network_tuning._kernels_of(kernels, plan)
    assert network_tuning._launches(own) == 2
    assert network_tuning._samples_of(kernels, [plan]) == {plan.token: (2.5,)}


def test_a_network_that_is_no_graph_is_refused_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(work: Any) -> None:
        raise NoGraphError("a copy to the host")

    workplace = Workplace(SCRIPTED, 0)
    monkeypatch.setattr(workplace.runner.clock, "record", fails)
    with pytest.raises(UnavailableError, match="no graph of the network can be captured: a copy"):
        tuning(partial(network_tuning._measured, workplace)).run()


def test_a_graph_is_captured_behind_the_launches_that_prepare_it(
        monkeypatch: pytest.MonkeyPatch) -> None:
    workplace, replays = Workplace(SCRIPTED, 0), []
    monkeypatch.setattr(network_tuning, "kernel_times", lambda *given: replays.append(given) or [])

    class Counted:
        calls, settled = 0, 0

        def launch(self, index: int, stream: int) -> None:
            self.calls += 1

        def settings(self) -> Any:
            self.settled += 1
            return nullcontext()

    subject = Counted()
    times = network_tuning._measured(workplace, subject)
    assert subject.calls == subject.settled == 2 + network_tuning._TIMED_REPLAYS
    assert len(times.samples) == network_tuning._TIMED_REPLAYS
    assert len(replays) == 1
