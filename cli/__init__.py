"""The `dscore` command line: what the library knows and does, from a shell."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dscore.cli import interruption

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line on *arguments*; return the exit code.

    By default they are the process's own, which then also takes signals as a command does.
    """
    if arguments is not None:
        from dscore.cli import app

        return app.main(arguments)
    try:
        interruption.begin()
        from dscore.cli import app  # takes a while, in which a signal is to be understood, too

        code = app.main()
        interruption.end()
        return code
    except KeyboardInterrupt:  # during the imports, or as the command ended
        from dscore.cli import ending

        return ending.end(KeyboardInterrupt(), "--json" in sys.argv)
