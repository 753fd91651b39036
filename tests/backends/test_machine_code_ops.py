"""Opcodes of the gfx906 interpreter, against arithmetic in Python's integers and fractions."""

import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_programs import LANES, run

from dscore.backends.machine_code import arithmetic
from dscore.backends.machine_code.scalar_ops import SCALAR
from dscore.backends.machine_code.vector_ops import VECTOR
from dscore.core.errors import LaunchError, UnavailableError

WORD, LONG = 2**32, 2**64
EDGES = [0, 1, 2, 3, 31, 32, 33, 63, 64, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFF,
         0x800000, 0xFFFFFF, 0x1000000, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF]


def words(seed):
    """Values of 64 lanes: edges and random ones, in a random order."""
    random = np.random.default_rng(seed)
    return random.permutation(np.concatenate(
        [EDGES, random.integers(0, WORD, LANES - len(EDGES))])).astype(np.int64)


def signed(value, bits=32):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def s24(value):
    return signed(value, 24)


def u24(value):
    return value & 0xFFFFFF


def field(value, first, width):
    return value >> (first & 31) & ((1 << (width & 31)) - 1)


def signed_field(value, first, width):
    return signed(field(value, first, width), width & 31) if width & 31 else 0


# Results of integer instructions of two or three sources, modulo 2**32.
INTEGER = {
    "v_mov_b32": int, "v_not_b32": lambda a: ~a,
    "v_and_b32": lambda a, b: a & b, "v_or_b32": lambda a, b: a | b,
    "v_xor_b32": lambda a, b: a ^ b, "v_or3_b32": lambda a, b, c: a | b | c,
    "v_and_or_b32": lambda a, b, c: (a & b) | c, "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_bfi_b32": lambda a, b, c: (a & b) | (~a & c),
    "v_lshlrev_b32": lambda n, a: a << n % 32, "v_lshrrev_b32": lambda n, a: a >> n % 32,
    "v_ashrrev_i32": lambda n, a: signed(a) >> n % 32,
    "v_lshlrev_b16": lambda n, a: (a << n % 16) % 2**16,
    "v_lshrrev_b16": lambda n, a: a % 2**16 >> n % 16,
    "v_ashrrev_i16": lambda n, a: (signed(a, 16) >> n % 16) % 2**16,
    "v_lshl_add_u32": lambda a, n, b: (a << n % 32) + b,
    "v_lshl_or_b32": lambda a, n, b: a << n % 32 | b,
    "v_add_lshl_u32": lambda a, b, n: a + b << n % 32,
    "v_alignbit_b32": lambda a, b, n: (a << 32 | b) >> n % 32,
    "v_bfe_u32": field, "v_bfe_i32": signed_field,
    "v_add_u32": lambda a, b: a + b, "v_sub_u32": lambda a, b: a - b,
    "v_subrev_u32": lambda a, b: b - a, "v_add3_u32": lambda a, b, c: a + b + c,
    "v_add_u16": lambda a, b: (a + b) % 2**16, "v_sub_u16": lambda a, b: (a - b) % 2**16,
    "v_subrev_u16": lambda a, b: (b - a) % 2**16, "v_mul_lo_u16": lambda a, b: a * b % 2**16,
    "v_min_i32": lambda a, b: min(signed(a), signed(b)),
    "v_max_i32": lambda a, b: max(signed(a), signed(b)),
    "v_min_u32": min, "v_max_u32": max, "v_mul_lo_u32": lambda a, b: a * b,
    "v_mul_hi_u32": lambda a, b: a * b >> 32,
    "v_mul_hi_i32": lambda a, b: signed(a) * signed(b) >> 32,
    "v_mul_u32_u24": lambda a, b: u24(a) * u24(b),
    "v_mul_hi_u32_u24": lambda a, b: u24(a) * u24(b) >> 32,
    "v_mul_i32_i24": lambda a, b: s24(a) * s24(b),
    "v_mad_u32_u24": lambda a, b, c: u24(a) * u24(b) + c,
    "v_mad_i32_i24": lambda a, b, c: s24(a) * s24(b) + c,
}


