"""Graphs of a model that is quantised: what is observed of them, and what replaces their layers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor, fx, nn
from torch.nn import functional

from dscore.calling.quantization import Quantization
from dscore.core.spec import CLAMPS, Layout
from dscore.torch.folding import FoldedConv
from dscore.torch.modules import Conv2d
from dscore.torch.quantize_modules import Dequantize, Quantize, QuantizedConv2d
from dscore.torch.quantize_values import Range, quantised_filter
from dscore.torch.rewriting import Rewriter
from dscore.torch.tracing import NotTraced, has_hooks, traced

# Takes a node, its value, and the value of its first operand where that is a node.
Observer = Callable[[fx.Node, Any, Any], None]
_BY_PYTORCH = "calibrated in floats"


class QuantizedModel(fx.GraphModule):
    """Graph of a quantised model, as a module with its `report`.

    It is a ``torch.fx.GraphModule``: its code is Python (``print(model.code)``), its modules have
    the names that they had, and it is saved and copied as a whole or by its state_dict.
    """

    report: Any = None

    def __deepcopy__(self, memo: dict[int, Any]) -> QuantizedModel:
        result: Any = super().__deepcopy__(memo)
        result.report = self.report
        return result  # type: ignore[no-any-return]

    def __reduce__(self) -> Any:
        function, arguments = super().__reduce__()[:2]
        return _loaded, (function, arguments, type(self).__name__)


def _loaded(function: Any, arguments: Any, name: str) -> QuantizedModel:
    """A quantised model of what `torch.fx` saves of it."""
    plain = function(*arguments)
    model = QuantizedModel(plain, plain.graph, name)
    model.report, model.training = vars(plain).get("report"), plain.training
    return model


class Clamping(Rewriter):
    """Rewriter that folds what a layer of int8 computes: a batch norm, relu and relu6."""

    def _takes(self, layer: FoldedConv, node: fx.Node, last: fx.Node) -> bool:
        activation = self._activation(node, self._module(node))
        is_norm = isinstance(self._module(node), nn.modules.batchnorm._BatchNorm)
        return (is_norm or activation in CLAMPS) and super()._takes(layer, node, last)

    def _scaled(self, node: Any, layer: fx.Node, conv: nn.Conv2d) -> None:
        return None

    def overwritten(self, graph: fx.Graph) -> str:
        """The name of a tensor that is changed in place and read afterwards; empty for none."""
        place = {node: number for number, node in enumerate(graph.nodes)}
        for node in graph.nodes:
            changed = self._changed(node)
            if isinstance(changed, fx.Node) and any(
                    place[user] > place[node] for user in changed.users):
                return str(changed.name)
        return ""


class Part:
    """Part of a model as a graph: the model itself, called "", or a module of it that has a graph.

    `calls` are its convolutions, by the node of each; `ranges` are those of values on calibration
    batches, `shapes` those of the inputs of calls. Raises NotTraced where the module has no graph.
    """

    def __init__(self, name: str, module: nn.Module, count: int) -> None:
        self.name, self.module, self.graph = name, module, traced(module, count)
        rewriter = Clamping(module, self.graph, lambda name, conv: "", "auto")
        if changed := rewriter.overwritten(self.graph):
            raise NotTraced(f"it reads {changed} after it has changed it in place")
        self.calls: dict[fx.Node, FoldedConv] = {}
        self.ranges: dict[fx.Node, Range] = {}
        self.shapes: dict[fx.Node, tuple[int, ...]] = {}
        for layer, node in rewriter.calls:
            layer.fold()
            layer.reason = _BY_PYTORCH
            self.calls[node] = layer

    def names(self) -> dict[fx.Node, str]:
        """A name for each call, as the model has it; of a module's further calls, with a number."""
        names: dict[fx.Node, str] = {}
        for node, layer in self.calls.items():
            name, count = layer.name, 1
            while name in names.values():
                name, count = f"{layer.name}_{count}", count + 1
            names[node] = name
        return names

    def is_int8(self, node: fx.Node, quantised: Mapping[fx.Node, Any]) -> bool:
        """Whether the result of a *quantised* layer is int8: another such layer takes it, and its
        activation is a clamp."""
        clamped = self.calls[node].activation in (None, *CLAMPS)
        return clamped and any(user in quantised for user in node.users)

    def quantised_layer(self, node: fx.Node, quantised: Mapping[fx.Node, Any],
                        backend: str = "auto") -> QuantizedConv2d:
        """The layer of int8 for a call, by the ranges of its input and its result."""
        layer, x = self.calls[node], self.ranges[node.all_input_nodes[0]]
        y = self.ranges[node] if self.is_int8(node, quantised) else None
        weight, bias, scales = quantised_filter(layer.weight, layer.bias, x.scale)
        conv = layer.conv
        return QuantizedConv2d(
            weight, bias, Quantization(x.scale, scales, y.scale if y else None, x.zero_point,
                                       y.zero_point if y else 0),
            conv.stride, conv.padding, conv.dilation, conv.groups,
            activation=layer.activation if layer.activation in CLAMPS else None,
            backend=backend)

    def rewritten(self, quantised: Mapping[fx.Node, QuantizedConv2d], layout: Layout
                  ) -> QuantizedModel:
        """The part with *quantised* layers in place of their calls, and steps at their borders."""
        _Emission(self, quantised, layout).emit()
        graph = fx.Graph()  # of PyTorch's own tracer, by which it is loaded
        graph.output(graph.graph_copy(self.graph, {}))
        return QuantizedModel(self.module, graph, type(self.module).__name__)


