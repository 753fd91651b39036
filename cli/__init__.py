"""The `dscore` command line: what the library knows and does, from a shell."""

from __future__ import annotations

from dscore.cli.app import main

__all__ = ["main"]
