"""Successive halving: who is measured again, what is built ahead, and what interrupts it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context
from dataclasses import replace
from typing import Any

import pytest
from tuning_backends import Compiled, Scripted, scripted_seconds

from dscore.building import toolchain
from dscore.core import catalog
from dscore.core.errors import CompileError, SpecError, UnavailableError
from dscore.core.token import parse_problem, problem_token
from dscore.measuring.timing import Effort, NoGraphError, brief_timing
from dscore.solving import solver
from dscore.tuning import records, tune
from dscore.tuning.halving import ROUNDS, due
from dscore.tuning.measurement import Configuration, Identity, Measurement, TuningRecord
from dscore.tuning.search import SearchResult

PROBLEM = parse_problem("n1c8h6w6_o16k1")
OTHERS = [parse_problem(f"n{batch}c8h6w6_o8k3p1g8") for batch in (1, 2, 3)]
DEVICE = catalog.device("z100sm")
SPACE = solver.solve(PROBLEM, DEVICE)
PLANS = [SPACE.plan(int(i)) for i in SPACE.ranked()[:9]]
NAMES = [plan.tiling.name for plan in PLANS]


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(threading.enumerate())
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(records, "_decisions", {})
    for faults in (Scripted, Compiled):
        monkeypatch.setattr(faults, "roles", {})
        for log in ("ran", "timed", "compiled"):
            monkeypatch.setattr(faults, log, [])
    yield
    for thread in set(threading.enumerate()) - before:  # those of a search that was ended
        thread.join(10)


def halved(*problems: Any, **options: Any) -> list[SearchResult]:
    usual = {"backend": "tuning_backends:Scripted", "top": 9, "halving": True}
    return tune.tune_all(problems or [PROBLEM], **{**usual, **options})


def record_of(samples: dict[str, tuple[float, ...]], refused: Sequence[str] = ()) -> TuningRecord:
    identity = Identity(problem_token(PROBLEM), "scripted", DEVICE.name, DEVICE.architecture,
                        "0" * 64, "none", tune.search_request(
                            DEVICE, "tuning_backends:Scripted").policy)
    return TuningRecord(identity, frozenset(
        Measurement(identity, plan.tiling, samples.get(plan.tiling.name, ()),
                    0.5 if plan.tiling.name in samples else None,
                    "wrong" if plan.tiling.name in refused else "", 0, ())
        for plan in PLANS if plan.tiling.name in {*samples, *refused}))


def wanted(record: TuningRecord) -> dict[str, int]:
    return {plan.tiling.name: runs for plan, runs in due(PLANS, record)}


def test_all_are_measured_once_then_the_better_half_then_two() -> None:
    first, again, long = ROUNDS
    assert wanted(record_of({})) == dict.fromkeys(NAMES, first)
    samples = {name: (1.0 + number,) * first for number, name in enumerate(NAMES)}
    assert wanted(record_of(samples)) == dict.fromkeys(NAMES[:5], again - first)
    samples |= {name: (1.0 + number,) * again for number, name in enumerate(NAMES[:5])}
    assert wanted(record_of(samples)) == dict.fromkeys(NAMES[:2], long - again)
    samples |= {name: (1.0 + number,) * long for number, name in enumerate(NAMES[:2])}
    assert wanted(record_of(samples)) == {}


def test_what_a_disturbance_may_have_met_is_timed_again() -> None:
    """Beside the others it took ten times what the model says of it."""
    model = {plan.tiling.name: plan.cost.seconds for plan in PLANS}
    samples = {name: (model[name],) * ROUNDS[0] for name in NAMES}
    met, = sorted(NAMES, key=model.__getitem__)[:1]
    samples[met] = (10 * model[met],) * ROUNDS[0]
    assert wanted(record_of(samples)) == {met: ROUNDS[1] - ROUNDS[0]}
    samples[met] = (10 * model[met],) * ROUNDS[0] + (model[met],) * (ROUNDS[1] - ROUNDS[0])
    assert met not in wanted(record_of(samples))  # it has as many samples as the better half gets
    assert len(wanted(record_of(samples))) == math.ceil(len(NAMES) / 2) - 1
    samples[met] = (10 * model[met],) * ROUNDS[1]  # it is slow
    assert met not in wanted(record_of(samples))


def test_what_is_refused_takes_no_place_among_the_better_half() -> None:
    samples = {name: (1.0 + number,) * ROUNDS[0] for number, name in enumerate(NAMES[:4])}
    assert wanted(record_of(samples, NAMES[4:])) == dict.fromkeys(NAMES[:2], ROUNDS[1] - ROUNDS[0])
    assert wanted(record_of({}, NAMES)) == {}


def test_the_fastest_is_found_in_a_fraction_of_the_runs() -> None:
    steps: list[tune.Step] = []
    one, = halved(progress=steps.append)
    assert one.best is not None
    assert one.best.tiling.name == min(NAMES, key=scripted_seconds)
    assert (one.tried, one.complete) == (9, True)
    ranked = sorted(NAMES, key=scripted_seconds)
    counts = {name: len(c.samples) for name, c in one.record.configurations.items()}
    assert [counts[name] for name in ranked] == [12, 12, 6, 6, 6, 2, 2, 2, 2]
    assert [repeats for _, repeats in Scripted.timed] == [2] * 9 + [4] * 5 + [6] * 2
    assert one.record == records.load(one.record.identity)
    assert steps[-1].done == 9
    again, = halved()
    assert again.record == one.record
    assert len(Scripted.timed) == 16


FAULTS = ("wrong", "unwritten", "spills", "scribbles", "raises", "crashes", "uncompiled")


@pytest.mark.parametrize("place", [0, 2])
def test_a_kernel_at_fault_never_wins(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    roles = dict(zip(NAMES[place:], FAULTS, strict=False))
    monkeypatch.setattr(Scripted, "roles", roles)
    one, = halved()
    assert one.best is not None
    assert one.best.tiling.name == min((n for n in NAMES if n not in roles), key=scripted_seconds)
    assert {c.tiling.name for c in one.record.refused} == set(roles)
    assert one.complete


def test_kernels_that_do_not_compile_are_found_among_those_that_do(
        monkeypatch: pytest.MonkeyPatch) -> None:
    bad = NAMES[4]
    monkeypatch.setattr(Compiled, "roles", {bad: "uncompiled"})
    results = halved(PROBLEM, *OTHERS, backend="tuning_backends:Compiled")
    assert all(one.complete for one in results)
    assert [c.tiling.name for c in results[0].record.refused] == [bad]
    assert "do not compile" in results[0].record.refused[0].refused
    assert not any(one.record.refused for one in results[1:])


def test_a_compiler_that_refuses_everything_is_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Compiled, "roles", {"*": "uncompiled"})
    with pytest.raises(CompileError):
        halved(PROBLEM, *OTHERS, backend="tuning_backends:Compiled")


def test_each_problem_is_built_alone_and_once() -> None:
    results = halved(PROBLEM, *OTHERS, backend="tuning_backends:Compiled", top=4)
    names = sorted(sorted(c.tiling.name for c in one.record.configurations.values())
                   for one in results)
    assert sorted(map(sorted, Compiled.compiled)) == names
    halved(PROBLEM, *OTHERS, backend="tuning_backends:Compiled", top=4)
    assert len(Compiled.compiled) == 4


@pytest.mark.deep
def test_time_that_is_over_leaves_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(self: Any, name: str, repeats: int) -> list[float]:
        time.sleep(0.05)
        return [scripted_seconds(name)] * repeats

    with monkeypatch.context() as patch:
        patch.setattr(Scripted, "times", slow)
        results = halved(PROBLEM, *OTHERS, budget_seconds=0.2)
    assert len(results) == 4
    assert not any(one.complete for one in results)
    assert 1 <= sum(one.tried for one in results) < 9
    assert all(one.complete for one in halved(PROBLEM, *OTHERS))


def test_an_interruption_keeps_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scripted, "roles", {NAMES[3]: "interrupts"})
    with pytest.raises(KeyboardInterrupt):
        halved()
    monkeypatch.setattr(Scripted, "roles", {})
    timed = len(Scripted.timed)
    one, = halved()
    assert one.complete
    assert Scripted.timed[timed][0] == NAMES[3]


def test_a_record_that_cannot_be_written_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(measurement: Any) -> None:
        raise UnavailableError("no room on the disk")

    monkeypatch.setattr(records, "keep", full)
    with pytest.raises(UnavailableError, match="no room on the disk"):
        halved()


def test_an_executor_is_refused() -> None:
    with ThreadPoolExecutor(1) as executor, pytest.raises(SpecError, match="leave the executor"):
        halved(executor=executor)


def test_threads_that_build_side_by_side_have_a_core_each() -> None:
    seen: list[int] = []
    with toolchain.compilers_at_most(1):
        inside = toolchain.cores()
        other = threading.Thread(target=lambda: seen.append(toolchain.cores()))
        other.start()
        other.join()
    assert inside == 1
    assert seen == [Context().run(toolchain.cores)]


class Clock:
    """A clock whose launches take a microsecond."""

    policy = "graph"

    def __init__(self, graphs: bool = True) -> None:
        self.graphs, self.launched = graphs, 0

    def record(self, work: Any) -> Any:
        if not self.graphs:
            raise NoGraphError
        self.launched = 0
        work(0)
        launches = self.launched
        return lambda: launches

    def repeat(self, work: Any) -> Any:
        return lambda: self.record_launches(work)

    def record_launches(self, work: Any) -> int:
        self.launched = 0
        work(0)
        return self.launched

    def samples(self, replay: Any, count: int) -> list[float]:
        return [replay() * 1e-6 for _ in range(count)]

    def synchronize(self) -> None:
        pass


class Subject:
    name = "subject"

    def __init__(self, clock: Clock) -> None:
        self.clock, self.places = clock, []  # type: ignore[var-annotated]

    def launch(self, index: int, stream: int) -> None:
        self.places.append(index)
        self.clock.launched += 1

    @contextmanager
    def settings(self) -> Iterator[None]:
        yield


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize(("expected", "launches"), [(1e-6, 1002), (1e-4, 12), (1.0, 3)])
def test_a_brief_timing_goes_by_the_expected_time(graphs: bool, expected: float, launches: int
                                                  ) -> None:
    clock = Clock(graphs)
    subject = Subject(clock)
    timing = brief_timing(clock, subject, 3, Effort(replay_seconds=1e-3), 5, expected)  # type: ignore[arg-type]
    assert timing.samples == pytest.approx([1e-6] * 5)
    assert (timing.launches, timing.sets) == (launches, 3)
    assert timing.policy == ("graph" if graphs else "events")
    assert subject.places[2:2 + launches] == [0, 1, 2] * (launches // 3)


def test_a_tie_is_settled_by_name() -> None:
    record = record_of(dict.fromkeys(NAMES, (1.0,) * ROUNDS[0]))
    assert sorted(wanted(record)) == sorted(NAMES)[:5]
    assert isinstance(next(iter(record.configurations.values())), Configuration)
    assert replace(record, measurements=frozenset()).best is None
