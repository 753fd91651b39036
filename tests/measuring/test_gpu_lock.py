"""Processes that measure on one GPU do so one after the other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from filelock import FileLock

from dscore.bench import run
from dscore.cache import folders
from dscore.core import catalog
from dscore.core.backend import backend
from dscore.core.token import parse_problem
from dscore.measuring import gpu_lock as locks
from dscore.measuring.gpu_lock import gpu_lock
from dscore.measuring.runner import HostRunner
from dscore.measuring.torch_runner import TorchRunner
from dscore.measuring.vendor_runner import VendorRunner
from dscore.measuring.vendor_runtime import Runtime
from dscore.solving import solver
from dscore.tuning import evaluator

HOLDER = """
import sys, time
from dscore.measuring.gpu_lock import gpu_lock
for _ in range(int(sys.argv[1])):
    with gpu_lock("a"):
        began = time.monotonic()
        print("held", flush=True)
        time.sleep(float(sys.argv[2]))
        print(began, time.monotonic(), flush=True)
    time.sleep(0.002)
"""


def holder(times: int, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", HOLDER, str(times), str(seconds)],
                            stdout=subprocess.PIPE, text=True)


def test_no_two_processes_at_once() -> None:
    spans = []
    for process in [holder(4, 0.05) for _ in range(3)]:
        lines = process.communicate(timeout=180)[0].split("held\n")
        spans += [tuple(map(float, line.split())) for line in lines if line]
    spans.sort()
    assert len(spans) == 12
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_one_that_is_killed_gives_back() -> None:
    process = holder(1, 60)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    process.kill()
    process.communicate()
    with gpu_lock("a"):
        pass


@pytest.mark.deep
def test_a_long_wait_is_told_of_and_other_gpus_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_QUIET_SECONDS", 0.05)
    process = holder(1, 2)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with gpu_lock("b"):
        assert process.poll() is None
    with pytest.warns(RuntimeWarning, match="another process has measured on GPU a"), gpu_lock("a"):
        pass
    process.communicate()


def test_given_back_after_an_error_and_where_there_are_no_locks(
        monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError), gpu_lock("a"):
        raise ZeroDivisionError
    process = holder(1, 0)
    assert process.communicate(timeout=180)[0].startswith("held\n")

    def without(lock: object, **options: object) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(locks.FileLock, "acquire", without)
    ran = []
    with pytest.warns(RuntimeWarning, match=r"GPU a cannot be kept .*no locks available"), \
            gpu_lock("a"):
        ran.append(True)
    with pytest.warns(RuntimeWarning), pytest.raises(OSError, match="of the body"), gpu_lock("a"):
        raise OSError("of the body")
    assert ran == [True]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the runner is held, at each launch, judgement, and measurement of floors."""
    depth, at_launch = [0], []

    @contextmanager
    def counted(runner: HostRunner) -> Iterator[None]:
        depth[0] += 1
        yield
        depth[0] -= 1

    def subject(runner: HostRunner, *arguments: Any) -> Any:
        made = plain(runner, *arguments)
        start = made.launch
        made.launch = lambda *where: (at_launch.append(depth[0] > 0), start(*where))
        return made

    def noted(function: Any) -> Any:
        return lambda *given: (at_launch.append(depth[0] > 0), function(*given))[1]

    plain = HostRunner.subject
    monkeypatch.setattr(HostRunner, "floors", noted(HostRunner.floors))
    monkeypatch.setattr(evaluator.HostEvaluator, "judge", noted(evaluator.HostEvaluator.judge))
    monkeypatch.setattr(HostRunner, "exclusive", counted)
    monkeypatch.setattr(HostRunner, "subject", subject)
    return at_launch


def test_the_tuner_and_the_bench_measure_alone(held: list[bool]) -> None:
    problem = parse_problem("n1c4h5w5_o8k1")
    plan = solver.best_plan(problem, catalog.device("h200"))
    candidates = evaluator.RunnerEvaluator(backend("reference"), plan.device, problem, 0)
    assert candidates.judge(plan).ok
    assert candidates.seconds(plan, 1)
    tuned = len(held)
    rows = run.bench(run.Comparison(tuple(catalog.find("n1c4h5w5_o8k1")), backend="reference",
                                        ways=(), caches=("hot",)))
    assert rows[0].correct
    assert tuned > 0
    assert len(held) > tuned
    assert all(held)


def test_gpus_are_held_by_their_slot() -> None:
    found = SimpleNamespace(pciDomainID=0, pciBusID=0x1B, pciDeviceID=2)
    module: Any = SimpleNamespace(cudaGetDeviceProperties=lambda index: (0, found))
    slot = Runtime("nvidia", module, "cuda").slot(0)
    assert slot == "0000-1b-02"
    lock = FileLock(folders.root() / "gpus" / f"{slot}.lock", is_singleton=True,
                    poll_interval=locks._POLL_SECONDS)
    for kind in (VendorRunner, TorchRunner):
        runner = kind.__new__(kind)
        runner._slot = slot
        with runner.exclusive():
            assert lock.is_locked
        assert not lock.is_locked


def test_who_waits_can_come_before_the_one_that_was_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is left alone for longer than others wait before they ask for it again."""
    slept: list[float] = []
    monkeypatch.setattr(locks.time, "sleep", slept.append)
    with gpu_lock("a"), gpu_lock("a"):
        assert slept == []
    assert slept == [locks._GAP_SECONDS]
    assert locks._GAP_SECONDS > 2 * locks._POLL_SECONDS
