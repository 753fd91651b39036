"""Rewriting of a traced graph: each convolution takes in what stands around it.

A batch norm, an activation, an addition and a scale are folded where they alone use what comes
before them, so that nobody misses the value in between.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from dscore.core.numerics import Permission
from dscore.core.spec import ACTIVATIONS, Activation
from dscore.torch.folding import FoldedConv
from dscore.torch.overwriting import changed_operand, may_change, operands_of
from dscore.torch.tracing import has_hooks, is_conv

# Reason why PyTorch computes a layer, of its name and module; empty where dscore does.
Reason = Callable[[str, nn.Conv2d], str]

_NORMS = (nn.BatchNorm2d, nn.SyncBatchNorm)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout,
             nn.FeatureAlphaDropout)
# Modules that a graph is made without, or with, by their mode.
MOODY = (*_NORMS, *_DROPOUTS)
_MODULES: Mapping[type, Activation] = {
    nn.ReLU: "relu", nn.ReLU6: "relu6", nn.SiLU: "silu", nn.Hardswish: "hardswish",
    nn.Sigmoid: "sigmoid", nn.Hardsigmoid: "hardsigmoid"}
_FUNCTIONS: Mapping[Any, Activation] = {
    torch.relu: "relu", torch.relu_: "relu", functional.relu_: "relu", torch.sigmoid: "sigmoid",
    torch.sigmoid_: "sigmoid",
    **{getattr(functional, name): name for name in ACTIVATIONS}}
_METHODS: Mapping[str, Activation] = {
    "relu": "relu", "relu_": "relu", "sigmoid": "sigmoid", "sigmoid_": "sigmoid"}
_ADDITIONS = {operator.add, operator.iadd, torch.add}
_PRODUCTS = {operator.mul, operator.imul, torch.mul, torch.multiply}


def activation_of(node: fx.Node, module: nn.Module | None) -> Activation | None:
    """The activation of dscore's that a node is, which calls a *module* or a function."""
    if type(module) is nn.Hardtanh:
        return "relu6" if (module.min_val, module.max_val) == (0, 6) else None
    if module is not None:
        return _MODULES.get(type(module))
    if node.op == "call_method":
        return _METHODS.get(str(node.target))
    return _FUNCTIONS.get(node.target) if node.op == "call_function" else None


