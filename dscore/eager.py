"""Arrays that lie on a GPU: called where they are, on the caller's stream, and prepared only once.

A call is remembered by the shapes, types and places of its arrays and by its options, so that the
next one costs a look-up, an allocation and a launch.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial, reduce
from typing import Any, Protocol

from .errors import SpecError, UnavailableError

# Device types of DLPack for memory of an NVIDIA and of an AMD GPU.
_GPUS = (2, 10)


class Adapter(Protocol):
    """What is asked of a library whose arrays lie on a GPU."""

    def index(self, array: Any) -> int:
        """The number of the device that *array* lies on."""

    def matcher(self, example: Any) -> Callable[[Any], bool]:
        """What tells whether an array is of *example*'s class, element type and device."""

    def place(self, array: Any) -> int:
        """Where its elements lie, if a kernel can take them as they are; else 0."""

    def ready(self, array: Any) -> Any:
        """*array* itself if it is C-contiguous, else such a copy, made on the current stream."""

    def copied(self, array: Any) -> Any:
        """A copy, which begins where an allocation does, made on the current stream."""

    def address(self, array: Any) -> int:
        """Where its elements lie on the device."""

    def maker(self, shape: tuple[int, ...], like: Any) -> Callable[[], Any]:
        """What makes a new array of that shape at every call, beside *like* and of its type."""

    def stream(self, index: int) -> int:
        """The current stream of a device, asked for anew at every launch."""


class _Torch:
    """PyTorch tensors, of CUDA and ROCm alike."""

    def __init__(self) -> None:
        torch = sys.modules["torch"]
        self._classes = (torch.Tensor, torch.nn.Parameter)
        self._grad_enabled = torch.is_grad_enabled
        # What torch.cuda.current_stream wraps in an object each time.
        self.stream: Callable[[int], int] = getattr(
            torch._C, "_cuda_getCurrentRawStream",
            lambda index: torch.cuda.current_stream(index).cuda_stream)
        self.address: Callable[[Any], int] = torch.Tensor.data_ptr

    def index(self, array: Any) -> int:
        return int(array.get_device())

    def matcher(self, example: Any) -> Callable[[Any], bool]:
        classes, dtype, index = self._classes, example.dtype, example.get_device()
        return lambda array: (type(array) in classes and array.dtype is dtype
                              and array.get_device() == index)

    def place(self, array: Any) -> int:
        if array.requires_grad and self._grad_enabled():
            raise SpecError("an array requires a gradient, and dscore.conv records none; "
                            "pass .detach(), or call it under torch.no_grad()")
        ready = array.is_contiguous() and not array.is_neg()
        return int(array.data_ptr()) if ready else 0

    def ready(self, array: Any) -> Any:
        return array if self.place(array) else array.resolve_neg().contiguous()

    def copied(self, array: Any) -> Any:
        return array.clone()

    def maker(self, shape: tuple[int, ...], like: Any) -> Callable[[], Any]:
        torch = sys.modules["torch"]
        strides = tuple(math.prod(shape[axis + 1:]) for axis in range(len(shape)))
        dtype, index = like.dtype, like.get_device()
        # The quickest of PyTorch's public ways, by 1 to 2 us.
        make = partial(torch.empty_strided, shape, strides, dtype=dtype, device=like.device)
        # What its compiler's code calls saves another one; it knows the current device alone.
        quick = _found(torch, "_C", "_dynamo", "guards", "_empty_strided_cuda")
        current = _found(torch, "_C", "_cuda_getDevice")
        if quick is None or current is None:
            return make
        return lambda: quick(shape, strides, dtype) if current() == index else make()


def _found(module: Any, *names: str) -> Any:
    """What lies under these names; None where this PyTorch has it not."""
    return reduce(lambda found, name: getattr(found, name, None), names, module)


