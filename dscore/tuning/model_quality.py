"""Quality of the cost model: how good its first tilings are by the records, without a GPU.

The order is that of the solver of today, so that a changed model is judged by old measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from dscore.core import catalog
from dscore.core.device import Device
from dscore.core.errors import DscoreError
from dscore.core.text import geomean
from dscore.core.tiling import Tiling
from dscore.solving import solver
from dscore.solving.solver import Space
from dscore.tuning.measurement import Configuration, Measurement, TuningRecord, records_of

FIRSTS = (1, 8, 32)


@dataclass(frozen=True)
class Guess:
    """Best of the model's first `count` tilings, beside the best of all that were measured."""

    count: int
    measured: int  # of the first tilings
    ratio: float | None  # of their times, 1 at least; None where no first one has a time


@dataclass(frozen=True)
class RecordQuality:
    """Quality of the model on one record."""

    record: TuningRecord
    space: int  # tilings that fit, by the solver
    best: Configuration
    rank: int | None  # of the best in the model's order, from 1; None where it no longer fits
    guesses: tuple[Guess, ...]

    @property
    def exhaustive(self) -> bool:
        """Whether all tilings of today's space were measured."""
        return len(self.record.configurations) >= self.space


@dataclass(frozen=True)
class ModelQuality:
    """Quality of the model on many records, and why others could not be judged."""

    layers: tuple[RecordQuality, ...]
    skipped: tuple[str, ...]

    def mean(self, count: int) -> float | None:
        """Geometric mean of the ratios of the first *count*; None where there are none."""
        ratios = [guess.ratio for layer in self.layers for guess in layer.guesses
                  if guess.count == count and guess.ratio is not None]
        return geomean(ratios) if ratios else None


def judge_model(measurements: Iterable[Measurement], device: Device | None = None,
                firsts: Sequence[int] = FIRSTS) -> ModelQuality:
    """Quality of the model's order on *measurements*.

    *device* describes the device of that name, in place of one that is shipped.
    """
    layers, skipped = [], []
    for record in records_of(measurements):
        try:
            layers.append(_quality(record, _device_of(record, device), firsts))
        except DscoreError as failed:
            skipped.append(f"{record.identity.problem} on {record.identity.device}: {failed}")
    return ModelQuality(tuple(layers), tuple(skipped))


def _device_of(record: TuningRecord, given: Device | None) -> Device:
    """Device of a record: *given* where it has the name, else the shipped one."""
    identity = record.identity
    device = given if given is not None and given.name == identity.device else catalog.device(
        identity.device)
    if device.architecture != identity.architecture:
        raise DscoreError(f"the record is of {identity.architecture}, {device.name} is "
                          f"{device.architecture}")
    return device


def _quality(record: TuningRecord, device: Device, firsts: Sequence[int]) -> RecordQuality:
    best = record.best
    if best is None or best.seconds is None:
        raise DscoreError("no configuration was right")
    problem = record.identity.conv_problem
    spaces = solver.compared_spaces(problem, device)
    first = [plan.tiling.name
             for plan in islice(solver.ranked_plans(problem, device), max(firsts))]
    guesses = tuple(_guess(record, first[:count], count, best.seconds) for count in firsts)
    return RecordQuality(record, sum(map(len, spaces)), best, _rank(spaces, best.tiling), guesses)


def _guess(record: TuningRecord, names: Sequence[str], count: int, best: float) -> Guess:
    measured = [record.configurations[name] for name in names if name in record.configurations]
    times = [c.seconds for c in measured if c.seconds is not None]
    # Few samples may lie below the winner's median; no guess is better than the best.
    return Guess(count, len(measured), max(min(times) / best, 1.0) if times else None)


def _rank(spaces: Sequence[Space], tiling: Tiling) -> int | None:
    """Rank of *tiling* in the order of all *spaces*, from 1."""
    own = next((space for space in spaces if space.algorithm.name == tiling.algorithm), None)
    if own is None:
        return None
    same = np.ones(len(own), bool)
    for name, value in tiling.as_dict().items():
        same &= np.broadcast_to(vars(own.case.tiling)[name] == value, same.shape)
    ranks = np.flatnonzero(same[own.ranked()])
    if not len(ranks):
        return None
    seconds = own.costs.seconds[own.ranked()[ranks[0]]]
    before = sum(int(np.count_nonzero(space.costs.seconds < seconds))
                 for space in spaces if space is not own)
    return int(ranks[0]) + 1 + before
