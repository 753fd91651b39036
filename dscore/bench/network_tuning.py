"""Tuning in a network: tilings of all its layers are tried in its captured graph, where they run.

What a kernel takes there is told by its end and that of the kernel before
(dscore.measuring.kernel_ends). These times add up to the network's, so that one graph times all
layers at once, and in every round each layer may have another tiling.
"""

from __future__ import annotations

import math
import re
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue

import torch

from dscore.bench import network_methods as methods
from dscore.bench.layer_trials import LayerTrials
from dscore.bench.network_methods import NetworkSubject, Setup
from dscore.bench.network_workplace import Workplace
from dscore.bench.summary import OURS
from dscore.calling.assignment import assigned
from dscore.core.backend import GpuBackend, choose_backend
from dscore.core.errors import CompileError, UnavailableError, require_int
from dscore.core.plan import Plan
from dscore.core.token import parse_problem
from dscore.measuring.kernel_ends import KernelTimes, kernel_times
from dscore.measuring.timing import NoGraphError, captured
from dscore.torch.models import short_name
from dscore.torch.report import Report
from dscore.tuning.builder import Builder
from dscore.tuning.evaluator import CheckingEvaluator, HostEvaluator
from dscore.tuning.measurement_policy import MeasurementPolicy
from dscore.tuning.trials import SearchRequest

TOP = 32
# Rounds whose kernels are built together, so that all cores have work.
_TOGETHER = 4
# At the end: the fastest of each layer once more, so often; and both networks in turns.
_FINALISTS, _AGAIN, _TURNS = 3, 2, 3
# Of a round: replays whose kernels' ends are taken, and replays that are timed as a whole.
_PROFILED_REPLAYS, _TIMED_REPLAYS = 25, 20


@dataclass(frozen=True)
class NetworkTimes:
    """Times of a network's graph: seconds of each replay, and those of its kernels."""

    samples: tuple[float, ...]
    kernels: tuple[KernelTimes, ...]


Measure = Callable[[NetworkSubject], NetworkTimes]
Progress = Callable[[int, int, float], object]  # rounds done, of how many, seconds of the network


@dataclass(frozen=True)
class NetworkResult:
    """Result of tuning in a network: its seconds before and after, None where a run ended before
    these were compared, and its layers. *wrong*: the plans that it had whose kernels are not right,
    which calls no longer take, each with the reason; their layers are not tuned.
    """

    network: str
    batch: int
    before: float | None
    after: float | None
    layers: tuple[LayerTrials, ...]
    complete: bool
    wrong: tuple[tuple[Plan, str], ...] = ()

    @property
    def changed(self) -> tuple[LayerTrials, ...]:
        """Layers that have another tiling than before."""
        return tuple(layer for layer in self.layers if layer.best != layer.default)


class Wave:
    """Plans of each layer for some rounds, built by a thread of its own, which a command that is
    interrupted does not wait for.
    """

    def __init__(self, rounds: int, plans: Mapping[LayerTrials, list[Plan]],
                 build: Callable[[Sequence[Sequence[Plan]]], list[dict[str, str]]]) -> None:
        self.rounds, self.plans = rounds, plans
        self._build = build
        self._done: SimpleQueue[list[dict[str, str]] | BaseException] = SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        try:
            self._done.put(self._build([*self.plans.values()]))
        except BaseException as failed:  # told in the thread that waits for it
            self._done.put(failed)

    def built(self) -> list[dict[str, str]]:
        """Of each layer, why plans do not compile, by tiling; waits until all others are built."""
        outcome = self._done.get()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


