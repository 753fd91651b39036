"""Matching of convolutions in graphs of torchao's pt2e flow: what of them is a layer of int8.

A convolution takes the results of dequantize_per_tensor and dequantize_per_channel, and
quantize_per_tensor takes its own. The operators, those of torch.ops.quantized_decomposed, are known
by their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from dscore.calling.quantization import Quantization
from dscore.core.problem import ConvProblem
from dscore.core.spec import Activation, ConvSpec, Layout
from dscore.torch.quantize_modules import QuantizedConv2d
from dscore.torch.quantize_values import LEAST, MOST, Range, quantised_bias

OPERATORS = "quantized_decomposed."
_RELUS = {"aten.relu.default": "relu", "aten.relu_.default": "relu",
          "aten.hardtanh.default": "relu6", "aten.hardtanh_.default": "relu6"}
# Of the whole range of a type: what is added to its integers to have those of int8.
_SHIFTS = {(torch.int8, LEAST, MOST): 0, (torch.uint8, 0, MOST - LEAST): LEAST}
_CONVOLUTION = "aten.conv2d.default"


class Images(NamedTuple):
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
class MatchedLayer:
    """Layer that is matched: its nodes, from the convolution to the *last*, and its constants."""

    x: Images
    y: Images | None
    last: fx.Node
    weight: Tensor
    w_scale: Tensor
    bias: Tensor | None
    options: tuple[Any, Any, Any, int]
    activation: Activation | None

    @property
    def module(self) -> QuantizedConv2d:
        """The layer of int8."""
        q = Quantization(self.x.scale, tuple(self.w_scale.tolist()),
                         self.y.scale if self.y else None,
                         self.x.zero_point, self.y.zero_point if self.y else 0)
        bias = quantised_bias(self.bias, self.x.scale, self.w_scale)
        layer = QuantizedConv2d(self.weight, bias, q, *self.options, activation=self.activation)
        return layer.move_zero_point_to_bias()

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


def matched(model: fx.GraphModule, node: fx.Node) -> MatchedLayer | str:
    """The layer of a convolution's node, or why it is none."""
    if str(node.target) != _CONVOLUTION or node.kwargs:
        return f"{node.target} is not matched"
    defaults: tuple[Any, ...] = (None, [1, 1], [0, 0], [1, 1], 1)
    arguments: tuple[Any, ...] = (*node.args, *defaults[len(node.args) - 2:])
    x, w, bias, stride, padding, dilation, groups = arguments
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
    options = tuple(stride), tuple(padding), tuple(dilation), int(groups)
    return MatchedLayer(images, y, last if y is None else y.node, weight, scale.expand(len(weight)),
                  values, options, activation)  # type: ignore[arg-type]


def is_step(node: Any, name: str) -> bool:
    return isinstance(node, fx.Node) and str(node.target) == f"{OPERATORS}{name}.default"


def step_of(node: Any, name: str) -> Images | None:
    """What a quantize_per_tensor or dequantize_per_tensor states; None for narrower ranges."""
    if not is_step(node, name) or node.kwargs:
        return None
    scale, zero_point, least, most, dtype = node.args[1:]
    shift = _SHIFTS.get((dtype, least, most))
    return None if shift is None else Images(node, float(scale), int(zero_point) + shift)


def _made(node: Any) -> Images | None:
    """Integers that a quantize_per_tensor makes for nodes that dequantise them, and for no other.
    """
    made = step_of(node, "quantize_per_tensor")
    if made is None:
        return None
    backs = [step_of(user, "dequantize_per_tensor") for user in node.users]
    equal = all(back is not None and (back.scale, back.zero_point) == (made.scale, made.zero_point)
                for back in backs)
    return made if equal else None


def _images(model: fx.GraphModule, x: Any) -> Images | None:
    """Integers that a node dequantises, of a quantize_per_tensor or of a layer of int8."""
    back = step_of(x, "dequantize_per_tensor")
    if back is None:
        return None
    source: Any = x.args[0]
    layer = model.get_submodule(source.target) if source.op == "call_module" else None
    if isinstance(layer, QuantizedConv2d):
        q = layer.quantization
        return Images(source, *back[1:]) if (q.y_scale, q.y_zero_point) == back[1:] else None
    return _made(source)


def _filters(model: fx.GraphModule, w: Any) -> tuple[Tensor, Tensor] | None:
    """The int8 filter that a node dequantises, and its scales in float64."""
    if is_step(w, "dequantize_per_channel"):
        _, scale, zero, axis, *_, dtype = w.args
        scales, zeros = _constant(model, scale), _constant(model, zero)
    elif is_step(w, "dequantize_per_tensor"):
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
    if node.op != "call_function" or not str(node.target).startswith(f"{OPERATORS}quantize_per_"):
        return None
    args = [_constant(model, one) if isinstance(one, fx.Node) else one for one in node.args]
    unknown = any(one is None for one in args)
    return None if unknown else node.target(*args, **node.kwargs)  # type: ignore[operator]


def _only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None
