"""Models that torchao's pt2e flow has quantised: their layers of int8 by dscore, of equal scales.

Their graphs compute with floats that stand for integers.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from torch import fx, nn

from dscore.core.errors import SpecError, require_one_of, shown
from dscore.core.spec import LAYOUTS, Kind, Layout
from dscore.core.token import problem_token
from dscore.torch.quantize_choice import reason_of_gain
from dscore.torch.quantize_graph import QuantizedModel
from dscore.torch.quantize_matching import OPERATORS, is_step, matched, step_of
from dscore.torch.quantize_modules import QuantizedConv2d
from dscore.torch.quantize_report import QuantizationReport, QuantizedLayer, plan_name
from dscore.torch.quantize_steps import Dequantize, Quantize
from dscore.torch.setting import Setting
from dscore.torch.tracing import gpu_of


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
    if not any(is_step(node, "dequantize_per_tensor") for node in model.graph.nodes):
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


def _taken(model: fx.GraphModule, node: fx.Node, setting: Setting, kinds: Sequence[Kind] | None,
           layout: Layout) -> QuantizedLayer:
    """The report on a convolution, which is a layer of int8 then, where it can be one."""
    name = _path(node)
    layer = matched(model, node)
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


def _replace_steps(model: fx.GraphModule, layout: Layout) -> None:
    """Give the graph dscore's steps where its own have integers that layers of int8 take or make.
    """
    graph = model.graph
    layers = [node for node in graph.nodes if node.op == "call_module"
              and isinstance(model.get_submodule(str(node.target)), QuantizedConv2d)]
    for source in dict.fromkeys(one for node in layers for one in (node, *node.all_input_nodes)):
        made = step_of(source, "quantize_per_tensor")
        for user in list(source.users):
            back = step_of(user, "dequantize_per_tensor")
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
        if operand.op == "get_attr" or str(operand.target).startswith((OPERATORS, "aten.")):
            _erase_unused(graph, operand)


def _path(node: fx.Node) -> str:
    """The name of the module that a node comes from, as the export states it, else the node's."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()), ("",))[0] if stack else ""
    return str(path).removeprefix("L['self'].") or str(node.name)
