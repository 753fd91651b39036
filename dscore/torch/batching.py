"""Batching rules of the operators for torch.vmap: a batch of convolutions as one convolution.

Where the filters are shared, the batch becomes images. Where each has its own filters, it becomes
groups of channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_Dims = Sequence[int | None]


def _first(tensor: Tensor | None, dim: int | None, size: int) -> Tensor | None:
    """*tensor* with the batch as its first axis, expanded where it has none."""
    if tensor is None:
        return None
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _images(tensor: Tensor | None, dim: int | None, size: int) -> Tensor | None:
    """(N, ...) for each of the batch as (batch * N, ...)."""
    tensor = _first(tensor, dim, size)
    return None if tensor is None else tensor.flatten(0, 1)


def _channels(tensor: Tensor | None, dim: int | None, size: int) -> Tensor | None:
    """(N, C, ...) for each of the batch as (N, batch * C, ...)."""
    tensor = _first(tensor, dim, size)
    return None if tensor is None else tensor.movedim(0, 1).flatten(1, 2)


def _grouped(layer: tuple[Any, ...], size: int) -> tuple[Any, ...]:
    stride, padding, dilation, groups, *others = layer
    return stride, padding, dilation, groups * size, *others


def conv2d(info: Any, dims: _Dims, x: Tensor, w: Tensor, bias: Tensor | None,
           residual: Tensor | None, scale: Tensor | None, activation: str | None, after: bool,
            *layer: Any) -> tuple[Tensor, int]:
    """The rule of torch.ops.dscore.conv2d: the result and the axis of its batch."""
    size, operator = info.batch_size, torch.ops.dscore.conv2d
    of_x, of_w, of_bias, of_residual, of_scale = dims[:5]
    if of_w is None and of_bias is None:
        y = operator(_images(x, of_x, size), w, bias, _images(residual, of_residual, size),
                     _images(scale, of_scale, size), activation, after, *layer)
        return y.unflatten(0, (size, -1)), 0
    joined = _channels(x, of_x, size)
    assert joined is not None
    if scale is not None:  # which a layer of several groups does not take
        factor = _channels(scale, of_scale, size)
        assert factor is not None
        joined, scale = joined * factor[:, :, None, None], None
    y = operator(joined, _images(w, of_w, size), _images(bias, of_bias, size),
                 _channels(residual, of_residual, size), None, activation, after,
                 *_grouped(layer, size))
    return y.unflatten(1, (size, -1)), 1


def input_gradient(info: Any, dims: _Dims, gradient: Tensor, w: Tensor, x_shape: Sequence[int],
                   *layer: Any) -> tuple[Tensor, int]:
    """The rule of torch.ops.dscore.input_gradient."""
    size, operator = info.batch_size, torch.ops.dscore.input_gradient
    images, channels, *image = x_shape
    if dims[1] is None:
        result = operator(_images(gradient, dims[0], size), w, [size * images, channels, *image],
                          *layer)
        return result.unflatten(0, (size, -1)), 0
    result = operator(_channels(gradient, dims[0], size), _images(w, dims[1], size),
                      [images, size * channels, *image], *_grouped(layer, size))
    return result.unflatten(1, (size, -1)), 1


def weight_gradient(info: Any, dims: _Dims, x: Tensor, gradient: Tensor, w_shape: Sequence[int],
                    *layer: Any) -> tuple[Tensor, int]:
    """The rule of torch.ops.dscore.weight_gradient: the filters of each are apart in any case."""
    size = info.batch_size
    result = torch.ops.dscore.weight_gradient(
        _channels(x, dims[0], size), _channels(gradient, dims[1], size),
        [size * w_shape[0], *w_shape[1:]], *_grouped(layer, size))
    return result.unflatten(0, (size, -1)), 0
