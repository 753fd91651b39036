"""The cache trusts only what this user or root has written, and loads what it has checked."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
import warnings

import pytest

from dscore.cache import entries, files, folders, store

KEY = store.key("one")
STORE = store.Store("libraries")
OTHER_USER = 12345
needs_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0,
                                reason="only root can give files to another user")


def put(payload=b"a library"):
    return STORE.put(KEY, {"so": payload}, {})


def mode_of(path):
    return stat.S_IMODE(path.lstat().st_mode)


def chowned(path):
    os.chown(path, OTHER_USER, OTHER_USER, follow_symlinks=False)


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
def test_folders_are_closed_and_files_writable_for_nobody_else(umask, cache, monkeypatch):
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(cache / "deep" / "er"))
    before = os.umask(umask)
    try:
        entry = put()
        STORE.put_log(KEY, "words")
    finally:
        os.umask(before)
    made = [cache, *cache.rglob("*")]
    assert {mode_of(path) for path in made if path.is_dir()} == {0o700}
    assert not any(mode_of(path) & 0o022 for path in made)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert STORE.get(KEY).files == entry.files


SPOILS = [
    pytest.param(lambda entry: chowned(entry.path), id="the JSON is another's", marks=needs_root),
    pytest.param(lambda entry: chowned(entry.files["so"]), id="the payload is another's",
                 marks=needs_root),
    pytest.param(lambda entry: entry.path.chmod(0o666), id="all may write the JSON"),
    pytest.param(lambda entry: entry.files["so"].chmod(0o664), id="a group may write the payload")]


@pytest.mark.parametrize("spoil", SPOILS)
def test_an_entry_that_others_could_have_written_is_a_miss_with_one_warning(spoil):
    entry = put()
    spoil(entry)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        assert [STORE.get(KEY), STORE.get(KEY)] == [None, None]
    assert ["may be another user's" in str(one.message) for one in raised] == [True]
    [damage] = STORE.verify()
    assert "belongs to user" in damage.reason or "others may write" in damage.reason
    put()
    assert STORE.get(KEY).files["so"].read_bytes() == b"a library"
    assert STORE.verify() == ()


@pytest.mark.parametrize("which", ["", "libraries"])
@pytest.mark.parametrize(("spoil", "reason"), [
    pytest.param(chowned, f"it belongs to user {OTHER_USER}", marks=needs_root),
    (lambda path: path.chmod(0o777), "others may write to it (mode 777; chmod go-w)"),
    (lambda path: path.chmod(0o770), "others may write to it (mode 770; chmod go-w)")])
def test_a_folder_that_others_may_write_is_not_used_with_one_warning(
        which, spoil, reason, cache, tmp_path):
    put()
    spoil(cache / which)
    before = sorted(cache.rglob("*"))
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        assert STORE.get(KEY) is None
        entry = put(b"another library")
        assert STORE.get(KEY).files == entry.files
    assert [reason in str(one.message) for one in raised] == [True]
    assert str(cache) in str(raised[0].message)
    assert (tmp_path / "tmp") in entry.path.parents
    assert sorted(cache.rglob("*")) == before
    if not which:
        assert folders.root() == entry.path.parents[1]


def test_a_sticky_folder_is_used(cache):
    # Others can add to it, but replace nothing; each entry is looked at anyway.
    put()
    cache.chmod(0o1777)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert STORE.get(KEY) is not None


@needs_root
def test_another_user_takes_roots_entries_but_not_those_of_a_third(cache, tmp_path):
    entry = put()
    for folder in (cache, cache / "libraries"):
        folder.chmod(0o755)
    program = ("import os, sys, warnings; warnings.simplefilter('ignore')\n"
               "from dscore.cache import store\n"
               "os.setuid(int(sys.argv[1]))\n"
               "print(store.Store('libraries').get(sys.argv[2]) is not None)")
    for path in (tmp_path, *tmp_path.parents):
        if mode_of(path) & 0o005 != 0o005:
            path.chmod(0o755)  # pytest closes its folders to others

    def taken(user):
        command = [sys.executable, "-c", program, str(user), KEY]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert taken(OTHER_USER) == "True"
    chowned(entry.files["so"])
    assert (taken(OTHER_USER), taken(OTHER_USER + 1)) == ("True", "False")


@pytest.mark.parametrize("plant", [os.mkfifo, lambda path: path.symlink_to("elsewhere"),
                                   lambda path: path.mkdir()])
@pytest.mark.parametrize("which", ["json", "so"])
def test_what_is_no_file_is_a_miss_and_is_not_waited_for(plant, which, cache):
    entry = put()
    path = entry.path if which == "json" else entry.files["so"]
    shutil.copy(path, path.with_name("elsewhere"))
    path.unlink()
    plant(path)
    assert STORE.get(KEY) is None
    assert len(STORE.verify()) == (not path.is_dir() or which == "so")


def sealed(path, **changes):
    """Forge the JSON of an entry, with a seal that is right."""
    body = {**json.loads(path.read_text())["body"], **changes}
    path.write_text(json.dumps({"seal": entries.seal(body), "body": body}))


HASH = "0" * 64


@pytest.mark.parametrize("changes", [
    {"created": 10 ** 400}, {"created": float("nan")}, {"created": "x"}, {"created": None},
    {"meta": []}, {"meta": None}, {"meta": {"target": 3}}, {"meta": {"compiler_version": {}}},
    {"files": []}, {"files": {"so": {}}}, {"files": {"so": 3}},
    {"files": {"../so": {"sha256": HASH, "bytes": 0}}},
    {"files": {"so": {"sha256": "../" * 21 + "x", "bytes": 0}}},
    {"files": {"so": {"sha256": HASH, "bytes": 10 ** 400}}},
    {"files": {"so": {"sha256": HASH, "bytes": float("inf")}}},
    {"files": {"so": {"sha256": 3, "bytes": 0}}}, {"format": 10 ** 100}, {"key": "x" * 64}])
def test_a_forged_entry_is_a_miss(changes):
    entry = put()
    sealed(entry.path)
    assert STORE.get(KEY) is not None, "the forgery itself must be right"
    sealed(entry.path, **changes)
    assert STORE.get(KEY) is None
    assert STORE.entries() == ()
    assert [damage.key for damage in STORE.verify()] == [KEY]
    assert STORE.prune().entries == 1


@pytest.mark.parametrize("link", ["", "libraries"])
def test_nothing_behind_a_link_is_removed(link, cache, tmp_path):
    entry = put()
    (cache / link).rename(tmp_path / "behind")
    (cache / link).symlink_to(tmp_path / "behind")
    assert STORE.get(KEY).files["so"].read_bytes() == b"a library", "it may well be read"
    os.utime(entry.path, (0, 0))
    for removed in (STORE.clear(), STORE.prune(max_bytes=0), STORE.prune(older_than_seconds=1)):
        assert removed == store.Removed(0, 0, 0)
    assert STORE.links() == (cache / link,)
    assert STORE.get(KEY) is not None


def test_what_is_loaded_is_what_was_hashed(tmp_path):
    entry = put(b"right")
    path, sha256 = entry.files["so"], entry.sha256["so"]
    with files.loadable(path, sha256) as name:
        (tmp_path / "wrong").write_bytes(b"wrong")
        os.replace(tmp_path / "wrong", path)
        if not os.path.exists("/proc/self/fd"):
            pytest.skip("without /proc the loader is given the path")
        with open(name, "rb") as loaded:
            assert loaded.read() == b"right"
    with pytest.raises(ValueError, match="not as it was written"), files.loadable(path, sha256):
        pass


def test_the_loader_never_sees_one_name_twice():
    # It would hand out the library that it loaded by that name before.
    entry, names = put(), set()
    for _ in range(100):
        with files.loadable(entry.files["so"], entry.sha256["so"]) as name:
            names.add(name)
            assert os.path.samefile(name, entry.files["so"])
    assert len(names) == 100 or names == {str(entry.files["so"])}


WRITER = """
import sys
from dscore.cache import store
for turn in range(10_000):
    store.Store("libraries").put(sys.argv[1], {"so": b"x" * 100_000}, {"turn": turn})
    print(turn, flush=True)
"""


def test_a_writer_that_is_killed_leaves_no_damage():
    command = [sys.executable, "-c", WRITER, KEY]
    for turn in range(5):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            writer.stdout.readline()
            time.sleep(turn * 0.003)
            writer.kill()
        assert STORE.get(KEY) is not None
        assert STORE.verify() == ()


@pytest.mark.parametrize("use", [put, lambda: STORE.get(KEY)])
def test_what_is_used_while_prune_looks_at_the_cache_stays(use, monkeypatch):
    put()
    verify = store.Store.verify
    monkeypatch.setattr(store.Store, "verify", lambda self: (verify(self), use())[0])
    assert STORE.prune(max_bytes=0) == store.Removed(0, 0, 0)
    assert STORE.get(KEY) is not None


def test_an_entry_that_is_pruned_as_it_is_written_is_no_fault_of_the_folder(monkeypatch):
    replace = store.replace_whole

    def replace_and_prune(path, data, **options):
        replace(path, data, **options)
        if path.suffix == ".json":
            STORE.clear()

    monkeypatch.setattr(store, "replace_whole", replace_and_prune)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert put().size > 0
    assert STORE.get(KEY) is None
