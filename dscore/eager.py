"""Arrays that lie on a GPU: called where they are, on the caller's stream, and prepared only once.

A call is remembered by the shapes, types and places of its arrays and by its options, so that the
next one costs a look-up, an allocation and a launch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol

from .errors import SpecError, UnavailableError

# Device types of DLPack for memory of an NVIDIA and of an AMD GPU.
_GPUS = (2, 10)


class Adapter(Protocol):
    """What is asked of a library whose arrays lie on a GPU."""

    def index(self, array: Any) -> int:
        """The number of the device that *array* lies on."""

    def key(self, array: Any) -> Hashable:
        """All of an array that decides the call: shape, type, place."""

    def ready(self, array: Any) -> Any:
        """*array* itself if it is C-contiguous, else such a copy, made on the current stream."""

    def address(self, array: Any) -> int:
        """Where its elements lie on the device."""

    def empty(self, shape: tuple[int, ...], like: Any) -> Any:
        """A new array of that shape, beside *like* and of its type."""

    def stream(self, index: int) -> int:
        """The current stream of a device, asked for anew at every launch."""


class _Torch:
    """PyTorch tensors, of CUDA and ROCm alike."""

    def __init__(self) -> None:
        self.torch = torch = sys.modules["torch"]
        # What torch.cuda.current_stream wraps in an object each time.
        self.stream: Callable[[int], int] = getattr(
            torch._C, "_cuda_getCurrentRawStream",
            lambda index: torch.cuda.current_stream(index).cuda_stream)

    def index(self, array: Any) -> int:
        return int(array.device.index)

    def key(self, array: Any) -> Hashable:
        return array.shape, array.dtype, array.device

    def ready(self, array: Any) -> Any:
        if array.requires_grad and self.torch.is_grad_enabled():
            raise SpecError("an array requires a gradient, and dscore.conv records none; "
                            "pass .detach(), or call it under torch.no_grad()")
        return array if array.is_contiguous() and not array.is_neg() else (
            array.resolve_neg().contiguous())

    def address(self, array: Any) -> int:
        return int(array.data_ptr())

    def empty(self, shape: tuple[int, ...], like: Any) -> Any:
        return self.torch.empty(shape, dtype=like.dtype, device=like.device)


class _Cupy:
    """CuPy arrays, of CUDA and ROCm alike."""

    def __init__(self) -> None:
        self.cupy = sys.modules["cupy"]

    def index(self, array: Any) -> int:
        return int(array.device.id)

    def key(self, array: Any) -> Hashable:
        return array.shape, array.dtype.str, array.device.id

    def ready(self, array: Any) -> Any:
        return self.cupy.ascontiguousarray(array)

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def empty(self, shape: tuple[int, ...], like: Any) -> Any:
        with like.device:
            return self.cupy.empty(shape, like.dtype)

    def stream(self, index: int) -> int:
        with self.cupy.cuda.Device(index):
            return int(self.cupy.cuda.get_current_stream().ptr)


_ADAPTERS: dict[str, Callable[[], Adapter]] = {"torch": _Torch, "cupy": _Cupy}
_known: dict[str, Adapter] = {}
_calls: dict[Hashable, Call] = {}
# Programs that meet ever new shapes must not remember all of them.
_MOST_CALLS = 4096


@dataclass(frozen=True)
class Call:
    """A prepared call: the kernel on its device, and how to speak to the arrays' library."""

    adapter: Adapter
    index: int
    shape: tuple[int, ...]
    launch: Callable[[int, int, int, int, int, int], None]

    def __call__(self, x: Any, w: Any, bias: Any, out: Any) -> Any:
        """Launch on the caller's current stream, without waiting; returns *out* or a new array."""
        target = None if out is None else self.checked(out, x, w, bias)
        ready, address = self.adapter.ready, self.adapter.address
        x, w, bias = ready(x), ready(w), None if bias is None else ready(bias)
        if target is None:
            target = self.adapter.empty(self.shape, x)
        self.launch(address(x), address(w), 0 if bias is None else address(bias),
                    address(target), self.adapter.stream(self.index), self.index)
        return target

    def checked(self, out: Any, *inputs: Any) -> Any:
        """*out*, where the kernel can write its result to it straight away; else SpecError."""
        require_out(self.adapter, out, self.shape, inputs)
        return out


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


def key_of(x: Any, w: Any, bias: Any, options: tuple[Any, ...]) -> Hashable | None:
    """What a call is remembered by; None where it is not a call on GPU arrays."""
    # Decided on the type's name, which is the quickest way to tell arrays of the host apart.
    adapter = _known.get(type(x).__module__.partition(".")[0])
    if adapter is None or not on_gpu(x):
        return None
    try:
        return (type(x), adapter.key(x), adapter.key(w),
                None if bias is None else adapter.key(bias), options)
    except AttributeError:  # w or bias is of another library, which the long way says properly
        return None


def find(key: Hashable) -> Call | None:
    """The call remembered by *key*; None where there is none, or an option cannot be hashed."""
    try:
        return _calls.get(key)
    except TypeError:
        return None


def remember(key: Hashable, call: Call) -> None:
    """Keep *call* for the next time."""
    if len(_calls) >= _MOST_CALLS:
        _calls.clear()
    try:
        _calls[key] = call
    except TypeError:  # an option that cannot be hashed, such as a list
        return


def require_out(adapter: Adapter, out: Any, shape: tuple[int, ...],
                inputs: tuple[Any, ...]) -> None:
    """Raise SpecError where a kernel cannot write its result to *out* straight away."""
    x = inputs[0]
    if tuple(out.shape) != shape:
        raise SpecError(f"out has shape {tuple(out.shape)}, the result has {shape}")
    if type(out) is not type(x) or out.dtype != x.dtype or not on_gpu(out):
        raise SpecError(f"out must be a {type(x).__name__} of {x.dtype} on x's device")
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
