"""Error bound γ_k: whether a result is right, beside the direct definition in float64.

For every order of summation a float32 result y of k products keeps
``|y − ref| ≤ γ_k · conv(|x|, |w|)`` with ``γ_k = k·u / (1 − k·u)`` and ``u = 2⁻²⁴`` (Higham,
Accuracy and Stability of Numerical Algorithms, §3.1). So no tolerance is tuned here.

Arrays are NumPy's by default; where a function takes *xp*, it is the library of the arrays, NumPy
or PyTorch, and everything is computed where they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dscore import ops
from dscore.core.errors import SpecError
from dscore.core.numerics import ACCUMULATOR, UNDERFLOW
from dscore.core.problem import ConvProblem
from dscore.core.spec import Activation
from dscore.ops import conv

UNIT_ROUNDOFF = ACCUMULATOR.unit_roundoff
# What a multiplication adds where its operands are rounded first: to TF32, of which it keeps 10
# bits, and to the accumulator's type.
TF32_SHARE = 2 * 2.0**-10 + 2.0**-20
ROUNDED_SHARE = 2 * UNIT_ROUNDOFF + UNIT_ROUNDOFF**2
# Elements of float64 that one step of `judge` may take; an image at least.
_STEP_ELEMENTS = 1 << 27
# max |f'|: an error before the activation grows by no more than this.
_LIPSCHITZ: dict[Activation | None, float] = {
    None: 1.0, "relu": 1.0, "relu6": 1.0, "silu": 1.1, "hardswish": 1.5}
# Roundings of the activation itself, relative to its result, in units of u: an exponential, a sum
# and a quotient for silu (whose argument is exact here), three for hardswish, each doubled.
_OWN_ROUNDINGS: dict[Activation | None, int] = {
    None: 0, "relu": 0, "relu6": 0, "silu": 16, "hardswish": 8}


def gamma(products: int) -> float:
    """γ_k of the error bound for k = *products*; SpecError where k·u reaches 1.

    >>> gamma(9) / 2**-24
    9.000004827978817
    """
    k_u = products * UNIT_ROUNDOFF
    if k_u >= 1:
        raise SpecError(f"no float32 error bound exists for {products} products (limit 2**24)")
    return k_u / (1 - k_u)


@dataclass(frozen=True)
class Expected:
    """Exact result rounded to float64, and how far off each output may be."""

    y: Any
    bound: Any


def expected(problem: ConvProblem, *inputs: Any, xp: Any = np, tf32: bool = False) -> Expected:
    """Exact result of the problem's operation in float64, and the bound of each output.

    *inputs* are those of the operation (x, w, bias or None, …), in NCHW; x may hold fewer images.
    *tf32* widens the bound by the rounding of the operands to TF32, elements finer than the
    accumulator by their rounding to that.
    """
    operation = ops.operation(problem.operation)
    exact = operation.exact(xp, problem, *inputs)
    k, size, activation = exact.products, exact.magnitude, operation.activation(problem)
    share = TF32_SHARE if tf32 else ROUNDED_SHARE if _finer(problem) else 0.0
    operands = share * (1 + gamma(k)) * size if share else 0.0
    size, k = sum(exact.addends, start=size), k + len(exact.addends)
    bound = _LIPSCHITZ[activation] * (gamma(k) * size + k * UNDERFLOW + operands)
    y = conv.activated(xp, exact.y, activation)
    bound = bound + _OWN_ROUNDINGS[activation] * (UNIT_ROUNDOFF * xp.abs(y) + UNDERFLOW)
    if exact.after is None:
        return Expected(y, bound)
    y = y + exact.after  # one rounding of what is at most so far off
    return Expected(y, bound + UNIT_ROUNDOFF * (xp.abs(y) + bound))


def _finer(problem: ConvProblem) -> bool:
    """Whether some operand has digits that the accumulator has not."""
    return any(one.element.bytes > ACCUMULATOR.bytes for one in ops.operands_of(problem))


@dataclass(frozen=True)
class Accuracy:
    """Worst error of a result, as a share of its bound, and the output that has it."""

    ok: bool
    share: float  # inf where a value is not finite though the exact one is
    where: tuple[int, ...]  # index of the worst output
    got: float
    wanted: float
    bound: float

    def __str__(self) -> str:
        if self.ok:
            return f"right: worst error is {self.share:.1%} of the bound"
        return (f"WRONG at output {self.where}: got {self.got!r}, expected {self.wanted!r} "
                f"± {self.bound:.3g} (the error is {self.share:.3g} times the bound)")


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
    with np.errstate(divide="ignore", invalid="ignore"):
        error = xp.abs(y - wanted.y)
        share = xp.where(error == 0, 0.0, error / wanted.bound)
    share = xp.where(xp.isfinite(y) & xp.isfinite(share), share, xp.inf)
    where = tuple(int(at) for at in np.unravel_index(int(share.argmax()), shape))
    worst = float(share[where])
    return Accuracy(worst <= 1, worst, where, float(y[where]), float(wanted.y[where]),
                    float(wanted.bound[where]))


def judge(xp: Any, problem: ConvProblem, inputs: Sequence[Any], y: Any,
          tf32: bool = False) -> Accuracy:
    """Accuracy of *y*, the result of *inputs*; some images at a time where the result is images.

    As `compare` of `expected`, in less memory. Raises SpecError where the shapes differ.
    """
    *operands, result = ops.operands_of(problem)
    if tuple(y.shape) != result.shape:
        raise SpecError(f"a result of shape {tuple(y.shape)} is held to one of {result.shape}")

    def judged(images: slice) -> Accuracy:
        parts = [array[images] if one.layout and array is not None else array
                 for one, array in zip(operands, inputs, strict=False)]
        wanted = expected(problem, *parts, xp=xp, tf32=tf32)
        return _judged_from(images.start, compare(y[images], wanted, xp))

    return max(map(judged, _steps(problem, result)), key=lambda accuracy: accuracy.share)


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
