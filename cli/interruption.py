"""Interruptions of a command: SIGINT, SIGTERM and SIGHUP all end it with 130, its results kept."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP")
                if hasattr(signal, name))
# Signals come in twos: from a terminal that closes, from a scheduler, from a key held down. A
# command that has not ended after this time is ended by the next one.
_PATIENCE_SECONDS = 2.0
# After which an interruption that was lost is raised again.
_AGAIN_SECONDS = 0.05
_first: float | None = None  # of time.monotonic
_over = False
_delayed: list[int] | None = None  # signals that came while they are delayed


def begin() -> None:
    """Have the first signal raise KeyboardInterrupt, wherever this process is.

    A signal that this process was told to ignore, as nohup does with SIGHUP, stays ignored.
    """
    atexit.register(_settle)  # runs after all that is registered later
    for number in SIGNALS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _interrupt)
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, _interrupt)
        sys.unraisablehook = _ignored


@contextmanager
def delayed() -> Iterator[None]:
    """Have a signal that comes here interrupt this process when all of this is done.

    To block signals would not do: another thread may take one, and Python then interrupts the main
    thread all the same.
    """
    global _delayed  # noqa: PLW0603
    _delayed = []
    try:
        yield
    finally:
        came, _delayed = _delayed, None
        if came:
            _interrupt(came[0], None)


def end() -> None:
    """Have a signal end this process at once from now on: there is nothing left to keep."""
    global _over  # noqa: PLW0603
    _over = True


def _ignored(what: sys.UnraisableHookArgs) -> None:
    """Raise an interruption again that came in a finalizer, or in a callback of the collector of
    garbage: Python lets no exception out of these, and the command would go on."""
    global _first  # noqa: PLW0603
    if what.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(what)
        return
    _first = None
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)


def _settle() -> None:
    """Have no signal replace the exit code any more, the last thing that this process does.

    Python is about to take its handlers away and to free its modules, which takes a moment.
    """
    for number in (*SIGNALS, *[signal.SIGALRM] * hasattr(signal, "SIGALRM")):
        signal.signal(number, signal.SIG_IGN)
    # CPython remembers that a KeyboardInterrupt left the exec of a text, with which dataclasses are
    # made, and `python -m dscore.cli` would end by SIGINT, although it was caught. The next exec of
    # a text has CPython forget.
    exec("")


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _first  # noqa: PLW0603
    if _delayed is not None:
        _delayed.append(number)
        return
    now = time.monotonic()
    if _over or (_first is not None and now - _first > _PATIENCE_SECONDS):
        # What else runs, workers and compilers, sees that this process is gone and ends, too.
        os._exit(INTERRUPTED)
    if _first is None:
        _first = now
        raise KeyboardInterrupt
