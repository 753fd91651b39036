"""`dscore tune --replay`: the cost model judged by records, on a machine that needs no GPU."""

from __future__ import annotations

import sys

from dscore import api
from dscore.cli.output import counted, print_json, print_table, print_text
from dscore.cli.records import Record
from dscore.core.catalog import layers
from dscore.core.errors import SpecError
from dscore.core.token import problem_token
from dscore.tuning import exchange
from dscore.tuning.model_quality import FIRSTS, Guess, ModelQuality, RecordQuality, judge_model

_COLUMNS = ("layer", "policy", ">tilings", ">measured", ">best µs", ">rank of\nbest",
            *(f">first\n{count}" for count in FIRSTS))


def run(path: str, device: str | None, json: bool) -> None:
    """Print how the model's first guesses compare with the best of all."""
    read = exchange.read_all([path])
    if not read.measurements:
        raise SpecError(f"{path} holds no tuning records")
    judged = judge_model(read.measurements, None if device is None else api.device_of(device))
    if json:
        print_json(_record(judged, read.skipped))
    else:
        print_table(_COLUMNS, [_row(layer) for layer in judged.layers])
        print()
    prose = sys.stderr if json else sys.stdout
    for line in (*read.skipped, *judged.skipped):
        print_text(f"skipped {line}", prose)
    print_text(_summary(judged), prose)


def _names() -> dict[str, str]:
    """Names of the papers' layers by their tokens."""
    return {problem_token(problem): name for name, problem in layers().items()}


def _row(layer: RecordQuality) -> tuple[str, ...]:
    said = layer.record.identity
    known = layer.record.configurations
    best = layer.best.seconds
    return (_names().get(said.problem, said.problem), str(said.policy), f"{layer.space:,}",
            f"{len(known):,}", "" if best is None else f"{best * 1e6:,.2f}",
            "" if layer.rank is None else f"{layer.rank:,}",
            *(_ratio(guess) for guess in layer.guesses))


def _ratio(guess: Guess) -> str:
    return "" if guess.ratio is None else f"{guess.ratio:.3f}"


def _summary(judged: ModelQuality) -> str:
    whole = sum(layer.exhaustive for layer in judged.layers)
    parts = [f"{counted(len(judged.layers), 'record')}, {whole} of all tilings"]
    for count in FIRSTS:
        ratio = judged.mean(count)
        if ratio is not None:
            parts.append(f"the first {count} at {ratio:.3f}" if count > 1
                         else f"the first at {ratio:.3f}")
    return ", ".join(parts) + " times the best's time (geometric mean)"


def _record(judged: ModelQuality, skipped: tuple[str, ...]) -> Record:
    return {"records": len(judged.layers), "skipped": [*skipped, *judged.skipped],
            "means": {str(count): judged.mean(count) for count in FIRSTS},
            "layers": [_layer_record(layer) for layer in judged.layers]}


def _layer_record(layer: RecordQuality) -> Record:
    said = layer.record.identity
    return {"problem": said.problem, "device": said.device, "backend": said.backend,
            "policy": str(said.policy), "tilings": layer.space,
            "measured": len(layer.record.configurations), "exhaustive": layer.exhaustive,
            "best": {"name": layer.best.tiling.name, "tiling": layer.best.tiling.as_json(),
                     "seconds": layer.best.seconds, "rank": layer.rank},
            "first": {str(guess.count): {"measured": guess.measured, "ratio": guess.ratio}
                      for guess in layer.guesses}}
