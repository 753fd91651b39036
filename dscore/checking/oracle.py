"""Exact results in float64, and how far off each output may be (docs/bounds.md).

Arrays are NumPy's by default; *xp* is the library of the arrays, NumPy or PyTorch, and everything
is computed where they lie.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dscore import ops
from dscore.checking.rounding import (
    LEAST_SPLIT,
    LEAST_TILE,
    ROUNDED_SHARE,
    STEPS16,
    SUM,
    TF32_SHARE,
    UNIT_ROUNDOFF,
    Rounding,
    gamma,
    half_least,
    overflow,
)
from dscore.core.numerics import ACCUMULATOR, UNDERFLOW
from dscore.core.problem import ConvProblem
from dscore.core.spec import Activation
from dscore.core.winograd import tile_of
from dscore.ops import conv
from dscore.ops.tiles import matrices, of_tiles, tile_padding, unpacked

# Below it the small part of an operand may be below the normal range.
_TINY = 2.0**-100
# Roundings of the activation itself, relative to its result, in units of u, doubled: of silu and
# sigmoid by a GPU's fast instructions (docs/bounds.md); three for hardswish, two for hardsigmoid.
_OWN_ROUNDINGS: dict[Activation | None, int] = {
    None: 0, "relu": 0, "relu6": 0, "silu": 20, "hardswish": 8, "sigmoid": 20, "hardsigmoid": 4}
# And for each 1 that the argument is below 0, by which the exponential is multiplied; what is below
# the normal range is flushed before it is multiplied by an argument, which is then below 90.
_BY_ARGUMENT: dict[Activation | None, float] = {"silu": 2.5, "sigmoid": 2.5}
_LEAST_ARGUMENT = -128.0  # beyond it the result is flushed
_FLUSHED: dict[Activation | None, int] = {"silu": 128}


@dataclass(frozen=True)
class Expected:
    """Exact result rounded to float64, and how far off each output may be by an arithmetic.

    `of_sum` is the bound of a sum in float32, γ_k's; for that arithmetic it is the bound itself.
    """

    y: Any
    bound: Any
    arithmetic: str = "sum"
    of_sum: Any = None
    infinite: Any = None  # where an infinity of y's sign is right; None: nowhere

    def of_images(self, part: slice) -> Expected:
        """That of some images alone."""
        of_sum, infinite = (None if one is None else one[part]
                            for one in (self.of_sum, self.infinite))
        return replace(self, y=self.y[part], bound=self.bound[part], of_sum=of_sum,
                       infinite=infinite)


class Oracle:
    """Exact result of a problem's operation, from which the bound of any arithmetic is made.

    *inputs* are those of the operation (x, w, bias or None, …), in the problem's layout; x may hold
    fewer images. Inside, all is NCHW.
    """

    def __init__(self, problem: ConvProblem, *inputs: Any, xp: Any = np) -> None:
        *operands, self._output = ops.operands_of(problem)
        self._inputs = [None if array is None else ops.channels_first(xp, operand, array)
                        for operand, array in zip(operands, inputs, strict=False)]
        self._problem, self._xp = problem.laid_out("nchw"), xp
        self._operation = ops.operation(problem.operation)
        self._exact = self._operation.exact(xp, self._problem, *self._inputs)
        self._activation = self._operation.activation(problem)
        self._size = sum(self._exact.addends, start=self._exact.magnitude)

    def expected(self, rounding: Rounding = SUM) -> Expected:
        """Exact result in float64, and the bound of each output by *rounding*.

        Of a result that is exact, the bound is 0. Elements finer than the accumulator widen it by
        their rounding to that, coarser ones by the rounding of the result to them.
        """
        if self._exact.magnitude is None:
            return self._equal()
        of_sum, arithmetic = self._bound(self._error_of_sum()), rounding.arithmetic
        if arithmetic == "sum":
            return self._of_elements(of_sum)
        if arithmetic in ("tf32", "steps16"):
            error = self._error_of_others(arithmetic)
        else:
            error = self._error(rounding)
        return self._of_elements(self._bound(error), arithmetic, of_sum)

    def _equal(self) -> Expected:
        """What is expected of a result that is exact: itself, infinities of floats included."""
        y = ops.as_laid_out(self._xp, self._output, self._exact.y)
        return Expected(y, self._xp.zeros_like(y), "exact", infinite=self._xp.isinf(y))

    def _of_elements(self, bound: Any, arithmetic: str = "sum", of_sum: Any = None) -> Expected:
        """What is expected of a result in the output's type, from the bounds of one in float32."""
        element, size, infinite = self._output.element, self._xp.abs(self._y), None
        if element.bytes < ACCUMULATOR.bytes:
            infinite = size + bound >= overflow(element)
            bound, of_sum = (None if one is None else one + self._xp.maximum(
                element.unit_roundoff * (size + one), 0 * size + half_least(element))
                for one in (bound, of_sum))
        y, bound, of_sum, infinite = (
            None if one is None else ops.as_laid_out(self._xp, self._output, one)
            for one in (self._y, bound, of_sum, infinite))
        return Expected(y, bound, arithmetic, of_sum, infinite)

    def _error_of_sum(self) -> Any:
        k, addends = self._exact.products, len(self._exact.addends)
        error = gamma(k + addends) * self._size + (k + addends) * UNDERFLOW
        return error + self._rounded(ROUNDED_SHARE) if _finer(self._problem) else error

    def _error_of_others(self, arithmetic: str) -> Any:
        if arithmetic == "tf32":
            return self._error_of_sum() + self._rounded(TF32_SHARE)
        return self._error(Rounding("matrix16")) + (
            STEPS16 * self._problem.spec.element.unit_roundoff * self._size)

    def _rounded(self, share: float) -> Any:
        """What the operands' rounding to another type adds."""
        return share * (1 + gamma(self._exact.products)) * self._exact.magnitude

    def _error(self, rounding: Rounding) -> Any:
        """Error of what is neither a plain sum nor of TF32 alone, before the activation."""
        k, addends = self._exact.products, len(self._exact.addends)
        if rounding.tile:
            k = self._problem.spec.group_in
            magnitude = tile_magnitude(self._xp, self._problem, rounding.tile, *self._inputs[:2])
        elif rounding.splits:
            magnitude = self._magnitude_of_parts()
        else:
            magnitude = self._exact.magnitude
        size = sum(self._exact.addends, start=magnitude)
        packed = tile_of(self._problem.spec.filter) > 0
        error = rounding.relative(k, addends, packed) * size + rounding.underflow(k, addends)
        scaled = rounding.arithmetic == "matrix16" and self._problem.spec.scaled
        return error + self._error_of_scale() if scaled else error

    def _error_of_scale(self) -> Any:
        """What the rounding of x * scale to the elements' type adds, which matrix units take."""
        element = self._problem.spec.element
        ones = [one if one is None or at == 1 else self._xp.ones_like(one)
                for at, one in enumerate(self._inputs)]
        filters = self._operation.exact(self._xp, self._problem, *ones).magnitude
        return self._rounded(element.unit_roundoff) + half_least(element) * filters

    def _magnitude_of_parts(self) -> Any:
        """The magnitude, of operands that are so small that a part may be flushed a little more."""
        given = [conv.float64(self._xp, one) for one in self._inputs if one is not None]
        if not any(bool(((one != 0) & (abs(one) < _TINY)).any()) for one in given):
            return self._exact.magnitude
        more = (None if one is None else self._xp.abs(conv.float64(self._xp, one)) + LEAST_SPLIT
                for one in self._inputs)
        return self._operation.exact(self._xp, self._problem, *more).magnitude

    @cached_property
    def _before(self) -> Any:
        """The exact result, activated."""
        return conv.activated(self._xp, self._exact.y, self._activation)

    @property
    def _y(self) -> Any:
        return self._before if self._exact.after is None else self._before + self._exact.after

    def _bound(self, error: Any) -> Any:
        """The bound of the result, from that of what comes before the activation."""
        abs_of = self._xp.abs
        bound = conv.LIPSCHITZ[self._activation] * error + self._error_of_activation()
        if self._exact.after is None:
            return bound
        # One rounding of what is at most so far off.
        return bound + UNIT_ROUNDOFF * (abs_of(self._y) + bound)


    def _error_of_activation(self) -> Any:
        """What the activation itself errs by, of an exact argument."""
        one, size = self._activation, self._xp.abs(self._before)
        error = _OWN_ROUNDINGS[one] * UNIT_ROUNDOFF * size
        if one in _BY_ARGUMENT:
            error = error - _BY_ARGUMENT[one] * UNIT_ROUNDOFF * size * self._xp.clip(
                self._exact.y, _LEAST_ARGUMENT, 0.0)
        return error + _FLUSHED.get(one, _OWN_ROUNDINGS[one]) * UNDERFLOW


def tile_magnitude(xp: Any, problem: ConvProblem, m: int, x: Any, w: Any) -> Any:
    """``|Aᵀ| [Σ (|G| |w| |G|ᵀ) ⊙ (|Bᵀ| |x| |B|)] |A|`` over the channels, of each output.

    Of a filter that was transformed beforehand, its absolute values stand for |G| |w| |G|ᵀ.
    """
    x, w, spec = xp.abs(conv.float64(xp, x)), xp.abs(conv.float64(xp, w)), problem.spec
    _, g, _ = matrices(xp, m, x, absolute=True)
    filters = unpacked(xp, spec, w) if tile_of(spec.filter) else g @ w @ g.T
    padded = conv.pad(xp, x, tile_padding(problem, m))
    return of_tiles(xp, problem, m, padded, filters, absolute=True, least=LEAST_TILE)


def _finer(problem: ConvProblem) -> bool:
    """Whether some operand has digits that the accumulator has not."""
    return any(one.element.bytes > ACCUMULATOR.bytes for one in ops.operands_of(problem))
