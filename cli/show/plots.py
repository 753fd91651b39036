"""Pictures of `dscore bench`: bars of mean times over batches, and a roofline."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dscore.bench.rows import Row
from dscore.bench.summary import LayerResult, Summary, summaries
from dscore.core.errors import SpecError, UnavailableError
from dscore.core.text import write_whole
from dscore.measuring.floors import Floors

# Told apart in print and by colour-blind eyes as well.
_OURS, _THEIRS, _LINE = "#1f6fb4", "#c9c9c9", "#d1495b"
_MARKS = {"pointwise": "o", "depthwise": "^", "grouped": "s", "dense": "D"}


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

    Bars are drawn where PyTorch's default was timed, one picture for each kind and state of the
    cache; the roofline is of the times that are a device's or a kernel's alone.
    """
    groups: dict[tuple[str, str], list[Summary]] = {}
    for summary in summaries(results):
        if summary.over_default is not None:
            groups.setdefault((summary.kind, summary.cache), []).append(summary)
    figures = {f"{kind}_{cache}.svg": _bars(kind, cache, group, title)
               for (kind, cache), group in groups.items()}
    cold = [one for one in results if one.cache == "cold" and one.ours.microseconds is not None]
    if cold:
        figures["roofline.svg"] = _roofline(cold, floors, title)
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
    """Mean times of both sides in groups, and above them the speed-up as a line."""
    group = sorted(group, key=lambda one: one.batch)
    figure = require_matplotlib().Figure(figsize=(7, 4.8), layout="constrained")
    above, axes = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2.4))
    places, width = range(len(group)), 0.36
    for shift, name, colour, heights in (
            (-0.5, "dscore", _OURS, [one.ours_microseconds or 0 for one in group]),
            (0.5, "PyTorch's default", _THEIRS, [one.default_microseconds or 0 for one in group])):
        bars = axes.bar([at + shift * width for at in places], heights, width, color=colour,
                        label=name, edgecolor="#444444", linewidth=0.6)
        axes.bar_label(bars, [f"{height:.3g}" for height in heights], fontsize=8, padding=2)
    axes.set(xlabel="batch size", ylabel="mean time per layer (µs)", yscale="log",
             xticks=list(places), xticklabels=[str(one.batch) for one in group])
    axes.margins(y=0.12)
    for formatted in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        formatted("{x:g}")
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    _speed_ups(above, list(places), group)
    count = max(one.layers for one in group)
    state = "as called from Python" if cache == "eager" else f"{cache} cache"
    layers = f"{count} layer{'s' * (count > 1)}"
    above.set_title(f"{kind.capitalize()} convolution, {state}, {layers}\n{title}", fontsize=10)
    for part in (above, axes):
        part.spines[["top", "right"]].set_visible(False)
    return figure


def _speed_ups(axes: Any, places: list[int], group: Sequence[Summary]) -> None:
    """Geometric means, over a line where both sides are level."""
    values = [one.over_default.geomean if one.over_default else 0.0 for one in group]
    axes.axhline(1, color="#999999", linewidth=0.8, linestyle="--")
    axes.plot(places, values, color=_LINE, marker="o", linewidth=1.6, markersize=5)
    for at, value in zip(places, values, strict=True):
        axes.annotate(f"{value:.2f}×", (at, value), textcoords="offset points", xytext=(0, 6),
                      ha="center", fontsize=9, color=_LINE)
    axes.set(ylim=(0, max(1.0, *values) * 1.35), ylabel="speed-up\n(geom. mean)")


def _roofline(results: Sequence[LayerResult], floors: Floors, title: str) -> Any:
    """Rate over intensity, of dscore and of PyTorch's default, under what the machine allows."""
    figure = require_matplotlib().Figure(figsize=(7, 4.6), layout="constrained")
    axes = figure.add_subplot()
    for kind in dict.fromkeys(one.kind for one in results):
        of_kind = [one for one in results if one.kind == kind]
        mark = _MARKS.get(kind, "o")
        peers = [one.default for one in of_kind if one.default is not None]
        _dots(axes, peers, f"PyTorch's default, {kind}", mark, "#8a8a8a")
        _dots(axes, [one.ours for one in of_kind], f"dscore, {kind}", mark, _OURS)
    low, high = _roof(axes, results, floors)
    axes.set(xscale="log", yscale="log", xlim=(low, high),
             xlabel="flops per byte that must move", ylabel="GFLOP/s")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:,g}")
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
    """The roof, drawn; from which intensity to which."""
    each = [one.ours.flops / one.ours.bytes for one in results]
    ridge = floors.flops_per_second / floors.bytes_per_second
    low, high = min(*each, ridge) / 2, max(*each, ridge) * 3
    peak = floors.flops_per_second / 1e9
    axes.plot([low, ridge, high], [peak * low / ridge, peak, peak], color="#333333", linewidth=1.4)
    middle = (low * ridge) ** 0.5
    axes.annotate(f"{floors.bytes_per_second / 1e9:,.0f} GB/s", (middle, peak * middle / ridge),
                  textcoords="offset points", xytext=(-6, 4), ha="right", fontsize=8,
                  color="#333333")
    axes.annotate(f"{peak / 1e3:.3g} TFLOP/s", (high, peak), textcoords="offset points",
                  xytext=(-4, 4), ha="right", fontsize=8, color="#333333")
    return low, high
