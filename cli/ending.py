"""The end of a command: its exit code, the one line on stderr, the JSON of an error."""

from __future__ import annotations

import errno
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TextIO, cast

import typer

from dscore.cli.interruption import INTERRUPTED
from dscore.cli.show.json import Record, print_json
from dscore.cli.show.screen import screen
from dscore.core.errors import DscoreError, UnavailableError

NOT_WRITTEN = 6
INTERNAL = 70  # EX_SOFTWARE of sysexits.h
# What a shell reports of a program that wrote to a pipe nobody reads (128 + SIGPIPE).
BROKEN_PIPE = 141
# click's UsageError: typer brings its own copy of click, or the installed one, and exports neither.
_UsageError = cast(type[Exception], typer.BadParameter.__mro__[1])
_LONGEST_WORD = 300


class OutputError(DscoreError):
    """Nothing can be written to stdout."""

    exit_code = NOT_WRITTEN


@dataclass(frozen=True)
class Ending:
    """How a command ended without its result: the value of ``error`` in its JSON.

    *kind* is the name of the error's class, as programs tell errors apart.
    """

    kind: str
    message: str
    exit: int


def ending_of(error: BaseException) -> Ending:
    """What *error* means for the user of a command."""
    kind, message = type(error).__name__, str(error)
    if isinstance(error, DscoreError):
        code = error.exit_code
    elif isinstance(error, _UsageError):
        kind, message, code = "UsageError", _usage(error), 2
    elif isinstance(error, KeyboardInterrupt | typer.Abort):
        kind, message, code = "Interrupted", "interrupted", INTERRUPTED
    elif isinstance(error, MemoryError):
        kind, code = UnavailableError.__name__, UnavailableError.exit_code
        message = f"not enough memory: {message or 'none is left'}"
    elif isinstance(error, OSError):
        kind, code = OutputError.__name__, NOT_WRITTEN
        where = os.fsdecode(error.filename) if error.filename else "standard output"
        message = f"{where}: {error.strerror or error}"
    elif isinstance(error, Warning):
        kind, code = "Warning", 1
        message += " (Python's -W makes an error of this warning)"
    else:
        kind, code = "InternalError", INTERNAL
        message = f"a defect of dscore: {type(error).__name__}: {message}; -v shows where it is"
    return Ending(kind, _bounded(message), code)


def error_record(error: BaseException | None) -> Record:
    """The key ``error`` of a command's JSON; nothing where there is no error."""
    return {} if error is None else {"error": asdict(ending_of(error))}


def end(error: BaseException, json: bool) -> int:
    """Say how the command ended, on stderr and with *json* on stdout, too; the exit code."""
    if _reader_left(error):
        _discard(sys.stdout)
        return BROKEN_PIPE
    if isinstance(error, SystemExit):  # typer's, after --install-completion
        return error.code if isinstance(error.code, int) else 0
    ending = ending_of(error)
    if ending.exit == INTERNAL and screen.verbose:
        import traceback

        traceback.print_exception(error)
    _say(f"dscore: {ending.message}")
    written = _written({"error": asdict(ending)} if json and not screen.data_printed and
                       ending.exit != NOT_WRITTEN else None)
    return ending.exit if written else NOT_WRITTEN


def require_streams() -> None:
    """Raise OutputError where stdout is closed.

    A closed stream is opened on nothing first: else the next file that is opened would take its
    number, and receive what is printed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        raise OutputError("standard output is closed; > /dev/null discards it")


def show_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int,
                 file: TextIO | None = None, line: str | None = None) -> None:
    """Python's warnings as one line, without the file and the line of source."""
    if not screen.quiet:
        _say(f"warning: {' '.join(str(message).split())}")


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Within it Python's warnings are shown by `show_warning`."""
    with warnings.catch_warnings():
        warnings.showwarning = show_warning
        yield


def _usage(error: BaseException) -> str:
    """A usage error with the command whose help explains it."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "dscore"
    message: str = error.format_message()  # type: ignore[attr-defined]
    # As newer typer says, after pydantic, of a number that is none.
    message = re.sub(r"Input should be a valid (\w+),? .*", r"not a valid \1", message)
    return f"{message.rstrip('.')}; see '{path} --help'"


def _bounded(message: str) -> str:
    """*message* with its longest words cut: somebody typed a number of a thousand digits."""
    return re.sub(rf"\S{{{_LONGEST_WORD + 1},}}",
                  lambda word: f"{word[0][:80]}… ({len(word[0]):,} characters)", message)


def _reader_left(error: BaseException) -> bool:
    """Whether *error* is of a pipe that nobody reads; typer ends with SystemExit there."""
    cause = error.__context__ if isinstance(error, SystemExit) else error
    return isinstance(cause, OSError) and cause.errno == errno.EPIPE


def _say(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:  # nobody reads, or nothing can be written: there is nobody to tell
        _discard(sys.stderr)


def _written(record: Record | None) -> bool:
    """Whether *record*, and what stdout still holds, can be written; if not, it is discarded."""
    try:
        if record is not None:
            print_json(record)
        sys.stdout.flush()
    except OSError:
        _discard(sys.stdout)
        return False
    return True


def _discard(stream: TextIO) -> None:
    """Stop writing: what is still buffered must not fail again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
