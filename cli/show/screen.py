"""Screen: how wide the output is, how much is said (-q, -v), and whether data were printed."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from dscore.core.text import MOST_COLUMNS

_LEAST_COLUMNS = 40


@dataclass
class Screen:
    """State of the command that runs."""

    quiet: bool = False  # no notes, summaries, warnings or bars
    verbose: bool = False  # every limit, column and line
    data_printed: bool = False  # stdout holds the JSON of --json


screen = Screen()


def begin() -> None:
    """Forget what the last command of this process was told."""
    screen.quiet = screen.verbose = screen.data_printed = False


def columns() -> int:
    """Columns for tables: those of COLUMNS, else the terminal's; 100 in a pipe or a file."""
    named = os.environ.get("COLUMNS", "")
    if named.isdecimal() and len(named) < 6 and int(named):
        return max(int(named), _LEAST_COLUMNS)
    try:
        terminal = os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError, AttributeError):  # no terminal; a stream without a file
        terminal = 0
    return max(terminal, _LEAST_COLUMNS) if terminal else MOST_COLUMNS


def prose_columns() -> int:
    """Columns for sentences: at most 100, which eyes can follow."""
    return min(columns(), MOST_COLUMNS)
