"""Emission of a graph as a Python function with all that it calls bound to it.

torch.fx writes a module that looks each submodule up by its path at every call. Here submodules,
functions and constants are global names of the function, so that an eager call costs little more
than what it calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx, nn

_LITERALS = (bool, int, str, type(None), type(Ellipsis))


class Emission:
    """Source of a graph of *model*, and the objects under its global names.

    `bound(replace)` makes the function; *replace* may give another object for one that is called.
    """

    def __init__(self, model: nn.Module, graph: fx.Graph) -> None:
        self._names: dict[str, Any] = {}
        self._modules = dict(model.named_modules(remove_duplicate=False))
        self._codegen = graph._codegen
        self._last = {node: user for user in graph.nodes for node in user.all_input_nodes}
        lines = [*self._first_lines(), *(line for node in graph.nodes
                                         for line in self._lines(node))]
        inputs = ", ".join(self._input(node) for node in graph.nodes if node.op == "placeholder")
        body = "\n    ".join(lines)
        self.source = f"def forward({inputs}):\n    {body}\n"
        self._names["_model"] = model

    def bound(self, replace: Callable[[Any], Any] = lambda called: called) -> Callable[..., Any]:
        """The function."""
        names = {name: replace(called) for name, called in self._names.items()}
        exec(compile(self.source, "<dscore: folded graph>", "exec"), names)
        return names["forward"]  # type: ignore[no-any-return]

    def _first_lines(self) -> list[str]:
        return []

    def _input(self, node: fx.Node) -> str:
        return f"{node.name}={self._value(node.args[0])}" if node.args else node.name

    def _lines(self, node: fx.Node) -> list[str]:
        """The lines of a node: its call, and the end of the values that it uses last."""
        if node.op == "placeholder":
            return []
        if node.op == "output":
            return [f"return {self._result(self._value(node.args[0]))}"]
        ended = [one.name for one in node.all_input_nodes if self._last[one] is node]
        lines = [f"{node.name} = {self._call(node)}"]
        if not node.users:
            ended.append(node.name)
        return lines + ([f"del {', '.join(ended)}"] if ended else [])

    def _result(self, value: str) -> str:
        """What is returned; an exported graph states in what form its caller has that."""
        if type(self._codegen) is fx.graph.CodeGen:
            return value
        return f"{self._bind(self._codegen.process_outputs)}({value})"

    def _call(self, node: fx.Node) -> str:
        arguments = [self._value(one) for one in node.args]
        arguments += [f"{name}={self._value(one)}" for name, one in node.kwargs.items()]
        if node.op == "call_method":
            return f"{arguments[0]}.{node.target}({', '.join(arguments[1:])})"
        if node.op == "get_attr":
            return f"_model{''.join(map(_attribute, str(node.target).split('.')))}"
        return f"{self._bind(self._called(node))}({', '.join(arguments)})"

    def _called(self, node: fx.Node) -> Any:
        """The function or module that a node calls; None where it calls none."""
        if node.op == "call_module":
            return self._modules[str(node.target)]
        return node.target if node.op == "call_function" else None

    def _value(self, value: Any) -> str:
        """An argument as an expression."""
        if isinstance(value, fx.Node):
            return value.name
        if isinstance(value, slice):
            return f"slice({', '.join(map(self._value, (value.start, value.stop, value.step)))})"
        if type(value) in (list, fx.immutable_collections.immutable_list):
            return f"[{', '.join(map(self._value, value))}]"
        if type(value) is tuple or hasattr(value, "_fields"):  # which a named one has
            items = "".join(f"{self._value(one)}, " for one in value)
            return f"({items})" if type(value) is tuple else f"{self._bind(type(value))}({items})"
        if isinstance(value, dict):
            pairs = (f"{self._value(key)}: {self._value(one)}" for key, one in value.items())
            return f"{{{', '.join(pairs)}}}"
        return repr(value) if type(value) in _LITERALS else self._bind(value)

    def _bind(self, value: Any) -> str:
        """The global name of an object, the same each time."""
        for name, other in self._names.items():
            if other is value:
                return name
        name = f"_bound{len(self._names)}"
        self._names[name] = value
        return name


def _attribute(name: str) -> str:
    return f".{name}" if name.isidentifier() else f"._modules[{name!r}]"
