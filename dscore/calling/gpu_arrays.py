"""Libraries whose arrays lie on a GPU, each called by its own functions: PyTorch and CuPy."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import Any

import numpy as np

from dscore.calling.arrays import Dlpack, HostArray
from dscore.core.errors import SpecError, UnavailableError
from dscore.core.numerics import ELEMENTS
from dscore.core.spec import Layout

_BATCH = 4  # axes of images


class Torch:
    """PyTorch tensors, of the host, CUDA and ROCm."""

    library = "torch"

    def __init__(self) -> None:
        torch = sys.modules["torch"]
        self._classes = (torch.Tensor, torch.nn.Parameter)
        self._grad_enabled = torch.is_grad_enabled
        self._first, self._last = torch.contiguous_format, torch.channels_last
        # torch.cuda.current_stream would wrap it in an object at every call.
        self.stream: Callable[[int], int] = getattr(
            torch._C, "_cuda_getCurrentRawStream",
            lambda index: torch.cuda.current_stream(index).cuda_stream)
        self.address: Callable[[Any], int] = torch.Tensor.data_ptr

    def index(self, array: Any) -> int | None:
        return int(array.get_device()) if array.is_cuda else None

    def require_plain(self, array: Any, name: str) -> None:
        fault = _fault(array)
        if fault:
            raise SpecError(f"{name} {fault}")
        if array.requires_grad and self._grad_enabled():
            raise _gradient_refused(name)

    def view(self, array: Any, name: str, written: bool = False) -> HostArray:
        if array.device.type != "cpu":
            raise UnavailableError(f"{name} lies on {array.device}, and no backend here reaches "
                                   "it; pass .cpu()")
        if written and array.is_neg():
            raise SpecError(f"{name} has its negative bit set, as the imaginary part of a "
                            "conjugate has: its memory holds other values than it shows; pass a "
                            "tensor of its own")
        torch, plain = sys.modules["torch"], array.detach().resolve_neg()
        if plain.dtype is torch.bfloat16:  # which NumPy alone has not
            bits: HostArray = plain.view(torch.int16).numpy()
            return bits.view(ELEMENTS["bfloat16"].numpy)
        host: HostArray = plain.numpy()
        return host

    def like(self, result: HostArray, example: Any) -> Any:
        torch = sys.modules["torch"]
        if result.dtype == ELEMENTS["bfloat16"].numpy:
            return torch.from_numpy(result.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(result)

    def placed(self, array: HostArray, example: Any) -> Any:
        return sys.modules["torch"].from_numpy(array.copy()).to(example.device)

    def memory(self, image: Any) -> Layout | None:
        if image.dim() != _BATCH or not image.is_contiguous(memory_format=self._last):
            return "nchw"
        return None if image.is_contiguous() else "nhwc"

    def matcher(self, example: Any) -> Callable[[Any], bool]:
        classes, dtype, index = self._classes, example.dtype, example.get_device()
        return lambda array: (type(array) in classes and array.dtype is dtype
                              and array.get_device() == index and not _fault(array))

    def guard(self, examples: tuple[Any, ...]) -> Callable[..., bool] | None:
        check = tensor_guard(examples)
        if check is None or not any(array.requires_grad for array in examples):
            return check
        # The guard tells whether a tensor requires a gradient, not whether one is recorded now.
        enabled = self._grad_enabled
        return lambda *arrays: not enabled() and check(*arrays)

    def direct_address(self, array: Any, last: bool = False) -> int:
        if array.requires_grad and self._grad_enabled():
            raise _gradient_refused("an array")
        direct = (array.is_contiguous(memory_format=self._last if last else self._first)
                  and not array.is_neg())
        return int(array.data_ptr()) if direct else 0

    def contiguous(self, array: Any, last: bool = False) -> Any:
        if self.direct_address(array, last):
            return array
        return array.resolve_neg().contiguous(memory_format=self._last if last else self._first)

    def copy(self, array: Any) -> Any:
        return array.clone()

    def allocator(self, shape: tuple[int, ...], like: Any, last: bool = False,
                  dtype: str | None = None) -> Callable[[], Any]:
        torch = sys.modules["torch"]
        strides = tuple(math.prod(shape[axis + 1:]) for axis in range(len(shape)))
        if last:
            _, channels, height, width = shape
            strides = height * width * channels, 1, width * channels, channels
        element, index = getattr(torch, dtype) if dtype else like.dtype, like.get_device()
        # The fastest of PyTorch's public functions, by 1 to 2 us.
        empty = partial(torch.empty_strided, shape, strides, dtype=element, device=like.device)
        # The one that its compiler's code calls saves another one; it allocates on the current
        # device alone.
        fast = _member(torch, "_C", "_dynamo", "guards", "_empty_strided_cuda")
        current = _member(torch, "_C", "_cuda_getDevice")
        if fast is None or current is None:
            return empty
        if torch.cuda.device_count() == 1:
            return partial(fast, shape, strides, element)
        return lambda: fast(shape, strides, element) if current() == index else empty()


def tensor_guard(examples: tuple[Any, ...]) -> Callable[..., bool] | None:
    """Whether tensors are like *examples*: PyTorch's own check; None where it has none.

    It sees class, dispatch keys (the negative bit is one; torch.func, jit.trace and autocast have
    theirs), type, device, sizes, strides and `requires_grad`; not whether gradients are recorded.
    """
    tensor_guards = _member(sys.modules["torch"], "_C", "_dynamo", "guards", "TensorGuards")
    sizes = [list(array.shape) for array in examples]
    # Along one element, a contiguous tensor has any stride.
    strides = [[None if size == 1 else stride
                for size, stride in zip(array.shape, array.stride(), strict=True)]
               for array in examples]
    try:
        check: Callable[..., bool] = tensor_guards(
            *examples, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    except (AttributeError, RuntimeError, TypeError):  # another PyTorch's, or none
        return None
    return check


def _fault(tensor: Any) -> str:
    """Reason why a tensor has no plain memory of its elements; empty where it has."""
    return next(_faults(tensor), "")


def _faults(tensor: Any) -> Iterator[str]:
    """Such reasons; what a later check asks would fail where an earlier one tells a reason."""
    torch, name = sys.modules["torch"], type(tensor).__name__
    wrapped = _member(torch, "_C", "_functorch", "is_functorch_wrapped_tensor")
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        yield f"is of class {name}, which holds no elements itself; pass a plain tensor"
    if wrapped is not None and wrapped(tensor):
        yield ("is a tensor of torch.func (vmap, grad, ...), through which dscore.conv cannot be "
               "transformed; dscore.torch.conv2d can, or call it outside")
    if tensor.is_nested:
        yield "is a nested tensor; pass .to_padded_tensor(0)"
    if torch.nn.parameter.is_lazy(tensor):
        yield f"is of class {name}, which has no shape yet; initialize it first"
    if tensor.layout is not torch.strided:
        yield f"is a {tensor.layout} tensor; pass .to_dense()"
    if torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None:
        yield ("carries a tangent, which dscore.conv does not transform; dscore.torch.conv2d does, "
               "or pass .detach()")
    if tensor._is_zerotensor() or _last_byte(tensor) > tensor.untyped_storage().nbytes():
        yield "has no memory for all of its elements: its storage was freed, or is of zeros alone"


def _last_byte(tensor: Any) -> int:
    """Bytes from the beginning of a tensor's storage to the end of its last element."""
    if not tensor.numel():
        return 0
    steps = ((size - 1) * stride
             for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int((tensor.storage_offset() + sum(steps) + 1) * tensor.element_size())


def _gradient_refused(name: str) -> SpecError:
    return SpecError(f"{name} requires a gradient, and dscore.conv records none; "
                     "dscore.torch.conv2d does. Or pass .detach(), or call it under "
                     "torch.no_grad()")


def _member(module: Any, *names: str) -> Any:
    """The object under these names; None where this PyTorch lacks it."""
    return reduce(lambda parent, name: getattr(parent, name, None), names, module)


def capturing() -> bool:
    """Whether a graph is being captured, of which building or timing kernels would become part."""
    torch = sys.modules.get("torch")
    return bool(torch and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


class Cupy(Dlpack):
    """CuPy arrays, of CUDA and ROCm."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self._cupy = sys.modules["cupy"]

    def matcher(self, example: Any) -> Callable[[Any], bool]:
        kind, dtype, index = self._cupy.ndarray, example.dtype, example.device.id
        return lambda array: (type(array) is kind and array.dtype == dtype
                              and array.device.id == index)

    def guard(self, examples: tuple[Any, ...]) -> Callable[..., bool] | None:
        return None

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def direct_address(self, array: Any, last: bool = False) -> int:
        return int(array.data.ptr) if array.flags.c_contiguous else 0

    def contiguous(self, array: Any, last: bool = False) -> Any:
        return self._cupy.ascontiguousarray(array)

    def copy(self, array: Any) -> Any:
        return array.copy()

    def allocator(self, shape: tuple[int, ...], like: Any, last: bool = False,
                  dtype: str | None = None) -> Callable[[], Any]:
        device, element = like.device, dtype or like.dtype

        def empty() -> Any:
            with device:
                return self._cupy.empty(shape, element)
        return empty

    def placed(self, array: HostArray, example: Any) -> Any:
        with example.device:
            return self._cupy.asarray(array)

    def stream(self, index: int) -> int:
        with self._cupy.cuda.Device(index):
            return int(self._cupy.cuda.get_current_stream().ptr)
