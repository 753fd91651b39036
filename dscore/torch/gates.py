"""Gates of squeeze-and-excitation of a graph: a mean over pixels and both layers, by one launch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from dscore.calling.call_cache import PreparedCall
from dscore.calling.gates import (
    fast_call,
    gains,
    gate_call,
    gate_device,
    gate_problem,
    no_call,
)
from dscore.core.device import Device
from dscore.core.problem import ConvProblem
from dscore.torch.folding import FoldedConv
from dscore.torch.launches import Bindable, Launch
from dscore.torch.linking import launches
from dscore.torch.modules import Conv2d
from dscore.torch.pooling import PixelMean
from dscore.torch.quantize_pooling import MeanOfPixels

_Layer = FoldedConv | Conv2d


@dataclass(eq=False)
class FusedGate(Bindable):
    """Gate of images (N, C, H, W): *mean*, then the layers *first* and *second*.

    What dscore has no kernel for, and what is traced, these compute one after the other.
    """

    mean: PixelMean | MeanOfPixels
    first: _Layer
    second: _Layer
    __name__ = "gate"  # by which torch.fx names the nodes that call it

    def __call__(self, x: Tensor) -> Tensor:
        made = self._call_of(x)
        if made is None:
            return self.second(self.first(self.mean(x)))
        call, operands = made
        gates: Tensor = call(x, *operands, None)
        return gates

    def bound(self) -> Callable[[Tensor], Tensor]:
        """The gate as a function for eager calls without gradients, autocast and tracing.

        It calls the kernel's own fast call, which sees whether operands are what they were.
        """
        if not isinstance(self.mean, PixelMean):
            return self
        first, second, fast = self.first, self.second, no_call

        def gate(x: Tensor) -> Any:
            nonlocal fast
            y = fast(x, first.weight, first.bias, second.weight, second.bias, None)
            if y is None:  # the first call, or another shape than the last one's
                y = self(x)
                made = self._call_of(x)
                fast = no_call if made is None else fast_call(made[0], (x, *made[1]))
            return y
        return gate

    def launch_of(self, x: Tensor) -> Launch | None:
        """The launch that it has just made; None for layers of a folded graph, whose parameters are
        the modules' own, so that their memory may become another one."""
        made = self._call_of(x)
        if made is None or isinstance(self.first, FoldedConv):
            return None
        call, operands = made
        direct = call.takes_directly((x, *operands))
        return Launch(call, (0, *operands), call.new) if direct else None

    def _call_of(self, x: Tensor) -> tuple[PreparedCall, tuple[Tensor | None, ...]] | None:
        """The call of the kernel for a tensor, and its operands behind that; None where the steps
        are launched one by one."""
        if not self.mean.takes(x) or torch.is_grad_enabled() or x.dim() != len("nchw"):
            return None
        filters = self.first.weight, self.first.bias, self.second.weight, self.second.bias
        if any(one is not None and one.dtype is not self.mean.result_type(x) for one in filters):
            return None
        further = self.mean.further(x)
        call = gate_call(x, filters, self.activations, self.mean.backend, further)
        return None if call is None else (call, (*filters, *further))

    @property
    def activations(self) -> Any:
        """Those of both layers."""
        return self.first.activation, self.second.activation

    def problem(self, images: Mapping[str, Any]) -> ConvProblem | None:
        """The problem on *images*, a node's meta with their shape, type and layout; None where
        that has no such shape, or there is no gate of these activations."""
        conv, shape = _conv(self.first), tuple(images.get("shape", ()))
        if len(shape) != len("nchw") or 0 in shape:
            return None
        dtype, of_filters = (str(one).removeprefix("torch.") for one in (
            images["dtype"], conv.weight.dtype))
        return gate_problem(shape, conv.out_channels, dtype, images["layout"],
                            conv.bias is not None, self.activations,
                            of_filters if dtype == "int8" else None)


class _GateOnDevice(NamedTuple):
    """A gate of a graph, its nodes, and the device that it would be launched on."""

    gate: FusedGate
    nodes: tuple[fx.Node, fx.Node, fx.Node]
    device: Device

    @property
    def problem(self) -> ConvProblem | None:
        """Its problem on the images that its node has the shape of, where one launch gains."""
        problem = self.gate.problem(self.nodes[0].all_input_nodes[0].meta)
        return problem if problem is not None and gains(problem, self.device) else None


def with_gates(model: nn.Module, graph: fx.Graph, index: int | None
               ) -> tuple[fx.Graph, list[ConvProblem]]:
    """The *graph* of a model on GPU *index*, with each gate that gains by it as one node, a copy
    where there are some; and their problems. Its nodes have shapes."""
    if not any(one.problem for one in gates_in(model, graph, index)):
        return graph, []
    graph, problems = copy.deepcopy(graph), []
    for one in gates_in(model, graph, index):
        if (problem := one.problem) is not None:
            problems.append(problem)
            mean, first, second = one.nodes
            with graph.inserting_after(second):
                call = graph.call_function(one.gate, (mean.args[0],))
            call.meta.update(second.meta)
            second.replace_all_uses_with(call)
            for node in (second, first, mean):
                graph.erase_node(node)
    return graph, problems


def gates_in(model: nn.Module, graph: fx.Graph, index: int | None) -> list[_GateOnDevice]:
    """The gates of a graph that may be one launch on GPU *index*."""
    modules, gates = dict(model.named_modules()), []

    def called(node: fx.Node) -> Any:
        return modules.get(str(node.target)) if node.op == "call_module" else node.target

    for node in graph.nodes:
        mean = called(node)
        if _is_mean(mean) and (first := _only_user(node)) and (second := _only_user(first)):
            gate = FusedGate(mean, called(first), called(second))
            device = gate_device(mean.backend, index) if _is_gate(gate) else None
            if device is not None:
                gates.append(_GateOnDevice(gate, (node, first, second), device))
    return gates


def _only_user(node: fx.Node) -> fx.Node | None:
    """The one node that takes a value, and nothing else."""
    user = next(iter(node.users), None)
    alone = user is not None and len(node.users) == 1 and user.args == (node,) and not user.kwargs
    return user if alone else None


def _is_mean(called: Any) -> bool:
    """Whether it is a mean that keeps the axes of pixels."""
    if isinstance(called, PixelMean):
        return called.keep
    return isinstance(called, MeanOfPixels) and called.keepdim and launches(called)


def _is_gate(gate: FusedGate) -> bool:
    """Whether the layers are such as `dscore.ops.gate` has."""
    layers = gate.first, gate.second
    if not all(map(_is_plain, layers)):
        return False
    first, second = map(_conv, layers)
    return (first.in_channels == second.out_channels and first.out_channels == second.in_channels
            and (first.bias is None) == (second.bias is None))


def _is_plain(layer: Any) -> bool:
    """Whether it is a pointwise layer of dscore's with an activation at most."""
    if isinstance(layer, FoldedConv):
        if layer.reason or layer.residual or layer.scaled or layer.norm is not None:
            return False
    elif not (isinstance(layer, Conv2d) and launches(layer)):
        return False
    conv = _conv(layer)
    return (conv.kernel_size == (1, 1) and conv.stride == (1, 1) and conv.groups == 1
            and conv.padding in ((0, 0), "valid", "same"))


def _conv(layer: _Layer) -> nn.Conv2d:
    return layer.conv if isinstance(layer, FoldedConv) else layer
