"""Float opcodes of the gfx906 interpreter, against arithmetic in Python's fractions."""

import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_programs import LANES, WORD, run, signed, words
from profiles import examples

from dscore.backends.machine_code import arithmetic
from dscore.backends.machine_code.vector_ops import VECTOR

COMPARISONS = {"lt": "<", "eq": "==", "le": "<=", "gt": ">", "ge": ">="}
FLOATS = [0.0, -0.0, 1.0, -1.0, 1.5, math.inf, -math.inf, math.nan, 2.0**-149, -2.0**-130, 3e38,
          2.0**-126, 6.0, 1 + 2.0**-23]


def bits(values):
    return np.asarray(values, np.float32).view(np.uint32).astype(np.int64)


@pytest.mark.parametrize(("name", "text"), [
    *COMPARISONS.items(), ("nlt", "not {} <"), ("ngt", "not {} >"), ("nle", "not {} <="),
    ("nge", "not {} >="), ("neq", "not {} =="), ("lg", "<>"), ("nlg", "not <>"), ("u", "nan"),
    ("o", "not nan")])
def test_float_comparisons(name, text):
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
@settings(max_examples=examples(300))
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


@given(SINGLES, SINGLES, SINGLES)
@settings(max_examples=100)
def test_a_multiply_add_of_two_roundings_takes_denormals_for_zeros(a, b, c):
    def flushed(value):
        return 0.0 if abs(value) < 2.0**-126 else value

    after = run("v_mad_f32 v4, -v1, v2, v3", {n: np.full(LANES, bits(value))
                                              for n, value in ((1, a), (2, b), (3, c))})
    product = flushed(rounded(-Fraction(flushed(a)) * Fraction(flushed(b))))
    wanted = product if math.isinf(product) else flushed(
        rounded(Fraction(product) + Fraction(flushed(c))))
    assert float(after.vf[4][0, 5]) == wanted


def test_multiply_adds_of_two_roundings_to_their_own_sum_and_with_a_literal():
    a, b, c, literal = 1 + 2.0**-12, 1 + 2.0**-13, -1.0, float(np.float32(np.pi))
    after = run("""v_madmk_f32 v5, v1, 0x40490fdb, v3
    v_madak_f32 v6, v1, v2, 0x40490fdb
    v_mac_f32 v3, v1, v2""", {n: np.full(LANES, bits(value))
                              for n, value in ((1, a), (2, b), (3, c))})
    wanted = {3: rounded(Fraction(a) * Fraction(b)) + c,
              5: rounded(Fraction(a) * Fraction(literal)) + c,
              6: rounded(Fraction(rounded(Fraction(a) * Fraction(b))) + Fraction(literal))}
    assert {n: float(after.vf[n][0, 5]) for n in wanted} == wanted
    assert wanted[3] != rounded(Fraction(a) * Fraction(b) + Fraction(c))


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


def test_a_mask_chooses_floats_without_their_signs():
    after = run("v_cndmask_b32 v3, |v1|, -v2, s[8:9]", {1: words(1), 2: words(2)},
                {8: 0xFFFF0000, 9: 0})
    for lane in range(LANES):
        wanted = words(2)[lane] ^ 0x80000000 if 16 <= lane < 32 else words(1)[lane] & 0x7FFFFFFF
        assert after.v[3][0, lane] == wanted


def test_every_known_float_opcode_is_tested_here():
    text = "".join(Path(__file__).with_name(f"test_machine_code_{name}.py").read_text()
                   for name in ("floats", "halves", "bytes"))
    tested = {*re.findall(r"v_[a-z0-9_]+", text),
              *(opcode for opcode in VECTOR if opcode.startswith("v_cmp_"))}
    floats = {opcode for opcode, op in VECTOR.items() if "f" in op.sources + op.destinations}
    assert floats - tested == set()
