"""Batching rules of the operators for torch.vmap: a batch of convolutions as one convolution.

Where the filters are shared, the batch becomes images. Where each has its own filters, it becomes
groups of channels. A rule takes the size of the batch, the axis of it in each tensor (or None), and
the operator's arguments; it returns the arguments of one call, and the axis of its result that
holds the batch before what that axis held.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

Dims = Sequence[int | None]


def conv2d(size: int, dims: Dims, x: Tensor, w: Tensor, bias: Tensor | None,
           residual: Tensor | None, scale: Tensor | None, activation: str | None, after: bool,
           *layer: Any) -> tuple[tuple[Any, ...], int]:
    """The rule of torch.ops.dscore.conv2d; a batch has no master of its filters."""
    of_x, of_w, of_bias, of_residual, of_scale = dims[:5]
    if of_w is None and of_bias is None:
        return (_images(x, of_x, size), w, bias, _images(residual, of_residual, size),
                _images(scale, of_scale, size), activation, after, *layer), 0
    joined: Any = _channels(x, of_x, size)
    if scale is not None:  # which a layer of several groups does not take
        joined = joined * _channels(scale, of_scale, size)[:, :, None, None]
    return (joined, _images(w, of_w, size), _images(bias, of_bias, size),
            _channels(residual, of_residual, size), None, activation, after,
            *_grouped(layer, size)), 1


def input_gradient(size: int, dims: Dims, gradient: Tensor, w: Tensor, x_shape: Sequence[int],
                   *layer: Any) -> tuple[tuple[Any, ...], int]:
    """The rule of torch.ops.dscore.input_gradient."""
    images, channels, *image = x_shape
    if dims[1] is None:
        return (_images(gradient, dims[0], size), w, (size * images, channels, *image), *layer), 0
    return (_channels(gradient, dims[0], size), _images(w, dims[1], size),
            (images, size * channels, *image), *_grouped(layer, size)), 1


def weight_gradient(size: int, dims: Dims, x: Tensor, gradient: Tensor, w_shape: Sequence[int],
                    *layer: Any) -> tuple[tuple[Any, ...], int]:
    """The rule of torch.ops.dscore.weight_gradient: each of the batch has its own filters."""
    return (_channels(x, dims[0], size), _channels(gradient, dims[1], size),
            (size * w_shape[0], *w_shape[1:]), *_grouped(layer, size)), 0


def _first(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """*tensor* with the batch as its first axis, expanded where it has none."""
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _images(tensor: Tensor | None, dim: int | None, size: int) -> Any:
    """(N, ...) for each of the batch as (batch * N, ...)."""
    return None if tensor is None else _first(tensor, dim, size).flatten(0, 1)


def _channels(tensor: Tensor | None, dim: int | None, size: int) -> Any:
    """(N, C, ...) for each of the batch as (N, batch * C, ...)."""
    return None if tensor is None else _first(tensor, dim, size).movedim(0, 1).flatten(1, 2)


def _grouped(layer: tuple[Any, ...], size: int) -> tuple[Any, ...]:
    stride, padding, dilation, groups, *others = layer
    return stride, padding, dilation, groups * size, *others
