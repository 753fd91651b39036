"""What the steps of a graph change in place."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch import fx, nn

_IN_PLACE = {getattr(operator, name) for name in (
    "iadd", "iand", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "ior", "ipow", "irshift",
    "isub", "itruediv", "ixor", "setitem")}
# Modules whose result is a tensor of its own.
_MAKERS = (nn.modules.conv._ConvNd, nn.modules.batchnorm._NormBase, nn.Linear)


def operands_of(node: fx.Node) -> list[Any]:
    """All operands of a node, each as often as it stands there."""
    operands: list[Any] = []
    fx.map_arg((node.args, node.kwargs), operands.append)
    return operands


def changed_operand(node: fx.Node, module: nn.Module | None) -> Any:
    """The operand that a node changes in place; None where it changes none.

    *module* is the one that it calls, if it calls one.
    """
    if node.op == "call_module":
        inplace = bool(getattr(module, "inplace", False))
    else:
        name = str(getattr(node.target, "__name__", node.target))
        inplace = node.op in ("call_function", "call_method") and (
            node.target in _IN_PLACE or "out" in node.kwargs
            or node.kwargs.get("inplace") is True or any(one is True for one in node.args)
            or (name.endswith("_") and not name.startswith("__")))
    return next(iter(operands_of(node)), None) if inplace else None


def may_change(node: fx.Node, module: nn.Module | None) -> bool:
    """Whether a node may change a tensor in place: it does, or its *module* has modules of its
    own, as one with hooks has, which no trace has looked into.
    """
    opaque = node.op == "call_module" and any(True for _ in module.children()) if module else False
    return opaque or changed_operand(node, module) is not None


def changes_others(model: nn.Module, graph: fx.Graph, makes: Callable[[Any], bool]) -> bool:
    """Whether a graph may change in place what it has not made itself: an input or a buffer.

    *makes* tells of what a step calls whether its result is a tensor of its own. Such a graph
    cannot be run anew after a part of it.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    others: set[fx.Node] = set()  # values that may share memory with an input or a buffer
    for node in graph.nodes:
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        given = any(one in others for one in operands_of(node))
        changed = changed_operand(node, module)
        if changed in others or (changed is not None and "out" in node.kwargs) or (
                given and changed is None and may_change(node, module)):
            return True
        made = isinstance(module, _MAKERS) or makes(node.target if module is None else module)
        if node.op in ("placeholder", "get_attr") or (given and not made):
            others.add(node)
    return False
