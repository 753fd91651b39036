"""Paired records: what tilings take cold, and behind the pointwise layer that writes their input.

Cold times alone do not tell which tiling is the fastest in a network, nor do those behind another
layer alone: there tilings of long chains lose, here those of more traffic (docs/tuning.md). So
where there are both, the tiling of the least sum is the best.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from dscore.tuning.measurement import Configuration, TuningRecord
from dscore.tuning.measurement_policy import MeasurementPolicy

COLD, BEHIND = MeasurementPolicy("cold", "graph"), MeasurementPolicy("behind", "graph")


@dataclass(frozen=True)
class PairedConfiguration(Configuration):
    """Tiling with its cold samples, and those `behind` a pointwise layer; its time is the sum of
    both medians.

    >>> from dscore.algorithms.direct import DirectTiling
    >>> PairedConfiguration(DirectTiling(64, 2), (3e-6, 5e-6), 0.2, "", (7e-6,)).seconds
    1.1e-05
    """

    behind: tuple[float, ...]

    @property
    def medians(self) -> tuple[float, ...]:
        """Medians of both."""
        return statistics.median(self.samples), statistics.median(self.behind)

    @property
    def count(self) -> int:
        """Number of samples that there are of both."""
        return min(len(self.samples), len(self.behind))


@dataclass(frozen=True)
class PairedRecord(TuningRecord):
    """Cold measurements of a problem, and those `behind` a pointwise layer.

    Its configurations are the tilings that were measured in both ways, and those that either
    refuses.
    """

    behind: TuningRecord

    @classmethod
    def of(cls, cold: TuningRecord, behind: TuningRecord) -> PairedRecord:
        """Record of both."""
        return cls(cold.identity, cold.measurements, behind)

    @property
    def cold(self) -> TuningRecord:
        """The cold measurements alone."""
        return TuningRecord(self.identity, self.measurements)

    @cached_property
    def configurations(self) -> dict[str, Configuration]:
        """Configurations by the name of their tiling."""
        cold, behind = self.cold.configurations, self.behind.configurations
        both = {name: _pair(cold.get(name), behind.get(name)) for name in sorted({*cold, *behind})}
        return {name: pair for name, pair in both.items() if pair is not None}


def _pair(cold: Configuration | None, behind: Configuration | None) -> Configuration | None:
    """Configuration of both; the refusal where there is one; None where either was not measured."""
    for one in (cold, behind):
        if one is not None and one.refused:
            return one
    if cold is None or behind is None:
        return None
    return PairedConfiguration(cold.tiling, cold.samples, cold.share, "", behind.samples)


def with_pairs(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    """Records of networks, then paired ones of those that differ in nothing but the way of timing,
    then the other *records*.
    """
    listed = list(records)
    by_identity = {record.identity: record for record in listed}
    pairs = [PairedRecord.of(cold, by_identity[behind]) for cold in listed
             if cold.identity.policy == COLD
             and (behind := replace(cold.identity, policy=BEHIND)) in by_identity]
    networks = [record for record in listed if record.identity.policy.network]
    return [*networks, *pairs, *(record for record in listed if record not in networks)]
