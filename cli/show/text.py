"""Text for the terminal: tables, folded lines, a bar of progress."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from dscore.core.errors import SpecError
from dscore.core.text import MOST_COLUMNS, fold

_STYLES = {"right": "green", "holds": "green", "present": "green"}


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]],
                verdict: bool = False) -> None:
    """A table within 100 columns, on stdout.

    A column whose name begins with > is aligned to the right. The last column of a table with
    *verdict* is green where all is well, else red.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.width = min(console.width, MOST_COLUMNS) if sys.stdout.isatty() else MOST_COLUMNS
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0),
                  header_style="bold")
    for name in columns:
        table.add_column(name.removeprefix(">"), overflow="fold", no_wrap=name.startswith(">"),
                         justify="right" if name.startswith(">") else "left")
    for row in rows:
        cells = [Text(cell) for cell in row]  # as text: a bracket is no markup
        if verdict:
            cells[-1].stylize(_STYLES.get(row[-1].partition(" ")[0], "red"))
        table.add_row(*cells)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def print_text(text: str, file: TextIO | None = None, hanging: int = 4) -> None:
    """*text* with its own line breaks; a line longer than 100 columns is folded.

    The rest of such a line is indented by *hanging*.
    """
    for line in text.splitlines():
        print("\n".join(fold(line, hanging, break_words=True)), file=file)


def counted(number: int, what: str) -> str:
    """A number of things, as English writes it.

    >>> counted(1, "layer"), counted(1000, "layer")
    ('1 layer', '1,000 layers')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


@contextlib.contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on stderr with the time left; none where stderr is no terminal.

    Yields a function to be called when a step begins, with a word on that step.
    """
    if not sys.stderr.isatty():
        yield lambda what: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                   TextColumn("{task.description}", markup=False), console=Console(stderr=True),
                   transient=True)
    with bar:
        task = bar.add_task("", total=total)
        begun = 0

        def begin(what: str) -> None:
            nonlocal begun
            bar.update(task, completed=begun, description=what)
            begun += 1

        yield begin


def require_writable(path: str) -> None:
    """Raise SpecError where no file can be written at *path*, before long work is begun for it."""
    if os.path.isdir(path):
        raise SpecError(f"{path}: is a folder, not a file")
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise SpecError(f"{path}: is not writable")
    if os.path.exists(path) and not os.path.isfile(path):
        return  # a pipe or a device, which is written into
    folder = Path(os.path.realpath(path) if os.path.islink(path) else path).parent
    if not folder.is_dir():
        raise SpecError(f"{path}: there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise SpecError(f"{path}: the folder {folder} is not writable")
