"""One measurement on a GPU at a time: a second one would be part of the first one's time."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from filelock import FileLock, Timeout

from dscore.cache import folders

# After which a wait is told of: the other process may have been stopped amid a measurement.
_QUIET_SECONDS = 30.0
# A lock is asked for so often, and left alone for longer, that who waits comes before who was on.
_POLL_SECONDS = 0.005
_GAP_SECONDS = 0.015


@contextmanager
def alone_on(gpu: str) -> Iterator[None]:
    """Wait until no other process of this user measures on *gpu* by dscore, and keep them off.

    The lock ends with its process, and may be taken again within. Where none can be had, as on some
    network file systems, a RuntimeWarning says so, and nothing is waited for.

    >>> with alone_on("0000-01-00"), alone_on("0000-01-00"):
    ...     pass
    """
    lock = FileLock(folders.root() / "gpus" / f"{gpu}.lock", is_singleton=True,
                    poll_interval=_POLL_SECONDS)
    with _held(lock, gpu):
        yield
    if not lock.is_locked:  # else the outer one goes on
        time.sleep(_GAP_SECONDS)


def _held(lock: FileLock, gpu: str) -> AbstractContextManager[object]:
    try:
        return _awaited(lock, gpu)
    except (OSError, NotImplementedError) as failed:
        warnings.warn(f"GPU {gpu} cannot be kept from other processes ({lock.lock_file}: "
                      f"{failed}), which may be part of the times; set DSCORE_CACHE_DIR to a "
                      "folder that knows locks, or let one process measure at a time",
                      RuntimeWarning, stacklevel=4)
        return nullcontext()


def _awaited(lock: FileLock, gpu: str) -> AbstractContextManager[object]:
    try:
        return lock.acquire(timeout=_QUIET_SECONDS)
    except Timeout:
        warnings.warn(f"another process has measured on GPU {gpu} for {_QUIET_SECONDS:.0f} s; "
                      f"waiting until it ends (it holds {lock.lock_file})",
                      RuntimeWarning, stacklevel=5)
    return lock.acquire()
