"""Policy of a timing: which caches a kernel finds, and by which clock it is timed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dscore.core.errors import SpecError, require_one_of

# The preferred ones first. "network": in a network; "behind": behind the pointwise layer that
# writes the input.
CACHES = ("network", "cold", "behind", "hot")
CLOCKS = ("graph", "events", "host")


@dataclass(frozen=True)
class MeasurementPolicy:
    """Policy of a timing: `cold` or `hot` caches, those that a pointwise layer leaves `behind`, or
    those of a `network`, whose name it has; a captured `graph`, `events`, or the `host`'s clock,
    whose times say nothing about a device.
    """

    cache: str
    clock: str
    network: str = ""

    def __post_init__(self) -> None:
        require_one_of(self.cache, "cache", CACHES)
        require_one_of(self.clock, "clock", CLOCKS)
        if bool(self.network) != (self.cache == "network") or " " in self.network:
            raise SpecError("a policy names a network, in one word, where times are of a network "
                            f"alone, got {self.cache!r} and {self.network!r}")

    @classmethod
    def of(cls, text: Any) -> MeasurementPolicy:
        """Policy of a text that `str` wrote.

        >>> MeasurementPolicy.of("cold graph").cache
        'cold'
        >>> MeasurementPolicy.of("network graph mobilenet_v2").network
        'mobilenet_v2'
        """
        words = text.split(" ") if isinstance(text, str) else []
        if len(words) not in (2, 3):
            raise SpecError("policy must be a cache and a clock, as in 'cold graph', or those and "
                            f"a network, got {text!r}")
        return cls(*words)

    @property
    def rank(self) -> tuple[int, int]:
        """Rank among policies; the least is preferred."""
        return CACHES.index(self.cache), CLOCKS.index(self.clock)

    def __str__(self) -> str:
        return f"{self.cache} {self.clock} {self.network}".rstrip()
