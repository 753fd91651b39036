"""Gradients of a convolution of a batch: by input, by filter, and by what its epilogue adds.

dscore has no kernels of these two operations yet: PyTorch's compute them, and
`dscore.torch.left_to_pytorch` lists that.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from dscore.torch.layer import Layer
from dscore.torch.remainder import note

_NO_KERNEL = "dscore has no kernel of this gradient"


def input_gradient(gradient: Tensor, w: Tensor, x_shape: Sequence[int], layer: Layer) -> Tensor:
    """The gradient by the input, of *x_shape*, from that by the output; C-contiguous."""
    note("input_gradient", w.shape, layer, _NO_KERNEL)
    images, channels, height, width = x_shape
    top, bottom, left, right = layer.padding
    padding, padded = (top, left), (height, width)
    if not layer.padding_is_even:
        padding, padded = (0, 0), (height + top + bottom, width + left + right)
    example = gradient.new_empty(1).expand(images, channels, *padded)  # read for its shape alone
    result = torch.ops.aten.convolution_backward(
        gradient, example, w, None, layer.stride, padding, layer.dilation, False, (0, 0),
        layer.groups, (True, False, False))[0]
    if not layer.padding_is_even:
        result = result[:, :, top:top + height, left:left + width]
    return result.contiguous()  # type: ignore[no-any-return]


def weight_gradient(x: Tensor, gradient: Tensor, w_shape: Sequence[int], layer: Layer) -> Tensor:
    """The gradient by the filter, of *w_shape*, from that by the output; C-contiguous."""
    note("weight_gradient", tuple(w_shape), layer, _NO_KERNEL)
    top, bottom, left, right = layer.padding
    padding = (top, left)
    if not layer.padding_is_even:
        x, padding = functional.pad(x, (left, right, top, bottom)), (0, 0)
    example = gradient.new_empty(1).expand(*w_shape)  # read for its shape alone
    result = torch.ops.aten.convolution_backward(
        gradient, x, example, None, layer.stride, padding, layer.dilation, False, (0, 0),
        layer.groups, (False, True, False))[1]
    return result.contiguous()  # type: ignore[no-any-return]
