"""Graphs of a model that is quantised: what is observed of them, and what replaces their layers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from operator import attrgetter
from typing import Any, ClassVar

from torch import Tensor, fx, nn

from dscore.calling.quantization import Quantization
from dscore.torch.quantize_layers import Clamping
from dscore.torch.quantize_linking import Programs, linking
from dscore.torch.quantize_modules import QuantizedConv2d
from dscore.torch.quantize_moves import Moves
from dscore.torch.quantize_values import Range, quantised_filter
from dscore.torch.tracing import NotTraced, has_hooks, record_shapes, traced

# Takes a node, its value, and the values of its operands by their nodes.
Observer = Callable[[fx.Node, Any, dict[fx.Node, Any]], None]
_BY_PYTORCH = "calibrated in floats"


class QuantizedModel(fx.GraphModule):
    """Graph of a quantised model, as a module with its `report`.

    It is a ``torch.fx.GraphModule``: its code is Python (``print(model.code)``), its modules have
    the names that they had, and it is saved and copied as a whole or by its state_dict.
    """

    report: Any = None
    _programs: ClassVar[Programs]

    def recompile(self) -> Any:
        """Make the code of the graph, as `torch.fx` does it, with eager calls linked."""
        code = super().recompile()
        own: Any = type(self)  # torch.fx gives each object a class of its own, for its forward
        own._programs = Programs(own.forward)
        own.forward = linking(own.forward, own._programs)
        return code

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Move or convert it, as PyTorch does."""
        self._programs.forget()
        return super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]

    def __deepcopy__(self, memo: dict[int, Any]) -> QuantizedModel:
        result: Any = super().__deepcopy__(memo)
        result.report = self.report
        return result  # type: ignore[no-any-return]

    def __reduce__(self) -> Any:
        function, arguments = super().__reduce__()[:2]
        return _loaded, (function, arguments, type(self).__name__)


def _loaded(function: Any, arguments: Any, name: str) -> QuantizedModel:
    """A quantised model of what `torch.fx` saves of it."""
    plain = function(*arguments)
    model = QuantizedModel(plain, plain.graph, name)
    model.report, model.training = vars(plain).get("report"), plain.training
    return model


