"""Folders of the cache: the configured one, else a private temporary one."""

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
    """Folder that the environment names, writable or not; None without a home."""
    named = os.environ.get("DSCORE_CACHE_DIR")
    if named:
        return Path(os.path.abspath(os.path.expanduser(named)))
    shared = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(shared):  # the XDG specification has relative ones ignored
        return Path(shared, "dscore")
    with suppress(RuntimeError):
        return Path.home() / ".cache" / "dscore"
    return None


def root() -> Path:
    """Folder that new entries go to: the configured one, else the temporary one."""
    configured = configured_root()
    if configured is not None and _writable(configured):
        return configured
    return instead_of(configured, "it cannot be written")


def _writable(folder: Path) -> bool:
    """Whether *folder* could be made and written; nothing is touched to find out."""
    try:
        nearest = next(p for p in (folder, *folder.parents) if p.exists())
    except (OSError, StopIteration):
        return False
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def instead_of(configured: Path | None, reason: object) -> Path:
    """Temporary folder in place of the configured one, with one warning in a process's life."""
    global _warned  # noqa: PLW0603
    folder = _temporary()
    if not _warned:
        _warned = True
        warnings.warn(f"dscore's cache folder {configured or '~/.cache/dscore'} is not used "
                      f"({reason}); what is built goes to {folder}. Set DSCORE_CACHE_DIR to a "
                      "writable folder.",
                      RuntimeWarning, stacklevel=3)
    return folder


def _temporary() -> Path:
    """Temporary folder of this user, made if need be; of this process, where it is not private."""
    folder = _temporary_name()
    with suppress(OSError):
        folder.mkdir(mode=0o700)
    return folder if _private(folder) else _of_this_process(tempfile.gettempdir())


def _temporary_name() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir(), f"dscore-{user}")


@once
def _of_this_process(parent: str) -> Path:
    """Temporary folder of this process, for when somebody else has taken the user's name."""
    try:
        return Path(tempfile.mkdtemp(prefix="dscore-", dir=parent))
    except OSError as failed:
        raise UnavailableError(f"no folder for dscore's cache can be written ({failed}); set "
                               "DSCORE_CACHE_DIR to one that can") from failed


def _private(folder: Path) -> bool:
    """Whether *folder* is a real folder, ours, and closed to others, who could plant a library."""
    try:
        state = folder.lstat()
    except OSError:
        return False
    ours = not hasattr(os, "getuid") or state.st_uid == os.getuid()
    return stat.S_ISDIR(state.st_mode) and ours and not state.st_mode & 0o077


def existing_temporaries() -> list[Path]:
    """Temporary folders that may hold entries by now."""
    of_this_user = [_temporary_name()] if _private(_temporary_name()) else []
    return [*of_this_user, *_of_this_process.values()]
