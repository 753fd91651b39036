"""Tuners in processes of their own: one that is killed, and two at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tuning_backends import Slow

from dscore.cache import store
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving import solver
from dscore.tuning import records, tune
from dscore.tuning.search import FIRST_RUNS

PROBLEM = parse_problem("n1c8h6w6_o16k1")
SPACE = solver.solve(PROBLEM, catalog.device("z100sm"))
NAMES = [SPACE[int(i)].name for i in SPACE.ranked()]
SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(records, "_decisions", {})
    for log in ("ran", "timed", "compiled"):
        monkeypatch.setattr(Slow, log, [])


def _slow(tmp_path: Path, seconds: float = 0.05, **options: Any) -> subprocess.Popen[bytes]:
    """Another process that tunes, each measurement in so many *seconds*."""
    code = ("from dscore.tuning import tune; from dscore.core.token import parse_problem as p; "
            f"tune.tune(p('n1c8h6w6_o16k1'), backend='tuning_backends:Slow', top=12, **{options})")
    environment = {**os.environ, "TIMED_LOG": str(tmp_path / "log"), "TIMED_SECONDS": str(seconds),
                   "PYTHONPATH": os.pathsep.join([str(SUPPORT), *sys.path])}
    return subprocess.Popen([sys.executable, "-c", code], env=environment)


def _first_counts() -> dict[str, int]:
    """How often each configuration was measured in the first pass, by what is on record."""
    counts: dict[str, int] = {}
    for measurement in records.everything():
        if len(measurement.samples) == FIRST_RUNS:
            counts[measurement.tiling.name] = counts.get(measurement.tiling.name, 0) + 1
    return counts


def test_a_killed_run_is_taken_up_again(tmp_path: Path) -> None:
    process = _slow(tmp_path, seconds=0.3)  # this process may be held up, too
    until = time.monotonic() + 60
    while len(_first_counts()) < 4 and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 4 <= len(_first_counts()) < 12
    assert store.Store("tuning").verify() == ()
    assert tune.tune(PROBLEM, backend="tuning_backends:Slow", top=12).complete
    assert _first_counts() == dict.fromkeys(NAMES[:12], 1)


@pytest.mark.deep
def test_two_tuners_at_once_lose_nothing(tmp_path: Path) -> None:
    assert [tuner.wait(120) for tuner in [_slow(tmp_path, seed=seed) for seed in (1, 2)]] == [0, 0]
    timed = (tmp_path / "log").read_text().split()
    assert store.Store("tuning").verify() == ()
    assert sorted(m.tiling.name for m in records.everything()) == sorted(timed)
    assert set(timed) == set(NAMES[:12])
