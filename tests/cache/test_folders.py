"""Folders that cannot be the cache: a temporary one is used, and they are left as they are."""

from __future__ import annotations

import os
import subprocess

import pytest

from dscore.cache import folders, store

KEY = store.key("one")
STORE = store.Store("libraries")


def put(payload=b"a library"):
    return STORE.put(KEY, {"so": payload}, {})


HOMES = [{"HOME": "x"}, {"HOME": ""}, {"HOME": "x", "DSCORE_CACHE_DIR": "~/y"},
         {"DSCORE_CACHE_DIR": "~nouser/x"}, {"DSCORE_CACHE_DIR": "~nouser"}]


@pytest.mark.parametrize("env", HOMES)
def test_a_home_that_is_not_there_makes_no_folder(env, tmp_path, monkeypatch):
    for name in ("DSCORE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert folders.configured_root() is None
    named = env.get("DSCORE_CACHE_DIR", "~/.cache/dscore")
    with pytest.warns(RuntimeWarning, match=f"{named} is not used .there is no such home folder"):
        entry = put()
    assert (tmp_path / "tmp") in entry.path.parents
    assert [*(tmp_path / "here").iterdir()] == []
    assert STORE.get(KEY) is not None


@pytest.mark.parametrize("plant", [lambda path: path.write_text("mine"),
                                   lambda path: path.symlink_to("nowhere/at/all"),
                                   lambda path: path.symlink_to(path.name), os.mkfifo])
def test_a_cache_folder_that_is_none_is_left_alone(plant, cache, tmp_path):
    plant(cache)
    before = cache.lstat()
    with pytest.warns(RuntimeWarning, match=f"{cache} is not used"):
        entry = put()
    assert (tmp_path / "tmp") in entry.path.parents
    assert STORE.get(KEY) is not None
    assert STORE.clear().entries == 1
    assert (cache.lstat().st_ino, cache.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0,
                    reason="only root can mount a small disk")
def test_a_full_disk_is_replaced_by_the_temporary_folder(cache, tmp_path):
    cache.mkdir(mode=0o700)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(cache)],
                      capture_output=True, check=False).returncode:
        pytest.skip("the right to mount is missing")
    try:
        small = put()
        assert cache in small.path.parents
        with pytest.warns(RuntimeWarning, match="No space left"):
            large = put(b"x" * 100_000)
        assert (tmp_path / "tmp") in large.path.parents
        assert {*(cache / "libraries").iterdir()} == small.paths
        assert STORE.get(KEY).files["so"].read_bytes() == b"a library"
    finally:
        subprocess.run(["umount", str(cache)], check=True)
