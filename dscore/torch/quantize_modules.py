"""Modules of a quantised model: the convolution of int8, and the steps at its borders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from dscore.calling.quantise import flat_call, quantised_flat
from dscore.calling.quantization import Quantization
from dscore.core.backend import require_name
from dscore.core.errors import SpecError, require_one_of
from dscore.core.spec import ACTIVATIONS, TABLED, Activation, Layout
from dscore.torch.launches import Launch
from dscore.torch.layer import Layer, constants_of, result_shape
from dscore.torch.operators import by_operators
from dscore.torch.quantize_operator import by_operator, convolved, launch_of
from dscore.torch.quantize_values import LEAST, MOST

_KERNEL_TYPES = (torch.float32, torch.float16, torch.bfloat16)
_FIELDS = ("x_zero_point", "y_zero_point", "residual_scale", "residual_zero_point", "input_scale",
           "input_zero_point", "table_scale", "table_zero_point")


class OfFloats(nn.Module):
    """Module whose results are floats of the type that the model is converted to."""

    _float: Tensor

    def __init__(self) -> None:
        super().__init__()
        # What ``half()`` converts; it has no elements, and is in no state_dict.
        self.register_buffer("_float", torch.zeros(0), persistent=False)


class Quantize(nn.Module):
    """Quantisation of a float tensor: ``clamp(rint(x / scale) + zero_point, -128, 127)``, as int8.

    x is multiplied by the reciprocal of the scale in float32, as quantize_per_tensor of
    torch.ops.quantized_decomposed does it. *layout*: "nhwc" lays images out with their channels
    last. On a GPU it is one kernel of dscore's.

    >>> Quantize(0.5, 10)(torch.tensor([0.0, 0.25, 0.75, -100.0]))
    tensor([  10,   10,   12, -128], dtype=torch.int8)
    """

    def __init__(self, scale: float, zero_point: int, layout: Layout = "nchw") -> None:
        super().__init__()
        self.scale, self.zero_point, self.layout = scale, zero_point, layout
        self._constants: dict[Any, tuple[Tensor, Tensor]] = {}

    def forward(self, x: Tensor) -> Tensor:
        """The integers of *x*, of any float type."""
        x = self._laid(x)
        if _is_launched(x):
            return self._by_kernel(x)
        steps = (x.float() * (1.0 / self.scale)).round_()
        if self.zero_point:
            steps.add_(self.zero_point)
        return steps.clamp_(LEAST, MOST).to(torch.int8)

    def launch_of(self, x: Tensor) -> Launch | None:
        """The launch that it has just made; None where PyTorch has computed."""
        if not _is_launched(x):
            return None
        dense = self._dense(x)
        operands = self._operands(dense)
        call = flat_call(*operands)
        new = call.adapter.allocator(tuple(x.shape), dense, not dense.is_contiguous(), "int8")
        lays = None if dense is x else self._dense
        direct = call.takes_directly(operands)
        return Launch(call, (0, *operands[1:]), new, lays) if direct else None

    def _laid(self, x: Tensor) -> Tensor:
        """*x* in the layout that its integers are to have."""
        if self.layout == "nhwc" and x.dim() == len(self.layout):
            return x.contiguous(memory_format=torch.channels_last)
        return x

    def _dense(self, x: Tensor) -> Tensor:
        """The same in one piece, in any order of axes, as the kernel takes it."""
        x = self._laid(x)
        last = x.dim() == len("nchw") and x.is_contiguous(memory_format=torch.channels_last)
        return x if last else x.contiguous()

    def _by_kernel(self, x: Tensor) -> Tensor:
        """The integers by dscore's kernel."""
        x = self._dense(x)
        made: Tensor = quantised_flat(*self._operands(x))
        return made.as_strided(x.shape, x.stride())

    def _operands(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Those of the kernel for floats that lie in one piece."""
        key = x.device, self.scale, self.zero_point
        if key not in self._constants:
            self._constants[key] = (torch.tensor([1.0 / self.scale], device=x.device),
                                    torch.tensor([self.zero_point], dtype=torch.int32,
                                                 device=x.device))
        return x.detach().as_strided((x.numel(),), (1,)), *self._constants[key]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_constants": {}}

    def get_extra_state(self) -> dict[str, Any]:
        return {"scale": self.scale, "zero_point": self.zero_point}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.scale, self.zero_point = state["scale"], state["zero_point"]

    def extra_repr(self) -> str:
        return f"scale={self.scale:.6g}, zero_point={self.zero_point}"


class Dequantize(OfFloats):
    """Numbers that integers of int8 stand for: ``(q - zero_point) * scale``.

    >>> Dequantize(0.5, 10)(torch.tensor([10, 12, -128], dtype=torch.int8))
    tensor([  0.,   1., -69.])
    """

    def __init__(self, scale: float, zero_point: int) -> None:
        super().__init__()
        self.scale, self.zero_point = scale, zero_point

    def forward(self, q: Tensor) -> Tensor:
        """Floats of the type that the model is of."""
        numbers = q.to(self._float.dtype)
        if self.zero_point:
            numbers.sub_(self.zero_point)
        return numbers.mul_(self.scale)

    get_extra_state, set_extra_state = Quantize.get_extra_state, Quantize.set_extra_state
    extra_repr = Quantize.extra_repr


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
        self._quantization = value
        self._of_half: Quantization | None = None

    def forward(self, x: Tensor, residual: Tensor | None = None, scale: Tensor | None = None
                ) -> Tensor:
        """The result for images of int8, of axes (N, C, H, W) or (C, H, W).

        *residual*: int8 images of the result's shape. *scale*: floats by image and channel of x,
        rounded to float16. The quantization says what both stand for.
        """
        _require_type("x", x, torch.int8)
        dtype = self._float.dtype
        operands = self._operands(x, dtype)
        if residual is not None or scale is not None:
            residual, scale = self._expanded(x, residual, scale, operands[3])
        if not by_operators((x,)):
            y = convolved(*operands, residual, scale)
        elif x.dim() == len("nchw"):
            y = by_operator(*operands, residual, scale)
        else:
            y = by_operator(x.unsqueeze(0), *operands[1:], *(
                None if one is None else one.unsqueeze(0) for one in (residual, scale))).squeeze(0)
        return y if y.dtype is torch.int8 else y.to(dtype)

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
        dtype = self._float.dtype
        operands = self._operands(x, dtype)
        quantization = operands[4]
        converted = quantization.y_scale is None and str(dtype) != f"torch.{quantization.result}"
        return None if converted else launch_of(*operands, residual, scale)

    def _operands(self, x: Tensor, dtype: torch.dtype) -> tuple[
            Tensor, Tensor, Tensor | None, Layer, Quantization, Activation | None]:
        """What a convolution of *x* takes before a residual and a scale."""
        layer, _ = constants_of(x, self.weight, self.stride, self.padding, self.dilation,
                                self.groups, self.backend, None, self.activation, False)
        return x, self.weight, self.bias, layer, self._for(dtype), self.activation

    def _for(self, dtype: torch.dtype) -> Quantization:
        """The quantization whose result of floats is of a type that kernels write."""
        if dtype is not torch.float16 or self._quantization.y_scale is not None:
            return self._quantization
        if self._of_half is None:
            self._of_half = replace(self._quantization, out_dtype="float16")
        return self._of_half

    def _apply(self, fn: Any, recurse: bool = True) -> QuantizedConv2d:
        """A filter that ``to(memory_format=...)`` lays out anew would be copied by each call."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.weight = self.weight.contiguous()
        return self

    def get_extra_state(self) -> dict[str, Any]:
        q = self._quantization
        scales = list(q.w_scale) if isinstance(q.w_scale, tuple) else q.w_scale
        return {"x_scale": q.x_scale, "w_scale": scales, "y_scale": q.y_scale,
                **{name: getattr(q, name) for name in _FIELDS}}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.quantization = Quantization(**state)

    def __getstate__(self) -> dict[str, Any]:
        """Without the arrays that a Quantization keeps on devices."""
        return {**vars(self), "_quantization": replace(self._quantization), "_of_half": None}

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


def _is_launched(x: Tensor) -> bool:
    """Whether dscore's kernel quantises *x*."""
    return bool(x.is_cuda and x.numel() and x.dtype in _KERNEL_TYPES and not by_operators((x,)))


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
