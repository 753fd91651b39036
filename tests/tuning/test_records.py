"""Tuning records as values and in the cache."""

from __future__ import annotations

import os
import time
import timeit
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recorded import (
    COLD,
    DEVICE,
    IDENTITY,
    PROBLEM,
    REFERENCE,
    TILINGS,
    TOKEN,
    keep,
    measured,
)

from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling
from dscore.algorithms.row_reuse.tiling import RowReuseTiling
from dscore.cache import folders, store
from dscore.core import catalog
from dscore.core.errors import SpecError
from dscore.solving import solver
from dscore.tuning import records
from dscore.tuning.freshness import stale_records
from dscore.tuning.measurement import Measurement, TuningRecord


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(records, "_decisions", {})


def settled() -> None:
    """Make the cache's folder look as if it had not changed for a while."""
    folder, past = folders.root() / "tuning", time.time() - 10
    os.utime(folder, (past, past))


def test_a_record_is_the_union_of_what_was_kept() -> None:
    measurements = [measured(TILINGS[0], 3e-6, 4e-6), measured(TILINGS[0], 5e-6),
                    measured(TILINGS[1], 9e-6), measured(TILINGS[2], refused="WRONG")]
    keep(*measurements, measurements[0])
    record = records.load(IDENTITY)
    assert record.measurements == frozenset(measurements)
    assert record.configurations[TILINGS[0].name].samples == (3e-6, 4e-6, 5e-6)
    assert record.best is not None
    assert (record.best.tiling, record.best.seconds) == (TILINGS[0], 4e-6)
    assert [c.tiling for c in record.refused] == [TILINGS[2]]


def test_one_refusal_outweighs_any_times() -> None:
    keep(measured(TILINGS[0], *[1e-6] * 20), measured(TILINGS[0], refused="a race"),
         measured(TILINGS[1], 1e-3))
    record = records.load(IDENTITY)
    assert record.best is not None
    assert record.best.tiling == TILINGS[1]
    assert record.configurations[TILINGS[0].name].seconds is None


def test_few_samples_do_not_beat_many() -> None:
    lucky, steady = measured(TILINGS[0], 1e-6), measured(TILINGS[1], *[2e-6] * 15)
    assert TuningRecord(IDENTITY, frozenset([lucky])).best.tiling == TILINGS[0]  # type: ignore
    ranking = TuningRecord(IDENTITY, frozenset([lucky, steady])).ranking
    assert [c.tiling for c in ranking] == [TILINGS[1], TILINGS[0]]


@pytest.mark.parametrize("fields", [
    {"samples": (), "share": 0.1}, {"samples": (1.0,), "share": 1.5},
    {"samples": (1.0,), "share": None}, {"samples": (1.0,), "refused": "WRONG"},
    {"samples": (float("nan"),)}, {"samples": (0.0,)}, {"share": float("inf")},
    {"tiling": RowReuseTiling(1, 1, 1, 1, 1)}])
