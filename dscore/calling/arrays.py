"""Arrays of every library on host and GPU: one protocol, and the libraries of host arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dscore.core.errors import SpecError, UnavailableError

Array = NDArray[Any]
# Device types of DLPack: the host, and memory of an NVIDIA and of an AMD GPU.
_HOST, _GPUS = 1, (2, 10)


class Adapter(Protocol):
    """A library's arrays: on which device they lie, and those of the host as NumPy's."""

    library: str

    def index(self, array: Any) -> int | None:
        """The number of the GPU that *array* lies on; None for any other memory."""

    def view(self, array: Any, name: str) -> Array:
        """A NumPy view of a host array.

        Raises UnavailableError for memory of a device that no backend here can reach, SpecError
        for a tensor that records gradients.
        """

    def like(self, result: Array, example: Any) -> Any:
        """*result* as an array of this library, sharing its memory where the library can.

        Raises SpecError where the library has no from_dlpack.
        """


@runtime_checkable
class GpuAdapter(Adapter, Protocol):
    """A library whose GPU arrays kernels take where they lie, on the caller's stream."""

    def matcher(self, example: Any) -> Callable[[Any], bool]:
        """A check that an array is of *example*'s class, element type and device."""

    def guard(self, examples: tuple[Any, ...]) -> Callable[..., bool] | None:
        """A check, faster than `matcher` and `direct_address`, that as many arrays are like
        *examples* in all that these and the shapes say; None where the library has none."""

    def address(self, array: Any) -> int:
        """The address of its elements on the device."""

    def direct_address(self, array: Any) -> int:
        """The same where a kernel can take the array as it is; else 0."""

    def contiguous(self, array: Any) -> Any:
        """*array* itself if it is C-contiguous, else such a copy, made on the current stream."""

    def copy(self, array: Any) -> Any:
        """A copy, which begins where an allocation does, made on the current stream."""

    def allocator(self, shape: tuple[int, ...], like: Any) -> Callable[[], Any]:
        """A function that makes a new array of that shape, on *like*'s device and of its type."""

    def stream(self, index: int) -> int:
        """The current stream of a device, looked up anew at every launch."""


class Dlpack:
    """Arrays of any library, by the DLPack protocol."""

    def __init__(self, library: str) -> None:
        self.library = library

    def index(self, array: Any) -> int | None:
        kind, number = array.__dlpack_device__()
        return int(number) if int(kind) in _GPUS else None

    def view(self, array: Any, name: str) -> Array:
        kind, number = array.__dlpack_device__()
        if int(kind) != _HOST:
            raise UnavailableError(
                f"{name} lies on DLPack device ({int(kind)}, {number}), and no backend here "
                "reaches it; pass a host array")
        return np.from_dlpack(array)

    def like(self, result: Array, example: Any) -> Any:
        namespace: Any = (example.__array_namespace__() if hasattr(example, "__array_namespace__")
                          else sys.modules.get(self.library))
        if not hasattr(namespace, "from_dlpack"):
            raise SpecError(f"{self.library} arrays can be read, but {self.library} has no "
                            "from_dlpack to make the result with; pass np.from_dlpack(x)")
        return namespace.from_dlpack(result)


class Numpy:
    """NumPy arrays."""

    library = "numpy"

    def index(self, array: Any) -> int | None:
        return None

    def view(self, array: Any, name: str) -> Array:
        host: Array = array.view(np.ndarray)
        return host

    def like(self, result: Array, example: Any) -> Any:
        return result


def library_of(array: Any, name: str) -> str:
    """The library an array belongs to: "numpy", "torch", or the name of its module.

    Raises SpecError where *array* is no array at all, or one whose mask would be lost.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise SpecError(f"{name} is a masked array, whose mask would be lost; "
                        "pass .filled(0) or .data")
    if isinstance(array, np.ndarray):
        return "numpy"
    if not hasattr(array, "__dlpack__"):
        raise SpecError(f"{name} must be an array (NumPy, PyTorch, or any with DLPack), "
                        f"got {type(array).__name__}")
    return str(type(array).__module__).partition(".")[0]


def dtype_name(array: Any) -> str:
    """The element type as dscore writes it, without looking at the values."""
    if isinstance(array, np.ndarray):
        return str(array.dtype.name)
    return str(array.dtype).rpartition(".")[2]
