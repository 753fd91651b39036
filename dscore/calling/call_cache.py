"""Calls on GPU arrays, prepared once and remembered."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from types import CodeType
from typing import TYPE_CHECKING, Any

from dscore.calling.arguments import memory_layout, require_gpu_out
from dscore.calling.arrays import GpuAdapter
from dscore.core.backend import MISPLACED
from dscore.core.once import Locks
from dscore.core.spec import LAYOUTS

if TYPE_CHECKING:
    from dscore.core.backend import Launchable
    from dscore.ops import Operand

# Takes the inputs (of a convolution x, w and bias) and out, each of which may be None; returns None
# for arrays that are not of its kind.
FastCall = Callable[..., Any]
# Programs that meet ever new shapes must not remember all of them.
MOST_CALLS = 4096
# Specialized functions of one call: for a parameter, in inference mode, under autocast, ...
MOST_VARIANTS = 4


class PreparedCall:
    """A kernel on GPU *index*, with the functions of the arrays' library that it is called by.

    *inputs* are such as the call is for, None where an operand is missing; *shape* and *dtype*
    (None: that of x) are the result's. With *operands*, the axes of images are (N, C, H, W), and
    their memory is as these operands say.
    """

    __slots__ = ("_dtype", "_kernel", "_last", "_layout", "_matches", "_operands", "_shapes",
                 "_variants", "_workspace", "adapter", "index", "new", "shape")

    def __init__(self, adapter: GpuAdapter, index: int, inputs: tuple[Any, ...],
                 shape: tuple[int, ...], kernel: Launchable,
                 operands: tuple[Operand, ...] = (), dtype: str | None = None) -> None:
        self.adapter, self.index, self.shape, self._kernel = adapter, index, shape, kernel
        self._matches = [one if one is None else adapter.matcher(one) for one in inputs]
        self._operands, self._dtype = operands, dtype
        self._last = [one.layout == "nhwc" for one in operands] or [False] * (len(inputs) + 1)
        self._layout = "nhwc" if any(self._last) else "nchw"
        self.new = adapter.allocator(shape, inputs[0], self._last[-1], dtype)
        self._workspace = self._workspaces(inputs[0])
        self._shapes = [_shape_of(array) for array in inputs]
        self._variants = 0

    def _workspaces(self, example: Any) -> tuple[Callable[[], Any], ...]:
        """Function that makes the memory which the kernel needs beside its operands, if any."""
        size_bytes = self._kernel.workspace_bytes
        return (self.memory(example, size_bytes),) * (size_bytes > 0)

    def start(self, behind: bool) -> Callable[..., int]:
        """The launch, or one *behind* another kernel's (`Launchable.start_on`): of operands,
        workspace, a stream; see `failure`."""
        return self._kernel.start_on(self.index, behind)

    @property
    def workspace_bytes(self) -> int:
        """Memory that a launch needs beside its operands."""
        return self._kernel.workspace_bytes

    def failure(self, code: int) -> Exception:
        """The error that a launch's code stands for."""
        return self._kernel.failure(code)

    def memory(self, example: Any, size_bytes: int) -> Callable[[], Any]:
        """Function that makes an array of so much memory where *example* lies."""
        return self.adapter.allocator((-(-size_bytes // example.itemsize),), example)

    def fits(self, *inputs: Any) -> bool:
        """Whether inputs are of the call's classes, types, device, shapes and memory's layout."""
        if [_shape_of(array) for array in inputs] != self._shapes or not all(
                matches is None or matches(array)
                for matches, array in zip(self._matches, inputs, strict=True)):
            return False
        images = [array for array, operand in zip(inputs, self._operands, strict=False)
                  if operand.layout in LAYOUTS]
        return not images or memory_layout(self.adapter, "nchw", images) == self._layout

    def specialized(self, inputs: tuple[Any, ...], other: FastCall) -> FastCall:
        """The call for inputs like these, without the checks that need not be made each time.

        Unlike ones go to *other*; so do all, where a kernel cannot take these as they are.
        """
        present = _present(inputs)
        if self._variants == MOST_VARIANTS or not self.takes_directly(inputs):
            return other
        self._variants += 1
        return self._function(inputs, guard=self.adapter.guard(present) or self._takes(inputs),
                              other=other)

    def unguarded(self, inputs: tuple[Any, ...]) -> FastCall:
        """The call for inputs that are known to be like these; None for what must be copied."""
        return self._function(inputs)

    def _function(self, inputs: tuple[Any, ...], **checks: Any) -> FastCall:
        # Each is looked up once, and nothing is asked that is the same at each call: it is to cost
        # little more than its launch.
        names: dict[str, Any] = dict(
            new=self.new, checked=self.checked, address=self.adapter.address,
            refused=self._refused, start=self._kernel.start_on(self.index, False),
            stream=self.adapter.stream, index=self.index,
            workspace=next(iter(self._workspace), None), **checks)
        exec(_source(tuple(array is not None for array in inputs), bool(self._workspace),
                     bool(checks)), names)
        return names["call"]  # type: ignore[no-any-return]

    def _refused(self, code: int) -> None:
        """None for arrays that must be copied first; else LaunchError."""
        if code != MISPLACED:
            raise self._kernel.failure(code)

    def _takes(self, examples: tuple[Any, ...]) -> Callable[..., bool]:
        """The guard of a library that has none, for inputs of which these are missing."""
        def takes(*present: Any) -> bool:
            arrays = iter(present)
            inputs = [None if example is None else next(arrays) for example in examples]
            return self.fits(*inputs) and self.takes_directly(inputs)
        return takes

    def __call__(self, *operands: Any) -> Any:
        """Launch on the caller's current stream, without waiting; returns *out* or a new array.

        *operands*: the inputs and out. What is not contiguous, or begins amid a vector, is copied.
        """
        *inputs, out = operands
        target = self.new() if out is None else self.checked(out, *inputs)
        result = target if self._direct(target, self._last[-1]) else self.new()
        ready = [None if array is None else self._ready(array, last)
                 for array, last in zip(inputs, self._last, strict=False)]
        ready += [result, *(make() for make in self._workspace)]
        address = self.adapter.address
        self._kernel.launch(*(0 if array is None else address(array) for array in ready),
                            self.adapter.stream(self.index), self.index)
        if result is not target:
            target[...] = result
        return target

    def takes_directly(self, inputs: Sequence[Any]) -> bool:
        """Whether its kernel can take *inputs* as they lie."""
        return all(array is None or self._direct(array, last)
                   for array, last in zip(inputs, self._last, strict=False))

    def _direct(self, array: Any, last: bool) -> bool:
        """Whether a kernel can take *array* as it is."""
        address = self.adapter.direct_address(array, last)
        return address != 0 and address % self._kernel.alignment == 0

    def _ready(self, array: Any, last: bool) -> Any:
        """*array* where a kernel can take it, else a copy."""
        if self._direct(array, last):
            return array
        contiguous = self.adapter.contiguous(array, last)
        # An array that is contiguous as it is begins amid a vector.
        return self.adapter.copy(array) if contiguous is array else contiguous

    def checked(self, out: Any, *inputs: Any) -> Any:
        """*out*, where the kernel can write its result to it straight away; else SpecError."""
        try:
            require_gpu_out(self.adapter, out, self.shape, inputs, self._last[-1], self._dtype)
        except RuntimeError:  # PyTorch's own, for a tensor without plain memory
            self.adapter.require_plain(out, "out")
            raise
        return out


def _present(inputs: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(array for array in inputs if array is not None)


def _shape_of(array: Any) -> tuple[int, ...] | None:
    return None if array is None else tuple(array.shape)


@lru_cache
def _source(present: tuple[bool, ...], workspace: bool, guarded: bool) -> CodeType:
    """The function `call` of inputs of which some are *present*, as code.

    Code of its own for each saves 2 of the 6 us that a loop over four inputs takes.
    """
    inputs = [f"input{number}" for number in range(len(present))]
    given = [name for name, here in zip(inputs, present, strict=True) if here]
    lines = [f"if not guard({', '.join(given)}):",
             f"    return other({', '.join(inputs)}, out)"] * guarded
    lines.append(f"y = new() if out is None else checked(out, {', '.join(given)})")
    for name in given[2:]:  # which the kernel would take for missing ones where they are empty
        lines += [f"{name} = address({name})", f"if not {name}:", "    return None"]
    addresses = [f"address({name})" for name in given[:2]]
    addresses += [name if here else "0" for name, here in
                  zip(inputs[2:], present[2:], strict=True)]
    addresses.append("address(y)")
    if workspace:  # whose memory the allocator may give away at once: on this stream, later
        lines.append("further = workspace()")
        addresses.append("address(further)")
    lines += [f"code = start({', '.join(addresses)}, stream(index))",
              "return refused(code) if code else y"]
    body = "\n    ".join(lines)
    return compile(f"def call({', '.join(inputs)}, out):\n    {body}\n", "<dscore: call>", "exec")


class CallCache:
    """Calls on GPU arrays, remembered in three levels that are tried in this order.

    level        key                                                          value
    fast         the identity of w, whether there is no bias, the options     a specialized function
    specialized  the bytes of the inputs, the options                         a specialized function
    prepared     the same                                                     prepared calls

    The identity is read fastest and is but a guess; the bytes are read faster than the shapes, so
    that the calls of one key differ in type, device or shapes. A specialized function checks the
    arrays that it is given. At most *most* keys are remembered, then all are forgotten.
    Threads may use it at the same time.
    """

    def __init__(self, most: int = MOST_CALLS) -> None:
        self.fast: dict[Hashable, FastCall] = {}
        self._specialized: dict[Hashable, FastCall] = {}
        self._prepared: dict[Hashable, tuple[PreparedCall, ...]] = {}
        self._most, self._locks = most, Locks()

    def call(self, inputs: tuple[Any, ...], out: Any, options: tuple[Any, ...]) -> Any:
        """The result by the remembered call for these arrays; None where there is none."""
        try:
            key = _key(inputs, options)
            specialized: FastCall = self._specialized.get(key, _no_call)
        # No array, one that is not dense, or an option that cannot be hashed.
        except (AttributeError, RuntimeError, TypeError, ValueError):
            return None
        y = specialized(*inputs, out)
        if y is None:
            call = self._fitting(key, inputs)
            if call is None:
                return None
            specialized = self._specialize(key, call, inputs, specialized)
            y = call(*inputs, out)
        if not isinstance(options[0], str):  # of a gradient's operation each tensor is new
            if len(self.fast) >= self._most:
                self.fast.clear()
            self.fast[(id(inputs[1]), inputs[2] is None, *options)] = specialized
        return y

    def remember(self, inputs: tuple[Any, ...], options: tuple[Any, ...],
                 call: PreparedCall) -> None:
        """Keep *call* for the next time, unless an option cannot be hashed."""
        key = _key(inputs, options)
        with suppress(TypeError), self._locks.of(None):
            if len(self._prepared) >= self._most:
                self.clear()
            # Else another thread has prepared it, too.
            if self._fitting(key, inputs) is None:
                self._prepared[key] = (*self._prepared.get(key, ()), call)

    def prepared(self, inputs: tuple[Any, ...], options: tuple[Any, ...]) -> PreparedCall | None:
        """The remembered call whose kernel takes *inputs* as they lie; None where there is none."""
        try:
            call = self._fitting(_key(inputs, options), inputs)
        except (AttributeError, RuntimeError, TypeError, ValueError):  # as in `call`
            return None
        return call if call is not None and call.takes_directly(inputs) else None

    def unguarded(self, inputs: tuple[Any, ...], options: tuple[Any, ...]) -> FastCall | None:
        """`PreparedCall.unguarded` of the call for *inputs*; None where there is none."""
        call = self.prepared(inputs, options)
        return None if call is None else call.unguarded(inputs)

    def clear(self) -> None:
        """Forget all calls."""
        for level in (self._prepared, self._specialized, self.fast):
            level.clear()

    def _fitting(self, key: Hashable, inputs: tuple[Any, ...]) -> PreparedCall | None:
        return next((call for call in self._prepared.get(key, ()) if call.fits(*inputs)), None)

    def _specialize(self, key: Hashable, call: PreparedCall, inputs: tuple[Any, ...],
                    previous: FastCall) -> FastCall:
        """The specialized function for arrays like *inputs*, before the *previous* one of *key*."""
        with self._locks.of(None):
            current = self._specialized.get(key, _no_call)
            if current is not previous:  # another thread has specialized a call meanwhile
                return current
            specialized = self._specialized[key] = call.specialized(inputs, previous)
        return specialized


def _key(inputs: tuple[Any, ...], options: tuple[Any, ...]) -> Hashable:
    return (*[None if array is None else array.nbytes for array in inputs], *options)


def _no_call(*operands: Any) -> None:
    """The function that takes no arrays."""


CALLS = CallCache()
