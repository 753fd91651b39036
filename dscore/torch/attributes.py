"""Attributes of a model's modules, held while something runs that may change them."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Collection, Iterator
from typing import Any

from torch import nn
from torch.utils._pytree import tree_leaves

_CONTAINERS = (list, dict, set, deque)


class Attributes:
    """Attributes of all modules of a *model* as they are now, with what containers hold."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._held = [(name, one, {key: (value, _copied(value))
                                   for key, value in vars(one).items()})
                      for name, one in model.named_modules()]

    def put_back(self, but: Collection[str] = ()) -> None:
        """Make them what they were, *but* for new ones of the model itself by their names."""
        for _, one, held in self._held:
            for key in [key for key in vars(one) if key not in held]:
                if one is not self._model or key not in but:
                    del vars(one)[key]
            for key, (value, inside) in held.items():
                vars(one)[key] = value
                if isinstance(value, _CONTAINERS) and not _same(value, inside):
                    value.clear()
                    (value.update if isinstance(value, dict | set) else value.extend)(inside)

    def holding(self, kind: type) -> str:
        """The name of an attribute that has come to hold an object of a *kind*; empty for none."""
        return next((f"{name}.{key}".lstrip(".") for name, key, value in self._changed()
                     if any(isinstance(leaf, kind) for leaf in tree_leaves(value))), "")

    def _changed(self) -> Iterator[tuple[str, str, Any]]:
        for name, one, held in self._held:
            for key, value in vars(one).items():
                before, inside = held.get(key, (None, None))
                if value is not before or not _same(value, inside):
                    yield name, key, value


def _copied(value: Any) -> Any:
    return copy.copy(value) if isinstance(value, _CONTAINERS) else value


def _same(value: Any, inside: Any) -> bool:
    """Whether a value holds the objects that it held."""
    if not isinstance(value, _CONTAINERS):
        return True
    now, then = ([*one.items()] if isinstance(one, dict) else [*one] for one in (value, inside))
    return len(now) == len(then) and all(map(_is, now, then))


def _is(one: Any, other: Any) -> bool:
    """Whether two objects, or both of two pairs, are the same."""
    pairs = isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other)
    return one is other or (pairs and all(a is b for a, b in zip(one, other, strict=True)))
