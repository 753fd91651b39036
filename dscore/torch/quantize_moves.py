"""Steps of a graph that move the elements of tensors and change none, as joins, splits and views.

Such a step does to integers what it does to the numbers that they stand for, if all that it joins
has one scale. So integers pass it on their way from layer to layer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import fx, nn

from dscore.torch.overwriting import changed_operand

_JOINS = (torch.cat, torch.concat, torch.concatenate)
_SPLITS = (torch.chunk, torch.split)
_VIEWS = (torch.flatten, torch.permute, torch.reshape, torch.squeeze, torch.transpose,
          torch.unsqueeze)
_VIEW_METHODS = ("contiguous", "flatten", "permute", "reshape", "squeeze", "transpose", "unsqueeze",
                 "view")
_SPLIT_METHODS = ("chunk", "split")
_MODULES = (nn.Identity, nn.Flatten)
# What reads a shape, which integers have as well.
_READERS = ("dim", "size")


class Moves:
    """Steps of a *graph* that move elements, each with the values whose elements it moves.

    A step is left out where a value of it is changed in place: integers share no memory with the
    floats that are changed.
    """

    def __init__(self, module: nn.Module, graph: fx.Graph) -> None:
        modules = dict(module.named_modules(remove_duplicate=False))
        changed = {changed_operand(node, modules.get(str(node.target))) for node in graph.nodes}
        self._steps: dict[fx.Node, tuple[fx.Node, ...]] = {}
        for node in graph.nodes:
            values = _moved(node, modules.get(str(node.target)))
            if values and not changed.intersection((node, *values)):
                self._steps[node] = values

    def of(self, node: fx.Node) -> tuple[fx.Node, ...]:
        """The values whose elements a step moves; none of any other."""
        return self._steps.get(node, ())

    def passed(self, made: Collection[fx.Node], taken: Collection[tuple[fx.Node, fx.Node]]
               ) -> list[fx.Node]:
        """The steps between values that are *made* as integers and those that are *taken* as such,
        each a node and a value that it takes. Where something takes floats of one as well, it stays
        one of floats: making these takes longer than the step.
        """
        wanted: set[fx.Node] = set()
        for step in reversed(self._steps):
            takers = [user for user in step.users if not reads_shape(user)]
            if takers and all(user in wanted or (user, step) in taken for user in takers):
                wanted.add(step)
        passed: dict[fx.Node, None] = {}
        for step, values in self._steps.items():  # in the order of the graph
            some = any(value in made or value in passed for value in values)
            if step in wanted and some and all(value in passed for value in values
                                               if is_split(value)):
                passed[step] = None
        return list(passed)

    def groups(self, steps: Collection[fx.Node]) -> Iterator[list[fx.Node]]:
        """The values that *steps* join with one another."""
        group_of: dict[fx.Node, list[fx.Node]] = {}
        for step in steps:
            joined = [step]
            for value in self._steps[step]:
                joined += group_of.get(value, [value])
            joined = list(dict.fromkeys(joined))
            group_of.update(dict.fromkeys(joined, joined))
        yield from {id(group): group for group in group_of.values()}.values()

    def keep_layout(self, node: fx.Node) -> bool:
        """Whether images come out of a step with their channels last, as they came in."""
        return node not in self._steps or (
            node.target in _JOINS and all(map(self.keep_layout, self._steps[node])))


def memory_of(graph: fx.Graph, module_of: Callable[[fx.Node], Any]) -> dict[fx.Node, fx.Node]:
    """Of each value the one whose memory it may share, as a view does: itself, or one before."""
    memory: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        joins = node.op == "call_function" and node.target in _JOINS
        values = () if joins else _moved(node, module_of(node))
        memory[node] = memory[values[0]] if values else node
    return memory


def is_split(node: Any) -> bool:
    """Whether a step makes several tensors of one."""
    return isinstance(node, fx.Node) and (
        (node.op == "call_function" and node.target in _SPLITS)
        or (node.op == "call_method" and node.target in _SPLIT_METHODS))


def reads_shape(node: fx.Node) -> bool:
    """Whether a node reads nothing but the shape of its operand."""
    return (node.op == "call_method" and node.target in _READERS) or (
        node.op == "call_function" and node.target is getattr
        and node.args[1:] in (("shape",), ("ndim",)))


def _moved(node: fx.Node, module: nn.Module | None) -> tuple[fx.Node, ...]:
    """The values whose elements a node moves, as far as the node itself says."""
    given: Any = node.args[:1]
    if node.op == "call_function" and node.target in _JOINS:
        given = node.args[0] if node.args else node.kwargs.get("tensors", ())
    elif node.op == "call_function" and node.target is operator.getitem:
        whole: Any = node.args[0]
        given = given if is_split(whole) or "shape" in whole.meta else ()
    elif not _is_view(node, module) and not is_split(node):
        given = ()
    values = tuple(given)
    return values if all(isinstance(one, fx.Node) for one in values) else ()


def _is_view(node: fx.Node, module: nn.Module | None) -> bool:
    return ((node.op == "call_function" and node.target in _VIEWS)
            or (node.op == "call_method" and node.target in _VIEW_METHODS)
            or (node.op == "call_module" and type(module) in _MODULES))
