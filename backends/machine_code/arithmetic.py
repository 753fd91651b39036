"""Arithmetic of float32 as the hardware has it, on arrays: each result rounded once.

Denormals are kept and rounding is to nearest even, which is the mode that dscore's kernels are
built for; the backend refuses a kernel of another mode (Vega ISA, 3.5, "MODE register").
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Array = npt.NDArray[Any]

_LOW = 0x1FFFFFFF  # bits of a float64 that a normal float32 lacks
_HALF = 0x10000000  # and the pattern half way between two of these
_NAN = np.array(0xFFC00000, dtype=np.uint32).view(np.float32)[()]
_LEAST_NORMAL = float(np.finfo(np.float32).tiny)


def fma(a: Array, b: Array, c: Array) -> Floats:
    """a · b + c, rounded once (Vega ISA, V_FMA_F32, V_FMAC_F32).

    The product of two float32 is exact in float64. Their sum with c is rounded twice, to float64
    and then to float32, which differs from one rounding only where the first one ends half way
    between two float32. There the exact rest of the sum decides.

    >>> one, tiny = np.float32(1), np.float32(2.0 ** -24)
    >>> float(fma(one, np.float32([1 + 2.0 ** -23]), tiny * np.float32(1 - 2.0 ** -24)))
    1.0000001192092896
    """
    product = np.multiply(a, b, dtype=np.float64)
    total: Array = np.add(product, c, dtype=np.float64)
    doubtful = (total.view(np.uint32)[..., ::2] & _LOW) == _HALF if total.ndim else None
    result: Floats = total.astype(np.float32)
    if doubtful is None:
        return fma(np.atleast_1d(a), b, c)[0]  # type: ignore[no-any-return]
    tiny = np.abs(result) <= _LEAST_NORMAL
    tiny &= total != 0
    doubtful |= tiny
    if doubtful.any():
        at = np.nonzero(doubtful)
        addend = np.broadcast_to(np.asarray(c, dtype=np.float64), total.shape)[at]
        result[at] = _to_odd(product[at] if product.shape == total.shape
                             else np.broadcast_to(product, total.shape)[at],
                             addend, total[at]).astype(np.float32)
    return result


def mad(a: Array, b: Array, c: Array) -> Floats:
    """a · b + c, the product rounded first, and denormals taken and given as zeros (Vega ISA,
    V_MAD_F32): clang divides integers of 24 bits by it.
    """
    product = np.multiply(*map(_flushed, (a, b)), dtype=np.float32)
    return _flushed(np.add(_flushed(product), _flushed(c), dtype=np.float32))


def dot2(a: Array, b: Array, total: Array) -> Array:
    """Sum of the products of two float16 numbers in words, added to *total* (V_DOT2_F32_F16).

    Where it rounds the manual does not say, and error bounds do not ask: here behind each product.
    Denormals of float32 are taken and given as zeros (LLVM, SIISelLowering.cpp, performFMACombine).
    """
    of_a, of_b = (np.ascontiguousarray(one)[..., None].view(np.float16).astype(np.float32)
                  for one in (a, b))
    for at in range(2):
        total = _flushed(fma(of_a[..., at], of_b[..., at], _flushed(total)))
    return total


def _flushed(values: Array) -> Floats:
    zero = np.copysign(np.float32(0), values)
    return np.where(np.abs(values) < _LEAST_NORMAL, zero, values).astype(np.float32)


def _to_odd(product: Array, addend: Array, total: Array) -> Array:
    """product + addend in float64, rounded to odd, of which the rounding to float32 is right.

    Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using
    rounding to odd", 2008; the rest of a sum is Knuth's TwoSum.
    """
    back = total - product
    rest = (product - (total - back)) + (addend - back)
    bits = total.view(np.int64)
    inexact = (rest != 0) & np.isfinite(total) & (bits & 1 == 0)
    away = (rest > 0) == (total > 0)
    moved = bits + np.where(away, 1, -1)
    return np.where(inexact, moved, bits).view(np.float64)


def reciprocal(a: Array) -> Floats:
    """1 / a, rounded to nearest; the hardware's is within one ulp (Vega ISA, V_RCP_F32)."""
    result: Floats = np.divide(np.float32(1), a)
    return result


