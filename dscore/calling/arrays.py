"""Arrays of any library: what kind they are, NumPy views of them, and results of their kind."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscore.core.errors import SpecError, UnavailableError

Array = NDArray[Any]
_HOST = 1  # kDLCPU of DLPack


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


def view(array: Any, name: str, writable: bool = False) -> Array:
    """A NumPy view of a host array.

    Raises UnavailableError for memory of a device no backend here can reach, SpecError for a
    tensor that records gradients, or a read-only one where *writable* is asked for.
    """
    library = library_of(array, name)
    if library == "numpy":
        host: Array = array.view(np.ndarray)
    elif library == "torch":
        host = _torch_view(array, name)
    else:
        _require_host(array, name)
        host = np.from_dlpack(array)
    if writable and not host.flags.writeable:
        raise SpecError(f"{name} is read-only; pass a writable array")
    return host


def _require_host(array: Any, name: str) -> None:
    kind, number = array.__dlpack_device__()
    if int(kind) != _HOST:
        raise UnavailableError(
            f"{name} lies on DLPack device ({int(kind)}, {number}), and no backend here reaches "
            "it; pass a host array")


def _torch_view(tensor: Any, name: str) -> Array:
    torch = sys.modules["torch"]
    if tensor.requires_grad and torch.is_grad_enabled():
        raise SpecError(f"{name} requires a gradient, and dscore.conv records none; "
                        "pass .detach(), or call it under torch.no_grad()")
    if tensor.layout is not torch.strided:
        raise SpecError(f"{name} is a {tensor.layout} tensor; pass .to_dense()")
    if tensor.device.type != "cpu":
        raise UnavailableError(f"{name} lies on {tensor.device}, and no backend here reaches it; "
                               "pass .cpu()")
    host: Array = tensor.detach().resolve_neg().numpy()
    return host


def like(result: Array, example: Any) -> Any:
    """*result* as an array of the library of *example*, sharing its memory where that library can.

    Raises SpecError where the library has no from_dlpack.
    """
    library = library_of(example, "x")
    if library == "numpy":
        return result
    if library == "torch":
        return sys.modules["torch"].from_numpy(result)
    namespace = (example.__array_namespace__() if hasattr(example, "__array_namespace__")
                 else sys.modules.get(library))
    if namespace is None or not hasattr(namespace, "from_dlpack"):
        raise SpecError(f"{library} arrays can be read, but {library} has no from_dlpack to make "
                        "the result with; pass np.from_dlpack(x)")
    return namespace.from_dlpack(result)
