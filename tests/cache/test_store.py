"""The cache: what is kept comes back whole or not at all, whoever writes, dies or tampers."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dscore.cache import folders, store
from dscore.core.errors import UnavailableError

KEY, OTHER = store.key("one"), store.key("other")
STORE = store.Store("libraries")
LIBRARY = bytes(range(256)) * 40


@pytest.fixture
def folder(cache):
    """The store's folder."""
    return cache / "libraries"


def put(key=KEY, payload=LIBRARY, **meta):
    return STORE.put(key, {"so": payload}, {"target": "emulated", **meta})


@given(st.lists(st.binary(max_size=9)), st.lists(st.binary(max_size=9)))
def test_keys_are_equal_only_for_equal_parts(left, right):
    assert (store.key(*left) == store.key(*right)) == (left == right)


@pytest.mark.parametrize(("env", "expected"), [
    ({"DSCORE_CACHE_DIR": "{}/a", "XDG_CACHE_HOME": "{}/b", "HOME": "{}/c"}, "{}/a"),
    ({"DSCORE_CACHE_DIR": "", "XDG_CACHE_HOME": "{}/b", "HOME": "{}/c"}, "{}/b/dscore"),
    ({"XDG_CACHE_HOME": "relative", "HOME": "{}/c"}, "{}/c/.cache/dscore"),
    ({"DSCORE_CACHE_DIR": "~/mine", "HOME": "{}/c"}, "{}/c/mine")])
def test_where_the_environment_puts_it(env, expected, tmp_path, monkeypatch):
    for name in ("DSCORE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value.format(tmp_path))
    before = sorted(tmp_path.rglob("*"))
    assert str(folders.root()) == expected.format(tmp_path)
    assert STORE.get(KEY) is None
    assert STORE.entries() == () == STORE.verify()
    assert sorted(tmp_path.rglob("*")) == before, "looking must not make anything"


def test_what_is_put_comes_back(folder, tmp_path):
    source = tmp_path / "made.so"
    source.write_bytes(LIBRARY)
    entry = STORE.put(KEY, {"so": source, "txt": b"words"}, {"flags": ("-O2",), "none": None})
    read = STORE.get(KEY)
    assert read.files["so"].read_bytes() == LIBRARY
    assert read.files["txt"].read_bytes() == b"words"
    assert entry.meta == read.meta == {"flags": ["-O2"], "none": None}
    assert read.size == sum(path.stat().st_size for path in folder.iterdir())
    assert abs(read.created - time.time()) < 60
    assert {*folder.iterdir()} == read.paths, "a temporary file was left"
    assert STORE.get(OTHER) is None


@pytest.mark.parametrize(("key", "suffix"), [
    ("../../etc", "so"), ("", "so"), (KEY.upper(), "so"), (KEY, "../so"), (KEY, ""), (KEY, "a/b")])
def test_names_that_would_leave_the_folder_are_refused(key, suffix, tmp_path):
    with pytest.raises(ValueError, match="key"):
        STORE.put(key, {suffix: b""}, {})
    assert not (tmp_path / "cache").exists()


def _truncated(entry):
    entry.files["so"].write_bytes(LIBRARY[:-1])


def _flipped(entry):
    entry.files["so"].write_bytes(b"\xff" + LIBRARY[1:])


def _of_another_key(entry):
    put(OTHER, b"another library")
    shutil.copy(STORE.get(OTHER).path, entry.path)


def _edited(entry):
    entry.path.write_text(entry.path.read_text().replace("emulated", "somewhere"))


def _folder_in_its_place(entry):
    entry.files["so"].unlink()
    entry.files["so"].mkdir()


DAMAGES = [
    _truncated, _flipped, _of_another_key, _edited, _folder_in_its_place,
    lambda entry: entry.files["so"].unlink(), lambda entry: entry.files["so"].write_bytes(b""),
    *(lambda entry, text=text: entry.path.write_bytes(text) for text in (
        b"", b"{", b"\xff\xfe", b"[]", b"null", b"{}", b'{"body": 3, "seal": ""}',
        b"[" * 100_000)),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_a_miss_and_is_mended_by_the_next_writer(damage, folder):
    damage(put())
    assert STORE.get(KEY) is None
    assert [(one.key, bool(one.reason)) for one in STORE.verify()] == [(KEY, True)]
    if damage is _folder_in_its_place:
        next(path for path in folder.iterdir() if path.is_dir()).rmdir()
    put()
    assert STORE.get(KEY).files["so"].read_bytes() == LIBRARY
    assert STORE.verify() == ()


def test_a_payload_without_its_json_is_a_miss(folder):
    put().path.unlink()
    assert STORE.get(KEY) is None
    assert STORE.verify() == STORE.entries() == ()


@pytest.mark.parametrize("killed_at", [1, 2])
def test_a_writer_stopped_between_the_two_files_leaves_what_was_there(
        killed_at, folder, monkeypatch):
    put(payload=b"older")
    moves = []

    def replace(source, target, move=os.replace):
        moves.append(target)
        if len(moves) == killed_at:
            raise KeyboardInterrupt
        move(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        put()
    assert STORE.get(KEY).files["so"].read_bytes() == b"older"
    assert not list(folder.glob(".*"))


WRITER = """
import sys
from dscore.cache import store
for turn in range(40):
    store.Store("libraries").put(sys.argv[1], {"so": sys.argv[2].encode() * 5000}, {"turn": turn})
"""


def test_writers_of_one_key_lose_nothing_whatever_a_reader_looks_at(folder):
    put(payload=b"c" * 5000)
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, KEY, letter]) for letter in "ab"]
    threads = [threading.Thread(target=put, args=(KEY, letter.encode() * 5000))
               for letter in "cdefghij"]
    for thread in threads:
        thread.start()
    seen = set()
    while any(writer.poll() is None for writer in writers):
        payload = STORE.get(KEY).files["so"].read_bytes()
        assert (len({*payload}), len(payload)) == (1, 5000)
        seen.add(payload[:1])
    for thread in threads:
        thread.join()
    assert [writer.wait() for writer in writers] == [0, 0]
    assert seen & {b"a", b"b"}
    assert STORE.get(KEY) is not None
    assert STORE.verify() == ()
    assert not list(folder.glob(".*"))


