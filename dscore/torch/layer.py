"""Layer's constants in the one form that kernels, operators and PyTorch's functions take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from dscore.algorithms.direct import Direct
from dscore.algorithms.registry import running
from dscore.core.backend import gpu_here
from dscore.core.errors import SpecError, require_int, require_one_of
from dscore.core.numerics import ARITHMETIC_OPTIONS
from dscore.core.problem import ConvProblem
from dscore.core.sizes import Pair, Sides, pair_of, sides_of
from dscore.core.spec import ACTIVATIONS, Activation, ConvSpec, Layout


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


def lies_last(*images: Tensor | None) -> bool:
    """Whether kernels take images, of axes (N, C, H, W), with their channels last, as they lie.

    The first that does not lie in both ways decides (`dscore.conv`).
    """
    for image in images:
        if image is not None:
            if not image.is_contiguous(memory_format=torch.channels_last):
                return False
            if not image.is_contiguous():
                return True
    return False


def memory_format(*images: Tensor | None) -> torch.memory_format:
    """The memory format of what is computed of *images*."""
    return torch.channels_last if lies_last(*images) else torch.contiguous_format


def lacking_kernel(operation: str, w_shape: Sequence[int], layer: tuple[Any, ...], dtype: str,
                   last: bool) -> str:
    """Reason why no kernel but the definition's computes a layer; empty where one does."""
    try:
        return _lacking(operation, tuple(map(int, w_shape)), Layer(*layer), dtype,
                        "nhwc" if last else "nchw")
    except SpecError as error:  # of what is no layer, which the call itself refuses
        return str(error)


# Of constants: as torch.compiler.assume_constant_result marks it, which imports the compiler.
lacking_kernel._dynamo_marked_constant = True  # type: ignore[attr-defined]


@lru_cache(maxsize=4096)
def _lacking(operation: str, w_shape: tuple[int, ...], layer: Layer, dtype: str,
             layout: Layout) -> str:
    outs, group_in, *kernel = w_shape
    spec = ConvSpec.make(group_in * layer.groups, outs, tuple(kernel), stride=layer.stride,
                         dilation=layer.dilation, groups=layer.groups, dtype=dtype, layout=layout)
    if layer.arithmetic == "winograd" and operation == "conv":
        spec = replace(spec, arithmetic="winograd")
    # Of an image of any size: what an algorithm runs does not depend on it.
    problem = ConvProblem(spec, 1, 4 * spec.span[0], 4 * spec.span[1], operation)
    usual = (dtype, layout) == ("float32", "nchw")
    # Matrix units that an algorithm needs are not every GPU's.
    able = running(problem, device=gpu_here())
    # Of a channel multiplier's gradients the definition's kernel is taken, too: sums are short.
    if (spec.kind == "depthwise" and usual) or any(
            one.name != Direct.name for one in able):
        return ""
    what = "" if operation == "conv" else f" for the {operation.replace('_', ' ')}"
    return (f"{spec.kind} in {dtype} and {layout.upper()}: dscore has only the definition "
            f"itself{what}; a backend= by name computes it")


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
