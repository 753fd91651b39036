"""Program of a folded model: its graph as a function, and the watch over what that was made of."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import chain
from operator import attrgetter, getitem, is_
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules import module as global_hooks
from torch.utils.hooks import RemovableHandle

from dscore.calling.call_cache import MOST_VARIANTS
from dscore.core.numerics import Permission
from dscore.torch.emission import Emission
from dscore.torch.folding import FoldedConv
from dscore.torch.linear import replace_linears
from dscore.torch.linking import MISS, Recording, linked
from dscore.torch.pooling import replace_means
from dscore.torch.rewriting import MOODY, Reason, Rewriter
from dscore.torch.shuffling import shorten_shuffles
from dscore.torch.tracing import Form, has_hooks, record_shapes, traced

_version_of, _training_of = attrgetter("_version"), attrgetter("training")
_MOST_SHAPES = 16  # of calls that are not linked
# Of a program: as its model is; made of other modules than the model has; not what the model does
# at present, because one of its modules is in train mode, or all modules have hooks.
State = Literal["current", "outdated", "plain"]
Shapes = dict[str, Form]  # of nodes' values, by their names


class Program:
    """Function of a model in eval mode, made of its modules, parameters and buffers.

    `forward` is for eager calls, `traceable` for torch.compile and torch.export; `shapes` are those
    of the *arguments* that it was made with, or those that are given in place of arguments;
    `further` are the problems of what is no convolution.
    """

    traceable: Callable[..., Any]
    _general: Callable[..., Any]
    _linked: tuple[Callable[..., Any], ...]
    _shapes_seen: list[Any]

    def __init__(self, model: nn.Module, count: int, reason: Reason, backend: str,
                 shapes: Shapes, arguments: tuple[Any, ...] | None = None,
                 arithmetic: Permission = "sum") -> None:
        self.model, self._lock = model, threading.RLock()
        self.graph = traced(model, count)
        if arguments is not None:
            shapes = record_shapes(model, self.graph, arguments)
        for node in self.graph.nodes:
            if node.name in shapes:
                node.meta.update(shapes[node.name]._asdict())
        self.shapes = shapes
        shorten_shuffles(self.graph)
        self.further = [*replace_means(model, self.graph, backend),
                        *replace_linears(model, self.graph, backend)]
        self.calls = Rewriter(model, self.graph, reason, backend, arithmetic).calls
        self.layers = [layer for layer, _ in self.calls]
        self._emission = Emission(model, self.graph)
        self._watch = Watch(model, self.layers)
        self.fold()

    @property
    def source(self) -> str:
        """What `forward` does, as Python."""
        return self._emission.source

    def forward(self, *arguments: Any) -> Any:
        """The result of an eager call."""
        for run in self._linked:
            result = run(*arguments)
            if result is not MISS:
                return result
        return self._unlinked(arguments)

    def _unlinked(self, arguments: tuple[Any, ...]) -> Any:
        """The result of a call that no linked program takes; of a shape's second one is made."""
        shapes = [one.shape if isinstance(one, Tensor) else None for one in arguments]
        if self._shapes_seen.count(shapes) != 1 or len(self._linked) == MOST_VARIANTS:
            self._shapes_seen = [*self._shapes_seen[-_MOST_SHAPES:], shapes]
            return self._general(*arguments)
        recording = Recording()
        result = self._emission.bound(recording.of)(*arguments)
        run = linked(self.model, self.graph, recording)
        self._shapes_seen = [*self._shapes_seen, shapes]
        self._linked += () if run is None else (run,)
        return result

    def fold(self) -> None:
        """Compute all filters and biases anew from the parameters as they are now."""
        with self._lock:
            # Tensors made in inference mode could not be written later, outside of it.
            with torch.inference_mode(False), torch.no_grad():
                replaced = [layer.fold() for layer in self.layers]
            if any(replaced) or not hasattr(self, "traceable"):
                self.traceable = self._emission.bound()
                self._general = self._emission.bound(_eager)
                self._linked, self._shapes_seen = (), []
            self._watch.look()

    def state(self) -> State:
        """Whether it is what its model does now, after filters were folded anew if need be."""
        if self._watch.unchanged():
            return "current"
        if self._watch.must_run_modules():
            return "plain"
        if self._watch.other_modules():
            return "outdated"
        if not self._watch.unchanged():  # more than hooks elsewhere
            self.fold()
        return "current"


