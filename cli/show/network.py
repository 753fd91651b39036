"""Tables of `dscore bench --network`: a line for each method, and the ablation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from dscore.cli.show.tables import microseconds
from dscore.cli.show.text import print_note, print_table

if TYPE_CHECKING:
    from dscore.bench.ablation import AblationRow
    from dscore.bench.network_rows import NetworkRow, Quantity

_SPARE = ("wall\nquartiles", "device\nquartiles", "error", "task")


def print_rows(rows: Sequence[NetworkRow]) -> None:
    """A line for each method: times in microseconds, and dscore over it; then the shares."""
    if not rows:
        return
    print_table(("network", "task", ">batch", "method", ">device\nµs", ">device\nquartiles",
                 ">dscore\nover it", ">wall\nµs", ">wall\nquartiles", ">dscore\nover it",
                 ">error", "verdict"),
                [_row(row, ours) for ours, row in _with_ours(rows)], verdict=True, spare=_SPARE)
    print_note("device: one graph, replayed; wall: as called from Python\n\n")
    shared = [row for row in rows if row.shares]
    if shared:
        kinds = list(dict.fromkeys(kind for row in shared for kind in row.shares))
        print_table(("network", ">batch", "method", *(f">{kind}" for kind in kinds)),
                    [(row.network, str(row.batch), row.method,
                      *(_percent(row.shares.get(kind)) for kind in kinds)) for row in shared])
        print_note("share of the device time: of each kind of convolution, timed by itself with "
                   "what is folded, and of the rest\n\n")


def print_ablation(rows: Sequence[AblationRow]) -> None:
    """A line for each variant: of the layers, and of the whole network."""
    if not rows:
        return
    print_table(("network", ">batch", "by dscore", ">layers\nµs", ">speed-up", ">network\nµs",
                 ">speed-up"), list(_ablation(rows)))
    print_note("layers: the depthwise and pointwise ones after one another, as in Table 9 of the "
               "first paper; network: in eval mode, in one graph\n\n")


def _with_ours(rows: Sequence[NetworkRow]) -> Iterator[tuple[NetworkRow, NetworkRow]]:
    """Each row after dscore's row of its case."""
    for _, case in groupby(rows, lambda row: (row.network, row.task, row.batch)):
        ours, *others = case
        for row in (ours, *others):
            yield ours, row


def _row(row: NetworkRow, ours: NetworkRow) -> tuple[str, ...]:
    def ratio(what: str) -> str:
        value = None if row is ours else ours.over(row, what)
        return "" if value is None else f"{value:.2f}"

    return (row.network, row.task, str(row.batch), row.method, _median(row.device),
            _quartiles(row.device), ratio("device"), _median(row.wall), _quartiles(row.wall),
            ratio("wall"), "" if row.error is None else f"{row.error:.1e}",
            row.fault.upper() if row.fault else "right")


def _median(quantity: Quantity | None) -> str:
    return "" if quantity is None else microseconds(quantity.median)


def _quartiles(quantity: Quantity | None) -> str:
    return "" if quantity is None else (f"{microseconds(quantity.low)}–"
                                        f"{microseconds(quantity.high)}")


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _ablation(rows: Sequence[AblationRow]) -> Iterator[tuple[str, ...]]:
    for _, variants in groupby(rows, lambda row: (row.network, row.batch)):
        baseline, *others = variants
        for row in (baseline, *others):
            layers, whole = row.over(baseline)
            yield (row.network, str(row.batch), row.variant, _median(row.layers),
                   f"{layers:.2f}", _median(row.whole), f"{whole:.2f}")


def remarks(rows: Sequence[NetworkRow]) -> Iterator[str]:
    """How dscore stands to the best of PyTorch in each case, and every note."""
    from dscore.bench.network_rows import best_of
    from dscore.bench.summary import FLOAT16

    for (network, task, batch), group in groupby(
            rows, lambda row: (row.network, row.task, row.batch)):
        ours, *others = group
        for what in ("device", "wall"):
            mine, best = best_of((ours, *others), what, own=True), best_of(others, what)
            if mine is not None and best is not None:
                yield (f"{network} {task} batch {batch}: {mine.method} is "
                       f"{mine.over(best, what):.2f} times as fast as the best of PyTorch's ways "
                       f"({best.method}) by {what} time")
            own = next((row for row in others if row.method == FLOAT16), None)
            if own is not None and (ratio := ours.over(own, what)) is not None:
                yield (f"{network} {task} batch {batch}: {ratio:.2f} times as fast as dscore's "
                       f"float16 by {what} time")
        yield from (f"{network} {task} batch {batch}, {row.method}: {row.note}"
                    for row in (ours, *others) if row.note)
    if any(row.device is not None and row.device.policy == "events" for row in rows):
        yield ("note: a graph could not be captured; device times without one are of launches "
               "between events, and hold the host's part in them")
