"""Markdown tables of `dscore bench`: groups of layers, and each layer over its batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dscore.bench.summary import (
    PEERS,
    LayerResult,
    Peer,
    Speedup,
    Summary,
    peers_of,
    summaries,
)

# Of all layers but those of int8.
_USUAL = PEERS[:2]
_HEADS = {"float16": "over float16"}


def lines(results: Sequence[LayerResult]) -> Iterator[str]:
    """All tables."""
    yield from _summaries(summaries(results))
    kinds = dict.fromkeys((one.kind, one.cache) for one in results)
    for kind, cache in kinds:
        group = [one for one in results if (one.kind, one.cache) == (kind, cache)]
        peers = _peers(summaries(group))
        legend = " · ".join(("microseconds", *(f"over {peer.title}" for peer in peers), "÷ floor"))
        yield from ("", f"### {kind.capitalize()}, {cache}", "", f"For each batch size: {legend}.",
                    "", *_layers(group, peers))


def _peers(group: Sequence[Summary]) -> Sequence[Peer]:
    return peers_of(group) or _USUAL


def _summaries(group: Sequence[Summary]) -> Iterator[str]:
    peers = _peers(group)
    over = [head for peer in peers
            for head in (_HEADS.get(peer.name, f"over the {peer.name}"), "lost")]
    yield from _head("kind", "cache", "batch", "layers", *over, "÷ floor")
    for one in sorted(group, key=lambda one: (one.kind, one.cache, one.batch)):
        yield _row(one.kind, one.cache, str(one.batch), str(one.layers),
                   *(cell for peer in peers for cell in _speedup(peer.over(one))),
                   _ratio(one.over_floor))


def _layers(group: Sequence[LayerResult], peers: Sequence[Peer]) -> Iterator[str]:
    batches = sorted({one.batch for one in group})
    cells = {(one.layer, one.batch): _cell(one, peers) for one in group}
    yield from _head("layer", *map(str, batches))
    for layer in dict.fromkeys(one.layer for one in group):
        yield _row(layer, *(cells.get((layer, batch), "") for batch in batches))


def _cell(one: LayerResult, peers: Sequence[Peer]) -> str:
    if one.ours.microseconds is None:
        return one.ours.fault
    return " · ".join((f"{one.ours.microseconds:.2f}",
                       *(_ratio(one.over(peer.row(one))) for peer in peers),
                       _ratio(one.ours.over_floor)))


def _speedup(speedup: Speedup | None) -> tuple[str, str]:
    return ("–", "–") if speedup is None else (_ratio(speedup.geomean), str(len(speedup.lost)))


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _head(*names: str) -> tuple[str, str]:
    return _row(*names), "|" + "---|" * len(names)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
