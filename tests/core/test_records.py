"""Tuning records as values, in the cache, and as files."""

from __future__ import annotations

import json
import os
import time
import timeit
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dscore import backend, cache, catalog, records, solver
from dscore.errors import SpecError
from dscore.measurement import Identity, Measurement, Policy, Record
from dscore.notation import parse_problem
from dscore.tiling import DepthwiseTiling, PointwiseTiling, Tiling

TOKEN = "n1c8h6w6_o16k1"
PROBLEM = parse_problem(TOKEN)
DEVICE = catalog.device("z100sm")
COLD, HOT = Policy("cold", "graph"), Policy("hot", "host")
SPACE = solver.solve(PROBLEM, DEVICE)
TILINGS = [SPACE[int(i)] for i in SPACE.ranked()[:6]]
REFERENCE = backend.backend("reference")
IDENTITY = records.identity_of(PROBLEM, DEVICE, REFERENCE, HOT)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(records, "_decided", {})


def measured(tiling: Tiling, *samples: float, identity: Identity = IDENTITY,
             refused: str = "") -> Measurement:
    return Measurement(identity, tiling, samples, None if refused else 0.2, refused, 0,
                       (("dscore", "0.1.0"),))


def keep(*found: Measurement) -> None:
    for measurement in found:
        records.keep(measurement)


def settled() -> None:
    """Make the cache's folder look as if it had not changed for a while."""
    folder, past = cache.root() / "tuning", time.time() - 10
    os.utime(folder, (past, past))


def test_a_record_is_the_union_of_what_was_kept() -> None:
    found = [measured(TILINGS[0], 3e-6, 4e-6), measured(TILINGS[0], 5e-6),
             measured(TILINGS[1], 9e-6), measured(TILINGS[2], refused="WRONG")]
    keep(*found, found[0])
    record = records.load(IDENTITY)
    assert record.measurements == frozenset(found)
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
    assert Record(IDENTITY, frozenset([lucky])).best.tiling == TILINGS[0]  # type: ignore[union-attr]
    ranking = Record(IDENTITY, frozenset([lucky, steady])).ranking
    assert [c.tiling for c in ranking] == [TILINGS[1], TILINGS[0]]


@pytest.mark.parametrize("fields", [
    {"samples": (), "share": 0.1}, {"samples": (1.0,), "share": 1.5},
    {"samples": (1.0,), "share": None}, {"samples": (1.0,), "refused": "WRONG"},
    {"samples": (float("nan"),)}, {"samples": (0.0,)}, {"share": float("inf")},
    {"tiling": DepthwiseTiling(1, 1, 1, 1, 1)}])
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
    keep(measured(PointwiseTiling(1, 64, 64, 64, 64), 1e-9), measured(TILINGS[1], 5e-6))
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


@pytest.mark.parametrize(("change", "said"), [
    ({"kernels": "0" * 64}, "kernel sources have changed"),
    ({"compiler": "nvcc 9.1"}, "the compiler is none, it was nvcc 9.1"),
    ({"backend": "nosuch"}, "unknown backend 'nosuch'"),
    ({"device": "h200", "architecture": "sm_90"}, "measured on h200 (sm_90), not on z100sm")])
def test_stale_records_are_ignored_and_named(change: dict[str, str], said: str) -> None:
    keep(measured(TILINGS[0], 1e-9, identity=replace(IDENTITY, **change)))
    assert records.best(PROBLEM, DEVICE, REFERENCE) is None
    assert not records.load(IDENTITY).measurements
    [stale] = records.stale(DEVICE)
    assert said in stale.reason
    assert (stale.identity.problem, stale.configurations) == (TOKEN, 1)
    keep(measured(TILINGS[1], 1e-6))
    assert records.best(PROBLEM, DEVICE, REFERENCE) == TILINGS[1]
    assert len(records.stale(DEVICE)) == 1


def test_kernels_with_other_sizes_are_other_kernels() -> None:
    from dscore.backends.emulated import EmulatedBackend

    found = {records.kernels_of(EmulatedBackend("any")), records.kernels_of(REFERENCE),
             records.kernels_of(EmulatedBackend("fixed"))}
    assert len(found) == 3


def _entry(measurement: Measurement) -> Path:
    return cache.root() / "tuning" / f"{measurement.key}.json"


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
    store = cache.Store("tuning")
    store.put(fast.key, {}, {"measurement": {**fast.as_json(), "share": 7}})
    store.put(measured(TILINGS[2], 1.0).key, {}, {"measurement": fast.as_json()})
    store.put(cache.key("other"), {}, {})
    assert records.load(IDENTITY).measurements == {slow}
    assert records.best(PROBLEM, DEVICE, REFERENCE) == TILINGS[1]


_SOUND = measured(TILINGS[0], 1e-6, 2e-6).as_json()


