"""Linear layers of a traced graph as pointwise ones, on images of one pixel.

Of float32, for which PyTorch's took three times as long (1280 to 1000 features of 32 images, H200).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from dscore.core.problem import ConvProblem
from dscore.core.spec import ConvSpec
from dscore.torch.functional import conv2d
from dscore.torch.operators import by_operators
from dscore.torch.tracing import has_hooks

# Of a filter at most: classifiers; larger ones nobody has measured.
_MOST_WEIGHTS = 1 << 22


@dataclass(eq=False)
class PointwiseLinear:
    """Linear layer of *module*, whose parameters it reads as they are at each call.

    Of what dscore's kernel does not take, and in programs that are traced, it is PyTorch's.
    """

    module: nn.Linear
    backend: str = "auto"
    _filter: Any = field(default=None, init=False, repr=False)
    __name__ = "pointwise_linear"  # by which torch.fx names the nodes that call it

    def __call__(self, x: Tensor) -> Tensor:
        weight, bias = self.module.weight, self.module.bias
        if (by_operators((x,)) or x.dtype is not torch.float32 or x.dim() != 2 or not x.numel()
                or weight.dtype is not torch.float32 or torch.is_grad_enabled()
                or (self.backend == "auto" and not x.is_cuda)):
            return functional.linear(x, weight, bias)
        y = conv2d(x[:, :, None, None], self._view_of(weight), bias, backend=self.backend)
        return y[:, :, 0, 0]

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
                             bias=self.module.bias is not None)
        return ConvProblem(spec, images, 1, 1)


def replace_linears(model: nn.Module, graph: fx.Graph, backend: str) -> list[ConvProblem]:
    """Replace linear layers in a graph whose nodes have shapes; the problems of these."""
    modules, problems = dict(model.named_modules()), []
    for node in list(graph.nodes):
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        if type(module) is not nn.Linear or has_hooks(module) or not _taken(node, module):
            continue
        layer, rows = PointwiseLinear(module, backend), node.all_input_nodes[0]
        with graph.inserting_before(node):
            call = graph.call_function(layer, (rows,))
        call.meta.update(node.meta)
        node.replace_all_uses_with(call)
        graph.erase_node(node)
        problems.append(layer.problem(rows.meta["shape"][0]))
    return problems


def _taken(node: fx.Node, module: nn.Linear) -> bool:
    rows = node.all_input_nodes[0].meta if len(node.all_input_nodes) == 1 else {}
    return (len(rows.get("shape", ())) == 2 and rows["shape"][0] > 0
            and rows["dtype"] is torch.float32 is module.weight.dtype
            and module.weight.numel() <= _MOST_WEIGHTS)
