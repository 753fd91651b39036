"""Interruptions: a command that ends by a signal keeps its results and leaves nothing running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from cli_calls import DSCORE
from heard_signals import hear
from profiles import deep

from dscore.cli import interruption

TUNE = ("tune", "n1c8h6w6_o16k1", "n1c8h6w6_o8k3p1g8", "--backend", "tuning_backends:Slow",
        "--exhaustive", "--workers", "2")
# Seconds; by themselves the workers would need more than twice as many.
WELL_BEFORE_THE_END = 20
# A compiler that never ends, with a child that would go on without it.
FAKE = """#!/bin/sh
[ "$1" = --version ] && { echo "fake 1.0"; exit 0; }
sleep 600 & echo $$ $! >> "$PIDS"; wait
"""


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subprocess_path: str) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "c++").write_text(FAKE)
    (tmp_path / "c++").chmod(0o755)
    for name, value in (("DSCORE_CACHE_DIR", tmp_path / "cache"), ("TMPDIR", tmp_path / "tmp"),
                        ("DSCORE_CXX", tmp_path / "c++"), ("PIDS", tmp_path / "pids"),
                        ("PYTHONPATH", subprocess_path), ("TIMED_SECONDS", 0.5)):
        monkeypatch.setenv(name, str(value))


def started(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            start_new_session=True, preexec_fn=hear)  # noqa: PLW1509


def until(condition: Callable[[], object], seconds: float = 60) -> bool:
    """Whether *condition* comes true in time."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(condition())


def runs(process: int) -> bool:
    """Whether a process, or with a negative number one of its group, has not ended."""
    if process < 0:
        return members(-process) > 0
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process said, which nobody who holds its stdout may go on to say."""
    try:
        return process.communicate(timeout=60)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)


def members(group: int) -> int:
    """Number of processes of a group that have not ended. Where the system takes its time to ask
    after those whose parent is gone, they stay as zombies for a second or two."""
    states = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # another process may end at any time
            states.append(path.read_text().rpartition(")")[2].split())
    return sum(int(state[2]) == group and state[0] != "Z" for state in states)


@pytest.mark.parametrize("name", [deep("SIGTERM"), "SIGKILL"])
def test_workers_end_with_their_command_however_that_ends(name: str, tmp_path: Path) -> None:
    tuning = started(*DSCORE, *TUNE)
    assert until(lambda: len([*(tmp_path / "cache").glob("tuning/*.json")]) >= 2), ended(tuning)
    tuning.send_signal(getattr(signal, name))  # to the command alone; it sees to its workers
    out, err = ended(tuning)
    assert until(lambda: not runs(-tuning.pid), WELL_BEFORE_THE_END)
    assert "Traceback" not in err
    if name == "SIGKILL":
        return
    assert (tuning.returncode, err) == (130, "dscore: interrupted\n")
    assert "the same command goes on from here" in out


def test_a_signal_that_is_delayed_interrupts_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "_first", None)
    before, done = signal.signal(signal.SIGINT, interruption._interrupt), []

    def start(*signals: signal.Signals) -> None:
        with interruption.delayed():
            for number in signals:
                signal.raise_signal(number)
            done.append(signals)

    try:
        start()
        with pytest.raises(KeyboardInterrupt):
            start(signal.SIGINT, signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == [(), (signal.SIGINT, signal.SIGINT)]


@pytest.mark.deep
@pytest.mark.parametrize(("name", "seconds"), [("SIGINT", 0), ("SIGINT", 0.3), ("SIGHUP", 0.3)])
def test_a_terminals_signal_to_workers_that_have_just_begun_gives_one_line(
        name: str, seconds: float) -> None:
    tuning = started(*DSCORE, *TUNE)
    assert until(lambda: members(tuning.pid) >= 4), "not itself, multiprocessing's own, two workers"
    time.sleep(seconds)
    os.killpg(tuning.pid, getattr(signal, name))
    out, err = ended(tuning)
    assert (tuning.returncode, err) == (130, "dscore: interrupted\n")
    assert "the same command goes on from here" in out
    assert until(lambda: not runs(-tuning.pid), WELL_BEFORE_THE_END)


@pytest.mark.parametrize(("name", "times"), [
    ("SIGINT", 5), deep("SIGTERM", 1), deep("SIGHUP", 2)])
def test_an_interrupted_build_ends_its_compilers_and_its_folder(
        name: str, times: int, tmp_path: Path) -> None:
    build = started(*DSCORE, "build", "P13", "--target", "emulated")
    assert until((tmp_path / "pids").exists), ended(build)
    for _ in range(times):
        build.send_signal(getattr(signal, name))
        time.sleep(0.005)
    out, err = ended(build)
    assert (build.returncode, out, err) == (130, "", "dscore: interrupted\n")
    pids = (tmp_path / "pids").read_text().split()
    assert until(lambda: not any(runs(int(pid)) for pid in pids))
    assert until(lambda: [*(tmp_path / "tmp").iterdir()] == [])


EARLY = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from dscore.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize("module", ["dscore.cli.app", "typer", "dscore.cli.commands.tune"])
def test_a_signal_before_the_command_begins_gives_one_line(module: str) -> None:
    command = started(sys.executable, "-c", EARLY, module, "devices")
    out, err = ended(command)
    assert (command.returncode, out, err) == (130, "", "dscore: interrupted\n")


LATER = """
import os, signal, sys
from dscore.cli import interruption

