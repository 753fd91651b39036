"""Folded layer: a convolution with the batch norm, activation, residual and scale around it.

In eval mode a batch norm is a factor and an addend of each output channel, so that it goes into the
filter and the bias: with s = weight / sqrt(running_var + eps), filter·s and
(bias − running_mean)·s + bias of the norm. Both are computed in float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from dscore.calling.call_cache import CALLS, FastCall
from dscore.core.numerics import ArithmeticOption, Permission
from dscore.core.problem import ConvProblem
from dscore.core.spec import ACTIVATIONS, ConvSpec, Layout
from dscore.torch.functional import conv2d
from dscore.torch.launches import Bindable, Launch
from dscore.torch.layer import constants_of, result_shape

# Of a module of dscore's that PyTorch computes.
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    name: getattr(functional, name) for name in ACTIVATIONS}


@dataclass(eq=False)
class FoldedConv(Bindable):
    """Convolution *conv* of a folded graph, called *name*, with what was folded into it.

    *reason* is why PyTorch computes it; empty where dscore does. Only then are an activation, a
    residual and a scale folded, which need dscore's kernels; a batch norm is in any case.
    """

    name: str
    conv: nn.Conv2d
    backend: str = "auto"
    reason: str = ""
    norm: nn.Module | None = None
    activation: str | None = None
    residual: bool = False
    residual_after: bool = False
    scaled: bool = False
    arithmetic: Permission = "sum"
    weight: Any = None
    bias: Any = None
    __name__ = "folded_conv"  # by which torch.fx names the nodes that call it

    @property
    def folded(self) -> tuple[str, ...]:
        """What was folded into it, in words."""
        residual = f"residual {'after' if self.residual_after else 'before'}"
        parts = (("scale", self.scaled), ("batch norm", self.norm is not None),
                 (residual, self.residual and not self.residual_after),
                 (self.activation, self.activation is not None),
                 (residual, self.residual and self.residual_after))
        return tuple(str(name) for name, present in parts if present)

    def fold(self) -> bool:
        """Compute filter and bias anew from the modules; whether they are other tensors now.

        Folded ones are written in place, so that compiled programs and captured graphs read the
        new values. Without a batch norm they are the module's own; of a filter that does not lie
        as kernels take it, as in a channels_last model, a copy that does.
        """
        before = self.weight, self.bias
        if self.norm is None:
            self.weight, self.bias = self.conv.weight, self.conv.bias
            if not (self.reason or self.weight.is_contiguous()):
                kept = None if before[0] is self.weight else before[0]
                self.weight = _kept(kept, self.weight.detach().contiguous())
        else:
            self.weight, self.bias = map(_kept, before, folded_norm(self.conv, self.norm))
        return self.weight is not before[0] or self.bias is not before[1]

    def __call__(self, x: Tensor, residual: Tensor | None = None,
                 scale: Tensor | None = None) -> Tensor:
        """The layer's result, by the way that eager calls and compiled programs share."""
        if self.reason:
            y = self.conv._conv_forward(x, self.weight, self.bias)
            return _ACTIVATIONS[self.activation](y) if self.activation else y
        if (self.residual or self.scaled) and self._is_broadcast(x, residual, scale):
            return self._apart(x, residual, scale)
        return conv2d(x, self.weight, self.bias, *self._options[0], **self._options[1],
                      residual=residual, residual_after=self.residual_after, scale=scale)

    def _is_broadcast(self, x: Tensor, residual: Tensor | None, scale: Tensor | None) -> bool:
        """Whether operands have fewer images or pixels than they had on the example, beside x."""
        if scale is not None and scale.shape != (*x.shape[:-2], 1, 1):
            return True
        layer, _ = constants_of(x, self.weight, *self._options[0], self.backend, None, None, False)
        images = x.shape if x.dim() == len("nchw") else (1, *x.shape)
        y_shape = result_shape(tuple(images), tuple(self.weight.shape), layer)
        return residual is not None and tuple(residual.shape) != y_shape[-x.dim():]

    def _apart(self, x: Tensor, residual: Tensor | None, scale: Tensor | None) -> Tensor:
        """The result step by step, by functions that broadcast."""
        before = residual is not None and not self.residual_after
        late = self.activation if before else None
        options = self._options[1] | ({"activation": None} if before else {})
        y = conv2d(x if scale is None else x * scale, self.weight, self.bias, *self._options[0],
                   **options)
        y = y if residual is None else y + residual
        return y if late is None else _ACTIVATIONS[late](y)

    @property
    def _options(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Options of `conv2d`, by place and by name, that are the same at each call."""
        conv = self.conv
        return ((conv.stride, conv.padding, conv.dilation, conv.groups),
                dict(activation=self.activation, backend=self.backend, arithmetic=self._option))

    @property
    def _key(self) -> tuple[Any, ...]:
        """Options by which its call is remembered."""
        rest = (self._residual, self.scaled) if self.residual or self.scaled else ()
        return *self._options[0], self.activation, self.backend, self._option, *rest

    def launch_of(self, x: Tensor, *operands: Tensor | None) -> Launch | None:
        """The launch that it has just made; None also where its parameters are the module's own,
        whose memory may become another one."""
        if self.reason or self.norm is None:
            return None
        given = {at: one for at, one in enumerate(operands, 1) if one is not None}
        call = CALLS.prepared((x, self.weight, self.bias, *given.values()), self._key)
        return (None if call is None else
                Launch(call, (0, self.weight, self.bias, *given), call.new))

    def bound(self) -> Callable[..., Tensor]:
        """The layer as a function for eager calls without gradients, autocast and tracing.

        It calls the remembered call itself, which `conv2d` would look up each time.
        """
        if self.reason:
            return self
        weight, bias, slow = self.weight, self.bias, self.__call__
        key = (id(weight), bias is None, *self._key)
        remembered = CALLS.fast.get
        fast: FastCall = _no_call

        def plain(x: Tensor) -> Any:
            nonlocal fast
            y = fast(x, weight, bias, None)
            if y is None:  # the first calls, or another shape than the last one's
                y = slow(x)
                fast = remembered(key, _no_call)
            return y

        def full(x: Tensor, *operands: Tensor | None) -> Any:
            nonlocal fast
            y = fast(x, weight, bias, *[one for one in operands if one is not None], None)
            if y is None:
                y = slow(x, *operands)
                fast = remembered(key, _no_call)
            return y
        return full if self.residual or self.scaled else plain

    def problem(self, shape: tuple[int, ...], dtype: torch.dtype, layout: Layout) -> ConvProblem:
        """The problem on an input of a shape (N, C, H, W) or (C, H, W), whose memory is of a
        layout; SpecError where dscore has none."""
        *images, _, height, width = shape
        return ConvProblem(spec_of(self.conv, dtype, bias=self.bias is not None, layout=layout,
                                   activation=self.activation, scaled=self.scaled,
                                   residual=self._residual, arithmetic=self.arithmetic),
                           next(iter(images), 1), height, width)

    @property
    def _option(self) -> ArithmeticOption | None:
        return None if self.arithmetic == "sum" else self.arithmetic

    @property
    def _residual(self) -> str | None:
        if not self.residual:
            return None
        return "after" if self.residual_after else "before"


def _no_call(*operands: Any) -> Any:
    """The remembered call of what is not remembered."""


def spec_of(conv: nn.Conv2d, dtype: torch.dtype, **rest: Any) -> ConvSpec:
    """The layer of a module; *rest* are the fields of a `ConvSpec` beyond the filter's."""
    padding: Any = conv.padding if isinstance(conv.padding, str) else tuple(conv.padding)
    return ConvSpec.make(conv.in_channels, conv.out_channels, tuple(conv.kernel_size),
                         stride=tuple(conv.stride), padding=0 if padding == "valid" else padding,
                         dilation=tuple(conv.dilation), groups=conv.groups,
                         dtype=str(dtype).removeprefix("torch."), **rest)


@torch.no_grad()
def folded_norm(conv: nn.Conv2d, norm: Any) -> tuple[Tensor, Tensor]:
    """Filter and bias of a convolution with the batch norm after it, both in eval mode.

    >>> conv, norm = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2).eval()
    >>> x = torch.ones(1, 2, 3, 3)
    >>> weight, bias = folded_norm(conv, norm)
    >>> torch.allclose(nn.functional.conv2d(x, weight, bias), norm(conv(x)), atol=1e-6)
    True
    """
    factor = torch.rsqrt(norm.running_var.double() + norm.eps)
    if norm.weight is not None:
        factor = factor * norm.weight.double()
    mean = norm.running_mean.double()
    bias = (-mean if conv.bias is None else conv.bias.double() - mean) * factor
    if norm.bias is not None:
        bias = bias + norm.bias.double()
    weight = conv.weight.double() * factor[:, None, None, None]
    return weight.to(conv.weight.dtype).contiguous(), bias.to(conv.weight.dtype)


def _kept(before: Tensor | None, values: Tensor) -> Tensor:
    """*values*, in the tensor that held the ones before where it can hold them."""
    if (before is None or before.shape != values.shape or before.dtype != values.dtype
            or before.device != values.device):
        return values
    return before.copy_(values)
