"""Arithmetic of bytes, and what rounds and clamps sums of them (Vega ISA, 12.7 to 12.10)."""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.backends.machine_code.waves import Array

U = np.uint32
# V_PERM_B32: selectors from 8 on stand for the sign bits of bytes 1, 3, 5, 7, for 0, and for 0xFF.
_SIGNS, _ZERO = 8, 12


def _bytes_of(words: Any) -> Array:
    """The four bytes of words, on a last axis."""
    return np.ascontiguousarray(words)[..., None].view(np.uint8)


def dot4(a: Any, b: Any, total: Any) -> Array:
    """Sum of the products of four signed bytes, added to *total*; it wraps (V_DOT4_I32_I8)."""
    parts = [_bytes_of(one).view(np.int8).astype(np.int32) for one in (a, b)]
    sums: Array = (parts[0] * parts[1]).sum(-1, dtype=np.int32).view(U) + total
    return sums


def permute(high: Any, low: Any, selectors: Any) -> Array:
    """Four of the eight bytes of two words, those of *low* first (V_PERM_B32)."""
    high, low, selectors = np.broadcast_arrays(high, low, selectors)
    both = np.concatenate([_bytes_of(low), _bytes_of(high)], axis=-1)
    signs = np.where(both[..., 1::2] & 0x80, 0xFF, 0).astype(np.uint8)
    ends = np.broadcast_to(np.array([0, 0xFF], np.uint8), (*low.shape, 2))
    table = np.concatenate([both, signs, ends], axis=-1)
    picks = np.minimum(_bytes_of(selectors), _ZERO + 1).astype(np.intp)
    chosen = np.ascontiguousarray(np.take_along_axis(table, picks, axis=-1))
    words: Array = chosen.view(U)[..., 0]
    return words


def median(a: Any, b: Any, c: Any) -> Any:
    """The middle one of three integers (V_MED3_I32, V_MED3_U32)."""
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def least(a: Any, b: Any) -> Array:
    """The lesser of two floats: the one that is a number, and of zeros the negative one
    (V_MIN_F32)."""
    a, b = np.broadcast_arrays(a, b)
    lesser: Array = np.where(np.isnan(b) | (a < b) | ((a == b) & np.signbit(a)), a, b)
    return lesser


def greatest(a: Any, b: Any) -> Array:
    """The greater of two floats, as `least`; of zeros the positive one (V_MAX_F32)."""
    a, b = np.broadcast_arrays(a, b)
    greater: Array = np.where(np.isnan(b) | (a > b) | ((a == b) & ~np.signbit(a)), a, b)
    return greater


def median_of_floats(a: Any, b: Any, c: Any) -> Array:
    """The middle one of three floats; with a NaN among them the least (V_MED3_F32)."""
    no_number = np.isnan(a) | np.isnan(b) | np.isnan(c)
    middle = greatest(least(a, b), least(greatest(a, b), c))
    chosen: Array = np.where(no_number, least(least(a, b), c), middle)
    return chosen


def from_byte(at: int) -> Any:
    """Function of the float of an unsigned byte of a word (V_CVT_F32_UBYTE0 to 3)."""
    return lambda a: (a >> U(8 * at) & U(0xFF)).astype(np.float32)
