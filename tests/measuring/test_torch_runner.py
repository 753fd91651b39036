"""Data of the runner of PyTorch: drawn on its device, here the host's."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dscore.backends.reference.backend import ReferenceBackend
from dscore.checking import bound
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.measuring import torch_runner
from dscore.measuring.clocks import TorchClock
from dscore.measuring.floors import Floors
from dscore.measuring.runner import check
from dscore.measuring.timing import NoGraphError
from dscore.measuring.torch_runner import TorchRunner
from dscore.ops import operands_of
from dscore.solving import solver

torch = pytest.importorskip("torch")
TOKENS = ("n2c5h7w3_o9k1_int8_nhwc_bias", "n1c6h5w5_o6k3p1g6_int8", "n2c5h7w3_o9k1_bias",
          "n1c6h5w5_o6k3p1g6_float16_nhwc", "n1c6h5w5_o6k3p1g6_bfloat16")


def on_host() -> Any:
    runner = object.__new__(TorchRunner)
    runner._torch, runner._device = torch, "cpu"
    return runner


@pytest.mark.parametrize("token", TOKENS)
def test_sets_have_operands_of_their_own_types_and_memory(token: str) -> None:
    problem = parse_problem(token)
    sets = on_host().sets(problem, 3, 0)
    assert len(sets) == 3
    places = set()
    for arrays in sets:
        for array, operand in zip(arrays, operands_of(problem), strict=True):
            assert (array is not None) == operand.present
            if array is None:
                continue
            assert tuple(array.shape) == operand.shape
            assert array.dtype == getattr(torch, operand.element.name)
            assert array.is_contiguous()
            places |= set(range(array.data_ptr(), array.data_ptr() + array.nbytes))
            assert array.data_ptr() % 16 == sets[0][0].data_ptr() % 16
    assert len(places) == 3 * sum(one.elements * one.element.bytes for one in operands_of(problem))


@pytest.mark.parametrize("token", TOKENS)
def test_no_two_sets_have_the_same_images(token: str) -> None:
    (first, *_), (second, *_) = on_host().sets(parse_problem(token), 2, 0)
    assert not torch.equal(first, second)
    assert first.float().std() > 0.5


def test_layers_of_int8_have_the_whole_range_and_what_suits_it() -> None:
    problem = parse_problem("n8c16h14w14_o32k1_int8_nhwc_bias")
    (x, w, bias, multiplier, points, out), _ = on_host().sets(problem, 2, 0)
    assert (int(x.min()), int(x.max())) == (-128, 127)
    sample = bound.sample(problem.with_batch(1), 0)
    for array, drawn in zip((w, bias, multiplier, points), sample[1:], strict=True):
        assert np.array_equal(array.numpy(), drawn)
    assert points[0] != 0
    points[2], points[3] = -128, 127  # which may be drawn near one another
    y = bound.expected(problem, *(one.numpy() for one in (x, w, bias, multiplier, points))).y
    assert len(np.unique(y)) > 100  # neither all zero points nor all bounds
    assert (out == out[0, 0, 0, 0]).all()


@pytest.mark.parametrize("token", TOKENS[:3])
def test_a_judge_is_right_again_and_again(token: str) -> None:
    problem = parse_problem(token)
    arrays = [None if one is None else one.numpy() for one in on_host().sets(problem, 1, 0)[0]]
    plan = solver.best_plan(problem, catalog.device("z100sm"))
    backend = ReferenceBackend()
    runner = backend.runner(plan.device, False)
    accuracy = check(runner, backend, plan, tuple(arrays))
    judge = bound.Judge(np, problem, arrays[:-1])
    out = np.empty_like(arrays[-1])
    backend.compile(plan)(*arrays[:-1], out)
    assert judge(out).ok
    assert judge(out).share == accuracy.share
    out.flat[-1] += 1
    assert not judge(out).ok
    out.flat[-1] -= 1
    assert judge(out).ok


def test_floors_are_measured_once_for_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []

    def floors(torch: Any, clock: Any, index: int, effort: Any) -> Floors:
        measured.append(index)
        return Floors(1.0 + index, 2.0, 3.0, "here")

    monkeypatch.setattr(torch_runner, "torch_floors", floors)
    monkeypatch.setattr(torch_runner, "TorchClock", lambda torch, index: None)
    monkeypatch.setattr(TorchRunner, "release", lambda self: None)
    runners = [on_host() for _ in range(4)]
    for runner, index in zip(runners, (0, 1, 1, 0), strict=True):
        runner._torch, runner._index = monkeypatch, index  # a key of this test alone
    assert [runner.floors().bytes_per_second for runner in runners] == [1.0, 2.0, 2.0, 1.0]
    assert measured == [0, 1]


class BrokenCapture:
    """A PyTorch whose GPU refuses all that follows a failed capture."""

    class cuda:  # noqa: N801
        device = stream = nullcontext

        @staticmethod
        def Stream() -> Any:  # noqa: N802
            return SimpleNamespace(cuda_stream=0)

        @staticmethod
        def Event(**_: Any) -> None:  # noqa: N802
            return None

        @staticmethod
        def CUDAGraph() -> Any:  # noqa: N802
            return SimpleNamespace(capture_begin=lambda **_: None, capture_end=refused)

        @staticmethod
        def synchronize(*device: Any) -> None:
            if not device:
                refused()

        @staticmethod
        def empty_cache() -> None:
            refused()

    @staticmethod
    def device(*_: Any) -> None:
        return None


def refused() -> None:
    raise RuntimeError("operation not permitted when stream is capturing")


def test_of_a_broken_capture_what_failed_first_is_told() -> None:
    def work(stream: int) -> None:
        raise RuntimeError("out of memory")

    with pytest.raises(NoGraphError, match="out of memory"):
        TorchClock(BrokenCapture, 0).record(work)


def test_memory_that_cannot_be_given_back_hides_no_failure() -> None:
    runner = on_host()
    runner._torch = BrokenCapture

    def fail() -> None:
        try:
            raise MemoryError("out of memory")
        finally:
            runner.release()

    with pytest.raises(MemoryError, match="out of memory"):
        fail()
