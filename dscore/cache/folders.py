"""Folders of the cache: the configured one, else a private temporary one."""

from __future__ import annotations

import os
import stat
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

from dscore.cache.files import distrust
from dscore.core.errors import UnavailableError
from dscore.core.once import once

_DEFAULT = "~/.cache/dscore"
# Topics that a warning was given on.
_warned: set[str] = set()


def configured_root() -> Path | None:
    """Folder that the environment names, usable or not; None where its home folder is not known."""
    named = os.environ.get("DSCORE_CACHE_DIR")
    if named:
        return _expanded(named)
    shared = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(shared):  # the XDG specification has relative ones ignored
        return Path(shared, "dscore")
    return _expanded(_DEFAULT)


def _expanded(named: str) -> Path | None:
    """Absolute path; None where its ~ is of an unknown user, or $HOME is empty or relative."""
    path = os.path.expanduser(named)
    if named.startswith("~") and not os.path.isabs(path):
        return None
    if named.partition("/")[0] == "~" and os.environ.get("HOME") == "":
        return None
    return Path(os.path.abspath(path))


def root() -> Path:
    """Folder that new entries go to: the configured one, else the temporary one."""
    configured = configured_root()
    reason = unusable(configured)
    if configured is not None and reason is None and _writable(configured):
        return configured
    return instead_of(configured, reason or "it cannot be written")


def unusable(configured: Path | None, kind: str = "") -> str | None:
    """Reason why no entry of *kind* is read from the configured folder; None where they may be."""
    if configured is None:
        return "there is no such home folder"
    for folder in (configured, configured / kind):
        with suppress(OSError):  # what is not there, or is no folder, holds no entries
            reason = distrust(folder.stat())
            if reason is not None:
                return reason if folder == configured else f"{kind}: {reason}"
    return None


def readable(kind: str) -> tuple[Path, ...]:
    """Folders that entries of *kind* are read from, in this order; not those that others may write.
    """
    configured = configured_root()
    reason = unusable(configured, kind)
    if reason is not None and configured is not None:
        instead_of(configured, reason)
    roots = [] if configured is None or reason is not None else [configured]
    return tuple(folder / kind for folder in (*roots, *existing_temporaries()))


def make(folder: Path) -> None:
    """Make *folder* and what is missing above it, closed to others; OSError where that fails."""
    if not folder.is_dir():
        make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _writable(folder: Path) -> bool:
    """Whether *folder* could be made and written; nothing is touched to find out."""
    try:
        nearest = next(p for p in (folder, *folder.parents) if p.exists())
    except (OSError, StopIteration):
        return False
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def instead_of(configured: Path | None, reason: object) -> Path:
    """Temporary folder in place of the configured one, with one warning in a process's life."""
    folder = _temporary()
    named = configured or os.environ.get("DSCORE_CACHE_DIR") or _DEFAULT
    warn_once("folder", f"dscore's cache folder {named} is not used ({reason}); what is built goes "
                        f"to {folder}. Set DSCORE_CACHE_DIR to a folder that you alone can write.")
    return folder


def warn_once(topic: str, text: str) -> None:
    """RuntimeWarning, the first of *topic* in this process."""
    if topic not in _warned:
        _warned.add(topic)
        warnings.warn(text, RuntimeWarning, stacklevel=4)


def _temporary() -> Path:
    """Temporary folder of this user, made if need be; of this process, where it is not private."""
    folder = _temporary_name()
    with suppress(OSError):
        folder.mkdir(mode=0o700)
    return folder if _private(folder) else _of_this_process(tempfile.gettempdir())


def _temporary_name() -> Path:
    user = os.geteuid() if hasattr(os, "geteuid") else "user"
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
    ours = not hasattr(os, "geteuid") or state.st_uid == os.geteuid()
    return stat.S_ISDIR(state.st_mode) and ours and not state.st_mode & 0o077


def existing_temporaries() -> list[Path]:
    """Temporary folders that may hold entries by now."""
    of_this_user = [_temporary_name()] if _private(_temporary_name()) else []
    return [*of_this_user, *_of_this_process.values()]
