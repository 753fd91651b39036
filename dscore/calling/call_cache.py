"""Calls on GPU arrays, prepared once and remembered."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dscore.calling.arguments import require_gpu_out
from dscore.calling.arrays import GpuAdapter
from dscore.core.backend import MISPLACED
from dscore.core.once import Locks

if TYPE_CHECKING:
    from dscore.core.backend import Launchable

# Takes x, w, bias and out; returns None for arrays that are not of its kind.
FastCall = Callable[[Any, Any, Any, Any], Any]
# Programs that meet ever new shapes must not remember all of them.
MOST_CALLS = 4096
# Specialized functions of one call: for a parameter, in inference mode, under autocast, ...
MOST_VARIANTS = 4


class PreparedCall:
    """A kernel on GPU *index*, with the functions of the arrays' library that it is called by.

    *examples*, x and w and bias if there is one, are of the classes, types, device and shapes that
    the call is for; *shape* is the result's.
    """

    __slots__ = ("_adapter", "_index", "_kernel", "_matches", "_new", "_shape", "_shapes",
                 "_variants")

    def __init__(self, adapter: GpuAdapter, index: int, examples: tuple[Any, ...],
                 shape: tuple[int, ...], kernel: Launchable) -> None:
        self._adapter, self._index, self._shape, self._kernel = adapter, index, shape, kernel
        self._matches = adapter.matcher(examples[0])
        self._new = adapter.allocator(shape, examples[0])
        self._shapes = [tuple(array.shape) for array in examples]
        self._variants = 0

    def fits(self, *arrays: Any) -> bool:
        """Whether arrays are of the call's classes, types, device and shapes."""
        return (all(map(self._matches, arrays))
                and [tuple(array.shape) for array in arrays] == self._shapes)

    def specialized(self, arrays: tuple[Any, ...], other: FastCall) -> FastCall:
        """The call for arrays like these, without the checks that need not be made each time.

        Unlike ones go to *other*; so do all, where a kernel cannot take these as they are.
        """
        if self._variants == MOST_VARIANTS or not all(map(self._direct, arrays)):
            return other
        self._variants += 1
        specialize = self._biased if len(arrays) == 3 else self._unbiased
        return specialize(self._adapter.guard(arrays) or self._takes, other)

    def _unbiased(self, guard: Callable[..., bool], other: FastCall) -> FastCall:
        # Each is looked up once: a call is to cost little more than its launch.
        new, checked, address = self._new, self.checked, self._adapter.address
        start, refused = self._kernel.start_on(self._index), self._refused
        stream, index = self._adapter.stream, self._index

        def call(x: Any, w: Any, bias: Any, out: Any) -> Any:
            if not guard(x, w):
                return other(x, w, bias, out)
            y = new() if out is None else checked(out, x, w)
            code = start(address(x), address(w), 0, address(y), stream(index))
            return refused(code) if code else y
        return call

    def _biased(self, guard: Callable[..., bool], other: FastCall) -> FastCall:
        """The same with a bias, in a function of its own: a check at each call would cost time."""
        new, checked, address = self._new, self.checked, self._adapter.address
        start, refused = self._kernel.start_on(self._index), self._refused
        stream, index = self._adapter.stream, self._index

        def call(x: Any, w: Any, bias: Any, out: Any) -> Any:
            if not guard(x, w, bias):
                return other(x, w, bias, out)
            bias_address = address(bias)
            if not bias_address:  # which the kernel would take for none
                return None
            y = new() if out is None else checked(out, x, w, bias)
            code = start(address(x), address(w), bias_address, address(y), stream(index))
            return refused(code) if code else y
        return call

    def _refused(self, code: int) -> None:
        """None for arrays that must be copied first; else LaunchError."""
        if code != MISPLACED:
            raise self._kernel.failure(code)

    def _takes(self, *arrays: Any) -> bool:
        """The guard of a library that has none."""
        return self.fits(*arrays) and all(map(self._adapter.direct_address, arrays))

    def __call__(self, x: Any, w: Any, bias: Any, out: Any) -> Any:
        """Launch on the caller's current stream, without waiting; returns *out* or a new array.

        Arrays that are not contiguous, or begin amid a vector, are copied.
        """
        target = self._new() if out is None else self.checked(out, x, w, bias)
        result = target if self._direct(target) else self._new()
        x, w = self._ready(x), self._ready(w)
        bias = None if bias is None else self._ready(bias)
        address = self._adapter.direct_address
        self._kernel.launch(address(x), address(w), 0 if bias is None else address(bias),
                            address(result), self._adapter.stream(self._index), self._index)
        if result is not target:
            target[...] = result
        return target

    def _direct(self, array: Any) -> bool:
        """Whether a kernel can take *array* as it is."""
        address = self._adapter.direct_address(array)
        return address != 0 and address % self._kernel.alignment == 0

    def _ready(self, array: Any) -> Any:
        """*array* where a kernel can take it, else a copy."""
        if self._direct(array):
            return array
        contiguous = self._adapter.contiguous(array)
        # An array that is contiguous as it is begins amid a vector.
        return self._adapter.copy(array) if contiguous is array else contiguous

    def checked(self, out: Any, *inputs: Any) -> Any:
        """*out*, where the kernel can write its result to it straight away; else SpecError."""
        try:
            require_gpu_out(self._adapter, out, self._shape, inputs)
        except RuntimeError:  # PyTorch's own, for a tensor without plain memory
            self._adapter.require_plain(out, "out")
            raise
        return out


class CallCache:
    """Calls on GPU arrays, remembered in three levels that are tried in this order.

    level        key                                                          value
    fast         the identity of w, whether there is no bias, the options     a specialized function
    specialized  the bytes of x and w, whether there is no bias, the options  a specialized function
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

    def call(self, x: Any, w: Any, bias: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """The result by the remembered call for these arrays; None where there is none."""
        try:
            key = (x.nbytes, w.nbytes, bias is None, *options)
            specialized: FastCall = self._specialized.get(key, _no_call)
        # No array, one that is not dense, or an option that cannot be hashed.
        except (AttributeError, RuntimeError, TypeError, ValueError):
            return None
        y = specialized(x, w, bias, out)
        if y is None:
            inputs = (x, w) if bias is None else (x, w, bias)
            call = self._fitting(key, inputs)
            if call is None:
                return None
            specialized = self._specialize(key, call, inputs, specialized)
            y = call(x, w, bias, out)
        if len(self.fast) >= self._most:
            self.fast.clear()
        self.fast[(id(w), *key[2:])] = specialized
        return y

    def remember(self, inputs: tuple[Any, ...], options: tuple[Any, ...],
                 call: PreparedCall) -> None:
        """Keep *call* for the next time, unless an option cannot be hashed."""
        x, w, *bias = inputs
        key = (x.nbytes, w.nbytes, not bias, *options)
        with suppress(TypeError), self._locks.of(None):
            if len(self._prepared) >= self._most:
                self.clear()
            # Else another thread has prepared it, too.
            if self._fitting(key, inputs) is None:
                self._prepared[key] = (*self._prepared.get(key, ()), call)

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


def _no_call(x: Any, w: Any, bias: Any, out: Any) -> None:
    """The function that takes no arrays."""


CALLS = CallCache()
