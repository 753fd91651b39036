"""Commands side by side, of which none outlives a time limit, a failure or an interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue


@dataclass(frozen=True)
class Finished:
    """Status and output of a command that has ended."""

    command: tuple[str, ...]
    status: int | None  # None: it was ended at the time limit
    log: str


class Commands:
    """Commands in one folder, each the head of a process group with one limit of seconds."""

    def __init__(self, folder: Path, environment: Mapping[str, str], limit: float) -> None:
        self._folder, self._environment, self._limit = folder, environment, limit
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def together(self, commands: Sequence[Sequence[str]],
                 jobs: int) -> Generator[tuple[int, Finished], None, None]:
        """Run *commands*, *jobs* at a time; yields the number and the end of each as it ends.

        Closing or interrupting the iterator kills the commands that still run.
        """
        # Simple queues, for an interruption inside concurrent.futures can leave its locks held.
        waiting: SimpleQueue[int] = SimpleQueue()
        ended: SimpleQueue[tuple[int, Finished]] = SimpleQueue()
        for number in range(len(commands)):
            waiting.put(number)

        def work() -> None:
            with suppress(Empty):
                while not self._stopped:
                    number = waiting.get_nowait()
                    ended.put((number, self._run(commands[number])))

        workers = [threading.Thread(target=work, daemon=True)
                   for _ in range(max(1, min(jobs, len(commands))))]
        try:
            for worker in workers:
                worker.start()
            for _ in commands:
                yield _next(ended)
        except BaseException:
            self._stop()
            while any(worker.is_alive() for worker in workers):
                time.sleep(0.01)
            raise

    def _run(self, command: Sequence[str]) -> Finished:
        # A file and not a pipe: a grandchild that lives on would keep a pipe open.
        try:
            with tempfile.TemporaryFile(dir=self._folder) as output:
                status = self._status(self._start(command, output.fileno()))
                output.seek(0)
                return Finished(tuple(command), status, output.read().decode(errors="replace"))
        except OSError as failed:
            return Finished(tuple(command), 127, str(failed))

    def _status(self, process: subprocess.Popen[bytes]) -> int | None:
        """Exit status of *process*; None where it is killed at the time limit."""
        try:
            return process.wait(self._limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _kill(process)
            process.wait()
            with self._lock:
                self._running.discard(process)

    def _stop(self) -> None:
        """Kill the commands that run, and start no others."""
        with self._lock:
            self._stopped = True
            running = [*self._running]
        for process in running:
            _kill(process)

    def _start(self, command: Sequence[str], output: int) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopped:
                raise InterruptedError(f"{command[0]} was not started: the build has ended")
            process = subprocess.Popen(command, cwd=self._folder, env=self._environment,
                                       stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, start_new_session=True)
            self._running.add(process)
        return process


def _next(ended: SimpleQueue[tuple[int, Finished]]) -> tuple[int, Finished]:
    # Never waits without end: an interruption that the system hands to another thread is only
    # seen by the main one when it wakes.
    while True:
        with suppress(Empty):
            return ended.get(timeout=0.1)


def _kill(process: subprocess.Popen[bytes]) -> None:
    # Its group bears its number, which nobody else is given before it has been waited for.
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
