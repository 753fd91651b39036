"""Rows of a comparison of whole networks: device time, wall time, error, shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dscore.bench.summary import COMPILED, FLOAT16, OURS
from dscore.measuring.timing import Timing


@dataclass(frozen=True)
class Quantity:
    """Microseconds: the median, and the quartiles."""

    median: float
    low: float
    high: float
    policy: str

    @classmethod
    def of(cls, timing: Timing) -> Quantity:
        """A timing in microseconds."""
        low, high = timing.quartiles
        return cls(timing.median * 1e6, low * 1e6, high * 1e6, timing.policy)


@dataclass
class NetworkRow:
    """Measurement of one method on one network, task and batch.

    *error*: of the output, or of the first step's loss, relative to PyTorch in float64. *shares*:
    of the device time, by kind of layer; "other" is the rest of it. *fault*: as of a `Row`.
    *agreement*: beside a model of int8, of the classes with those of float64.
    """

    network: str
    task: str
    batch: int
    method: str
    device: Quantity | None = None
    wall: Quantity | None = None
    error: float | None = None
    shares: dict[str, float] = field(default_factory=dict)
    fault: str = ""
    note: str = ""
    agreement: float | None = None

    def over(self, peer: NetworkRow | None, what: str = "device") -> float | None:
        """How many times as fast this is as *peer*; None where either was not timed."""
        ours, theirs = getattr(self, what), peer and getattr(peer, what)
        return theirs.median / ours.median if ours and theirs else None


def best_of(rows: Sequence[NetworkRow], what: str = "device",
            own: bool = False) -> NetworkRow | None:
    """PyTorch's fastest of some rows, or dscore's *own*, of those that were timed."""
    timed = [row for row in rows if getattr(row, what) is not None
             and (row.method in (OURS, COMPILED) if own
                  else row.method not in (OURS, COMPILED, FLOAT16))]
    return min(timed, key=lambda row: getattr(row, what).median, default=None)
