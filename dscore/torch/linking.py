"""Linked program: the launches of a folded graph one after another, with no tensors between them.

A folded program makes a tensor of each convolution's result and checks it before the next one,
though its graph tells what it will be. For inputs like those of one call all launches are known
from that call. What passes from convolution to convolution lies in one piece of memory, the arena,
whose parts are used again after their last reader. Of 6 us on the host that a layer takes so, 3
remain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn

from dscore.calling.call_cache import MOST_VARIANTS, PreparedCall
from dscore.calling.gpu_arrays import tensor_guard
from dscore.core.backend import MISPLACED
from dscore.torch.emission import Emission
from dscore.torch.launches import Bindable, Launch, Launching
from dscore.torch.tracing import has_hooks

# What a linked program returns for inputs that are not like those of its call.
MISS = object()
# Of the arena's parts, what every kernel's operands are aligned to.
_ALIGNMENT_BYTES = 512
_MOST_FORMS = 16  # of inputs, that are not linked
_NO_WORK = ("placeholder", "get_attr", "output")  # nodes that give a device nothing to do


class Recording:
    """Launches of a program's steps, as one run of it has made them, by what the steps call."""

    def __init__(self) -> None:
        self.launches: dict[Any, Launch] = {}
        self.guards: dict[Any, list[Callable[..., bool] | None]] = {}  # of arguments
        self.bytes: dict[Any, int] = {}  # of results
        self._seen: set[Any] = set()

    def of(self, called: Any) -> Any:
        """What may be a launch as a function that records it; anything else for eager calls."""
        compute = eager(called)
        if not launches(called):
            return compute

        def record(*arguments: Any, **options: Any) -> Any:
            y = compute(*arguments, **options)
            self._keep(called, None if options else called.launch_of(*arguments), arguments, y)
            return y
        return record

    def _keep(self, called: Any, launch: Launch | None, arguments: tuple[Any, ...],
              y: Tensor) -> None:
        if called in self._seen:  # by two steps, whose tensors may differ
            self.launches.pop(called, None)
        elif launch is not None:
            self.launches[called], self.bytes[called] = launch, y.numel() * y.element_size()
            self.guards[called] = [None if one is None else tensor_guard((one,))
                                   for one in arguments]
        self._seen.add(called)


def eager(called: Any) -> Any:
    """What a step calls, as a function for eager calls without gradients and tracing."""
    return called.bound() if isinstance(called, Bindable) else called


def launches(called: Any) -> bool:
    """Whether a step may be a launch of what it calls: of a module with hooks, or with a forward
    that is not the one which its launch is of, it is none.
    """
    if not isinstance(called, Launching):
        return False
    if not isinstance(called, nn.Module):
        return True
    owner: Any = next(kind for kind in type(called).__mro__ if "launch_of" in vars(kind))
    return type(called).forward is owner.forward and not has_hooks(called)


def linked(model: nn.Module, graph: fx.Graph, recording: Recording,
           constants: tuple[Tensor, ...] = ()) -> Callable[..., Any] | None:
    """The program of *graph* for inputs like the recorded ones; None where it cannot be linked.

    It returns MISS for inputs that are not, for *constants* that are no longer what they were (but
    for their contents), and for what a kernel cannot take as it lies.
    """
    made = recording.launches.values()
    if len({launch.call.index for launch in made}) != 1:
        return None  # there are none, or of several GPUs
    if not any(launch.constants for launch in made):
        return None  # of means alone
    emission = _Linked(model, graph, recording, constants)
    return emission.bound(eager) if emission.whole else None