@pytest.mark.parametrize(("line", "said"), [
    ("", None), ("nonsense", "Expecting value"), ("[]", "a JSON object"), ("{}", "format"),
    ("[" * 100_000, "recursion"),
    *((json.dumps({**_SOUND, **change}), said) for change, said in [
        ({"format": 2}, "format"), ({"more": 1}, "unknown more"),
        ({"problem": "P1"}, "not a problem"), ({"problem": "n01c8h6w6_o16k1"}, "not written as"),
        ({"problem": 3}, "problem must be a text"), ({"backend": ""}, "backend"),
        ({"device": None}, "device"), ({"architecture": 9}, "architecture"),
        ({"compiler": []}, "compiler"), ({"kernels": "abc"}, "kernels"),
        ({"policy": "warm graph"}, "cache"), ({"policy": "cold"}, "policy"),
        ({"tiling": {"wave_w": 1}}, "tiling"), ({"tiling": []}, "tiling"),
        ({"tiling": {"threads": 64, "thread_c": True}}, "thread_c"),
        ({"samples": 1}, "samples"), ({"samples": ["1"]}, "samples"), ({"samples": []}, "samples"),
        ({"samples": [-1]}, "samples"), ({"samples": [float("nan")]}, "samples"),
        ({"samples": [True]}, "samples"), ({"samples": [10**400]}, "samples"),
        ({"share": 1.01}, "share"), ({"share": "0"}, "share"), ({"share": None}, "share"),
        ({"refused": "WRONG"}, "no samples"), ({"refused": None}, "refused"),
        ({"seed": -1}, "seed"), ({"seed": 0.5}, "seed"), ({"environment": []}, "environment"),
        ({"environment": {"numpy": 2}}, "environment")]),
    (json.dumps({k: v for k, v in _SOUND.items() if k != "seed"}), "missing seed")])
def test_a_damaged_line_is_named_and_skipped(line: str, said: str | None, tmp_path: Path) -> None:
    path = tmp_path / "h200.jsonl"
    path.write_text(f"{json.dumps(_SOUND)}\n{line}\n{json.dumps(_SOUND)}\n")
    read = records.import_(path)
    assert read.measurements == records.everything() == {measured(TILINGS[0], 1e-6, 2e-6)}
    if said is None:
        assert not read.skipped
    else:
        [skipped] = read.skipped
        assert skipped.startswith(f"{path}:2: ")
        assert said in skipped


def test_binary_and_absent_files(tmp_path: Path) -> None:
    path = tmp_path / "random"
    path.write_bytes(bytes(range(256)) * 8)
    assert not records.read(path).measurements
    assert records.read(path).skipped
    for wrong in (tmp_path / "nosuch", tmp_path):
        with pytest.raises(SpecError, match="cannot be read"):
            records.read(wrong)
    with pytest.raises(SpecError, match="cannot be written"):
        records.write(tmp_path / "no" / "folder", [])


def test_export_and_import_give_everything_back(tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    found = {measured(TILINGS[0], 1 / 3e5, 2e-6), measured(TILINGS[0], 4e-6),
             measured(TILINGS[1], refused="WRONG at output (0, 0)\n  by much"),
             measured(TILINGS[2], 1, identity=replace(IDENTITY, policy=COLD))}
    keep(*found)
    path = tmp_path / "records.jsonl"
    assert records.export(path) == 4
    assert all(json.loads(line)["problem"] == TOKEN for line in path.read_text().splitlines())
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "other"))
    assert records.everything() == frozenset()
    assert records.import_(path).measurements == found
    assert records.everything() == found
    again = tmp_path / "again.jsonl"
    records.export(again)
    assert again.read_bytes() == path.read_bytes()
    assert records.import_(again).measurements == found


_measurements = st.builds(
    lambda tiling, samples, refused, device: measured(
        tiling, *(() if refused else samples), refused=refused,
        identity=replace(IDENTITY, device=device)),
    st.sampled_from(TILINGS), st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=3),
    st.sampled_from(["", "", "WRONG\nby 2", "größer"]), st.sampled_from(["z100sm", "mine"]))
_sets = st.frozensets(_measurements, max_size=6)


@settings(max_examples=40)
@given(_sets, _sets, _sets)
def test_merging_is_a_union(tmp_path_factory: pytest.TempPathFactory, a: Any, b: Any,
                            c: Any) -> None:
    folder = tmp_path_factory.mktemp("merge")
    paths = {name: folder / name for name in "abc"}
    for name, held in zip("abc", (a, b, c), strict=True):
        records.write(paths[name], held)

    def merged(*names: Path) -> Path:
        target = folder / f"{len(list(folder.iterdir()))}"
        records.merge(names, target)
        return target

    one, two, three = paths.values()
    assert merged(one, two).read_bytes() == merged(two, one).read_bytes()
    assert merged(one, one, one).read_bytes() == one.read_bytes()
    assert (merged(merged(one, two), three).read_bytes()
            == merged(one, merged(two, three)).read_bytes())
    assert records.read(merged(one, two, three)).measurements == a | b | c
    assert ([r.ranking for r in records.records_of(a | b)]
            == [r.ranking for r in records.records_of(b | a)])
