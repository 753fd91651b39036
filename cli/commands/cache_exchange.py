"""`dscore cache export|import|merge|hints`: tuning records to files and from files."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import typer

from dscore.cli.show.json import Record, print_json
from dscore.cli.show.text import counted, print_text, progress, require_writable
from dscore.core.errors import DscoreError
from dscore.core.text import read_whole

if TYPE_CHECKING:
    from dscore.tuning.freshness import Stale
    from dscore.tuning.hint_file import Hint, HintFile
    from dscore.tuning.measurement import Measurement

_SHOWN = 5


def export(path: str, json: bool) -> None:
    """Write all records to a file."""
    from dscore.tuning import exchange

    require_writable(path)
    measurements = exchange.export(path)
    if json:
        print_json({"file": path, **_counts(measurements)})
    else:
        print_text(f"{_summary(measurements)} to {path}")


def import_(paths: Sequence[str], json: bool) -> None:
    """Take the records of files that may hold here; exits with 1 where lines were skipped."""
    from dscore.tuning import exchange

    arrived = exchange.plan_import(paths)
    _print_skipped(arrived.skipped)
    _print_stale("ignored", arrived.ignored)
    _print_stale("taken, but of no use here yet:", arrived.unjudged)
    with progress(len(arrived.new)) as begin:
        exchange.import_new(arrived, begin)
    if json:
        print_json({"files": list(paths), "new": len(arrived.new), "known": arrived.known,
                    "ignored": [_stale_record(one) for one in arrived.ignored],
                    "unjudged": [_stale_record(one) for one in arrived.unjudged],
                    "skipped": list(arrived.skipped)})
    else:
        known = f", {arrived.known:,} known before" if arrived.known else ""
        ignored = f", {counted(len(arrived.ignored), 'record')} ignored" if arrived.ignored else ""
        print_text(f"{counted(len(arrived.new), 'measurement')} from {', '.join(paths)}"
                   f"{known}{ignored}")
    _fail_if(arrived.skipped)


def merge(paths: Sequence[str], into: str, json: bool) -> None:
    """Write the records of files to one; exits with 1 where lines were skipped."""
    from dscore.tuning import exchange

    require_writable(into)
    merged = exchange.merge(paths, into)
    _print_skipped(merged.skipped)
    if json:
        print_json({"files": list(paths), "into": into, **_counts(merged.measurements),
                    "skipped": list(merged.skipped)})
    else:
        print_text(f"{_summary(merged.measurements)} in {into}")
    _fail_if(merged.skipped)


def _counts(measurements: Collection[Measurement]) -> dict[str, int]:
    return {"measurements": len(measurements),
            "problems": len({one.identity.problem for one in measurements})}


def _summary(measurements: Collection[Measurement]) -> str:
    counts = _counts(measurements)
    return (f"{counted(counts['measurements'], 'measurement')} of "
            f"{counted(counts['problems'], 'problem')}")


def _print_skipped(lines: Sequence[str]) -> None:
    """Why lines are no measurements; JSON has all of it."""
    for line in lines[:_SHOWN]:
        print_text(f"skipped {line}", sys.stderr)
    if len(lines) > _SHOWN:
        print(f"... and {len(lines) - _SHOWN:,} more; --json has them", file=sys.stderr)


def _print_stale(what: str, stale: Sequence[Stale]) -> None:
    """Records that no plan goes by, a line for each reason; JSON has all of it."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for one in stale:
        key = one.identity.device, one.identity.backend, one.reason
        groups.setdefault(key, []).append(one.identity.problem)
    for (device, backend, reason), problems in groups.items():
        named = ", ".join(problems[:_SHOWN])
        more = f" and {len(problems) - _SHOWN:,} more" if len(problems) > _SHOWN else ""
        print_text(f"{what} {counted(len(problems), 'record')} of {device} by {backend}: {reason}: "
                   f"{named}{more}", sys.stderr)


def _stale_record(one: Stale) -> Record:
    identity = one.identity
    return {"problem": identity.problem, "device": identity.device,
            "architecture": identity.architecture, "backend": identity.backend,
            "policy": str(identity.policy),
            "configurations": one.configurations, "reason": one.reason}


def _fail_if(skipped: Sequence[str]) -> None:
    if skipped:
        raise typer.Exit(1)


def hints(files: list[str], device: str, onto: str | None, json: bool) -> None:
    """Print the best of the records as shipped hints, and on stderr which records give none."""
    from dscore import api
    from dscore.tuning import exchange, records
    from dscore.tuning.hint_file import best_hints

    target = api.device_of(device)
    before = None if onto is None else read_whole(onto).decode("utf-8", "replace")
    read = exchange.read_all(files) if files else exchange.RecordFile(records.everything())
    best = best_hints(read.measurements, target)
    for line in read.skipped:
        print_text(f"skipped {line}", sys.stderr)
    for one in best.left_out:
        print_text(f"no hint for {one.name}: {one.reason}", sys.stderr)
    if not best.hints:
        raise DscoreError(f"no right tiling of {target.name} ({target.architecture}) is on record; "
                          "`dscore tune` on such a device makes records")
    if json:
        print_json(_hints_record(best))
    else:
        command = shlex.join(["dscore", "cache", "hints", *files, "--device", device,
                              *([] if onto is None else ["--onto", onto])])
        print(best.text(command) if before is None else best.onto(before, str(onto), command),
              end="")
    old = sum(hint.outdated for hint in best.hints)
    outdated = f", {old:,} of other kernel sources than today's" if old else ""
    print(f"{counted(len(best.hints), 'hint')} for {target.name}{outdated}", file=sys.stderr)


def _hints_record(best: HintFile) -> Record:
    return {"device": best.device.name, "hints": [_hint_record(hint) for hint in best.hints],
            "left_out": [{"problem": one.name, "reason": one.reason} for one in best.left_out]}


def _hint_record(hint: Hint) -> Record:
    identity = hint.record.identity
    return {"problem": hint.problem, "name": hint.tiling.name, "tiling": hint.tiling.as_json(),
            "seconds": hint.seconds, "backend": identity.backend,
            "policy": str(identity.policy), "compiler": identity.compiler,
            "kernels": identity.kernels, "outdated": hint.outdated}
