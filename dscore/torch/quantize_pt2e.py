"""Models that torchao's pt2e flow has quantised: their layers of int8 by dscore, of equal scales.

Their graphs compute with floats that stand for integers: each convolution takes the results of
dequantize_per_tensor and dequantize_per_channel, and quantize_per_tensor takes its own. The
operators are those of torch.ops.quantized_decomposed, matched here by their names.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from dscore.calling.quantization import Quantization
from dscore.core.errors import SpecError, require_one_of, shown
from dscore.core.problem import ConvProblem
from dscore.core.spec import LAYOUTS, Activation, ConvSpec, Kind, Layout
from dscore.core.token import problem_token
from dscore.torch.accelerate import gpu_of
from dscore.torch.quantize_choice import reason_of_gain
from dscore.torch.quantize_graph import QuantizedModel
from dscore.torch.quantize_modules import Dequantize, Quantize, QuantizedConv2d
from dscore.torch.quantize_report import QuantizationReport, QuantizedLayer, plan_name
from dscore.torch.quantize_values import LEAST, MOST, Range, quantised_bias
from dscore.torch.setting import Setting

_OPERATORS = "quantized_decomposed."
_RELUS = {"aten.relu.default": "relu", "aten.relu_.default": "relu",
          "aten.hardtanh.default": "relu6", "aten.hardtanh_.default": "relu6"}
# Of the whole range of a type: what is added to its integers to have those of int8.
_SHIFTS = {(torch.int8, LEAST, MOST): 0, (torch.uint8, 0, MOST - LEAST): LEAST}
_CONVOLUTION = "aten.conv2d.default"


def from_pt2e(model: nn.Module, *, kinds: Sequence[Kind] | None = None, layout: Layout = "nhwc",
              backend: str = "auto") -> Any:
    """Copy of a model of `convert_pt2e` whose convolutions are dscore's, of int8.

    Weights are int8 with zero points of zero, for each output channel or for all; images int8 or
    uint8 of their whole range, where uint8 becomes int8 by 128 less. relu and hardtanh from 0 to 6
    become part of the layers. The scales are those of the graph. A bias of floats becomes int32,
    which is within half of ``x_scale * w_scale``.

    *kinds*, *layout*, *backend*: those of `quantize`. Returns a model with a `report`; convolutions
    that are quantised otherwise, or not at all, stay as they are, and the report says why.

    Raises SpecError for what is no such graph.

    >>> import torch.ao.quantization.fx._decomposed  # what torchao imports
    >>> ops, graph, root = torch.ops.quantized_decomposed, fx.Graph(), nn.Module()
    >>> root.register_buffer("w", torch.ones(4, 1, 3, 3, dtype=torch.int8))
    >>> def step(name, x, scale):
    ...     return graph.call_function(getattr(ops, name + "_per_tensor").default,
    ...                                (x, scale, 0, -128, 127, torch.int8))
    >>> x = step("dequantize", step("quantize", graph.placeholder("x"), 0.1), 0.1)
    >>> w = step("dequantize", graph.get_attr("w"), 0.5)
    >>> y = graph.call_function(torch.ops.aten.conv2d.default,
    ...                         (x, w, None, [1, 1], [1, 1], [1, 1], 4))
    >>> _ = graph.output(step("dequantize", step("quantize", y, 0.2), 0.2))
    >>> taken = from_pt2e(fx.GraphModule(root, graph))
    >>> [(layer.name, layer.result) for layer in taken.report.layers]
    [('conv2d_default', 'int8')]
    >>> taken(torch.ones(1, 4, 3, 3))[0, 0, 0]
    tensor([2., 3., 2.])
    """
    if not isinstance(model, fx.GraphModule):
        raise SpecError("a model of convert_pt2e is a torch.fx.GraphModule, got "
                        f"{shown(type(model).__name__)}; dscore.torch.quantize takes other models")
    require_one_of(layout, "layout", LAYOUTS)
    if not any(_is(node, "dequantize_per_tensor") for node in model.graph.nodes):
        raise SpecError("the graph has no dequantize_per_tensor: quantise the model by torchao's "
                        "prepare_pt2e and convert_pt2e first, or by dscore.torch.quantize")
    model = copy.deepcopy(model)
    setting = Setting(backend, gpu_of(model))
    rows = [_taken(model, node, setting, kinds, layout) for node in list(model.graph.nodes)
            if str(node.target).startswith("aten.conv2d.")]
    _replace_steps(model, layout)
    result = QuantizedModel(model, model.graph, type(model).__name__)
    steps = [type(one) for one in result.modules()]
    result.report = QuantizationReport(
        setting.device.name, tuple(rows), steps.count(Quantize), steps.count(Dequantize),
        note=setting.note)
    return result


class _Images(NamedTuple):
    """Images of a graph: the node of their integers, and what these stand for in int8."""

    node: fx.Node
    scale: float
    zero_point: int

    @property
    def value(self) -> Any:
        """A tensor of their shape, where the export has left one."""
        nodes = self.node, *self.node.all_input_nodes
        return next((one.meta["val"] for one in nodes if "val" in one.meta), None)

    @property
    def range(self) -> Range:
        """The values that the integers stand for."""
        return Range((LEAST - self.zero_point) * self.scale, (MOST - self.zero_point) * self.scale)


@dataclass(frozen=True)
class _Layer:
    """Layer that is matched: its nodes, from the convolution to the *last*, and its constants."""

    x: _Images
    y: _Images | None
    last: fx.Node
    weight: Tensor
    w_scale: Tensor
    bias: Tensor | None
    options: tuple[Any, Any, Any, int]
    activation: Activation | None

    @property
    def module(self) -> QuantizedConv2d:
        q = Quantization(self.x.scale, self.w_scale.tolist(), self.y and self.y.scale,
                         self.x.zero_point, self.y.zero_point if self.y else 0)
        bias = quantised_bias(self.bias, self.x.scale, self.w_scale)
        return QuantizedConv2d(self.weight, bias, q, *self.options, activation=self.activation)

    def problem(self, shape: Sequence[int], layout: Layout) -> ConvProblem:
        """The layer's problem on images of a *shape*."""
        outs, group_in, *kernel = self.weight.shape
        stride, padding, dilation, groups = self.options
        activation = self.activation if self.y is None else None
        spec = ConvSpec.make(
            group_in * groups, outs, tuple(kernel), stride=stride, padding=padding,
            dilation=dilation, groups=groups, dtype="int8", layout=layout, activation=activation,
            bias=self.bias is not None, out_dtype="int8" if self.y else "float32")
        return ConvProblem(spec, int(shape[0]), int(shape[2]), int(shape[3]))


