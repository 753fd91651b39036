"""Choice of the layers that become int8: by their kind, by the caller, and by their error."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import torch
from torch import Tensor, fx, nn

from dscore.algorithms.direct import Direct
from dscore.algorithms.registry import running
from dscore.calling.gates import gains
from dscore.core.device import Device
from dscore.core.errors import SpecError, require_one_of
from dscore.core.problem import ConvProblem
from dscore.core.spec import CLAMPS, Kind, Layout
from dscore.torch.folding import spec_of
from dscore.torch.quantize_calibration import Calibration, root, squares
from dscore.torch.quantize_entry import Entry
from dscore.torch.quantize_gates import GATE_TYPE, fused_problems, gates_of
from dscore.torch.quantize_graph import Part
from dscore.torch.quantize_layers import Fused
from dscore.torch.quantize_modules import QuantizedConv2d
from dscore.torch.quantize_pooling import mean_problem
from dscore.torch.quantize_steps import Dequantize, Quantize
from dscore.torch.setting import Setting
from dscore.torch.survey import GAINING


@dataclass(frozen=True)
class Wishes:
    """What the caller of `quantize` asks for (its arguments)."""

    error_limit: float
    kinds: Sequence[Kind] | None
    keep: Collection[str]
    layout: Layout
    backend: str

    def require_of(self, model: nn.Module) -> None:
        """Raise SpecError for kinds and names that there are not."""
        for kind in self.kinds or ():
            require_one_of(kind, "a kind", get_args(Kind))
        convs = tuple(name for name, one in model.named_modules() if isinstance(one, nn.Conv2d))
        for name in [self.keep] if isinstance(self.keep, str) else self.keep:
            require_one_of(name, "a name in keep", convs)

    def reason(self, part: Part, node: fx.Node) -> str:
        """Why a call stays in floats whatever its error; empty where nothing speaks for that."""
        layer = part.calls[node].layer
        kept = [self.keep] if isinstance(self.keep, str) else self.keep
        if full_name(part, layer.name) in kept:
            return "the caller keeps it"
        if layer.conv.padding_mode != "zeros":
            return f"pads by {layer.conv.padding_mode} values"
        try:
            problem = problem_of(part, node, self.layout, "int8")
        except SpecError as error:
            return str(error)
        return reason_of_gain(problem, self.kinds)


def reason_of_gain(problem: ConvProblem, kinds: Sequence[Kind] | None) -> str:
    """Why a layer that can be of int8 would not gain by it; *kinds* are those asked for."""
    kind = problem.spec.kind
    if kinds is not None:
        return "" if kind in kinds else f"{kind}: was not asked for"
    if kind not in GAINING and all(one.name == Direct.name for one in running(problem)):
        return f"{kind}: dscore has only the definition itself in int8"
    single = problem.height * problem.width == 1
    return "an image of one pixel: its conversion takes longer than the layer" * single


@dataclass
class Choice:
    """Choice for all parts: layers of int8 by their calls, errors, and reasons for floats."""

    layers: dict[fx.Node, QuantizedConv2d] = field(default_factory=dict)
    errors: dict[fx.Node, float] = field(default_factory=dict)
    reasons: dict[fx.Node, str] = field(default_factory=dict)

    def problem(self, part: Part, node: fx.Node, layout: Layout) -> ConvProblem:
        """The problem of a layer of int8, on the first calibration batch."""
        return problem_of(part, node, layout, self.layers[node].quantization.result)

    def of(self, part: Part) -> dict[fx.Node, QuantizedConv2d]:
        """The layers of a part."""
        return {node: layer for node, layer in self.layers.items() if node in part.calls}


def choice_of(calibration: Calibration, wishes: Wishes, setting: Setting) -> Choice:
    """The choice by what the caller wishes, and by the errors on the calibration batches.

    A layer whose error is above the limit is taken out. Where its result has the scale of what a
    step joins it with, the result becomes floats first. Both change what is int8 before the layer
    or behind it, so that errors are measured again until none is above the limit. Kernels of
    the *setting* are prepared beforehand.
    """
    choice = Choice()
    calls = [(part, node) for part in calibration.parts for node in part.calls]
    choice.reasons = {node: reason for part, node in calls
                      if (reason := wishes.reason(part, node))}
    while True:
        candidates = {node: None for _, node in calls if node not in choice.reasons}
        choice.layers = {node: _layer(part, node, candidates, wishes.backend)
                         for part, node in calls if node in candidates}
        setting.prepare([*(choice.problem(part, node, wishes.layout)
                           for part, node in calls if node in candidates),
                         *(one for part in calibration.parts
                           for one in _beside(part, candidates, wishes.layout, setting.device)),
                         *(one for part in calibration.parts
                           for one in _entries(part, choice, wishes.layout, setting.device))])
        choice.errors.update(_errors(calibration, choice, wishes.layout))
        above = [(part, node) for part, node in calls if node in choice.layers
                 and not choice.errors[node] <= wishes.error_limit]
        if not above:
            return choice
        for part, node in above:
            if part.may_set_apart(node, candidates):
                part.apart.add(node)
            else:
                choice.reasons[node] = f"its error is above the limit of {wishes.error_limit:.2%}"


def _beside(part: Part, quantised: Collection[fx.Node], layout: Layout, device: Device
            ) -> Iterator[ConvProblem]:
    """The problems of what dscore computes beside *quantised* layers: means over pixels, layers in
    floats on images of one pixel, as in squeeze-and-excitation, and gates that are one launch."""
    gates = gates_of(part, quantised)
    yield from (one for one in fused_problems(part, gates, layout) if gains(one, device))
    for node in part.pools:
        images = node.all_input_nodes[0].meta
        dtype = GATE_TYPE if node in gates else images["dtype"]
        yield mean_problem(images["shape"], layout, dtype)
    for node, one in part.calls.items():
        if part.is_single(node):
            weight, (batch, *_) = one.layer.weight, part.shapes[node]
            dtype = GATE_TYPE if node in gates else weight.dtype
            yield ConvProblem(spec_of(one.layer.conv, dtype, activation=one.activation,
                                      bias=one.layer.bias is not None), batch, 1, 1)


def _entries(part: Part, choice: Choice, layout: Layout, device: Device) -> Iterator[ConvProblem]:
    """The problems of layers that quantise a part's inputs, where one launch does that."""
    for node, layer in choice.of(part).items():
        given, shape = part.calls[node].taken, part.shapes[node]
        if given.op == "placeholder" and len(shape) == len("nchw"):
            range_ = part.ranges[given]
            entry = Entry(Quantize(range_.scale, range_.zero_point, layout), layer)
            if entry.whole and entry.is_launch_on(device):
                yield entry.problem(shape, str(given.meta["dtype"]).removeprefix("torch."))


