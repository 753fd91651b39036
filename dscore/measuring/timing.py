"""Timing of kernels: which launches, in which order, how often, and the statistics of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Literal, Protocol

# The way launches reach the device: as a captured graph, one by one between events, or, where there
# is no device, as calls on the host's clock. "eager" is the host's clock on calls as users make.
Policy = Literal["graph", "events", "host", "eager"]
Work = Callable[[int], None]  # launches on a stream, which is given by its address
Replay = Callable[[], None]
Sampler = Callable[[], float]  # seconds a launch
Turn = Callable[[], Sampler]

# Before a capture, as the first ones prepare what is launched.
_WARM_LAUNCHES = 2
# How often the data of a cold measurement exceeds the last-level cache.
_CACHE_TIMES = 3


class Subject(Protocol):
    """What is measured: something that can be started on one of several sets of data."""

    name: str

    def launch(self, index: int, stream: int) -> None:
        """Start it on the set numbered *index*, without waiting."""

    def settings(self) -> AbstractContextManager[None]:
        """What must hold in the process while it is launched."""


class NoGraphError(Exception):
    """Launches that could not be captured."""


class Clock(Protocol):
    """Times on a device, and its way of repeating work."""

    policy: Policy  # of what `record` returns

    def record(self, work: Work) -> Replay:
        """*work* captured, to be replayed without the host; raises NoGraphError."""

    def repeat(self, work: Work) -> Replay:
        """*work* as it is, launched by the host each time."""

    def seconds(self, replay: Replay) -> float:
        """How long one replay takes on the device."""

    def samples(self, replay: Replay, count: int) -> list[float]:
        """How long each of *count* replays takes, one after the other."""

    def synchronize(self) -> None:
        """Wait until the device is done."""

    def now(self) -> float:
        """Seconds of the host's clock."""


@dataclass(frozen=True)
class Effort:
    """How long is measured."""

    turns: int = 5  # of each subject; a turn captures its launches anew
    replay_seconds: float = 2e-3  # that one replay lasts at least
    # Of a turn: after which no further replay is begun, and how many there are.
    total_seconds: float = 10e-3
    most_replays: int = 4
    fewest_replays: int = 2
    probe_launches: int = 20
    # A graph's nodes take memory, and their capture time.
    most_launches: int = 4096
    # Far below the thousand launches at which a device's queue begins to block the host.
    eager_calls: int = 64
    eager_seconds: float = 20e-3  # that calls and the wait for them may take


@dataclass(frozen=True)
class Timing:
    """Seconds per launch, one sample for each replay, and how they were obtained."""

    samples: tuple[float, ...]
    launches: int  # of a replay
    sets: int  # that they rotate over
    policy: Policy

    @property
    def median(self) -> float:
        """The middle sample."""
        return statistics.median(self.samples)

    @property
    def quartiles(self) -> tuple[float, float]:
        """What a quarter and three quarters of the samples stay below."""
        if len(self.samples) == 1:
            return self.samples[0], self.samples[0]
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return low, high


