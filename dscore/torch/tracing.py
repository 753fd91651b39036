"""Trace of a model by torch.fx, and the shapes that its nodes have on an example."""

from __future__ import annotations

import inspect
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor, fx, nn
from torch.nn.utils import parametrize

from dscore.core.errors import DscoreError
from dscore.core.spec import Layout
from dscore.torch.attributes import Attributes
from dscore.torch.layer import lies_last
from dscore.torch.modules import Conv2d

# The forward of a class, under the name that an accelerated class keeps it.
PLAIN_FORWARD = "_dscore_plain_forward"
# torch.fx changes nn.Module for all threads as long as it traces.
_TRACING = threading.RLock()


class Form(NamedTuple):
    """Shape of a tensor, its element type, and the layout that kernels take it in."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: Layout


def form_of(tensor: Tensor) -> Form:
    """The form of a tensor."""
    last = tensor.dim() == len("nchw") and lies_last(tensor)
    return Form(tuple(tensor.shape), tensor.dtype, "nhwc" if last else "nchw")


# Parameters that a call gives a value each.
_NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD,
          inspect.Parameter.KEYWORD_ONLY)


class NotTraced(Exception):
    """Reason why a model has no graph."""


class _BufferProxy(fx.Proxy):
    """What stands for a buffer, of which all is known but what it holds."""

    def __init__(self, node: fx.Node, tracer: fx.Tracer, buffer: Tensor) -> None:
        super().__init__(node, tracer)
        self.shape, self.dtype, self.device = buffer.shape, buffer.dtype, buffer.device
        self.ndim, self.size, self.dim, self.numel = buffer.ndim, *(
            getattr(buffer, name) for name in ("size", "dim", "numel"))


class Tracer(fx.Tracer):
    """Tracer that keeps convolutions whole, and modules with hooks, which a graph would skip.

    What is computed of buffers alone is part of the graph, as buffers may change. Modules that
    other threads call meanwhile run as they are.
    """

    def __init__(self, root: nn.Module) -> None:
        super().__init__()
        self.traced_func_name = _forward_name(root)
        self._thread = threading.get_ident()
        self._buffers = {id(buffer): name for name, buffer in root.named_buffers()}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return (is_conv(m) or has_hooks(m) or isinstance(m, torch.jit.ScriptModule)
                or super().is_leaf_module(m, module_qualified_name))

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        if threading.get_ident() != self._thread:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: Any) -> Any:
        if threading.get_ident() != self._thread:
            return attr_val
        name = self._buffers.get(id(attr_val))
        if name is None:
            return super().getattr(attr, attr_val, parameter_proxy_cache)
        if name not in parameter_proxy_cache:
            parameter_proxy_cache[name] = self.create_proxy(
                "get_attr", name, (), {},
                proxy_factory_fn=lambda node: _BufferProxy(node, self, attr_val))
        return parameter_proxy_cache[name]

    def create_arg(self, a: Any) -> Any:
        if type(a) is OrderedDict:  # of which PyTorch's tracer makes a plain dictionary
            pairs = [(key, super(Tracer, self).create_arg(value)) for key, value in a.items()]
            return self.create_node("call_function", OrderedDict, (pairs,), {})
        return super().create_arg(a)


def is_conv(module: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether a module is a convolution whose forward is PyTorch's or dscore's own, and whose
    parameters are not computed of others."""
    return type(module) is nn.Conv2d or (
        isinstance(module, Conv2d) and type(module).forward is Conv2d.forward
        and not parametrize.is_parametrized(module))


def has_hooks(module: nn.Module) -> bool:
    """Whether something of the caller's runs before or after a module, or in its place."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
                or module._backward_pre_hooks or "forward" in vars(module))


def traced(model: nn.Module, count: int) -> fx.Graph:
    """The graph of *model* called with *count* positional arguments, others at their defaults.

    Raises NotTraced with the reason.
    """
    parameters = inspect.signature(getattr(model, _forward_name(model))).parameters.values()
    needed = [one for one in parameters if one.default is one.empty and one.kind in _NAMED]
    if len(needed) > count:
        raise NotTraced(f"its forward takes {len(needed)} arguments, the example has {count}")
    try:
        graph = _trace(model, count)
    except (DscoreError, NotTraced):
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


def _trace(model: nn.Module, count: int) -> fx.Graph:
    """The graph as PyTorch traces it; the model's attributes are what they were, afterwards."""
    with _TRACING:
        attributes, constants = Attributes(model), set()
        try:
            graph = Tracer(model).trace(model, _defaults(model, _forward_name(model), count))
            if kept := attributes.holding(fx.Proxy):
                raise NotTraced(f"its forward keeps what it computes in {kept}, and a graph would "
                                "not")
            constants = {str(node.target) for node in graph.nodes if node.op == "get_attr"}
        finally:
            attributes.put_back(constants)
    return graph


def _forward_name(model: nn.Module) -> str:
    return PLAIN_FORWARD if hasattr(model, PLAIN_FORWARD) else "forward"


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


def device_of(model: nn.Module) -> torch.device:
    """The device that a model lies on."""
    tensor = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if tensor is None else tensor.device


def gpu_of(model: nn.Module) -> int | None:
    """The number of the GPU that a model lies on; None for another device."""
    device = device_of(model)
    return device.index or 0 if device.type == "cuda" else None


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
