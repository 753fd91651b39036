"""Element types and arithmetics: a line for each, which all that depends on them reads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

# How products are made: in float32, or of integers in int32; of three TF32 ones; or exactly on
# matrix units, of elements of 16 bits, whose sums round otherwise, and of int8, whose do not round.
Arithmetic = Literal["plain", "tf32x3", "matrix16", "matrix8"]
ARITHMETICS: tuple[str, ...] = get_args(Arithmetic)
FLOAT32_ARITHMETICS = ("plain", "tf32x3")  # of float32 elements
FLOAT_ARITHMETICS = (*FLOAT32_ARITHMETICS, "matrix16")
# What a layer permits: sums of products alone, made in either way, or Winograd's algorithm, too.
Permission = Literal["sum", "winograd"]
PERMISSIONS: tuple[str, ...] = get_args(Permission)
# How a filter lies in memory: as arrays have it, or transformed for Winograd's algorithm, which is
# permitted by that (dscore.calling.pack).
FilterForm = Literal["plain", "winograd2", "winograd4"]
FILTER_FORMS: tuple[str, ...] = get_args(FilterForm)
# What a caller names: one way to make products, or that permission.
ArithmeticOption = Literal["plain", "tf32x3", "matrix16", "winograd"]
ARITHMETIC_OPTIONS: tuple[str, ...] = get_args(ArithmeticOption)
# What a plan does, by which its result is held to an error bound (dscore.checking.bound): sums of
# products; of three TF32 ones each; of 16-bit elements on matrix units; Winograd's F(2x2, 3x3) and
# F(4x4, 3x3), by the first two.
PlanArithmetic = Literal["sum", "tf32x3", "matrix16", "winograd2", "winograd4", "winograd2_tf32x3",
                         "winograd4_tf32x3"]
_INTEGER_POISON = -86  # every second bit of a byte
# Of a register of a lane, and of what a bank of LDS serves a clock.
WORD_BYTES = 4


@dataclass(frozen=True)
class Element:
    """An element type of tensors.

    `name` is also NumPy's; `cpp` is its name in kernels; `unit_roundoff` the relative error of a
    rounding to it, u of the error bound, between `least_normal` and `limit`, the power of two above
    its numbers; `exact` is of integers, whose sums are exact; `of_layers` False is of a type that
    layers have beside that of their images.
    """

    name: str
    bytes: int
    cpp: str = ""
    unit_roundoff: float = 0.0
    least_normal: float = 2.0**-126
    limit: float = 2.0**128
    exact: bool = False
    of_layers: bool = True

    @property
    def sums(self) -> Element:
        """What its products are summed in."""
        return INTEGER_SUMS if self.exact else ACCUMULATOR

    @property
    def poison(self) -> float:
        """What an output is full of before a kernel writes to it: NaN, or a number of its own."""
        return _INTEGER_POISON if self.exact else math.nan

    @property
    def registers(self) -> int:
        """Registers that hold one element."""
        return -(-self.bytes // WORD_BYTES)

    @property
    def numpy(self) -> Any:
        """NumPy's dtype, of bfloat16 that of ml_dtypes, which is imported on use."""
        import numpy as np

        if self.name == "bfloat16":
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype(self.name)


ELEMENTS: dict[str, Element] = {element.name: element for element in (
    Element("float32", 4, "float", 2.0**-24),
    Element("float16", 2, "dscore::float16", 2.0**-11, 2.0**-14, 2.0**16),
    Element("bfloat16", 2, "dscore::bfloat16", 2.0**-8),
    Element("int8", 1, "int8_t", limit=2.0**7, exact=True),
    Element("int32", 4, "int32_t", limit=2.0**31, exact=True, of_layers=False),
)}
# Those that kernels take whose sums are float32.
FLOATS = ("float32", "float16", "bfloat16")
# What products of floats are summed in: in registers and where sums pass LDS; and of integers.
ACCUMULATOR, INTEGER_SUMS = ELEMENTS["float32"], ELEMENTS["int32"]
# Of a layer of int8: the types of its result, beside int8.
FLOAT_RESULTS = ("float32", "float16")
# Products of (x - zero point) and w that an int32 holds the sum of: 255 * 128 is the largest.
MOST_INTEGER_PRODUCTS = (2**31 - 1) // (255 * 128)
# A product or sum below the normal range of the accumulator may be flushed to zero.
UNDERFLOW = 2.0**-126


def layer_types() -> tuple[str, ...]:
    """The element types that a layer may be of, by their names."""
    return tuple(name for name, element in ELEMENTS.items() if element.of_layers)


def permission_of(option: ArithmeticOption | None) -> Permission:
    """What a layer permits where a caller names *option*; None is a sum, made in either way."""
    return "winograd" if option == "winograd" else "sum"


def products_of(option: ArithmeticOption | None) -> Arithmetic | None:
    """The one way to make products that *option* names; None for either."""
    return None if option == "winograd" else option
