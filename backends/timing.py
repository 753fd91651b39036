"""How time is measured: which launches, in which order, how often, and what is made of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

# How launches came to the device: as a captured graph, one by one between events, or, where there
# is no device, as calls on the host's clock. "eager" is the host's clock on calls as users make.
Policy = Literal["graph", "events", "host", "eager"]
Work = Callable[[int], None]  # launches on a stream, which is given by its address
Replay = Callable[[], None]

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


class Engine(Protocol):
    """A device's clock, and its way of repeating work."""

    policy: Policy  # of what `record` returns

    def record(self, work: Work) -> Replay:
        """*work* captured, to be replayed without the host; raises NoGraphError."""

    def repeat(self, work: Work) -> Replay:
        """*work* as it is, launched by the host each time."""

    def seconds(self, replay: Replay) -> float:
        """How long one replay takes on the device."""

    def synchronize(self) -> None:
        """Wait until the device is done."""

    def clock(self) -> float:
        """Seconds of the host's clock."""


@dataclass(frozen=True)
class Effort:
    """How long is measured."""

    replay_seconds: float = 2e-3  # that one replay lasts at least
    total_seconds: float = 50e-3  # after which no further replay is begun
    most_replays: int = 20
    fewest_replays: int = 5
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


def device_times(engine: Engine, subjects: Sequence[Subject], sets: int,
                 effort: Effort) -> list[Timing]:
    """Time per launch of each subject, rotating over *sets* sets of data.

    Replays alternate between the subjects, so that a drift of the device hits all of them. If one
    subject cannot be captured, none is: what is compared is measured alike.
    """
    for subject in subjects:
        _work(subject, range(min(sets, 2)))(0)
        engine.synchronize()
    try:
        replays, policy = [_replay(engine, engine.record, subject, sets, effort)
                           for subject in subjects], engine.policy
    except NoGraphError:
        replays, policy = [_replay(engine, engine.repeat, subject, sets, effort)
                           for subject in subjects], "events"
    samples = _alternate([_sampler(engine, replay, launches) for replay, launches in replays],
                         [launches for _, launches in replays], effort)
    return [Timing(tuple(taken), launches, sets, policy)
            for taken, (_, launches) in zip(samples, replays, strict=True)]


def _work(subject: Subject, order: Sequence[int]) -> Work:
    def work(stream: int) -> None:
        with subject.settings():
            for index in order:
                subject.launch(index, stream)

    return work


def _replay(engine: Engine, make: Callable[[Work], Replay], subject: Subject, sets: int,
            effort: Effort) -> tuple[Replay, int]:
    """A replay that lasts long enough, of whole rotations, and its number of launches."""

    def made(launches: int) -> tuple[Replay, int]:
        rotations = max(1, min(math.ceil(launches / sets), effort.most_launches // sets))
        return make(_work(subject, [*range(sets)] * rotations)), rotations * sets

    probe, count = made(effort.probe_launches)
    engine.seconds(probe)  # the first replay also carries the graph to the device
    each = engine.seconds(probe) / count
    wanted = math.ceil(effort.replay_seconds / each) if each > 0 else effort.most_launches
    if wanted <= count:
        return probe, count
    replay, count = made(wanted)
    engine.seconds(replay)
    return replay, count


def _sampler(engine: Engine, replay: Replay, launches: int) -> Callable[[], float]:
    return lambda: engine.seconds(replay) / launches


def _alternate(samplers: Sequence[Callable[[], float]], weights: Sequence[int],
               effort: Effort) -> list[list[float]]:
    """Samples taken in turns, until each sampler has enough; a sample weighs so many launches."""
    samples: list[list[float]] = [[] for _ in samplers]

    def enough(taken: list[float], weight: int) -> bool:
        return len(taken) >= effort.most_replays or (
            len(taken) >= effort.fewest_replays and sum(taken) * weight >= effort.total_seconds)

    while True:
        left = [at for at, taken in enumerate(samples) if not enough(taken, weights[at])]
        if not left:
            return samples
        for at in left:
            samples[at].append(samplers[at]())


def eager_times(engine: Engine, subjects: Sequence[Subject], effort: Effort) -> list[Timing]:
    """Time per call that the host spends, as a user calls, in turns.

    Between two waits for the device there are few enough calls that none of them waits for a
    place in its queue: the time is that of the call, not of the kernel.
    """
    calls = [_calls(engine, subject, effort) for subject in subjects]
    samples = _alternate([_caller(engine, subject, count)
                          for subject, count in zip(subjects, calls, strict=True)], calls, effort)
    return [Timing(tuple(taken), count, 1, "eager")
            for taken, count in zip(samples, calls, strict=True)]


def _calls(engine: Engine, subject: Subject, effort: Effort) -> int:
    """Calls between two waits, such that with the wait they take no longer than they may."""
    _caller(engine, subject, 2)()
    began = engine.clock()
    _caller(engine, subject, 1)()
    each = engine.clock() - began
    return int(max(1, min(effort.eager_calls, effort.eager_seconds / max(each, 1e-9))))


def _caller(engine: Engine, subject: Subject, count: int) -> Callable[[], float]:
    def sample() -> float:
        with subject.settings():
            engine.synchronize()
            began = engine.clock()
            for _ in range(count):
                subject.launch(0, 0)
            taken = engine.clock() - began
            engine.synchronize()
        return taken / count

    return sample
