"""Arrays that lie on a GPU: called where they are, on the caller's stream, and prepared only once.

A call is remembered by the shapes, types and places of its arrays and by its options, so that the
next one costs a look-up, an allocation and a launch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dscore.calling.adapters import Adapter, Cupy, Torch
from dscore.core.backend import MISPLACED
from dscore.core.errors import SpecError, UnavailableError

if TYPE_CHECKING:
    from dscore.core.backend import Launchable

# Device types of DLPack for memory of an NVIDIA and of an AMD GPU.
_GPUS = (2, 10)

_ADAPTERS: dict[str, Callable[[], Adapter]] = {"torch": Torch, "cupy": Cupy}
_known: dict[str, Adapter] = {}
# Takes x, w, bias and out; returns None for arrays that are not of its kind.
Quick = Callable[[Any, Any, Any, Any], Any]
# By the bytes of x and w, which are had quicker than their shapes, whether there is no bias, and
# the options; calls of one key differ in type, place or shapes.
_calls: dict[Hashable, tuple[Call, ...]] = {}
_quick_calls: dict[Hashable, Quick] = {}
# The same by the identity of w, which is had quickest and is but a guess: each of them looks at the
# arrays that it is given. What is tried first.
quick: dict[Hashable, Quick] = {}
# Programs that meet ever new shapes must not remember all of them.
_MOST_CALLS = 4096
# Quick forms of one call: for a parameter, in inference mode, under autocast, ...
_MOST_VARIANTS = 4


class Call:
    """A prepared call: the kernel on its device, and how to speak to the arrays' library.

    *examples*, x and w and bias if there is one, are of the classes, types, place and shapes that
    the call is for.
    """

    __slots__ = ("_adapter", "_index", "_kernel", "_matches", "_new", "_shape", "_shapes",
                 "_variants")

    def __init__(self, adapter: Adapter, examples: tuple[Any, ...], shape: tuple[int, ...],
                 kernel: Launchable) -> None:
        self._adapter, self._shape, self._kernel = adapter, shape, kernel
        self._index = adapter.index(examples[0])
        self._matches = adapter.matcher(examples[0])
        self._new = adapter.maker(shape, examples[0])
        self._shapes = [tuple(array.shape) for array in examples]
        self._variants = 0

    def fits(self, *arrays: Any) -> bool:
        """Whether arrays are of the call's classes, types, place and shapes."""
        return (all(map(self._matches, arrays))
                and [tuple(array.shape) for array in arrays] == self._shapes)

    def quickened(self, arrays: tuple[Any, ...], other: Quick) -> Quick:
        """The call for arrays like these without what need not be asked anew each time.

        Unlike ones go to *other*; so do all, where a kernel cannot take these as they are.
        """
        if self._variants == _MOST_VARIANTS or not all(map(self._direct, arrays)):
            return other
        self._variants += 1
        made = self._biased if len(arrays) == 3 else self._unbiased
        return made(self._adapter.guard(arrays) or self._takes, other)

    def _unbiased(self, guard: Callable[..., bool], other: Quick) -> Quick:
        # All are looked up once: a call is to cost little more than its launch.
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

    def _biased(self, guard: Callable[..., bool], other: Quick) -> Quick:
        """The same with a bias, in a function of its own: to ask each time would take longer."""
        new, checked, address = self._new, self.checked, self._adapter.address
        start, refused = self._kernel.start_on(self._index), self._refused
        stream, index = self._adapter.stream, self._index

        def call(x: Any, w: Any, bias: Any, out: Any) -> Any:
            if not guard(x, w, bias):
                return other(x, w, bias, out)
            at_bias = address(bias)
            if not at_bias:  # which the kernel would take for none
                return None
            y = new() if out is None else checked(out, x, w, bias)
            code = start(address(x), address(w), at_bias, address(y), stream(index))
            return refused(code) if code else y
        return call

    def _refused(self, code: int) -> None:
        """None for arrays that must be copied first; else LaunchError."""
        if code != MISPLACED:
            raise self._kernel.failure(code)

    def _takes(self, *arrays: Any) -> bool:
        """The guard of a library that has none."""
        return self.fits(*arrays) and all(map(self._adapter.place, arrays))

    def __call__(self, x: Any, w: Any, bias: Any, out: Any) -> Any:
        """Launch on the caller's current stream, without waiting; returns *out* or a new array.

        What is not contiguous or begins amid a vector is copied.
        """
        target = self._new() if out is None else self.checked(out, x, w, bias)
        x, w, made = self._moved(x), self._moved(w), self._moved(target, kept=False)
        bias = None if bias is None else self._moved(bias)
        place = self._adapter.place
        self._kernel.launch(place(x), place(w), 0 if bias is None else place(bias), place(made),
                            self._adapter.stream(self._index), self._index)
        if made is not target:
            target[...] = made
        return target

    def _direct(self, array: Any) -> bool:
        """Whether a kernel can take *array* as it is."""
        at = self._adapter.place(array)
        return at != 0 and at % self._kernel.alignment == 0

    def _moved(self, array: Any, kept: bool = True) -> Any:
        """*array*, or where a kernel cannot take it a copy; if not *kept*, a result to be."""
        if self._direct(array):
            return array
        ready = self._adapter.ready(array) if kept else self._new()
        # An array that is ready as it is begins amid a vector.
        return self._adapter.copied(array) if ready is array else ready

    def nothing(self, out: Any, x: Any, w: Any, bias: Any) -> Any:
        """The result for a batch of none, for which nothing is launched."""
        if out is None:
            return self._new()
        return self.checked(out, x, w, bias)

    def checked(self, out: Any, *inputs: Any) -> Any:
        """*out*, where the kernel can write its result to it straight away; else SpecError."""
        require_out(self._adapter, out, self._shape, inputs)
        return out


