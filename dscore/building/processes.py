"""Commands side by side, of which none outlives a time limit, a failure, or this process."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from dscore.core.errors import UnavailableError

# Shell program that is told which process groups begin and end. When nobody is left to tell it
# more, it kills those that run, and removes the folder.
_GUARD = """
while read -r event group; do
  case $event in
    begin) groups="$groups $group " ;;
    end) groups="${groups%% $group *} ${groups#* $group }" ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group"; done
for turn in 1 2 3 4 5; do
  rm -rf -- "$1"
  [ -e "$1" ] || break
  sleep 1
done
"""
# Shell program that becomes a command. It tells the guard itself, so that there is no moment at
# which a command runs and the guard does not know it.
_COMMAND = 'echo "begin $$" >&0; exec "$@" </dev/null'

@dataclass(frozen=True)
class Finished:
    """Status and output of a command that has ended."""

    command: tuple[str, ...]
    status: int | None  # None: it was ended at the time limit
    log: str


class Workspace:
    """Temporary folder with the commands that run in it; both end with this process.

    A process of its own, the guard, sees to that: Python's own clean-up is skipped where a process
    is killed, crashes, or is interrupted again as it cleans up.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARD, "dscore", str(folder)], cwd="/", stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def start(self, command: Sequence[str], environment: Mapping[str, str],
              output: int) -> subprocess.Popen[bytes]:
        """Start a command in the folder, as the head of a process group."""
        return subprocess.Popen(["sh", "-c", _COMMAND, "dscore", *command], cwd=self.folder,
                                env=environment, stdin=self._guard.stdin, stdout=output,
                                stderr=subprocess.STDOUT, start_new_session=True)

    def ended(self, process: subprocess.Popen[bytes]) -> None:
        """Tell the guard of the end of a command."""
        assert self._guard.stdin is not None
        with suppress(OSError):
            self._guard.stdin.write(f"end {process.pid}\n".encode())
            self._guard.stdin.flush()

    def write(self, name: str, data: bytes) -> None:
        """Write a file of the folder; UnavailableError where the disk has no room for it."""
        path = self.folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except OSError as failed:
            raise UnavailableError(f"{path}: cannot be written: {failed.strerror}; set TMPDIR to a "
                                   "folder with room to compile in") from failed

    def remove(self) -> None:
        """Remove the folder, and end the guard."""
        for _ in range(40):  # a killed compiler's children may still be writing as they die
            shutil.rmtree(self.folder, ignore_errors=True)
            if not self.folder.exists():
                break
            time.sleep(0.05)
        with suppress(OSError):
            self._guard.communicate()


@contextmanager
def workspace() -> Iterator[Workspace]:
    """Workspace that is removed at the end; UnavailableError where there can be none."""
    folder = Path(tempfile.gettempdir(), f"dscore-build-{secrets.token_hex(8)}")
    try:
        place = Workspace(folder)
    except OSError as failed:
        raise UnavailableError(f"no shell (sh) can be started: {failed}") from failed
    try:
        try:
            folder.mkdir(mode=0o700)
        except OSError as failed:
            raise UnavailableError(f"no folder to compile in: {failed}; set TMPDIR") from failed
        yield place
    finally:
        place.remove()


class Commands:
    """Commands in one workspace, each the head of a process group with one limit of seconds."""

    def __init__(self, place: Workspace, environment: Mapping[str, str], limit: float) -> None:
        self._place, self._environment, self._limit = place, environment, limit
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
            with tempfile.TemporaryFile(dir=self._place.folder) as output:
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
                self._place.ended(process)

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
            process = self._place.start(command, self._environment, output)
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
