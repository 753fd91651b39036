"""A cache of each test's own."""

import tempfile

import pytest

from dscore.cache import folders


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The configured folder of the cache, which is not there yet; earlier tests are forgotten."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(folders, "_warned", set())
    folders._of_this_process.cache_clear()
    yield tmp_path / "cache"
    folders._of_this_process.cache_clear()