def test_what_may_not_win_cannot_be_stated(fields: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        replace(measured(TILINGS[0], 1e-6), **fields)


def test_the_plan_of_the_best() -> None:
    assert records.tuned_plan(PROBLEM, DEVICE, REFERENCE) is None
    keep(measured(TILINGS[3], 1e-6), measured(TILINGS[1], 2e-6))
    plan = records.tuned_plan(PROBLEM, DEVICE, "reference")
    assert plan == solver.make_plan(PROBLEM, DEVICE, TILINGS[3])
    assert records.best(PROBLEM, DEVICE, REFERENCE) == TILINGS[3]
    assert records.tuned_plan(PROBLEM, catalog.device("h200"), REFERENCE) is None
    assert records.tuned_plan(PROBLEM.with_batch(2), DEVICE, REFERENCE) is None


def test_cold_times_decide_before_hot_ones() -> None:
    cold = replace(IDENTITY, policy=COLD)
    keep(measured(TILINGS[0], 1e-6), measured(TILINGS[1], 5e-6, identity=cold))
    assert records.best(PROBLEM, DEVICE, REFERENCE) == TILINGS[1]


def test_a_tiling_that_no_longer_fits_is_passed_over() -> None:
    keep(measured(ChannelDistributionTiling(1, 64, 64, 64, 64), 1e-9), measured(TILINGS[1], 5e-6))
    assert records.best(PROBLEM, DEVICE, REFERENCE) == TILINGS[1]


def test_an_answer_is_remembered_until_the_folder_changes(monkeypatch: pytest.MonkeyPatch
                                                          ) -> None:
    keep(measured(TILINGS[1], 5e-6))
    settled()
    assert records.best(PROBLEM, DEVICE, REFERENCE) == TILINGS[1]
    with monkeypatch.context() as patch:
        patch.setattr(records, "_decide", None)
        assert records.best(PROBLEM, DEVICE, REFERENCE) == TILINGS[1]
    keep(measured(TILINGS[2], 1e-6))
    assert records.best(PROBLEM, DEVICE, REFERENCE) == TILINGS[2]


def test_where_nothing_is_known_the_answer_is_quick() -> None:
    keep(measured(TILINGS[1], 5e-6))
    settled()
    other = PROBLEM.with_batch(7)
    records.tuned_plan(other, DEVICE, REFERENCE)
    taken = timeit.repeat(lambda: records.tuned_plan(other, DEVICE, REFERENCE), number=1, repeat=50)
    assert min(taken) < 500e-6


@pytest.mark.parametrize(("change", "message"), [
    ({"kernels": "0" * 64}, "kernel sources have changed"),
    ({"compiler": "nvcc 9.1"}, "the compiler is none, it was nvcc 9.1"),
    ({"backend": "nosuch"}, "unknown backend 'nosuch'"),
    ({"device": "h200", "architecture": "sm_90"}, "measured on h200 (sm_90), not on z100sm")])
def test_stale_records_are_ignored_and_named(change: dict[str, str], message: str) -> None:
    keep(measured(TILINGS[0], 1e-9, identity=replace(IDENTITY, **change)))
    assert records.best(PROBLEM, DEVICE, REFERENCE) is None
    assert not records.load(IDENTITY).measurements
    [stale] = stale_records(DEVICE)
    assert message in stale.reason
    assert (stale.identity.problem, stale.configurations) == (TOKEN, 1)
    keep(measured(TILINGS[1], 1e-6))
    assert records.best(PROBLEM, DEVICE, REFERENCE) == TILINGS[1]
    assert len(stale_records(DEVICE)) == 1


def test_kernels_with_other_sizes_are_other_kernels() -> None:
    from dscore.backends.emulated import EmulatedBackend

    backends = (EmulatedBackend("any"), EmulatedBackend("fixed"), REFERENCE)
    assert len({one.identity(DEVICE.architecture).kernels for one in backends}) == 3


def _entry(measurement: Measurement) -> Path:
    return folders.root() / "tuning" / f"{measurement.key}.json"


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _change_a_time(path: Path) -> None:
    path.write_text(path.read_text().replace("1e-09", "1e-08"))


def _rename(path: Path) -> None:
    path.rename(path.with_name(path.name[:-8] + "000.json"))


@pytest.mark.parametrize("damage", [
    _truncate, _change_a_time, _rename, lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(os.urandom(99)), lambda path: path.write_text("[" * 100_000)])
def test_a_damaged_entry_is_never_loaded(damage: Any) -> None:
    fast, slow = measured(TILINGS[0], 1e-9), measured(TILINGS[1], 1e-3)
    keep(fast, slow)
    damage(_entry(fast))
    assert records.load(IDENTITY).measurements == {slow}
    assert records.everything() == {slow}
    assert records.best(PROBLEM, DEVICE, REFERENCE) == TILINGS[1]


def test_a_sealed_entry_with_other_contents_is_never_loaded() -> None:
    fast, slow = measured(TILINGS[0], 1e-9), measured(TILINGS[1], 1e-3)
    keep(slow)
    kept = store.Store("tuning")
    kept.put(fast.key, {}, {"measurement": {**fast.as_json(), "share": 7}})
    kept.put(measured(TILINGS[2], 1.0).key, {}, {"measurement": fast.as_json()})
    kept.put(store.key("other"), {}, {})
    assert records.load(IDENTITY).measurements == {slow}
    assert records.best(PROBLEM, DEVICE, REFERENCE) == TILINGS[1]
