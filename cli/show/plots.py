"""Pictures of `dscore bench`: bars of mean times over batches, and a roofline."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dscore.bench.rows import Row
from dscore.bench.summary import LayerResult, Peer, Summary, peers_of, summaries
from dscore.core.errors import SpecError, UnavailableError
from dscore.core.text import write_whole
from dscore.measuring.floors import Floors

# Colours that are told apart in print and by colour-blind eyes as well: of bars, lines and dots.
_OURS, _BEST, _DEFAULT, _FLOAT16 = "#1f6fb4", "#e69f00", "#8a8a8a", "#7db8e0"
_COLOURS = {"best": _BEST, "default": _DEFAULT, "float16": _FLOAT16}  # of PEERS
_MARKS = {"pointwise": "o", "depthwise": "^", "grouped": "s", "dense": "D"}
# Decades are divided at 1, 2 and 5, and nowhere else.
_STEPS = (1, 2, 5)
_MOST_TICKS = 99
_BEHIND_TEXT = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}


def require_matplotlib() -> Any:
    """matplotlib's figures, without a screen; UnavailableError where it is not installed."""
    try:
        from matplotlib import figure
    except ImportError as absent:
        raise UnavailableError(f"matplotlib, which --plot needs, is not installed ({absent}); "
                               "pip install dscore[plot]") from absent
    return figure


def draw(results: Sequence[LayerResult], floors: Floors, title: str, folder: Path) -> list[Path]:
    """Write the pictures to *folder*; their paths.

    Bars are drawn where a peer was timed, one picture for each kind and state of the
    cache; the roofline is of the times that are a device's or a kernel's alone.
    """
    groups: dict[tuple[str, str], list[Summary]] = {}
    for summary in summaries(results):
        if peers_of([summary]):
            groups.setdefault((summary.kind, summary.cache), []).append(summary)
    figures = {f"{kind}_{cache}.svg": _bars(kind, cache, group, title)
               for (kind, cache), group in groups.items()}
    cold = [one for one in results if one.cache == "cold" and one.ours.microseconds is not None]
    if cold:
        figures["roofline.svg"] = _roofline(cold, floors, title)
    return save_all(figures, folder)


def save_all(figures: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write figures by their files' names to *folder*; their paths."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, figure in figures.items():
            _save(figure, folder / name)
    except OSError as error:
        raise SpecError(f"--plot: {folder}: cannot be written: {error.strerror}") from None
    return [folder / name for name in figures]


def print_drawn(results: Sequence[LayerResult], floors: Floors, title: str, folder: str,
                to_stderr: bool) -> None:
    """Draw the pictures, and print where they are."""
    for path in draw(results, floors, title, Path(folder)):
        print(f"wrote {path}", file=sys.stderr if to_stderr else sys.stdout)


def _save(figure: Any, path: Path) -> None:
    """A file that is the same for the same figures."""
    from matplotlib import rc_context

    picture = io.BytesIO()
    with rc_context({"svg.hashsalt": "dscore", "svg.fonttype": "none"}):
        figure.savefig(picture, format="svg", metadata={"Date": None})
    write_whole(path, picture.getvalue())


def _bars(kind: str, cache: str, group: Sequence[Summary], title: str) -> Any:
    """Mean times over batches as bars, and above them the speed-ups as lines."""
    group = sorted(group, key=lambda one: one.batch)
    figure = require_matplotlib().Figure(figsize=(7, 5.2), layout="constrained")
    above, axes = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1.8))
    peers = _fastest_first(group)
    places, width = range(len(group)), 0.84 / (len(peers) + 1)
    columns = [("dscore", _OURS, [one.ours_microseconds or 0 for one in group]), *(
        (peer.title, _COLOURS[peer.name], [peer.mean(one) or 0 for one in group])
        for peer in peers)]
    for number, (name, colour, heights) in enumerate(columns):
        shift = number - len(peers) / 2
        bars = axes.bar([at + shift * width for at in places], heights, width, color=colour,
                        label=name, edgecolor="white", linewidth=0.6)
        axes.bar_label(bars, [f"{height:#.3g}".rstrip(".") for height in heights], fontsize=7.5,
                       padding=2)
    axes.set(xlabel="batch size", ylabel="mean time of a layer (µs)",
             xticks=list(places), xticklabels=[str(one.batch) for one in group])
    _logarithmic(axes, "y")
    axes.margins(y=0.12)
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    _speed_ups(above, list(places), group)
    count = max(one.layers for one in group)
    state = "as called from Python" if cache == "eager" else f"{cache} cache"
    layers = f"{count} layer{'s' * (count > 1)}"
    above.set_title(f"{kind.capitalize()} convolution, {state}, {layers}\n{title}", fontsize=10)
    for part in (above, axes):
        part.spines[["top", "right"]].set_visible(False)
    return figure


