"""Emission of a quantised graph: modules of int8, plain layers, and steps between the two."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import fx, nn
from torch.nn import functional

from dscore.core.spec import Layout
from dscore.torch.linear import Linear
from dscore.torch.modules import Conv2d
from dscore.torch.quantize_gates import GateConv2d, GateMean, gates_of
from dscore.torch.quantize_graph import Part, QuantizedModel
from dscore.torch.quantize_layers import Fused
from dscore.torch.quantize_modules import QuantizedConv2d
from dscore.torch.quantize_moves import reads_shape
from dscore.torch.quantize_pooling import MeanOfPixels
from dscore.torch.quantize_steps import Dequantize, OfFloats, Quantize
from dscore.torch.tracing import has_hooks


def rewritten(part: Part, quantised: Mapping[fx.Node, QuantizedConv2d], layout: Layout,
              backend: str) -> QuantizedModel:
    """The part with *quantised* layers in place of their calls, and steps at their borders."""
    _Emission(part, quantised, layout, backend).emit()
    graph = fx.Graph()  # of PyTorch's own tracer, by which it is loaded
    graph.output(graph.graph_copy(part.graph, {}))
    return QuantizedModel(part.module, graph, type(part.module).__name__)


class _Emission:
    """Emission of a part's graph.

    The values of the float graph are known by its nodes: `floats` are the nodes that now have them,
    where these are others, and `integers` those of their integers.
    """

    def __init__(self, part: Part, quantised: Mapping[fx.Node, QuantizedConv2d],
                 layout: Layout, backend: str) -> None:
        self._part, self._quantised, self._layout = part, quantised, layout
        self._graph, self._names, self._backend = part.graph, part.names(), backend
        self._gates, self._passing = gates_of(part, quantised), set(part.passing(quantised))
        self._floats: dict[fx.Node, fx.Node] = {}
        self._integers: dict[fx.Node, fx.Node] = {}
        self._laid: dict[fx.Node, fx.Node] = {}  # integers that lie with their channels last
        self._replaced: list[fx.Node] = []

    def emit(self) -> None:
        """Put what is new before what it replaces, in the order of the graph; then take that out,
        from the end on."""
        calls = self._part.calls
        layers = {one.last: one for node, one in calls.items() if node in self._quantised}
        for node in list(self._graph.nodes):
            if node in layers:
                self._emit_layer(layers[node])
            elif node in calls and node not in self._quantised:
                self._emit_plain(calls[node])
            elif node in self._part.pools and any(
                    node.all_input_nodes[0] in made for made in (layers, self._passing)):
                self._emit_mean(node)
            elif node in self._passing:
                self._emit_step(node)
        for node in reversed(self._replaced):
            for reader in filter(reads_shape, list(node.users)):
                reader.replace_input_with(node, self._integers.get(node) or self._floats[node])
            if node.users:
                node.replace_all_uses_with(self._float(node))
            self._graph.erase_node(node)
        self._take_linears()
        self._graph.lint()

    def _take_linears(self) -> None:
        """Linear layers by dscore, with the parameters that they have."""
        modules = dict(self._part.module.named_modules())
        called = {str(node.target) for node in self._graph.nodes if node.op == "call_module"}
        for name in called:
            if type(module := modules.get(name)) is nn.Linear and not has_hooks(module):
                _set_module(self._part.module, name, Linear.of(module, self._backend))

    def _emit_layer(self, one: Fused) -> None:
        """The layer of int8 behind what it takes."""
        layer, operands = self._quantised[one.node], [self._images(one.taken, one.last)]
        if one.other is not None or one.scale is not None:
            other = None if one.other is None else self._images(one.other, one.last)
            scale = None if one.scale is None else self._floats.get(one.scale, one.scale)
            operands += [other, scale]  # type: ignore[list-item]
        call = self._called(self._names[one.node], layer, *operands, before=one.last)
        values = self._floats if layer.quantization.y_scale is None else self._integers
        values[one.last] = call
        self._replaced += sorted(one.nodes)

    def _emit_plain(self, one: Fused) -> None:
        """A layer of floats, and its activation; of one pixel both are dscore's."""
        name, node, activation = self._names[one.node], one.node, one.layer.activation
        if self._part.is_single(node):
            node, activation = one.last, one.activation
            kind = GateConv2d if one.node in self._gates else Conv2d
            last = self._called(name, _of_dscore(one, self._backend, kind), one.x, before=node)
        else:
            conv = _plain(one)
            last = self._called(name, conv, one.x, before=node)
            if activation is not None and getattr(conv, "activation", None) != activation:
                with self._graph.inserting_before(node):
                    last = self._graph.call_function(getattr(functional, activation), (last,))
        self._floats[node] = last
        self._replaced += sorted({one.node, node})

    def _emit_mean(self, node: fx.Node) -> None:
        """The mean over pixels of integers."""
        images = node.all_input_nodes[0]
        if images not in self._integers:
            return
        range_ = self._part.ranges[images]
        kind = GateMean if node in self._gates else MeanOfPixels
        mean = kind(range_.scale, range_.zero_point, self._part.pools[node], self._backend)
        self._floats[node] = self._called(self._part.free(f"{node.name}_of_pixels"), mean,
                                          self._images(images, node), before=node)
        self._replaced.append(node)

    def _emit_step(self, node: fx.Node) -> None:
        """The same step of integers."""
        given = {value: self._integer(value, node) for value in self._part.moves.of(node)}
        with self._graph.inserting_before(node):
            self._integers[node] = self._graph.node_copy(node, lambda one: given.get(one, one))
        self._replaced.append(node)

    def _images(self, value: fx.Node, before: fx.Node) -> fx.Node:
        """Integers of a *value* as a layer takes them: a step may have left channels elsewhere."""
        q = self._integer(value, before)
        last = self._layout == "nhwc" and len(value.meta.get("shape", ())) == len("nhwc")
        if not last or value not in self._passing or self._part.moves.keep_layout(value):
            return q
        if value not in self._laid:
            with self._graph.inserting_before(before):
                self._laid[value] = self._graph.call_method(
                    "contiguous", (q,), {"memory_format": torch.channels_last})
        return self._laid[value]

    def _integer(self, value: fx.Node, before: fx.Node) -> fx.Node:
        """Integers of a *value*, made of floats once where it has none."""
        if value not in self._integers:
            range_ = self._part.ranges[value]
            step = Quantize(range_.scale, range_.zero_point, self._layout)
            self._integers[value] = self._called(
                self._step_name(value, "quantize"), step, self._floats.get(value, value),
                before=before)
        return self._integers[value]

    def _float(self, value: fx.Node) -> fx.Node:
        """The floats of a value of the float graph, for what stays of it."""
        if value not in self._floats:
            range_, q = self._part.ranges[value], self._integers[value]
            self._floats[value] = self._called(
                self._step_name(value, "dequantize"), Dequantize(range_.scale, range_.zero_point),
                q, before=q.next)
        return self._floats[value]

    def _step_name(self, value: fx.Node, what: str) -> str:
        named = {one.last: self._names[node] for node, one in self._part.calls.items()}
        name = named.get(value, value.name).replace(".", "_")
        return self._part.free(f"{name}_{what}")

    def _called(self, name: str, module: nn.Module, *operands: fx.Node, before: fx.Node) -> fx.Node:
        weight = next(iter(self._part.calls.values())).layer.weight
        if isinstance(module, OfFloats):  # whose results are of the type that the model is of
            module.to(weight.device, weight.dtype)
        _set_module(self._part.module, name, module)
        while before.op == "placeholder":
            before = before.next
        with self._graph.inserting_before(before):
            return self._graph.call_module(name, operands)


