"""One measurement on a GPU at a time: a second one would be part of the first one's time."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress

from filelock import FileLock, Timeout

from .. import places

# After which a wait is told of: the other process may have been stopped amid a measurement.
_QUIET_SECONDS = 30.0


@contextmanager
def alone_on(gpu: str) -> Iterator[None]:
    """Wait until no other process of this user measures on *gpu* by dscore, and keep them off.

    The lock ends with its process, and may be taken again within. Where the file system of the
    cache folder knows no locks, nothing is waited for.

    >>> with alone_on("0000-01-00"), alone_on("0000-01-00"):
    ...     pass
    """
    lock = FileLock(places.root() / "gpus" / f"{gpu}.lock", is_singleton=True)
    with ExitStack() as held:
        with suppress(OSError, NotImplementedError):
            held.enter_context(_taken(lock, gpu))
        yield


def _taken(lock: FileLock, gpu: str) -> AbstractContextManager[object]:
    try:
        return lock.acquire(timeout=_QUIET_SECONDS)
    except Timeout:
        warnings.warn(f"another process has measured on GPU {gpu} for {_QUIET_SECONDS:.0f} s; "
                      f"waiting until it ends (it holds {lock.lock_file})",
                      RuntimeWarning, stacklevel=5)
    return lock.acquire()
