"""`dscore cache export|import|merge`: tuning records to files, from files, and from many to one."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import typer

from dscore.cli.output import counted, print_json, print_text, progress, require_writable
from dscore.cli.records import Record
from dscore.tuning import exchange
from dscore.tuning.freshness import Stale
from dscore.tuning.measurement import Measurement

_SHOWN = 5


def export(path: str, json: bool) -> None:
    """Write all records to a file."""
    require_writable(path)
    found = exchange.export(path)
    if json:
        print_json({"file": path, **_counts(found)})
    else:
        print_text(f"{_said(found)} to {path}")


def import_(paths: Sequence[str], json: bool) -> None:
    """Take the records of files that may hold here; exits with 1 where lines were skipped."""
    found = exchange.plan_import(paths)
    _tell_skipped(found.skipped)
    _tell_stale("ignored", found.ignored)
    _tell_stale("taken, but of no use here yet:", found.unjudged)
    with progress(len(found.new)) as begin:
        exchange.import_new(found, begin)
    if json:
        print_json({"files": list(paths), "new": len(found.new), "known": found.known,
                    "ignored": [_stale_record(one) for one in found.ignored],
                    "unjudged": [_stale_record(one) for one in found.unjudged],
                    "skipped": list(found.skipped)})
    else:
        known = f", {found.known:,} known before" if found.known else ""
        ignored = (f", {counted(len(found.ignored), 'record')} ignored" if found.ignored else "")
        print_text(f"{counted(len(found.new), 'measurement')} from {', '.join(paths)}"
                   f"{known}{ignored}")
    _fail_if(found.skipped)


def merge(paths: Sequence[str], into: str, json: bool) -> None:
    """Write the records of files to one; exits with 1 where lines were skipped."""
    require_writable(into)
    found = exchange.merge(paths, into)
    _tell_skipped(found.skipped)
    if json:
        print_json({"files": list(paths), "into": into, **_counts(found.measurements),
                    "skipped": list(found.skipped)})
    else:
        print_text(f"{_said(found.measurements)} in {into}")
    _fail_if(found.skipped)


def _counts(found: Iterable[Measurement]) -> dict[str, int]:
    held = list(found)
    return {"measurements": len(held), "problems": len({m.identity.problem for m in held})}


def _said(found: Iterable[Measurement]) -> str:
    counts = _counts(found)
    return (f"{counted(counts['measurements'], 'measurement')} of "
            f"{counted(counts['problems'], 'problem')}")


def _tell_skipped(lines: Sequence[str]) -> None:
    """Why lines are no measurements; JSON has all of it."""
    for line in lines[:_SHOWN]:
        print_text(f"skipped {line}", sys.stderr)
    if len(lines) > _SHOWN:
        print(f"... and {len(lines) - _SHOWN:,} more; --json has them", file=sys.stderr)


def _tell_stale(what: str, found: Sequence[Stale]) -> None:
    """Records that no plan goes by, those of one reason in one line; JSON has all of it."""
    together: dict[tuple[str, ...], list[str]] = {}
    for one in found:
        said = one.identity
        together.setdefault((said.device, said.backend, one.reason), []).append(said.problem)
    for (device, backend, reason), problems in together.items():
        named = ", ".join(problems[:_SHOWN])
        more = f" and {len(problems) - _SHOWN:,} more" if len(problems) > _SHOWN else ""
        print_text(f"{what} {counted(len(problems), 'record')} of {device} by {backend}: {reason}: "
                   f"{named}{more}", sys.stderr)


def _stale_record(one: Stale) -> Record:
    said = one.identity
    return {"problem": said.problem, "device": said.device, "architecture": said.architecture,
            "backend": said.backend, "policy": str(said.policy),
            "configurations": one.configurations, "reason": one.reason}


def _fail_if(skipped: Any) -> None:
    if skipped:
        raise typer.Exit(1)
