"""Gates of squeeze-and-excitation in a quantised model: of float32, whatever the model becomes.

A mean over pixels of int8 makes float32, and layers of int8 read their scales as float32. Layers
of 16 bits between the two would need a conversion before and one behind them, each a launch that
takes about as long as such a layer does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor, fx, nn

from dscore.torch.modules import Conv2d
from dscore.torch.quantize_graph import Part
from dscore.torch.quantize_pooling import MeanOfPixels


class InFloat32(nn.Module):
    """Module whose floats are of float32, also after ``half()`` or ``to(dtype)`` of its model."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Move it as PyTorch does, without the conversion to another float type."""
        return super()._apply(lambda one: _in_float32(one, fn(one)), recurse)  # type: ignore[no-untyped-call]


class GateMean(InFloat32, MeanOfPixels):
    """Mean over pixels of which a gate is made, of float32.

    >>> images = torch.tensor([[[[4, 5], [6, 6]]]], dtype=torch.int8)
    >>> GateMean(2.0, 1).half()(images)
    tensor([[[[8.5000]]]])
    """


class GateConv2d(InFloat32, Conv2d):
    """Layer of a gate, with float32 parameters.

    >>> GateConv2d(8, 4, 1).half().weight.dtype
    torch.float32
    """


def _in_float32(before: Tensor, moved: Tensor) -> Tensor:
    """A tensor that was *moved*, as float32; of the values *before*, which are not rounded."""
    if not moved.is_floating_point() or moved.dtype is torch.float32:
        return moved
    return before.to(moved.device, torch.float32)


def gates_of(part: Part, quantised: Collection[fx.Node]) -> set[fx.Node]:
    """The nodes of gates: means of int8 that come to nothing but scales of *quantised* layers, and
    the layers in floats on the way."""
    layers = [part.calls[node] for node in part.calls if node in quantised]
    scales = {(one.product, one.scale) for one in layers if one.product is not None}
    single = {node: one.last for node, one in part.calls.items()
              if node not in quantised and part.is_single(node)}

    def way(value: fx.Node) -> set[fx.Node] | None:
        """The layers from a value to scales; None where it comes to anything else."""
        found: set[fx.Node] = set()
        for user in value.users:
            if (user, value) not in scales:
                rest = way(single[user]) if user in single else None
                if rest is None:
                    return None
                found |= {user, *rest}
        return found if value.users else None

    images = {one.last for one in layers}
    ways = {mean: way(mean) for mean in part.pools if mean.all_input_nodes[0] in images}
    return {node for mean, found in ways.items() if found is not None for node in (mean, *found)}