def _taken(model: fx.GraphModule, node: fx.Node, setting: Setting, kinds: Sequence[Kind] | None,
           layout: Layout) -> QuantizedLayer:
    """The report on a convolution, which is a layer of int8 then, where it can be one."""
    name = _path(node)
    layer = _matched(model, node)
    if isinstance(layer, str):
        return QuantizedLayer(name, "", layer)
    value = layer.x.value
    try:
        problem = layer.problem((1, 0, 1024, 1024) if value is None else value.shape, layout)
    except SpecError as error:
        return QuantizedLayer(name, "", str(error))
    kind = problem.spec.kind
    if reason := reason_of_gain(problem, kinds):
        return QuantizedLayer(name, kind, reason)
    module = layer.module
    module.backend = setting.name
    graph, target = model.graph, f"{node.name}_int8"
    model.add_submodule(target, module.to(layer.weight.device).train(model.training))
    with graph.inserting_after(layer.last):
        call = graph.call_module(target, (layer.x.node,))
    call.meta.update(node.meta)
    layer.last.replace_all_uses_with(call)
    _erase_unused(graph, layer.last)
    token, plan = ("", "") if value is None else (problem_token(problem),
                                                  plan_name(setting, problem))
    return QuantizedLayer(name, kind, "", token, (layer.activation,) if layer.activation else (),
                          layer.x.range, layer.y.range if layer.y else None, None,
                          module.quantization.result, plan)


def _matched(model: fx.GraphModule, node: fx.Node) -> _Layer | str:
    """The layer of a convolution's node, or why it is none."""
    if str(node.target) != _CONVOLUTION or node.kwargs:
        return f"{node.target} is not matched"
    x, w, bias, stride, padding, dilation, groups = (
        *node.args, *(None, [1, 1], [0, 0], [1, 1], 1)[len(node.args) - 2:])
    images, filters = _images(model, x), _filters(model, w)
    if images is None:
        return "its input is not dequantised from the whole range of int8 or uint8"
    if filters is None:
        return "its filter is not dequantised from int8 with zero points of zero"
    values = None if bias is None else _constant(model, bias)
    if bias is not None and values is None:
        return "its bias is no constant"
    last, activation = node, None
    if (relu := _only_user(last)) is not None and str(relu.target) in _RELUS:
        name = _RELUS[str(relu.target)]
        if name == "relu" or tuple(relu.args[1:]) == (0.0, 6.0):
            last, activation = relu, name
    y = _made(_only_user(last))
    weight, scale = filters
    options = *(tuple(one) for one in (stride, padding, dilation)), int(groups)
    return _Layer(images, y, last if y is None else y.node, weight, scale.expand(len(weight)),
                  values, options, activation)  # type: ignore[arg-type]


def _is(node: Any, name: str) -> bool:
    return isinstance(node, fx.Node) and str(node.target) == f"{_OPERATORS}{name}.default"


