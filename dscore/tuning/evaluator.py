"""Where a candidate is judged and timed: on host arrays, or in the memory of a GPU."""

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
from dscore.checking.bound import Accuracy, Expected
from dscore.checking.check import guarded_output, require_untouched
from dscore.core.backend import Backend, GpuBackend, Kernel
from dscore.core.device import Device
from dscore.core.errors import UnavailableError
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.measuring.runner import Ground, check, ground_for
from dscore.measuring.timing import NoGraphError, device_times, set_count
from dscore.tuning.measurement import Policy

Timer = Callable[[Kernel, Any, Any, Any, Any, int], Sequence[float]]
# Sets may take this part of a GPU's room: a checked output and the caller's own lie there too.
_PART_OF_ROOM = 3
_grounds: dict[tuple[int, Device], tuple[Backend, Ground, Policy]] = {}


class Stand(Protocol):
    """A problem with its data, in a place where kernels run."""

    def judge(self, plan: Plan) -> Accuracy:
        """Run *plan* once in a poisoned and guarded output, and hold the result to the bound.

        Raises CompileError, LaunchError, and DscoreError where it writes outside its output.
        """

    def seconds(self, plan: Plan, repeats: int) -> Sequence[float]:
        """Times of *plan*, *repeats* of them."""


StandMaker = Callable[[Backend, Device, ConvProblem, int], Stand]


def by_kernel(kernel: Kernel, x: Any, w: Any, bias: Any, out: Any, repeats: int) -> Sequence[float]:
    """The timer that every kernel brings along."""
    return kernel.seconds(x, w, bias, out, repeats)


class HostStand:
    """NumPy arrays, and a timer that is given the very same ones for every kernel."""

    def __init__(self, chosen: Backend, device: Device, problem: ConvProblem, seed: int,
                 timer: Timer = by_kernel) -> None:
        self._chosen, self._problem, self._seed, self._timer = chosen, problem, seed, timer

    @cached_property
    def _data(self) -> tuple[Any, Any, Any]:
        return bound.sample(self._problem, self._seed)

    @cached_property
    def _expected(self) -> Expected:
        return bound.expected(self._problem, *self._data)

    def judge(self, plan: Plan) -> Accuracy:
        kernel, (x, w, bias) = self._chosen.compile(plan), self._data
        out, guarded = guarded_output(plan)
        kernel(x, w, bias, out)
        require_untouched(plan, guarded)
        return compare_images(out, self._expected)

    def seconds(self, plan: Plan, repeats: int) -> Sequence[float]:
        kernel, (x, w, bias) = self._chosen.compile(plan), self._data
        out, guarded = guarded_output(plan)
        samples = self._timer(kernel, x, w, bias, out, repeats)
        require_untouched(plan, guarded)
        return samples


class GroundStand(HostStand):
    """Data where the kernels run: so many sets in turn that the caches are cold, by graphs.

    Others wait while a kernel is judged as well, as what it does would be part of their times.
    """

    def __init__(self, chosen: Backend, device: Device, problem: ConvProblem, seed: int) -> None:
        super().__init__(chosen, device, problem, seed)
        self._ground, self._policy = ground_of(chosen, device)

    @cached_property
    def _sets(self) -> list[Any]:
        ground, problem = self._ground, self._problem
        ground.release()
        count = set_count(problem.compulsory_bytes, ground.cache_bytes,
                          ground.room_bytes / _PART_OF_ROOM, ground.most_sets)
        return ground.sets(problem, count, self._seed)

    def judge(self, plan: Plan) -> Accuracy:
        with self._ground.alone():
            # Only PyTorch makes the exact result where the data is; the host makes it once.
            if self._ground.calls and not self._ground.on_host:
                return check(self._ground, self._chosen, plan, self._sets[0])
            return super().judge(plan)

    def seconds(self, plan: Plan, repeats: int) -> Sequence[float]:
        ground, sets = self._ground, self._sets
        effort = replace(ground.effort, turns=1, most_replays=repeats, fewest_replays=repeats)
        subject = ground.subject(self._chosen, plan, sets)
        with ground.alone():
            [timing] = device_times(ground.engine, [subject], len(sets), effort)
        if timing.policy != self._policy.clock:
            raise UnavailableError(f"{plan.name} was timed by {timing.policy}, other kernels by "
                                   f"{self._policy.clock}: they cannot be compared")
        return timing.samples


def ground_of(chosen: Backend, device: Device) -> tuple[Ground, Policy]:
    """The memory that *chosen*'s kernels run in, and what is measured there: by graphs, or by
    events where none can be captured.
    """
    # By identity, and with the backend itself, which must not be another's successor.
    known = _grounds.get((id(chosen), device))
    if known is None:
        ground = ground_for(chosen, device, peers=False)
        known = _grounds[id(chosen), device] = chosen, ground, _policy_on(ground)
    return known[1:]


def _policy_on(ground: Ground) -> Policy:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the graph is empty
            ground.engine.record(lambda stream: None)
    except NoGraphError:
        return Policy("cold", "events")
    return Policy("cold", ground.engine.policy)


def default_stand(chosen: Backend, device: Device) -> tuple[StandMaker, Policy]:
    """Where *chosen*'s kernels are judged and timed, and what is measured there."""
    if isinstance(chosen, GpuBackend):
        return GroundStand, ground_of(chosen, device)[1]
    return HostStand, Policy("hot", "host" if chosen.any_device else "events")


def require_times(samples: Sequence[float]) -> tuple[float, ...]:
    """*samples*, which must be positive seconds; UnavailableError where a timer gave others."""
    if not samples or not all(math.isfinite(taken) and taken > 0 for taken in samples):
        raise UnavailableError(f"the timer gave {samples}, which are no times")
    return tuple(samples)


def compare_images(out: np.ndarray[Any, Any], wanted: Expected) -> Accuracy:
    """`bound.compare` image by image, side by side: whole batches take gigabytes at a time."""
    def one(image: int) -> Accuracy:
        part = slice(image, image + 1)
        judged = bound.compare(out[part], Expected(wanted.y[part], wanted.bound[part]))
        return replace(judged, where=(image, *judged.where[1:]))

    if len(out) == 1:
        return one(0)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return max(pool.map(one, range(len(out))), key=lambda judged: judged.share)
