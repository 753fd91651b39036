"""Quantised convolution: operands of a layer of int8, and its result, which is exact.

docs/int8.md states the arithmetic. *xp* is the library: NumPy, or PyTorch, whose tensors stay on
their device. Here sums are of float64, in which integers below 2**53 are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dscore.core.errors import SpecError
from dscore.core.numerics import ELEMENTS
from dscore.core.problem import ConvProblem
from dscore.core.spec import CLAMPS, Activation, ConvSpec
from dscore.ops import Exact, Operand

# What a vector of points holds: zero points of x and y, and the least and the greatest y; those of
# a result that is looked up in a table are of its entries' numbers.
POINTS = ("x_zero_point", "y_zero_point", "low", "high")
# The name of the ratio of floats that a layer quantises: the reciprocal of x's scale.
FLOATS_OF_X = "floats"
# Entries of a table.
TABLE = 1024
_WRAP, _HALF, _BYTE = 2.0**32, 2.0**31, 128
# The greatest float16, within which a scale's factor is held.
_HELD = 65504.0
# Of a residual's ratio: its product with a difference of two bytes is a float32 unrounded.
_SHORT_BITS = 16


def operands(problem: ConvProblem) -> tuple[Operand, ...]:
    """x, of int8 or of floats that become it, w of int8, a bias of int32, a float32 multiplier for
    each output channel, the points, what else the layer has of ratios, a residual, a float16 scale
    of x and a table, and the result."""
    spec, integer, floats = problem.spec, ELEMENTS["int32"], ELEMENTS["float32"]
    if spec.activation not in (None, *CLAMPS):
        raise SpecError(f"a convolution of int8 with a float result takes {' and '.join(CLAMPS)}, "
                        f"and this one has the activation {spec.activation}; leave that out, or "
                        "take float32 or float16")
    beside = beside_of(spec)
    further = (Operand("ratios", (len(beside),), "input", floats, present=bool(beside)),
               Operand("residual", problem.y_shape, "input", spec.element, spec.layout,
                       present=spec.residual is not None),
               Operand("scale", (problem.batch, spec.in_channels), "input", ELEMENTS["float16"],
                       "nc", present=spec.scaled),
               Operand("table", (TABLE,), "input", spec.element, present=spec.table))
    return (Operand("x", problem.x_shape, "input", spec.in_element, spec.layout),
            Operand("w", spec.w_shape, "input", spec.element),
            Operand("bias", (spec.out_channels,), "input", integer, present=spec.bias),
            Operand("multiplier", (spec.out_channels,), "input", floats),
            Operand("points", (len(points_of(spec)),), "input", integer),
            *(operand for operand in further if operand.present),
            Operand("out", problem.y_shape, "output", spec.out_element, spec.layout))


def beside_of(spec: ConvSpec) -> tuple[str, ...]:
    """What has a ratio: the residual, what becomes x by a scale, and floats that x is made of."""
    return (("residual",) * (spec.residual is not None) + ("input",) * spec.scaled
            + (FLOATS_OF_X,) * (spec.in_dtype is not None))


def points_of(spec: ConvSpec) -> tuple[str, ...]:
    """What the vector of points of a layer holds."""
    beside = [name for name in beside_of(spec) if name != FLOATS_OF_X]  # whose is x's
    return (POINTS + tuple(f"{name}_zero_point" for name in beside)
            + ("scaled_zero_point",) * spec.scaled)


def short_ratio(value: float) -> float:
    """A residual's ratio: *value* rounded to 16 bits.

    >>> short_ratio(0.1) == 0xCCCD / 2**19
    True
    """
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(mantissa, _SHORT_BITS)), exponent - _SHORT_BITS)


def exact(xp: Any, spec: ConvSpec, summed: Callable[[Any, Any], Any], given: Mapping[str, Any]
          ) -> Exact:
    """The result of operands by their names, in float64; *summed* is the convolution of x and w.

    A padded element is x's zero point, which contributes nothing.
    """
    points = dict(zip(points_of(spec), map(float, given["points"]), strict=True))
    ratios = dict(zip(beside_of(spec), _float32(xp, given.get("ratios", ())), strict=True))
    x, x_zero = given["x"], points["x_zero_point"]
    if spec.in_dtype:
        x = integers_of(xp, x, ratios[FLOATS_OF_X], x_zero)
    if spec.scaled:
        factors = xp.clip(_float32(xp, given["scale"]) * ratios["input"], -_HELD, _HELD)
        factors = _float64(xp, xp.asarray(factors, dtype=xp.float16))[:, :, None, None]
        scaled = xp.round((x - points["input_zero_point"]) * factors)
        x = xp.clip(scaled + points["scaled_zero_point"], -_BYTE, _BYTE - 1)
    sums = summed(x - x_zero, given["w"])
    if "bias" in given:
        sums = sums + given["bias"][None, :, None, None]
    sums = sums - _WRAP * xp.floor((sums + _HALF) / _WRAP)
    # One rounding each: of the sum to float32, of the product, and of the product to an integer.
    product = _float32(xp, sums) * _float32(xp, given["multiplier"])[None, :, None, None]
    if spec.residual:  # whose ratio is such that its product is not rounded
        distance = _float32(xp, given["residual"] - points["residual_zero_point"])
        product = product + distance * ratios["residual"]
    if spec.out_element.exact:
        y = xp.clip(xp.round(product) + points["y_zero_point"], points["low"], points["high"])
        if spec.table:
            y = given["table"][xp.asarray(y, dtype=xp.int64)]
    else:
        y = _clamped(xp, product, spec.activation)
        with np.errstate(over="ignore"):  # to an infinity
            y = xp.asarray(y, dtype=getattr(xp, spec.out_element.name))
    return Exact(_float64(xp, y), None, spec.products)


def integers_of(xp: Any, x: Any, multiplier: Any, zero_point: Any) -> Any:
    """Integers of int8 for floats, in float64: ``clamp(rint(x * multiplier) + zero_point)``."""
    with np.errstate(over="ignore"):
        products = _float32(xp, x) * _float32(xp, multiplier)
    return xp.clip(xp.round(_float64(xp, products)) + zero_point, -_BYTE, _BYTE - 1.0) + 0.0


def _float64(xp: Any, values: Any) -> Any:
    return xp.asarray(values, dtype=xp.float64)


def _float32(xp: Any, values: Any) -> Any:
    return xp.asarray(values, dtype=xp.float32)


def _clamped(xp: Any, y: Any, activation: Activation | None) -> Any:
    """relu or relu6 of *y*, of which a zero keeps its sign."""
    if activation is not None:
        y = xp.where(y < 0, xp.zeros_like(y), y)
    return xp.clip(y, None, 6.0) if activation == "relu6" else y
