"""Gates of squeeze-and-excitation in a quantised model: of float16, whatever the model becomes.

A mean over pixels of int8 makes float16, layers of float16 have kernels of matrix units, and layers
of int8 read their scales as float16, of which they make factors of float16. So nothing is converted
between the two, which would be a launch that takes about as long as such a layer does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn

from dscore.calling.gates import gate_problem
from dscore.core.problem import ConvProblem
from dscore.core.spec import Layout
from dscore.torch.modules import Conv2d
from dscore.torch.quantize_graph import Part
from dscore.torch.quantize_layers import Fused
from dscore.torch.quantize_pooling import MeanOfPixels

GATE_TYPE = torch.float16
# The results of activations that have bounds.
_BOUNDS = {"sigmoid": 1.0, "hardsigmoid": 1.0, "relu6": 6.0}


class OfGate(nn.Module):
    """Module whose floats are of float16, also after ``float()`` or ``to(dtype)`` of its model."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.half()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Move it as PyTorch does, without the conversion to another float type."""
        return super()._apply(lambda one: _in_float16(one, fn(one)), recurse)  # type: ignore[no-untyped-call]


class GateMean(OfGate, MeanOfPixels):
    """Mean over pixels of which a gate is made, of float16.

    >>> images = torch.tensor([[[[4, 5], [6, 6]]]], dtype=torch.int8)
    >>> GateMean(2.0, 1).float()(images)
    tensor([[[[8.5000]]]], dtype=torch.float16)
    """


class GateConv2d(OfGate, Conv2d):
    """Layer of a gate, with float16 parameters.

    >>> GateConv2d(8, 4, 1).float().weight.dtype
    torch.float16
    """


def _in_float16(before: Tensor, moved: Tensor) -> Tensor:
    """A tensor that was *moved*, as float16; of the values *before*, so that it is rounded once."""
    if not moved.is_floating_point() or moved.dtype is GATE_TYPE:
        return moved
    return before.to(moved.device, GATE_TYPE)


def gates_of(part: Part, quantised: Collection[fx.Node]) -> set[fx.Node]:
    """The nodes of gates: means of int8 that come to nothing but scales of *quantised* layers, and
    the layers in floats on the way; of those alone whose numbers float16 has in any case."""
    layers = [part.calls[node] for node in part.calls if node in quantised]
    scales = {(one.product, one.scale) for one in layers if one.product is not None}
    single = {node: one for node, one in part.calls.items()
              if node not in quantised and part.is_single(node)}

    def way(value: fx.Node, most: float) -> set[fx.Node] | None:
        """The layers from a value, of numbers up to *most*, to scales; None where it comes to
        anything else, or past the range of float16."""
        if not most <= torch.finfo(GATE_TYPE).max:
            return None
        found: set[fx.Node] = set()
        for user in value.users:
            if (user, value) not in scales:
                one = single.get(user)
                rest = None if one is None else way(one.last, greatest(one, most))
                if rest is None:
                    return None
                found |= {user, *rest}
        return found if value.users else None

    images = {one.last for one in layers}
    ways = {mean: way(mean, part.ranges[mean.all_input_nodes[0]].greatest) for mean in part.pools
            if mean.all_input_nodes[0] in images}
    return {node for mean, found in ways.items() if found is not None for node in (mean, *found)}


def fused_problems(part: Part, gates: Collection[fx.Node], layout: Layout
                   ) -> Iterator[ConvProblem]:
    """The problems of *gates* as one launch each (`dscore.torch.gates`)."""
    layers = {one.x: one for node, one in part.calls.items()
              if node in gates and part.is_single(node)}
    for mean, keeps in part.pools.items():
        first = layers.get(mean) if mean in gates and keeps else None
        second = None if first is None else layers.get(first.last)
        if first is not None and second is not None:
            conv, images = first.layer.conv, mean.all_input_nodes[0].meta["shape"]
            problem = gate_problem(
                tuple(images), conv.out_channels, "int8", layout, first.layer.bias is not None,
                (first.activation, second.activation),  # type: ignore[arg-type]
                str(GATE_TYPE).removeprefix("torch."))
            yield from () if problem is None else (problem,)


def greatest(one: Fused, most: float) -> float:
    """The greatest number that a layer of one pixel may have: a weight, a bias, or a result, of
    inputs up to *most*."""
    weight = one.layer.weight.detach().double().flatten(1).abs()
    given = one.layer.bias
    bias = weight.new_zeros(1) if given is None else given.detach().double().abs()
    sums = float((weight.sum(1) * most + bias).max())
    result = min(sums, _BOUNDS.get(str(one.activation), torch.inf))
    return max(float(weight.max()), float(bias.max()), result)
