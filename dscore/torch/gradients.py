"""Gradients of a convolution of a batch, by its input and by its filters; none is recorded.

Where dscore has no kernel but the definition's, PyTorch computes the gradients, unless a backend is
named; `dscore.torch.left_to_pytorch` lists them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import dscore.calling.both as of_both
import dscore.calling.gradients as of_arrays
from dscore.calling.call_cache import CALLS, FastCall
from dscore.torch.layer import Layer, lacking_kernel, lies_last, memory_format
from dscore.torch.remainder import note


def input_gradient(gradient: Tensor, w: Tensor, x_shape: Sequence[int], layer: Layer) -> Tensor:
    """The gradient by the input, of *x_shape*, from that by the output, in whose memory format."""
    if _left("input_gradient", w.shape, layer, gradient):
        return _input_gradient_by_pytorch(gradient, w, x_shape, layer)
    stride, padding, dilation, groups, backend, arithmetic = layer
    return of_arrays.input_gradient(gradient, w, tuple(x_shape[2:]), stride, padding, dilation,
                                    groups, backend=backend, arithmetic=_allowed(arithmetic))


def weight_gradient(x: Tensor, gradient: Tensor, w_shape: Sequence[int], layer: Layer,
                    dtype: torch.dtype | None = None) -> Tensor:
    """The gradient by the filters, of *w_shape*, from that by the output; C-contiguous. It is of
    *dtype*, float32 or (None) that of the images."""
    dtype = dtype or x.dtype
    if _left("weight_gradient", w_shape, layer, x, gradient):
        return _weight_gradient_by_pytorch(x, gradient, w_shape, layer).to(dtype)
    stride, padding, dilation, groups, backend, arithmetic = layer
    return of_arrays.weight_gradient(x, gradient, tuple(w_shape[2:]), stride, padding, dilation,
                                     groups, backend=backend, arithmetic=_allowed(arithmetic),
                                     out_dtype=_stated_type(dtype, x))


def both(x: Tensor, gradient: Tensor, w: Tensor, layer: Layer, dtype: torch.dtype | None = None
         ) -> tuple[Tensor, Tensor]:
    """The gradients by the input and by the filters, as above."""
    dtype = dtype or x.dtype
    if not _may_be_one(x, gradient, w.shape, layer):
        return (input_gradient(gradient, w, x.shape, layer),
                weight_gradient(x, gradient, w.shape, layer, dtype))
    stride, padding, dilation, groups, backend, arithmetic = layer
    return of_both.gradients(x, gradient, w, stride, padding, dilation, groups, backend=backend,
                             arithmetic=_allowed(arithmetic), out_dtype=_stated_type(dtype, x))


def _may_be_one(x: Tensor, gradient: Tensor, w_shape: Sequence[int], layer: Layer) -> bool:
    """Whether dscore has a kernel that may make both gradients; of images in one memory format."""
    return (lies_last(x, gradient) is lies_last(gradient)
            and _has_kernel("gradients", w_shape, layer, x, gradient))


def _stated_type(dtype: torch.dtype | None, x: Tensor) -> str | None:
    """The name of a result's type; None where it is that of the images."""
    return None if dtype in (None, x.dtype) else str(dtype).removeprefix("torch.")


def remembered(gradient: Tensor, x: Tensor | None, w: Tensor | None, x_shape: Sequence[int],
               w_shape: Sequence[int], layer: Layer, dtype: torch.dtype | None = None
               ) -> tuple[FastCall | None, FastCall | None, FastCall | None]:
    """The remembered calls of (gradient, w), of (x, gradient) and, for both gradients, of
    (x, gradient, w) for such tensors, without checks; None where dscore has not yet computed these,
    or an operand is None. *dtype*: of the filters' gradient, as above.
    """
    *constants, arithmetic = layer
    rest = (*constants, _allowed(arithmetic))
    one = None
    if x is not None and w is not None and _may_be_one(x, gradient, w_shape, layer):
        options = of_arrays.GradientOptions("gradients", None, *rest)._replace(
            out_dtype=_stated_type(dtype, gradient))
        one = of_both.unguarded((x, gradient, w), options)
    by_input = w is not None and _has_kernel("input_gradient", w_shape, layer, gradient)
    by_weight = x is not None and _has_kernel("weight_gradient", w_shape, layer, x, gradient)
    return (CALLS.unguarded((gradient, w), ("input_gradient", tuple(x_shape[2:]), *rest))
            if by_input else None,
            CALLS.unguarded((x, gradient), ("weight_gradient", tuple(w_shape[2:]), *rest,
                                            *of_arrays.stated(None, _stated_type(dtype, gradient))))
            if by_weight else None,
            one)


def _allowed(arithmetic: str | None) -> Any:
    """Products of three TF32 ones are allowed by their name, not demanded of what has no such
    kernel."""
    return "plain" if arithmetic == "plain" else None


def _lacking(operation: str, w_shape: Sequence[int], layer: Layer, *images: Tensor) -> str:
    """Reason why dscore leaves a gradient to PyTorch; empty where it computes that."""
    if layer.backend != "auto":
        return ""
    return lacking_kernel(operation, w_shape, tuple(layer),
                          str(images[0].dtype).removeprefix("torch."), lies_last(*images))


def _has_kernel(operation: str, w_shape: Sequence[int], layer: Layer, *images: Tensor) -> bool:
    return not _lacking(operation, w_shape, layer, *images)


def _left(operation: str, w_shape: Sequence[int], layer: Layer, *images: Tensor) -> bool:
    """Whether PyTorch computes the gradient, which is then noted."""
    reason = _lacking(operation, w_shape, layer, *images)
    if reason:
        note(operation, tuple(w_shape), layer, reason)
    return bool(reason)


def _input_gradient_by_pytorch(gradient: Tensor, w: Tensor, x_shape: Sequence[int],
                               layer: Layer) -> Tensor:
    images, channels, height, width = x_shape
    top, bottom, left, right = layer.padding
    padding, padded = (top, left), (height, width)
    if not layer.padding_is_even:
        padding, padded = (0, 0), (height + top + bottom, width + left + right)
    example = gradient.new_empty(1).expand(images, channels, *padded)  # read for its shape alone
    result: Tensor = _by_pytorch(gradient, example, w, padding, layer)[0]
    if not layer.padding_is_even:
        result = result[:, :, top:top + height, left:left + width]
    return result.contiguous(memory_format=memory_format(gradient))


def _weight_gradient_by_pytorch(x: Tensor, gradient: Tensor, w_shape: Sequence[int],
                                layer: Layer) -> Tensor:
    top, bottom, left, right = layer.padding
    padding = (top, left)
    if not layer.padding_is_even:
        x, padding = functional.pad(x, (left, right, top, bottom)), (0, 0)
    example = gradient.new_empty(1).expand(*w_shape)  # read for its shape alone
    result: Tensor = _by_pytorch(gradient, x, example, padding, layer, by_input=False)[1]
    return result.contiguous()


def _by_pytorch(gradient: Tensor, x: Tensor, w: Tensor, padding: tuple[int, int], layer: Layer,
                by_input: bool = True) -> Any:
    return torch.ops.aten.convolution_backward(
        gradient, x, w, None, layer.stride, padding, layer.dilation, False, (0, 0), layer.groups,
        (by_input, not by_input, False))