@pytest.mark.parametrize("opcode", INTEGER)
@pytest.mark.parametrize("form", ["v4, v1, v2", "v4, s8, v2", "v1, v1, 7"])
def test_integer_instructions(opcode, form):
    expected, vectors = INTEGER[opcode], {n: words(n) for n in (1, 2, 3)}
    count = len(VECTOR[opcode].sources)
    names = [*form.split(", "), "v3"][:count + 1]
    after = run(f"{opcode} {', '.join(names)}", vectors, {8: 0x9E3779B9})
    for lane in range(LANES):
        values = {"v1": int(vectors[1][lane]), "v2": int(vectors[2][lane]), "s8": 0x9E3779B9,
                  "7": 7}
        values["v3"] = int(vectors[3][lane])
        sources = [values[name] for name in names[1:]]
        result = after.v[1 if form.startswith("v1") else 4][0, lane]
        assert result == expected(*sources) % WORD, (opcode, sources)


LONG_SHIFTS = {"v_lshlrev_b64": lambda n, a: a << n % 64, "v_lshrrev_b64": lambda n, a: a >> n % 64,
               "v_ashrrev_i64": lambda n, a: signed(a, 64) >> n % 64}


@pytest.mark.parametrize("opcode", LONG_SHIFTS)
def test_shifts_of_64_bits(opcode):
    low, high, count = words(1), words(2), words(3)
    after = run(f"{opcode} v[4:5], v3, v[1:2]", {1: low, 2: high, 3: count})
    for lane in range(LANES):
        wanted = LONG_SHIFTS[opcode](int(count[lane]), int(high[lane]) << 32 | int(low[lane]))
        assert int(after.v[5][0, lane]) << 32 | int(after.v[4][0, lane]) == wanted % LONG


def test_multiply_add_of_64_bits_and_its_carry():
    values = {n: words(n) for n in (1, 2, 3, 4)}
    after = run("v_mad_u64_u32 v[5:6], s[8:9], v1, v2, v[3:4]", values)
    for lane in range(LANES):
        a, b, low, high = (int(values[n][lane]) for n in (1, 2, 3, 4))
        exact = a * b + (high << 32 | low)
        assert int(after.v[6][0, lane]) << 32 | int(after.v[5][0, lane]) == exact % LONG
        assert int(after.s64[0, 4]) >> lane & 1 == exact >> 64


CARRIES = {
    "v_add_co_u32": lambda a, b, c: a + b, "v_addc_co_u32": lambda a, b, c: a + b + c,
    "v_sub_co_u32": lambda a, b, c: a - b, "v_subb_co_u32": lambda a, b, c: a - b - c,
    "v_subrev_co_u32": lambda a, b, c: b - a, "v_subbrev_co_u32": lambda a, b, c: b - a - c,
}


@pytest.mark.parametrize("opcode", CARRIES)
def test_sums_with_carries(opcode):
    a, b, carry, lanes = words(1), words(2), 0xF0F0123456789ABC, 0x0FFFFFFFFFFFFFFE
    source = ", s[10:11]" if VECTOR[opcode].sources.endswith("m") else ""
    after = run(f"{opcode} v4, s[8:9], v1, v2{source}", {1: a, 2: b, 4: np.zeros(LANES)},
                {10: carry, 11: carry >> 32}, exec_mask=lanes)
    for lane in range(LANES):
        exact = CARRIES[opcode](int(a[lane]), int(b[lane]), carry >> lane & 1)
        there = lanes >> lane & 1
        assert after.v[4][0, lane] == (exact % WORD if there else 0)
        assert int(after.s64[0, 4]) >> lane & 1 == (there and not 0 <= exact < WORD)


