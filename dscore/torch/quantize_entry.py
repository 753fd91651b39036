"""Entries of quantised models: the quantisation of images and the layer behind it, by one launch.

A kernel that takes floats and makes integers of them on their way to LDS spares a launch, and a
pass over the integers. Eager calls by linked programs have entries (`dscore.torch.linking`); all
else, as torch.compile and torch.export, has both steps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx, nn

from dscore.calling.quantise import is_fused
from dscore.core.backend import gpu_device
from dscore.core.device import Device
from dscore.core.errors import SpecError
from dscore.core.numerics import FLOATS
from dscore.core.problem import ConvProblem
from dscore.core.spec import CLAMPS, ConvSpec
from dscore.torch.launches import Bindable, Launch
from dscore.torch.linking import launches
from dscore.torch.quantize_modules import QuantizedConv2d
from dscore.torch.quantize_operator import convolved, launch_of
from dscore.torch.quantize_steps import KERNEL_TYPES, Quantize

# On which a device's kernels are asked for: what they take does not depend on an image's size.
_SIDE = 1024


@dataclass(eq=False)
class Entry(Bindable):
    """Entry of images of floats: *quantize*, and the layer of int8 behind it, by one kernel."""

    quantize: Quantize
    layer: QuantizedConv2d
    __name__ = "entry"  # by which torch.fx names the nodes that call it

    def __call__(self, x: Tensor) -> Tensor:
        if not _is_batch(x):
            return self.layer(self.quantize(x))  # type: ignore[no-any-return]
        return self.layer.as_result(convolved(*self.layer.operands_of(self.quantize.laid(x))))

    def bound(self) -> Callable[[Tensor], Tensor]:
        return self

    def launch_of(self, x: Tensor) -> Launch | None:
        """The launch that it has just made; None where it did anything else besides."""
        if not _is_batch(x) or self.layer.converts:
            return None
        laid = self.quantize.laid(x)
        launch = launch_of(*self.layer.operands_of(laid))
        lays = None if laid is x else self.quantize.laid
        return None if launch is None else launch._replace(lays=lays)

    def problem(self, images: tuple[int, ...], dtype: str) -> ConvProblem:
        """The problem on *images* of a shape, of a float type; SpecError where there is none."""
        (batch, channels, height, width), layer = images, self.layer
        outs, _, *kernel = layer.weight.shape
        clamped = layer.quantization.y_scale is None and layer.activation in CLAMPS
        spec = ConvSpec.make(
            channels, outs, tuple(kernel), stride=layer.stride, padding=layer.padding,
            dilation=layer.dilation, groups=layer.groups, dtype="int8", layout=self.quantize.layout,
            bias=layer.bias is not None, activation=layer.activation if clamped else None,
            out_dtype=layer.written_type, table=layer.quantization.table_scale is not None,
            in_dtype=dtype)
        return ConvProblem(spec, batch, height, width)

    def is_launch_on(self, device: Device) -> bool:
        """Whether a kernel of a *device* computes it, which is more than the definition."""
        channels = self.layer.weight.shape[1] * self.layer.groups
        try:
            problem = self.problem((1, channels, _SIDE, _SIDE), FLOATS[0])
        except SpecError:
            return False
        return is_fused(problem, device)

    @property
    def whole(self) -> bool:
        """Whether the kernel knows the zero point of both steps, and their scale is the same."""
        q = self.layer.quantization
        return not self.layer.zero_point_in_bias and (
            self.quantize.scale, self.quantize.zero_point) == (q.x_scale, q.x_zero_point)


def with_entries(model: nn.Module, graph: fx.Graph, index: int | None) -> fx.Graph:
    """The *graph* of a model on GPU *index* with each entry that is one launch as one node, a copy
    where there are some."""
    if not any(entries_in(model, graph, index)):
        return graph
    graph = copy.deepcopy(graph)
    for entry, step, node in list(entries_in(model, graph, index)):
        with graph.inserting_after(node):
            call = graph.call_function(entry, (step.args[0],))
        call.meta.update(node.meta)
        node.replace_all_uses_with(call)
        for one in (node, step):
            graph.erase_node(one)
    return graph


def entries_in(model: nn.Module, graph: fx.Graph, index: int | None
               ) -> Iterator[tuple[Entry, fx.Node, fx.Node]]:
    """The entries of a graph that are one launch each on GPU *index*, with the nodes of both steps.
    """
    modules = dict(model.named_modules())

    def called(node: fx.Node) -> Any:
        found = modules.get(str(node.target)) if node.op == "call_module" else None
        return found if launches(found) else None

    for step in graph.nodes:
        quantize, users = called(step), list(step.users)
        if not isinstance(quantize, Quantize) or len(users) != 1:
            continue
        [user], layer = users, called(users[0])
        if isinstance(layer, QuantizedConv2d) and user.args == (step,) and not user.kwargs:
            entry, device = Entry(quantize, layer), gpu_device(layer.backend, index)
            if device is not None and entry.whole and entry.is_launch_on(device):
                yield entry, step, user


def _is_batch(x: Tensor) -> bool:
    """Whether these are floats of a batch that kernels take."""
    return x.dim() == len("nchw") and bool(x.numel()) and x.dtype in KERNEL_TYPES
