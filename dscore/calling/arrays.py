"""Arrays of every library on host and GPU: one protocol, and the libraries of host arrays."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dscore.core.errors import SpecError, UnavailableError, shown
from dscore.core.numerics import ELEMENTS
from dscore.core.spec import Layout

# Device types of DLPack: the host, and memory of an NVIDIA and of an AMD GPU.
_HOST, _GPUS = 1, (2, 10)
HostArray = NDArray[Any]


class Array(Protocol):
    """Array of any library that has DLPack: NumPy, PyTorch, CuPy, JAX and others; for type hints.

    >>> import dscore
    >>> def block(x: dscore.Array, w: dscore.Array) -> dscore.Array:
    ...     return dscore.conv(x, w, padding="same", activation="relu")
    >>> block(np.ones((2, 5, 5), np.float32), np.ones((4, 2, 3, 3), np.float32)).shape
    (4, 5, 5)
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of its axes."""

    @property
    def dtype(self) -> Any:
        """Element type, as its library states it."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """Its memory, for other libraries."""

    def __dlpack_device__(self) -> tuple[Any, Any]:
        """Kind and number of the device that it lies on."""


# The result is of the input's own library.
ArrayT = TypeVar("ArrayT", bound=Array)


class Adapter(Protocol):
    """A library's arrays: on which device they lie, and those of the host as NumPy's."""

    library: str

    def require_plain(self, array: Any, name: str) -> None:
        """Raise SpecError unless *array* has a shape, a type, and plain memory of its elements."""

    def index(self, array: Any) -> int | None:
        """The number of the GPU that *array* lies on; None for any other memory."""

    def view(self, array: Any, name: str, written: bool = False) -> HostArray:
        """A NumPy view of a host array; it may be a copy, unless it is to be *written*.

        Raises UnavailableError for memory of a device that no backend here can reach, SpecError
        where there is no such view.
        """

    def like(self, result: HostArray, example: Any) -> Any:
        """*result* as an array of this library, sharing its memory where the library can.

        Raises SpecError where the library has no from_dlpack.
        """

    def placed(self, array: HostArray, example: Any) -> Any:
        """A copy of *array* as one of this library, where *example* lies."""

    def memory(self, image: Any) -> Layout | None:
        """How images of axes (N, C, H, W) lie in memory; None where they lie in both ways: of one
        channel, or of one pixel. NCHW where they must be copied."""


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

    def direct_address(self, array: Any, last: bool = False) -> int:
        """The same where a kernel can take the array as it is; else 0.

        *last*, here and below: axes are (N, C, H, W), and the channels lie last in memory.
        """

    def contiguous(self, array: Any, last: bool = False) -> Any:
        """*array* itself if it is contiguous, else such a copy, made on the current stream."""

    def copy(self, array: Any) -> Any:
        """A copy, which begins where an allocation does, made on the current stream."""

    def allocator(self, shape: tuple[int, ...], like: Any, last: bool = False,
                  dtype: str | None = None) -> Callable[[], Any]:
        """A function that makes a new array of that shape, on *like*'s device and of its type, or
        of that called *dtype*."""

    def stream(self, index: int) -> int:
        """The current stream of a device, looked up anew at every launch."""


class Dlpack:
    """Arrays of any library, by the DLPack protocol."""

    def __init__(self, library: str) -> None:
        self.library = library

    def require_plain(self, array: Any, name: str) -> None:
        for member in ("shape", "dtype", "__dlpack_device__"):
            if not hasattr(array, member):
                raise SpecError(f"{name} is a {type(array).__name__} without {member}; pass "
                                f"np.from_dlpack({name})")
        try:
            tuple(map(operator.index, array.shape))
            kind, _ = array.__dlpack_device__()
            int(kind)
        except Exception as failed:  # whatever a library's own methods raise
            raise SpecError(f"{name}: the {type(array).__name__} does not state its shape and its "
                            f"device as numbers: {failed}") from None

    def index(self, array: Any) -> int | None:
        kind, number = array.__dlpack_device__()
        return int(number) if int(kind) in _GPUS else None

    def view(self, array: Any, name: str, written: bool = False) -> HostArray:
        kind, number = array.__dlpack_device__()
        if int(kind) != _HOST:
            raise UnavailableError(
                f"{name} lies on DLPack device ({int(kind)}, {number}), and no backend here "
                "reaches it; pass a host array")
        try:
            # NumPy's DLPack has no bfloat16; arrays of ml_dtypes' have it.
            short = dtype_name(array) == "bfloat16" and hasattr(array, "__array__")
            host = np.asarray(array) if short else np.from_dlpack(array)
        except Exception as failed:  # whatever a library's own methods raise
            raise SpecError(f"{name}: the {type(array).__name__} cannot be read by DLPack: "
                            f"{failed}") from None
        stated, exported = ((dtype_name(one), tuple(one.shape)) for one in (array, host))
        if stated != exported:
            raise SpecError(f"{name} says that it is {stated[0]} of shape {stated[1]}, and by "
                            f"DLPack {exported[0]} of shape {exported[1]}")
        return host

    def like(self, result: HostArray, example: Any) -> Any:
        namespace: Any = (example.__array_namespace__() if hasattr(example, "__array_namespace__")
                          else sys.modules.get(self.library))
        if not hasattr(namespace, "from_dlpack"):
            raise SpecError(f"{self.library} arrays can be read, but {self.library} has no "
                            "from_dlpack to make the result with; pass np.from_dlpack(x)")
        if result.dtype == ELEMENTS["bfloat16"].numpy and hasattr(namespace, "asarray"):
            return namespace.asarray(result)
        return namespace.from_dlpack(result)

    def placed(self, array: HostArray, example: Any) -> Any:
        return self.like(array.copy(), example)

    def memory(self, image: Any) -> Layout | None:
        return "nchw"


class Numpy:
    """NumPy arrays."""

    library = "numpy"

    def require_plain(self, array: Any, name: str) -> None:
        if isinstance(array, np.ma.MaskedArray):
            raise SpecError(f"{name} is a masked array, whose mask would be lost; "
                            "pass .filled(0) or .data")

    def index(self, array: Any) -> int | None:
        return None

    def view(self, array: Any, name: str, written: bool = False) -> HostArray:
        host: HostArray = array.view(np.ndarray)
        return host

    def like(self, result: HostArray, example: Any) -> Any:
        return result

    def placed(self, array: HostArray, example: Any) -> Any:
        return array

    def memory(self, image: Any) -> Layout | None:
        return "nchw"


def library_of(array: Any, name: str) -> str:
    """The library an array belongs to: "numpy", "torch", or the name of its module.

    Raises SpecError where *array* is no array at all.
    """
    if isinstance(array, np.ndarray):
        return "numpy"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return "torch"
    if isinstance(array, type) or not hasattr(array, "__dlpack__"):
        raise SpecError(f"{name} must be an array (NumPy, PyTorch, or any with DLPack), "
                        f"got {shown(array) if isinstance(array, type) else type(array).__name__}")
    return str(type(array).__module__).partition(".")[0]


def dtype_name(array: Any) -> str:
    """The element type as dscore writes it, without looking at the values."""
    try:
        return _name_of(array.dtype)
    except TypeError:  # of a type that cannot be hashed
        return _name_of.__wrapped__(array.dtype)


@lru_cache(maxsize=64)
def _name_of(dtype: Any) -> str:
    return str(dtype.name) if isinstance(dtype, np.dtype) else str(dtype).rpartition(".")[2]


def overlaps_itself(array: HostArray) -> bool:
    """Whether elements of *array* share memory; axes that interleave are taken for such, too.

    >>> overlaps_itself(np.zeros((4, 6))[:, ::2].T)
    False
    >>> overlaps_itself(np.broadcast_to(np.zeros((4, 1)), (4, 6)))
    True
    """
    if 0 in array.shape:  # NumPy's strides of such an array are 0
        return False
    reach = array.itemsize
    for stride, size in sorted((abs(stride), size) for stride, size
                               in zip(array.strides, array.shape, strict=True) if size > 1):
        if stride < reach:
            return True
        reach += stride * (size - 1)
    return False
