"""Lock of a GPU: two measurements at the same time would be part of each other's times."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from filelock import FileLock, Timeout

from dscore.cache import folders
from dscore.core.errors import UnavailableError

# After which a warning says that this process waits: the other one may have been stopped.
_QUIET_SECONDS = 30.0
# Pauses between two attempts to take the lock, and, longer ones, before a process that gave it back
# can take it again: so a process that waits comes before the one that has just measured.
_POLL_SECONDS = 0.005
_GAP_SECONDS = 0.015


@contextmanager
def gpu_lock(gpu: str, wait: bool = True) -> Iterator[None]:
    """Lock that keeps other processes of this user from measuring on *gpu* by dscore.

    It waits until they are done, ends with its process, and may be nested. On a file system without
    locks, as some networks have, a RuntimeWarning says so, and there is no waiting. Without *wait*,
    UnavailableError is raised where another process holds it.

    >>> with gpu_lock("0000-01-00"), gpu_lock("0000-01-00"):
    ...     pass
    """
    lock = FileLock(folders.root() / "gpus" / f"{gpu}.lock", is_singleton=True,
                    poll_interval=_POLL_SECONDS)
    with _held(lock, gpu, wait):
        yield
    if not lock.is_locked:  # else the outer one goes on
        time.sleep(_GAP_SECONDS)


def _held(lock: FileLock, gpu: str, wait: bool) -> AbstractContextManager[object]:
    try:
        return _awaited(lock, gpu) if wait else lock.acquire(timeout=0)
    except Timeout:
        raise UnavailableError(f"another process measures on GPU {gpu}") from None
    except (OSError, NotImplementedError) as failed:
        warnings.warn(f"GPU {gpu} cannot be kept from other processes ({lock.lock_file}: "
                      f"{failed}), which may be part of the times; set DSCORE_CACHE_DIR to a "
                      "folder that knows locks, or let one process measure at a time",
                      RuntimeWarning, stacklevel=4)
        return nullcontext()


def _awaited(lock: FileLock, gpu: str) -> AbstractContextManager[object]:
    folders.make(Path(lock.lock_file).parent)
    try:
        return lock.acquire(timeout=_QUIET_SECONDS)
    except Timeout:
        warnings.warn(f"another process has measured on GPU {gpu} for {_QUIET_SECONDS:.0f} s; "
                      f"waiting until it ends (it holds {lock.lock_file})",
                      RuntimeWarning, stacklevel=5)
    return lock.acquire()
