"""One measurement on a GPU at a time: a second one would be part of the first one's time."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress

from filelock import FileLock, Timeout

from .. import places

# After which a wait is told of: the other process may have been stopped amid a measurement.
_QUIET_SECONDS = 30.0
# A lock is asked for so often, and left alone for longer, that who waits comes before who was on.
_POLL_SECONDS = 0.005
_GAP_SECONDS = 0.015


@contextmanager
def alone_on(gpu: str) -> Iterator[None]:
    """Wait until no other process of this user measures on *gpu* by dscore, and keep them off.

    The lock ends with its process, and may be taken again within. Where the file system of the
    cache folder knows no locks it is what filelock makes of that: a file, or no lock.

    >>> with alone_on("0000-01-00"), alone_on("0000-01-00"):
    ...     pass
    """
    lock = FileLock(places.root() / "gpus" / f"{gpu}.lock", is_singleton=True,
                    poll_interval=_POLL_SECONDS)
    with ExitStack() as held:
        with suppress(OSError, NotImplementedError):
            held.enter_context(_taken(lock, gpu))
        yield
    if not lock.is_locked:  # else the outer one goes on
        time.sleep(_GAP_SECONDS)


def _taken(lock: FileLock, gpu: str) -> AbstractContextManager[object]:
    try:
        return lock.acquire(timeout=_QUIET_SECONDS)
    except Timeout:
        warnings.warn(f"another process has measured on GPU {gpu} for {_QUIET_SECONDS:.0f} s; "
                      f"waiting until it ends (it holds {lock.lock_file})",
                      RuntimeWarning, stacklevel=5)
    return lock.acquire()
