"""Trace of a model by torch.fx, and the shapes that its nodes have on an example."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor, fx, nn

from dscore.core.errors import DscoreError
from dscore.core.spec import Layout
from dscore.torch.layer import lies_last
from dscore.torch.modules import Conv2d

# The forward of a class, under the name that an accelerated class keeps it.
PLAIN_FORWARD = "_dscore_plain_forward"


class Form(NamedTuple):
    """Shape of a tensor, its element type, and the layout that kernels take it in."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: Layout


def form_of(tensor: Tensor) -> Form:
    """The form of a tensor."""
    last = tensor.dim() == len("nchw") and lies_last(tensor)
    return Form(tuple(tensor.shape), tensor.dtype, "nhwc" if last else "nchw")


class NotTraced(Exception):
    """Reason why a model has no graph."""


class Tracer(fx.Tracer):
    """Tracer that keeps convolutions whole, and modules with hooks, which a graph would skip."""

    def __init__(self, root: nn.Module) -> None:
        super().__init__()
        self.traced_func_name = PLAIN_FORWARD if hasattr(root, PLAIN_FORWARD) else "forward"

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_conv(m) or has_hooks(m) or super().is_leaf_module(m, module_qualified_name)


def is_conv(module: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether a module is a convolution whose forward is PyTorch's or dscore's own."""
    return type(module) is nn.Conv2d or (
        isinstance(module, Conv2d) and type(module).forward is Conv2d.forward)


def has_hooks(module: nn.Module) -> bool:
    """Whether something of the caller's runs before or after a module, or in its place."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
                or module._backward_pre_hooks or "forward" in vars(module))


def traced(model: nn.Module, count: int) -> fx.Graph:
    """The graph of *model* called with *count* positional arguments, others at their defaults.

    Raises NotTraced with the reason.
    """
    tracer = Tracer(model)
    try:
        graph = tracer.trace(model, _defaults(model, tracer.traced_func_name, count))
    except DscoreError:
        raise
    except Exception as failed:  # whatever a model's own code raises on what stands for a tensor
        lines = str(failed).splitlines() or [""]
        raise NotTraced(f"{type(failed).__name__}: {lines[0]}") from failed
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    if len(inputs) < count or any(str(node.target).startswith("*") for node in inputs):
        raise NotTraced(f"its forward takes {len(inputs)} arguments, the example has {count}")
    for node in inputs[count:]:
        _erase(graph, node)
    return graph


def _erase(graph: fx.Graph, node: fx.Node) -> None:
    """Remove a node and all that is computed from it: what checks a constant argument."""
    for user in list(node.users):
        _erase(graph, user)
    if node.op != "output":
        graph.erase_node(node)


def _defaults(model: nn.Module, name: str, count: int) -> dict[str, Any]:
    """The arguments of a forward after the first *count*: constants of the trace."""
    parameters = list(inspect.signature(getattr(model, name)).parameters.values())
    return {one.name: one.default for one in parameters[count:]
            if one.default is not inspect.Parameter.empty}


class _Shapes(fx.Interpreter):
    """Run of a graph that keeps what a tensor is, by the name of its node."""

    shapes: dict[str, Form]

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, Tensor):
            self.shapes[n.name] = form_of(value)
        return value


def record_shapes(model: nn.Module, graph: fx.Graph, arguments: tuple[Any, ...]
                  ) -> dict[str, Form]:
    """The form of each node that is a tensor, for some arguments."""
    run = _Shapes(model, graph=graph)
    run.shapes = {}
    run.run(*arguments)
    return run.shapes


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Context in which all modules are in eval mode, and nothing records a gradient."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in modes:
            module.training = False
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
