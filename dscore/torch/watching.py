"""Watch over a model, whose tensors and modules a program is made of."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from operator import attrgetter, getitem, is_
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules import module as global_hooks
from torch.utils.hooks import RemovableHandle

from dscore.torch.rewriting import MOODY
from dscore.torch.tracing import has_hooks

_training_of = attrgetter("training")
Place = tuple[dict[str, Any], str]  # a dictionary of a module, and a name in it
# What has become of a model: nothing; there are other values at places; it has other modules or
# hooks on them; it is not to run but by its modules, because one of them is in train mode, or all
# modules have hooks.
State = Literal["current", "changed", "outdated", "plain"]


class Watch:
    """Watch over a model: what is at some *places*, and which modules it has.

    It sees what is replaced at these places, modules that are replaced, added or set to train mode,
    and hooks. With *contents*, it sees tensors there that are written in place, but not what is
    written through ``.data`` or by programs that PyTorch knows nothing of, nor what becomes of
    tensors made in inference mode, which PyTorch counts no versions of. Without, it sees tensors
    that lie elsewhere, and further names in the places' dictionaries.
    """

    def __init__(self, model: nn.Module, places: list[Place], contents: bool = True) -> None:
        self._contents = contents
        self._mark: Callable[[Any], int] = attrgetter("_version") if contents else Tensor.data_ptr
        self._owners, self._names = [p[0] for p in places], [p[1] for p in places]
        self._whole = [] if contents else list({id(one): one for one in self._owners}.values())
        # The modules of a script are its own affair.
        self._within = [one for one in model.modules()
                        if not isinstance(one, torch.jit.ScriptModule)]
        children: list[dict[Any, Any]] = [one._modules for one in self._within]
        end: dict[Any, Any] = {0: object()}  # so that lists of two lengths differ
        self._parents = [*(one for one in children if one), end]
        self._leaves = [one for one in children if not one]  # which most modules are
        self._modules = _of_all(self._parents)
        self._moody = [one for one in self._within if isinstance(one, MOODY)
                       or not type(one).__module__.startswith(("torch.nn.", "dscore."))]
        self._hooks = RemovableHandle.next_id
        self._hooked = [one for one in self._within[1:] if has_hooks(one)]
        self.look()

    def look(self) -> None:
        """Take what is at the places now for what was there at the beginning."""
        self._values = list(map(getitem, self._owners, self._names))
        self.tensors = tuple(one for one in self._values if isinstance(one, Tensor)
                             and not (self._contents and one.is_inference()))
        self._marks = list(map(self._mark, self.tensors))
        self._sizes = list(map(len, self._whole))

    def state(self) -> State:
        """What has become of the model since."""
        if self.unchanged():
            return "current"
        if self.must_run_modules():
            return "plain"
        if self.other_modules():
            return "outdated"
        return "current" if self.unchanged() else "changed"  # or there are hooks elsewhere

    def unchanged(self) -> bool:
        """Whether nothing has changed; a call costs some 0.1 us for each tensor."""
        try:
            return (all(map(is_, map(getitem, self._owners, self._names), self._values))
                    and list(map(self._mark, self.tensors)) == self._marks
                    and list(map(len, self._whole)) == self._sizes
                    and all(map(is_, chain.from_iterable(map(dict.values, self._parents)),
                                self._modules))
                    and not any(self._leaves) and True not in map(_training_of, self._moody)
                    and RemovableHandle.next_id == self._hooks)
        except KeyError:  # a parameter that is no longer there
            return False

    def other_modules(self) -> bool:
        """Whether the model's modules, or the hooks on them, are others than at the beginning."""
        hooks = RemovableHandle.next_id
        if (len(modules := _of_all(self._parents)) != len(self._modules) or any(self._leaves)
                or not all(map(is_, modules, self._modules))
                or any(name not in owner for owner, name in
                       zip(self._owners, self._names, strict=True))
                or [one for one in self._within[1:] if has_hooks(one)] != self._hooked):
            return True
        self._hooks = hooks
        return False

    def must_run_modules(self) -> bool:
        """Whether a module whose mode matters is in train mode, or there are hooks for all."""
        return True in map(_training_of, self._moody) or are_all_hooked()


def are_all_hooked() -> bool:
    """Whether there are hooks that run before or after all modules."""
    return bool(global_hooks._global_forward_hooks or global_hooks._global_forward_pre_hooks)


def _of_all(owners: list[dict[Any, Any]]) -> list[Any]:
    return list(chain.from_iterable(map(dict.values, owners)))
