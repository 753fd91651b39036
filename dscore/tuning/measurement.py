"""Measurements of tilings, and the records they make: values that are checked field by field.

Measurements are only ever added, and sets of them are merged by union. So neither their order, nor
the number of tuners, nor a file that is read twice makes a difference.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from dscore.algorithms.registry import require_runs, tiling_from
from dscore.cache.store import key
from dscore.core.errors import SpecError, require_int
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling
from dscore.core.token import parse_problem, problem_token
from dscore.tuning.measurement_policy import MeasurementPolicy

FORMAT = 1
# A median of so many samples is worth more than a faster one of a few.
THOROUGH = 12
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Identity:
    """Circumstances of a measurement: times are compared only where all of them are equal."""

    problem: str  # as a token
    backend: str
    device: str
    architecture: str
    kernels: str  # hash of their sources
    compiler: str
    policy: MeasurementPolicy

    def __post_init__(self) -> None:
        for name in ("problem", "backend", "device", "architecture", "compiler"):
            _require_text(getattr(self, name), name)
        if not isinstance(self.kernels, str) or not _DIGEST.fullmatch(self.kernels):
            raise SpecError(f"kernels must be a SHA-256 in hexadecimal, got {self.kernels!r}")
        if problem_token(parse_problem(self.problem)) != self.problem:
            raise SpecError(f"problem {self.problem!r} is not written as dscore writes it: "
                            f"{problem_token(parse_problem(self.problem))!r}")

    @property
    def conv_problem(self) -> ConvProblem:
        """Problem of the token."""
        return parse_problem(self.problem)

    @cached_property
    def lookup(self) -> str:
        """First 16 digits of the keys, the same for all kernel sources, compilers and policies."""
        return lookup(self.problem, self.backend, self.device, self.architecture)

    @cached_property
    def prefix(self) -> str:
        """First 32 digits of the keys."""
        return self.lookup + key(self.kernels, self.compiler, str(self.policy))[:16]


def lookup(problem: str, backend: str, device: str, architecture: str) -> str:
    """First 16 digits of the keys of a problem's measurements on a device."""
    return key("tuning", problem, backend, device, architecture)[:16]


@dataclass(frozen=True)
class Measurement:
    """Times of one tiling, whose result was right; or the reason why the tiling is refused.

    A refused tiling has no times here, nor has one whose error is above the bound, whoever wrote
    the measurement: such a tiling can never be the winner.
    """

    identity: Identity
    tiling: Tiling
    samples: tuple[float, ...]  # seconds
    share: float | None  # the worst error as a share of its bound; None where it is not known
    refused: str  # empty where it is right
    seed: int  # of the data
    environment: tuple[tuple[str, str], ...]  # names and versions

    def __post_init__(self) -> None:
        require_runs(self.identity.conv_problem, self.tiling)
        require_int(self.seed, "seed", 0)
        for sample in self.samples:
            if not _number(sample) or sample <= 0:
                raise SpecError(f"samples must be positive seconds, got {sample!r}")
        # As floats, so that what JSON calls 1 and 1.0 is one measurement.
        object.__setattr__(self, "samples", tuple(map(float, self.samples)))
        if self.share is not None and not (_number(self.share) and self.share >= 0):
            raise SpecError(f"share must be a number, 0 at least, or null, got {self.share!r}")
        if self.share is not None:
            object.__setattr__(self, "share", float(self.share))
        if not isinstance(self.refused, str):
            raise SpecError(f"refused must be a text, got {self.refused!r}")
        if self.refused and self.samples:
            raise SpecError("a refused configuration has no samples")
        if not self.refused and (not self.samples or self.share is None or self.share > 1):
            raise SpecError("a configuration that is not refused has samples, and a share of the "
                            f"bound of at most 1, not {self.share}")
        for pair in self.environment:
            for text in pair:
                _require_text(text, "environment")

    @property
    def key(self) -> str:
        """Key in the cache; different measurements have different keys, even of one tiling."""
        name = key(self.tiling.name)[:16]
        content = key(repr((self.samples, self.share, self.refused, self.seed, self.environment)))
        return self.identity.prefix + name + content[:16]

    def as_json(self) -> dict[str, Any]:
        """Values for JSON, from which `of_json` makes the measurement again."""
        identity = {f.name: getattr(self.identity, f.name) for f in fields(Identity)}
        return {"format": FORMAT, **identity, "policy": str(self.identity.policy),
                "tiling": self.tiling.as_json(), "refused": self.refused, "share": self.share,
                "samples": list(self.samples), "seed": self.seed,
                "environment": dict(self.environment)}

    @classmethod
    def of_json(cls, value: Any) -> Measurement:
        """Measurement that `as_json` made; older files lack the tiling's algorithm.

        Raises SpecError naming the field that is at fault.
        """
        _require_fields(value)
        circumstances = {f.name: value[f.name] for f in fields(Identity)}
        identity = Identity(**{**circumstances, "policy": MeasurementPolicy.of(value["policy"])})
        tiling = tiling_from(_of_type(value, "tiling", dict))
        samples = tuple(_of_type(value, "samples", list))
        environment = tuple(sorted(_of_type(value, "environment", dict).items()))
        return cls(identity, tiling, samples, value["share"], value["refused"], value["seed"],
                   environment)


