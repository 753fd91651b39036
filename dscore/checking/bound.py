"""Error bounds: whether a result is right, beside the direct definition in float64.

For every order of summation a float32 result y of k products keeps
``|y − ref| ≤ γ_k · conv(|x|, |w|)`` with ``γ_k = k·u / (1 − k·u)`` and ``u = 2⁻²⁴`` (Higham,
Accuracy and Stability of Numerical Algorithms, §3.1). Products of three TF32 ones and Winograd's
algorithm have bounds of their own (docs/bounds.md). So no tolerance is tuned here.

Arrays are NumPy's by default; where a function takes *xp*, it is the library of the arrays, NumPy
or PyTorch, and everything is computed where they lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dscore import ops
from dscore.checking.rounding import (
    LEAST_SPLIT,
    LEAST_TILE,
    ROUNDED_SHARE,
    TF32_SHARE,
    UNIT_ROUNDOFF,
    Rounding,
    gamma,
)
from dscore.core.errors import SpecError
from dscore.core.numerics import ACCUMULATOR, UNDERFLOW
from dscore.core.problem import ConvProblem
from dscore.core.spec import Activation
from dscore.core.winograd import tile_of
from dscore.ops import conv
from dscore.ops.tiles import matrices, of_tiles, tile_padding, unpacked

SUM = Rounding()
# Below it the small part of an operand may be below the normal range.
_TINY = 2.0**-100
# Elements of float64 that one step of `judge` may take; an image at least.
_STEP_ELEMENTS = 1 << 27
# max |f'|: an error before the activation grows by no more than this.
_LIPSCHITZ: dict[Activation | None, float] = {
    None: 1.0, "relu": 1.0, "relu6": 1.0, "silu": 1.1, "hardswish": 1.5}
# Roundings of the activation itself, relative to its result, in units of u: an exponential, a sum
# and a quotient for silu (whose argument is exact here), three for hardswish, each doubled.
_OWN_ROUNDINGS: dict[Activation | None, int] = {
    None: 0, "relu": 0, "relu6": 0, "silu": 16, "hardswish": 8}


@dataclass(frozen=True)
class Expected:
    """Exact result rounded to float64, and how far off each output may be by an arithmetic.

    `of_sum` is the bound of a sum in float32, γ_k's; for that arithmetic it is the bound itself.
    """

    y: Any
    bound: Any
    arithmetic: str = "sum"
    of_sum: Any = None

    def of_images(self, part: slice) -> Expected:
        """That of some images alone."""
        return replace(self, y=self.y[part], bound=self.bound[part],
                       of_sum=None if self.of_sum is None else self.of_sum[part])


class Oracle:
    """Exact result of a problem's operation, from which the bound of any arithmetic is made.

    *inputs* are those of the operation (x, w, bias or None, …), in NCHW; x may hold fewer images.
    """

    def __init__(self, problem: ConvProblem, *inputs: Any, xp: Any = np) -> None:
        self._problem, self._inputs, self._xp = problem, inputs, xp
        self._operation = ops.operation(problem.operation)
        self._exact = self._operation.exact(xp, problem, *inputs)
        self._activation = self._operation.activation(problem)
        self._size = sum(self._exact.addends, start=self._exact.magnitude)

    def expected(self, rounding: Rounding = SUM) -> Expected:
        """Exact result in float64, and the bound of each output by *rounding*.

        Elements finer than the accumulator widen it by their rounding to that.
        """
        of_sum, arithmetic = self._bound(self._error_of_sum()), rounding.arithmetic
        if arithmetic == "sum":
            return Expected(self._y, of_sum)
        error = (self._error_of_tf32() if arithmetic == "tf32" else self._error(rounding))
        return Expected(self._y, self._bound(error), arithmetic, of_sum)

    def _error_of_sum(self) -> Any:
        k, addends = self._exact.products, len(self._exact.addends)
        error = gamma(k + addends) * self._size + (k + addends) * UNDERFLOW
        return error + self._rounded(ROUNDED_SHARE) if _finer(self._problem) else error

    def _error_of_tf32(self) -> Any:
        return self._error_of_sum() + self._rounded(TF32_SHARE)

    def _rounded(self, share: float) -> Any:
        """What the operands' rounding to another type adds."""
        return share * (1 + gamma(self._exact.products)) * self._exact.magnitude

    def _error(self, rounding: Rounding) -> Any:
        """Error of what is neither a plain sum nor of TF32 alone, before the activation."""
        k, addends = self._exact.products, len(self._exact.addends)
        if rounding.tile:
            k = self._problem.spec.group_in
            magnitude = tile_magnitude(self._xp, self._problem, rounding.tile, *self._inputs[:2])
        else:
            magnitude = self._magnitude_of_parts()
        size = sum(self._exact.addends, start=magnitude)
        packed = tile_of(self._problem.spec.filter) > 0
        return rounding.relative(k, addends, packed) * size + rounding.underflow(k, addends)

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
        bound = _LIPSCHITZ[self._activation] * error + _OWN_ROUNDINGS[self._activation] * (
            UNIT_ROUNDOFF * abs_of(self._before) + UNDERFLOW)
        if self._exact.after is None:
            return bound
        # One rounding of what is at most so far off.
        return bound + UNIT_ROUNDOFF * (abs_of(self._y) + bound)