class Linkable:
    """Graph of a model, by whose linked programs eager calls go where one takes their inputs.

    The second call with inputs of one form makes one. `_general` computes all else.
    """

    model: nn.Module
    graph: fx.Graph
    _emission: Emission
    _general: Callable[..., Any]
    _linked: tuple[Callable[..., Any], ...]
    _forms_seen: list[Any]
    _may_link = True

    def _unlink(self, general: Callable[..., Any]) -> None:
        """Forget linked programs, and take *general* for what none takes."""
        self._general, self._linked, self._forms_seen = general, (), []

    def _constants(self) -> tuple[Tensor, ...]:
        """Tensors of others whose addresses linked programs have."""
        return ()

    def _graph_for(self, arguments: tuple[Any, ...]) -> fx.Graph:
        """The graph of a linked program for inputs like *arguments*."""
        return self.graph

    def forward(self, *arguments: Any) -> Any:
        """The result of an eager call."""
        for run in self._linked:
            result = run(*arguments)
            if result is not MISS:
                return result
        return self._unlinked(arguments)

    def _unlinked(self, arguments: tuple[Any, ...]) -> Any:
        """The result of a call that no linked program takes; of a form's second one is made."""
        forms = [torch.is_inference_mode_enabled(), *map(_form_of, arguments)]
        if (not self._may_link or self._forms_seen.count(forms) != 1
                or len(self._linked) == MOST_VARIANTS):
            self._forms_seen = [*self._forms_seen[-_MOST_FORMS:], forms]
            return self._general(*arguments)
        recording, graph = Recording(), self._graph_for(arguments)
        emission = self._emission if graph is self.graph else Emission(self.model, graph)
        result = emission.bound(recording.of)(*arguments)
        run = linked(self.model, graph, recording, self._constants())
        self._forms_seen = [*self._forms_seen, forms]
        self._linked += () if run is None else (run,)
        return result


def _form_of(value: Any) -> Any:
    """What a linked program depends on of an argument, but for what its guards alone see."""
    if not isinstance(value, Tensor):
        return None
    strides = value.stride() if value.layout is torch.strided else None
    return value.shape, strides, value.dtype, value.device, value.is_inference()