signal.signal(signal.SIGHUP, signal.SIG_IGN)
interruption.begin()
os.kill(os.getpid(), signal.SIGHUP)  # as nohup has it
try:
    os.kill(os.getpid(), signal.SIGTERM)
except KeyboardInterrupt:
    print("first", flush=True)
os.kill(os.getpid(), signal.SIGTERM)
print("at once", flush=True)
interruption._PATIENCE_SECONDS = 0
os.kill(os.getpid(), signal.SIGINT)
print("never")
"""


def test_later_signals_wait_for_the_first_but_not_for_ever() -> None:
    process = started(sys.executable, "-c", LATER)
    out, err = ended(process)
    assert (process.returncode, out.split("\n"), err) == (130, ["first", "at once", ""], "")


SWALLOWED = """
import gc, os, signal, time
from dscore.cli import interruption

interruption.begin()

def collected(phase, info):
    gc.callbacks.remove(collected)
    os.kill(os.getpid(), signal.SIGTERM)
    sum(range(10))  # here it is heard, and Python lets no exception out of a callback

gc.callbacks.append(collected)
try:
    gc.collect()
    time.sleep(20)
except KeyboardInterrupt:
    print("caught")
"""


def test_a_signal_within_what_lets_no_exception_out_interrupts_afterwards() -> None:
    out, err = ended(process := started(sys.executable, "-c", SWALLOWED))
    assert (process.returncode, out, err) == (0, "caught\n", "")


LAST = """
import os, signal, sys

class Last:  # freed with the modules, as the process ends
    def __del__(self, kill=os.kill, own=os.getpid()):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            kill(own, number)

import typing
typing.last = Last()
sys.argv[1:] = ["--version"]
from dscore.cli import main
code = main()
sys.exit(code if sys.stdout.flush() is None else 1)
"""


def test_a_signal_as_python_ends_leaves_the_exit_code() -> None:
    out, err = ended(process := started(sys.executable, "-c", LAST))
    assert (process.returncode, out.partition(" ")[0], err) == (0, "dscore", "")


IN_A_TEXT = """
import os, signal
from dscore.cli import interruption

interruption.begin()
try:
    exec("os.kill(os.getpid(), signal.SIGTERM); pass")  # as a dataclass is being made
except KeyboardInterrupt:
    print("caught")
"""


def test_an_interrupted_exec_of_a_text_leaves_the_exit_code() -> None:
    out, err = ended(process := started(sys.executable, "-c", IN_A_TEXT))
    assert (process.returncode, out, err) == (0, "caught\n", "")