def set_count(set_bytes: int, cache_bytes: int, room_bytes: float, most: int) -> int:
    """Sets of data that exceed the cache three times, at least 2, as far as there is room.

    >>> set_count(1000, 10_000, 1e9, 100), set_count(10**6, 10_000, 1e9, 100)
    (31, 2)
    """
    wanted = _CACHE_TIMES * cache_bytes // set_bytes + 1
    return max(2, min(wanted, int(room_bytes // set_bytes), most))


def device_times(clock: Clock, subjects: Sequence[Subject], sets: int,
                 effort: Effort) -> list[Timing]:
    """Time per launch of each subject, rotating over *sets* sets of data.

    The subjects take turns, each turn in another order, so that a drift of the device hits all of
    them; a turn captures its launches anew. Of graphs the fastest turn counts, as the same launches
    make one at times that is 0.3 us a launch slower on an H200 (docs/benchmark_notes.md). If one
    subject cannot be captured, none is: what is compared is measured alike.
    """
    try:
        measured, policy = _in_turns(clock, clock.record, subjects, sets, effort), clock.policy
    except NoGraphError:
        measured, policy = _in_turns(clock, clock.repeat, subjects, sets, effort), "events"
    return [Timing(tuple(min(turns, key=statistics.median) if policy == "graph"
                         else chain(*turns)), launches, sets, policy)
            for turns, launches in measured]


def _work(subject: Subject, order: Sequence[int]) -> Work:
    def work(stream: int) -> None:
        with subject.settings():
            for index in order:
                subject.launch(index, stream)

    return work


def captured(clock: Clock, subject: Subject) -> Replay:
    """One launch of *subject*, captured behind those that prepare it; raises NoGraphError."""
    work = _work(subject, [0])
    for _ in range(_WARM_LAUNCHES):
        work(0)
    clock.synchronize()
    return clock.record(work)


def _in_turns(clock: Clock, make: Callable[[Work], Replay], subjects: Sequence[Subject],
              sets: int, effort: Effort) -> list[tuple[list[list[float]], int]]:
    """Each subject's samples, by turns, and its launches a replay."""
    orders = [_order(clock, make, subject, sets, effort) for subject in subjects]
    turns = _turns([_turn(clock, make, subject, order)
                    for subject, order in zip(subjects, orders, strict=True)],
                   [len(order) for order in orders], effort)
    return [(samples, len(order)) for samples, order in zip(turns, orders, strict=True)]


def _order(clock: Clock, make: Callable[[Work], Replay], subject: Subject, sets: int,
           effort: Effort) -> list[int]:
    """The sets in whole rotations, so many that a replay lasts long enough, and no more.

    Twenty launches of 5 ms in every replay would cost seconds, and tell nothing more.
    """
    probe = _rotated(effort.probe_launches, sets, effort)
    each = _turn(clock, make, subject, probe)()()
    wanted = math.ceil(effort.replay_seconds / each) if each > 0 else effort.most_launches
    return _rotated(wanted, sets, effort)


def _rotated(launches: int, sets: int, effort: Effort) -> list[int]:
    return [*range(sets)] * max(1, min(math.ceil(launches / sets), effort.most_launches // sets))


def _turn(clock: Clock, make: Callable[[Work], Replay], subject: Subject,
          order: Sequence[int]) -> Turn:
    """Turns that prepare the subject, capture the launches of *order*, and take samples."""
    def begun() -> Sampler:
        _work(subject, order[:_WARM_LAUNCHES])(0)
        clock.synchronize()
        replay = make(_work(subject, order))
        clock.seconds(replay)  # the first replay also carries the graph to the device
        return lambda: clock.seconds(replay) / len(order)

    return begun


def _turns(begins: Sequence[Turn], weights: Sequence[int],
           effort: Effort) -> list[list[list[float]]]:
    """The samples of every subject in every turn; a sample weighs so many launches."""
    samples: list[list[list[float]]] = [[] for _ in begins]
    for turn in range(effort.turns):
        for step in range(len(begins)):
            number = (turn + step) % len(begins)
            samples[number].append(_samples(begins[number](), weights[number], effort))
    return samples


def _samples(sample: Sampler, weight: int, effort: Effort) -> list[float]:
    samples: list[float] = []
    while len(samples) < effort.most_replays and (
            len(samples) < effort.fewest_replays
            or sum(samples) * weight < effort.total_seconds):
        samples.append(sample())
    return samples


def brief_timing(clock: Clock, subject: Subject, sets: int, effort: Effort, count: int,
                 expected_seconds: float) -> Timing:
    """*count* samples of one capture, of a subject whose launch takes about *expected_seconds*.

    It costs a capture and *count* + 1 replays; `device_times` costs as much before its first
    sample. The expected time only settles how many launches a replay has.
    """
    order = _rotated(math.ceil(effort.replay_seconds / expected_seconds), sets, effort)
    _work(subject, order[:_WARM_LAUNCHES])(0)
    clock.synchronize()
    work, policy = _work(subject, order), clock.policy
    try:
        replay = clock.record(work)
    except NoGraphError:
        replay, policy = clock.repeat(work), "events"
    samples = tuple(seconds / len(order) for seconds in clock.samples(replay, count))
    return Timing(samples, len(order), sets, policy)


def eager_times(clock: Clock, subjects: Sequence[Subject], effort: Effort) -> list[Timing]:
    """Time per call that the host spends, as a user calls, in turns.

    Between two waits for the device there are few enough calls that none of them waits for a
    place in its queue: the time is that of the call, not of the kernel.
    """
    calls = [_calls(clock, subject, effort) for subject in subjects]
    begins = [partial(_caller, clock, subject, count)
              for subject, count in zip(subjects, calls, strict=True)]
    return [Timing(tuple(chain(*turns)), count, 1, "eager")
            for turns, count in zip(_turns(begins, calls, effort), calls, strict=True)]


def _calls(clock: Clock, subject: Subject, effort: Effort) -> int:
    """Calls between two waits, such that with the wait they take no longer than they may."""
    _caller(clock, subject, 2)()
    began = clock.now()
    _caller(clock, subject, 1)()
    each = clock.now() - began
    return int(max(1, min(effort.eager_calls, effort.eager_seconds / max(each, 1e-9))))


def _caller(clock: Clock, subject: Subject, count: int) -> Sampler:
    def sample() -> float:
        with subject.settings():
            clock.synchronize()
            began = clock.now()
            for _ in range(count):
                subject.launch(0, 0)
            seconds = clock.now() - began
            clock.synchronize()
        return seconds / count

    return sample
