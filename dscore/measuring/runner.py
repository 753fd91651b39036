"""Runners: the memory and the clock that kernels are checked and timed with; the host's one."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import numpy as np

from dscore.checking import bound
from dscore.checking.bound import Accuracy
from dscore.checking.check import Guarded, guarded_outputs, run_guarded
from dscore.checking.rounding import Rounding, rounding_of
from dscore.core.backend import Backend
from dscore.core.device import Device
from dscore.core.errors import UnavailableError
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.measuring.clocks import HostClock
from dscore.measuring.floors import Floors, host_floors
from dscore.measuring.timing import Clock, Effort, Subject
from dscore.ops import split

Judging = Callable[[Sequence[Any], Rounding], Accuracy]  # of results, by the bound of a rounding
Arrays = tuple[Any, ...]  # the operands of an operation, None for a missing one


class Runner(Protocol):
    """Memory with data in it, a clock, and the kernels that run there."""

    clock: Clock
    effort: Effort
    title: str  # of the machine's processor or GPU
    versions: str  # of the libraries in use
    on_host: bool
    calls: bool  # whether `dscore.conv` takes arrays of that memory
    most_sets: int
    cache_bytes: int
    room_bytes: float  # for all copies of all sets

    def sets(self, problem: ConvProblem, count: int, seed: int) -> list[Arrays]:
        """*count* sets of normal random data, each with outputs."""

    def subject(self, backend: Backend, plan: Plan, sets: Sequence[Arrays]) -> Subject:
        """The kernel of *plan*, to be launched on any of *sets*."""

    def guarded(self, problem: ConvProblem) -> Sequence[Guarded]:
        """Guarded outputs of *problem*."""

    def judge_of(self, problem: ConvProblem, arrays: Arrays) -> Judging:
        """The worst accuracy of results of the inputs in *arrays*, whose contents stay as they are.
        """

    def floors(self) -> Floors:
        """Bounds that no kernel undercuts there."""

    def exclusive(self) -> AbstractContextManager[None]:
        """Lock that keeps other processes of dscore from measuring there; may be nested."""

    def release(self) -> None:
        """Give back memory that is no longer used."""


class KernelSubject:
    """A dscore kernel on sets of data, to be timed; *start* takes a set and a stream."""

    def __init__(self, sets: Sequence[Any], start: Callable[[Any, int], None]) -> None:
        self.name, self._sets, self._start = "dscore", sets, start

    def launch(self, index: int, stream: int) -> None:
        """Start it on the set numbered *index*."""
        self._start(self._sets[index], stream)

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Nothing."""
        yield


def runner_of(backend: Backend, device: Device, peers: bool) -> Runner:
    """The runner that *backend* brings along; see `Backend.runner`."""
    runner: Runner = backend.runner(device, peers)
    return runner


def check(runner: Runner, backend: Backend, plan: Plan, arrays: Arrays,
          judge: Judging | None = None) -> Accuracy:
    """Accuracy of one guarded run of *plan* on the inputs of *arrays*; *judge* is of these.

    Raises DscoreError where the kernel fails, or writes outside its output.
    """
    inputs, _ = split(plan.problem, arrays)

    def run(*outs: Any) -> None:
        runner.subject(backend, plan, [(*inputs, *outs)]).launch(0, 0)
        runner.clock.synchronize()

    guarded = runner.guarded(plan.problem)
    run_guarded(plan, guarded, run)
    judge = judge or runner.judge_of(plan.problem, arrays)
    return judge([one.out for one in guarded], rounding_of(plan))


def require_torch(gpu: bool) -> Any:
    """PyTorch; UnavailableError where it is missing, or sees no GPU though one is asked for."""
    try:
        import torch
    except ImportError as absent:
        raise UnavailableError(f"PyTorch is not installed ({absent}); pip install dscore[torch], "
                               "or measure without it: --peer none") from absent
    if gpu and not torch.cuda.is_available():
        raise UnavailableError(f"this PyTorch ({torch.__version__}) sees no GPU; install its build "
                               "for CUDA or ROCm, or measure without it: --peer none")
    return torch


class HostRunner:
    """NumPy arrays; the time is that of calls on this machine's processor."""

    on_host, calls, most_sets = True, True, 8

    def __init__(self, device: Device) -> None:
        self.clock: Clock = HostClock()
        self.effort = Effort(turns=3, replay_seconds=0.0, total_seconds=7e-3, most_replays=3,
                             fewest_replays=1, probe_launches=1)
        self.title = f"host {platform.machine()}, {os.cpu_count()} cores"
        self.versions = f"numpy {np.__version__}"
        self.cache_bytes, self.room_bytes = device.l2_bytes, 2.0**31

    def sets(self, problem: ConvProblem, count: int, seed: int) -> list[Arrays]:
        return [(*bound.sample(problem, seed + number), *bound.blank(problem))
                for number in range(count)]

    def subject(self, backend: Backend, plan: Plan, sets: Sequence[Arrays]) -> Subject:
        kernel = backend.compile(plan)
        return KernelSubject(sets, lambda arrays, stream: kernel(*arrays))

    def guarded(self, problem: ConvProblem) -> Sequence[Guarded]:
        return guarded_outputs(problem)

    def judge_of(self, problem: ConvProblem, arrays: Arrays) -> Judging:
        judged = bound.judge_of(np, problem, split(problem, arrays)[0])
        return lambda results, rounding: judged([*map(np.asarray, results)], rounding)

    def floors(self) -> Floors:
        return host_floors(self.clock, self.effort)

    def exclusive(self) -> AbstractContextManager[None]:
        return nullcontext()  # host times are compared with nothing else

    def release(self) -> None:
        """Nothing: NumPy frees an array with its last reference."""
