"""Module of a convolution of int8, in a quantised model or by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dscore.calling.quantization import Quantization
from dscore.core.backend import require_name
from dscore.core.errors import SpecError, require_one_of
from dscore.core.spec import ACTIVATIONS, TABLED, Activation
from dscore.torch.launches import Launch
from dscore.torch.layer import Layer, constants_of, result_shape
from dscore.torch.operators import by_operators
from dscore.torch.quantize_operator import by_operator, convolved, launch_of
from dscore.torch.quantize_steps import OfFloats

_WRAP = 2**32
_FIELDS = ("x_zero_point", "y_zero_point", "residual_scale", "residual_zero_point", "input_scale",
           "input_zero_point", "table_scale", "table_zero_point", "scaled_zero_point")


class QuantizedConv2d(OfFloats):
    """Convolution of int8 images by a filter of int8, whose result is exact (docs/int8.md).

    - *weight*: int8 of shape (out, C / groups, kernel height, width); *bias*: int32 (out,), of the
      scale ``x_scale * w_scale``, or None. Both are buffers.
    - *quantization*: a `dscore.Quantization`; with a y_scale the result is of int8, else of floats,
      of the type that the model is of. It is part of the state_dict.
    - *activation*: that of `dscore.conv`; of silu, hardswish, sigmoid and hardsigmoid the
      quantization has a table_scale. *backend*: "auto" is dscore's kernels on a GPU, and PyTorch
      elsewhere, with the same integers.

    Raises SpecError for tensors of other types.

    >>> q = Quantization(x_scale=0.5, w_scale=0.25, y_scale=1.0, y_zero_point=-10)
    >>> layer = QuantizedConv2d(torch.tensor([[[[8]]]], dtype=torch.int8), None, q)
    >>> layer(torch.full((1, 1, 2, 2), 40, dtype=torch.int8))[0, 0, 0]
    tensor([30, 30], dtype=torch.int8)
    >>> layer
    QuantizedConv2d(1, 1, kernel_size=(1, 1), stride=(1, 1), bias=False, result=int8)
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None, quantization: Quantization,
                 stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1, *,
                 activation: Activation | None = None, backend: str = "auto") -> None:
        super().__init__()
        _require_type("weight", weight, torch.int8)
        if bias is not None:
            _require_type("bias", bias, torch.int32)
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.zero_point_in_bias = False
        self.quantization = quantization
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.activation = require_one_of(activation, "activation", (None, *ACTIVATIONS))
        if (activation in TABLED) != (quantization.table_scale is not None):
            raise SpecError(f"activation is {activation}, and table_scale of the quantization "
                            f"{quantization.table_scale}: {', '.join(TABLED)} have one, and no "
                            "other activation has")
        require_name(backend)
        self.backend = backend

    @property
    def quantization(self) -> Quantization:
        """Scales and zero points of its tensors."""
        return self._quantization

    @quantization.setter
    def quantization(self, value: Quantization) -> None:
        if self.zero_point_in_bias:
            before = self._quantization.x_zero_point
            if value.x_zero_point != before:
                raise SpecError(f"the bias has x's zero point {before} taken off: the quantization "
                                f"must have this x_zero_point; got {value.x_zero_point}")
        self._set_quantization(value)

    def _set_quantization(self, value: Quantization) -> None:
        self._quantization = value
        self._for_kernels: dict[tuple[torch.dtype, bool], Quantization] = {}

    def move_zero_point_to_bias(self) -> QuantizedConv2d:
        """Take x's zero point off in the bias, which is of the filter as it is now, so that kernels
        need not sum filters at each call; returns the layer.

        `zero_point_in_bias` says so afterwards, also in the state_dict, and the results stay the
        same integers. A layer with padding needs the zero point itself, and stays as it is.

        >>> q = Quantization(x_scale=0.5, w_scale=0.25, y_scale=1.0, x_zero_point=-16)
        >>> layer = QuantizedConv2d(torch.tensor([[[[8]]]], dtype=torch.int8), None, q)
        >>> layer.move_zero_point_to_bias().bias
        tensor([128], dtype=torch.int32)
        """
        zero = self._quantization.x_zero_point
        if self.zero_point_in_bias or not zero or self._needs_zero_point():
            return self
        taken = zero * self.weight.long().flatten(1).sum(1)
        before = torch.zeros_like(taken) if self.bias is None else self.bias.long()
        # As sums of int32 wrap.
        self.bias = ((before - taken + _WRAP // 2) % _WRAP - _WRAP // 2).to(torch.int32)
        self.zero_point_in_bias = True
        return self

    def _needs_zero_point(self) -> bool:
        padding = self.padding
        padded = padding != "valid" if isinstance(padding, str) else np.any(np.asarray(padding))
        return bool(padded)

    def forward(self, x: Tensor, residual: Tensor | None = None, scale: Tensor | None = None
                ) -> Tensor:
        """The result for images of int8, of axes (N, C, H, W) or (C, H, W).

        *residual*: int8 images of the result's shape. *scale*: floats by image and channel of x,
        rounded to float16. The quantization says what both stand for.
        """
        _require_type("x", x, torch.int8)
        operands = self.operands_of(x)
        if residual is not None or scale is not None:
            residual, scale = self._expanded(x, residual, scale, operands[3])
        if not by_operators((x,)):
            y = convolved(*operands, residual, scale)
        elif x.dim() == len("nchw"):
            y = by_operator(*operands, residual, scale)
        else:
            y = by_operator(x.unsqueeze(0), *operands[1:], *(
                None if one is None else one.unsqueeze(0) for one in (residual, scale))).squeeze(0)
        return self.as_result(y)

    def _expanded(self, x: Tensor, residual: Tensor | None, scale: Tensor | None, layer: Layer
                  ) -> tuple[Tensor | None, Tensor | None]:
        """A residual, and a scale of four axes, of which one image or pixel is for all."""
        images = x.shape if x.dim() == len("nchw") else (1, *x.shape)
        y_shape = result_shape(tuple(images), tuple(self.weight.shape), layer)[-x.dim():]
        if residual is not None and _stands_for(residual.shape, y_shape):
            residual = residual.expand(y_shape)
        if scale is not None and _stands_for(scale.shape, (*x.shape[:-2], 1, 1)):
            scale = scale.expand(*x.shape[:-2], 1, 1)
        return residual, scale

    def launch_of(self, x: Tensor, residual: Tensor | None = None, scale: Tensor | None = None
                  ) -> Launch | None:
        """The launch that it has just made; None where it has converted something besides."""
        operands = self.operands_of(x)
        return None if self.converts else launch_of(*operands, residual, scale)

    def as_result(self, y: Tensor) -> Tensor:
        """What kernels have written as the module's result."""
        return y.to(self._float.dtype) if self.converts else y

    @property
    def converts(self) -> bool:
        """Whether a result of floats is of a type that kernels do not write."""
        return (self._quantization.y_scale is None
                and str(self._float.dtype) != f"torch.{self.written_type}")

    @property
    def written_type(self) -> str:
        """The type of what kernels write."""
        return self._for(self._float.dtype).result

    def operands_of(self, x: Tensor) -> tuple[
            Tensor, Tensor, Tensor | None, Layer, Quantization, Activation | None]:
        """What a convolution of *x* takes before a residual and a scale."""
        layer, _ = constants_of(x, self.weight, self.stride, self.padding, self.dilation,
                                self.groups, self.backend, None, self.activation, False)
        return x, self.weight, self.bias, layer, self._for(self._float.dtype), self.activation

    def _for(self, dtype: torch.dtype) -> Quantization:
        """The quantization by which kernels are called: its result of floats is of a type that
        they write, and x counts from 0 where its zero point is in the bias."""
        half = dtype is torch.float16 and self._quantization.y_scale is None
        if not (half or self.zero_point_in_bias):
            return self._quantization
        key = dtype, self.zero_point_in_bias
        if key not in self._for_kernels:
            changes: dict[str, Any] = {"out_dtype": "float16"} if half else {}
            if self.zero_point_in_bias:
                changes["x_zero_point"] = 0
                if self._quantization.input_scale is not None:
                    changes["scaled_zero_point"] = self._quantization.zero_point_when_scaled
            self._for_kernels[key] = replace(self._quantization, **changes)
        return self._for_kernels[key]

    def _apply(self, fn: Any, recurse: bool = True) -> QuantizedConv2d:
        """A filter that ``to(memory_format=...)`` lays out anew would be copied by each call."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.weight = self.weight.contiguous()
        return self

    def get_extra_state(self) -> dict[str, Any]:
        q = self._quantization
        scales = list(q.w_scale) if isinstance(q.w_scale, tuple) else q.w_scale
        return {"zero_point_in_bias": self.zero_point_in_bias, "x_scale": q.x_scale,
                "w_scale": scales, "y_scale": q.y_scale,
                **{name: getattr(q, name) for name in _FIELDS}}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        fields = dict(state)
        # A state that an earlier version wrote does not say.
        self.zero_point_in_bias = fields.pop("zero_point_in_bias", False)
        self._set_quantization(Quantization(**fields))

    def __getstate__(self) -> dict[str, Any]:
        """Without the arrays that a Quantization keeps on devices."""
        return {**vars(self), "_quantization": replace(self._quantization), "_for_kernels": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"zero_point_in_bias": False, **state})  # type: ignore[no-untyped-call]

    def extra_repr(self) -> str:
        outs, group_in, *kernel = self.weight.shape
        text = (f"{group_in * self.groups}, {outs}, kernel_size={tuple(kernel)}, stride="
                f"{_pair(self.stride)}")
        for name, default in (("padding", (0, 0)), ("dilation", (1, 1))):
            value = _pair(getattr(self, name))
            text += f", {name}={value}" if value != default else ""
        text += f", groups={self.groups}" if self.groups != 1 else ""
        text += ", bias=False" if self.bias is None else ""
        text += f", activation={self.activation}" if self.activation else ""
        return f"{text}, result={self._quantization.result}"


def _stands_for(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether a shape is broadcast to another one of as many axes."""
    return shape != other and len(shape) == len(other) and all(
        size in (1, whole) for size, whole in zip(shape, other, strict=True))


def _require_type(name: str, tensor: Any, dtype: torch.dtype) -> None:
    if not isinstance(tensor, Tensor) or tensor.dtype is not dtype:
        given = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        fix = "; dscore.torch.Quantize makes integers of floats" if name == "x" else ""
        raise SpecError(f"{name} of a QuantizedConv2d must be a tensor of {dtype}, got {given}"
                        + fix)


def _pair(value: Any) -> Any:
    return (value, value) if isinstance(value, int) else value
