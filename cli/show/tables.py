"""Tables of `dscore bench`: a line for each layer, a line for each group of layers, and remarks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dscore.bench.rows import Row
from dscore.bench.summary import (
    FLOAT16,
    LayerResult,
    Peer,
    Speedup,
    Summary,
    peers_of,
    summaries,
)
from dscore.cli.show import markdown as markdown_tables
from dscore.cli.show.text import counted, print_note, print_table
from dscore.measuring.floors import Floors

# Columns that a table of 100 characters has room for, and the heads that keep them narrow.
_HEADS = {"channels_last": ">channels\nlast", "channels_last_tf32": ">ch. last\nTF32",
          "default_tf32": ">default\nTF32", "matmul_tf32": ">matmul\nTF32",
          "int_mm_padded": ">int_mm\npadded", FLOAT16: ">dscore\nfloat16"}


def print_all(results: Sequence[LayerResult], markdown: bool) -> None:
    """Both tables: of layers, and of groups of layers."""
    if markdown:
        print(*markdown_tables.lines(results), sep="\n")
    else:
        print_layers(results)
        print_summaries(summaries(results))


def print_layers(results: Sequence[LayerResult]) -> None:
    """A line for each layer: times in microseconds, and dscore over the others."""
    methods = list(dict.fromkeys(row.method for one in results for row in one.peers))
    peers = peers_of(summaries(results))
    print_table(("layer", ">batch", "cache", ">dscore\nµs",
                 *(_HEADS.get(method, f">{method}") for method in methods),
                 *(f">over\n{peer.name}" for peer in peers), ">÷ floor", "verdict"),
                [_layer(one, methods, peers) for one in results], verdict=True,
                spare=[*(_HEADS.get(method, method).removeprefix(">") for method in methods[:0:-1]),
                       "batch", "cache"])
    print_note("LOST: slower than PyTorch's default; not best: than another of its ways\n\n"
               if methods else "\n")


def _layer(one: LayerResult, methods: Sequence[str], peers: Sequence[Peer]) -> tuple[str, ...]:
    by_method = {row.method: row for row in one.peers}
    return (one.layer, str(one.batch), one.cache, _time(one.ours),
            *(_time(by_method.get(method)) for method in methods),
            *(_ratio(one.over(peer.row(one))) for peer in peers),
            _ratio(one.ours.over_floor), _verdict(one))


def _time(row: Row | None) -> str:
    if row is None:
        return ""
    return row.fault.upper() if row.microseconds is None else microseconds(row.microseconds)


def microseconds(value: float | None) -> str:
    """A time with three figures or more."""
    if value is None:
        return ""
    return f"{value:,.2f}" if value < 100 else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 1000 else f"{value:,.0f}"


def _verdict(one: LayerResult) -> str:
    """What to look at in a line: a fault, a loss, or a loss to a way that is not the default."""
    if one.ours.fault:
        return one.ours.fault.upper()
    over_default, over_best = one.over(one.default), one.over(one.best)
    if over_default is not None and over_default < 1:
        return "LOST"
    return "not best" if over_best is not None and over_best < 1 else ""


def print_summaries(group: Sequence[Summary]) -> None:
    """A line for each kind, state of the cache and batch."""
    peers = peers_of(group)
    means = (">dscore\nmean µs", f">{peers[0].name}\nmean µs") if peers else ()
    over = [head for peer in peers for head in (f">over\n{peer.name}", ">lost")]
    print_table(("kind", "cache", ">batch", ">layers", *means, *over, ">÷ floor"),
                [(one.kind, one.cache, str(one.batch), str(one.layers), *_against(one, peers),
                  _ratio(one.over_floor)) for one in group],
                spare=("default\nmean µs", "dscore\nmean µs", "layers"))
    print_note("speed-ups and ÷ floor are geometric means over the layers\n\n")


def _against(one: Summary, peers: Sequence[Peer]) -> list[str]:
    """dscore's mean and the first peer's, then the speed-up over each and the layers lost."""
    means = [one.ours_microseconds, peers[0].mean(one)] if peers else []
    return [*map(microseconds, means),
            *(cell for peer in peers for cell in _speedup(peer.over(one)))]


def _speedup(speedup: Speedup | None) -> tuple[str, str]:
    return ("", "") if speedup is None else (_ratio(speedup.geomean), str(len(speedup.lost)))


def floors_text(floors: Floors) -> str:
    """The bounds, and where they come from."""
    return (f"floor: {floors.bytes_per_second / 1e9:,.0f} GB/s, "
            f"{_rates(floors)}"
            f"{floors.launch_seconds * 1e6:.2f} µs a launch ({floors.source})")


def _rates(floors: Floors) -> str:
    """The rates of operations: float32's without a name, those of other element types after it."""
    own = f"{floors.flops_per_second / 1e12:.3g} TFLOP/s" if floors.flops_per_second else ""
    others = [f"{rate / 1e12:.4g} in {dtype}" for dtype, rate in floors.by_type.items()]
    if not own:
        return "".join(f"{other.replace(' ', ' TFLOP/s ', 1)}, " for other in others)
    return f"{own} ({', '.join(others)}), " if others else f"{own}, "


def remarks(results: Sequence[LayerResult]) -> Iterator[str]:
    """The best and worst layers, every loss, and everything that was not timed."""
    for one in summaries(results):
        where = f"{one.kind} {one.cache} batch {one.batch}"
        for peer in peers_of([one]):
            speedup = peer.over(one)
            assert speedup is not None
            yield f"{where}, over {peer.title}: {_extremes(speedup)}{_losses(speedup)}"
        if one.failed:
            yield f"{where}: dscore did not run {', '.join(one.failed)}"
    yield from dict.fromkeys(
        f"{row.layer} batch {row.batch}, {row.method}: {row.fault.upper()}: {row.note}"
        for one in results for row in (one.ours, *one.peers) if row.fault)
    policies = {row.policy for one in results for row in (one.ours, *one.peers)}
    if "events" in policies:
        yield ("note: a graph could not be captured; times without one are of batches of launches "
               "between events, and hold the host's part in them")


def _extremes(speedup: Speedup) -> str:
    if speedup.layers == 1:
        return ""
    return f"best {_named(speedup.best)}, worst {_named(speedup.worst)}, "


def _losses(speedup: Speedup) -> str:
    if not speedup.lost:
        return "none lost"
    return f"{counted(len(speedup.lost), 'layer')} lost: {', '.join(map(_named, speedup.lost))}"


def _named(pair: tuple[str, float]) -> str:
    return f"{pair[0]} {pair[1]:.2f}x"