class Part:
    """Part of a model as a graph: the model itself, called "", or a module of it that has a graph.

    *arguments* are those that it is called with. `calls` are its convolutions, by the node of each,
    with what is around them; `pools` are means over all pixels, and whether these keep the axes;
    `moves` are the steps that integers may pass, `apart` calls whose results come to these as
    floats: as integers of the scale that all values there have they would lose too much.
    `ranges` are those of values on calibration batches, `shapes` those of the inputs of calls and
    pools. Raises NotTraced where the module has no graph.
    """

    def __init__(self, name: str, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        self.name, self.module = name, module
        self.graph = traced(module, len(arguments))
        shapes = record_shapes(module, self.graph, arguments)
        for node in self.graph.nodes:
            if node.name in shapes:
                node.meta.update(shapes[node.name]._asdict())
        rewriter = Clamping(module, self.graph, lambda name, conv: "", "auto")
        if changed := rewriter.overwritten(self.graph):
            raise NotTraced(f"it reads {changed} after it has changed it in place")
        self.ranges: dict[fx.Node, Range] = {}
        self.shapes: dict[fx.Node, tuple[int, ...]] = {}
        self.calls = {one.node: one for one in rewriter.fused()}
        self.pools = dict(rewriter.pools())
        self.moves = Moves(module, self.graph)
        self.apart: set[fx.Node] = set()
        for one in self.calls.values():
            one.layer.fold()
            one.layer.reason = _BY_PYTORCH

    @property
    def observed(self) -> set[fx.Node]:
        """The values whose ranges scales are made of."""
        pooled = {images for node in self.pools for images in node.all_input_nodes[:1]}
        joined = {value for step in self.passing(self.calls) for value in self.moves.of(step)
                  if not self.moves.of(value)}
        return pooled | joined | {value for one in self.calls.values() for value in (
            *one.images, one.x, one.node, one.inner, one.last)}

    def share_ranges(self) -> None:
        """Give all values that a step joins the range of all of them, which their scale is of."""
        for group in self.moves.groups(self.passing(self.calls)):
            known = [self.ranges[value] for value in group if value in self.ranges]
            self.ranges.update(dict.fromkeys(group, functools.reduce(Range.joined, known)))

    def passing(self, quantised: Collection[fx.Node]) -> list[fx.Node]:
        """The steps that integers pass between *quantised* layers, in the order of the graph."""
        made = {one.last for node, one in self.calls.items()
                if node in quantised and node not in self.apart}
        taken = {(node, node.all_input_nodes[0]) for node in self.pools}
        taken |= {(user, value) for node, one in self.calls.items() if node in quantised
                  for user in one.nodes for value in one.images}
        return self.moves.passed(made, taken)

    def names(self) -> dict[fx.Node, str]:
        """A name for each call, as the model has it; of a module's further calls, with a number."""
        names: dict[fx.Node, str] = {}
        for node, one in self.calls.items():
            name = one.layer.name
            names[node] = self.free(name, names.values()) if name in names.values() else name
        return names

    def free(self, name: str, taken: Collection[str] = ()) -> str:
        """A name, with a number where it is *taken* or the module has something by it."""
        count, free = 1, name
        while free in taken or _has(self.module, free):
            free, count = f"{name}_{count}", count + 1
        return free

    def is_single(self, node: fx.Node) -> bool:
        """Whether a call is a pointwise layer on images of one pixel, with nothing added."""
        one, shape = self.calls[node], self.shapes.get(node, ())
        conv = one.layer.conv
        return (len(shape) == len("nchw") and shape[-2:] == (1, 1) and one.addition is None
                and conv.kernel_size == (1, 1) and conv.groups == 1)

    def may_set_apart(self, node: fx.Node, quantised: Collection[fx.Node]) -> bool:
        """Whether the result of a *quantised* layer is int8 for a step alone, and not `apart`."""
        return node not in self.apart and self.is_int8(node, quantised) and not self._is_whole(
            node, quantised)

    def _is_taken(self, value: fx.Node, quantised: Collection[fx.Node]) -> bool:
        """Whether something takes a *value* as int8: a *quantised* layer, or a mean over pixels."""
        return any(node.all_input_nodes[0] is value for node in self.pools) or any(
            value in one.images for node, one in self.calls.items() if node in quantised)

    def is_int8(self, node: fx.Node, quantised: Collection[fx.Node]) -> bool:
        """Whether the result of a *quantised* layer is int8: something takes it as such, or a step
        on the way there, or it has what results of floats do not have."""
        last = self.calls[node].last
        return self._is_whole(node, quantised) or (node not in self.apart and any(
            last in self.moves.of(step) for step in self.passing(quantised)))

    def _is_whole(self, node: fx.Node, quantised: Collection[fx.Node]) -> bool:
        """The same but for steps; what results of floats do not have is an addition, or an
        activation by a table."""
        one = self.calls[node]
        return one.addition is not None or one.tabled or self._is_taken(one.last, quantised)

    def quantised_layer(self, node: fx.Node, quantised: Collection[fx.Node],
                        backend: str = "auto") -> QuantizedConv2d:
        """The layer of int8 for a call, by the ranges of its input and its result."""
        one, ranges = self.calls[node], self.ranges
        x, layer, conv = ranges[one.x], one.layer, one.layer.conv
        weight, bias, scales = quantised_filter(layer.weight, layer.bias, x.scale)
        more: dict[str, Any] = {}
        if self.is_int8(node, quantised):
            y = ranges[one.last]
            more.update(y_scale=y.scale, y_zero_point=y.zero_point)
        if one.other is not None:
            other = ranges[one.other]
            more.update(residual_scale=other.scale, residual_zero_point=other.zero_point)
        if one.product is not None:
            given = ranges[one.taken]
            more.update(input_scale=given.scale, input_zero_point=given.zero_point)
        if one.tabled:
            scale, zero_point = ranges[one.inner].table(str(one.activation))
            more.update(table_scale=scale, table_zero_point=zero_point)
        return QuantizedConv2d(
            weight, bias, Quantization(x.scale, scales, x_zero_point=x.zero_point, **more),
            conv.stride, conv.padding, conv.dilation, conv.groups,
            activation=one.activation, backend=backend  # type: ignore[arg-type]
        ).move_zero_point_to_bias()


def _has(module: nn.Module, name: str) -> bool:
    try:
        attrgetter(name)(module)
    except AttributeError:
        return False
    return True


class Observed(nn.Module):
    """Module that runs the graph of a part, and shows an observer the value of each node."""

    def __init__(self, part: Part, observer: Observer) -> None:
        super().__init__()
        self.part, self.observer = part, observer

    def forward(self, *arguments: Any) -> Any:
        return _Run(self.part.module, self.part.graph, self.observer).run(*arguments)


class _Run(fx.Interpreter):
    def __init__(self, module: nn.Module, graph: fx.Graph, observer: Observer) -> None:
        super().__init__(module, graph=graph)
        self._observer = observer

    def run_node(self, n: fx.Node) -> Any:
        operands = {node: self.env[node] for node in n.all_input_nodes}
        value = super().run_node(n)
        self._observer(n, value, operands)
        return value


def parts_of(model: nn.Module, seen: Mapping[str, tuple[Any, ...]]
             ) -> tuple[list[Part], dict[str, str]]:
    """The parts of a model, and by name why a module has no graph; *seen*: its calls' arguments."""
    parts: list[Part] = []
    unfolded: dict[str, str] = {}

    def find(name: str, module: nn.Module) -> None:
        if not any(isinstance(one, nn.Conv2d) for one in module.modules()):
            return
        if isinstance(module, nn.Conv2d) or (name and has_hooks(module)):
            return
        try:
            if name in seen:
                parts.append(Part(name, module, seen[name]))
                return
        except NotTraced as failed:
            unfolded[name] = str(failed)
        for child_name, child in module.named_children():
            find(f"{name}.{child_name}".lstrip("."), child)
    find("", model)
    return parts, unfolded


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors of a model's result."""
    from torch.utils._pytree import tree_leaves

    return (one for one in tree_leaves(value) if isinstance(one, Tensor))