def exp2(a: Array) -> Floats:
    """2 to the power a, rounded to nearest; the hardware's is within one ulp (V_EXP_F32)."""
    result: Floats = np.exp2(a, dtype=np.float64).astype(np.float32)
    return result


def ldexp(a: Array, exponent: Array) -> Floats:
    """a · 2 to the power *exponent*, rounded once (Vega ISA, V_LDEXP_F32)."""
    bounded = np.clip(exponent, -1000, 1000).astype(np.int32)
    result: Floats = np.ldexp(a.astype(np.float64), bounded).astype(np.float32)
    return result


def to_integer(a: Array, low: int, high: int) -> Array:
    """a without its fraction, within low..high; 0 for a NaN (V_CVT_I32_F32, V_CVT_U32_F32)."""
    whole = np.clip(np.trunc(np.nan_to_num(a.astype(np.float64), nan=0.0)), low, high)
    return whole.astype(np.int64)


def _exponent(a: Array) -> Array:
    """Biased exponent."""
    bits: Array = np.ascontiguousarray(a).view(np.uint32) >> 23 & 0xFF
    return bits.astype(np.int32)


def _denormal(a: Array) -> Array:
    result: Array = (np.abs(a) < _LEAST_NORMAL) & (a != 0)
    return result


def div_scale(chosen: Array, denominator: Array, numerator: Array) -> tuple[Array, Array]:
    """One operand of a division, scaled so that its steps stay in range, and VCC.

    *chosen* is the denominator or the numerator (Vega ISA, V_DIV_SCALE_F32). Two further cases of
    the manual, of a reciprocal that is denormal in double precision, no float32 meets.
    """
    chosen, denominator, numerator = np.broadcast_arrays(chosen, denominator, numerator)
    is_denominator = chosen.view(np.uint32) == denominator.view(np.uint32)
    is_numerator = chosen.view(np.uint32) == numerator.view(np.uint32)
    nothing = (denominator == 0) | (numerator == 0)
    cases = [nothing, _exponent(numerator) - _exponent(denominator) >= 96, _denormal(denominator),
             _denormal(numerator / denominator), _exponent(numerator) <= 23]
    up = np.select(cases, [0, 64 * is_denominator, 64, 64 * is_numerator, 64], 0)
    scaled = np.where(nothing, _NAN, ldexp(chosen, up))
    return scaled, cases[1] & ~nothing | cases[3] & ~(nothing | cases[1] | cases[2])


def div_fmas(a: Array, b: Array, c: Array, scaled: Array) -> Floats:
    """Last step of a division, which takes back the scaling (V_DIV_FMAS_F32).

    The manual for Vega writes 2**32; the scaling of V_DIV_SCALE_F32 by 2**64 is taken back by
    2**64 or 2**-64, as AMD's later manuals write it (RDNA3.5 ISA, V_DIV_FMAS_F32).
    """
    a, b, c, scaled = np.broadcast_arrays(a, b, c, scaled)
    up = np.where(_exponent(c) > 127, 64, -64)
    return np.where(scaled, ldexp(fma(a, b, c), up), fma(a, b, c))


def div_fixup(quotient: Array, denominator: Array, numerator: Array) -> Floats:
    """Quotient, but for the operands that have no ordinary one (Vega ISA, V_DIV_FIXUP_F32).

    A quotient that overflows comes as a NaN, because the steps before take infinity from infinity.
    The manual does not name that case; its only right result is an infinity.
    """
    quotient, denominator, numerator = np.broadcast_arrays(quotient, denominator, numerator)
    negative = np.signbit(denominator) != np.signbit(numerator)
    sign = np.where(negative, np.float32(-1), np.float32(1))
    ends = [np.isnan(numerator), np.isnan(denominator),
            (denominator == 0) & (numerator == 0),
            np.isinf(denominator) & np.isinf(numerator),
            (denominator == 0) | np.isinf(numerator),
            np.isinf(denominator) | (numerator == 0),
            _exponent(numerator) - _exponent(denominator) < -150, np.isnan(quotient)]
    infinite, zero = sign * np.float32(np.inf), sign * np.float32(0)
    values = [numerator, denominator, np.full_like(sign, _NAN), np.full_like(sign, _NAN),
              infinite, zero, zero, infinite]
    result: Floats = np.select(ends, values, np.copysign(np.abs(quotient), sign))
    return result.astype(np.float32)
