"""Executors for the work of a long command: processes of this machine, or one of the user's."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from dscore.cli.ending import show_warning
from dscore.cli.interruption import INTERRUPTED, delayed
from dscore.core.backend import Backend
from dscore.core.errors import SpecError, require_int

_JOIN_SECONDS = 3.0


@contextmanager
def executor_of(backend: Backend, workers: int | None, target: str | None,
                tasks: int) -> Iterator[Executor | None]:
    """The executor at *target*, a pool of *workers* processes, or None for this process.

    By default a machine of several GPUs gets a process for each of them.
    """
    if workers is not None and target is not None:
        raise SpecError("--workers and --executor are two ways of the same; take one")
    if target is not None:
        with _loaded(target) as executor:
            yield executor
        return
    environments = backend.workers()
    gpus = len(environments)
    count = require_int(max(gpus, 1) if workers is None else workers, "--workers")
    if gpus and count > gpus:
        raise SpecError(f"--workers: {count} would share {gpus} GPU{'s' * (gpus > 1)} and disturb "
                        "each other's times")
    if min(count, tasks) == 1:
        yield None
        return
    with _pool(min(count, tasks), environments) as pool:
        yield pool


@contextmanager
def _loaded(target: str) -> Iterator[Executor]:
    """What the factory at ``module:factory`` makes; it is shut down at the end."""
    module, _, attribute = target.partition(":")
    try:
        executor: Any = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError, TypeError, ValueError, SystemExit) as error:
        raise SpecError(f"--executor {target!r} cannot be had: {error}; it is module:factory, to "
                        "be called without arguments") from error
    if not callable(getattr(executor, "submit", None)):
        raise SpecError(f"--executor {target!r} made a {type(executor).__name__}, which is no "
                        "concurrent.futures.Executor")
    try:
        yield executor
    finally:
        executor.shutdown(wait=False)


class _Worker(SpawnProcess):
    """Process that knows no SIGINT from its first moment on, before any code of its own runs.

    A terminal sends that to a whole command, whose main process sees to the workers.
    """

    def start(self) -> None:
        """Start it with SIGINT blocked, which is inherited; here it is only delayed.

        Interrupted amid this, it would leave a process that is told half of what it is to do, and
        says so in a traceback.
        """
        with delayed():
            before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            try:
                super().start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Workers(SpawnContext):
    """Context that spawns: a device's runtime does not survive a fork."""

    Process = _Worker


@contextmanager
def _pool(count: int, environments: Sequence[Mapping[str, str]]) -> Iterator[Executor]:
    """A pool whose processes end with the work, with an interruption, or with this process."""
    context = _Workers()
    _start_tracker()
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(count, context, _settle, (context.Value("i", 0), environments))
    try:
        yield pool
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        _end(set(multiprocessing.active_children()) - before)
        raise


def _start_tracker() -> None:
    """Start multiprocessing's own process, which counts what all share, so that SIGHUP spares it.

    It spares itself SIGINT and SIGTERM alone; a terminal that closes sends SIGHUP to it, too.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    try:
        resource_tracker.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(processes: set[Any]) -> None:
    # At once: what they have measured is on disk, and their compilers end with them.
    for process in processes:
        process.kill()
    for process in processes:
        process.join(_JOIN_SECONDS)


def _settle(counter: Any, environments: Sequence[Mapping[str, str]]) -> None:
    """What a new process does first: see to its end, and take a GPU of its own."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    warnings.showwarning = show_warning
    if not environments:
        return
    with counter.get_lock():
        own, counter.value = counter.value, counter.value + 1
    os.environ.update(environments[own % len(environments)])


def _end_with_parent() -> None:
    # However the parent ends: its end of a pipe, which no other process has, is then closed.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(INTERRUPTED)
