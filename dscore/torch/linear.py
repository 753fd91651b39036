"""Linear layers as pointwise ones, on images of one pixel.

PyTorch's took three times as long in float32, and 1.5 times in float16 (1280 to 1000 features of 32
images, H200, docs/network_notes.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from dscore.calling.arrays import dtype_name
from dscore.core.problem import ConvProblem
from dscore.core.spec import Activation, ConvSpec
from dscore.torch.functional import conv2d
from dscore.torch.operators import by_operators
from dscore.torch.remainder import ACTIVATIONS
from dscore.torch.rewriting import activation_of
from dscore.torch.tracing import has_hooks

# Elements of a filter at most: those of classifiers; larger ones nobody has measured. And rows, of
# which more would gain less than a twentieth.
_MOST_WEIGHTS = {torch.float32: 1 << 22, torch.float16: 1 << 21, torch.bfloat16: 1 << 21}
_MOST_ROWS = {torch.float16: 128, torch.bfloat16: 128}


def gains(rows: int, weight: Tensor) -> bool:
    """Whether so many rows by a filter of *weight* are a pointwise layer."""
    dtype = weight.dtype
    return weight.numel() <= _MOST_WEIGHTS.get(dtype, 0) and 0 < rows <= _MOST_ROWS.get(dtype, rows)


def takes(x: Tensor, weight: Tensor, backend: str) -> bool:
    """Whether dscore computes the layer of *x*: not in programs that are traced."""
    return not (by_operators((x,)) or x.dtype is not weight.dtype or x.dim() != len("nc")
                or not x.numel() or torch.is_grad_enabled() or torch.is_autocast_enabled()
                or (backend == "auto" and not x.is_cuda)) and gains(x.shape[0], weight)


def on_pixels(x: Tensor, w: Tensor, bias: Tensor | None, backend: str,
              activation: Activation | None = None) -> Tensor:
    """The layer of *x* (N, C) by a filter *w* of 1x1."""
    return conv2d(x[:, :, None, None], w, bias, activation=activation,
                  backend=backend)[:, :, 0, 0]


class Linear(nn.Linear):
    """Linear layer in inference by dscore where that gains, else by PyTorch; of a quantised model.

    >>> Linear(8, 4)(torch.ones(2, 8)).shape
    torch.Size([2, 4])
    """

    backend = "auto"

    @classmethod
    def of(cls, plain: nn.Linear, backend: str) -> Linear:
        """The layer with the parameters of a *plain* one."""
        layer = cls(plain.in_features, plain.out_features, plain.bias is not None,
                    device="meta")
        layer.weight, layer.bias, layer.backend = plain.weight, plain.bias, backend
        return layer.train(plain.training)

    def forward(self, input: Tensor) -> Tensor:
        """The layer of rows (N, C), or of what `torch.nn.Linear` takes besides."""
        if not takes(input, self.weight, self.backend):
            return super().forward(input)
        return on_pixels(input, self.weight.detach()[:, :, None, None], self.bias, self.backend)


@dataclass(eq=False)
class PointwiseLinear:
    """Linear layer of *module*, whose parameters it reads as they are at each call, and the
    activation behind it.

    Of what dscore's kernel does not take, and in programs that are traced, it is PyTorch's.
    """

    module: nn.Linear
    backend: str = "auto"
    activation: Activation | None = None
    _filter: Any = field(default=None, init=False, repr=False)
    __name__ = "pointwise_linear"  # by which torch.fx names the nodes that call it

    def __call__(self, x: Tensor) -> Tensor:
        weight, bias = self.module.weight, self.module.bias
        if not takes(x, weight, self.backend):
            y = functional.linear(x, weight, bias)
            return y if self.activation is None else ACTIVATIONS[self.activation](y)
        return on_pixels(x, self._view_of(weight), bias, self.backend, self.activation)

    def _view_of(self, weight: Tensor) -> Tensor:
        """The filter: one tensor for as long as *weight* lies where it does, by which its call is
        remembered."""
        kept = self._filter
        if (kept is None or kept.data_ptr() != weight.data_ptr()
                or kept.shape[:2] != weight.shape or kept.dtype is not weight.dtype):
            self._filter = kept = weight.detach()[:, :, None, None]
        return kept  # type: ignore[no-any-return]

    def problem(self, images: int) -> ConvProblem:
        """The problem for so many rows."""
        spec = ConvSpec.make(self.module.in_features, self.module.out_features, 1,
                             dtype=dtype_name(self.module.weight),
                             bias=self.module.bias is not None, activation=self.activation)
        return ConvProblem(spec, images, 1, 1)


def replace_linears(model: nn.Module, graph: fx.Graph, backend: str) -> list[ConvProblem]:
    """Replace linear layers in a graph whose nodes have shapes, with the activations that alone use
    what they give; the problems of these."""
    modules, problems = dict(model.named_modules()), []
    for node in list(graph.nodes):
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        if type(module) is not nn.Linear or has_hooks(module) or not _taken(node, module):
            continue
        last, activation = _activated(node, modules)
        layer, rows = PointwiseLinear(module, backend, activation), node.all_input_nodes[0]
        with graph.inserting_before(node):
            call = graph.call_function(layer, (rows,))
        call.meta.update(node.meta)
        last.replace_all_uses_with(call)
        for replaced in dict.fromkeys((last, node)):
            graph.erase_node(replaced)
        problems.append(layer.problem(rows.meta["shape"][0]))
    return problems


def _activated(node: fx.Node, modules: Mapping[str, nn.Module]
               ) -> tuple[fx.Node, Activation | None]:
    """The activation that alone uses what *node* gives, with its name; or *node* and none."""
    user = next(iter(node.users)) if len(node.users) == 1 else node
    module = modules.get(str(user.target)) if user.op == "call_module" else None
    if user is node or user.all_input_nodes != [node] or (module is not None and has_hooks(module)):
        return node, None
    activation = activation_of(user, module)
    return (node, None) if activation is None else (user, activation)


def _taken(node: fx.Node, module: nn.Linear) -> bool:
    rows = node.all_input_nodes[0].meta if len(node.all_input_nodes) == 1 else {}
    return (len(rows.get("shape", ())) == len("nc") and rows["dtype"] is module.weight.dtype
            and gains(rows["shape"][0], module.weight))
