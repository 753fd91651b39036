"""Libraries whose arrays lie on a GPU, each spoken to in its own words."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, Protocol

from dscore.core.errors import SpecError


class Adapter(Protocol):
    """What is asked of a library whose arrays lie on a GPU."""

    def index(self, array: Any) -> int:
        """The number of the device that *array* lies on."""

    def matcher(self, example: Any) -> Callable[[Any], bool]:
        """What tells whether an array is of *example*'s class, element type and device."""

    def guard(self, examples: tuple[Any, ...]) -> Callable[..., bool] | None:
        """What tells, quicker than `matcher` and `place`, that as many arrays are like *examples*
        in all that these and the shapes say; None where the library has no such check."""

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


class Torch:
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

    def guard(self, examples: tuple[Any, ...]) -> Callable[..., bool] | None:
        make = _found(sys.modules["torch"], "_C", "_dynamo", "guards", "TensorGuards")
        sizes = [list(array.shape) for array in examples]
        # Along one element, a contiguous tensor has any stride.
        strides = [[None if size == 1 else stride
                    for size, stride in zip(array.shape, array.stride(), strict=True)]
                   for array in examples]
        try:  # class, dispatch keys (the negative bit is one), type, device, sizes and strides
            check: Callable[..., bool] = make(*examples, dynamic_dims_sizes=sizes,
                                              dynamic_dims_strides=strides).check
        except (AttributeError, RuntimeError, TypeError):  # another PyTorch's, or none
            return None
        if not any(array.requires_grad for array in examples):
            return check
        # The guard tells whether a tensor requires a gradient, not whether one is recorded now.
        enabled = self._grad_enabled
        return lambda *arrays: not enabled() and check(*arrays)

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
        if torch.cuda.device_count() == 1:
            return partial(quick, shape, strides, dtype)
        return lambda: quick(shape, strides, dtype) if current() == index else make()


def _found(module: Any, *names: str) -> Any:
    """What lies under these names; None where this PyTorch has it not."""
    return reduce(lambda found, name: getattr(found, name, None), names, module)


class Cupy:
    """CuPy arrays, of CUDA and ROCm alike."""

    def __init__(self) -> None:
        self._cupy = sys.modules["cupy"]

    def index(self, array: Any) -> int:
        return int(array.device.id)

    def matcher(self, example: Any) -> Callable[[Any], bool]:
        kind, dtype, index = self._cupy.ndarray, example.dtype, example.device.id
        return lambda array: (type(array) is kind and array.dtype == dtype
                              and array.device.id == index)

    def guard(self, examples: tuple[Any, ...]) -> Callable[..., bool] | None:
        return None

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
