"""Summaries of a comparison: geometric means, layers lost, the best and the worst, the floor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dscore.bench.rows import Row
from dscore.core.text import geomean

OURS = "dscore"
DEFAULT = "default"
FLOAT16 = "dscore_float16"  # dscore's own kernel of a layer of int8 in float16
COMPILED = "dscore_compile"  # a network by dscore, and what is around its layers by torch.compile
# Ways that round more than float32 does are shown, and do not count in the comparison.
_OUTSIDE = "_tf32"


@dataclass(frozen=True)
class LayerResult:
    """One layer in one state of the cache: dscore's row, and those of its peers."""

    kind: str
    layer: str
    batch: int
    cache: str
    ours: Row
    peers: tuple[Row, ...]

    @property
    def default(self) -> Row | None:
        """PyTorch's default; None where it was not timed."""
        return next((row for row in self.timed if row.method == DEFAULT), None)

    @property
    def best(self) -> Row | None:
        """The fastest way of PyTorch; None where none was timed."""
        return min(self.timed, key=_microseconds, default=None)

    @property
    def float16(self) -> Row | None:
        """dscore's own time in float16; None where it was not timed."""
        return next((row for row in self.peers
                     if row.method == FLOAT16 and row.microseconds is not None), None)

    @property
    def timed(self) -> list[Row]:
        """PyTorch's ways that count in the comparison."""
        return [row for row in self.peers if row.microseconds is not None
                and row.method != FLOAT16 and not row.method.endswith(_OUTSIDE)]

    def over(self, peer: Row | None) -> float | None:
        """How many times faster dscore is than *peer*; None where either was not timed."""
        if peer is None or peer.microseconds is None or self.ours.microseconds is None:
            return None
        return peer.microseconds / self.ours.microseconds


@dataclass(frozen=True)
class Speedup:
    """Speed-up of dscore over a peer: the geometric mean, and the layers at both ends."""

    layers: int
    geomean: float
    lost: tuple[tuple[str, float], ...]  # the layers in which dscore is slower, worst first
    best: tuple[str, float]
    worst: tuple[str, float]


@dataclass(frozen=True)
class Summary:
    """One kind of layer at one batch and state of the cache."""

    kind: str
    batch: int
    cache: str
    layers: int
    ours_microseconds: float | None  # mean over the layers in which both sides were timed
    default_microseconds: float | None
    best_microseconds: float | None
    over_default: Speedup | None
    over_best: Speedup | None
    over_floor: float | None  # geometric mean
    failed: tuple[str, ...]  # layers in which dscore was not timed
    float16_microseconds: float | None = None
    over_float16: Speedup | None = None


@dataclass(frozen=True)
class Peer:
    """What dscore is compared with: its names, and where its figures are."""

    name: str
    title: str
    row: Callable[[LayerResult], Row | None]
    mean: Callable[[Summary], float | None]  # microseconds
    over: Callable[[Summary], Speedup | None]


PEERS = (
    Peer("default", "PyTorch's default", lambda one: one.default,
         lambda one: one.default_microseconds, lambda one: one.over_default),
    Peer("best", "the best of PyTorch's ways", lambda one: one.best,
         lambda one: one.best_microseconds, lambda one: one.over_best),
    Peer("float16", "dscore's float16", lambda one: one.float16,
         lambda one: one.float16_microseconds, lambda one: one.over_float16),
)


def peers_of(group: Iterable[Summary]) -> list[Peer]:
    """The peers that were timed on any layer; layers of int8 have no default."""
    summaries = list(group)
    return [peer for peer in PEERS if any(peer.over(one) is not None for one in summaries)]


def layer_results(rows: Iterable[Row]) -> list[LayerResult]:
    """The rows of each layer together, in their order; layers without a row of dscore's are left
    out.
    """
    groups: dict[tuple[str, str, int, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.kind, row.layer, row.batch, row.cache, row.problem), []).append(row)
    results = []
    for (kind, layer, batch, cache, _), group in groups.items():
        ours = [row for row in group if row.method == OURS]
        peers = tuple(row for row in group if row.method != OURS)
        results += [LayerResult(kind, layer, batch, cache, ours[-1], peers)] if ours else []
    return results


def summaries(results: Iterable[LayerResult]) -> list[Summary]:
    """One summary for each kind, state of the cache and batch."""
    groups: dict[tuple[str, str, int], list[LayerResult]] = {}
    for result in results:
        groups.setdefault((result.kind, result.cache, result.batch), []).append(result)
    return [_summary(*key, group) for key, group in groups.items()]


def _summary(kind: str, cache: str, batch: int, group: list[LayerResult]) -> Summary:
    floors = [over for one in group if (over := one.ours.over_floor) is not None]
    both = [one for one in group
            if one.over(one.default or one.best or one.float16) is not None]
    return Summary(
        kind, batch, cache, len(group), _mean([one.ours for one in both]),
        _mean([one.default for one in both if one.default]),
        _mean([one.best for one in both if one.best]),
        _speedup(group, lambda one: one.default), _speedup(group, lambda one: one.best),
        geomean(floors) if floors else None,
        tuple(one.layer for one in group if one.ours.microseconds is None),
        _mean([one.float16 for one in both if one.float16]),
        _speedup(group, lambda one: one.float16))


def _mean(rows: Sequence[Row]) -> float | None:
    return math.fsum(map(_microseconds, rows)) / len(rows) if rows else None


def _microseconds(row: Row) -> float:
    return math.inf if row.microseconds is None else row.microseconds


def _speedup(group: list[LayerResult], peer: Callable[[LayerResult], Row | None]) -> Speedup | None:
    ratios = sorted(((one.layer, ratio) for one in group
                     if (ratio := one.over(peer(one))) is not None), key=lambda pair: pair[1])
    if not ratios:
        return None
    return Speedup(len(ratios), geomean([ratio for _, ratio in ratios]),
                  tuple(pair for pair in ratios if pair[1] < 1), ratios[-1], ratios[0])
