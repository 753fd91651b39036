"""Error bounds: whether a result is right, beside the direct definition in float64.

For every order of summation a float32 result y of k products keeps
``|y − ref| ≤ γ_k · conv(|x|, |w|)`` with ``γ_k = k·u / (1 − k·u)`` and ``u = 2⁻²⁴`` (Higham,
Accuracy and Stability of Numerical Algorithms, §3.1). Products of three TF32 ones and Winograd's
algorithm have bounds of their own (docs/bounds.md). So no tolerance is tuned here.

Arrays are NumPy's by default; where a function takes *xp*, it is the library of the arrays, NumPy
or PyTorch, and everything is computed where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dscore import ops
from dscore.checking import integers
from dscore.checking.oracle import Expected, Oracle
from dscore.checking.rounding import SUM, Rounding
from dscore.core.errors import SpecError
from dscore.core.numerics import ACCUMULATOR
from dscore.core.problem import ConvProblem
from dscore.core.text import percent
from dscore.ops import conv

# Elements of float64 that one step of `judge` may take; an image at least.
_STEP_ELEMENTS = 1 << 27


def expected(problem: ConvProblem, *inputs: Any, xp: Any = np, rounding: Rounding = SUM
             ) -> Expected:
    """`Oracle.expected` of a problem's operation on *inputs*, arrays of the library *xp*."""
    return Oracle(problem, *inputs, xp=xp).expected(rounding)


@dataclass(frozen=True)
class Accuracy:
    """Worst error of a result, as a share of its bound, and the output that has it."""

    ok: bool
    share: float  # inf where a value is not finite though the exact one is; of the bound
    where: tuple[int, ...]  # index of the worst output
    got: float
    wanted: float
    bound: float
    arithmetic: str = "sum"  # whose bound it is; "exact" for equality
    of_sum: float | None = None  # the worst error over γ_k's bound, for another arithmetic

    @property
    def share_of_sum(self) -> float:
        """The worst error over the bound of a sum, γ_k's."""
        return self.share if self.of_sum is None else self.of_sum

    @property
    def shown(self) -> str:
        """The share in a table."""
        return "equal" if self.ok and self.arithmetic == "exact" else percent(self.share)

    def __str__(self) -> str:
        whose = "" if self.of_sum is None else f" of {self.arithmetic}"
        beside = "" if self.of_sum is None else f", {self.of_sum:.1%} of γ_k's"
        if self.arithmetic == "exact":
            return ("right: every output is equal" if self.ok else
                    f"WRONG at output {self.where}: got {self.got:.9g}, expected exactly "
                    f"{self.wanted:.9g}")
        if self.ok:
            return f"right: worst error is {self.share:.1%} of the bound{whose}{beside}"
        return (f"WRONG at output {self.where}: got {self.got!r}, expected {self.wanted!r} "
                f"± {self.bound:.3g} (the error is {self.share:.3g} times the bound{whose})")


def compare(y: Any, wanted: Expected, xp: Any = np) -> Accuracy:
    """Accuracy of *y* beside *wanted*; what is not finite passes as an infinity beyond its type.

    Raises SpecError where the shapes differ.
    """
    shape = tuple(wanted.y.shape)
    if tuple(y.shape) != shape:
        raise SpecError(f"a result of shape {tuple(y.shape)} is held to one of {shape}")
    if 0 in shape:
        return Accuracy(True, 0.0, (), 0.0, 0.0, 0.0)
    y = conv.float64(xp, y)
    share = _shares(xp, y, wanted, wanted.bound)
    if wanted.arithmetic == "exact":  # a zero's sign, too
        share = xp.where(xp.signbit(y) == xp.signbit(wanted.y), share, xp.inf)
    where = tuple(int(at) for at in np.unravel_index(int(share.argmax()), shape))
    worst = float(share[where])
    of_sum = (None if wanted.of_sum is None
              else float(_shares(xp, y, wanted, wanted.of_sum).max()))
    return Accuracy(worst <= 1, worst, where, float(y[where]), float(wanted.y[where]),
                    float(wanted.bound[where]), wanted.arithmetic, of_sum)


def worst_of(accuracies: Iterable[Accuracy]) -> Accuracy:
    """The worst of the parts of a result."""
    parts = list(accuracies)
    worst = max(parts, key=lambda accuracy: accuracy.share)
    if worst.of_sum is None:
        return worst
    return replace(worst, of_sum=max(part.of_sum or 0.0 for part in parts))


def _shares(xp: Any, y: Any, wanted: Expected, bound: Any) -> Any:
    """The error of each output over its bound; infinite where *y* is wrongly not finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        error = xp.abs(y - wanted.y)
        share = xp.where(error == 0, 0.0, error / bound)
    share = xp.where(xp.isfinite(y) & xp.isfinite(share), share, xp.inf)
    if wanted.infinite is None:
        return share
    right = xp.isinf(y) & wanted.infinite & ((y > 0) == (wanted.y > 0))
    return xp.where(right, 0.0, share)


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


class Judge:
    """`judge` of many results of the same *inputs*, whose exact result is made once.

    It is held, and the bound for each rounding, where it has no more than a limit of elements. The
    contents of *inputs* must stay as they are.
    """

    def __init__(self, xp: Any, problem: ConvProblem, inputs: Sequence[Any]) -> None:
        self._xp, self._problem, self._inputs = xp, problem, inputs
        self._expected: dict[Rounding, Expected] = {}
        self._holds = len(_steps(problem, ops.output_of(problem))) == 1

    @cached_property
    def _oracle(self) -> Oracle:
        return Oracle(self._problem, *self._inputs, xp=self._xp)

    def __call__(self, y: Any, rounding: Rounding = SUM) -> Accuracy:
        """Accuracy of *y*."""
        if not self._holds:
            return judge(self._xp, self._problem, self._inputs, y, rounding)
        if rounding not in self._expected:
            self._expected[rounding] = self._oracle.expected(rounding)
        return compare(y, self._expected[rounding], self._xp)


def judge_of(xp: Any, problem: ConvProblem, inputs: Sequence[Any]
             ) -> Callable[..., Accuracy]:
    """`Judge` of all results of a problem: it takes them in their order, and a rounding, and gives
    the worst accuracy."""
    judges = [Judge(xp, part.problem, part.inputs_of(inputs)) for part in ops.parts_of(problem)]

    def judged(results: Sequence[Any], rounding: Rounding = SUM) -> Accuracy:
        return worst_of(one(y, rounding) for one, y in zip(judges, results, strict=True))

    return judged


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


def blank(problem: ConvProblem) -> list[Any]:
    """Arrays for the results of a problem, in their order, full of NaN or of `Element.poison`."""
    return [np.full(one.shape, one.element.poison, one.element.numpy)
            for one in ops.outputs_of(problem)]


def sample(problem: ConvProblem, seed: int) -> list[Any]:
    """Random inputs of the problem's operation, None for those that the layer does not have.

    Normal, never zero, the same for the same seed; of layers of int8 see
    `dscore.checking.integers`.
    """
    rng = np.random.default_rng(seed)
    if problem.spec.element.exact:
        return integers.draw(problem, rng)

    def drawn(one: ops.Operand) -> Any:
        exact = np.float64 if one.element.bytes > ACCUMULATOR.bytes else np.float32
        return rng.standard_normal(one.shape, dtype=exact).astype(one.element.numpy, copy=False)

    return [drawn(one) if one.present else None
            for one in ops.operands_of(problem) if one.role == "input"]
