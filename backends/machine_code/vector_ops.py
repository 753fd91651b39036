"""Vector instructions by opcode: what they compute, on arrays (Vega ISA, 12.7 to 12.11).

An entry's types are "destinations<sources" in the letters of `operands`; its function takes the
sources and returns the destination, or a tuple of them. Shift counts are the low bits of their
operand (5 of 32, 4 of 16, 6 of 64), and sums wrap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dscore.backends.machine_code import arithmetic, byte_ops
from dscore.backends.machine_code.waves import LANES

U, L = np.uint32, np.uint64
_LANE = np.arange(LANES, dtype=np.uint64)
# Bits of the lanes below one's own (Vega ISA, V_MBCNT_LO_U32_B32).
_BELOW = (np.uint64(1) << _LANE) - np.uint64(1)


class VectorOp(NamedTuple):
    """A vector instruction; one that *accumulates* also reads its destination, last."""

    destinations: str
    sources: str
    compute: Callable[..., Any]
    accumulates: bool = False


def _op(types: str, compute: Callable[..., Any], accumulates: bool = False) -> VectorOp:
    destinations, _, sources = types.partition("<")
    return VectorOp(destinations, sources, compute, accumulates)


def _shift(count: Any, bits: int = 31) -> Any:
    return count & type(count.dtype.type(0))(bits)


def _long(a: Any) -> Any:
    return a.astype(np.uint64)


def _u24(a: Any) -> Any:
    return a & U(0xFFFFFF)


def _i24(a: Any) -> Any:
    return (a.astype(np.int64) << np.int64(40)) >> np.int64(40)


def _add_carry(a: Any, b: Any, carry: Any = False) -> tuple[Any, Any]:
    """Sum and its carry (V_ADD_CO_U32, V_ADDC_CO_U32)."""
    total = _long(a) + _long(b) + np.asarray(carry, dtype=np.uint64)
    return total.astype(U), total >> L(32) != 0


def _subtract_borrow(a: Any, b: Any, borrow: Any = False) -> tuple[Any, Any]:
    """Difference and its borrow (V_SUB_CO_U32, V_SUBB_CO_U32)."""
    taken = _long(b) + np.asarray(borrow, dtype=np.uint64)
    return (_long(a) - taken).astype(U), taken > _long(a)


def _mad_u64(a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    total = _long(a) * _long(b) + c
    return total, total < c


def _mad_i64(a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """Sum of 64 bits; the manual does not say what VCC becomes, and `translation` forbids to read
    it.
    """
    total = a.astype(np.int64) * b.astype(np.int64) + c
    return total, total < 0


def _bfe_u(a: Any, first: Any, width: Any) -> Any:
    return a >> _shift(first) & ((U(1) << _shift(width)) - U(1))


def _bfe_i(a: Any, first: Any, width: Any) -> Any:
    bits = _shift(width)
    field = _long(_bfe_u(a.view(U) if hasattr(a, "view") else a, first, width))
    sign = np.where(bits > 0, L(1) << (_long(bits) - L(1)) % L(64), L(0))
    return ((field ^ sign) - sign).astype(U)


def set_bits(words: Any) -> Any:
    """Number of bits that are set in words of 64."""
    words = words - (words >> L(1) & L(0x5555555555555555))
    words = (words & L(0x3333333333333333)) + (words >> L(2) & L(0x3333333333333333))
    words = words + (words >> L(4)) & L(0x0F0F0F0F0F0F0F0F)
    return (words * L(0x0101010101010101) >> L(56)).astype(U)


def reversed_bits(a: Any) -> Any:
    """Words with bit 0 for bit 31, and so on."""
    for mask, shift in ((0x55555555, 1), (0x33333333, 2), (0x0F0F0F0F, 4), (0x00FF00FF, 8),
                        (0x0000FFFF, 16)):
        a = (a & U(mask)) << U(shift) | a >> U(shift) & U(mask)
    return a


def _compare(name: str) -> dict[str, VectorOp]:
    """Integer comparisons (Vega ISA, 12.11, VOPC)."""
    compute: Callable[..., Any] = getattr(np, _COMPARISONS[name])
    kinds = {"i32": "ii", "u32": "uu", "i16": "ee", "u16": "hh", "i64": "qq", "u64": "dd"}
    return {f"v_cmp_{name}_{suffix}": _op(f"m<{types}", compute)
            for suffix, types in kinds.items()}


_COMPARISONS = {"lt": "less", "eq": "equal", "le": "less_equal", "gt": "greater",
                "ne": "not_equal", "ge": "greater_equal"}


def _float_comparisons() -> dict[str, VectorOp]:
    """Float comparisons; those that begin with n are true for a NaN."""
    plain = {name: getattr(np, function) for name, function in _COMPARISONS.items()
             if name != "ne"}
    plain["lg"] = lambda a, b: (a < b) | (a > b)
    plain["o"] = lambda a, b: ~(np.isnan(a) | np.isnan(b))
    negated = {"neq": "eq", "u": "o", **{f"n{name}": name for name in ("lt", "le", "gt", "ge",
                                                                       "lg")}}
    table = {f"v_cmp_{name}_f32": _op("m<ff", compute) for name, compute in plain.items()}
    for name, opposite in negated.items():
        table[f"v_cmp_{name}_f32"] = _op("m<ff", _not(plain[opposite]))
    return table


def _not(compare: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: ~compare(a, b)


VECTOR: dict[str, VectorOp] = {
    "v_mov_b32": _op("u<u", lambda a: a),
    # Accumulator registers of gfx90a, which `disassembly` numbers behind the vector registers.
    "v_accvgpr_read_b32": _op("u<u", lambda a: a),
    "v_accvgpr_write_b32": _op("u<u", lambda a: a),
    "v_accvgpr_mov_b32": _op("u<u", lambda a: a),
    "v_not_b32": _op("u<u", lambda a: ~a),
    "v_bfrev_b32": _op("u<u", reversed_bits),
    "v_and_b32": _op("u<uu", lambda a, b: a & b),
    "v_or_b32": _op("u<uu", lambda a, b: a | b),
    "v_xor_b32": _op("u<uu", lambda a, b: a ^ b),
    "v_or3_b32": _op("u<uuu", lambda a, b, c: a | b | c),
    "v_and_or_b32": _op("u<uuu", lambda a, b, c: a & b | c),
    "v_xad_u32": _op("u<uuu", lambda a, b, c: (a ^ b) + c),
    "v_bfi_b32": _op("u<uuu", lambda a, b, c: a & b | ~a & c),
    "v_lshlrev_b32": _op("u<uu", lambda n, a: a << _shift(n)),
    "v_lshrrev_b32": _op("u<uu", lambda n, a: a >> _shift(n)),
    "v_ashrrev_i32": _op("i<ii", lambda n, a: a >> _shift(n)),
    "v_lshlrev_b16": _op("h<hh", lambda n, a: a << _shift(n, 15)),
    "v_lshrrev_b16": _op("h<hh", lambda n, a: a >> _shift(n, 15)),
    "v_ashrrev_i16": _op("e<ee", lambda n, a: a >> _shift(n, 15)),
    "v_lshlrev_b64": _op("d<ud", lambda n, a: a << _long(_shift(n, 63))),
    "v_lshrrev_b64": _op("d<ud", lambda n, a: a >> _long(_shift(n, 63))),
    "v_ashrrev_i64": _op("q<uq", lambda n, a: a >> _shift(n, 63).astype(np.int64)),
    "v_lshl_add_u32": _op("u<uuu", lambda a, n, b: (a << _shift(n)) + b),
    "v_lshl_or_b32": _op("u<uuu", lambda a, n, b: a << _shift(n) | b),
    "v_add_lshl_u32": _op("u<uuu", lambda a, b, n: a + b << _shift(n)),
    "v_alignbyte_b32": _op("u<uuu", lambda a, b, n: (
        (_long(a) << L(32) | _long(b)) >> _long((n & U(3)) * U(8))).astype(U)),
    "v_alignbit_b32": _op("u<uuu", lambda a, b, n: (
        (_long(a) << L(32) | _long(b)) >> _long(_shift(n))).astype(U)),
    "v_bfe_u32": _op("u<uuu", _bfe_u),
    "v_bfe_i32": _op("u<uuu", _bfe_i),
    "v_add_u32": _op("u<uu", lambda a, b: a + b),
    "v_sub_u32": _op("u<uu", lambda a, b: a - b),
    "v_subrev_u32": _op("u<uu", lambda a, b: b - a),
    "v_add3_u32": _op("u<uuu", lambda a, b, c: a + b + c),
    "v_add_u16": _op("h<hh", lambda a, b: a + b),
    "v_sub_u16": _op("h<hh", lambda a, b: a - b),
    "v_subrev_u16": _op("h<hh", lambda a, b: b - a),
    "v_mul_lo_u16": _op("h<hh", lambda a, b: a * b),
    "v_mad_legacy_u16": _op("h<hhh", lambda a, b, c: a * b + c),
    "v_min_i16": _op("e<ee", np.minimum),
    "v_max_i16": _op("e<ee", np.maximum),
    "v_min_u16": _op("h<hh", np.minimum),
    "v_max_u16": _op("h<hh", np.maximum),
    "v_min_i32": _op("i<ii", np.minimum),
    "v_max_i32": _op("i<ii", np.maximum),
    "v_min_u32": _op("u<uu", np.minimum),
    "v_max_u32": _op("u<uu", np.maximum),
    "v_mul_lo_u32": _op("u<uu", lambda a, b: a * b),
    "v_mul_hi_u32": _op("u<uu", lambda a, b: (_long(a) * _long(b) >> L(32)).astype(U)),
    "v_mul_hi_i32": _op("i<ii", lambda a, b: (
        a.astype(np.int64) * b.astype(np.int64) >> np.int64(32)).astype(np.int32)),
    "v_mul_u32_u24": _op("u<uu", lambda a, b: _u24(a) * _u24(b)),
    "v_mul_hi_u32_u24": _op("u<uu", lambda a, b: (
        _long(_u24(a)) * _long(_u24(b)) >> L(32)).astype(U)),
    "v_mul_i32_i24": _op("u<ii", lambda a, b: (_i24(a) * _i24(b)).astype(U)),
    "v_mad_u32_u24": _op("u<uuu", lambda a, b, c: _u24(a) * _u24(b) + c),
    "v_mad_i32_i24": _op("u<iiu", lambda a, b, c: (_i24(a) * _i24(b)).astype(U) + c),
    "v_mad_i32_i16": _op("u<eeu", lambda a, b, c: (a * b).astype(U) + c),
    "v_mad_u32_u16": _op("u<hhu", lambda a, b, c: a * b + c),
    "v_dot2_f32_f16": _op("f<uuf", arithmetic.dot2),
    "v_dot4_i32_i8": _op("u<uuu", byte_ops.dot4),
    "v_dot4c_i32_i8": _op("u<uuu", byte_ops.dot4, accumulates=True),
    "v_perm_b32": _op("u<uuu", byte_ops.permute),
    "v_med3_i32": _op("i<iii", byte_ops.median),
    "v_med3_u32": _op("u<uuu", byte_ops.median),
    "v_min3_i32": _op("i<iii", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "v_max3_i32": _op("i<iii", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "v_mad_u64_u32": _op("dm<uud", _mad_u64),
    "v_mad_i64_i32": _op("qm<iiq", _mad_i64),
    "v_add_co_u32": _op("um<uu", _add_carry),
    "v_addc_co_u32": _op("um<uum", _add_carry),
    "v_sub_co_u32": _op("um<uu", _subtract_borrow),
    "v_subrev_co_u32": _op("um<uu", lambda a, b: _subtract_borrow(b, a)),
    "v_subb_co_u32": _op("um<uum", _subtract_borrow),
    "v_subbrev_co_u32": _op("um<uum", lambda a, b, m: _subtract_borrow(b, a, m)),
    "v_cndmask_b32": _op("f<ffm", lambda a, b, mask: np.where(mask, b, a)),  # words, or |floats|
    "v_mbcnt_lo_u32_b32": _op("u<uu", lambda a, b: set_bits(_long(a) & _BELOW) + b),
    "v_mbcnt_hi_u32_b32": _op("u<uu", lambda a, b: set_bits(_long(a) << L(32) & _BELOW) + b),
    "v_add_f32": _op("f<ff", np.add),
    "v_sub_f32": _op("f<ff", np.subtract),
    "v_subrev_f32": _op("f<ff", lambda a, b: b - a),
    "v_mul_f32": _op("f<ff", np.multiply),
    "v_min_f32": _op("f<ff", byte_ops.least),
    "v_max_f32": _op("f<ff", byte_ops.greatest),
    "v_med3_f32": _op("f<fff", byte_ops.median_of_floats),
    "v_fma_f32": _op("f<fff", arithmetic.fma),
    **dict.fromkeys(("v_mad_f32", "v_madmk_f32", "v_madak_f32"), _op("f<fff", arithmetic.mad)),
    "v_mac_f32": _op("f<fff", arithmetic.mad, accumulates=True),
    "v_fmac_f32": _op("f<fff", arithmetic.fma, accumulates=True),
    "v_rcp_f32": _op("f<f", arithmetic.reciprocal),
    "v_rcp_iflag_f32": _op("f<f", arithmetic.reciprocal),
    "v_exp_f32": _op("f<f", arithmetic.exp2),
    "v_ldexp_f32": _op("f<fi", arithmetic.ldexp),
    "v_rndne_f32": _op("f<f", np.rint),
    "v_trunc_f32": _op("f<f", np.trunc),
    "v_floor_f32": _op("f<f", np.floor),
    "v_cvt_f16_f32": _op("g<f", lambda a: a),
    "v_cvt_f32_f16": _op("f<g", lambda a: a.astype(np.float32)),
    "v_pack_b32_f16": _op("u<hh", lambda a, b: a | b << U(16)),
    "v_cvt_f32_u32": _op("f<u", lambda a: a.astype(np.float32)),
    "v_cvt_f32_i32": _op("f<i", lambda a: a.astype(np.float32)),
    **{f"v_cvt_f32_ubyte{at}": _op("f<u", byte_ops.from_byte(at)) for at in range(4)},
    "v_cvt_u32_f32": _op("u<f", lambda a: arithmetic.to_integer(a, 0, 2**32 - 1).astype(U)),
    "v_cvt_i32_f32": _op("i<f", lambda a: arithmetic.to_integer(
        a, -2**31, 2**31 - 1).astype(np.int32)),
    "v_div_scale_f32": _op("fm<fff", arithmetic.div_scale),
    # Reads VCC without naming it.
    "v_div_fmas_f32": _op("f<fffm", arithmetic.div_fmas),
    "v_div_fixup_f32": _op("f<fff", arithmetic.div_fixup),
    **{opcode: op for name in _COMPARISONS for opcode, op in _compare(name).items()},
    **_float_comparisons(),
}
