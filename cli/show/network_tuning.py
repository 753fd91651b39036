"""Report of `dscore tune --network`: a line for each layer whose tiling is another one now."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dscore.cli.ending import error_record
from dscore.cli.show.json import Record, print_json
from dscore.cli.show.tables import microseconds
from dscore.cli.show.text import counted, print_note, print_table, print_text

if TYPE_CHECKING:
    from dscore.bench.layer_trials import LayerTrials
    from dscore.bench.network_tuning import NetworkResult
    from dscore.bench.network_workplace import Workplace
    from dscore.core.plan import Plan

_COLUMNS = ("network", ">batch", "layer", ">launches", ">before\nµs", ">now\nµs", "tiling now")
_SPARE = ("launches", "network", "batch")


def report(results: Sequence[NetworkResult], workplace: Workplace, seconds: float, json: bool,
           stopped: BaseException | None) -> None:
    """Print all *results*; after an error those that there are."""
    prose = sys.stderr if json else sys.stdout
    if json:
        print_json({"device": workplace.title, "versions": workplace.versions, "seconds": seconds,
                    "networks": [_record(one) for one in results], **error_record(stopped)})
    elif rows := [_row(one, layer) for one in results for layer in one.changed]:
        print_table(_COLUMNS, rows, spare=_SPARE)
        print()
    for one in results:
        for plan, reason in one.wrong:
            print_text(f"not tuned: {plan.token} by {plan.tiling.name}: {reason}", prose)
        print_note(_summary(one), prose)
    print_note(f"a launch, by the ends of kernels in the network's graph; on {workplace.title}; "
               f"{workplace.versions}; {seconds:.1f} s", prose)
    if not all(one.complete for one in results):
        print_note("not all is tried; the same command goes on from here", prose)


def _row(one: NetworkResult, layer: LayerTrials) -> tuple[str, ...]:
    return (one.network, str(one.batch), layer.default.token, str(layer.launches),
            _micro(layer.seconds(layer.default)), _micro(layer.seconds(layer.best)),
            layer.best.tiling.name)


def _micro(seconds: float | None) -> str:
    return "" if seconds is None else microseconds(seconds * 1e6)


def _summary(one: NetworkResult) -> str:
    tried = sum(layer.tried for layer in one.layers)
    refused = sum(layer.refused for layer in one.layers)
    parts = [f"{one.network}, batch {one.batch}", counted(len(one.layers), "layer"),
             f"{counted(tried, 'tiling')} tried", f"{len(one.changed)} have another one now"]
    parts += [f"{refused:,} refused"] if refused else []
    if one.before is not None and one.after is not None:
        parts += [f"{one.before * 1e6:,.1f} µs before and {one.after * 1e6:,.1f} now "
                  f"({one.before / one.after:.2f})"]
    return ", ".join(parts)


def _record(one: NetworkResult) -> Record:
    return {"network": one.network, "batch": one.batch, "complete": one.complete,
            "before_seconds": one.before, "after_seconds": one.after,
            "wrong": [{"problem": plan.token, "name": plan.tiling.name, "reason": reason}
                      for plan, reason in one.wrong],
            "layers": [_layer(layer) for layer in one.layers]}


def _layer(layer: LayerTrials) -> Record:
    return {"problem": layer.default.token, "launches": layer.launches, "tried": layer.tried,
            "refused": layer.refused, "changed": layer.best != layer.default,
            "before": _tiling(layer, layer.default), "best": _tiling(layer, layer.best)}


def _tiling(layer: LayerTrials, plan: Plan) -> Record:
    return {"name": plan.tiling.name, "tiling": plan.tiling.as_json(),
            "seconds": layer.seconds(plan)}