def _step(node: Any, name: str) -> _Images | None:
    """What a quantize_per_tensor or dequantize_per_tensor states; None for narrower ranges."""
    if not _is(node, name) or node.kwargs:
        return None
    scale, zero_point, least, most, dtype = node.args[1:]
    shift = _SHIFTS.get((dtype, least, most))
    return None if shift is None else _Images(node, float(scale), int(zero_point) + shift)


def _made(node: Any) -> _Images | None:
    """Integers that a quantize_per_tensor makes for nodes that dequantise them, and for no other.
    """
    made = _step(node, "quantize_per_tensor")
    if made is None:
        return None
    backs = [_step(user, "dequantize_per_tensor") for user in node.users]
    equal = all(back is not None and (back.scale, back.zero_point) == (made.scale, made.zero_point)
                for back in backs)
    return made if equal else None


def _images(model: fx.GraphModule, x: Any) -> _Images | None:
    """Integers that a node dequantises, of a quantize_per_tensor or of a layer of int8."""
    back = _step(x, "dequantize_per_tensor")
    if back is None:
        return None
    source: Any = x.args[0]
    layer = model.get_submodule(source.target) if source.op == "call_module" else None
    if isinstance(layer, QuantizedConv2d):
        q = layer.quantization
        return _Images(source, *back[1:]) if (q.y_scale, q.y_zero_point) == back[1:] else None
    return _made(source)


def _filters(model: fx.GraphModule, w: Any) -> tuple[Tensor, Tensor] | None:
    """The int8 filter that a node dequantises, and its scales in float64."""
    if _is(w, "dequantize_per_channel"):
        _, scale, zero, axis, *_, dtype = w.args
        scales, zeros = _constant(model, scale), _constant(model, zero)
    elif _is(w, "dequantize_per_tensor"):
        _, scale, zero, *_, dtype = w.args
        axis, scales, zeros = 0, torch.tensor([scale]), torch.tensor([zero])
    else:
        return None
    weight = _constant(model, w.args[0])
    if (dtype is not torch.int8 or axis or weight is None or weight.dtype is not torch.int8
            or scales is None or zeros is None or bool(zeros.any())):
        return None
    return weight, scales.detach().double()


def _constant(model: fx.GraphModule, node: Any) -> Tensor | None:
    """The value of a constant, or of a filter that is quantised at each call."""
    if not isinstance(node, fx.Node):
        return None
    if node.op == "get_attr":
        return attrgetter(str(node.target))(model)  # type: ignore[no-any-return]
    if node.op != "call_function" or not str(node.target).startswith(f"{_OPERATORS}quantize_per_"):
        return None
    args = [_constant(model, one) if isinstance(one, fx.Node) else one for one in node.args]
    unknown = any(one is None for one in args)
    return None if unknown else node.target(*args, **node.kwargs)  # type: ignore[operator]


def _only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _replace_steps(model: fx.GraphModule, layout: Layout) -> None:
    """Give the graph dscore's steps where its own have integers that layers of int8 take or make.
    """
    graph = model.graph
    layers = [node for node in graph.nodes if node.op == "call_module"
              and isinstance(model.get_submodule(str(node.target)), QuantizedConv2d)]
    for source in dict.fromkeys(one for node in layers for one in (node, *node.all_input_nodes)):
        made = _step(source, "quantize_per_tensor")
        for user in list(source.users):
            back = _step(user, "dequantize_per_tensor")
            if back is not None:
                _call(model, user, Dequantize(back.scale, back.zero_point), source)
        if made is not None:
            _call(model, source, Quantize(made.scale, made.zero_point, layout), source.args[0])


def _call(model: fx.GraphModule, node: fx.Node, module: nn.Module, x: Any) -> None:
    """Replace *node* by the call of a module of *x*."""
    model.add_submodule(f"{node.name}_int8", module.train(model.training))
    with model.graph.inserting_before(node):
        call = model.graph.call_module(f"{node.name}_int8", (x,))
    call.meta.update(node.meta)
    node.replace_all_uses_with(call)
    _erase_unused(model.graph, node)


def _erase_unused(graph: fx.Graph, node: fx.Node) -> None:
    """Erase a node that nothing uses, and then what was only for it."""
    if node.users or node.op in ("placeholder", "output"):
        return
    operands = node.all_input_nodes
    graph.erase_node(node)
    for operand in operands:
        if operand.op == "get_attr" or str(operand.target).startswith((_OPERATORS, "aten.")):
            _erase_unused(graph, operand)


def _path(node: fx.Node) -> str:
    """The name of the module that a node comes from, as the export states it, else the node's."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()), ("",))[0] if stack else ""
    return str(path).removeprefix("L['self'].") or str(node.name)