class NetworkTuning:
    """Tuning of one network at one batch, on the GPU of a workplace.

    *top* tilings of each layer are tried, half of them the first by the cost model, half near the
    fastest so far. Each is built and held to the bound before it runs in the network. Every time is
    on record at once, so that a run may end at any time, and the same one goes on from there.
    *until*: when no further round is begun, on the monotonic clock.
    """

    def __init__(self, network: str, shape: tuple[int, ...], workplace: Workplace, top: int = TOP,
                 until: float = math.inf, progress: Progress = lambda *_: None,
                 measure: Measure | None = None) -> None:
        require_int(top, "top")
        self._backend = choose_backend(workplace.backend)
        if measure is None and not isinstance(self._backend, GpuBackend):
            raise UnavailableError(f"{workplace.name} computes on the host: kernels are timed in a "
                                   "network by a captured graph of a GPU")
        self.network, self.batch, self._top, self._until = network, shape[0], top, until
        self._progress, self._workplace = progress, workplace
        self._measure = measure or partial(_measured, workplace)
        self._setup = workplace.setup(network, shape)
        self._builder = Builder(self._backend)
        self.layers: list[LayerTrials] = []
        self._wrong: list[tuple[Plan, str]] = []
        self._complete, self._rounds = False, 0
        self._before: list[float] = []
        self._after: list[float] = []

    def run(self) -> None:
        """Try tilings of every layer, then compare the network before and after."""
        self._find_layers()
        coming = self._next_wave()
        while coming is not None:
            wave = coming
            for layer, reasons in zip(self.layers, wave.built(), strict=True):
                layer.make_ready(wave.plans[layer], reasons)
            coming = self._next_wave()  # is built while this one is timed
            for _ in range(wave.rounds):
                if time.monotonic() < self._until:
                    self._round([layer.take_ready() for layer in self.layers])
        for place in (*range(_FINALISTS),) * _AGAIN:
            self._round([layer.fastest(place) for layer in self.layers])
        for _ in range(_TURNS):
            self._before.append(self._round([layer.default for layer in self.layers]))
            self._after.append(self._round([layer.best for layer in self.layers]))
        self._complete = not (self._untried() or any(layer.waiting for layer in self.layers))

    @property
    def result(self) -> NetworkResult:
        """What is known by now."""
        before, after = (statistics.median(times) if times else None
                         for times in (self._before, self._after))
        return NetworkResult(self.network, self.batch, before, after, tuple(self.layers),
                             self._complete, tuple(self._wrong))

    def _untried(self) -> int:
        """Tilings that are left to propose of the layer that has most of them."""
        return max((self._top - layer.seen for layer in self.layers if not layer.exhausted),
                   default=0)

    def _find_layers(self) -> None:
        """The layers whose kernels a graph of the network has, by the plans that calls take now."""
        self._setup = _as_chosen(self._setup)
        with assigned({}) as assignment:
            subject, _ = methods.inference(self._setup, OURS)
            times = self._measure(subject)
        plans = assignment.defaults
        samples = _samples_of(times.kernels, plans.values())
        request = self._request()
        for token, of_plan in samples.items():
            layer = LayerTrials.of(request, self._backend, plans[token])
            if layer is None:
                continue
            if reason := layer.fault_of_default():
                self._wrong.append((plans[token], reason))
            elif layer.add(plans[token], of_plan):
                layer.launches = _launches(_kernels_of(times.kernels, layer.default))
                self.layers.append(layer)

    def _request(self) -> SearchRequest:
        """What the layers' trials go by."""
        work = self._workplace
        evaluator = (CheckingEvaluator if isinstance(self._backend, GpuBackend) else HostEvaluator)
        return SearchRequest(self._backend.name if work.backend == "auto" else work.backend,
                             self._backend.device(), self._top, work.seed, evaluator,
                             MeasurementPolicy("network", "graph", short_name(self.network)))

    def _next_wave(self) -> Wave | None:
        """Tilings of every layer that are tried next, which a thread builds; None where there are
        none, or the time would end before they are built.
        """
        rounds = min(_TOGETHER, self._untried())
        if rounds <= 0 or time.monotonic() + self._builder.slowest >= self._until:
            return None
        return Wave(rounds, {layer: layer.proposed(max(0, min(rounds, self._top - layer.seen)))
                             for layer in self.layers}, self._build)

    def _build(self, plans: Sequence[Sequence[Plan]]) -> list[dict[str, str]]:
        """Build the plans of each layer; why some do not compile, by tiling."""
        with suppress(CompileError):  # which one it is, is found below
            self._builder.build([plan for of_layer in plans for plan in of_layer])
        return [self._builder.build(of_layer) for of_layer in plans]

    def _round(self, plans: Sequence[Plan]) -> float:
        """Median seconds of the network by these plans of its layers, whose times are kept."""
        with assigned({plan.token: plan for plan in plans}):
            subject, _ = methods.inference(self._setup, OURS)
            times = self._measure(subject)
        samples = _samples_of(times.kernels, plans)
        for layer, plan in zip(self.layers, plans, strict=True):
            layer.add(plan, samples.get(plan.token, ()))
        self._rounds, seconds = self._rounds + 1, statistics.median(times.samples)
        self._progress(self._rounds, self._rounds + self._left, seconds)
        return seconds

    @property
    def _left(self) -> int:
        """Rounds that are still to come, about."""
        return 0 if self._after else self._untried() + _FINALISTS * _AGAIN + 2 * _TURNS


def _as_chosen(setup: Setup) -> Setup:
    """*setup* with the kinds of convolutions of which dscore computes any, without timing each
    again.
    """
    if setup.integers or setup.measure is False:
        return setup
    _, report = methods.inference(setup, OURS)
    assert isinstance(report, Report)
    kinds = {parse_problem(layer.problem).spec.kind for layer in report.replaced if layer.problem}
    return replace(setup, measure=False, kinds=tuple(sorted(kinds)))


def _measured(workplace: Workplace, subject: NetworkSubject) -> NetworkTimes:
    """Times of a graph of *subject* on the workplace's GPU.

    Raises UnavailableError for a network of which no graph can be captured.
    """
    clock = workplace.runner.clock
    with workplace.runner.exclusive():
        try:
            replay = captured(clock, subject)
        except NoGraphError as failed:
            raise UnavailableError(
                f"no graph of the network can be captured: {failed}; kernels are timed in one. "
                "dscore tune with the layers' names tunes each by itself") from failed
        samples = tuple(clock.samples(replay, _TIMED_REPLAYS))
        return NetworkTimes(samples, tuple(
            kernel_times(torch, clock, replay, _PROFILED_REPLAYS)))


def _kernels_of(kernels: Sequence[KernelTimes], plan: Plan) -> list[KernelTimes]:
    """The kernels of a plan, which has several where a second one adds up what the first leaves."""
    name = re.compile(rf"\b{re.escape(plan.name)}\b")
    return [kernel for kernel in kernels if name.search(kernel.name)]


def _launches(kernels: Sequence[KernelTimes]) -> int:
    """How often a plan was launched that has these *kernels* in a graph."""
    return len(kernels) // max(1, len({kernel.name for kernel in kernels}))


def _samples_of(kernels: Sequence[KernelTimes], plans: Iterable[Plan]
                ) -> Mapping[str, tuple[float, ...]]:
    """Seconds of a layer's launch in each replay, by the tokens of the plans that have kernels."""
    samples = {}
    for plan in plans:
        own = _kernels_of(kernels, plan)
        if own:
            samples[plan.token] = tuple(sum(each) / _launches(own) for each in zip(
                *(kernel.samples for kernel in own), strict=True))
    return samples