def _plain(one: Fused) -> nn.Conv2d:
    """The layer in floats, of the class that it was, with the batch norm folded into it."""
    layer = one.layer
    conv = copy.deepcopy(layer.conv)
    conv.weight = nn.Parameter(layer.weight.detach().clone(), requires_grad=False)
    conv.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach().clone(),
                                                             requires_grad=False)
    if isinstance(conv, Conv2d):
        conv.activation = layer.activation  # type: ignore[assignment]
    return conv


def _of_dscore(one: Fused, backend: str, kind: type[Conv2d]) -> Conv2d:
    """The layer in floats with its activation, by dscore on a GPU, as a module of a *kind*."""
    plain = _plain(one)
    conv = kind(plain.in_channels, plain.out_channels, plain.kernel_size, plain.stride,
                plain.padding, plain.dilation, plain.groups, plain.bias is not None,
                device=plain.weight.device, dtype=plain.weight.dtype,
                activation=one.activation, backend=backend)  # type: ignore[arg-type]
    conv.weight, conv.bias = plain.weight, plain.bias
    return conv.to(plain.weight.dtype)  # by which a gate becomes float16


def _set_module(root: nn.Module, name: str, module: nn.Module) -> None:
    """Give *root* a module of a name with dots, whatever it had there."""
    *path, last = name.split(".")
    parent = root
    for step in path:
        parent = getattr(parent, step)
    setattr(parent, last, module.train(root.training))
