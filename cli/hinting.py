"""`dscore cache hints`: the best of the tuning records as a file of the package's own tunings."""

from __future__ import annotations

import shlex
import sys

from dscore import api
from dscore.cli.output import counted, print_json, print_text
from dscore.cli.records import Record
from dscore.core.errors import DscoreError
from dscore.tuning import exchange, records
from dscore.tuning.hint_file import Hint, HintFile, best_hints


def run(files: list[str], device: str, json: bool) -> None:
    """Print the hints, and on stderr what is none."""
    target = api.device_of(device)
    read = exchange.read_all(files) if files else exchange.RecordFile(records.everything())
    found = best_hints(read.measurements, target)
    for line in read.skipped:
        print_text(f"skipped {line}", sys.stderr)
    for one in found.left_out:
        print_text(f"no hint for {one.name}: {one.reason}", sys.stderr)
    if not found.hints:
        raise DscoreError(f"no right tiling of {target.name} ({target.architecture}) is on record; "
                          "`dscore tune` on such a device makes records")
    if json:
        print_json(_record(found))
    else:
        print(found.text(shlex.join(["dscore", "cache", "hints", *files, "--device", device])),
              end="")
    old = sum(hint.outdated for hint in found.hints)
    outdated = f", {old:,} of other kernel sources than today's" if old else ""
    print(f"{counted(len(found.hints), 'hint')} for {target.name}{outdated}", file=sys.stderr)


def _record(found: HintFile) -> Record:
    return {"device": found.device.name, "hints": [_hint_record(hint) for hint in found.hints],
            "left_out": [{"problem": one.name, "reason": one.reason} for one in found.left_out]}


def _hint_record(hint: Hint) -> Record:
    said = hint.record.identity
    return {"problem": hint.problem, "name": hint.tiling.name, "tiling": hint.tiling.as_json(),
            "seconds": hint.seconds, "backend": said.backend, "policy": str(said.policy),
            "compiler": said.compiler, "kernels": said.kernels, "outdated": hint.outdated}