class Watch:
    """Watch over a model: what was folded, and which modules it has, so that a change is seen.

    It sees tensors that are written in place or replaced, modules that are replaced, added or set
    to train mode, and hooks. It does not see what is written through ``.data`` or by programs
    that PyTorch knows nothing of, nor what becomes of tensors made in inference mode, which
    PyTorch counts no versions of.
    """

    def __init__(self, model: nn.Module, layers: list[FoldedConv]) -> None:
        folded = [module for layer in layers for module in (layer.conv, layer.norm)
                  if module is not None]
        places = [(owner, name) for module in folded
                  for owner, name in _places(module)]
        self._owners, self._names = [p[0] for p in places], [p[1] for p in places]
        self._within = list(model.modules())
        children: list[dict[Any, Any]] = [one._modules for one in self._within]
        end: dict[Any, Any] = {0: object()}  # so that lists of two lengths differ
        self._parents = [*(one for one in children if one), end]
        self._leaves = [one for one in children if not one]  # which most modules are
        self._modules = _values(self._parents)
        self._moody = [one for one in self._within if isinstance(one, MOODY)
                       or not type(one).__module__.startswith(("torch.nn.", "dscore."))]
        self._hooks = RemovableHandle.next_id
        self._hooked = [one for one in self._within[1:] if has_hooks(one)]
        self.look()

    def look(self) -> None:
        """Take the tensors as they are now for what was folded."""
        self._tensors = list(map(getitem, self._owners, self._names))
        self._versioned = [one for one in self._tensors
                           if isinstance(one, Tensor) and not one.is_inference()]
        self._versions = sum(map(_version_of, self._versioned))

    def unchanged(self) -> bool:
        """Whether nothing has changed; a call costs some 0.1 us for each tensor."""
        try:
            return (all(map(is_, map(getitem, self._owners, self._names), self._tensors))
                    and sum(map(_version_of, self._versioned)) == self._versions
                    and all(map(is_, chain.from_iterable(map(dict.values, self._parents)),
                                self._modules))
                    and not any(self._leaves) and True not in map(_training_of, self._moody)
                    and RemovableHandle.next_id == self._hooks)
        except KeyError:  # a parameter that is no longer there
            return False

    def other_modules(self) -> bool:
        """Whether the model's modules, or the hooks on them, are others than at the beginning."""
        hooks = RemovableHandle.next_id
        if (len(modules := _values(self._parents)) != len(self._modules) or any(self._leaves)
                or not all(map(is_, modules, self._modules))
                or any(name not in owner for owner, name in
                       zip(self._owners, self._names, strict=True))
                or [one for one in self._within[1:] if has_hooks(one)] != self._hooked):
            return True
        self._hooks = hooks
        return False

    def must_run_modules(self) -> bool:
        """Whether a module whose mode matters is in train mode, or there are hooks for all."""
        return (True in map(_training_of, self._moody) or bool(global_hooks._global_forward_hooks)
                or bool(global_hooks._global_forward_pre_hooks))


def _values(owners: list[dict[Any, Any]]) -> list[Any]:
    return list(chain.from_iterable(map(dict.values, owners)))


def _places(module: nn.Module) -> list[tuple[dict[str, Any], str]]:
    """The dictionaries, and the names in them, of the tensors that are folded."""
    return [(owner, name) for owner, names in (
        (module._parameters, ("weight", "bias")),
        (module._buffers, ("running_mean", "running_var"))) for name in names if name in owner]


def _eager(called: Any) -> Any:
    return called.bound() if isinstance(called, FoldedConv) else called
