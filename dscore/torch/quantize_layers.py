"""What a layer of int8 takes in: the scale before a convolution, the addition and activation after.

A batch norm, relu and relu6 behind a convolution are folded into it in floats, too. All else stays
in the graph, as nodes that a layer of int8 replaces: their values have ranges of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import fx, nn

from dscore.core.spec import CLAMPS, TABLED
from dscore.torch.folding import FoldedConv
from dscore.torch.pooling import keeps_axes
from dscore.torch.quantize_moves import memory_of, reads_shape
from dscore.torch.rewriting import Rewriter, activation_of


@dataclass(eq=False)
class Fused:
    """The call of a convolution, *node*, and what around it a layer of int8 computes, too.

    *product* is that of *given* and *scale*; *addition* adds *other*; *final* is the activation
    after all that.
    """

    layer: FoldedConv
    node: fx.Node
    product: fx.Node | None = None
    given: fx.Node | None = None
    scale: fx.Node | None = None
    addition: fx.Node | None = None
    other: fx.Node | None = None
    final: fx.Node | None = None
    of_final: str | None = None

    @property
    def x(self) -> fx.Node:
        """What is convolved."""
        return self.node.all_input_nodes[0]

    @property
    def taken(self) -> fx.Node:
        """What is taken in its place, before a scale."""
        return self.given or self.x

    @property
    def inner(self) -> fx.Node:
        """What the final activation is taken of."""
        return self.addition or self.node

    @property
    def last(self) -> fx.Node:
        """What the layer computes."""
        return self.final or self.inner

    @property
    def nodes(self) -> tuple[fx.Node, ...]:
        """All that the layer replaces."""
        every = self.product, self.node, self.addition, self.final
        return tuple(node for node in every if node is not None)

    @property
    def images(self) -> tuple[fx.Node, ...]:
        """Its operands that are images."""
        return tuple(node for node in (self.taken, self.other) if node is not None)

    @property
    def operands(self) -> tuple[fx.Node | None, ...]:
        """Those of the layer: x, the residual, the scale."""
        return self.taken, self.other, self.scale

    @property
    def activation(self) -> str | None:
        """The activation of its result."""
        return self.of_final or self.layer.activation

    @property
    def tabled(self) -> bool:
        """Whether the activation needs a table."""
        return self.activation in TABLED

    @property
    def folded(self) -> tuple[str, ...]:
        """What is part of it, in words."""
        return (*("scale",) * (self.product is not None), *self.layer.folded,
                *("residual",) * (self.addition is not None),
                *(str(self.of_final),) * (self.final is not None))


class Clamping(Rewriter):
    """Rewriter that folds what floats and int8 compute alike: a batch norm, relu and relu6.

    *fused* then finds what only a layer of int8 takes in.
    """

    def _takes(self, layer: FoldedConv, node: fx.Node, last: fx.Node) -> bool:
        activation = activation_of(node, self._module(node))
        is_norm = isinstance(self._module(node), nn.modules.batchnorm._BatchNorm)
        return (is_norm or activation in CLAMPS) and super()._takes(layer, node, last)

    def _scaled(self, node: Any, layer: fx.Node, conv: nn.Conv2d) -> None:
        return None

    def fused(self) -> Iterator[Fused]:
        """The convolutions with what is around them; an addition is part of the first one."""
        added: set[fx.Node] = set()
        for layer, node in self.calls:
            one = Fused(layer, node)
            operands = super()._scaled(one.x, node, layer.conv)
            if operands is not None and self._changed(one.x) is None:
                one.product, (one.given, one.scale) = one.x, operands
            if layer.activation is None:
                self._take_followers(one, added)
            yield one

    def _take_followers(self, one: Fused, added: set[fx.Node]) -> None:
        """An addition that is not part of another layer, and an activation."""
        last = one.node
        for node in self._followers(one.node):
            activation = activation_of(node, self._module(node))
            if not self._undisturbed(last, node):
                return
            if activation is not None:
                one.final, one.of_final = node, activation
                return
            if (one.addition or node in added or not self._is_residual(node, last)
                    or self._changed(node) not in (None, last)):
                return
            one.addition, last = node, node
            one.other = next(other for other in node.all_input_nodes if other is not one.node)
            added.add(node)

    def pools(self) -> Iterator[tuple[fx.Node, bool]]:
        """Means over all pixels of images, and whether their axes stay."""
        for node in self._graph.nodes:
            kept = keeps_axes(node, self._module(node))
            images = node.all_input_nodes[:1]
            if kept is not None and len(images[0].meta.get("shape", ())) == len("nchw"):
                yield node, kept

    def overwritten(self, graph: fx.Graph) -> str:
        """The name of a tensor that is changed in place and read afterwards, itself or by a view;
        empty for none."""
        place = {node: number for number, node in enumerate(graph.nodes)}
        memory = memory_of(graph, self._module)
        for node in graph.nodes:
            changed = self._changed(node)
            if isinstance(changed, fx.Node) and any(
                    place[user] > place[node] and not reads_shape(user)
                    for value in graph.nodes if memory[value] is memory[changed]
                    for user in value.users):
                return str(changed.name)
        return ""
