"""Rounding of each arithmetic: how far off a result may be, of the magnitude that is summed.

docs/bounds.md states each bound and proves it; the names here are those of that page.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Literal, NamedTuple

from dscore.algorithms.registry import algorithm_of
from dscore.core.errors import SpecError
from dscore.core.numerics import ACCUMULATOR, UNDERFLOW, Element, PlanArithmetic
from dscore.core.plan import Plan
from dscore.core.winograd import Matrix, transforms

UNIT_ROUNDOFF = ACCUMULATOR.unit_roundoff
# Of an addition on matrix units, which may truncate.
MATRIX_ROUNDOFF = 2 * UNIT_ROUNDOFF
# What a multiplication adds where its operands are rounded first: to TF32, of which it keeps 10
# bits, and to the accumulator's type.
TF32_SHARE = 2 * 2.0**-10 + 2.0**-20
ROUNDED_SHARE = 2 * UNIT_ROUNDOFF + UNIT_ROUNDOFF**2
# Roundings of 16-bit elements that other libraries are granted: no theorem, but wrong results are
# far beyond it.
STEPS16 = 16
# Of a product by two TF32 parts of each operand, beside exactness: what the parts leave out, and
# the product of the small ones; and the sum of the three products' magnitudes.
SPLIT_SHARE = 8 * UNIT_ROUNDOFF + 4 * UNIT_ROUNDOFF**2
SPLIT_MAGNITUDE = (1 + 2.0**-10)**2
# Added to the magnitude of operands of three TF32 products, and of tiles: a small part or a tile
# below the normal range may be flushed to zero, which is less than a rounding of so much.
LEAST_SPLIT, LEAST_TILE = 2.0**-103, 2.0**-96
# Of a number of a tile, below the normal range, by all the operations that made it.
_TILE_FLUSHES = 2**9


class Rounding(NamedTuple):
    """What the bound of a result depends on, beside the problem.

    *arithmetic*: a plan's; or what other libraries do: "tf32" for operands that are rounded to
    TF32, "steps16" for 16-bit elements to which some steps in between are rounded, too.
    *chain*: the products that one accumulator of matrix units sums, and the additions after them;
    None: all products. Other sums are held to γ_k whatever their order.
    """

    arithmetic: PlanArithmetic | Literal["tf32", "steps16"] = "sum"
    chain: int | None = None

    @property
    def splits(self) -> bool:
        """Whether each product is made of three TF32 ones."""
        return self.arithmetic.endswith("tf32x3")

    @property
    def tile(self) -> int:
        """m of Winograd's F(m x m, 3x3); 0 of a sum of products."""
        if not self.arithmetic.startswith("winograd"):
            return 0
        return int(self.arithmetic.removesuffix("_tf32x3").removeprefix("winograd"))

    def relative(self, products: int, addends: int = 0, packed: bool = False) -> float:
        """Error of a sum of *products* and *addends*, over the sum of their magnitudes.

        Of Winograd's, *products* are those of one of the (m + 2)² sums, and *packed* is whether
        the filter was transformed beforehand.
        """
        if self.splits:
            chain = products if self.chain is None else min(products, self.chain)
            sums = SPLIT_SHARE + SPLIT_MAGNITUDE * gamma(3 * chain, MATRIX_ROUNDOFF)
        elif self.arithmetic == "sum":
            return gamma(products + addends)
        elif self.arithmetic == "matrix16":
            sums = gamma(products if self.chain is None else min(products, self.chain),
                         MATRIX_ROUNDOFF)
        else:
            sums = gamma(products)
        steps = addends + (transform_steps(self.tile, packed) if self.tile else 0)
        return (1 + sums) * (1 + gamma(steps)) - 1

    def underflow(self, products: int, addends: int) -> float:
        """Error of all that may be flushed to zero, of a result that is otherwise exact."""
        if not self.tile:
            return ((3 if self.splits else 1) * products + addends) * UNDERFLOW
        spread = max(sum(map(abs, row)) for row in transforms(self.tile).AT)
        return (float(spread)**2 * (3 * products + _TILE_FLUSHES) + addends) * UNDERFLOW


SUM = Rounding()


def rounding_of(plan: Plan) -> Rounding:
    """What the bound of a plan's result depends on."""
    one = algorithm_of(plan.tiling)
    return Rounding(one.arithmetic(plan.problem, plan.tiling),
                    one.chain(plan.problem, plan.tiling))


def half_least(element: Element) -> float:
    """Half the distance of numbers below the normal range of a type: what rounding there errs."""
    return element.unit_roundoff * element.least_normal


def overflow(element: Element) -> float:
    """The least number that is rounded to an infinity of a type.

    >>> from dscore.core.numerics import ELEMENTS
    >>> overflow(ELEMENTS["float16"])
    65520.0
    """
    return (1 - element.unit_roundoff / 2) * element.limit


def gamma(roundings: int, unit: float = UNIT_ROUNDOFF) -> float:
    """γ of so many roundings, each of relative error *unit*; SpecError where they reach 1.

    >>> gamma(9) / 2**-24
    9.000004827978817
    """
    error = roundings * unit
    if error >= 1:
        raise SpecError(f"no float32 error bound exists for {roundings} products (limit "
                        f"{round(1 / unit):,})")
    return error / (1 - error)


def transform_steps(m: int, packed: bool = False) -> int:
    """Roundings on the longest way through the transforms of F(m x m, 3x3), in two dimensions.

    *packed* leaves out the filter's.

    >>> transform_steps(2), transform_steps(4), transform_steps(4, packed=True)
    (10, 22, 14)
    """
    bt, g, at = map(_steps, transforms(m))
    return 2 * (bt + at + (0 if packed else g))


def _steps(matrix: Matrix) -> int:
    """Roundings on the longest way through ``matrix @ x``, in any order of its additions.

    Those of a coefficient that is no binary fraction, of a product by what is no power of two, and
    of all additions of a row but one.
    """
    def of_row(row: tuple[Fraction, ...]) -> int:
        there = [abs(one) for one in row if one]
        return len(there) - 1 + max((one.denominator & (one.denominator - 1) > 0)
                                    + (not _is_power_of_two(one)) for one in there)

    return max(map(of_row, matrix))


def _is_power_of_two(number: Fraction) -> bool:
    return number.numerator & (number.numerator - 1) == 0 == (
        number.denominator & (number.denominator - 1))
