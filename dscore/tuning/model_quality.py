"""Tuning decided again from its records, without a GPU: how good the model's first guesses were.

The order is the solver's of today, so that a changed cost model is judged on old measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dscore.core import catalog
from dscore.core.device import Device
from dscore.core.errors import DscoreError
from dscore.core.text import geomean
from dscore.core.tiling import Tiling
from dscore.solving import solver
from dscore.solving.solver import Space
from dscore.tuning.measurement import Configuration, Measurement, Record, records_of

FIRSTS = (1, 8, 32)


@dataclass(frozen=True)
class Guess:
    """The best of the model's first `count` tilings beside the best of all that were measured."""

    count: int
    measured: int  # of those tilings
    ratio: float | None  # of times, 1 at least; None where none of them was measured and right


@dataclass(frozen=True)
class Replayed:
    """One record, judged."""

    record: Record
    space: int  # tilings that the solver finds
    best: Configuration
    rank: int | None  # place of the best in the model's order, from 1; None: not found any more
    guesses: tuple[Guess, ...]

    @property
    def exhaustive(self) -> bool:
        """Whether every tiling of today's space was measured."""
        return len(self.record.configurations) >= self.space


@dataclass(frozen=True)
class Replay:
    """All records of a run, and those that could not be judged, each with the reason."""

    layers: tuple[Replayed, ...]
    skipped: tuple[str, ...]

    def mean(self, count: int) -> float | None:
        """Geometric mean of the first *count*'s ratios; None where there are none."""
        ratios = [guess.ratio for layer in self.layers for guess in layer.guesses
                  if guess.count == count and guess.ratio is not None]
        return geomean(ratios) if ratios else None


def replay(measurements: Iterable[Measurement], device: Device | None = None,
           firsts: Sequence[int] = FIRSTS) -> Replay:
    """Judge the model's order on *measurements*; *device* describes theirs if none shipped does."""
    layers, skipped = [], []
    for record in records_of(measurements):
        try:
            layers.append(_judged(record, _device_of(record, device), firsts))
        except DscoreError as failed:
            skipped.append(f"{record.identity.problem} on {record.identity.device}: {failed}")
    return Replay(tuple(layers), tuple(skipped))


def _device_of(record: Record, given: Device | None) -> Device:
    """The device that a record is of."""
    said = record.identity
    device = given if given is not None and given.name == said.device else catalog.device(
        said.device)
    if device.architecture != said.architecture:
        raise DscoreError(f"the record is of {said.architecture}, {device.name} is "
                          f"{device.architecture}")
    return device


def _judged(record: Record, device: Device, firsts: Sequence[int]) -> Replayed:
    best = record.best
    if best is None or best.seconds is None:
        raise DscoreError("no configuration was right")
    space = solver.solve(record.identity.stated, device)
    order = space.ranked()
    first = [space[int(index)].name for index in order[:max(firsts)]]
    guesses = tuple(_guess(record, first[:count], count, best.seconds) for count in firsts)
    return Replayed(record, len(space), best, _rank(space, order, best.tiling), guesses)


def _guess(record: Record, names: Sequence[str], count: int, best: float) -> Guess:
    found = [record.configurations[name] for name in names if name in record.configurations]
    times = [c.seconds for c in found if c.seconds is not None]
    # Few samples may lie below the winner's median; no guess is better than the best.
    return Guess(count, len(found), max(min(times) / best, 1.0) if times else None)


def _rank(space: Space, order: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
          tiling: Tiling) -> int | None:
    """The place of *tiling* in *order*, from 1."""
    if space.algorithm.name != tiling.algorithm:
        return None
    same = np.ones(len(space), bool)
    for name, value in tiling.as_dict().items():
        same &= np.broadcast_to(vars(space.case.tiling)[name] == value, same.shape)
    places = np.flatnonzero(same[order])
    return int(places[0]) + 1 if len(places) else None