COMPARISONS = {"lt": "<", "eq": "==", "le": "<=", "gt": ">", "ne": "!=", "ge": ">="}
KINDS = {"i32": signed, "u32": int, "i16": lambda a: signed(a, 16), "u16": lambda a: a % 2**16}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", COMPARISONS)
def test_integer_comparisons(name, kind):
    a, b = words(1), np.where(np.arange(LANES) % 3 == 0, words(1), words(2))
    after = run(f"v_cmp_{name}_{kind} vcc, v1, v2", {1: a, 2: b}, exec_mask=LONG - 4)
    for lane in range(LANES):
        text = f"{KINDS[kind](int(a[lane]))} {COMPARISONS[name]} {KINDS[kind](int(b[lane]))}"
        assert after.s64[0, 53] >> np.uint64(lane) & np.uint64(1) == (lane > 1 and eval(text))


FLOATS = [0.0, -0.0, 1.0, -1.0, 1.5, math.inf, -math.inf, math.nan, 2.0**-149, -2.0**-130, 3e38,
          2.0**-126, 6.0, 1 + 2.0**-23]


def bits(values):
    return np.asarray(values, np.float32).view(np.uint32).astype(np.int64)


@pytest.mark.parametrize(("name", "text"), [
    *COMPARISONS.items(), ("nlt", "not {} <"), ("ngt", "not {} >"), ("nle", "not {} <="),
    ("nge", "not {} >="), ("neq", "not {} =="), ("lg", "<>"), ("nlg", "not <>"), ("u", "nan"),
    ("o", "not nan")])
def test_float_comparisons(name, text):
    if f"v_cmp_{name}_f32" not in VECTOR:
        assert name == "ne"
        return
    pairs = [(a, b) for a in FLOATS for b in FLOATS]
    for start in range(0, len(pairs) - LANES, LANES):
        part = pairs[start:start + LANES]
        after = run(f"v_cmp_{name}_f32 vcc, v1, v2",
                    {1: bits([a for a, _ in part]), 2: bits([b for _, b in part])})
        for lane, (a, b) in enumerate(part):
            plain = text.replace("not ", "").replace("{} ", "")
            ordered = {"<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b, "==": a == b,
                       "<>": a < b or a > b, "nan": math.isnan(a) or math.isnan(b)}[plain]
            assert bool(int(after.s64[0, 53]) >> lane & 1) == (ordered != text.startswith("not"))


def rounded(exact):
    """The float32 nearest to a fraction, ties to even."""
    if exact == 0:
        return 0.0
    exponent = max(math.floor(math.log2(abs(exact))) - 24, -149)
    unit = Fraction(2) ** exponent
    while abs(exact) / unit >= 2**24:
        unit *= 2
    count = abs(exact) / unit
    whole = math.floor(count)
    rest = count - whole
    whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
    value = whole * unit
    return math.copysign(math.inf if value >= 2**128 else float(value), exact)


SINGLES = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(SINGLES, SINGLES, SINGLES)
@settings(max_examples=300)
def test_sums_products_and_multiply_adds_are_rounded_once(a, b, c):
    after = run("""
    v_fma_f32 v4, v1, v2, v3
    v_fma_f32 v5, -v1, |v2|, v3
    v_add_f32 v6, v1, v3
    v_sub_f32 v7, v1, v3
    v_subrev_f32 v8, v1, v3
    v_mul_f32 v9, v1, v2
    v_fmac_f32 v3, v1, v2""", {n: np.full(LANES, bits(value))
                               for n, value in ((1, a), (2, b), (3, c))})
    x, y, z = Fraction(a), Fraction(b), Fraction(c)
    wanted = {3: x * y + z, 4: x * y + z, 5: -x * abs(y) + z, 6: x + z, 7: x - z, 8: z - x,
              9: x * y}
    assert {n: float(after.vf[n][0, 5]) for n in wanted} == {
        n: rounded(exact) for n, exact in wanted.items()}


