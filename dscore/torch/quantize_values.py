"""Scales of a quantised model: of a tensor from its range, of a filter from its channels.

Images have a scale and a zero point each, filters a scale for each output channel and none. The
scheme is that of Jacob et al. (2018), "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference", equation 1; a scale by channel is Krishnamoorthi's (2018,
arXiv:1806.08342, section 3.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dscore.ops.quantised import TABLE

LEAST, MOST = -128, 127
_STEPS = MOST - LEAST
# Of the largest product of an input, less its zero point, and a weight.
_LARGEST_PRODUCT = _STEPS * MOST
_LARGEST_BIAS = 2**30
# Below it, a scale could make a multiplier that no normal float32 holds.
_LEAST_SCALE = 2.0**-40
# Where an activation's results differ: beyond it they are bounds, or nearly so.
_DIFFERING = {"silu": (-10.0, math.inf), "hardswish": (-3.0, math.inf), "sigmoid": (-8.0, 8.0),
              "hardsigmoid": (-3.0, 3.0)}


@dataclass(frozen=True)
class Range:
    """Range of a tensor's values: of a batch, or of all calibration batches.

    >>> Range(0.0, 5.1).joined(Range(-1.0, 2.0))
    Range(low=-1.0, high=5.1)
    """

    low: float
    high: float

    def joined(self, other: Range) -> Range:
        """The range of both."""
        return Range(min(self.low, other.low), max(self.high, other.high))

    @property
    def finite(self) -> bool:
        """Whether all values were."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def scale(self) -> float:
        """The width of one of 255 steps of the range together with zero, as a float32.

        >>> Range(0.0, 255.0).scale, Range(2.0, 127.5).scale, Range(0.0, 0.0).scale
        (1.0, 0.5, 1.0)
        """
        width = (max(self.high, 0.0) - min(self.low, 0.0)) / _STEPS
        return float(np.float32(max(width, _LEAST_SCALE))) if width else 1.0

    @property
    def zero_point(self) -> int:
        """The integer that stands for zero.

        >>> Range(0.0, 6.0).zero_point, Range(-1.0, 3.0).zero_point, Range(-6.0, 0.0).zero_point
        (-128, -64, 127)
        """
        return int(min(max(np.rint(LEAST - min(self.low, 0.0) / self.scale), LEAST), MOST))

    @property
    def greatest(self) -> float:
        """The greatest absolute number that an integer stands for.

        >>> Range(0.0, 255.0).greatest, Range(-64.0, 191.0).greatest
        (255.0, 191.0)
        """
        return self.scale * max(self.zero_point - LEAST, MOST - self.zero_point)

    def table(self, activation: str) -> tuple[float, int]:
        """The scale and the zero point of what an activation is taken of: of the range as far as
        its results differ.

        >>> Range(-40.0, 10.23).table("hardsigmoid")
        (0.005865102633833885, 512)
        """
        least, most = _DIFFERING.get(activation, (-math.inf, math.inf))
        low, high = max(min(self.low, 0.0), least), min(max(self.high, 0.0), most)
        width = (high - low) / (TABLE - 1)
        scale = float(np.float32(max(width, _LEAST_SCALE))) if width else 1.0
        return scale, int(min(max(np.rint(-low / scale), 0), TABLE - 1))


def range_of(values: Tensor, percentile: float | None = None) -> Range:
    """The range of a tensor; with a *percentile* of 99.9, say, without the 0.1 % at each end.

    NaN where a value is.

    >>> range_of(torch.arange(101.0)), range_of(torch.arange(101.0), 90)
    (Range(low=0.0, high=100.0), Range(low=10.0, high=90.0))
    """
    flat = values.detach().flatten().float()
    if not flat.numel():
        return Range(0.0, 0.0)
    if percentile is None:
        return Range(*(float(one) for one in torch.aminmax(flat)))
    if bool(torch.isnan(flat).any()):
        return Range(math.nan, math.nan)
    last = flat.numel() - 1
    aside = round(last * (1 - percentile / 100))
    return Range(float(flat.kthvalue(aside + 1).values), float(flat.kthvalue(last - aside + 1)
                                                               .values))


def quantised_filter(weight: Tensor, bias: Tensor | None, x_scale: float
                     ) -> tuple[Tensor, Tensor | None, tuple[float, ...]]:
    """A filter of int8, its bias of int32, and the scale of each output channel.

    The largest weight of a channel becomes 127. A channel whose bias is so large beside its weights
    that an int32 could not hold it (one that the training has emptied) has a wider scale.

    >>> weight = torch.tensor([[[[0.5, -1.27]]], [[[0.0, 0.0]]]])
    >>> w, bias, scales = quantised_filter(weight, torch.tensor([0.3, 0.0]), 0.1)
    >>> w.flatten().tolist(), bias.tolist(), [round(scale, 5) for scale in scales]
    ([50, -127, 0, 0], [300, 0], [0.01, 1.0])
    """
    exact = weight.detach().double().flatten(1)
    scale = exact.abs().amax(1) / MOST
    if bias is not None:
        limit = min(_LARGEST_BIAS, 2**31 - 1 - exact.shape[1] * _LARGEST_PRODUCT)
        scale = torch.maximum(scale, bias.detach().double().abs() / (x_scale * max(limit, 1)))
    scale = torch.where(scale > 0, scale.clamp(min=_LEAST_SCALE), torch.ones_like(scale))
    q = (exact / scale[:, None]).round().clamp(-MOST, MOST).to(torch.int8).view(weight.shape)
    return q.contiguous(), quantised_bias(bias, x_scale, scale), tuple(scale.tolist())


def quantised_bias(bias: Tensor | None, x_scale: float, w_scale: Tensor) -> Tensor | None:
    """A bias of int32: ``rint(bias / (x_scale * w_scale))``, of each channel in float64."""
    if bias is None:
        return None
    return (bias.detach().double() / (x_scale * w_scale)).round().to(torch.int32)


def integers_of(x: Tensor, scale: float, zero_point: int) -> Tensor:
    """Integers of int8 for floats, by PyTorch: ``clamp(rint(x / scale) + zero_point)``.

    x is multiplied by the reciprocal of the scale in float32.

    >>> integers_of(torch.tensor([0.75, -100.0]), 0.5, 10)
    tensor([  12, -128], dtype=torch.int8)
    """
    steps = (x.float() * (1.0 / scale)).round_()
    if zero_point:
        steps.add_(zero_point)
    return steps.clamp_(LEAST, MOST).to(torch.int8)
