"""The search: what it tries, what it refuses, what it keeps, and where it stops."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tuning_backends import Compiled, Device, Scripted, Slow, scripted_seconds

from dscore.core import catalog
from dscore.core.backend import backend
from dscore.core.errors import CompileError, LaunchError, SpecError, UnavailableError
from dscore.core.token import parse_problem
from dscore.solving import solver
from dscore.tuning import builder, records, tune
from dscore.tuning.measurement import records_of
from dscore.tuning.measurement_policy import MeasurementPolicy
from dscore.tuning.search import FINAL_RUNS, FIRST_RUNS, SearchResult, candidates

PROBLEM = parse_problem("n1c8h6w6_o16k1")
OTHER = parse_problem("n1c8h6w6_o8k3p1g8")
DEVICE = catalog.device("z100sm")
SPACE = solver.solve(PROBLEM, DEVICE)
NAMES = [SPACE[int(i)].name for i in SPACE.ranked()]
SCRIPTED = "tuning_backends:Scripted"


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(records, "_decisions", {})
    for faults in (Scripted, Compiled, Device, Slow):
        monkeypatch.setattr(faults, "roles", {})
        for log in ("ran", "timed", "compiled"):
            monkeypatch.setattr(faults, log, [])
    monkeypatch.setattr(Device, "dead", False)


def fastest(names: Sequence[str]) -> str:
    return min(names, key=scripted_seconds)


def tuned(**options: Any) -> SearchResult:
    return tune.tune(PROBLEM, backend=options.pop("backend", SCRIPTED),
                     **{"top": 12, **options})


def test_the_fastest_of_the_first_is_found() -> None:
    steps: list[tune.Step] = []
    result = tuned(progress=steps.append)
    assert result.best is not None
    assert result.best.tiling.name == fastest(NAMES[:12])
    assert result.best.seconds == scripted_seconds(result.best.tiling.name)
    assert result.first is not None
    assert (result.first.tiling.name, result.tried, result.complete) == (NAMES[0], 12, True)
    assert result.gain == scripted_seconds(NAMES[0]) / result.best.seconds
    assert [step.done for step in steps] == [*range(1, 13), 12]
    assert steps[-1].best == result.best.seconds
    assert records.best(PROBLEM, DEVICE, backend(SCRIPTED)) == result.best.tiling


def test_the_best_are_timed_for_long() -> None:
    tuned()
    first = [name for name, repeats in Scripted.timed if repeats == FIRST_RUNS]
    long = [name for name, repeats in Scripted.timed if repeats == FINAL_RUNS]
    assert first == NAMES[:12]
    assert sorted(long) == sorted(sorted(NAMES[:12], key=scripted_seconds)[:8])


def test_several_algorithms_compete() -> None:
    result = tuned(algorithm="channel_distribution,gemm", top=4)
    algorithms = [c.tiling.algorithm for c in result.record.configurations.values()]
    assert sorted(algorithms) == ["channel_distribution"] * 4 + ["gemm"] * 4
    assert result.first_tiling.algorithm == "channel_distribution"
    # Those alone that run the layer.
    other = tune.tune(OTHER, backend=SCRIPTED, algorithm="gemm,row_reuse", top=4)
    assert {c.tiling.algorithm for c in other.record.configurations.values()} == {"row_reuse"}
    with pytest.raises(SpecError, match="does not run"):
        tune.tune(OTHER, backend=SCRIPTED, algorithm="gemm,channel_distribution")
    with pytest.raises(SpecError, match="algorithm must be one of"):
        tuned(algorithm="gemm,gem")


def test_tilings_of_all_algorithms_that_the_solver_compares_are_tried() -> None:
    """In one order, the first of which a call without a record takes."""
    hopper, problem = catalog.device("h200"), parse_problem("n32c384h14w14_o96k1")
    request = tune.search_request(hopper, "reference", top=12)
    plans = candidates(request, backend("reference"), problem)[:12]
    spaces = [solver.solve(problem, hopper, algorithm=name)
              for name in ("gemm", "warpgroup_tf32")]
    everything = sorted(float(seconds) for space in spaces for seconds in space.costs.seconds)
    assert [plan.cost.seconds for plan in plans] == pytest.approx(everything[:12])
    assert plans[0] == solver.best_plan(problem, hopper)
    assert {plan.tiling.algorithm for plan in plans} == {"gemm", "warpgroup_tf32"}


def test_exhaustive_tries_all() -> None:
    result = tuned(exhaustive=True)
    assert result.tried == len(NAMES) == result.candidates
    assert result.best is not None
    assert result.best.tiling.name == fastest(NAMES)


ROLES = {"wrong": "WRONG at output (0, 0, 0, 0)", "unwritten": "got nan", "spills": "spills 4 B",
         "scribbles": "outside its output", "raises": "ZeroDivisionError: a kernel's own",
         "crashes": "illegal memory access", "uncompiled": "too much of everything"}


@pytest.mark.parametrize("place", [0, 5])
def test_a_kernel_at_fault_never_wins(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    roles = dict(zip(NAMES[place:], ROLES, strict=False))
    monkeypatch.setattr(Scripted, "roles", roles)
    result = tuned()
    assert result.best is not None
    assert result.best.tiling.name == fastest([n for n in NAMES[:12] if n not in roles])
    refused = {c.tiling.name: c.refused for c in result.record.refused}
    assert set(refused) == set(roles)
    for name, role in roles.items():
        assert ROLES[role] in refused[name]
    assert [roles[c.tiling.name] for c in result.record.spilling] == ["spills"]
    assert not set(roles) & {name for name, _ in Scripted.timed}
    assert records.best(PROBLEM, DEVICE, backend(SCRIPTED)) == result.best.tiling
    ran = len(Scripted.ran)
    assert tuned().record == result.record
    assert len(Scripted.ran) == ran  # what is refused is not tried again


def test_kernels_that_do_not_compile_are_found_among_those_that_do(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Compiled, "roles", dict.fromkeys((NAMES[2], NAMES[7]), "uncompiled"))
    monkeypatch.setattr(builder, "cores", lambda: 2)  # which compile up to 16 at once
    result = tuned(backend="tuning_backends:Compiled")
    assert Compiled.compiled[0] == NAMES[:12]
    assert {c.tiling.name for c in result.record.refused} == {NAMES[2], NAMES[7]}
    assert result.tried == 12


def test_a_compiler_that_refuses_everything_is_no_fault_of_the_kernels(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Compiled, "roles", {"*": ""})
    with pytest.raises(CompileError):
        tuned(backend="tuning_backends:Compiled")
    assert records.everything() == frozenset()


def test_problems_are_built_together() -> None:
    tune.tune_all([PROBLEM, OTHER, PROBLEM], backend="tuning_backends:Compiled", top=3)
    assert len(Compiled.compiled[0]) == 6


def test_where_every_kernel_crashes_nothing_is_held_against_them(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scripted, "roles", dict.fromkeys(NAMES, "crashes"))
    with pytest.raises(LaunchError, match="no kernel of n1c8h6w6_o16k1 runs"):
        tuned()
    assert records.everything() == frozenset()


def test_a_crash_that_takes_the_device_along_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "roles", {NAMES[2]: "kills"})
    with pytest.raises(LaunchError, match="runs nothing any more"):
        tuned(backend="tuning_backends:Device")
    record = records_of(records.everything())[0]
    assert set(record.configurations) == set(NAMES[:3])
    assert [c.tiling.name for c in record.refused] == [NAMES[2]]
    Device.dead = False
    assert tuned(backend="tuning_backends:Device").tried == 12


def test_what_is_on_record_is_not_measured_again() -> None:
    tuned(top=5)
    before = len(Scripted.timed)
    result = tuned(top=12)
    again = [name for name, repeats in Scripted.timed[before:] if repeats == FIRST_RUNS]
    assert again == NAMES[5:12]
    assert result.tried == 12


def test_an_interruption_keeps_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scripted, "roles", {NAMES[4]: "interrupts"})
    with pytest.raises(KeyboardInterrupt):
        tuned()
    best = records.best(PROBLEM, DEVICE, backend(SCRIPTED))
    assert best is not None
    assert best.name == fastest(NAMES[:4])
    monkeypatch.setattr(Scripted, "roles", {})
    tuned()
    first = [name for name, repeats in Scripted.timed if repeats == FIRST_RUNS]
    assert first == NAMES[:12]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Clock on which only sleeping takes time, so that a busy machine changes nothing."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now.pop() + seconds))
    return now


def test_a_budget_is_kept(clock: list[float]) -> None:
    result = tuned(backend="tuning_backends:Slow", budget_seconds=0.4)
    assert 100.4 <= clock[0] < 100.46
    assert 0 < result.tried < 12
    assert not result.complete
    # The time of the second pass is kept free for it.
    assert max(len(c.samples) for c in result.record.configurations.values()) > FIRST_RUNS


def test_problems_share_the_budget(clock: list[float]) -> None:
    first, second = tune.tune_all([PROBLEM, OTHER], backend="tuning_backends:Slow",
                                  budget_seconds=0.6)
    assert (first.tried, second.tried) == (6, 5)
    assert 100.6 <= clock[0] < 100.66


def test_a_timer_of_the_callers_own_is_kept_apart() -> None:
    def timer(kernel: Any, x: Any, w: Any, bias: Any, out: Any, repeats: int) -> list[float]:
        return [2 - scripted_seconds(kernel.plan.tiling.name)] * repeats

    tuned()
    cold = tuned(timer=timer, policy=MeasurementPolicy("cold", "graph"))
    assert cold.best is not None
    assert cold.best.tiling.name == max(NAMES[:12], key=scripted_seconds)
    assert records.best(PROBLEM, DEVICE, backend(SCRIPTED)) == cold.best.tiling
    assert len(records.current(PROBLEM, DEVICE, backend(SCRIPTED))) == 2


@pytest.mark.parametrize("times", [[], [0.0], [float("nan")]])
def test_a_timer_without_times(times: list[float]) -> None:
    with pytest.raises(UnavailableError, match="are no times"):
        tuned(timer=lambda *_: times, policy=MeasurementPolicy("hot", "events"))
    assert records.everything() == frozenset()


@pytest.mark.parametrize("options", [
    {"top": 0}, {"seed": -1}, {"budget_seconds": 0}, {"backend": "nosuch"},
    {"timer": lambda *_: [1.0]}])
def test_arguments_that_make_no_search(options: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        tuned(**options)


class _Pickling(Executor):
    """Runs a task at once, from what other processes would be sent."""

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        import pickle

        done: Future[Any] = Future()
        try:
            task = pickle.loads(pickle.dumps((function, arguments)))
            done.set_result(pickle.loads(pickle.dumps(task[0](*task[1]))))
        except BaseException as failed:
            done.set_exception(failed)
        return done


@pytest.mark.parametrize("make", [_Pickling, lambda: ThreadPoolExecutor(2)])
def test_an_executor_spreads_problems(make: Any) -> None:
    steps: list[tune.Step] = []
    with make() as executor:
        both = tune.tune_all([PROBLEM, OTHER], backend=SCRIPTED, top=4, executor=executor,
                             progress=steps.append)
    assert [(one.problem, one.tried, one.complete) for one in both] == [
        (PROBLEM, 4, True), (OTHER, 4, True)]
    assert [(step.number, step.of) for step in steps] == [(1, 2), (2, 2)]
    assert both == tune.tune_all([PROBLEM, OTHER], backend=SCRIPTED, top=4)


def test_tuning_in_a_call_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not tune.wanted()
    monkeypatch.setenv("DSCORE_TUNE", "on")
    assert tune.wanted()
    monkeypatch.setenv("DSCORE_TUNE", "maybe")
    with pytest.raises(SpecError, match="DSCORE_TUNE must be one of on, off"):
        tune.wanted()
    plan = tune.on_demand(PROBLEM, DEVICE, SCRIPTED)
    assert plan is not None
    assert plan.tiling.name == fastest(NAMES[:32])
