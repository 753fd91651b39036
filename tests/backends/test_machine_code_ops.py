"""Vector opcodes of the gfx906 interpreter, against arithmetic in Python's integers."""

import re
from pathlib import Path

import numpy as np
import pytest
from machine_programs import LANES, LONG, WORD, run, signed, words

from dscore.backends.machine_code.vector_ops import VECTOR
from dscore.core.errors import LaunchError, UnavailableError


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
    "v_accvgpr_read_b32": int, "v_accvgpr_write_b32": int, "v_accvgpr_mov_b32": int,
    "v_mov_b32": int, "v_not_b32": lambda a: ~a,
    "v_bfrev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
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
    "v_alignbyte_b32": lambda a, b, n: (a << 32 | b) >> n % 4 * 8,
    "v_bfe_u32": field, "v_bfe_i32": signed_field,
    "v_add_u32": lambda a, b: a + b, "v_sub_u32": lambda a, b: a - b,
    "v_subrev_u32": lambda a, b: b - a, "v_add3_u32": lambda a, b, c: a + b + c,
    "v_min_i16": lambda a, b: min(signed(a, 16), signed(b, 16)) % 2**16,
    "v_max_i16": lambda a, b: max(signed(a, 16), signed(b, 16)) % 2**16,
    "v_min_u16": lambda a, b: min(a % 2**16, b % 2**16),
    "v_max_u16": lambda a, b: max(a % 2**16, b % 2**16),
    "v_add_u16": lambda a, b: (a + b) % 2**16, "v_sub_u16": lambda a, b: (a - b) % 2**16,
    "v_subrev_u16": lambda a, b: (b - a) % 2**16, "v_mul_lo_u16": lambda a, b: a * b % 2**16,
    "v_mad_legacy_u16": lambda a, b, c: (a * b + c) % 2**16,
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
def test_integer_instructions(opcode):
    for form in ("v4, v1, v2", "v4, s8, v2", "v1, v1, 7"):
        _require_integers(opcode, form)


def _require_integers(opcode, form):
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
        assert result == expected(*sources) % WORD, (opcode, form, sources)


LONG_SHIFTS = {"v_lshlrev_b64": lambda n, a: a << n % 64, "v_lshrrev_b64": lambda n, a: a >> n % 64,
               "v_ashrrev_i64": lambda n, a: signed(a, 64) >> n % 64}


@pytest.mark.parametrize("opcode", LONG_SHIFTS)
def test_shifts_of_64_bits(opcode):
    low, high, count = words(1), words(2), words(3)
    after = run(f"{opcode} v[4:5], v3, v[1:2]", {1: low, 2: high, 3: count})
    for lane in range(LANES):
        wanted = LONG_SHIFTS[opcode](int(count[lane]), int(high[lane]) << 32 | int(low[lane]))
        assert int(after.v[5][0, lane]) << 32 | int(after.v[4][0, lane]) == wanted % LONG


@pytest.mark.parametrize("opcode", ["v_mad_u64_u32", "v_mad_i64_i32"])
def test_multiply_add_of_64_bits_and_its_carry(opcode):
    values = {n: words(n) for n in (1, 2, 3, 4)}
    text = f"{opcode} v[5:6], s[8:9], v1, v2, v[3:4]"
    after = run(text, values)
    number = int if opcode == "v_mad_u64_u32" else signed
    for lane in range(LANES):
        a, b, low, high = (int(values[n][lane]) for n in (1, 2, 3, 4))
        exact = number(a) * number(b) + (high << 32 | low)
        assert int(after.v[6][0, lane]) << 32 | int(after.v[5][0, lane]) == exact % LONG
        if number is int:
            assert int(after.s64[0, 4]) >> lane & 1 == exact >> 64
    if number is signed:  # whose carry the manual does not tell
        with pytest.raises(LaunchError, match="reads s8, which was never written"):
            run(f"{text}\ns_mov_b64 s[10:11], s[8:9]", values)


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


LONG_KINDS = {"i64": lambda a: signed(a, 64), "u64": int}


