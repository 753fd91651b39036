"""The entry point: runs the typer app and turns every error into a message and an exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import cast

import typer

from dscore._version import __version__
from dscore.cli import options
from dscore.cli.commands import cache
from dscore.cli.commands.bench import bench
from dscore.cli.commands.build import build
from dscore.cli.commands.conformance import conformance
from dscore.cli.commands.devices import devices
from dscore.cli.commands.emit import emit
from dscore.cli.commands.env import env
from dscore.cli.commands.explain import explain
from dscore.cli.commands.prepare import prepare
from dscore.cli.commands.run import run
from dscore.cli.commands.space import space
from dscore.cli.commands.tune import tune
from dscore.cli.commands.validate import validate
from dscore.cli.guide import GUIDE
from dscore.core.errors import DscoreError

INTERRUPTED = 130
# What a shell reports of a program that wrote to a pipe nobody reads (128 + SIGPIPE).
BROKEN_PIPE = 141
# click's UsageError: typer brings its own copy of click, or the installed one, and exports neither.
_UsageError = cast(type[Exception], typer.BadParameter.__mro__[1])

app = typer.Typer(
    name="dscore", help=GUIDE, add_completion=False, rich_markup_mode=None,
    pretty_exceptions_enable=False, invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})


@app.callback()
def _dscore(context: typer.Context, version: options.Version = False) -> None:
    if version:
        print(f"dscore {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


# In the order of the help.
for _command in (devices, validate, space, explain, emit, build, prepare, run, bench, tune,
                 conformance, env):
    app.command()(_command)
app.add_typer(cache.app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line on *arguments* (by default the process's own); return the exit code."""
    _never_fail_to_encode()
    try:
        code = app(args=None if arguments is None else list(arguments), prog_name="dscore",
                   standalone_mode=False)
        sys.stdout.flush()
    except DscoreError as error:
        return _say(str(error), error.exit_code)
    except _UsageError as error:
        return _say(_usage(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", INTERRUPTED)
    except (BrokenPipeError, SystemExit):  # typer ends so where it meets a broken pipe
        return _quietly()
    if code == INTERRUPTED:  # newer typer returns this, older raises Abort
        return _say("interrupted", INTERRUPTED)
    return code or 0


def _usage(error: BaseException) -> str:
    """A usage error with the command whose help explains it."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "dscore"
    message: str = error.format_message()  # type: ignore[attr-defined]
    return f"{message.rstrip('.')}; see '{path} --help'"


def _say(message: str, code: int) -> int:
    print(f"dscore: {message}", file=sys.stderr)
    return code


def _quietly() -> int:
    """Stop writing: what is still buffered must not fail again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE


def _never_fail_to_encode() -> None:
    """Show a sign that the terminal's encoding lacks (µ, ×) as a question mark."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
