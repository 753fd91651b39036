"""`dscore cache export`, `import` and `merge` as a user meets them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_calls import Call, squeezed, unwrapped
from recorded import DEVICE, IDENTITY, PROBLEM, REFERENCE, TILINGS, TOKEN, keep, measured

from dscore.tuning import exchange, records
from dscore.tuning.measurement import Measurement

ONE, TWO, THREE = (measured(tiling, 1e-6) for tiling in TILINGS[:3])
STALE = measured(TILINGS[0], 1e-9, identity=replace(IDENTITY, kernels="0" * 64))


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(records, "_decisions", {})
    monkeypatch.chdir(tmp_path)


def written(name: str, *found: Measurement, more: str = "") -> str:
    exchange.write(name, found)
    with open(name, "a") as file:
        file.write(more)
    return name


def test_records_travel_to_another_cache(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(ONE, TWO)
    result = call("cache", "export", "out.jsonl")
    assert (result.code, result.out) == (0, "2 measurements of 1 problem to out.jsonl\n")
    monkeypatch.setenv("DSCORE_CACHE_DIR", "other")
    keep(TWO)
    result = call("cache", "import", "out.jsonl", written("more", THREE))
    assert (result.code, result.err) == (0, "")
    assert result.out == "2 measurements from out.jsonl, more, 1 known before\n"
    assert records.everything() == {ONE, TWO, THREE}
    assert records.best(PROBLEM, DEVICE, REFERENCE) is not None


def test_export_and_import_as_json(json_of: Callable[..., Any]) -> None:
    keep(ONE)
    assert json_of("cache", "export", "out") == {"file": "out", "measurements": 1, "problems": 1}
    assert json_of("cache", "import", written("both", ONE, TWO, STALE)) == {
        "files": ["both"], "new": 1, "known": 1, "unjudged": [], "skipped": [],
        "ignored": [{"problem": TOKEN, "device": "z100sm", "architecture": "gfx906",
                     "backend": "reference", "policy": "hot host", "configurations": 1,
                     "reason": "the kernel sources have changed"}]}


def test_stale_records_are_ignored_and_named(call: Call) -> None:
    others = [measured(TILINGS[0], 1e-9, identity=replace(
        IDENTITY, problem=f"n{batch}c8h6w6_o16k1", kernels="0" * 64)) for batch in range(2, 10)]
    result = call("cache", "import", written("both", ONE, STALE, *others))
    assert result.code == 0
    assert result.out == "1 measurement from both, 9 records ignored\n"
    assert unwrapped(result.err) == (
        f"ignored 9 records of z100sm by reference: the kernel sources have changed: {TOKEN}, "
        "n2c8h6w6_o16k1, n3c8h6w6_o16k1, n4c8h6w6_o16k1, n5c8h6w6_o16k1 and 4 more")
    assert records.everything() == {ONE}


def test_records_that_cannot_be_judged_here_are_taken(call: Call) -> None:
    other = measured(TILINGS[0], 1e-9, identity=replace(IDENTITY, backend="mine"))
    result = call("cache", "import", written("one", other))
    assert result.code == 0
    said = "taken, but of no use here yet: 1 record of z100sm by mine: unknown backend"
    assert said in unwrapped(result.err)
    assert records.everything() == {other}


def test_merging_adds_to_a_file_and_touches_no_cache(call: Call, json_of: Callable[..., Any]
                                                     ) -> None:
    written("into", ONE, STALE)
    result = call("cache", "merge", written("a", TWO), written("b", TWO, THREE), "--into", "into")
    assert (result.code, result.out, result.err) == (
        0, "4 measurements of 1 problem in into\n", "")
    assert exchange.read("into").measurements == {ONE, TWO, THREE, STALE}
    assert not records.everything()
    assert json_of("cache", "merge", "a", "--into", "new") == {
        "files": ["a"], "into": "new", "measurements": 1, "problems": 1, "skipped": []}


@pytest.mark.parametrize("command", [["import"], ["merge", "--into", "new"]])
def test_lines_that_are_no_measurements_are_skipped_and_end_with_1(
        call: Call, json_of: Callable[..., Any], command: list[str]) -> None:
    path = written("some", ONE, more="nonsense\n" * 7)
    result = call("cache", *command, path)
    assert result.code == 1
    assert "skipped some:2: Expecting value" in unwrapped(result.err)
    assert "... and 2 more; --json has them" in result.err
    assert len(json_of("cache", *command, path, code=1)["skipped"]) == 7
    assert records.everything() == ({ONE} if command == ["import"] else set())
    assert Path("new").exists() == (command != ["import"])


@pytest.mark.parametrize(("arguments", "said"), [
    ("export", "Missing argument 'FILE'"), ("export no/folder", "there is no folder no"),
    ("export .", "is a folder"), ("import", "Missing argument 'FILE...'"),
    ("import nosuch", "nosuch: cannot be read: No such file"),
    ("import one nosuch", "cannot be read"), ("import .", "cannot be read"),
    ("import notes", "notes holds no tuning records: notes:1: "),
    ("merge one", "Missing option '--into'"), ("merge --into x", "Missing argument"),
    ("merge one nosuch --into x", "cannot be read"), ("merge one notes --into x", "no tuning"),
    ("merge one --into notes", "would lose a line that is no measurement: notes:1: "),
    ("merge one --into no/folder", "there is no folder")])
def test_bad_usage_changes_nothing(call: Call, arguments: str, said: str) -> None:
    written("one", ONE)
    Path("notes").write_text("mine\n")
    before = {path.name: path.read_bytes() for path in Path().iterdir()}
    result = call("cache", *arguments.split())
    assert (result.code, result.out) == (2, "")
    assert squeezed(said) in squeezed(result.err)
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before


def test_an_export_of_nothing_can_be_imported(call: Call) -> None:
    assert call("cache", "export", "none").out == "0 measurements of 0 problems to none\n"
    result = call("cache", "import", "none")
    assert (result.code, result.out) == (0, "0 measurements from none\n")


def test_a_cache_that_cannot_be_written_ends_with_3(call: Call, monkeypatch: pytest.MonkeyPatch
                                                    ) -> None:
    written("one", ONE)
    Path("file").write_text("")
    monkeypatch.setenv("DSCORE_CACHE_DIR", "file/x")
    monkeypatch.setattr("dscore.cache.store.instead_of", lambda *_: Path("file/y"))
    result = call("cache", "import", "one")
    assert result.code == 3
    assert "set DSCORE_CACHE_DIR" in unwrapped(result.err)


def test_each_line_of_an_export_is_a_measurement(call: Call) -> None:
    keep(ONE, TWO)
    call("cache", "export", "out")
    lines = Path("out").read_text().splitlines()
    assert {Measurement.of_json(json.loads(line)) for line in lines} == {ONE, TWO}
