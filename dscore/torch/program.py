"""Program of a folded model: its graph as a function, and the watch over what that was made of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import torch
from torch import nn

from dscore.core.numerics import Permission
from dscore.torch.emission import Emission
from dscore.torch.folding import FoldedConv
from dscore.torch.gates import with_gates
from dscore.torch.linear import replace_linears
from dscore.torch.linking import Linkable, eager, launches
from dscore.torch.overwriting import changes_others
from dscore.torch.pooling import replace_means
from dscore.torch.rewriting import Reason, Rewriter
from dscore.torch.shuffling import shorten_shuffles
from dscore.torch.tracing import Form, gpu_of, record_shapes, traced
from dscore.torch.watching import Place, State, Watch

Shapes = dict[str, Form]  # of nodes' values, by their names


class Program(Linkable):
    """Function of a model in eval mode, made of its modules, parameters and buffers.

    `forward` is for eager calls, `traceable` for torch.compile and torch.export; `shapes` are those
    of the *arguments* that it was made with, or those that are given in place of arguments;
    `further` are the problems of what is no convolution.
    """

    traceable: Callable[..., Any]

    def __init__(self, model: nn.Module, count: int, reason: Reason, backend: str,
                 shapes: Shapes, arguments: tuple[Any, ...] | None = None,
                 arithmetic: Permission = "sum") -> None:
        self._lock = threading.RLock()
        self.model, self.graph = model, traced(model, count)
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
        # A copy, if there are gates, whose nodes are not those of `calls`.
        self.graph, gates = with_gates(model, self.graph, gpu_of(model))
        self.further += gates
        # A linked program that has found another tensor midway is given up, and all runs anew.
        self._may_link = not changes_others(model, self.graph, launches)
        self._emission = Emission(model, self.graph)
        self._bound = False  # whether functions have the filters and biases of the layers
        self._watch = Watch(model, list(chain.from_iterable(map(_folded, self.layers))))
        self.fold()

    @property
    def source(self) -> str:
        """What `forward` does, as Python."""
        return self._emission.source

    def fold(self) -> None:
        """Compute all filters and biases anew from the parameters as they are now."""
        with self._lock:
            # Tensors made in inference mode could not be written later, outside of it.
            with torch.inference_mode(False), torch.no_grad():
                for layer in self.layers:  # of which one may fail after others are replaced
                    self._bound = not layer.fold() and self._bound
            if not self._bound:
                self.traceable = self._emission.bound()
                self._unlink(self._emission.bound(eager))
                self._bound = True
            self._watch.look()

    def state(self) -> State:
        """What has become of its model, after filters were folded anew if need be."""
        state = self._watch.state()
        if state == "changed":
            self.fold()
            return "current"
        return state


def _folded(layer: FoldedConv) -> Iterator[Place]:
    """The places of the tensors that a layer is folded of."""
    for module in (layer.conv, layer.norm):
        if module is not None:
            for owner, names in ((module._parameters, ("weight", "bias")),
                                 (module._buffers, ("running_mean", "running_var"))):
                yield from ((owner, name) for name in names if name in owner)