def _layer(part: Part, node: fx.Node, candidates: Mapping[fx.Node, Any], backend: str
           ) -> QuantizedConv2d:
    """A layer of int8 that lies where the layer in floats does."""
    weight = part.calls[node].layer.weight
    return part.quantised_layer(node, candidates, backend).to(weight.device, weight.dtype)


def _errors(calibration: Calibration, choice: Choice, layout: Layout) -> dict[fx.Node, float]:
    """The relative error of each layer of int8, on the inputs that it has in floats."""
    sums = dict.fromkeys(choice.layers, (0.0, 0.0))
    owners = {member: one for part in calibration.parts for node, one in part.calls.items()
              if node in choice.layers for member in one.nodes}
    held: dict[Fused, dict[fx.Node, Any]] = {}

    def observe(node: fx.Node, value: Any, operands: dict[fx.Node, Any]) -> None:
        one = owners.get(node)
        if one is None:
            return
        held.setdefault(one, {}).update(operands)
        if node is one.last:
            values = held.pop(one)
            x, *others = (operand and values[operand] for operand in one.operands)
            y = _quantised_result(choice.layers[one.node], layout, x, *others)  # type: ignore[arg-type]
            sums[one.node] = tuple(  # type: ignore[assignment]
                map(sum, zip(sums[one.node], squares(y, value), strict=True)))

    for _ in calibration.results(observe):
        pass
    return {node: root(*both) for node, both in sums.items()}


def _quantised_result(layer: QuantizedConv2d, layout: Layout, x: Tensor, residual: Tensor | None,
                      scale: Tensor | None) -> Tensor:
    """The result of a layer of int8 for operands in floats, in floats."""
    q = layer.quantization
    of_x = (q.x_scale, q.x_zero_point) if scale is None else (q.input_scale, q.input_zero_point)
    added = None if residual is None else Quantize(
        q.residual_scale, q.residual_zero_point, layout)(residual)  # type: ignore[arg-type]
    y: Tensor = layer(Quantize(*of_x, layout)(x), added, scale)  # type: ignore[arg-type]
    if q.y_scale is None:
        return y
    return Dequantize(q.y_scale, q.y_zero_point).to(x.device)(y)  # type: ignore[no-any-return]


def problem_of(part: Part, node: fx.Node, layout: Layout, result: str) -> ConvProblem:
    """The problem of a call in int8, on the first calibration batch; *result* is its type."""
    one, shape = part.calls[node], part.shapes[node]
    whole = result == "int8"
    activation = one.activation if not whole and one.activation in CLAMPS else None
    spec = spec_of(one.layer.conv, torch.int8, layout=layout, bias=one.layer.bias is not None,
                   out_dtype=result, activation=activation, scaled=one.product is not None,
                   residual="before" if whole and one.addition else None,
                   table=whole and one.tabled)
    batch = shape[0] if len(shape) == len("nchw") else 1
    return ConvProblem(spec, batch, height=shape[-2], width=shape[-1])


def full_name(part: Part, name: str) -> str:
    """The name of a part's layer in the model."""
    return f"{part.name}.{name}".lstrip(".")