def _fastest_first(group: Sequence[Summary]) -> list[Peer]:
    """The peers of a picture, the best of PyTorch's ways before its default."""
    return sorted(peers_of(group), key=lambda peer: peer.name == "default")


def _logarithmic(axes: Any, *names: str) -> None:
    """Logarithmic axes "x" and "y" of plain numbers."""
    from matplotlib.ticker import LogLocator, NullLocator

    for name in names:
        axes.set(**{f"{name}scale": "log"})
        axis = getattr(axes, f"{name}axis")
        axis.set_major_locator(LogLocator(subs=_STEPS, numticks=_MOST_TICKS))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter("{x:,g}")


def _speed_ups(axes: Any, places: list[int], group: Sequence[Summary]) -> None:
    """Geometric means, over a line where both sides are level."""
    axes.axhline(1, color="#999999", linewidth=0.8, linestyle="--")
    highest = 1.0
    for peer, offset in zip(reversed(_fastest_first(group)), (6, -13), strict=False):
        speedups, colour = [peer.over(one) for one in group], _COLOURS[peer.name]
        values = [speedup.geomean if speedup else 0.0 for speedup in speedups]
        highest = max(highest, *values)
        axes.plot(places, values, color=colour, marker="o", linewidth=1.6, markersize=5,
                  label=f"over {peer.title}")
        for at, value in zip(places, values, strict=True):
            axes.annotate(f"{value:.2f}×", (at, value), textcoords="offset points",
                          xytext=(0, offset), ha="center", fontsize=9, bbox=_BEHIND_TEXT)
    axes.set(ylim=(0, highest * 1.5), ylabel="speed-up\n(geom. mean)")
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.legend(frameon=False, fontsize=9, loc="upper right", ncols=2)


def _roofline(results: Sequence[LayerResult], floors: Floors, title: str) -> Any:
    """Rate over intensity, of dscore and of PyTorch, under what the machine allows."""
    figure = require_matplotlib().Figure(figsize=(7, 4.6), layout="constrained")
    axes = figure.add_subplot()
    for kind in dict.fromkeys(one.kind for one in results):
        of_kind = [one for one in results if one.kind == kind]
        drawn = [(peer.title, _COLOURS[peer.name], peer.row)
                 for peer in reversed(_fastest_first(summaries(of_kind)))]
        for name, colour, row_of in (*drawn, ("dscore", _OURS, lambda one: one.ours)):
            _dots(axes, [row for one in of_kind if (row := row_of(one)) is not None],
                  f"{name}, {kind}", _MARKS.get(kind, "o"), colour)
    low, high = _roof(axes, results, floors)
    axes.set(xlim=(low, high), xlabel="flops per byte that must move", ylabel="GFLOP/s")
    _logarithmic(axes, "x", "y")
    axes.grid(which="major", color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    batches = ", ".join(str(batch) for batch in sorted({one.batch for one in results}))
    axes.set_title(f"Roofline, cold cache, batch {batches}\n{title}", fontsize=10)
    return figure


def _dots(axes: Any, rows: Sequence[Row], name: str, mark: str, colour: str) -> None:
    timed = [(row.flops / row.bytes, row.flops / row.microseconds / 1e3) for row in rows
             if row.microseconds]
    if timed:
        axes.scatter(*zip(*timed, strict=True), s=16, marker=mark, color=colour, alpha=0.7,
                     linewidths=0, label=name)


def _roof(axes: Any, results: Sequence[LayerResult], floors: Floors) -> tuple[float, float]:
    """The roof, drawn, with a ceiling for each element type; from which intensity to which.

    Where no rate of a type is known, the bandwidth alone is above its dots.
    """
    each = [one.ours.flops / one.ours.bytes for one in results]
    peaks = {dtype: rate / 1e9 for dtype in dict.fromkeys(one.ours.dtype for one in results)
             if (rate := floors.rate(dtype))}
    slope = floors.bytes_per_second / 1e9
    ridges = [peak / slope for peak in peaks.values()]
    low, high = min([*each, *ridges]) / 2, max([*each, *ridges]) * 3
    for ridge in ridges or [high]:
        axes.plot([low, ridge, high], [slope * low, slope * ridge, slope * ridge],
                  color="#333333", linewidth=1.4)
    middle = (low * max(ridges or [high])) ** 0.5
    axes.annotate(f"{slope:,.0f} GB/s", (middle, slope * middle),
                  textcoords="offset points", xytext=(-6, 4), ha="right", fontsize=8,
                  color="#333333")
    for dtype, peak in peaks.items():
        named = f" in {dtype}" if len(peaks) > 1 or dtype != "float32" else ""
        axes.annotate(f"{peak / 1e3:.3g} TFLOP/s{named}", (high, peak), textcoords="offset points",
                      xytext=(-4, 4), ha="right", fontsize=8, color="#333333")
    return low, high
