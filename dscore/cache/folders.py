"""Which folder dscore may keep things in: the one asked for, else a private temporary one."""

from __future__ import annotations

import os
import stat
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

from dscore.core.errors import UnavailableError
from dscore.core.once import once

_warned = False


def configured_root() -> Path | None:
    """The folder that the environment asks for, writable or not; None without a home."""
    asked = os.environ.get("DSCORE_CACHE_DIR")
    if asked:
        return Path(os.path.abspath(os.path.expanduser(asked)))
    shared = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(shared):  # the XDG specification has relative ones ignored
        return Path(shared, "dscore")
    with suppress(RuntimeError):
        return Path.home() / ".cache" / "dscore"
    return None


def root() -> Path:
    """The folder that new entries go to: the configured one, else a private temporary one."""
    asked = configured_root()
    if asked is not None and _writable(asked):
        return asked
    return instead_of(asked, "it cannot be written")


def _writable(folder: Path) -> bool:
    """Whether *folder* could be made and written, found out without touching anything."""
    try:
        standing = next(p for p in (folder, *folder.parents) if p.exists())
    except (OSError, StopIteration):
        return False
    return standing.is_dir() and os.access(standing, os.W_OK | os.X_OK)


def instead_of(asked: Path | None, reason: object) -> Path:
    """The temporary folder, with one warning in a process's life."""
    global _warned  # noqa: PLW0603
    folder = _temporary()
    if not _warned:
        _warned = True
        warnings.warn(f"dscore's cache folder {asked or '~/.cache/dscore'} is not used ({reason}); "
                      f"what is built goes to {folder}. Set DSCORE_CACHE_DIR to a writable folder.",
                      RuntimeWarning, stacklevel=3)
    return folder


def _temporary() -> Path:
    """This user's folder among the temporary ones, made if need be and known to be private."""
    folder = _temporary_name()
    with suppress(OSError):
        folder.mkdir(mode=0o700)
    return folder if _private(folder) else _of_this_process(tempfile.gettempdir())


def _temporary_name() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir(), f"dscore-{user}")


@once
def _of_this_process(parent: str) -> Path:
    """A fresh folder, for when somebody else holds the name of this user's."""
    try:
        return Path(tempfile.mkdtemp(prefix="dscore-", dir=parent))
    except OSError as failed:
        raise UnavailableError(f"no folder for dscore's cache can be written ({failed}); set "
                               "DSCORE_CACHE_DIR to one that can") from failed


def _private(folder: Path) -> bool:
    """Whether *folder* is a real one, ours, and closed to others, who could plant a library."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    ours = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return stat.S_ISDIR(found.st_mode) and ours and not found.st_mode & 0o077


def existing_temporaries() -> list[Path]:
    """The temporary folders that may hold something by now."""
    found = [_temporary_name()] if _private(_temporary_name()) else []
    return [*found, *_of_this_process.made()]
