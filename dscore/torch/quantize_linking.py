"""Eager calls of a quantised model by linked programs (`dscore.torch.linking`).

Its modules hold all that its kernels take, so that nothing is folded: a linked program has the
addresses of their tensors, and what is there may change. Other calls, and those of models that
cannot be linked, go the way of `torch.fx.GraphModule`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.graph import CodeGen, _PyTreeCodeGen
from torch.utils._pytree import tree_structure

from dscore.torch.emission import Emission
from dscore.torch.gates import gates_in, with_gates
from dscore.torch.linking import Linkable, launches
from dscore.torch.operators import by_operators
from dscore.torch.overwriting import changes_others
from dscore.torch.quantize_entry import with_entries
from dscore.torch.tracing import gpu_of, record_shapes
from dscore.torch.watching import Place, State, Watch, are_all_hooked

Forward = Callable[..., Any]
_gradients_on, _autocast_on = torch.is_grad_enabled, torch.is_autocast_enabled
_compiling = torch.compiler.is_compiling
# What PyTorch keeps of any module: its parameters and buffers have places of their own.
_OF_ANY = frozenset(vars(nn.Module()))


class QuantizedProgram(Linkable):
    """Linked programs of a quantised model, of the modules and attributes that it has now.

    *forward* is that of its class; `count` is the number of its arguments.
    """

    def __init__(self, model: fx.GraphModule, forward: Forward) -> None:
        self.model, self.graph = model, copy.deepcopy(model.graph)  # which may be edited
        self.count = len(_inputs(self.graph))
        self._emission = Emission(model, self.graph)
        steps = [one for one in model.modules() if launches(one)]
        self._watch = Watch(model, [place for one in steps for place in _places(one)],
                            contents=False)
        self._unlink(functools.partial(forward, model))

    def state(self) -> State:
        """What has become of the model since."""
        return self._watch.state()

    def _constants(self) -> tuple[Tensor, ...]:
        return self._watch.tensors

    def _graph_for(self, arguments: tuple[Any, ...]) -> fx.Graph:
        """The graph with gates and entries as one launch each, where some gain by it on such
        inputs."""
        index = gpu_of(self.model)
        graph = with_entries(self.model, self.graph, index)
        if not gates_in(self.model, graph, index):
            return graph
        shapes = record_shapes(self.model, graph, arguments)
        for node in graph.nodes:
            node.meta = shapes[node.name]._asdict() if node.name in shapes else {}
        return with_gates(self.model, graph, index)[0]

    def _unlinked(self, arguments: tuple[Any, ...]) -> Any:
        if by_operators(arguments):
            return self._general(*arguments)
        return super()._unlinked(arguments)


def _places(module: nn.Module) -> Iterator[Place]:
    """The places of a module's tensors and options."""
    for tensors in (module._parameters, module._buffers):
        yield from ((tensors, name) for name in tensors)
    yield from ((vars(module), name) for name in vars(module).keys() - _OF_ANY)


class Programs:
    """The program of a quantised model, for eager calls by the *forward* of its graph's code."""

    def __init__(self, forward: Forward) -> None:
        self._forward, self._refused = forward, False
        self.program: QuantizedProgram | None = None

    def forget(self) -> None:
        """Forget the program, which holds the tensors that the model had."""
        self.program = None

    def of(self, model: fx.GraphModule, count: int) -> QuantizedProgram | None:
        """The program of *model* as it is now, for so many arguments; None where there is none."""
        if self._refused:
            return None
        program = self.program
        state = "outdated" if program is None else program.state()
        if program is None or state in ("changed", "outdated"):
            if are_all_hooked():
                return None
            self._refused = not _may_be_linked(model)
            if self._refused:
                return None
            program = self.program = QuantizedProgram(model, self._forward)
            state = program.state()
        return program if state == "current" and program.count == count else None


def linking(forward: Forward, programs: Programs) -> Forward:
    """The *forward* of a quantised model with eager calls by its linked programs."""
    @functools.wraps(forward)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _compiling() or kwargs or _gradients_on() or _autocast_on():
            return forward(self, *args, **kwargs)
        program = programs.of(self, len(args))
        return forward(self, *args) if program is None else program.forward(*args)
    return call


def _inputs(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def _may_be_linked(model: fx.GraphModule) -> bool:
    """Whether linked programs do what a model does.

    A graph that has changed since its code was made is not what the model does. One that changes
    its inputs or buffers in place cannot be run anew, as it is where a linked program has found a
    tensor that is not what it was.
    """
    graph, inputs = model.graph, _inputs(model.graph)
    return (not any(str(node.target).startswith("*") for node in inputs)
            and _takes_tensors(graph._codegen, len(inputs))
            and graph.python_code("self").src == model.code
            and not changes_others(model, graph, launches))


def _takes_tensors(codegen: CodeGen, count: int) -> bool:
    """Whether code takes the inputs of its graph one by one, not in lists or dictionaries."""
    if type(codegen) is _PyTreeCodeGen:  # of exported models
        plain = tree_structure((tuple(range(count)), {}))
        return bool(codegen.pytree_info.in_spec == plain)
    return type(codegen) is CodeGen