def test_a_multiply_add_next_to_the_middle_of_two_floats_is_rounded_by_its_exact_rest():
    # 2^-24 - 2^-70 times an odd multiple of the unit: the sum's float64 is just the middle.
    almost = (1 + 2.0**-23) * 2.0**-24, 1 - 2.0**-23
    cases = [(sign * almost[0] * 2.0**power, almost[1], (1 + odd * 2.0**-23) * 2.0**power)
             for odd in (1, 3, 2**22 + 1, 2**23 - 1) for power in (-60, 0, 90) for sign in (1, -1)]
    # Results below the normal range, where a float32 has fewer bits.
    cases += [(2.0**-75, 2.0**-75, 2.0**-149), (-2.0**-75, 2.0**-75, 2.0**-126),
              (3 * 2.0**-76, -2.0**-76, 5 * 2.0**-149), (2.0**-75, -2.0**-75, 2.0**-149),
              (2.0**-75, 1.5 * 2.0**-75, 0.0), (2.0**-75, 2.0**-75, 0.0),
              (almost[0] * 2.0**-60, almost[1] * 2.0**-66, 3 * 2.0**-149)]
    a, b, c = (np.array(one, np.float32) for one in zip(*cases, strict=True))
    result = arithmetic.fma(a, b, c)
    twice = (a.astype(np.float64) * b + c).astype(np.float32)
    exact = [rounded(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))
             for x, y, z in zip(a, b, c, strict=True)]
    assert np.array_equal(result, np.array(exact, np.float32))
    assert (twice != result).sum() >= 20  # or the cases show nothing


def quotient(a, b):
    """a / b of the steps that compilers expand a division to."""
    text = """
    v_div_scale_f32 v3, s[8:9], v2, v2, v1
    v_div_scale_f32 v4, vcc, v1, v2, v1
    v_rcp_f32 v5, v3
    v_fma_f32 v6, -v3, v5, 1.0
    v_fma_f32 v5, v6, v5, v5
    v_mul_f32 v7, v4, v5
    v_fma_f32 v8, -v3, v7, v4
    v_fma_f32 v7, v8, v5, v7
    v_fma_f32 v3, -v3, v7, v4
    v_div_fmas_f32 v3, v3, v5, v7
    v_div_fixup_f32 v9, v3, v2, v1"""
    return run(text, {1: bits(a), 2: bits(b)}).vf[9][0]


def test_a_division_is_rounded_once_over_the_whole_range():
    random = np.random.default_rng(1)
    for _ in range(60):
        a, b = (random.integers(0, WORD, LANES).astype(np.uint32).view(np.float32)
                for _ in range(2))
        with np.errstate(all="ignore"):
            wanted = a / b
        # A quotient below the normal range is rounded twice, by the hardware too.
        normal = ~((np.abs(wanted) < 2.0**-126) & (wanted != 0))
        assert np.array_equal(quotient(a, b)[normal], wanted[normal], equal_nan=True)
    pairs = np.array([(a, b) for a in FLOATS[:8] for b in FLOATS[:8]], np.float32).T
    with np.errstate(all="ignore"):
        assert np.array_equal(quotient(*pairs), pairs[0] / pairs[1], equal_nan=True)


def test_conversions_and_powers():
    values = [0.5, 1.5, 2.5, -0.5, -1.5, 3e9, 5e9, -5e9, 1e30, -1e30, math.nan, math.inf, -math.inf,
              -7.9, 7.9, 2.0**31]
    values += [0.0] * (LANES - len(values))
    after = run("""
    v_cvt_i32_f32 v2, v1
    v_cvt_u32_f32 v3, v1
    v_rndne_f32 v4, v1
    v_cvt_f32_u32 v5, v0
    v_ldexp_f32 v6, v1, -2
    v_cvt_f32_i32 v7, v8""", {1: bits(values), 8: words(5)})

    def clipped(value, low, high):
        return 0 if math.isnan(value) else int(min(max(value, low), high))
    for lane, value in enumerate(np.array(values, np.float32).tolist()):
        assert after.vi[2][0, lane] == clipped(value, -2**31, 2**31 - 1)
        assert after.v[3][0, lane] == clipped(value, 0, 2**32 - 1)
        if math.isfinite(value):
            assert after.vf[4][0, lane] == round(value)
            assert after.vf[6][0, lane] == value / 4
        assert after.vf[5][0, lane] == lane
        assert after.vf[7][0, lane] == rounded(Fraction(signed(int(words(5)[lane]))))


