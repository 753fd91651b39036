"""Layer's constants in the one form that kernels, operators and PyTorch's functions take."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from dscore.core.errors import SpecError, require_int, require_one_of
from dscore.core.numerics import ARITHMETIC_OPTIONS
from dscore.core.spec import ACTIVATIONS, Activation, Pair, Sides, pair_of, sides_of


class Layer(NamedTuple):
    """Constants of a convolution: *padding* is (top, bottom, left, right).

    `backend` and `arithmetic` are those of `dscore.conv`.
    """

    stride: Pair
    padding: Sides
    dilation: Pair
    groups: int
    backend: str = "auto"
    arithmetic: str | None = None

    @property
    def padding_is_even(self) -> bool:
        """Whether both sides of each axis are padded alike, as PyTorch's convolution does it."""
        top, bottom, left, right = self.padding
        return top == bottom and left == right

    def is_pointwise(self, w_shape: Sequence[int]) -> bool:
        """Whether filters of *w_shape* are 1x1 over all channels."""
        return self.groups == 1 and tuple(w_shape[2:]) == (1, 1)


class Epilogue(NamedTuple):
    """What is done to the sums: the activation, and whether the residual is added after it."""

    activation: Activation | None = None
    residual_after: bool = False


def constants_of(x: Tensor, w: Tensor, *options: Any) -> tuple[Layer, Epilogue]:
    """The constants of a call from the short forms that `dscore.conv` takes.

    *options*: stride, padding ("same" is resolved on *x*), dilation, groups, backend, arithmetic,
    activation, residual_after. Raises SpecError for what no layer states.
    """
    if torch.compiler.is_dynamo_compiling():
        layer, epilogue = _checked(*options)
    else:
        try:
            layer, epilogue = _remembered(*options)
        except TypeError:  # a list
            layer, epilogue = _checked(*options)
    if cast(Any, layer.padding) == "same":
        (high, wide), (gap_h, gap_w) = layer.stride, layer.dilation
        layer = layer._replace(padding=(*_same(x.shape[-2], w.shape[-2], high, gap_h),
                                        *_same(x.shape[-1], w.shape[-1], wide, gap_w)))
    return layer, epilogue


def _checked(stride: Any, padding: Any, dilation: Any, groups: Any, backend: str,
             arithmetic: str | None, activation: Activation | None,
             residual_after: bool) -> tuple[Layer, Epilogue]:
    require_one_of(activation, "activation", (None, *ACTIVATIONS))
    require_one_of(arithmetic, "arithmetic", (None, *ARITHMETIC_OPTIONS))
    require_one_of(residual_after, "residual_after", (True, False))
    layer = Layer(pair_of(stride, "stride"), cast(Any, sides_of(padding)),
                  pair_of(dilation, "dilation"), require_int(groups, "groups"), backend,
                  arithmetic)
    return layer, Epilogue(activation, residual_after)


# The checks take longer than all else that an eager call of a training step does.
_remembered = lru_cache(maxsize=4096, typed=True)(_checked)


def _same(size: int, kernel: int, stride: int, dilation: int) -> Pair:
    """TensorFlow's SAME, as `dscore.ConvProblem` resolves it; *size* may be symbolic."""
    span = (kernel - 1) * dilation + 1
    if stride == 1:  # whatever the size
        return (span - 1) // 2, span - 1 - (span - 1) // 2
    total = max((-(-size // stride) - 1) * stride + span - size, 0)
    return total // 2, total - total // 2


def result_shape(x_shape: tuple[int, ...], w_shape: tuple[int, ...],
                 layer: Layer) -> tuple[int, ...]:
    """Shape of the result for a batch; sizes may be symbolic.

    Raises SpecError where channels and groups do not fit, or no output remains.
    """
    images, channels, height, width = x_shape
    outputs, group_in, kernel_h, kernel_w = w_shape
    if channels != group_in * layer.groups or outputs % layer.groups:
        raise SpecError(f"x has {channels} channels, and w of shape {tuple(w_shape)} with "
                        f"groups={layer.groups} takes {group_in * layer.groups}")
    (step_h, step_w), (gap_h, gap_w) = layer.stride, layer.dilation
    top, bottom, left, right = layer.padding
    rows = (height + top + bottom - (kernel_h - 1) * gap_h - 1) // step_h + 1
    columns = (width + left + right - (kernel_w - 1) * gap_w - 1) // step_w + 1
    if rows < 1 or columns < 1:
        raise SpecError(f"no output rows or columns: an input of {height}x{width} is smaller than "
                        f"the filter of {kernel_h}x{kernel_w} with this padding and dilation")
    return images, outputs, rows, columns
