"""`dscore tune --replay`: the cost model compared with records, on a machine that needs no GPU."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dscore.cli.show.json import Record, print_json
from dscore.cli.show.text import counted, print_note, print_table, print_text
from dscore.core.errors import SpecError

if TYPE_CHECKING:
    from dscore.tuning.model_quality import Guess, ModelQuality, RecordQuality

_COLUMNS = ("layer", "policy", ">tilings", ">measured", ">best µs", ">rank of\nbest")

_SPARE = ("policy", "measured", "tilings")


def run(path: str, device: str | None, json: bool) -> None:
    """Print how the model's first guesses compare with the best of all."""
    from dscore import api
    from dscore.tuning import exchange
    from dscore.tuning.model_quality import FIRSTS, judge_model

    read = exchange.read_all([path])
    if not read.measurements:
        raise SpecError(f"{path} holds no tuning records")
    replayed = judge_model(read.measurements, None if device is None else api.device_of(device))
    if json:
        print_json(_record(replayed, read.skipped))
    else:
        heads = (*_COLUMNS, *(f">first\n{count}" for count in FIRSTS))
        print_table(heads, [_row(layer) for layer in replayed.layers], spare=_SPARE)
        print()
    prose = sys.stderr if json else sys.stdout
    for line in (*read.skipped, *replayed.skipped):
        print_text(f"skipped {line}", prose)
    print_note(_summary(replayed), prose)


def _names() -> dict[str, str]:
    """Names of the papers' layers by their tokens."""
    from dscore.core.catalog import layers
    from dscore.core.token import problem_token

    return {problem_token(problem): name for name, problem in layers().items()}


def _row(layer: RecordQuality) -> tuple[str, ...]:
    identity = layer.record.identity
    known = layer.record.configurations
    best = layer.best.seconds
    return (_names().get(identity.problem, identity.problem), str(identity.policy),
            f"{layer.space:,}", f"{len(known):,}", "" if best is None else f"{best * 1e6:,.2f}",
            "" if layer.rank is None else f"{layer.rank:,}",
            *(_ratio(guess) for guess in layer.guesses))


def _ratio(guess: Guess) -> str:
    return "" if guess.ratio is None else f"{guess.ratio:.3f}"


def _summary(replayed: ModelQuality) -> str:
    from dscore.tuning.model_quality import FIRSTS

    whole = sum(layer.exhaustive for layer in replayed.layers)
    parts = [f"{counted(len(replayed.layers), 'record')}, {whole} of all tilings"]
    for count in FIRSTS:
        ratio = replayed.mean(count)
        if ratio is not None:
            parts.append(f"the first {count} at {ratio:.3f}" if count > 1
                         else f"the first at {ratio:.3f}")
    return ", ".join(parts) + " times the best's time (geometric mean)"


def _record(replayed: ModelQuality, skipped: tuple[str, ...]) -> Record:
    from dscore.tuning.model_quality import FIRSTS

    return {"records": len(replayed.layers), "skipped": [*skipped, *replayed.skipped],
            "means": {str(count): replayed.mean(count) for count in FIRSTS},
            "layers": [_layer_record(layer) for layer in replayed.layers]}


def _layer_record(layer: RecordQuality) -> Record:
    identity = layer.record.identity
    return {"problem": identity.problem, "device": identity.device, "backend": identity.backend,
            "policy": str(identity.policy), "tilings": layer.space,
            "measured": len(layer.record.configurations), "exhaustive": layer.exhaustive,
            "best": {"name": layer.best.tiling.name, "tiling": layer.best.tiling.as_json(),
                     "seconds": layer.best.seconds, "rank": layer.rank},
            "first": {str(guess.count): {"measured": guess.measured, "ratio": guess.ratio}
                      for guess in layer.guesses}}