@pytest.mark.parametrize("kind", LONG_KINDS)
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_of_two_words(name, kind):
    low, high = words(1), words(2)
    others = [np.where(np.arange(LANES) % 3 == at, word, words(3)) for at, word in ((0, low),
                                                                                  (1, high))]
    others = [np.where(np.arange(LANES) % 5 == 0, word, other)
              for word, other in zip((low, high), others, strict=True)]
    after = run(f"v_cmp_{name}_{kind} vcc, v[1:2], v[3:4]",
                {1: low, 2: high, 3: others[0], 4: others[1]}, exec_mask=LONG - 4)
    for lane in range(LANES):
        a, b = (LONG_KINDS[kind](int(first[lane]) | int(second[lane]) << 32)
                for first, second in ((low, high), others))
        assert after.s64[0, 53] >> np.uint64(lane) & np.uint64(1) == (
            lane > 1 and eval(f"{a} {COMPARISONS[name]} {b}"))


def test_a_mask_chooses_between_two_values():
    after = run("v_cndmask_b32 v3, v1, v2, s[8:9]", {1: words(1), 2: words(2)},
                {8: 0x0F0F1234, 9: 0x80000001})
    for lane in range(LANES):
        chosen = words(2) if (0x800000010F0F1234 >> lane) & 1 else words(1)
        assert after.v[3][0, lane] == chosen[lane]


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


def test_one_lane_is_read_and_written_whether_or_not_it_executes():
    after = run("""
    v_writelane_b32 v1, s8, 5
    v_writelane_b32 v1, 9, s9
    v_readlane_b32 s10, v1, 5
    v_readlane_b32 s11, v1, s9
    v_readlane_b32 s12, v0, 40""", scalars={8: 0x12345678, 9: 63 + 64}, exec_mask=1)
    assert after.s[0, 10:13].tolist() == [0x12345678, 9, 40]
    assert [int(word) for word in after.v[1][0, [5, 63]]] == [0x12345678, 9]
    assert int(after.v_written[1][0]) == 1 << 5 | 1 << 63
    # What was never written may be kept in a lane, and come back, but not be used.
    kept = "v_writelane_b32 v1, 7, 5\nv_writelane_b32 v1, s30, 4\nv_readlane_b32 s10, v1, 4"
    run(kept)
    with pytest.raises(LaunchError, match="reads s10, which was never written"):
        run(kept + "\ns_not_b32 s11, s10")
    run(kept + "\nv_writelane_b32 v1, 3, 4\nv_readlane_b32 s10, v1, 4\ns_not_b32 s11, s10")
    with pytest.raises(LaunchError, match="reads v1, which was never written in some executing"):
        run("v_writelane_b32 v1, 7, 5\nv_not_b32 v2, v1")


def test_every_known_integer_opcode_is_tested_here():
    text = "".join(Path(__file__).with_name(f"test_machine_code_{name}.py").read_text()
                   for name in ("ops", "halves", "bytes"))
    tested = {f"v_cmp_{name}_{kind}" for name in COMPARISONS for kind in (*KINDS, *LONG_KINDS)}
    tested |= {*re.findall(r"v_[a-z0-9_]+", text)}
    integers = {opcode for opcode, op in VECTOR.items() if "f" not in op.sources + op.destinations}
    assert integers - tested == set()


def test_what_is_not_known_is_refused_by_name_before_anything_runs():
    with pytest.raises(UnavailableError, match=r"v_dot8_i32_i4.*v_sin_f32"):
        run("v_sin_f32 v1, v0\nv_dot8_i32_i4 v1, v0, v0, v0")
    for form in ("v_add_f32 v1, v0, v0 clamp", "v_add_f32 v1, v0, v0 mul:2", "v_mov_b32 v1, ttmp3",
                 "global_load_dword v1, v[2:3], off slc", "s_waitcnt 0x3f70",
                 "s_mov_b64 s[3:4], 0", "s_getreg_b32 s6, hwreg(HW_REG_SH_MEM_BASES, 0, 16)",
                 "v_and_b32 v1, -v0, v0"):
        with pytest.raises(UnavailableError, match=form.split()[0]):
            run(form)


def test_wavefronts_that_poll_what_nobody_changes_are_one_error():
    with pytest.raises(LaunchError, match="blocks wait for one another"):
        run("again:\ns_sleep 1\ns_branch again")


def test_a_kernel_that_does_not_end_is_one_error(monkeypatch):
    from dscore.backends.machine_code import launch
    monkeypatch.setattr(launch, "_MOST_STEPS", 100)
    with pytest.raises(LaunchError, match="does not end"):
        run("again:\ns_nop 0\ns_branch again")
