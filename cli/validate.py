"""`dscore validate`: judge the configurations of a file."""

from __future__ import annotations

import typer

from dscore.cli.configurations import Defaults, judged
from dscore.cli.output import print_json, print_text
from dscore.cli.records import verdict_record
from dscore.core.errors import require_one_of
from dscore.core.plan import RULES


def run(file: str, device: str, rules: str, json: bool) -> None:
    """Print every verdict; exit 1 where one is not valid."""
    verdicts = judged(file, Defaults(device, require_one_of(rules, "rules", RULES)))
    valid = sum(verdict.ok for verdict in verdicts)
    if json:
        print_json([verdict_record(verdict) for verdict in verdicts])
    else:
        for verdict in verdicts:
            print_text(f"{verdict}\n\n")
        print(f"{valid} of {len(verdicts)} configurations are valid")
    if valid < len(verdicts):
        raise typer.Exit(1)
