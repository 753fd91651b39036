"""Files written whole: links, pipes, devices, modes, and disks that are full."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading

import pytest

from dscore.core.errors import SpecError
from dscore.core.text import read_whole, write_whole

AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if not AS_ROOT or subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted: root and the right to mount are missing")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_file_and_one_that_is_not_there_hold_the_data_and_nothing_is_left(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("older and longer words")
    for path in (old, new):
        write_whole(path, "words")
        assert path.read_bytes() == b"words"
    assert sorted(tmp_path.iterdir()) == [new, old]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o444])
def test_a_file_keeps_its_mode_and_its_owner(mode, tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(mode)
    if AS_ROOT:
        os.chown(path, 12345, 54321)
    before = path.stat()
    if os.access(path, os.W_OK):
        write_whole(path, "new")
        assert path.read_text() == "new"
    else:
        with pytest.raises(SpecError, match="file: cannot be written: Permission denied"):
            write_whole(path, "new")
        assert path.read_text() == "old"
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid,
                                                           before.st_gid)


def test_a_new_file_has_the_mode_of_any_other(tmp_path):
    write_whole(tmp_path / "one", "words")
    (tmp_path / "other").write_text("words")
    assert (tmp_path / "one").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed_and_stays_a_link(there, tmp_path):
    (tmp_path / "behind").mkdir()
    target, link, outer = tmp_path / "behind" / "file", tmp_path / "link", tmp_path / "outer"
    link.symlink_to("behind/file")
    outer.symlink_to(link)
    if there:
        target.write_text("old")
    write_whole(outer, "words")
    assert (link.is_symlink(), outer.is_symlink()) == (True, True)
    assert target.read_text() == link.read_text() == "words"
    assert [*(tmp_path / "behind").iterdir()] == [target]


def test_a_pipe_is_written_into(tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")
    received = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    data = bytes(range(256)) * 1000  # more than a pipe holds at a time
    write_whole(pipe, data)
    reader.join(10)
    assert received == [data]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [*tmp_path.iterdir()] == [pipe]


def test_a_device_is_written_into_and_a_full_one_is_named():
    node = os.lstat(os.devnull)
    write_whole(os.devnull, b"words" * 1000)
    assert os.path.samestat(node, os.lstat(os.devnull))
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    with pytest.raises(SpecError, match="/dev/full: cannot be written: No space left"):
        write_whole("/dev/full", "words")
    assert stat.S_ISCHR(os.lstat("/dev/full").st_mode)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/stderr"])
def test_the_processes_own_output_keeps_what_it_holds(name, tmp_path):
    if not os.path.exists(name):
        pytest.skip(f"this system has no {name}")
    log = tmp_path / "log"
    log.write_text("before\n")
    program = f"from dscore.core.text import write_whole; write_whole({name!r}, 'words\\n')"
    with open(log, "a") as output:
        subprocess.run([sys.executable, "-c", program], stdout=output, stderr=output, check=True)
    assert log.read_text() == "before\nwords\n"


@pytest.mark.parametrize(("name", "reason"), [
    ("absent/file", "No such file"), ("file/file", "Not a directory"), ("folder", "directory"),
    ("loop", "symbolic links"), ("x" * 300, "too long"), ("nul\0", "null")])
def test_what_cannot_be_written_is_named_and_why(name, reason, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SpecError, match=f"cannot be written: .*{reason}"):
        write_whole(tmp_path / name, "words")
    assert sorted(tmp_path.rglob("*")) == before


def test_the_longest_name_can_be_written(tmp_path):
    write_whole(tmp_path / ("x" * 255), "words")
    assert [path.name for path in tmp_path.iterdir()] == ["x" * 255]


def test_a_full_disk_leaves_what_was_there_and_nothing_else(small_disk):
    path = small_disk / "file"
    write_whole(path, "old")
    with pytest.raises(SpecError, match="file: cannot be written: No space left"):
        write_whole(path, b"x" * 100_000)
    assert path.read_text() == "old"
    assert [*small_disk.iterdir()] == [path]


# In a process of its own: what tests before it have loaded counts for the limit of memory, too.
ENDLESS = """
import resource, sys
from dscore.core.errors import SpecError
from dscore.core.text import read_whole
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
try:
    read_whole(sys.argv[1])
except SpecError as refused:
    print(refused)
"""


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/full"])
def test_what_has_no_end_is_not_read_to_its_end(path, subprocess_path):
    if not os.path.exists(path):
        pytest.skip(f"there is no {path} here")
    pytest.importorskip("resource")
    done = subprocess.run([sys.executable, "-c", ENDLESS, path], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": subprocess_path}, check=False)
    assert f"{path}: " in done.stdout, done.stderr
    assert "does not end after 64 MiB" in done.stdout


def test_a_pipe_is_read_to_its_end_and_a_fault_is_named(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=[b"words"])
    writer.start()
    assert read_whole(pipe) == b"words"
    writer.join()
    for path, reason in ((tmp_path, "directory"), ("a\0b", "null"), ("x" * 999, "too long")):
        with pytest.raises(SpecError, match=f"cannot be read: .*{reason}"):
            read_whole(path)
