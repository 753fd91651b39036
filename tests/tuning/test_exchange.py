"""Tuning records as files: read line by line, written whole, merged, and taken into the cache."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from recorded import COLD, IDENTITY, TILINGS, TOKEN, keep, measured

from dscore.algorithms.registry import names
from dscore.core import backend
from dscore.core.errors import SpecError
from dscore.tuning import exchange, records
from dscore.tuning.freshness import stale_records
from dscore.tuning.measurement import Measurement, records_of


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(records, "_decisions", {})


def take(*paths: Path) -> exchange.Import:
    planned = exchange.plan_import(paths)
    exchange.import_new(planned)
    return planned


_SOUND = measured(TILINGS[0], 1e-6, 2e-6).as_json()


@pytest.mark.parametrize(("line", "message"), [
    ("", None), ("nonsense", "Expecting value"), ("[]", "a JSON object"), ("{}", "format"),
    ("[" * 100_000, "recursion"),
    *((json.dumps({**_SOUND, **change}), message) for change, message in [
        ({"format": 2}, "format"), ({"more": 1}, "unknown more"),
        ({"problem": "P1"}, "not a problem"), ({"problem": "n01c8h6w6_o16k1"}, "not written as"),
        ({"problem": 3}, "problem must be a text"), ({"backend": ""}, "backend"),
        ({"device": None}, "device"), ({"architecture": 9}, "architecture"),
        ({"compiler": []}, "compiler"), ({"kernels": "abc"}, "kernels"),
        ({"policy": "warm graph"}, "cache"), ({"policy": "cold"}, "policy"),
        ({"tiling": {"wave_w": 1}}, "tiling"), ({"tiling": []}, "tiling"),
        ({"tiling": {"threads": 64, "thread_c": True}}, "thread_c"),
        ({"tiling": {**_SOUND["tiling"], "algorithm": "fourier"}},
         f"tiling: algorithm must be one of {', '.join(names())}"),
        ({"tiling": {**_SOUND["tiling"], "algorithm": "direct"}}, "tiling: not a DirectTiling"),
        ({"samples": 1}, "samples"), ({"samples": ["1"]}, "samples"), ({"samples": []}, "samples"),
        ({"samples": [-1]}, "samples"), ({"samples": [float("nan")]}, "samples"),
        ({"samples": [True]}, "samples"), ({"samples": [10**400]}, "samples"),
        ({"share": 1.01}, "share"), ({"share": "0"}, "share"), ({"share": None}, "share"),
        ({"refused": "WRONG"}, "no samples"), ({"refused": None}, "refused"),
        ({"seed": -1}, "seed"), ({"seed": 0.5}, "seed"), ({"environment": []}, "environment"),
        ({"environment": {"numpy": 2}}, "environment")]),
    (json.dumps({k: v for k, v in _SOUND.items() if k != "seed"}), "missing seed")])
def test_a_damaged_line_is_named_and_skipped(line: str, message: str | None,
                                             tmp_path: Path) -> None:
    path = tmp_path / "h200.jsonl"
    path.write_text(f"{json.dumps(_SOUND)}\n{line}\n{json.dumps(_SOUND)}\n")
    read = exchange.read(path)
    assert read.measurements == {measured(TILINGS[0], 1e-6, 2e-6)}
    if message is None:
        assert not read.skipped
    else:
        [skipped] = read.skipped
        assert skipped.startswith(f"{path}:2: ")
        assert message in skipped


def test_files_without_the_algorithm_hold_the_same_measurements(tmp_path: Path) -> None:
    one, two = measured(TILINGS[0], 1e-6, 2e-6), measured(TILINGS[1], 3e-6)
    new, old = written(tmp_path / "new", one, two), tmp_path / "old"
    lines = [json.loads(line) for line in new.read_text().splitlines()]
    assert {line["tiling"].pop("algorithm") for line in lines} == {one.tiling.algorithm}
    old.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert exchange.read(old).measurements == exchange.read(new).measurements == {one, two}
    into = tmp_path / "into"
    exchange.merge([old, new], into)
    assert into.read_bytes() == new.read_bytes()
    records.keep(one)
    assert take(old).known == 1
    assert records.everything() == {one, two}


def test_binary_and_absent_files(tmp_path: Path) -> None:
    path = tmp_path / "random"
    path.write_bytes(bytes(range(256)) * 8)
    assert not exchange.read(path).measurements
    assert exchange.read(path).skipped
    for wrong in (tmp_path / "nosuch", tmp_path):
        with pytest.raises(SpecError, match="cannot be read"):
            exchange.read(wrong)
    with pytest.raises(SpecError, match="cannot be written"):
        exchange.write(tmp_path / "no" / "folder", [])


def test_export_and_import_give_everything_back(tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    measurements = {measured(TILINGS[0], 1 / 3e5, 2e-6), measured(TILINGS[0], 4e-6),
                    measured(TILINGS[1], refused="WRONG at output (0, 0)\n  by much"),
                    measured(TILINGS[2], 1, identity=replace(IDENTITY, policy=COLD))}
    keep(*measurements)
    path = tmp_path / "records.jsonl"
    assert exchange.export(path) == measurements
    assert all(json.loads(line)["problem"] == TOKEN for line in path.read_text().splitlines())
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "other"))
    assert records.everything() == frozenset()
    take(path)
    assert records.everything() == measurements
    again = tmp_path / "again.jsonl"
    exchange.export(again)
    assert again.read_bytes() == path.read_bytes()
    assert not take(again).new
    assert take(again).known == 4


_measurements = st.builds(
    lambda tiling, samples, refused, device: measured(
        tiling, *(() if refused else samples), refused=refused,
        identity=replace(IDENTITY, device=device)),
    st.sampled_from(TILINGS), st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=3),
    st.sampled_from(["", "", "WRONG\nby 2", "größer"]), st.sampled_from(["z100sm", "mine"]))
_sets = st.frozensets(_measurements, max_size=6)


@settings(max_examples=examples(40))
@given(_sets, _sets, _sets)
def test_merging_is_a_union(tmp_path_factory: pytest.TempPathFactory, a: Any, b: Any,
                            c: Any) -> None:
    folder = tmp_path_factory.mktemp("merge")
    paths = {name: folder / name for name in "abc"}
    for name, held in zip("abc", (a, b, c), strict=True):
        exchange.write(paths[name], held)

    def merged(*names: Path) -> Path:
        target = folder / f"{len(list(folder.iterdir()))}"
        exchange.merge(names, target)
        return target

    one, two, three = paths.values()
    assert merged(one, two).read_bytes() == merged(two, one).read_bytes()
    assert merged(one, one, one).read_bytes() == one.read_bytes()
    assert (merged(merged(one, two), three).read_bytes()
            == merged(one, merged(two, three)).read_bytes())
    assert exchange.read(merged(one, two, three)).measurements == a | b | c
    assert ([r.ranking for r in records_of(a | b)]
            == [r.ranking for r in records_of(b | a)])


def written(path: Path, *measurements: Measurement) -> Path:
    exchange.write(path, measurements)
    return path


def test_what_holds_already_stays_when_merging_into_a_file(tmp_path: Path) -> None:
    one, two, three = (measured(tiling, 1e-6) for tiling in TILINGS[:3])
    into = written(tmp_path / "into", one)
    merged = exchange.merge([written(tmp_path / "a", two), written(tmp_path / "b", two, three)],
                            into)
    assert exchange.read(into).measurements == merged.measurements == {one, two, three}
    assert exchange.merge([into], into).measurements == {one, two, three}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "into"]


def test_merging_never_loses_a_line(tmp_path: Path) -> None:
    one = written(tmp_path / "one", measured(TILINGS[0], 1e-6))
    notes = tmp_path / "notes"
    notes.write_text("not to be lost\n")
    with pytest.raises(SpecError, match="would lose a line"):
        exchange.merge([one], notes)
    assert notes.read_text() == "not to be lost\n"
    with pytest.raises(SpecError, match="holds no tuning records"):
        exchange.merge([notes], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "one", measured(TILINGS[0], 1e-6))
    before = path.read_bytes()

    def fails(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(SpecError, match="cannot be written: No space left"):
        exchange.write(path, [])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("change", "message"), [
    ({"kernels": "0" * 64}, "kernel sources have changed"),
    ({"compiler": "nvcc 9.1"}, "the compiler is none, it was nvcc 9.1")])
def test_what_is_stale_is_ignored_and_named(change: dict[str, str], message: str,
                                            tmp_path: Path) -> None:
    old = measured(TILINGS[0], 1e-9, identity=replace(IDENTITY, **change))
    new = measured(TILINGS[1], 1e-6)
    planned = take(written(tmp_path / "both", old, new))
    assert records.everything() == set(planned.new) == {new}
    [ignored] = planned.ignored
    assert message in ignored.reason
    assert ignored.identity.problem == TOKEN
    assert not planned.unjudged


def test_the_device_that_is_here_decides_for_a_backend_of_its_own(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_REGISTRY", dict(backend._REGISTRY))
    backend.register("device", "tuning_backends:Device")
    own = replace(IDENTITY, backend="device",
                  kernels=backend.backend("device").identity("gfx906").kernels)
    here = measured(TILINGS[0], 1e-6, identity=own)
    there = measured(TILINGS[0], 1e-6, identity=replace(own, device="h200", architecture="sm_90"))
    planned = take(written(tmp_path / "both", here, there))
    assert records.everything() == {here}
    assert [one.reason for one in planned.ignored] == ["measured on h200 (sm_90), not on z100sm"]
    backend.backend.cache_clear()


def test_what_cannot_be_judged_here_is_taken_and_named(tmp_path: Path) -> None:
    other = measured(TILINGS[0], 1e-6, identity=replace(IDENTITY, backend="mine"))
    planned = take(written(tmp_path / "one", other))
    assert records.everything() == {other}
    assert not planned.ignored
    [unjudged] = planned.unjudged
    assert "unknown backend 'mine'" in unjudged.reason
    [kept] = stale_records()
    assert kept.unjudged


def test_an_empty_file_brings_nothing(tmp_path: Path) -> None:
    planned = take(written(tmp_path / "empty"))
    assert (planned.new, planned.known, planned.skipped) == ((), 0, ())
