"""Scalar opcodes of the gfx906 interpreter, against arithmetic in Python's integers."""

import re
from pathlib import Path

import pytest
from machine_programs import EDGES, LONG, WORD, run, signed

from dscore.backends.machine_code.scalar_ops import SCALAR

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


LONGS = {"s_not_b64": lambda a, b: ~a, "s_mov_b64": lambda a, b: a,
         "s_lshl_b64": lambda a, b: a << b % 64, "s_lshr_b64": lambda a, b: a >> b % 64,
         "s_ashr_i64": lambda a, b: signed(a, 64) >> b % 64,
         **{f"s_{name}_b64": logic for name, logic in {
             "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
             "andn2": lambda a, b: a & ~b, "orn2": lambda a, b: a | ~b,
             "nand": lambda a, b: ~(a & b), "nor": lambda a, b: ~(a | b),
             "xnor": lambda a, b: ~(a ^ b)}.items()}}


@pytest.mark.parametrize("opcode", LONGS)
def test_scalar_instructions_of_64_bits(opcode):
    a, b = 0x8000_0000_1234_5678, 0xFFFF_0000_0000_0021
    source = {"s_not_b64": "", "s_mov_b64": "", "s_lshl_b64": ", s10", "s_lshr_b64": ", s10",
              "s_ashr_i64": ", s10"}.get(
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
    s_cselect_b32 s11, s8, 7
    s_brev_b32 s12, s8
    s_sext_i32_i8 s13, s9
    s_sext_i32_i16 s14, s12
    s_mov_b32 s15, s8
    s_bitset1_b32 s15, 33
    s_bitset0_b32 s15, 4""", scalars={8: 0x10})
    assert after.s[0, 9:13].tolist() == [WORD - 0x11, WORD - 0x11, 7, 0x08000000]
    assert after.s[0, 13:16].tolist() == [WORD - 0x11, 0, 2]


def test_absolute_values():
    after = run("""
    s_abs_i32 s10, s8
    s_cselect_b32 s11, 1, 2
    s_abs_i32 s12, 0
    s_cselect_b32 s13, 1, 2
    s_abs_i32 s14, s9""", scalars={8: WORD - 5, 9: 0x80000000})
    assert after.s[0, 10:15].tolist() == [5, 1, 0, 2, 0x80000000]


def test_bits_are_counted():
    after = run("s_bcnt1_i32_b64 s10, s[8:9]\ns_cselect_b32 s11, 1, 2\n"
                "s_bcnt1_i32_b64 s12, 0\ns_cselect_b32 s13, 1, 2", scalars={8: 0x80000001, 9: 0xF0})
    assert after.s[0, 10:14].tolist() == [6, 1, 0, 2]


def test_every_known_scalar_opcode_is_tested_here():
    text = Path(__file__).read_text()
    tested = {f"s_cmp{k}_{name}_{kind}32" for k in ("", "k") for kind in "iu"
              for name in ("eq", "lg", "gt", "ge", "lt", "le")}
    tested |= {*SCALARS, *LONGS, *re.findall(r"s_[a-z0-9_]+", text)}
    assert {*SCALAR} - tested == set()