def test_the_exponential_and_the_reciprocal_are_within_an_ulp():
    values = np.linspace(-130, 127, LANES).astype(np.float32)
    after = run("v_exp_f32 v2, v1\nv_rcp_f32 v3, v1\nv_rcp_iflag_f32 v4, v1", {1: bits(values)})
    for lane, value in enumerate(values.tolist()):
        for register, exact in ((2, 2.0**value), (3, 1 / value), (4, 1 / value)):
            error = abs(after.vf[register][0, lane] - exact)
            assert error <= np.spacing(np.float32(abs(exact)))


def test_whole_parts():
    values = [1.5, -1.5, 2.0, -0.25, 2.0**70, -7.75, 0.75, -0.0] * 8
    after = run("v_trunc_f32 v2, v1\nv_floor_f32 v3, v1", {1: bits(values)})
    assert after.vf[2][0].tolist() == [math.trunc(value) for value in values]
    assert after.vf[3][0].tolist() == [math.floor(value) for value in values]


def test_a_mask_chooses_between_two_values():
    after = run("v_cndmask_b32 v3, v1, v2, s[8:9]", {1: words(1), 2: words(2)},
                {8: 0x0F0F1234, 9: 0x80000001})
    for lane in range(LANES):
        chosen = words(2) if (0x800000010F0F1234 >> lane) & 1 else words(1)
        assert after.v[3][0, lane] == chosen[lane]


LONGS = {"s_not_b64": lambda a, b: ~a, "s_mov_b64": lambda a, b: a,
         "s_lshl_b64": lambda a, b: a << b % 64, "s_lshr_b64": lambda a, b: a >> b % 64,
         **{f"s_{name}_b64": logic for name, logic in {
             "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
             "andn2": lambda a, b: a & ~b, "orn2": lambda a, b: a | ~b,
             "nand": lambda a, b: ~(a & b), "nor": lambda a, b: ~(a | b),
             "xnor": lambda a, b: ~(a ^ b)}.items()}}


@pytest.mark.parametrize("opcode", LONGS)
def test_scalar_instructions_of_64_bits(opcode):
    a, b = 0x8000_0000_1234_5678, 0xFFFF_0000_0000_0021
    source = {"s_not_b64": "", "s_mov_b64": "", "s_lshl_b64": ", s10", "s_lshr_b64": ", s10"}.get(
        opcode, ", s[10:11]")
    after = run(f"{opcode} s[12:13], s[8:9]{source}",
                scalars={8: a, 9: a >> 32, 10: b, 11: b >> 32})
    result = LONGS[opcode](a, b) % LONG
    assert int(after.s64[0, 6]) == result
    assert opcode == "s_mov_b64" or after.scc[0] == (result != 0)


@pytest.mark.parametrize("kind", "iu")
@pytest.mark.parametrize("name", ["eq", "lg", "gt", "ge", "lt", "le"])
def test_scalar_comparisons(name, kind):
    sign = {"eq": "==", "lg": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}[name]
    for a in EDGES:
        for b in (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFF8000):
            x, y = (signed(a), signed(b)) if kind == "i" else (a, b)
            assert run(f"s_cmp_{name}_{kind}32 s8, s9", scalars={8: a, 9: b}).scc[0] == eval(
                f"{x} {sign} {y}")
    short = -32768 if kind == "i" else 0x8000
    after = run(f"s_cmpk_{name}_{kind}32 s8, 0x8000", scalars={8: short})
    assert after.scc[0] == (name in ("eq", "ge", "le"))


def test_long_sums_of_scalars_carry_over():
    after = run("""
    s_add_u32 s12, s8, s10
    s_addc_u32 s13, s9, s11
    s_sub_u32 s14, s8, s10
    s_subb_u32 s15, s9, s11
    s_cmp_eq_u64 s[14:15], s[14:15]
    s_cselect_b32 s16, 1, 2
    s_cmp_lg_u64 s[14:15], s[14:15]
    s_cselect_b64 s[18:19], s[12:13], s[14:15]""",
                scalars={8: 0x80000001, 9: 5, 10: 0x80000002, 11: 1})
    a, b = 5 << 32 | 0x80000001, 1 << 32 | 0x80000002
    assert [int(after.s64[0, n]) for n in (6, 7, 9)] == [a + b, a - b, a - b]
    assert after.s[0, 16] == 1


