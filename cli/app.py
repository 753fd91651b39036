"""The entry point: runs the typer app and turns every error into a message and an exit code."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

import typer

from dscore._version import __version__
from dscore.cli import ending, help_page, options
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
from dscore.cli.commands.scan import scan
from dscore.cli.commands.space import space
from dscore.cli.commands.tune import tune
from dscore.cli.commands.validate import validate
from dscore.cli.guide import EPILOG, GUIDE
from dscore.cli.interruption import INTERRUPTED
from dscore.cli.show import screen

app = typer.Typer(
    name="dscore", cls=help_page.Group, help=GUIDE, epilog=EPILOG, rich_markup_mode=None,
    pretty_exceptions_enable=False, invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})


@app.callback()
def _dscore(context: typer.Context, version: options.Version = False,
            quiet: options.Quiet = False, verbose: options.Verbose = False) -> None:
    options.tell(quiet, verbose)
    if version:
        print(f"dscore {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


# In the order of the help.
for _command in (devices, validate, space, explain, emit, build, prepare, run, scan, bench,
                 tune, conformance, env):
    app.command()(_command)
app.add_typer(cache.app)
for _info in (*app.registered_commands, *cache.app.registered_commands):
    _info.cls, _info.callback = help_page.Command, options.told(_info.callback)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line on *arguments* (by default the process's own); return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    json = "--json" in words
    screen.begin()
    with ending.warnings_in_one_line():
        try:
            ending.require_streams()
            _never_fail_to_encode()
            code = app(args=words, prog_name="dscore", standalone_mode=False)
            sys.stdout.flush()
        except BaseException as error:
            return ending.end(error, json)
    if code == INTERRUPTED:  # newer typer returns this, older raises Abort
        return ending.end(KeyboardInterrupt(), json)
    return code or 0


def _never_fail_to_encode() -> None:
    """Show a sign that the terminal's encoding lacks (µ, ×) as a question mark."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