def _require_fields(value: Any) -> None:
    if not isinstance(value, dict):
        raise SpecError(f"a measurement is a JSON object, not {type(value).__name__}")
    if value.get("format") != FORMAT:
        raise SpecError(f"format must be {FORMAT}, got {value.get('format')!r}")
    names = {"format", "tiling", "samples", "share", "refused", "seed", "environment",
             *(f.name for f in fields(Identity))}
    for fault, faulty in (("missing", names - set(value)), ("unknown", set(value) - names)):
        if faulty:
            raise SpecError(f"{fault} {', '.join(sorted(faulty))}")


def _of_type(value: Mapping[str, Any], name: str, kind: type) -> Any:
    if not isinstance(value[name], kind):
        raise SpecError(f"{name} must be a JSON {'object' if kind is dict else 'array'}, got "
                        f"{value[name]!r}")
    return value[name]


def _require_text(value: Any, name: str) -> None:
    if not isinstance(value, str) or not value:
        raise SpecError(f"{name} must be a text, got {value!r}")


def _number(value: Any) -> bool:
    """Whether *value* is a finite number; Python reads infinities and switches as JSON, too."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) < 2**63


# First word of the reason why a tiling is refused whose kernel keeps values in memory.
SPILLS = "spills"


@dataclass(frozen=True)
class Configuration:
    """Tiling with the samples, the worst error and the refusal of all its measurements."""

    tiling: Tiling
    samples: tuple[float, ...]
    share: float | None  # of the bound, that the worst error takes
    refused: str  # empty where every measurement found it right

    @property
    def medians(self) -> tuple[float, ...]:
        """Median of the samples; none where the tiling is refused."""
        return (statistics.median(self.samples),) if self.samples else ()

    @property
    def seconds(self) -> float | None:
        """Median of the samples; None where the tiling is refused."""
        return sum(self.medians) if self.samples else None

    @property
    def count(self) -> int:
        """Number of samples."""
        return len(self.samples)


@dataclass(frozen=True)
class TuningRecord:
    """Measurements of a problem under one identity, and their ranking."""

    identity: Identity
    measurements: frozenset[Measurement]

    @cached_property
    def configurations(self) -> dict[str, Configuration]:
        """Configurations by the name of their tiling."""
        groups: dict[str, list[Measurement]] = {}
        for measurement in self.measurements:
            groups.setdefault(measurement.tiling.name, []).append(measurement)
        return {name: _pooled(groups[name]) for name in sorted(groups)}

    @cached_property
    def ranking(self) -> tuple[Configuration, ...]:
        """Configurations that are right: those with enough samples first, then by time."""
        right = [c for c in self.configurations.values() if not c.refused]
        enough = min(THOROUGH, max((c.count for c in right), default=0))
        return tuple(sorted(right, key=lambda c: (c.count < enough, c.seconds, c.tiling.name)))

    @property
    def best(self) -> Configuration | None:
        """First of the ranking; None where no configuration is right."""
        return self.ranking[0] if self.ranking else None

    @property
    def refused(self) -> tuple[Configuration, ...]:
        """Configurations that can never win."""
        return tuple(c for c in self.configurations.values() if c.refused)

    @property
    def spilling(self) -> tuple[Configuration, ...]:
        """Those of `refused` whose kernels keep values in memory, for want of registers."""
        return tuple(c for c in self.refused if c.refused.startswith(SPILLS))


def _pooled(measurements: Iterable[Measurement]) -> Configuration:
    """Configuration of all measurements of one tiling; refused where any of them is, for a kernel
    that is wrong at times is wrong.
    """
    ordered = sorted(measurements, key=lambda m: m.key)
    reasons = [m.refused for m in ordered if m.refused]
    samples = sorted(s for m in ordered for s in m.samples) if not reasons else []
    shares = [m.share for m in ordered if m.share is not None]
    return Configuration(ordered[0].tiling, tuple(samples), max(shares, default=None),
                         reasons[0] if reasons else "")


def records_of(measurements: Iterable[Measurement]) -> list[TuningRecord]:
    """Records that *measurements* make, in the order of problem, device and policy."""
    groups: dict[Identity, set[Measurement]] = {}
    for measurement in measurements:
        groups.setdefault(measurement.identity, set()).add(measurement)
    return [TuningRecord(identity, frozenset(groups[identity]))
            for identity in sorted(groups, key=lambda i: (i.problem, i.device, i.policy.rank,
                                                            i.prefix))]