def test_an_unwritable_folder_is_replaced_by_a_private_one_with_one_warning(tmp_path, monkeypatch):
    monkeypatch.setenv("DSCORE_CACHE_DIR", "/dev/null/x")
    with pytest.warns(RuntimeWarning, match="/dev/null/x.*DSCORE_CACHE_DIR"):
        put()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        put(OTHER)
        assert STORE.get(KEY) is not None
        instead = folders.root()
    assert instead.parent == tmp_path / "tmp"
    assert stat.S_IMODE(instead.stat().st_mode) == 0o700
    assert {entry.key for entry in STORE.entries()} == {KEY, OTHER}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_full_disk_does_not_break_a_build_and_old_entries_are_still_read(
        number, folder, tmp_path, monkeypatch):
    put()

    def fsync(descriptor, sync=os.fsync):
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(folder)):
            raise OSError(number, os.strerror(number))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.warns(RuntimeWarning, match=os.strerror(number)):
        entry = put(OTHER)
    assert (tmp_path / "tmp") in entry.path.parents
    assert STORE.get(OTHER).files["so"].read_bytes() == LIBRARY
    assert STORE.get(KEY).path.parent == folder
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("plant", [lambda path, elsewhere: path.symlink_to(elsewhere),
                                   lambda path, elsewhere: (path.mkdir(), path.chmod(0o777)),
                                   lambda path, elsewhere: path.write_text("a file")])
def test_a_temporary_folder_that_others_can_write_is_not_trusted(plant, tmp_path, monkeypatch):
    monkeypatch.setenv("DSCORE_CACHE_DIR", "/dev/null/x")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    planted = tmp_path / "tmp" / f"dscore-{os.getuid()}"
    plant(planted, elsewhere)
    with pytest.warns(RuntimeWarning):
        entry = put()
    assert planted not in entry.path.parents
    assert list(elsewhere.iterdir()) == []
    assert STORE.get(KEY) is not None
    assert stat.S_IMODE(entry.path.parents[1].stat().st_mode) == 0o700


def test_where_nothing_can_be_written_the_error_says_so(monkeypatch):
    monkeypatch.setenv("DSCORE_CACHE_DIR", "/dev/null/x")
    monkeypatch.setattr(tempfile, "tempdir", "/dev/null/y")
    with pytest.raises(UnavailableError, match="set DSCORE_CACHE_DIR"):
        put()


def test_entries_come_in_the_order_of_their_last_use():
    for age, name in enumerate(("new", "middle", "old")):
        entry = put(store.key(name), name=name)
        os.utime(entry.path, (0, time.time() - 100 * (age + 1)))
    STORE.get(store.key("old"))
    assert [entry.meta["name"] for entry in STORE.entries()] == ["old", "new", "middle"]


@pytest.mark.parametrize(("wish", "left"), [
    ({}, "abc"), ({"older_than_seconds": 250}, "ab"), ({"max_bytes": 25_000}, "ab"),
    ({"stale": lambda meta: meta["name"] == "b"}, "ac"), ({"max_bytes": 0}, "")])
def test_prune_takes_what_is_asked_for_and_nothing_else(wish, left, folder):
    size = {}
    for age, name in enumerate("abc"):
        entry = put(store.key(name), name=name)
        size[name] = entry.size
        os.utime(entry.path, (0, time.time() - 100 * (age + 1)))
        os.utime(entry.files["so"], (0, 0))
    foreign = [folder / name for name in ("a.json", "libfoo.so", f"{KEY}.so", f"{KEY}.json.bak")]
    for path in foreign:
        path.write_text("not of the cache")
        os.utime(path, (0, 0))
    gone = {*"abc"} - {*left}
    total = sum(size[name] for name in gone)
    assert STORE.prune(**wish) == store.Removed(len(gone), 2 * len(gone), total)
    assert sorted(entry.meta["name"] for entry in STORE.entries()) == [*left]
    assert all(path.exists() for path in foreign)
    assert all(STORE.get(store.key(name)) for name in left)
    STORE.clear()
    assert sorted(folder.iterdir()) == sorted(foreign)


def test_prune_takes_damaged_entries_and_leftovers_but_not_the_work_of_writers(folder):
    damaged = put()
    _truncated(damaged)
    put(OTHER)
    names = [f"{OTHER}-{'0' * 16}.so", f"{KEY}.log",
             *(f".dscore-{digit * 16}.tmp" for digit in "123")]
    for name in names:
        (folder / name).write_text("being written")
    assert STORE.prune().entries == 1
    assert not damaged.path.exists()
    assert all((folder / name).exists() for name in names)
    for path in folder.iterdir():
        os.utime(path, (0, time.time() - 7200))
    assert STORE.prune().files == 6, "five leftovers, and the damaged payload"
    assert {*folder.iterdir()} == STORE.get(OTHER).paths


def test_clear_leaves_the_temporary_files_of_writers_at_work(folder):
    entry = put()
    STORE.put_log(KEY, "a log")
    (writing := folder / f".dscore-{'0' * 16}.tmp").touch()
    assert STORE.clear() == store.Removed(1, 3, entry.size + 5)
    assert [*folder.iterdir()] == [writing]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        put()
