"""Depthwise tilings that are timed behind a pointwise layer as well as cold."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from profiles import deep
from tuning_backends import Compiled, Graphs, Scripted, behind_seconds, scripted_seconds

from dscore.core import catalog
from dscore.core.backend import backend
from dscore.core.errors import CompileError, SpecError, UnavailableError
from dscore.core.numerics import layer_types
from dscore.core.spec import LAYOUTS
from dscore.core.token import parse_problem, problem_token
from dscore.ops import operands_of, output_of
from dscore.solving import solver
from dscore.tuning import behind, records, tune
from dscore.tuning.behind import BehindEvaluator, follows_pointwise, layer_before, plan_before
from dscore.tuning.evaluator import BriefEvaluator, RunnerEvaluator
from dscore.tuning.measurement import records_of
from dscore.tuning.paired import BEHIND, COLD, PairedRecord
from dscore.tuning.search import SearchResult

PROBLEM, POINTWISE = parse_problem("n2c8h6w6_o8k3p1g8"), parse_problem("n1c8h6w6_o16k1")
DEVICE = catalog.device("z100sm")
SPACE = solver.solve(PROBLEM, DEVICE)
FIRST = [SPACE[int(i)] for i in SPACE.ranked()[:6]]
GRAPHS = "tuning_backends:Graphs"


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(records, "_decisions", {})
    for faults in (Scripted, Compiled, Graphs):
        monkeypatch.setattr(faults, "roles", {})
        for log in ("ran", "timed", "compiled"):
            monkeypatch.setattr(faults, log, [])


def tuned(*problems: Any, **options: Any) -> list[SearchResult]:
    usual: dict[str, Any] = {"device": DEVICE, "backend": GRAPHS, "top": 6, "behind": True}
    return tune.tune_all(problems or [PROBLEM], **{**usual, **options})


def total(name: str) -> float:
    return scripted_seconds(name) + behind_seconds(name)


def stored() -> dict[str, set[str]]:
    """Names of the tilings on record, by the way in which they were timed."""
    return {str(record.identity.policy): set(record.configurations)
            for record in records_of(records.everything())}


HALVING = pytest.mark.parametrize("halving", [deep(False), True])


@HALVING
def test_the_least_sum_of_both_times_is_found(halving: bool) -> None:
    one, = tuned(halving=halving)
    assert one.best is not None
    names = list(one.record.configurations)
    assert {tiling.name for tiling in FIRST} < set(names)
    assert one.best.tiling.name == min(names, key=total)
    assert one.best.tiling.name not in (min(names, key=scripted_seconds),
                                        min(names, key=behind_seconds))
    assert one.best.seconds == pytest.approx(total(one.best.tiling.name))
    assert one.gain == pytest.approx(total(FIRST[0].name) / total(one.best.tiling.name))
    assert (one.complete, one.tried) == (True, one.candidates)
    assert stored() == {"cold graph": set(names), "behind graph": set(names)}
    assert records.best(PROBLEM, DEVICE, backend(GRAPHS)) == one.best.tiling


@HALVING
def test_the_fastest_by_the_sum_are_measured_for_long_in_both_ways(halving: bool) -> None:
    one, = tuned(halving=halving)
    ranked = sorted(one.record.configurations, key=total)
    assert isinstance(one.record, PairedRecord)
    long = {name for record in (one.record.cold, one.record.behind)
            for name, c in record.configurations.items() if c.count >= 12}
    assert long == set(ranked[:2 if halving else 8])
    assert all(len(record.configurations[name].samples) >= 12 for name in long
               for record in (one.record.cold, one.record.behind))


@HALVING
def test_each_way_of_timing_has_a_record_of_its_own(halving: bool) -> None:
    one, = tuned(halving=halving)
    assert isinstance(one.record, PairedRecord)
    for record, policy, seconds in ((one.record.cold, COLD, scripted_seconds),
                                    (one.record.behind, BEHIND, behind_seconds)):
        assert record.identity.policy == policy
        for name, configuration in record.configurations.items():
            assert configuration.seconds == pytest.approx(seconds(name))


def test_all_tiles_of_a_thread_are_among_the_candidates() -> None:
    one, = tuned(top=3)
    tiles = {(c.tiling.thread_h, c.tiling.thread_w)  # type: ignore[attr-defined]
             for c in one.record.configurations.values()}
    firsts = dict.fromkeys((SPACE[int(i)].thread_h, SPACE[int(i)].thread_w)  # type: ignore[attr-defined]
                           for i in SPACE.ranked())
    assert tiles >= set(list(firsts)[:3])
    assert one.tried <= 6


@pytest.mark.deep
@HALVING
def test_cold_times_on_record_are_not_taken_again_and_their_best_is_tried(halving: bool) -> None:
    cold, = tuned(behind=False, top=40)
    assert cold.best is not None
    before = cold.record.measurements
    one, = tuned(top=2, halving=halving)
    assert cold.best.tiling.name in one.record.configurations
    assert isinstance(one.record, PairedRecord)
    names = {m.tiling.name for m in one.record.cold.measurements - before}
    # Those alone of which there are few samples, and which are among the fastest of both.
    assert all(cold.record.configurations[name].count < 12 for name in names)


@HALVING
def test_other_layers_are_tuned_as_always(halving: bool) -> None:
    usual = tuned(POINTWISE, behind=False, halving=halving)
    names = set(usual[0].record.configurations)
    again, depthwise = tuned(POINTWISE, PROBLEM, halving=halving)
    assert again.record == usual[0].record
    assert type(depthwise.record) is PairedRecord
    assert {m.identity.problem for m in records.everything()
            if m.identity.policy == BEHIND} == {problem_token(PROBLEM)}
    assert set(again.record.configurations) == names


FAULTS = ("wrong", "spills", "raises", "uncompiled")


@HALVING
def test_a_kernel_at_fault_never_wins(halving: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    roles = dict(zip([tiling.name for tiling in FIRST], FAULTS, strict=False))
    monkeypatch.setattr(Graphs, "roles", roles)
    one, = tuned(halving=halving)
    assert {c.tiling.name for c in one.record.refused} == set(roles)
    assert one.complete
    assert one.best is not None
    assert one.best.tiling.name == min((n for n in one.record.configurations if n not in roles),
                                       key=total)


@HALVING
@pytest.mark.parametrize("at", [deep(0), 3])
def test_an_interruption_between_both_times_loses_nothing(halving: bool, at: int,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    calls, seconds = [], BehindEvaluator.seconds

    def interrupted(self: Any, plan: Any, repeats: int) -> Any:
        calls.append(plan.tiling.name)
        if len(calls) > at:
            raise KeyboardInterrupt
        return seconds(self, plan, repeats)

    with monkeypatch.context() as patch:
        patch.setattr(BehindEvaluator, "seconds", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tuned(halving=halving)
    kept = records.everything()
    assert len(stored()["cold graph"]) == at + 1
    assert stored().get("behind graph", set()) == set(calls[:at])
    one, = tuned(halving=halving)
    assert one.complete
    assert kept < records.everything()
    whole = {str(m.identity.policy) + m.tiling.name for m in records.everything()}
    assert len(whole) == 2 * one.tried
    again, = tuned(halving=halving)
    assert again.record == one.record


def test_a_pointwise_layer_that_does_not_run_is_no_fault_of_those_behind_it(
        monkeypatch: pytest.MonkeyPatch) -> None:
    before = plan_before(PROBLEM, DEVICE, backend(GRAPHS))
    monkeypatch.setattr(Graphs, "roles", {before.tiling.name: "uncompiled"})
    with pytest.raises(UnavailableError, match="n2c8h6w6_o8k1_bias, behind which"):
        tuned()
    assert set(stored()) == {"cold graph"}
    assert not any(m.refused for m in records.everything())


def test_both_layers_that_take_less_than_one_of_them_end_the_run(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behind.BehindEvaluator, "_alone", 1.0)
    layers = rf"{problem_token(layer_before(PROBLEM))} and {problem_token(PROBLEM)} took \d+\.\d\d"
    with pytest.raises(UnavailableError, match=f"{layers} us less in turn.*without behind"):
        tuned()
    assert set(stored()) == {"cold graph"}


@pytest.mark.parametrize("make", [RunnerEvaluator, BriefEvaluator])
def test_the_output_of_the_first_layer_is_x_of_the_second(make: Any) -> None:
    graphs = backend(GRAPHS)
    cold = make(graphs, DEVICE, PROBLEM, 0)
    evaluator, plan = BehindEvaluator(cold, graphs, DEVICE, PROBLEM, 0), SPACE.plan(0)
    assert evaluator.seconds(plan, 4) == pytest.approx([behind_seconds(plan.tiling.name)] * 4)
    assert cold.seconds(plan, 2) == pytest.approx([scripted_seconds(plan.tiling.name)] * 2)
    evaluator.seconds(plan, 1)
    before = plan_before(PROBLEM, DEVICE, graphs).tiling.name
    first, second = (cold.runner.sets_of[name] for name in (before, plan.tiling.name))
    assert len(first) == len(second) == 3
    assert all(one[-1] is other[0] for one, other in zip(first, second, strict=True))
    assert len({id(one[0]) for one in second}) == 3


@pytest.mark.parametrize("dtype", layer_types())
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layer_before_writes_what_the_layer_reads(dtype: str, layout: Any) -> None:
    for layer in catalog.layers().values():
        problem = replace(layer, spec=layer.spec.in_form(dtype=dtype, layout=layout), batch=2)
        if not follows_pointwise(problem):
            continue
        x, before = operands_of(problem)[0], layer_before(problem)
        written = output_of(before)
        assert (x.name, x.shape, x.element, x.layout) == (
            "x", written.shape, written.element, written.layout)
        assert before.spec.kind == "pointwise"
        assert before.spec.in_channels % 8 == 0


def test_the_layer_before_is_computed_as_a_call_would() -> None:
    graphs = backend(GRAPHS)
    before = layer_before(PROBLEM)
    assert plan_before(PROBLEM, DEVICE, graphs) == solver.best_plan(before, DEVICE)
    best = tuned(before, behind=False, top=20)[0].best
    assert best is not None
    assert plan_before(PROBLEM, DEVICE, graphs).tiling == best.tiling


@pytest.mark.parametrize(("token", "applies"), [
    ("n1c8h6w6_o8k3p1g8", True), ("n1c8h6w6_o16k3p1g8_int8_nhwc_bias", True),
    ("n1c8h6w6_o16k1", False), ("n1c8h6w6_o8k3p1g4", False),
    ("input_gradient_n1c8h6w6_o8k3p1g8", False), ("weight_gradient_n1c8h6w6_o8k3p1g8", False)])
def test_depthwise_layers_forward_alone_follow_a_pointwise_one(token: str, applies: bool) -> None:
    assert follows_pointwise(parse_problem(token)) == applies


@pytest.mark.parametrize(("name", "policy"), [
    ("reference", "hot host"), ("tuning_backends:Scripted", "hot host"),
    ("tuning_backends:Gpu", "cold host")])
def test_backends_without_graphs_are_refused_by_name(name: str, policy: str) -> None:
    with pytest.raises(SpecError, match=rf"backend {backend(name).name} has none .*'{policy}'"):
        tuned(backend=name)
    assert records.everything() == frozenset()


def test_a_timer_of_the_callers_own_is_refused() -> None:
    with pytest.raises(SpecError, match="leave timer or behind out"):
        tuned(timer=lambda *_: [1.0], policy=COLD)


def test_workers_are_given_the_request() -> None:
    request = tune.search_request(DEVICE, GRAPHS, behind=True)
    assert pickle.loads(pickle.dumps(request)) == request
    with ThreadPoolExecutor(1) as executor:
        one, = tuned(executor=executor)
    assert (type(one.record), one.complete) == (PairedRecord, True)


def test_its_kernel_is_built_ahead_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(self: Any, plans: Any, progress: Any = None) -> None:
        built.extend(plan.problem for plan in plans)
        if any(plan.problem.spec.kind == "pointwise" for plan in plans):
            raise CompileError("too much of everything")

    built: list[Any] = []
    monkeypatch.setattr(Graphs, "prepare", refusing)
    one, = tuned(halving=True)
    assert built.count(layer_before(PROBLEM)) == 1
    assert one.complete
    assert not one.record.refused
