"""Report of `dscore tune`: a table, what is refused, what the compiler surprised with, JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from dscore.cli.ending import error_record
from dscore.cli.show.json import Record, print_json, problem_record
from dscore.cli.show.screen import screen
from dscore.cli.show.text import counted, print_note, print_table, print_text
from dscore.core.text import geomean

if TYPE_CHECKING:
    from dscore.core.catalog import NamedProblem
    from dscore.tuning.measurement import Configuration
    from dscore.tuning.search import SearchResult
    from dscore.tuning.trials import SearchRequest

_COLUMNS = ("layer", "solver's first", ">first\nµs", "best", ">best\nµs", ">gain", ">tried",
            ">refused")
_SPARE = ("solver's first", "refused", "tried")
_WALL = ("these are wall-clock times of the host, which say nothing of a device; they serve tests "
         "only")
_SHOWN = 5


def report(layers: list[NamedProblem], tuned: list[SearchResult], search: SearchRequest,
            seconds: float, json: bool, stopped: BaseException | None) -> None:
    if json:
        print_json({**_record(layers, tuned, search, seconds), **error_record(stopped)})
    else:
        rows = [_row(layer, one) for layer, one in zip(layers, tuned, strict=True)]
        if len({layer.problem.batch for layer in layers}) == 1:
            print_table(_COLUMNS, rows, spare=_SPARE)
        else:
            print_table((_COLUMNS[0], ">batch", *_COLUMNS[1:]),
                        [(row[0], str(layer.problem.batch), *row[1:])
                         for layer, row in zip(layers, rows, strict=True)], spare=_SPARE)
        print()
    prose = sys.stderr if json else sys.stdout
    _print_refused(layers, tuned, prose)
    _print_surprises(layers, tuned, search, prose)
    print_note(_summary(tuned, search, seconds), prose)
    if search.behind is not None:
        print_note(_behind(tuned), prose)
    if search.policy.clock == "host":
        print_note(_WALL, prose)
    if not all(one.complete for one in tuned):
        print_note("not all is tried; the same command goes on from here", prose)


def _row(layer: NamedProblem, one: SearchResult) -> tuple[str, ...]:
    best, refused = one.best, len(one.record.refused)
    same = best is not None and best.tiling == one.first_tiling
    return (layer.name, one.first_tiling.name, _micro(one.first),
            "the same" if same else "" if best is None else best.tiling.name, _micro(best),
            "" if one.gain is None else f"{one.gain:.2f}", f"{one.tried:,}",
            f"{refused:,}" if refused else "")


def _micro(configuration: Configuration | None) -> str:
    if configuration is None:
        return ""
    if configuration.seconds is None:
        return "refused"
    return " + ".join(f"{seconds * 1e6:,.2f}" for seconds in configuration.medians)


def _print_refused(layers: list[NamedProblem], tuned: list[SearchResult], prose: TextIO) -> None:
    """The first lines of why configurations are refused, or all with --verbose."""
    reasons = {(layer.problem, refused.tiling.name):
               f"{layer.name} {refused.tiling.name}: {refused.refused.partition(chr(10))[0]}"
               for layer, one in zip(layers, tuned, strict=True) for refused in one.record.refused}
    shown = len(reasons) if screen.verbose else _SHOWN
    for line in list(reasons.values())[:shown]:
        print_text(f"refused {line}", prose)
    if len(reasons) > shown:
        print_note(f"... and {len(reasons) - shown:,} more; -v shows them", prose)


def _print_surprises(layers: list[NamedProblem], tuned: list[SearchResult],
                     search: SearchRequest, prose: TextIO) -> None:
    """What the compiler took above the prediction for the best kernels, of those that a GPU ran."""
    from dscore.building.kernels import report_on
    from dscore.solving.solver import make_plan

    for layer, one in zip(layers, tuned, strict=True):
        if one.best is None or search.policy.clock == "host":
            continue
        plan = make_plan(one.problem, one.device, one.best.tiling)
        report = report_on(plan)
        if report is not None and plan.surprise(report.use(plan.use)):
            print_text(f"{layer.name}: {plan.surprise(report.use(plan.use))}", prose)


def _mean_gain(tuned: list[SearchResult]) -> float | None:
    """Geometric mean of the gains; None where there are none."""
    gains = [one.gain for one in tuned if one.gain is not None]
    return geomean(gains) if gains else None


def _summary(tuned: list[SearchResult], search: SearchRequest, seconds: float) -> str:
    gain = _mean_gain(tuned)
    parts = [f"{search.device.name} by {search.backend}, {search.policy}",
             counted(len(tuned), "layer")]
    parts += [f"gain {gain:.2f} (geometric mean)"] if gain is not None else []
    parts += [f"{counted(sum(one.complete for one in tuned), 'layer')} complete"]
    spilling = sum(len(one.record.spilling) for one in tuned)
    parts += [f"{counted(spilling, 'kernel')} refused for spills"] if spilling else []
    return ", ".join([*parts, f"{seconds:.1f} s"])


def _behind(tuned: list[SearchResult]) -> str:
    """What was timed behind a pointwise layer, and what was not."""
    from dscore.tuning.behind import follows_pointwise

    others = sum(not follows_pointwise(one.problem) for one in tuned)
    text = "depthwise layers (forward): the cold time + that behind a pointwise layer"
    return text + f"; {counted(others, 'other layer')} tuned as always" * (others > 0)


def _record(layers: list[NamedProblem], tuned: list[SearchResult], search: SearchRequest,
            seconds: float) -> Record:
    return {"backend": search.backend, "device": search.device.name,
            "policy": str(search.policy), "host_time": search.policy.clock == "host",
            "top": search.top, "algorithm": search.algorithm, "seed": search.seed,
            "behind": search.behind is not None, "seconds": seconds,
            "complete": all(one.complete for one in tuned), "gain": _mean_gain(tuned),
            "layers": [_layer_record(layer, one)
                       for layer, one in zip(layers, tuned, strict=True)]}


def _layer_record(layer: NamedProblem, one: SearchResult) -> Record:
    return {"layer": layer.name, **problem_record(layer.problem), "candidates": one.candidates,
            "tried": one.tried, "complete": one.complete, "gain": one.gain,
            "first": _configuration_record(one.first) or {"tiling": one.first_tiling.as_json()},
            "best": _configuration_record(one.best), "spilling": len(one.record.spilling),
            "refused": [_configuration_record(c) for c in one.record.refused]}


def _configuration_record(configuration: Configuration | None) -> Record | None:
    """A configuration and what is known of it; samples behind another layer where it has some."""
    from dscore.tuning.paired import PairedConfiguration

    if configuration is None:
        return None
    record = {"name": configuration.tiling.name, "tiling": configuration.tiling.as_json(),
              "seconds": configuration.seconds, "samples": list(configuration.samples),
              "share": configuration.share, "refused": configuration.refused}
    if isinstance(configuration, PairedConfiguration):
        record["behind"] = list(configuration.behind)
    return record