class Rewriter:
    """Rewriter of the *graph* of a model; `calls` are the folded convolutions and their nodes.

    Nodes have their shapes in `meta` where an example was run.
    """

    def __init__(self, model: nn.Module, graph: fx.Graph, reason: Reason, backend: str,
                 arithmetic: Permission = "sum") -> None:
        self._modules, self._graph = dict(model.named_modules()), graph
        self._reason, self._backend, self._arithmetic = reason, backend, arithmetic
        self.calls: list[tuple[FoldedConv, fx.Node]] = []
        self._drop_identities()
        for node in list(graph.nodes):
            if self._conv(node) is not None:
                self._fold(node)

    def _module(self, node: fx.Node) -> nn.Module | None:
        """The module that a node calls, unless something else hangs on the call."""
        module = self._modules.get(str(node.target)) if node.op == "call_module" else None
        return None if module is None or has_hooks(module) else module

    def _conv(self, node: fx.Node) -> nn.Conv2d | None:
        module = self._module(node)
        plain = module is not None and is_conv(module) and len(node.all_input_nodes) == 1
        return module if plain else None  # type: ignore[return-value]

    def _drop_identities(self) -> None:
        for node in list(self._graph.nodes):
            if self._is_identity(node):
                node.replace_all_uses_with(node.all_input_nodes[0])
                self._graph.erase_node(node)

    def _is_identity(self, node: fx.Node) -> bool:
        """Whether a node returns its input in eval mode: a dropout, or a stochastic depth."""
        if len(node.all_input_nodes) != 1:
            return False
        module = self._module(node)
        if isinstance(module, _DROPOUTS):
            return not module.training
        if node.op != "call_function":
            return type(module) is nn.Identity
        name = getattr(node.target, "__name__", "")
        if name not in ("dropout", "dropout2d", "stochastic_depth"):
            return False
        # The last positional argument of torchvision's is `training`, the third of PyTorch's.
        place = 3 if name == "stochastic_depth" else 2
        training = node.kwargs.get("training", node.args[place] if len(node.args) > place else True)
        return training is False

    def _fold(self, node: fx.Node) -> None:
        """Replace a convolution and what it takes in by one call."""
        conv = self._conv(node)
        assert conv is not None
        name = str(node.target)
        layer = FoldedConv(name, conv, self._backend, self._reason(name, conv),
                           activation=getattr(conv, "activation", None),
                           arithmetic=self._arithmetic)
        x: Any = node.all_input_nodes[0]
        scale = residual = None
        product = None
        if not layer.reason and (operands := self._scaled(x, node, conv)) is not None:
            product, (x, scale), layer.scaled = x, operands, True
        last, chain = node, [node]
        for follower in self._followers(node):
            if not (self._undisturbed(last, follower) and self._takes(layer, follower, last)):
                break
            if _is_call(follower, _ADDITIONS, ("add", "add_")):
                residual = next(one for one in follower.args if one is not last)
            chain.append(follower)
            last = follower
        self._replace(layer, chain, (x, residual, scale))
        if product is not None:
            self._graph.erase_node(product)

    def _followers(self, node: fx.Node) -> Iterator[fx.Node]:
        """The nodes after *node* as long as each is the only use of the one before."""
        while len(node.users) == 1:
            (user,) = node.users
            if sum(one is node for one in operands_of(user)) != 1:
                return
            yield (node := user)

    def _takes(self, layer: FoldedConv, node: fx.Node, last: fx.Node) -> bool:
        """Fold *node*, which uses *last* alone, into the layer, if that can be."""
        module = self._module(node)
        if isinstance(module, _NORMS):
            if layer.activation or layer.residual or _foreign(layer, module):
                return False
            layer.norm = module
        elif layer.reason:
            return False
        elif (activation := activation_of(node, module)) is not None:
            if layer.activation or layer.residual_after:
                return False
            layer.activation = activation
        elif layer.residual or not self._is_residual(node, last):
            return False
        else:
            layer.residual, layer.residual_after = True, layer.activation is not None
        return True

    def _is_residual(self, node: fx.Node, last: fx.Node) -> bool:
        """Whether *node* adds a tensor of the same shape, and changes none that others use."""
        if not _is_call(node, _ADDITIONS, ("add", "add_")) or node.kwargs or len(node.args) != 2:
            return False
        other = next((one for one in node.args if one is not last), None)
        changed = self._changed(node)
        return (isinstance(other, fx.Node) and "shape" in other.meta
                and other.meta["shape"] == last.meta.get("shape")
                and other.meta["dtype"] == last.meta["dtype"]
                and (changed in (None, last)
                     or (len(changed.users) == 1 and self._is_new(changed))))

    def _is_new(self, node: fx.Node) -> bool:
        """Whether the value of a node is a tensor that nobody else has."""
        return isinstance(node.target, FoldedConv) or self._conv(node) is not None

    def _scaled(self, node: Any, layer: fx.Node,
                conv: nn.Conv2d) -> tuple[fx.Node, fx.Node] | None:
        """The tensor and the scale by image and channel whose product *node* is, for a pointwise
        *layer* that alone uses it.
        """
        if (not _is_call(node, _PRODUCTS, ("mul", "mul_")) or len(node.users) != 1 or node.kwargs
                or len(node.args) != 2 or not all(isinstance(a, fx.Node) for a in node.args)
                or conv.kernel_size != (1, 1) or conv.groups != 1
                or not self._undisturbed(node, layer)):
            return None
        for x, scale in (node.args, node.args[::-1]):
            shape, factor = x.meta.get("shape"), scale.meta.get("shape")
            if (shape is not None and len(shape) == 4 and shape == node.meta.get("shape")
                    and factor == (*shape[:2], 1, 1) and math.prod(shape[2:]) > 1
                    and x.meta["dtype"] == scale.meta["dtype"]
                    and (self._changed(node) is None
                         or (self._changed(node) is x and len(x.users) == 1))):
                return x, scale
        return None

    def _undisturbed(self, first: fx.Node, last: fx.Node) -> bool:
        """Whether no node between two changes a tensor in place, so that order is free there."""
        node = first.next
        while node is not last:
            if may_change(node, self._modules.get(str(node.target))):
                return False
            node = node.next
        return True

    def _changed(self, node: fx.Node) -> Any:
        return changed_operand(node, self._modules.get(str(node.target)))

    def _replace(self, layer: FoldedConv, chain: list[fx.Node], operands: tuple[Any, ...]) -> None:
        last = chain[-1]
        while operands and operands[-1] is None:
            operands = operands[:-1]
        with self._graph.inserting_after(last):
            call = self._graph.call_function(layer, operands)
        call.meta.update(last.meta)
        last.replace_all_uses_with(call)
        for node in reversed(chain):
            self._graph.erase_node(node)
        self.calls.append((layer, call))


def _is_call(node: Any, functions: Any, methods: tuple[str, ...]) -> bool:
    return isinstance(node, fx.Node) and (
        (node.op == "call_function" and node.target in functions)
        or (node.op == "call_method" and node.target in methods))


def _foreign(layer: FoldedConv, norm: Any) -> bool:
    """Whether a batch norm cannot be folded: it is the second one, in train mode, keeps no
    statistics, or is of other channels or another element type.
    """
    return (layer.norm is not None or norm.training or norm.running_mean is None
            or norm.num_features != layer.conv.out_channels
            or norm.running_mean.dtype is not layer.conv.weight.dtype)