def capturing() -> bool:
    """Whether a graph is being captured, of which building or timing kernels would become part."""
    torch = sys.modules.get("torch")
    return bool(torch and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def on_gpu(array: Any) -> bool:
    """Whether *array* lies on a GPU; False for what is no array."""
    if hasattr(array, "is_cuda"):
        return bool(array.is_cuda)
    place = getattr(array, "__dlpack_device__", None)
    return place is not None and int(place()[0]) in _GPUS


def adapter_of(library: str) -> Adapter:
    """The adapter of a library; UnavailableError where its GPU arrays cannot be spoken to."""
    if library not in _known:
        if library not in _ADAPTERS:
            raise UnavailableError(f"{library} arrays on a GPU are not supported; there are "
                                   f"{', '.join(_ADAPTERS)}: pass torch.from_dlpack(x)")
        _known[library] = _ADAPTERS[library]()
    return _known[library]


def called(x: Any, w: Any, bias: Any, out: Any, options: tuple[Any, ...]) -> Any:
    """The result by the remembered call for these arrays; None where there is none."""
    try:
        key = (x.nbytes, w.nbytes, bias is None, *options)
        calls = _calls.get(key, ())
    # No array, one that is not dense, or an option that cannot be hashed.
    except (AttributeError, RuntimeError, TypeError):
        return None
    known: Quick = _quick_calls.get(key, _none)
    y = known(x, w, bias, out)
    if y is None:
        arrays = (x, w) if bias is None else (x, w, bias)
        call = next((call for call in calls if call.fits(*arrays)), None)
        if call is None:
            return None
        known = _quick_calls[key] = call.quickened(arrays, known)
        y = call(x, w, bias, out)
    if len(quick) >= _MOST_CALLS:
        quick.clear()
    quick[(id(w), *key[2:])] = known
    return y


def _none(x: Any, w: Any, bias: Any, out: Any) -> None:
    """What takes no arrays."""


def remember(x: Any, w: Any, bias: Any, options: tuple[Any, ...], call: Call) -> None:
    """Keep *call* for the next time, unless an option cannot be hashed."""
    if len(_calls) >= _MOST_CALLS:
        _calls.clear()
        _quick_calls.clear()
        quick.clear()
    key = (x.nbytes, w.nbytes, bias is None, *options)
    with suppress(TypeError):
        _calls[key] = (*_calls.get(key, ()), call)


def require_out(adapter: Adapter, out: Any, shape: tuple[int, ...],
                inputs: tuple[Any, ...]) -> None:
    """Raise SpecError where a kernel cannot write its result to *out* straight away."""
    x = inputs[0]
    if tuple(out.shape) != shape:
        raise SpecError(f"out has shape {tuple(out.shape)}, the result has {shape}")
    if type(out) is not type(x) or out.dtype != x.dtype:
        raise SpecError(f"out must be a {type(x).__name__} of {x.dtype}, as x is")
    require_together(adapter, {"x": x, "out": out})
    if adapter.ready(out) is not out:
        raise SpecError("out on a GPU must be C-contiguous; pass a contiguous array")
    first, end = _extent(adapter, out)
    for array in inputs:
        other, other_end = (0, 0) if array is None else _extent(adapter, array)
        if first < other_end and other < end:
            raise SpecError("out on a GPU must not overlap an input, which other lanes still "
                            "read; pass another array")


def _extent(adapter: Adapter, array: Any) -> tuple[int, int]:
    """The bytes that an array may touch; more than its elements where it is strided."""
    at = adapter.address(array)
    return at, at + int(array.nbytes)


def require_together(adapter: Adapter, arrays: dict[str, Any]) -> int:
    """The device on which all of *arrays* lie; SpecError where they lie apart."""
    places = {name: adapter.index(array) if on_gpu(array) else None
              for name, array in arrays.items()}
    if len(set(places.values())) > 1 or None in places.values():
        listed = ", ".join(f"{name} on {'the host' if at is None else f'GPU {at}'}"
                           for name, at in places.items())
        raise SpecError(f"all arrays must lie on one device, got {listed}")
    return int(next(iter(places.values())))  # type: ignore[arg-type]