def tile_magnitude(xp: Any, problem: ConvProblem, m: int, x: Any, w: Any) -> Any:
    """``|Aᵀ| [Σ (|G| |w| |G|ᵀ) ⊙ (|Bᵀ| |x| |B|)] |A|`` over the channels, of each output.

    Of a filter that was transformed beforehand, its absolute values stand for |G| |w| |G|ᵀ.
    """
    x, w, spec = xp.abs(conv.float64(xp, x)), xp.abs(conv.float64(xp, w)), problem.spec
    _, g, _ = matrices(xp, m, x, absolute=True)
    filters = unpacked(xp, spec, w) if tile_of(spec.filter) else g @ w @ g.T
    padded = conv.pad(xp, x, tile_padding(problem, m))
    return of_tiles(xp, problem, m, padded, filters, absolute=True, least=LEAST_TILE)


def expected(problem: ConvProblem, *inputs: Any, xp: Any = np, rounding: Rounding = SUM
             ) -> Expected:
    """`Oracle.expected` of a problem's operation on *inputs*, arrays of the library *xp*."""
    return Oracle(problem, *inputs, xp=xp).expected(rounding)


def _finer(problem: ConvProblem) -> bool:
    """Whether some operand has digits that the accumulator has not."""
    return any(one.element.bytes > ACCUMULATOR.bytes for one in ops.operands_of(problem))


@dataclass(frozen=True)
class Accuracy:
    """Worst error of a result, as a share of its bound, and the output that has it."""

    ok: bool
    share: float  # inf where a value is not finite though the exact one is; of the bound
    where: tuple[int, ...]  # index of the worst output
    got: float
    wanted: float
    bound: float
    arithmetic: str = "sum"  # whose bound it is
    of_sum: float | None = None  # the worst error over γ_k's bound, for another arithmetic

    @property
    def share_of_sum(self) -> float:
        """The worst error over the bound of a sum, γ_k's."""
        return self.share if self.of_sum is None else self.of_sum

    def __str__(self) -> str:
        whose = "" if self.of_sum is None else f" of {self.arithmetic}"
        beside = "" if self.of_sum is None else f", {self.of_sum:.1%} of γ_k's"
        if self.ok:
            return f"right: worst error is {self.share:.1%} of the bound{whose}{beside}"
        return (f"WRONG at output {self.where}: got {self.got!r}, expected {self.wanted!r} "
                f"± {self.bound:.3g} (the error is {self.share:.3g} times the bound{whose})")


