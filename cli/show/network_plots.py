"""Pictures of `dscore bench --network`: bars of each method's time, and of the ablation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dscore.bench.ablation import VARIANTS, AblationRow
from dscore.bench.network_rows import NetworkRow
from dscore.bench.summary import OURS
from dscore.cli.show.plots import require_matplotlib, save_all

# Told apart in print and by colour-blind eyes as well, dscore's first.
_COLOURS = ("#1f6fb4", "#8a8a8a", "#e69f00", "#56b4a0", "#b45f9a", "#6d5f2f")


def draw(rows: Sequence[NetworkRow], ablations: Sequence[AblationRow], title: str,
         folder: str) -> list[Path]:
    """Write the pictures to *folder*; their paths."""
    figures = {f"networks_{task}_{what}.svg": _methods(rows, task, what, title)
               for task in dict.fromkeys(row.task for row in rows) for what in ("device", "wall")}
    figures |= {f"ablation_batch_{batch}.svg": _ablation(
        [row for row in ablations if row.batch == batch], title)
        for batch in dict.fromkeys(row.batch for row in ablations)}
    return save_all(figures, Path(folder))


def _methods(rows: Sequence[NetworkRow], task: str, what: str, title: str) -> Any:
    """For each network a part: over its batches, the speed-up of each method over the default."""
    cases = {(row.network, row.batch, row.method): getattr(row, what) for row in rows
             if row.task == task}
    networks = list(dict.fromkeys(network for network, _, _ in cases))
    figure = require_matplotlib().Figure(figsize=(7, 2.2 * len(networks) + 0.8),
                                         layout="constrained")
    parts = figure.subplots(len(networks), 1, squeeze=False)[:, 0]
    for axes, network in zip(parts, networks, strict=True):
        own = {key[1:]: time for key, time in cases.items() if key[0] == network}
        _bars(axes, {method: {str(batch): _over(own.get((batch, "default")), time)
                              for (batch, name), time in own.items() if name == method}
                     for method in dict.fromkeys(name for _, name in own)})
        axes.set_title(network, fontsize=9)
        axes.set(xlabel="batch size", ylabel="speed-up over\nPyTorch's default")
    _legend(figure, parts[0])
    state = "in one graph" if what == "device" else "as called from Python"
    word = "Inference" if task == "inference" else "A step of training"
    figure.suptitle(f"{word}, {state}\n{title}", fontsize=10)
    return figure


def _over(default: Any, time: Any) -> float:
    return default.median / time.median if default and time else 0.0


def _ablation(rows: Sequence[AblationRow], title: str) -> Any:
    """Two parts, layers and whole networks: the speed-up of each variant over the baseline."""
    figure = require_matplotlib().Figure(figsize=(7, 5.4), layout="constrained")
    parts = figure.subplots(2, 1)
    baselines = {row.network: row for row in rows if row.variant == "baseline"}
    for at, (axes, what) in enumerate(zip(parts, ("depthwise and pointwise layers",
                                                  "whole networks"), strict=True)):
        _bars(axes, {variant: {row.network: row.over(baselines[row.network])[at] for row in rows
                               if row.variant == variant} for variant in list(VARIANTS)[1:]})
        axes.set_title(what, fontsize=9)
        axes.set(ylabel="speed-up over\nPyTorch's default")
    _legend(figure, parts[0])
    figure.suptitle(f"Ablation, batch {rows[0].batch}\n{title}", fontsize=10)
    return figure


def _legend(figure: Any, axes: Any) -> None:
    """The legend of all parts, below them."""
    figure.legend(*axes.get_legend_handles_labels(), frameon=False, fontsize=8, ncols=5,
                  loc="outside lower center")


def _bars(axes: Any, series: dict[str, dict[str, float]]) -> None:
    """Bars in groups: of each series at each place, over a line at 1."""
    places = list(dict.fromkeys(place for heights in series.values() for place in heights))
    width = 0.8 / max(len(series), 1)
    names = sorted(series, key=lambda name: name != OURS)
    for number, name in enumerate(names):
        at = [index + (number - (len(names) - 1) / 2) * width for index in range(len(places))]
        bars = axes.bar(at, [series[name].get(place, 0.0) for place in places], width, label=name,
                        color=_COLOURS[number % len(_COLOURS)], edgecolor="white", linewidth=0.6)
        axes.bar_label(bars, [f"{bar.get_height():.2f}" for bar in bars], fontsize=6.5, padding=1)
    axes.axhline(1, color="#999999", linewidth=0.8, linestyle="--")
    axes.set_xticks(range(len(places)), places)
    axes.margins(y=0.12)
    axes.spines[["top", "right"]].set_visible(False)
