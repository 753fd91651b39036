"""Channel shuffles of a traced graph, each as one pass over memory.

ShuffleNetV2 joins two tensors, views the channels as two groups, transposes these, copies, and
splits the result: two passes, and where there are several images a third one, as the halves of a
split are not contiguous. A join of the tensors channel by channel is the same in one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

_VIEWS, _TRANSPOSES = ("view", "reshape"), ("transpose",)
_PURE = {*_VIEWS, *_TRANSPOSES, "contiguous", "cat", "concat", "chunk", "size", "getitem",
         "floordiv"}
_CHANNELS = 1


def shuffled(first: Tensor, second: Tensor) -> Tensor:
    """The channels of two tensors in turns.

    >>> shuffled(torch.zeros(1, 2, 1, 1), torch.ones(1, 2, 1, 1)).flatten().tolist()
    [0.0, 1.0, 0.0, 1.0]
    """
    images, channels, height, width = first.shape
    # In four axes, for which PyTorch has one kernel; of five it would copy part by part.
    flat = images, channels, 1, height * width
    joined = torch.cat((first.reshape(flat), second.reshape(flat)), 2)
    # Of tensors whose channels lie last the joined one's do, and are no view.
    return joined.reshape(images, 2 * channels, height, width)


def shuffled_halves(first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
    """Both halves of `shuffled`, each contiguous."""
    images, channels, _, _ = first.shape
    if images == 1 or channels % 2:  # the halves of one image are contiguous
        return shuffled(first, second).chunk(2, _CHANNELS)
    half = channels // 2
    return (shuffled(first[:, :half], second[:, :half]),
            shuffled(first[:, half:], second[:, half:]))


def shorten_shuffles(graph: fx.Graph) -> int:
    """Replace the shuffles of two tensors in a graph whose nodes have shapes; their count."""
    count = 0
    for node in list(graph.nodes):
        operands = _shuffle(node)
        if operands is None:
            continue
        end = node
        function: Callable[..., Any] = shuffled
        if len(node.users) == 1 and _is_split(split := next(iter(node.users))):
            end, function = split, shuffled_halves
        with graph.inserting_before(end):
            call = graph.call_function(function, operands)
        call.meta.update(end.meta)
        end.replace_all_uses_with(call)
        count += 1
    if count:
        _sweep(graph)
    return count


def _shuffle(node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """The two tensors whose shuffle *node* is; None where it is none."""
    chain = [node]
    for kinds in (("contiguous",), _TRANSPOSES, _VIEWS, ("cat", "concat")):
        before = chain[-1].all_input_nodes
        if not before or _name(before[0]) not in kinds:
            return None
        if kinds[0] != "cat" and len(before[0].users) != 1:
            return None
        chain.append(before[0])
    end, _, transposed, grouped, joined = chain
    shape = joined.meta.get("shape")
    if _name(end) not in _VIEWS or shape is None or len(shape) != 4 or shape[_CHANNELS] % 2:
        return None
    images, channels, *image = shape
    parts = joined.all_input_nodes
    if (len(parts) != 2 or parts[0].meta.get("shape") != parts[1].meta.get("shape")
            or _axis(joined) != _CHANNELS or tuple(transposed.args[1:]) not in ((1, 2), (2, 1))
            or grouped.meta.get("shape") != (images, 2, channels // 2, *image)
            or end.meta.get("shape") != shape):
        return None
    return parts[0], parts[1]


def _is_split(node: fx.Node) -> bool:
    """Whether a node is ``chunk(2, dim=1)``, of whose parts none is written in place."""
    arguments = [*node.args[1:], *node.kwargs.values()]
    return (_name(node) == "chunk" and arguments == [2, _CHANNELS]
            and not any(_name(user).endswith("_") or "inplace" in user.kwargs
                        for part in node.users for user in part.users))


def _axis(joined: fx.Node) -> Any:
    """The axis of a join."""
    return joined.args[1] if len(joined.args) > 1 else joined.kwargs.get("dim", 0)


def _name(node: fx.Node) -> str:
    """The name of the function or method that a node calls."""
    if node.op == "call_method":
        return str(node.target)
    return getattr(node.target, "__name__", "") if node.op == "call_function" else ""


def _sweep(graph: fx.Graph) -> None:
    """Remove the views, joins and sizes that nobody uses any more."""
    for node in reversed(graph.nodes):
        if not node.users and _name(node) in _PURE:
            graph.erase_node(node)