def compare(y: Any, wanted: Expected, xp: Any = np) -> Accuracy:
    """Accuracy of *y* beside *wanted*; a value that is not finite never passes.

    Raises SpecError where the shapes differ.
    """
    shape = tuple(wanted.y.shape)
    if tuple(y.shape) != shape:
        raise SpecError(f"a result of shape {tuple(y.shape)} is held to one of {shape}")
    if 0 in shape:
        return Accuracy(True, 0.0, (), 0.0, 0.0, 0.0)
    y = conv.float64(xp, y)
    share = _shares(xp, y, wanted.y, wanted.bound)
    where = tuple(int(at) for at in np.unravel_index(int(share.argmax()), shape))
    worst = float(share[where])
    of_sum = (None if wanted.of_sum is None
              else float(_shares(xp, y, wanted.y, wanted.of_sum).max()))
    return Accuracy(worst <= 1, worst, where, float(y[where]), float(wanted.y[where]),
                    float(wanted.bound[where]), wanted.arithmetic, of_sum)


def worst_of(accuracies: Iterable[Accuracy]) -> Accuracy:
    """The worst of the parts of a result."""
    parts = list(accuracies)
    worst = max(parts, key=lambda accuracy: accuracy.share)
    if worst.of_sum is None:
        return worst
    return replace(worst, of_sum=max(part.of_sum or 0.0 for part in parts))


def _shares(xp: Any, y: Any, exact: Any, bound: Any) -> Any:
    """The error of each output over its bound; infinite where *y* is not finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        error = xp.abs(y - exact)
        share = xp.where(error == 0, 0.0, error / bound)
    return xp.where(xp.isfinite(y) & xp.isfinite(share), share, xp.inf)


def judge(xp: Any, problem: ConvProblem, inputs: Sequence[Any], y: Any,
          rounding: Rounding = SUM) -> Accuracy:
    """Accuracy of *y*, the result of *inputs*; some images at a time where the result is images.

    As `compare` of `expected`, in less memory. Raises SpecError where the shapes differ.
    """
    *operands, result = ops.operands_of(problem)
    if tuple(y.shape) != result.shape:
        raise SpecError(f"a result of shape {tuple(y.shape)} is held to one of {result.shape}")

    def judged(images: slice) -> Accuracy:
        parts = [array[images] if one.layout and array is not None else array
                 for one, array in zip(operands, inputs, strict=False)]
        wanted = expected(problem, *parts, xp=xp, rounding=rounding)
        return _judged_from(images.start, compare(y[images], wanted, xp))

    return worst_of(map(judged, _steps(problem, result)))


def _steps(problem: ConvProblem, result: ops.Operand) -> list[slice]:
    """The images of each step; all in one where the result is none."""
    if not result.layout:
        return [slice(0, None)]
    image = max(one.elements for one in ops.operands_of(problem) if one.layout) // problem.batch
    images = max(1, _STEP_ELEMENTS // image)
    return [slice(at, at + images) for at in range(0, problem.batch, images)]


def _judged_from(first: int, accuracy: Accuracy) -> Accuracy:
    """*accuracy* of images that begin with number *first* of the whole batch."""
    return replace(accuracy, where=(first + accuracy.where[0], *accuracy.where[1:]))


def sample(problem: ConvProblem, seed: int) -> list[Any]:
    """Random inputs of the problem's operation, None for those that the layer does not have.

    Normal, never zero, the same for the same seed.
    """
    rng = np.random.default_rng(seed)

    def drawn(one: ops.Operand) -> Any:
        exact = np.float64 if one.element.bytes > ACCUMULATOR.bytes else np.float32
        return rng.standard_normal(one.shape, dtype=exact).astype(one.element.name, copy=False)

    return [drawn(one) if one.present else None
            for one in ops.operands_of(problem) if one.role == "input"]
