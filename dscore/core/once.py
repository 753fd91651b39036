"""Values made once, even when many threads ask for the first one at the same moment."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")
_ABSENT = object()


class Locks:
    """A lock for each key, for the life of the process.

    A forked process begins with new locks: one that another thread held during the fork would
    never be released in it.
    """

    def __init__(self) -> None:
        self._locks: dict[Hashable, AbstractContextManager[Any]] = {}
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._locks.clear)

    def of(self, key: Hashable) -> AbstractContextManager[Any]:
        """The lock of *key*, the same for all threads; its holder may take it again."""
        return self._locks.setdefault(key, threading.RLock())


class once(Generic[Arguments, Value]):  # noqa: N801  a decorator, like functools.cached_property
    """Memo of a function, which runs once for each set of arguments.

    Unlike functools.cache, threads that ask at the same moment get the same object: one of them
    makes it, the others wait. An exception is not remembered.

    >>> numbers = once(lambda size: [0] * size)
    >>> numbers(3) is numbers(3)
    True
    """

    def __init__(self, make: Callable[Arguments, Value]) -> None:
        self._make, self._locks = make, Locks()
        self._values: dict[Hashable, Any] = {}
        update_wrapper(self, make)

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
        key = (args, *sorted(kwargs.items()))
        value = self._values.get(key, _ABSENT)
        if value is _ABSENT:
            with self._locks.of(key):
                value = self._values.get(key, _ABSENT)
                if value is _ABSENT:  # else another thread was first
                    value = self._values[key] = self._make(*args, **kwargs)
        return value  # type: ignore[no-any-return]

    def values(self) -> tuple[Value, ...]:
        """Values made so far."""
        return tuple(self._values.values())

    def cache_clear(self) -> None:
        """Forget every value; the next call makes a new one."""
        self._values.clear()
