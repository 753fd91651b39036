"""Layer's constants in the one form that kernels, operators and PyTorch's functions take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from dscore.core.errors import SpecError, require_int
from dscore.core.spec import Pair, Sides, pair_of, sides_of


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


def layer_of(x: Tensor, w: Tensor, stride: Any, padding: Any, dilation: Any, groups: Any,
             backend: str = "auto", arithmetic: str | None = None) -> Layer:
    """The constants from the short forms that `dscore.conv` takes; "same" is resolved on *x*.

    Raises SpecError for what no layer states.
    """
    steps, gaps = pair_of(stride, "stride"), pair_of(dilation, "dilation")
    sides = sides_of(padding)
    if sides == "same":
        sides = (*_same(x.shape[-2], w.shape[-2], steps[0], gaps[0]),
                 *_same(x.shape[-1], w.shape[-1], steps[1], gaps[1]))
    return Layer(steps, sides, gaps, require_int(groups, "groups"), backend, arithmetic)


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
    outputs, group_in, *kernel = w_shape
    if channels != group_in * layer.groups or outputs % layer.groups:
        raise SpecError(f"x has {channels} channels, and w of shape {tuple(w_shape)} with "
                        f"groups={layer.groups} takes {group_in * layer.groups}")
    top, bottom, left, right = layer.padding
    rows, columns = ((size + padded - (taps - 1) * gap - 1) // step + 1
                     for size, padded, taps, gap, step in zip(
                         (height, width), (top + bottom, left + right), kernel, layer.dilation,
                         layer.stride, strict=True))
    if rows < 1 or columns < 1:
        raise SpecError(f"no output rows or columns: an input of {height}x{width} is smaller than "
                        f"the filter of {kernel[0]}x{kernel[1]} with this padding and dilation")
    return images, outputs, rows, columns