class Observed(nn.Module):
    """Module that runs the graph of a part, and shows an observer the value of each node."""

    def __init__(self, part: Part, observer: Observer) -> None:
        super().__init__()
        self.part, self.observer = part, observer

    def forward(self, *arguments: Any) -> Any:
        return _Run(self.part.module, self.part.graph, self.observer).run(*arguments)


class _Run(fx.Interpreter):
    def __init__(self, module: nn.Module, graph: fx.Graph, observer: Observer) -> None:
        super().__init__(module, graph=graph)
        self._observer = observer

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        operands = n.all_input_nodes
        self._observer(n, value, self.env.get(operands[0]) if operands else None)
        return value


class _Emission:
    """Emission of a part's graph: modules of int8, plain layers, and steps between the two."""

    def __init__(self, part: Part, quantised: Mapping[fx.Node, QuantizedConv2d],
                 layout: Layout) -> None:
        self._part, self._quantised, self._layout = part, quantised, layout
        self._graph, self._names = part.graph, part.names()

    def emit(self) -> None:
        part = self._part
        for value in dict.fromkeys(x for node in self._quantised for x in node.all_input_nodes):
            if not self._is_int8(value):
                self._quantise(value)
        made = {node: self._called(layer, node)
                for node, layer in self._quantised.items()}
        for node, call in made.items():
            self._dequantise(node, call)
        for node, layer in part.calls.items():
            if node not in self._quantised:
                self._called(_plain(layer), node)
        self._graph.lint()

    def _is_int8(self, value: fx.Node) -> bool:
        layer = self._quantised.get(value)
        return layer is not None and layer.quantization.y_scale is not None

    def _quantise(self, value: fx.Node) -> None:
        """Integers of a float *value* for all layers of int8 that take it."""
        range_ = self._part.ranges[value]
        name = self._names.get(value, value.name).replace(".", "_")
        step = self._after(value, f"{name}_quantize",
                           Quantize(range_.scale, range_.zero_point, self._layout))
        for node in [user for user in value.users if user in self._quantised]:
            node.replace_input_with(value, step)

    def _dequantise(self, node: fx.Node, call: fx.Node) -> None:
        """Floats of an int8 result for all but layers of int8, which take it as it is."""
        q = self._quantised[node].quantization
        if q.y_scale is None:
            return
        others = [user for user in call.users if not _is_int8_layer(self._part.module, user)]
        if others:
            name = self._names[node].replace(".", "_")
            step = self._after(call, f"{name}_dequantize",
                               Dequantize(q.y_scale, q.y_zero_point))
            for user in others:
                user.replace_input_with(call, step)

    def _called(self, module: nn.Module, node: fx.Node) -> fx.Node:
        """The call of a module in place of *node*, and of the activation that it does not have."""
        name = self._names[node]
        _set_module(self._part.module, name, module)
        with self._graph.inserting_before(node):
            call = last = self._graph.call_module(name, (node.all_input_nodes[0],))
            rest = self._part.calls[node].activation
            if rest is not None and getattr(module, "activation", None) != rest:
                last = self._graph.call_function(getattr(functional, rest), (call,))
        node.replace_all_uses_with(last)
        self._graph.erase_node(node)
        return call

    def _after(self, value: fx.Node, name: str, step: nn.Module) -> fx.Node:
        _set_module(self._part.module, name, step)
        first = value
        while value.op == "placeholder" and first.next.op == "placeholder":
            first = first.next
        with self._graph.inserting_after(first):
            return self._graph.call_module(name, (value,))


def _is_int8_layer(module: nn.Module, node: fx.Node) -> bool:
    return node.op == "call_module" and isinstance(module.get_submodule(str(node.target)),
                                                   QuantizedConv2d)


def _plain(layer: FoldedConv) -> nn.Conv2d:
    """The layer in floats, of the class that it was, with the batch norm folded into it."""
    conv = copy.deepcopy(layer.conv)
    conv.weight = nn.Parameter(layer.weight.detach().clone(), requires_grad=False)
    conv.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach().clone(),
                                                             requires_grad=False)
    if isinstance(conv, Conv2d):
        conv.activation = layer.activation  # type: ignore[assignment]
    return conv


def _set_module(root: nn.Module, name: str, module: nn.Module) -> None:
    """Give *root* a module of a name with dots, whatever it had there."""
    *path, last = name.split(".")
    parent = root
    for step in path:
        parent = getattr(parent, step)
    setattr(parent, last, module.train(root.training))


def parts_of(model: nn.Module, seen: Mapping[str, tuple[Any, ...]]
             ) -> tuple[list[Part], dict[str, str]]:
    """The parts of a model, and by name why a module has no graph; *seen*: its calls' arguments."""
    parts: list[Part] = []
    unfolded: dict[str, str] = {}

    def find(name: str, module: nn.Module) -> None:
        if name not in seen or not any(isinstance(one, nn.Conv2d) for one in module.modules()):
            return
        if isinstance(module, nn.Conv2d) or (name and has_hooks(module)):
            return
        try:
            parts.append(Part(name, module, len(seen[name])))
        except NotTraced as failed:
            unfolded[name] = str(failed)
            for child_name, child in module.named_children():
                find(f"{name}.{child_name}".lstrip("."), child)
    find("", model)
    return parts, unfolded


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors of a model's result."""
    from torch.utils._pytree import tree_leaves

    return (one for one in tree_leaves(value) if isinstance(one, Tensor))