def test_words_of_scalars():
    after = run("""
    s_not_b32 s9, s8
    s_mov_b32 s10, s9
    s_bitcmp0_b32 s8, 4
    s_cselect_b32 s11, s8, 7""", scalars={8: 0x10})
    assert after.s[0, 9:12].tolist() == [WORD - 0x11, WORD - 0x11, 7]


def test_selected_parts_of_registers():
    values = words(1)
    after = run("""
    v_add_u32_sdwa v2, v1, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_2 src1_sel:WORD_1
    v_mul_i32_i24_sdwa v4, sext(v1), v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_0 \
src1_sel:DWORD
    v_cmp_lt_u16_sdwa vcc, v1, v3 src0_sel:BYTE_1 src1_sel:DWORD""", {1: values, 3: words(2)})
    for lane, (a, b) in enumerate(zip(values.tolist(), words(2).tolist(), strict=True)):
        assert after.v[2][0, lane] == (a >> 16 & 0xFF) + (b >> 16)
        assert after.v[4][0, lane] == signed(a, 16) * s24(b) % WORD
        assert int(after.s64[0, 53]) >> lane & 1 == ((a >> 8 & 0xFF) < b % 2**16)


SCALARS = {
    "s_add_i32": lambda a, b: (a + b, not -2**31 <= signed(a) + signed(b) < 2**31),
    "s_sub_i32": lambda a, b: (a - b, not -2**31 <= signed(a) - signed(b) < 2**31),
    "s_add_u32": lambda a, b: (a + b, a + b >= WORD), "s_sub_u32": lambda a, b: (a - b, b > a),
    "s_mul_i32": lambda a, b: (a * b, None),
    "s_mul_hi_i32": lambda a, b: (signed(a) * signed(b) >> 32, None),
    "s_mul_hi_u32": lambda a, b: (a * b >> 32, None),
    "s_min_i32": lambda a, b: (min(signed(a), signed(b)), signed(a) < signed(b)),
    "s_max_i32": lambda a, b: (max(signed(a), signed(b)), signed(a) > signed(b)),
    "s_min_u32": lambda a, b: (min(a, b), a < b), "s_max_u32": lambda a, b: (max(a, b), a > b),
    "s_lshl_b32": lambda a, b: (a << b % 32, (a << b % 32) % WORD != 0),
    "s_lshr_b32": lambda a, b: (a >> b % 32, a >> b % 32 != 0),
    "s_ashr_i32": lambda a, b: (signed(a) >> b % 32, signed(a) >> b % 32 != 0),
    **{f"s_{name}_b32": lambda a, b, logic=logic: (logic(a, b), logic(a, b) % WORD != 0)
       for name, logic in {
           "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
           "andn2": lambda a, b: a & ~b, "orn2": lambda a, b: a | ~b, "nand": lambda a, b: ~(a & b),
           "nor": lambda a, b: ~(a | b), "xnor": lambda a, b: ~(a ^ b)}.items()},
}


