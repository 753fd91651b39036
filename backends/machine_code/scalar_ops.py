"""Scalar instructions by opcode: what they compute, on arrays (Vega ISA, 12.1 to 12.4).

An entry's types are "destination<sources" in the letters of `operands`, c among the sources for
SCC. Its function takes the sources and returns the result, or (result, SCC).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dscore.backends.machine_code.vector_ops import reversed_bits, set_bits

U, L = np.uint32, np.uint64


class ScalarOp(NamedTuple):
    """A scalar instruction; without a destination it only sets SCC, and *keeps_scc* does not.

    One that *accumulates* reads its destination as the first source; one of *short* has a constant
    of 16 bits as its last source, signed ("i") or unsigned ("u").
    """

    destination: str
    sources: str
    compute: Callable[..., Any]
    keeps_scc: bool = False
    accumulates: bool = False
    short: str = ""


def _op(types: str, compute: Callable[..., Any], **options: Any) -> ScalarOp:
    destination, _, sources = types.partition("<")
    return ScalarOp(destination, sources, compute, **options)


def _nonzero(compute: Callable[..., Any]) -> Callable[..., Any]:
    """With SCC = result is not 0, as for all of logic and shifts."""
    def both(*sources: Any) -> tuple[Any, Any]:
        result = compute(*sources)
        return result, result != 0
    return both


def _overflowing(compute: Callable[..., Any]) -> Callable[..., Any]:
    """With SCC = signed overflow (S_ADD_I32, S_SUB_I32, S_ADDK_I32)."""
    def both(a: Any, b: Any) -> tuple[Any, Any]:
        exact = compute(a.astype(np.int64), b.astype(np.int64))
        result = exact.astype(np.int32)
        return result, result != exact
    return both


def _add(a: Any, b: Any, carry: Any = False) -> tuple[Any, Any]:
    total = a.astype(np.uint64) + b.astype(np.uint64) + np.asarray(carry, dtype=np.uint64)
    return total.astype(U), total >> L(32) != 0


def _subtract(a: Any, b: Any, borrow: Any = False) -> tuple[Any, Any]:
    taken = b.astype(np.uint64) + np.asarray(borrow, dtype=np.uint64)
    return (a.astype(np.uint64) - taken).astype(U), taken > a


def _bfe(a: Any, field: Any, signed: bool) -> Any:
    """Bits of a: the first in bits 0 to 4 of *field*, their number in bits 16 to 22 (S_BFE_I32)."""
    first, width = field & U(31), np.minimum(field >> U(16) & U(0x7F), U(32)).astype(np.uint64)
    part = (a >> first).astype(np.uint64) & (L(1) << width) - L(1)
    if not signed:
        return part.astype(U)
    sign = np.where(width > 0, L(1) << (width - L(1)) % L(64), L(0))
    return ((part ^ sign) - sign).astype(U)


def _choose(first: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """The first operand where the comparison holds, which is SCC, else the second (S_MIN_I32)."""
    def both(a: Any, b: Any) -> tuple[Any, Any]:
        return np.where(first(a, b), a, b), first(a, b)
    return both


def _high(kind: Any) -> Callable[..., Any]:
    return lambda a, b: (a.astype(kind) * b.astype(kind) >> kind(32)).astype(
        U if kind is np.uint64 else np.int32)


_COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": np.equal, "lg": np.not_equal, "gt": np.greater, "ge": np.greater_equal,
    "lt": np.less, "le": np.less_equal}
_LOGIC: dict[str, Callable[..., Any]] = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "andn2": lambda a, b: a & ~b, "orn2": lambda a, b: a | ~b, "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b), "xnor": lambda a, b: ~(a ^ b)}


def _shifted_with_sign(a: Any, n: Any) -> Any:
    return (np.asarray(a).astype(np.int64) >> (n & U(63)).astype(np.int64)).astype(L)


SCALAR: dict[str, ScalarOp] = {
    "s_mov_b32": _op("u<u", lambda a: a, keeps_scc=True),
    "s_mov_b64": _op("d<d", lambda a: a, keeps_scc=True),
    "s_movk_i32": _op("i<i", lambda a: a, keeps_scc=True, short="i"),
    "s_brev_b32": _op("u<u", reversed_bits, keeps_scc=True),
    "s_not_b32": _op("u<u", _nonzero(lambda a: ~a)),
    "s_not_b64": _op("d<d", _nonzero(lambda a: ~a)),
    "s_cselect_b32": _op("u<uuc", lambda a, b, scc: np.where(scc, a, b), keeps_scc=True),
    "s_cselect_b64": _op("d<ddc", lambda a, b, scc: np.where(scc, a, b), keeps_scc=True),
    "s_add_i32": _op("i<ii", _overflowing(np.add)),
    "s_sub_i32": _op("i<ii", _overflowing(np.subtract)),
    "s_addk_i32": _op("i<ii", _overflowing(np.add), accumulates=True, short="i"),
    "s_add_u32": _op("u<uu", _add),
    "s_addc_u32": _op("u<uuc", _add),
    "s_sub_u32": _op("u<uu", _subtract),
    "s_subb_u32": _op("u<uuc", _subtract),
    "s_mul_i32": _op("u<uu", lambda a, b: a * b, keeps_scc=True),
    "s_mulk_i32": _op("i<ii", lambda a, b: a * b, keeps_scc=True, accumulates=True, short="i"),
    "s_mul_hi_i32": _op("i<ii", _high(np.int64), keeps_scc=True),
    "s_mul_hi_u32": _op("u<uu", _high(np.uint64), keeps_scc=True),
    "s_min_i32": _op("i<ii", _choose(np.less)),
    "s_max_i32": _op("i<ii", _choose(np.greater)),
    "s_min_u32": _op("u<uu", _choose(np.less)),
    "s_max_u32": _op("u<uu", _choose(np.greater)),
    "s_lshl_b32": _op("u<uu", _nonzero(lambda a, n: a << (n & U(31)))),
    "s_lshr_b32": _op("u<uu", _nonzero(lambda a, n: a >> (n & U(31)))),
    "s_sext_i32_i8": _op("i<i", lambda a: a.astype(np.int8).astype(np.int32), keeps_scc=True),
    "s_sext_i32_i16": _op("i<i", lambda a: a.astype(np.int16).astype(np.int32), keeps_scc=True),
    "s_ashr_i32": _op("i<ii", _nonzero(lambda a, n: a >> (n & np.int32(31)))),
    "s_lshl_b64": _op("d<du", _nonzero(lambda a, n: a << (n & U(63)).astype(L))),
    "s_lshr_b64": _op("d<du", _nonzero(lambda a, n: a >> (n & U(63)).astype(L))),
    "s_ashr_i64": _op("d<du", _nonzero(_shifted_with_sign)),
    "s_bfe_i32": _op("u<uu", _nonzero(lambda a, b: _bfe(a, b, signed=True))),
    "s_bfe_u32": _op("u<uu", _nonzero(lambda a, b: _bfe(a, b, signed=False))),
    "s_bitset0_b32": _op("u<uu", lambda a, n: a & ~(U(1) << (n & U(31))), keeps_scc=True,
                         accumulates=True),
    "s_bitset1_b32": _op("u<uu", lambda a, n: a | U(1) << (n & U(31)), keeps_scc=True,
                         accumulates=True),
    "s_bitcmp0_b32": _op("<uu", lambda a, n: a >> (n & U(31)) & U(1) == 0),
    "s_bitcmp1_b32": _op("<uu", lambda a, n: a >> (n & U(31)) & U(1) == 1),
    **{f"s_{name}_b{bits}": _op(types, _nonzero(compute)) for name, compute in _LOGIC.items()
       for bits, types in ((32, "u<uu"), (64, "d<dd"))},
    **{f"s_cmp_{name}_{kind}32": _op(f"<{kind}{kind}", compute)
       for name, compute in _COMPARISONS.items() for kind in "iu"},
    **{f"s_cmpk_{name}_{kind}32": _op(f"<{kind}{kind}", compute, short=kind)
       for name, compute in _COMPARISONS.items() for kind in "iu"},
    "s_abs_i32": _op("i<i", _nonzero(np.abs)),
    "s_bcnt1_i32_b64": _op("u<d", _nonzero(set_bits)),
    "s_cmp_eq_u64": _op("<dd", np.equal),
    "s_cmp_lg_u64": _op("<dd", np.not_equal),
}

# S_AND_SAVEEXEC_B64 and its kind: EXEC of the source and the EXEC before, which is saved.
SAVE_EXEC: dict[str, Callable[..., Any]] = {
    f"s_{name}_saveexec_b64": compute for name, compute in _LOGIC.items()}
