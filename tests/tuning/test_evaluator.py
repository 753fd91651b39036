"""Evaluators of candidates: what they judge and time."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
from tuning_backends import Scripted

from dscore.checking import bound
from dscore.core import catalog
from dscore.core.backend import backend
from dscore.core.errors import DscoreError, UnavailableError
from dscore.core.token import parse_problem
from dscore.solving import solver
from dscore.tuning.evaluator import (
    HostEvaluator,
    RunnerEvaluator,
    compare_images,
    default_evaluator,
    require_times,
    runner_and_policy,
)
from dscore.tuning.measurement_policy import MeasurementPolicy

PROBLEM = parse_problem("n3c8h6w6_o8k3p1g8_bias")
DEVICE = catalog.device("z100sm")
PLAN = solver.best_plan(PROBLEM, DEVICE)


@pytest.mark.parametrize("make", [HostEvaluator, RunnerEvaluator])
def test_a_plan_is_judged_and_timed(make: Any) -> None:
    evaluator = make(backend("reference"), DEVICE, PROBLEM, 0)
    assert evaluator.judge(PLAN).ok
    for repeats in (1, 4):
        assert len(require_times(evaluator.seconds(PLAN, repeats))) == repeats


@pytest.mark.parametrize("make", [HostEvaluator, RunnerEvaluator])
def test_faults_are_seen(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = make(backend("tuning_backends:Scripted"), DEVICE, PROBLEM, 0)
    for role in ("wrong", "unwritten"):
        monkeypatch.setattr(Scripted, "roles", {PLAN.tiling.name: role})
        assert not evaluator.judge(PLAN).ok
    monkeypatch.setattr(Scripted, "roles", {PLAN.tiling.name: "scribbles"})
    with pytest.raises(DscoreError, match="outside its output"):
        evaluator.judge(PLAN)


def test_a_timer_is_given_the_same_arrays_for_every_kernel() -> None:
    given = []

    def timer(kernel: Any, x: Any, w: Any, bias: Any, out: Any, repeats: int) -> list[float]:
        given.append((x, w, bias))
        return [1.0] * repeats

    evaluator = HostEvaluator(backend("reference"), DEVICE, PROBLEM, 0, timer)
    evaluator.seconds(PLAN, 1)
    evaluator.seconds(PLAN, 1)
    assert all(one is other for one, other in zip(*given, strict=True))
    assert all(array.all() for array in given[0])  # never timed on zeros


def test_what_is_usual() -> None:
    reference = backend("reference")
    assert default_evaluator(reference, DEVICE) == (HostEvaluator, MeasurementPolicy("hot", "host"))
    assert runner_and_policy(reference, DEVICE)[1] == MeasurementPolicy("cold", "host")
    for maker in (HostEvaluator, RunnerEvaluator, partial(HostEvaluator, timer=require_times)):
        assert pickle.loads(pickle.dumps(maker)) is not None


@pytest.mark.parametrize("samples", [(), (0.0,), (1.0, -1.0), (float("inf"),), (float("nan"),)])
def test_what_is_no_time(samples: tuple[float, ...]) -> None:
    with pytest.raises(UnavailableError, match="are no times"):
        require_times(samples)


def test_batches_are_compared_as_a_whole_is() -> None:
    x, w, bias = bound.sample(PROBLEM, 0)
    wanted = bound.expected(PROBLEM, x, w, bias)
    y = wanted.y.astype(np.float32)
    assert compare_images(y, wanted) == bound.compare(y, wanted)
    y[2, 1, 3, 4] += 1
    assert compare_images(y, wanted) == bound.compare(y, wanted)
    y[1, 0, 0, 0] = np.nan
    assert compare_images(y, wanted).where == (1, 0, 0, 0)
