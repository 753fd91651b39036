"""Report on the convolutions of a model: a table, sums, JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from dscore.cli.show.json import Record
from dscore.cli.show.text import counted, print_note, print_table, print_text

if TYPE_CHECKING:
    from dscore.torch.report import LayerReport, Report

_SPARE = ("problem", "kind", "measured\nµs")


def record(report: Report) -> Record:
    """The report as plain values."""
    kept = {one.name: getattr(report, one.name) for one in fields(report)
            if one.name not in ("layers", "model", "unfolded")}
    return {**kept, "unfolded": dict(report.unfolded), "replaced": len(report.replaced),
            "left": len(report.left), "layers": [asdict(layer) for layer in report.layers]}


def print_report(report: Report) -> None:
    """A line for each call of a convolution, then what they come to."""
    measured = any(layer.measured_seconds is not None for layer in report.layers)
    timed = (">measured\nµs",) if measured else ()
    print_table(("layer", "kind", "problem", "plan", ">expected\nµs", *timed, ">gain",
                 "folded, or why PyTorch computes it"),
                [_row(layer, measured) for layer in report.layers], spare=_SPARE)
    print_note("gain: time of PyTorch's convolution, and of what is folded, over dscore's\n\n")
    for name, reason in report.unfolded:
        print_text(f"{name or 'the model'} has no graph, and runs module by module: {reason}")
    print_text(_sums(report))
    if report.note:
        print_note(f"note: {report.note}")


def _row(layer: LayerReport, measured: bool) -> Sequence[str]:
    words = layer.reason or ", ".join(layer.folded)
    return (layer.name, layer.kind, layer.problem, layer.plan,
            _microseconds(layer.expected_seconds),
            *([_microseconds(layer.measured_seconds)] if measured else []),
            "" if layer.gain is None else f"{layer.gain:.2f}", words)


def _microseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:,.2f}"


def _sums(report: Report) -> str:
    text = (f"{len(report.replaced)} of {counted(len(report.layers), 'convolution')} by dscore, "
            f"plans for {report.device}")
    known = [layer for layer in report.replaced if layer.gain is not None]
    ours = sum(_seconds(layer) for layer in known)
    if ours:
        peer = sum(_seconds(layer) * (layer.gain or 0) for layer in known)
        text += (f": {ours * 1e6:,.0f} µs in place of {peer * 1e6:,.0f}, "
                 f"{peer / ours:.2f} times as fast")
    return text


def _seconds(layer: LayerReport) -> float:
    return layer.measured_seconds or layer.expected_seconds or 0.0
