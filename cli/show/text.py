"""Text for the terminal: tables, folded lines, a bar of progress."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dscore.cli.show.screen import columns as screen_columns
from dscore.cli.show.screen import prose_columns, screen
from dscore.core.errors import SpecError
from dscore.core.text import fold

if TYPE_CHECKING:
    from dscore.cli.show.layout import Column

_STYLES = {"right": "green", "holds": "green", "present": "green"}


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], verdict: bool = False,
                spare: Sequence[str] = ()) -> None:
    """A table on stdout, no wider than the terminal (`dscore.cli.show.screen.columns`).

    A column whose head begins with > holds numbers, aligned to the right. Where the table is too
    wide, the columns of *spare* are left out one after the other and named below the table, then
    names end in an ellipsis; --verbose prevents both. Only the last column is folded, between
    words. The last column of a table with *verdict* is green where all is well, else red.
    """
    from dscore.cli.show.layout import columns_of, fitted, total

    natural, width = columns_of(heads, rows), screen_columns()
    columns = natural if screen.verbose else fitted(natural, spare, width)
    _print_columns(columns, rows, verdict, max(width, total(columns)))
    kept = {column.place for column in columns}
    left_out = [" ".join(column.head.split()) for column in natural if column.place not in kept]
    if left_out:
        print_note(f"no room for {', '.join(left_out)}: -v shows all columns")


def _print_columns(columns: Sequence[Column], rows: Sequence[Sequence[str]], verdict: bool,
                   width: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from dscore.cli.show.layout import shorten

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0),
                  header_style="bold")
    for column in columns:
        table.add_column(column.head, overflow="ellipsis", no_wrap=not column.last,
                         width=column.width, justify="right" if column.right else "left")
    for row in rows:
        # As text: a bracket is no markup.
        cells = [Text(row[column.place] if column.last else
                      shorten(row[column.place], column.width)) for column in columns]
        if verdict:
            cells[-1].stylize(_STYLES.get(row[-1].partition(" ")[0], "red"))
        table.add_row(*cells)
    console = Console(highlight=False, width=width)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def print_text(text: str, file: TextIO | None = None, hanging: int = 4) -> None:
    """*text* with its own line breaks; lines longer than the terminal's, or 100, are folded.

    The rest of such a line is indented by *hanging*. A word is never broken.
    """
    for line in text.splitlines():
        print("\n".join(fold(line, hanging, prose_columns())), file=file)


def print_note(text: str, file: TextIO | None = None, hanging: int = 4) -> None:
    """*text* that says something about the result, and is no result; not with --quiet."""
    if not screen.quiet:
        print_text(text, file, hanging)


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
    if screen.quiet or not sys.stderr.isatty():
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


@contextlib.contextmanager
def compiling(kernels: int) -> Iterator[Callable[[int, int, str], None]]:
    """`progress` of a build; yields a function to be called with units done, and their number."""
    with contextlib.ExitStack() as open_bar:
        begin: list[Callable[[str], None]] = []

        def step(done: int, total: int, _: str) -> None:
            if not begin:
                begin.append(open_bar.enter_context(progress(total)))
                begin[0](f"compiling {counted(kernels, 'kernel')}")
            if done:
                begin[0]("" if done < total else "linking")
        yield step


def compiled_text(compiled: int, kernels: int, seconds: float) -> str:
    """Time of a build, and what the cache had of it."""
    cached = kernels - compiled
    return f"{seconds:.1f} s" + (
        "" if not cached else f" with {cached:,} from the cache" if compiled else " from the cache")


def require_writable(path: str) -> None:
    """Raise SpecError where no file can be written at *path*, before long work is begun for it."""
    require_name(path)
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


def require_name(path: str) -> None:
    """Raise SpecError where no file nor folder can be called *path*: it is too long, say."""
    if not path:  # of a shell's variable that is not set; to Path it is the folder that one is in
        raise SpecError("the name of a file or folder to write is empty")
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except (OSError, ValueError) as error:  # ValueError: a null character
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise SpecError(f"{path}: cannot be written: {reason}") from None