@pytest.mark.parametrize("opcode", SCALARS)
def test_scalar_instructions(opcode):
    for a in EDGES[::2]:
        for b in (0, 1, 5, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
            after = run(f"s_cmp_eq_u32 s8, s8\n{opcode} s10, s8, s9", scalars={8: a, 9: b})
            result, scc = SCALARS[opcode](a, b)
            assert after.s[0, 10] == result % WORD, (a, b)
            assert after.scc[0] == (True if scc is None else scc), (a, b)


@pytest.mark.parametrize(("constant", "value"), [("0x8000", -32768), ("0x7f", 127), ("-3", -3)])
def test_constants_of_16_bits_are_signed(constant, value):
    after = run(f"s_movk_i32 s8, {constant}\ns_addk_i32 s9, {constant}\ns_mulk_i32 s10, {constant}",
                scalars={9: 7, 10: -5})
    assert after.si[0, 8:11].tolist() == [value, 7 + value, -5 * value]


def test_fields_of_scalars_and_bit_tests():
    for first in (0, 3, 31):
        for width in (0, 1, 8, 32):
            after = run("s_bfe_i32 s9, s8, s10\ns_bfe_u32 s11, s8, s10",
                        scalars={8: 0xF0A5_81C3, 10: width << 16 | first})
            exact = 0xF0A5_81C3 >> first & (1 << width) - 1
            assert after.s[0, 11] == exact
            assert after.si[0, 9] == (signed(exact, width) if width else 0)
    after = run("s_bitcmp1_b32 s8, 33\ns_cselect_b32 s9, 5, 6", scalars={8: 2})
    assert after.s[0, 9] == 5


def test_saved_execs():
    for opcode, wanted in (("and", 0b1000), ("or", 0b1110), ("andn2", 0b0010)):
        after = run(f"s_{opcode}_saveexec_b64 s[8:9], s[8:9]\ns_mov_b64 s[10:11], exec",
                    scalars={8: 0b1010, 9: 0}, exec_mask=0b1100)
        assert (after.s64[0, 4], after.s64[0, 5]) == (0b1100, wanted), opcode
        assert after.scc[0]


def test_lanes_count_those_below_them():
    after = run("v_mbcnt_lo_u32_b32 v1, -1, 0\nv_mbcnt_hi_u32_b32 v1, -1, v1")
    assert after.v[1][0].tolist() == [*range(LANES)]
    after = run("v_mbcnt_lo_u32_b32 v1, s8, 3\nv_mbcnt_hi_u32_b32 v1, s9, v1",
                scalars={8: 0x80000005, 9: 3})
    lanes = [0, 2, 31, 32, 33]
    assert after.v[1][0].tolist() == [3 + sum(n < lane for n in lanes) for lane in range(LANES)]


def test_the_first_lane_is_the_lowest_that_executes():
    text = "v_readfirstlane_b32 s8, v0"
    assert run(text, exec_mask=0b11000).s[0, 8] == 3
    assert run(text, exec_mask=0).s[0, 8] == 0


def test_every_known_opcode_is_tested_here():
    text = Path(__file__).read_text()
    tested = {f"v_cmp_{name}_{kind}" for name in COMPARISONS for kind in KINDS}
    tested |= {f"s_cmp{k}_{name}_{kind}32" for k in ("", "k") for kind in "iu"
               for name in ("eq", "lg", "gt", "ge", "lt", "le")}
    tested |= {opcode for opcode in VECTOR if opcode.startswith("v_cmp_") and "f32" in opcode}
    tested |= {*SCALARS, *LONGS, *re.findall(r"[sv]_[a-z0-9_]+", text)}
    assert {*VECTOR, *SCALAR} - tested == set()


def test_what_is_not_known_is_refused_by_name_before_anything_runs():
    with pytest.raises(UnavailableError, match=r"v_dot4_i32_i8.*v_sin_f32"):
        run("v_sin_f32 v1, v0\nv_dot4_i32_i8 v1, v0, v0, v0")
    for form in ("v_add_f32 v1, v0, v0 clamp", "v_add_f32 v1, v0, v0 mul:2", "v_mov_b32 v1, ttmp3",
                 "global_load_dword v1, v[2:3], off glc", "s_waitcnt 0x3f70",
                 "s_mov_b64 s[3:4], 0", "v_and_b32 v1, -v0, v0"):
        with pytest.raises(UnavailableError, match=form.split()[0]):
            run(form)


def test_a_kernel_that_does_not_end_is_one_error(monkeypatch):
    from dscore.backends.machine_code import launch
    monkeypatch.setattr(launch, "_MOST_STEPS", 100)
    with pytest.raises(LaunchError, match="does not end"):
        run("again:\ns_nop 0\ns_branch again")