class _Cupy:
    """CuPy arrays, of CUDA and ROCm alike."""

    def __init__(self) -> None:
        self._cupy = sys.modules["cupy"]

    def index(self, array: Any) -> int:
        return int(array.device.id)

    def matcher(self, example: Any) -> Callable[[Any], bool]:
        kind, dtype, index = self._cupy.ndarray, example.dtype, example.device.id
        return lambda array: (type(array) is kind and array.dtype == dtype
                              and array.device.id == index)

    def place(self, array: Any) -> int:
        return int(array.data.ptr) if array.flags.c_contiguous else 0

    def ready(self, array: Any) -> Any:
        return self._cupy.ascontiguousarray(array)

    def copied(self, array: Any) -> Any:
        return array.copy()

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def maker(self, shape: tuple[int, ...], like: Any) -> Callable[[], Any]:
        device, dtype = like.device, like.dtype

        def make() -> Any:
            with device:
                return self._cupy.empty(shape, dtype)
        return make

    def stream(self, index: int) -> int:
        with self._cupy.cuda.Device(index):
            return int(self._cupy.cuda.get_current_stream().ptr)


_ADAPTERS: dict[str, Callable[[], Adapter]] = {"torch": _Torch, "cupy": _Cupy}
_known: dict[str, Adapter] = {}
# By the shapes of x and w and the options; calls of one key differ in type, place or bias.
_calls: dict[Hashable, tuple[Call, ...]] = {}
# Programs that meet ever new shapes must not remember all of them.
_MOST_CALLS = 4096


class Call:
    """A prepared call: the kernel on its device, and how to speak to the arrays' library.

    *example* is an array of the class, type and place that the call is for.
    """

    __slots__ = ("_adapter", "_address", "_alignment", "_bias_shape", "_index", "_launch",
                 "_matches", "_new", "_place", "_shape", "_stream")

    def __init__(self, adapter: Adapter, example: Any, bias: Any, shape: tuple[int, ...],
                 launch: Callable[..., None], alignment: int) -> None:
        self._adapter, self._shape, self._launch = adapter, shape, launch
        self._alignment, self._index = alignment, adapter.index(example)
        # Looked up once: a call is to cost little more than its launch.
        self._place, self._address, self._stream = adapter.place, adapter.address, adapter.stream
        self._matches, self._new = adapter.matcher(example), adapter.maker(shape, example)
        self._bias_shape = None if bias is None else bias.shape

    def fits(self, x: Any, w: Any, bias: Any) -> bool:
        """Whether arrays of the remembered shapes are of the call's class, type and place."""
        matches = self._matches
        if not (matches(x) and matches(w)):
            return False
        if bias is None or self._bias_shape is None:
            return bias is None and self._bias_shape is None
        return bool(bias.shape == self._bias_shape) and matches(bias)

    def __call__(self, x: Any, w: Any, bias: Any, out: Any) -> Any:
        """Launch on the caller's current stream, without waiting; returns *out* or a new array."""
        target = self._new() if out is None else self.checked(out, x, w, bias)
        place = self._place
        at_x, at_w, at = place(x), place(w), self._address(target)
        at_bias = 0 if bias is None else place(bias)
        ready = at_x and at_w and at and (at_bias or bias is None)
        if not ready or (at_x | at_w | at_bias | at) % self._alignment:
            return self._elsewhere(x, w, bias, target)
        self._launch(at_x, at_w, at_bias, at, self._stream(self._index), self._index)
        return target

    def _elsewhere(self, x: Any, w: Any, bias: Any, target: Any) -> Any:
        """The call on copies, where arrays are not contiguous or begin amid a vector."""
        x, w, made = self._moved(x), self._moved(w), self._moved(target, kept=False)
        bias = None if bias is None else self._moved(bias)
        place = self._place
        self._launch(place(x), place(w), 0 if bias is None else place(bias), place(made),
                     self._stream(self._index), self._index)
        if made is not target:
            target[...] = made
        return target

    def _moved(self, array: Any, kept: bool = True) -> Any:
        """*array*, or where a kernel cannot take it a copy; if not *kept*, a result to be."""
        at = self._place(array)
        if at and at % self._alignment == 0:
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


def find(x: Any, w: Any, bias: Any, options: tuple[Any, ...]) -> Call | None:
    """The remembered call for these arrays; None where there is none."""
    try:
        calls = _calls.get((x.shape, w.shape, options), ())
    except (AttributeError, TypeError):  # no array, or an option that cannot be hashed
        return None
    for call in calls:
        if call.fits(x, w, bias):
            return call
    return None


def remember(x: Any, w: Any, options: tuple[Any, ...], call: Call) -> None:
    """Keep *call* for the next time, unless an option cannot be hashed."""
    if len(_calls) >= _MOST_CALLS:
        _calls.clear()
    key = (x.shape, w.shape, options)
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
