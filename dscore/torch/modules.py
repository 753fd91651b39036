"""Modules: torch.nn.Conv2d by dscore, and the layers of depthwise-separable networks."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from dscore.calling.call_cache import CALLS
from dscore.core.errors import require_one_of
from dscore.core.spec import ACTIVATIONS, Activation
from dscore.torch.functional import conv2d
from dscore.torch.launches import Launch


class Conv2d(nn.Conv2d):
    """``torch.nn.Conv2d``, computed by `dscore.torch.conv2d`.

    Its arguments, attributes and state_dict are those of ``torch.nn.Conv2d``, and beside these

    - *activation*: "relu", "relu6", "silu", "hardswish", "sigmoid", "hardsigmoid", or None;
    - *backend*, *arithmetic*: those of `dscore.torch.conv2d`.

    >>> import torch
    >>> Conv2d(8, 16, 3, stride=2, activation="relu6")
    Conv2d(8, 16, kernel_size=(3, 3), stride=(2, 2), activation=relu6)
    >>> Conv2d(8, 16, 3)(torch.zeros(8, 5, 5)).shape
    torch.Size([16, 3, 3])
    """

    activation: Activation | None = None
    backend: str = "auto"
    arithmetic: str | None = None

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
                 padding: Any = 0, dilation: Any = 1, groups: int = 1, bias: bool = True,
                 padding_mode: Any = "zeros", device: Any = None, dtype: Any = None, *,
                 activation: Activation | None = None, backend: str = "auto",
                 arithmetic: str | None = None) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups,
                         bias, padding_mode, device, dtype)
        self.activation = require_one_of(activation, "activation", (None, *ACTIVATIONS))
        self.backend, self.arithmetic = backend, arithmetic

    def forward(self, input: Tensor, residual: Tensor | None = None, *,
                residual_after: bool = False, scale: Tensor | None = None) -> Tensor:
        """The layer's result; *residual* and *scale* are those of `dscore.torch.conv2d`."""
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = functional.pad(input, self._reversed_padding_repeated_twice,
                                   mode=self.padding_mode)
            padding = 0
        parameters = self._parameters  # looked up as an attribute, each takes most of 1 us
        weight: Any = parameters.get("weight")
        if weight is None or "bias" not in parameters:  # a parametrization computes them
            weight, bias = self.weight, self.bias
        else:
            bias = parameters["bias"]
        return conv2d(input, weight, bias, self.stride, padding, self.dilation, self.groups,
                      activation=self.activation, residual=residual, residual_after=residual_after,
                      scale=scale, backend=self.backend, arithmetic=self.arithmetic)

    def launch_of(self, input: Tensor, residual: Tensor | None = None) -> Launch | None:
        """The launch that it has just made outside of gradients and autocast; None where it did
        anything else."""
        if residual is not None or self.padding_mode != "zeros":
            return None
        call = CALLS.prepared((input, self.weight, self.bias), (
            self.stride, self.padding, self.dilation, self.groups, self.activation, self.backend,
            self.arithmetic))
        return None if call is None else Launch(call, (0, self.weight, self.bias), call.new)

    def extra_repr(self) -> str:
        text = str(super().extra_repr())  # type: ignore[no-untyped-call]
        for name in ("activation", "backend", "arithmetic"):
            value = getattr(self, name)
            text += f", {name}={value}" if value != getattr(Conv2d, name) else ""
        return text


class DepthwiseConv2d(Conv2d):
    """`Conv2d` that convolves each channel alone, into *multiplier* output channels each.

    >>> DepthwiseConv2d(32, 3, bias=False)
    DepthwiseConv2d(32, 32, kernel_size=(3, 3), stride=(1, 1), groups=32, bias=False)
    """

    def __init__(self, in_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 dilation: Any = 1, bias: bool = True, padding_mode: Any = "zeros",
                 device: Any = None, dtype: Any = None, *, multiplier: int = 1,
                 **options: Any) -> None:
        super().__init__(in_channels, in_channels * multiplier, kernel_size, stride, padding,
                         dilation, in_channels, bias, padding_mode, device, dtype, **options)


class PointwiseConv2d(Conv2d):
    """`Conv2d` of kernel 1x1 over all channels.

    >>> PointwiseConv2d(32, 64)
    PointwiseConv2d(32, 64, kernel_size=(1, 1), stride=(1, 1))
    """

    def __init__(self, in_channels: int, out_channels: int, stride: Any = 1, bias: bool = True,
                 device: Any = None, dtype: Any = None, **options: Any) -> None:
        super().__init__(in_channels, out_channels, 1, stride, bias=bias, device=device,
                         dtype=dtype, **options)


class DepthwiseSeparableConv2d(nn.Module):
    """Depthwise layer, then a pointwise one: `depthwise` and `pointwise` are its modules.

    *inner_activation* follows the depthwise layer, *activation* the pointwise one. Stride, padding
    and dilation are the depthwise layer's.

    >>> import torch
    >>> block = DepthwiseSeparableConv2d(32, 64, 3, padding=1, activation="relu")
    >>> block(torch.zeros(2, 32, 7, 7)).shape, [*block.state_dict()][::2]
    (torch.Size([2, 64, 7, 7]), ['depthwise.weight', 'pointwise.weight'])
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
                 padding: Any = 0, dilation: Any = 1, bias: bool = True,
                 padding_mode: Any = "zeros", device: Any = None, dtype: Any = None, *,
                 multiplier: int = 1, inner_activation: Activation | None = None,
                 activation: Activation | None = None, **options: Any) -> None:
        super().__init__()
        self.depthwise = DepthwiseConv2d(
            in_channels, kernel_size, stride, padding, dilation, bias, padding_mode, device, dtype,
            multiplier=multiplier, activation=inner_activation, **options)
        self.pointwise = PointwiseConv2d(
            in_channels * multiplier, out_channels, 1, bias, device, dtype, activation=activation,
            **options)

    def forward(self, input: Tensor, residual: Tensor | None = None, *,
                residual_after: bool = False) -> Tensor:
        """The pointwise layer's result, to which a *residual* is added there."""
        return self.pointwise(  # type: ignore[no-any-return]
            self.depthwise(input), residual, residual_after=residual_after)