class _Linked(Emission):
    """Emission of a graph whose launches are made on addresses."""

    def __init__(self, model: nn.Module, graph: fx.Graph, recording: Recording,
                 constants: tuple[Tensor, ...]) -> None:
        self._recording, self._constants = recording, constants
        self._nodes = list(graph.nodes)
        self._at = {node: at for at, node in enumerate(self._nodes)}
        self._arena = Arena()
        self._guarded: set[fx.Node] = set()
        self._behind = False  # whether the kernel before, on the stream, is that of a launch
        self._inputs = [node for node in self._nodes if node.op == "placeholder"]
        self.whole = True
        first = next(one for one in recording.launches.values() if one.constants)
        super().__init__(model, graph)
        call = first.call
        self._names |= dict(
            _miss=MISS, _modes=torch._C._len_torch_dispatch_stack, _index=call.index,
            _stream_of=call.adapter.stream, _address=call.adapter.address,
            _kept=[launch.constants for launch in recording.launches.values()],
            _arena_of=call.memory(first.constants[0], max(self._arena.bytes, _ALIGNMENT_BYTES)))

    def _first_lines(self) -> list[str]:
        held = self._constants
        guards = self._guarded_by(tensor_guard(held), f"*{self._bind(held)}") if held else []
        return ["if _modes():", "    return _miss", *self._guards(self._linked_inputs()), *guards,
                "_stream = _stream_of(_index)", "_arena = _arena_of()", "_base = _address(_arena)"]

    def _linked_inputs(self) -> list[fx.Node]:
        return [node for node in self._inputs if any(map(self._launch_of, node.users))]

    def _launch_of(self, node: fx.Node) -> Launch | None:
        called = self._called(node)
        return None if called is None else self._recording.launches.get(called)

    def _is_internal(self, node: fx.Node) -> bool:
        """Whether a value is read by launches alone, as it lies, so that it needs no tensor."""
        return (self._launch_of(node) is not None and bool(node.users)
                and all(map(self._takes_address, node.users)))

    def _takes_address(self, node: fx.Node) -> bool:
        launch = self._launch_of(node)
        return launch is not None and launch.lays is None

    def _lines(self, node: fx.Node) -> list[str]:
        launch = self._launch_of(node)
        if launch is None:
            self._behind &= node.op in _NO_WORK
            return super()._lines(node)
        ended = [one for one in node.all_input_nodes
                 if self._last[one] is node and not self._is_internal(one)]
        lines = [line for one in node.all_input_nodes for line in self._guards([one])]
        lines += self._launched(node, launch)
        return lines + ([f"del {', '.join(one.name for one in ended)}"] if ended else [])

    def _launched(self, node: fx.Node, launch: Launch) -> list[str]:
        """The lines that launch a kernel, to the arena or to a new tensor."""
        call, at = launch.call, self._at[node]
        if self._is_internal(node):
            offset = self._arena.place(self._recording.bytes[self._called(node)], at,
                                       max(self._at[user] for user in node.users))
            lines, result = [f"{node.name} = _base + {offset}"], node.name
        else:
            lines = [f"{node.name} = {self._bind(launch.new)}()"]
            result = f"_address({node.name})"
        addresses = [*(self._operand(node, launch, one) for one in launch.operands), result]
        if call.workspace_bytes:
            addresses.append(f"_base + {self._arena.place(call.workspace_bytes, at, at)}")
        start = self._bind(call.start(self._behind and launch.lays is None))
        lines.append(f"_code = {start}({', '.join(addresses)}, _stream)")
        self._behind = True
        if launch.lays is not None:  # whose memory may be given away at once: on this stream, later
            lines.insert(-1, f"_laid = {self._bind(launch.lays)}({self._value(node.args[0])})")
            lines.append("del _laid")
        return [*lines, "if _code:", f"    return {self._bind(_Failure(call))}(_code)"]

    def _operand(self, node: fx.Node, launch: Launch, operand: int | Tensor | None) -> str:
        """The address of a kernel's operand."""
        if operand is None:
            return "0"
        if isinstance(operand, Tensor):
            return str(launch.call.adapter.address(operand))
        if operand == 0 and launch.lays is not None:
            return "_address(_laid)"
        value: Any = node.args[operand]
        return value.name if self._is_internal(value) else f"_address({value.name})"

    def _guards(self, nodes: list[fx.Node]) -> Iterator[str]:
        """Lines that see whether tensors which launches read are what they were."""
        for node in nodes:
            if node in self._guarded or self._launch_of(node) is not None:
                continue  # what a launch has made needs no look
            self._guarded.add(node)
            yield from self._guarded_by(self._guard(node), node.name)

    def _guarded_by(self, guard: Callable[..., bool] | None, values: str) -> list[str]:
        self.whole &= guard is not None
        return [f"if not {self._bind(guard)}({values}):", "    return _miss"]

    def _guard(self, node: fx.Node) -> Callable[..., bool] | None:
        """The guard of a value, recorded with the first launch that reads it."""
        user = next(user for user in node.users if self._launch_of(user) is not None)
        return self._recording.guards[self._called(user)][user.args.index(node)]


class _Failure:
    """What becomes of the code of a failed launch: an error, or MISS for what must be copied."""

    def __init__(self, call: PreparedCall) -> None:
        self._call = call

    def __call__(self, code: int) -> Any:
        if code == MISPLACED:
            return MISS
        raise self._call.failure(code)


class Arena:
    """Places in one piece of memory for values that live from one step to another.

    >>> arena = Arena()
    >>> arena.place(1000, 0, 1), arena.place(600, 1, 2), arena.place(800, 2, 3)
    (0, 1024, 0)
    >>> arena.bytes
    2048
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._taken: list[tuple[int, int, int]] = []  # begin, end, last step

    def place(self, size_bytes: int, first: int, last: int) -> int:
        """The offset of a value that is written in step *first* and read last in step *last*.

        Steps come in their order.
        """
        self._taken = sorted(one for one in self._taken if one[2] >= first)
        size, offset = -(-size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES, 0
        for begin, end, _ in self._taken:
            if begin - offset >= size:
                break
            offset = max(offset, end)
        self._taken.append((offset, offset + size, last))
        self.bytes = max(self.bytes, offset + size)
        return offset
