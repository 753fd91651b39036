"""`dscore cache` as a user meets it."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_calls import Call, squeezed, unwrapped

from dscore.building.toolchain import Unit, build_library, target
from dscore.cache import folders, store
from dscore.cache.entries import Entry


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache and temporary files of the test's own, of which a user's are no part."""
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


@pytest.fixture
def kept() -> list[Entry]:
    """A tuning record, and two libraries of which the second was used last."""
    meta = {"target": "gfx906", "compiler": "/nosuch/hipcc", "compiler_version": "fake 1.0",
            "reports": [{}, {}], "dscore": "0.0.1"}
    tuning, libraries = store.Store("tuning"), store.Store("libraries")
    return [tuning.put(store.key("t"), {}, {}),
            libraries.put(store.key("a"), {"so": b"x" * 5000}, meta),
            libraries.put(store.key("b"), {"so": b"y" * 3000}, {**meta, "reports": []})]


def test_cache_shows_entries(call: Call, json_of: Callable[..., Any],
                             kept: list[Entry]) -> None:
    out = call("cache", "show").out
    assert "libraries  gfx906        2" in out
    assert "3 whole, 0 damaged, " in out
    data = json_of("cache", "show")
    assert {entry["key"] for entry in data["entries"]} == {entry.key for entry in kept}
    assert data["size"] == sum(entry.size for entry in kept)
    assert (data["damaged"], data["root"]) == ([], str(folders.root()))
    by_key = {entry["key"]: entry for entry in data["entries"]}
    shown = by_key[kept[1].key]
    assert (shown["kind"], shown["kernels"], shown["compiler_version"]) == (
        "libraries", 2, "fake 1.0")
    assert 0 <= shown["unused_seconds"] < 60
    assert by_key[kept[2].key]["kernels"] is None


def test_every_command_has_help_and_json(call: Call) -> None:
    listed = call("cache", "--help").out.partition("Commands:")[2]
    commands = [line.split()[0] for line in listed.splitlines() if line.strip()]
    assert commands == ["show", "verify", "prune", "clear", "export", "import", "merge", "hints"]
    for command in commands:
        assert "--json" in call("cache", command, "--help").out
    assert "dscore cache show" in call("--help").out


def test_an_empty_cache_is_no_error(call: Call, tmp_path: Path) -> None:
    for action in ("show", "verify", "prune", "clear"):
        assert call("cache", action).code == 0
    assert not (tmp_path / "cache").exists()


def test_verify_finds_damage_and_prune_removes_it(call: Call, json_of: Callable[..., Any],
                                                  kept: list[Entry]) -> None:
    assert call("cache", "verify").code == 0
    kept[1].files["so"].write_bytes(b"z" * 5000)
    result = call("cache", "verify")
    assert result.code == 1
    assert "not as it was written" in " ".join(result.out.split())
    assert "2 whole, 1 damaged" in result.out
    damage, = json_of("cache", "verify", code=1)["damaged"]
    assert (damage["kind"], damage["key"]) == ("libraries", kept[1].key)
    assert call("cache", "show").code == 0
    assert "libraries: removed 1 entry (" in call("cache", "prune").out
    assert call("cache", "verify").code == 0


@pytest.mark.parametrize(("options", "left"), [
    ((), 3), (("--stale",), 1), (("--max-size", "5kB"), 2), (("--max-size", "1.5 KiB"), 1),
    (("--older-than", "30d"), 3), (("--older-than", "0s"), 0)])
def test_prune_keeps_within_its_limits(call: Call, json_of: Callable[..., Any],
                                       kept: list[Entry], options: tuple[str, ...],
                                       left: int) -> None:
    assert call("cache", "prune", *options).code == 0
    entries = json_of("cache", "show")["entries"]
    assert len(entries) == left
    if left == 2:
        assert kept[2].key in {entry["key"] for entry in entries}, "used last, it stays"


def test_a_library_that_would_be_found_again_is_not_stale(
        call: Call, json_of: Callable[..., Any], tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "compiler"

    def version(said: str, seconds: int) -> None:
        compiler.write_text(f"#!/bin/sh\n[ $1 = --version ] && echo {said} || "
                            "echo made > library.so\n")
        compiler.chmod(0o755)
        os.utime(compiler, (seconds, seconds))

    def left() -> int:
        call("cache", "prune", "--stale")
        return len(json_of("cache", "show")["entries"])

    monkeypatch.setenv("DSCORE_CXX", str(compiler))
    for change in (lambda: version("2.0", 2), compiler.unlink):
        version("1.0", 1)
        build_library([Unit("u", "x")], target("emulated"), include=tmp_path / "tmp")
        assert left() == 1
        change()
        assert left() == 0


def test_clear_removes_everything_and_says_so(json_of: Callable[..., Any],
                                              kept: list[Entry]) -> None:
    removed = json_of("cache", "clear")["removed"]
    assert {kind: taken["entries"] for kind, taken in removed.items()} == {
        "libraries": 2, "kernels": 0, "tuning": 1, "devices": 0}
    assert not any(path.exists() for entry in kept for path in entry.paths)


def test_clear_says_that_nothing_behind_a_link_is_removed(call: Call, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    entry = store.Store("libraries").put(store.key("a"), {"so": b"x"}, {})
    link = tmp_path / "link"
    link.symlink_to(folders.root())
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(link))
    result = call("cache", "clear")
    assert result.code == 0
    assert "libraries: removed 0 entries" in result.out
    assert f"{link} is a link" in unwrapped(result.err)
    assert f"DSCORE_CACHE_DIR={link.resolve()}" in squeezed(result.err)
    assert entry.path.exists()


@pytest.mark.parametrize("command", [("clear",), ("prune", "--max-size", "0B")])
def test_what_cannot_be_removed_is_told(command: tuple[str, ...], call: Call, kept: list[Entry],
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    def unlink(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "unlink", unlink)
    result = call("cache", *command)
    assert result.code == 1
    assert "libraries: 2 files could not be removed: [Errno 30]" in unwrapped(result.err)
    assert all(path.exists() for entry in kept for path in entry.paths)


@pytest.mark.parametrize("library", [None, [{}], {"a": []}, 7])
def test_a_kernel_whose_library_is_no_name_is_pruned(call: Call, library: object) -> None:
    store.Store("kernels").put("a" * 64, {}, {"library": library})
    result = call("cache", "prune")
    assert (result.code, store.Store("kernels").entries()) == (0, ())
