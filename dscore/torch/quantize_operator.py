"""Operator of PyTorch's dispatcher for convolutions of int8: torch.ops.dscore.quantized_conv2d.

It serves torch.compile, torch.export and dispatch modes, which take scales as constants.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.library import define, impl, register_fake
from torch.nn import functional

from dscore.api import conv
from dscore.calling.call_cache import CALLS
from dscore.calling.quantization import Quantization, quantised
from dscore.core.spec import Activation
from dscore.torch.launches import Launch
from dscore.torch.layer import Layer, memory_format, result_shape
from dscore.torch.quantize_values import LEAST, MOST, integers_of

# Sums of integers below it are exact in float32, in every order.
_EXACT_IN_FLOAT32 = 2**24
_LARGEST_PRODUCT = 255 * 128
# Arguments between the scales and the last one, which programs exported before it came lack.
_AFTER_SCALES = 16

define("dscore::quantized_conv2d",
       "(Tensor x, Tensor w, Tensor? bias, Tensor? residual, Tensor? scale, float x_scale, "
       "float[] w_scale, float? y_scale, int x_zero_point, int y_zero_point, str? out_dtype, "
       "float? residual_scale, int residual_zero_point, float? input_scale, int input_zero_point, "
       "float? table_scale, int table_zero_point, str? activation, SymInt[] stride, "
       "SymInt[] padding, SymInt[] dilation, SymInt groups, str backend, "
       "int? scaled_zero_point=None) -> Tensor",
       tags=(torch.Tag.pt2_compliant_tag, getattr(torch.Tag, "needs_exact_strides",
                                                  torch.Tag.needs_fixed_stride_order)))


@impl("dscore::quantized_conv2d", "default")
def _quantized_conv2d(x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None,
                      scale: Tensor | None, x_scale: float, w_scale: Any, *rest: Any) -> Tensor:
    *points, activation, stride, padding, dilation, groups, backend = rest[:_AFTER_SCALES]
    layer = Layer(tuple(stride), tuple(padding), tuple(dilation), groups, backend)
    of = quantization_of(x_scale, tuple(w_scale), *points, *rest[_AFTER_SCALES:])
    return convolved(x, w, bias, layer, of, activation, residual, scale)


@register_fake("dscore::quantized_conv2d")  # type: ignore[untyped-decorator]
def _shape(x: Tensor, w: Tensor, bias: Tensor | None, residual: Any, scale: Any, x_scale: float,
           w_scale: Any, *rest: Any) -> Tensor:
    y_scale, _, _, out_dtype = rest[:4]
    stride, padding, dilation, groups, backend = rest[_AFTER_SCALES - 5:_AFTER_SCALES]
    shape = result_shape(tuple(x.shape), tuple(w.shape), Layer(
        tuple(stride), tuple(padding), tuple(dilation), groups, backend))
    name = out_dtype or ("float32" if y_scale is None else "int8")
    return torch.empty(shape, dtype=getattr(torch, name), device=x.device,
                       memory_format=memory_format(x))


# A Quantization keeps arrays where kernels read them, so that the same one serves each call.
quantization_of = lru_cache(maxsize=4096)(Quantization)


def by_operator(x: Tensor, w: Tensor, bias: Tensor | None, layer: Layer, q: Quantization,
                activation: Activation | None, residual: Tensor | None = None,
                scale: Tensor | None = None) -> Tensor:
    """The convolution of a batch by the operator."""
    scales = list(q.w_scale) if isinstance(q.w_scale, tuple) else [q.w_scale]
    scales = scales if len(scales) > 1 else scales * w.shape[0]
    return torch.ops.dscore.quantized_conv2d(  # type: ignore[no-any-return]
        x, w, bias, residual, scale, q.x_scale, scales, q.y_scale, q.x_zero_point, q.y_zero_point,
        q.out_dtype, q.residual_scale, q.residual_zero_point, q.input_scale, q.input_zero_point,
        q.table_scale, q.table_zero_point, activation, layer.stride, layer.padding, layer.dilation,
        layer.groups, layer.backend, q.scaled_zero_point)


def convolved(x: Tensor, w: Tensor, bias: Tensor | None, layer: Layer, quantization: Quantization,
              activation: Activation | None, residual: Tensor | None = None,
              scale: Tensor | None = None) -> Tensor:
    """The convolution of int8: by dscore on a GPU and by a backend with a name, else by PyTorch;
    with a scale of any float type, which is rounded to float16.
    """
    scale = None if scale is None else scale.half()
    if layer.backend == "auto" and not x.is_cuda:
        return by_pytorch(x, w, bias, layer, quantization, activation, residual, scale)
    return conv(x, w, bias, layer.stride, layer.padding, layer.dilation, layer.groups,
                activation=activation, backend=layer.backend, quantization=quantization,
                residual=residual, scale=scale)


def launch_of(x: Tensor, w: Tensor, bias: Tensor | None, layer: Layer, quantization: Quantization,
              activation: Activation | None, residual: Tensor | None = None,
              scale: Tensor | None = None) -> Launch | None:
    """The launch that `convolved` has just made, of a step whose first three arguments are x, the
    residual and the scale; None where it did anything else."""
    given = {"residual": residual, "scale": scale}
    options = (*layer[:4], activation, layer.backend, None, None if residual is None else "before",
               scale is not None)
    options, further = quantised(
        x, w, options, {name: one for name, one in given.items() if one is not None}, quantization)
    call = CALLS.prepared((x, w, bias, *further.values()), options)
    places = {"residual": 1, "scale": 2}
    operands = (0, w, bias, *(places.get(name, one) for name, one in further.items()))
    return None if call is None else Launch(call, operands, call.new)


def by_pytorch(x: Tensor, w: Tensor, bias: Tensor | None, layer: Layer,
               quantization: Quantization, activation: Activation | None,
               residual: Tensor | None = None, scale: Tensor | None = None) -> Tensor:
    """The convolution of int8 by PyTorch, of the same integers as dscore's kernels.

    Products are summed as floats that hold these sums exactly. An x of floats is quantised first.
    """
    form = memory_format(x) if x.dim() == len("nchw") else torch.contiguous_format
    beside = ("residual",) * (residual is not None) + ("input",) * (scale is not None)
    made = quantization.operands(x, w, activation, beside)
    if x.is_floating_point():
        x = integers_of(x, quantization.x_scale, quantization.x_zero_point)
    x_zero, y_zero, low, high, *zeros = (int(point) for point in made["points"])
    if scale is not None:
        most = torch.finfo(torch.float16).max
        factor = (scale.float() * made["ratios"][-1]).clamp(-most, most).half().float()
        *_, input_zero, scaled_zero = zeros
        differences = x.float() - input_zero
        x = (differences * factor.reshape(*x.shape[:-2], 1, 1)).round().add(scaled_zero)
        x = x.clamp(LEAST, MOST)
    sums = _sums(x, w, x_zero, layer).long()
    if bias is not None:
        sums = sums + bias.long()[:, None, None]
    # An int32 wraps; its float32 is rounded to the nearest, and so is each step after it.
    y: Tensor = sums.int().float() * made["multiplier"][:, None, None]
    if residual is not None:
        y = y + (residual.float() - zeros[0]) * made["ratios"][0]
    if "table" in made:
        y = made["table"][(y.round() + y_zero).clamp(low, high).long()]
    elif quantization.y_scale is not None:
        y = (y.round() + y_zero).clamp(low, high).to(torch.int8)
    elif activation is not None:
        y = functional.relu(y) if activation == "relu" else functional.relu6(y)
    if quantization.out_dtype == "float16":
        y = y.half()
    return y.contiguous(memory_format=form)


def _sums(x: Tensor, w: Tensor, x_zero: int, layer: Layer) -> Tensor:
    """Sums of ``(x - x_zero) * w``, as floats that are integers.

    Those of depthwise and 1x1 layers of few products fit into float32, for which PyTorch is faster.
    Other layers may go by Winograd's algorithm there, which rounds; float64 does not.
    """
    _outs, group_in, *kernel = w.shape
    short = group_in * kernel[0] * kernel[1] * _LARGEST_PRODUCT < _EXACT_IN_FLOAT32
    plain = group_in == 1 or tuple(kernel) == (1, 1)
    dtype = torch.float32 if short and plain else torch.float64
    top, bottom, left, right = layer.padding
    shifted = functional.pad(x.to(dtype) - x_zero, (left, right, top, bottom))
    return functional.conv2d(shifted, w.to(dtype), None, layer.stride, 0, layer.dilation,
                             layer.groups)
