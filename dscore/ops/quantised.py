"""Quantised convolution: operands of a layer of int8, and its result, which is exact.

docs/int8.md states the arithmetic. *xp* is the library: NumPy, or PyTorch, whose tensors stay on
their device. Here sums are of float64, in which integers below 2**53 are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dscore.core.numerics import ELEMENTS
from dscore.core.problem import ConvProblem
from dscore.core.spec import Activation, ConvSpec
from dscore.ops import Exact, Operand

# What a vector of points holds: zero points of x and y, and the least and the greatest y.
POINTS = ("x_zero_point", "y_zero_point", "low", "high")
_WRAP, _HALF = 2.0**32, 2.0**31


def operands(problem: ConvProblem) -> tuple[Operand, ...]:
    """x and w of int8, a bias of int32, a float32 multiplier for each output channel, the `POINTS`,
    and the result."""
    spec, integer = problem.spec, ELEMENTS["int32"]
    return (Operand("x", problem.x_shape, "input", spec.element, spec.layout),
            Operand("w", spec.w_shape, "input", spec.element),
            Operand("bias", (spec.out_channels,), "input", integer, present=spec.bias),
            Operand("multiplier", (spec.out_channels,), "input", ELEMENTS["float32"]),
            Operand("points", (len(POINTS),), "input", integer),
            Operand("out", problem.y_shape, "output", spec.out_element, spec.layout))


def exact(xp: Any, spec: ConvSpec, summed: Callable[[Any, Any], Any], given: Mapping[str, Any]
          ) -> Exact:
    """The result of operands by their names, in float64; *summed* is the convolution of x and w.

    A padded element is x's zero point, which contributes nothing.
    """
    x_zero, *bounds = (float(point) for point in given["points"])
    sums = summed(given["x"] - x_zero, given["w"])
    if "bias" in given:
        sums = sums + given["bias"][None, :, None, None]
    sums = sums - _WRAP * xp.floor((sums + _HALF) / _WRAP)
    # One rounding each: of the sum to float32, of the product, and of the product to an integer.
    product = _float32(xp, sums) * _float32(xp, given["multiplier"])[None, :, None, None]
    if spec.out_element.exact:
        y_zero, low, high = bounds
        y = xp.clip(xp.round(product) + y_zero, low, high)
    else:
        y = _clamped(xp, product, spec.activation)
        with np.errstate(over="ignore"):  # to an infinity
            y = xp.asarray(y, dtype=getattr(xp, spec.out_element.name))
    return Exact(xp.asarray(y, dtype=xp.float64), None, spec.products)


def _float32(xp: Any, values: Any) -> Any:
    return xp.asarray(values, dtype=xp.float32)


def _clamped(xp: Any, y: Any, activation: Activation | None) -> Any:
    """relu or relu6 of *y*, of which a zero keeps its sign."""
    if activation is not None:
        y = xp.where(y < 0, xp.zeros_like(y), y)
    return xp.clip(y, None, 6.0) if activation == "relu6" else y
