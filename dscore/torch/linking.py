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
from torch import Tensor, fx

from dscore.calling.call_cache import CALLS, PreparedCall
from dscore.calling.gpu_arrays import tensor_guard
from dscore.core.backend import MISPLACED
from dscore.torch.emission import Emission
from dscore.torch.folding import FoldedConv
from dscore.torch.pooling import PixelMean

# What a linked program returns for inputs that are not like those of its call.
MISS = object()
# Of the arena's parts, what every kernel's operands are aligned to.
_ALIGNMENT_BYTES = 512


Launched = FoldedConv | PixelMean


class Recording:
    """Calls of a program's convolutions and means, as one run of it has made them."""

    def __init__(self) -> None:
        self.calls: dict[Launched, PreparedCall] = {}
        self.guards: dict[Launched, list[Callable[..., bool] | None]] = {}
        self.bytes: dict[Launched, int] = {}  # of results

    def of(self, called: Any) -> Any:
        """What is launched as a function that records its call; anything else as it is."""
        if isinstance(called, PixelMean):
            return self._of_mean(called)
        if not isinstance(called, FoldedConv) or called.reason or called.norm is None:
            return called.bound() if isinstance(called, FoldedConv) else called
        compute = called.bound()

        def record(x: Tensor, *operands: Tensor | None) -> Tensor:
            y = compute(x, *operands)
            given = [x, *(one for one in operands if one is not None)]
            call = CALLS.prepared((x, called.weight, called.bias, *given[1:]), called.options)
            self._keep(called, call, given, y)
            return y
        return record

    def _of_mean(self, called: PixelMean) -> Any:
        def record(x: Tensor) -> Tensor:
            y, call = called(x), called.call(x)
            self._keep(called, call if call and call.takes_directly((x,)) else None, [x], y)
            return y
        return record

    def _keep(self, called: Launched, call: PreparedCall | None, given: list[Tensor],
              y: Tensor) -> None:
        if call is not None:
            self.calls[called], self.bytes[called] = call, y.numel() * y.element_size()
            self.guards[called] = [tensor_guard((one,)) for one in given]


def linked(model: torch.nn.Module, graph: fx.Graph,
           recording: Recording) -> Callable[..., Any] | None:
    """The program of *graph* for inputs like the recorded ones; None where it cannot be linked.

    It returns MISS for inputs that are not, and for what a kernel cannot take as it lies.
    """
    convolutions = [one for one in recording.calls if isinstance(one, FoldedConv)]
    if not convolutions or len({call.index for call in recording.calls.values()}) != 1:
        return None  # of several GPUs
    emission = _Linked(model, graph, recording)
    return emission.bound(lambda called: called.bound() if isinstance(called, FoldedConv)
                          else called) if emission.whole else None


class _Linked(Emission):
    """Emission of a graph whose convolutions and means are launched on addresses."""

    def __init__(self, model: torch.nn.Module, graph: fx.Graph, recording: Recording) -> None:
        self._recording, self._nodes = recording, list(graph.nodes)
        self._at = {node: at for at, node in enumerate(self._nodes)}
        self._arena = Arena()
        self._offsets: dict[fx.Node, int] = {}
        self._guarded: set[fx.Node] = set()
        self._inputs = [node for node in self._nodes if node.op == "placeholder"]
        self.whole = True
        example, first = next((one, call) for one, call in recording.calls.items()
                              if isinstance(one, FoldedConv))
        super().__init__(model, graph)
        self._names |= dict(
            _miss=MISS, _modes=torch._C._len_torch_dispatch_stack, _index=first.index,
            _stream_of=first.adapter.stream, _address=first.adapter.address,
            _arena_of=first.memory(example.weight, max(self._arena.bytes,
                                                       _ALIGNMENT_BYTES)))

    def _first_lines(self) -> list[str]:
        return ["if _modes():", "    return _miss", *self._guards(self._linked_inputs()),
                "_stream = _stream_of(_index)", "_arena = _arena_of()", "_base = _address(_arena)"]

    def _linked_inputs(self) -> list[fx.Node]:
        return [node for node in self._inputs if any(map(self._call_of, node.users))]

    def _call_of(self, node: fx.Node) -> PreparedCall | None:
        target: Any = node.target
        return self._recording.calls.get(target) if node.op == "call_function" and isinstance(
            target, Launched) else None

    def _is_internal(self, node: fx.Node) -> bool:
        """Whether a value is read by launches alone, so that it needs no tensor."""
        return (self._call_of(node) is not None and bool(node.users)
                and all(map(self._call_of, node.users)))

    def _lines(self, node: fx.Node) -> list[str]:
        call = self._call_of(node)
        ended = [one for one in node.all_input_nodes
                 if self._last[one] is node and not self._is_internal(one)]
        if call is None:
            return super()._lines(node)
        lines = [line for one in node.all_input_nodes for line in self._guards([one])]
        lines += self._launch(node, call)
        return lines + ([f"del {', '.join(one.name for one in ended)}"] if ended else [])

    def _launch(self, node: fx.Node, call: PreparedCall) -> list[str]:
        """The lines that launch a kernel, to the arena or to a new tensor."""
        layer: Any = node.target
        bytes_out, at = self._recording.bytes[layer], self._at[node]
        if self._is_internal(node):
            offset = self._arena.place(bytes_out, at, max(self._at[user] for user in node.users))
            lines, result = [f"{node.name} = _base + {offset}"], node.name
        else:
            lines = [f"{node.name} = {self._bind(call.new)}()"]
            result = f"_address({node.name})"
        x, *operands = (one for one in node.args if one is not None)
        addresses = [self._address_of(x),
                     *("0" if one is None else str(call.adapter.address(one))
                       for one in layer.constants),
                     *map(self._address_of, operands), result]
        if call.workspace_bytes:
            addresses.append(f"_base + {self._arena.place(call.workspace_bytes, at, at)}")
        failed = self._bind(_Failure(call))
        return [*lines, f"_code = {self._bind(call.start)}({', '.join(addresses)}, _stream)",
                "if _code:", f"    return {failed}(_code)"]

    def _address_of(self, value: Any) -> str:
        return value.name if self._is_internal(value) else f"_address({value.name})"

    def _guards(self, nodes: list[fx.Node]) -> Iterator[str]:
        """Lines that see whether tensors which launches read are what they were."""
        for node in nodes:
            if node in self._guarded or self._call_of(node) is not None:
                continue  # what a launch has made needs no look
            self._guarded.add(node)
            guard = self._guard(node)
            self.whole &= guard is not None
            yield f"if not {self._bind(guard)}({node.name}):"
            yield "    return _miss"

    def _guard(self, node: fx.Node) -> Callable[..., bool] | None:
        """The guard of a value, recorded with the first launch that reads it."""
        user = next(user for user in node.users if self._call_of(user) is not None)
        layer: Any = user.target
        read = [one for one in user.args if one is not None]
        return self._recording.guards[layer][read.index(node)]


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
