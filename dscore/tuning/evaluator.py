"""Evaluators of a tuner's candidates: a problem with its data, and the check and timing on it."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from dscore.checking import bound
from dscore.checking.bound import Accuracy
from dscore.checking.check import guarded_outputs, run_guarded
from dscore.checking.oracle import Expected, Oracle
from dscore.checking.rounding import rounding_of
from dscore.core.backend import Backend, GpuBackend, Kernel
from dscore.core.device import Device
from dscore.core.errors import UnavailableError
from dscore.core.once import once
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.measuring.runner import Arrays, Judging, Runner, check, runner_of
from dscore.measuring.timing import (
    NoGraphError,
    Subject,
    Timing,
    brief_timing,
    device_times,
    set_count,
)
from dscore.ops import compulsory_bytes, parts_of
from dscore.tuning.measurement_policy import MeasurementPolicy

# Of a kernel, its operands and a number of runs.
Timer = Callable[..., Sequence[float]]
# Sets may take this part of a GPU's room: a checked output and the caller's own lie there too.
_PART_OF_ROOM = 3
# About what a launch takes at the least.
_LEAST_SECONDS = 2e-6


class Evaluator(Protocol):
    """A problem with its data, where kernels run."""

    def judge(self, plan: Plan) -> Accuracy:
        """Accuracy of one guarded run of *plan*.

        Raises CompileError, LaunchError, and DscoreError where it writes outside its output.
        """

    def seconds(self, plan: Plan, repeats: int) -> Sequence[float]:
        """Times of *plan*, *repeats* of them."""


EvaluatorMaker = Callable[[Backend, Device, ConvProblem, int], Evaluator]


def by_kernel(kernel: Kernel, *arguments: Any) -> Sequence[float]:
    """The timer that every kernel brings along."""
    *operands, repeats = arguments
    return kernel.seconds(*operands, repeats=repeats)


class HostEvaluator:
    """NumPy arrays, and a timer that is given the very same ones for every kernel."""

    def __init__(self, backend: Backend, device: Device, problem: ConvProblem, seed: int,
                 timer: Timer = by_kernel) -> None:
        self._backend, self._problem, self._seed, self._timer = backend, problem, seed, timer

    @cached_property
    def _data(self) -> list[Any]:
        return bound.sample(self._problem, self._seed)

    @cached_property
    def _oracles(self) -> list[Oracle]:
        return [Oracle(part.problem, *part.inputs_of(self._data))
                for part in parts_of(self._problem)]

    def judge(self, plan: Plan) -> Accuracy:
        kernel, guarded = self._backend.compile(plan), guarded_outputs(plan.problem)
        run_guarded(plan, guarded, lambda *outs: kernel(*self._data, *outs))
        return bound.worst_of(compare_images(one.out, oracle.expected(rounding_of(plan)))
                              for one, oracle in zip(guarded, self._oracles, strict=True))

    def seconds(self, plan: Plan, repeats: int) -> Sequence[float]:
        kernel = self._backend.compile(plan)
        return run_guarded(plan, guarded_outputs(plan.problem), lambda *outs: self._timer(
            kernel, *self._data, *outs, repeats))


class RunnerEvaluator(HostEvaluator):
    """Data in the memory of a runner: so many sets in turn that the caches are cold, by graphs.

    The runner is held exclusively while a kernel is judged, too: the kernel's work would be part of
    other processes' times.
    """

    def __init__(self, backend: Backend, device: Device, problem: ConvProblem, seed: int) -> None:
        super().__init__(backend, device, problem, seed)
        self.runner, self._policy = runner_and_policy(backend, device)

    @cached_property
    def _sets(self) -> list[Arrays]:
        runner, problem = self.runner, self._problem
        runner.release()
        count = set_count(compulsory_bytes(problem), runner.cache_bytes,
                          runner.room_bytes / _PART_OF_ROOM, runner.most_sets)
        return runner.sets(problem, count, self._seed)

    @cached_property
    def _judge(self) -> Judging:
        return self.runner.judge_of(self._problem, self._sets[0])

    def judge(self, plan: Plan) -> Accuracy:
        with self.runner.exclusive():
            # Only PyTorch makes the exact result where the data is; the host makes it once.
            if self.runner.calls and not self.runner.on_host:
                return check(self.runner, self._backend, plan, self._sets[0], self._judge)
            return super().judge(plan)

    def seconds(self, plan: Plan, repeats: int) -> Sequence[float]:
        subject = self.runner.subject(self._backend, plan, self._sets)
        return self.timed(plan.tiling.name, subject, len(self._sets), repeats)

    def timed(self, name: str, subject: Subject, sets: int, repeats: int,
              beside: float = 0.0) -> Sequence[float]:
        """*repeats* times of a launch of *subject*, rotating over *sets* sets of data, of which
        kernels beside the one of *name* take *beside* seconds, which do not count.
        """
        with self.runner.exclusive():
            timing = self._timing(name, subject, sets, repeats, beside)
        if timing.policy != self._policy.clock:
            raise UnavailableError(f"{name} was timed by {timing.policy}, other kernels by "
                                   f"{self._policy.clock}: they cannot be compared")
        return [sample - beside for sample in timing.samples]

    def _timing(self, name: str, subject: Subject, sets: int, repeats: int,
                beside: float) -> Timing:
        runner = self.runner
        effort = replace(runner.effort, turns=1, most_replays=repeats, fewest_replays=repeats)
        [timing] = device_times(runner.clock, [subject], sets, effort)
        return timing


class CheckingEvaluator(RunnerEvaluator):
    """As its base, with the data of one check, for kernels that are timed elsewhere."""

    @cached_property
    def _sets(self) -> list[Arrays]:
        self.runner.release()
        return self.runner.sets(self._problem, 1, self._seed)


class BriefEvaluator(RunnerEvaluator):
    """As its base, in less of a GPU's time: a capture for each call of `seconds`, and no trial
    before it, as the candidate before tells about how long one takes.
    """

    def __init__(self, backend: Backend, device: Device, problem: ConvProblem, seed: int) -> None:
        super().__init__(backend, device, problem, seed)
        self._usual = max(compulsory_bytes(problem) / device.bandwidth, _LEAST_SECONDS)
        self._medians: dict[str, float] = {}  # by tiling

    def _timing(self, name: str, subject: Subject, sets: int, repeats: int,
                beside: float) -> Timing:
        runner = self.runner
        effort = replace(runner.effort, replay_seconds=runner.effort.replay_seconds / 2)
        timing = brief_timing(runner.clock, subject, sets, effort, repeats,
                              self._medians.get(name, self._usual) + beside)
        self._medians[name] = self._usual = max(timing.median - beside, _LEAST_SECONDS / 2)
        return timing


@once
def runner_and_policy(backend: Backend, device: Device) -> tuple[Runner, MeasurementPolicy]:
    """The runner of *backend*, and what is measured there: by graphs, or by events where none can
    be captured.
    """
    runner = runner_of(backend, device, peers=False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the graph is empty
            runner.clock.record(lambda stream: None)
    except NoGraphError:
        return runner, MeasurementPolicy("cold", "events")
    return runner, MeasurementPolicy("cold", runner.clock.policy)


def default_evaluator(backend: Backend, device: Device, brief: bool = False
                      ) -> tuple[EvaluatorMaker, MeasurementPolicy]:
    """The evaluator for *backend*'s kernels, and what it measures."""
    if isinstance(backend, GpuBackend):
        return BriefEvaluator if brief else RunnerEvaluator, runner_and_policy(backend, device)[1]
    return HostEvaluator, MeasurementPolicy("hot", "host" if backend.any_device else "events")


def require_times(samples: Sequence[float]) -> tuple[float, ...]:
    """*samples*, which must be positive seconds; UnavailableError where a timer gave others."""
    if not samples or not all(math.isfinite(sample) and sample > 0 for sample in samples):
        raise UnavailableError(f"the timer gave {samples}, which are no times")
    return tuple(samples)


def compare_images(y: np.ndarray[Any, Any], expected: Expected) -> Accuracy:
    """`bound.compare` image by image, side by side: whole batches take gigabytes at a time."""
    def one(image: int) -> Accuracy:
        part = slice(image, image + 1)
        accuracy = bound.compare(y[part], expected.of_images(part))
        return replace(accuracy, where=(image, *accuracy.where[1:]))

    if len(y) == 1:
        return one(0)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return bound.worst_of(pool.map(one, range(len(y))))
