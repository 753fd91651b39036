"""Instructions of 16 bits: accesses of halves, float16 numbers, multiply-adds of both widths."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_programs import LANES, address, run, words

from dscore.core.errors import LaunchError, UnavailableError

SHORT = [("x", np.zeros(2, np.uint16), False)]  # by which LDS holds elements of 16 bits, too
HALVES = np.arange(1000, 1000 + 2 * LANES, dtype=np.uint16)


def stepping(bytes_of_lane):
    """Offsets of the lanes."""
    return np.arange(LANES) * bytes_of_lane


def test_loads_of_halves_clear_the_other_half_or_keep_it():
    after = run("""
    global_load_ushort v2, v1, s[4:5] offset:2
    global_load_short_d16 v3, v1, s[4:5]
    global_load_short_d16_hi v4, v1, s[4:5]
    s_waitcnt vmcnt(0)""", {1: stepping(2), **dict.fromkeys((2, 3, 4), np.full(LANES, 0xABCD1234))},
        address(0), [("x", HALVES, False)])
    assert np.array_equal(after.v[2][0], HALVES[1:LANES + 1])
    assert np.array_equal(after.v[3][0], HALVES[:LANES] + np.int64(0xABCD0000))
    assert np.array_equal(after.v[4][0], HALVES[:LANES].astype(np.int64) * 2**16 + 0x1234)


def test_stores_of_halves_leave_their_neighbours():
    out = np.full(4 * LANES + 1, 7, np.uint16)  # not a whole number of words
    run("""
    global_store_short v1, v2, s[4:5]
    global_store_short_d16_hi v1, v2, s[4:5] offset:6""", {1: stepping(8), 2: words(1)},
        address(0), [("y", out, True)])
    low, high = words(1) & 0xFFFF, words(1) >> 16
    assert np.array_equal(out[:-1].reshape(LANES, 4),
                          np.stack([low, 0 * low + 7, 0 * low + 7, high], -1))
    assert out[-1] == 7


@pytest.mark.parametrize(("opcode", "offset", "fault"), [
    ("global_load_ushort v2, v1, s[4:5]", -1, "no multiple of 2 bytes"),
    ("global_load_ushort v2, v1, s[4:5]", 2, "accesses bytes"),
    ("global_load_dword v2, v1, s[4:5]", 0, "accesses bytes"),  # past half a word
    ("global_load_dword v2, v1, s[4:5]", -3, "no multiple of 2 bytes")])
def test_accesses_of_halves_are_checked(opcode, offset, fault):
    array = np.zeros(LANES + 1, np.uint16)
    last = 2 * LANES
    with pytest.raises(LaunchError, match=fault):
        run(opcode, {1: np.full(LANES, last + offset)}, address(0), [("x", array, False)])


def test_words_of_16_bit_elements_begin_at_any_of_them():
    out = np.zeros(2 * LANES + 1, np.uint16)
    run("""
    global_load_dword v2, v1, s[4:5] offset:2
    s_waitcnt vmcnt(0)
    global_store_dword v1, v2, s[6:7] offset:2""", {1: stepping(4)},
        address(0) | {number + 2: value for number, value in address(1).items()},
        [("x", np.append(HALVES, np.uint16(9)), False), ("y", out, True)])
    assert np.array_equal(out[1:], np.append(HALVES, 9)[1:])
    with pytest.raises(LaunchError, match="no multiple of 4 bytes"):
        run("global_load_dword v2, v1, s[4:5]", {1: stepping(2)}, address(0),
            [("x", np.zeros(LANES, np.float32), False)])


def test_wavefronts_may_write_halves_of_one_word_but_not_one_half():
    text = "v_lshlrev_b32 v1, 1, v0\nv_mov_b32 v2, 5\nglobal_store_short v1, v2, s[4:5]"
    run(text, {}, address(0), [("y", np.zeros(2 * LANES, np.uint16), True)], threads=2 * LANES)
    with pytest.raises(LaunchError, match="another wavefront writes as well"):
        run(text.replace("v_lshlrev_b32 v1, 1, v0", "v_mov_b32 v1, 2"), {}, address(0),
            [("y", np.zeros(2 * LANES, np.uint16), True)], threads=2 * LANES)
    with pytest.raises(LaunchError, match="2 bytes of an element of y, which has 4"):
        run(text, {}, address(0), [("y", np.zeros(LANES, np.float32), True)])


def test_halves_of_lds_are_written_and_read():
    after = run("""
    ds_write_b16 v1, v2
    ds_write_b16_d16_hi v1, v2 offset:2
    s_waitcnt lgkmcnt(0)
    ds_read_u16 v3, v1 offset:2
    ds_read_u16_d16_hi v4, v1
    ds_read_b32 v5, v1
    s_waitcnt lgkmcnt(0)""", {1: stepping(4), 2: words(2), 4: np.full(LANES, 0x77)}, arrays=SHORT,
        lds_bytes=256)
    assert np.array_equal(after.v[3][0], words(2) >> 16)
    assert np.array_equal(after.v[4][0], (words(2) & 0xFFFF) << 16 | 0x77)
    assert np.array_equal(after.v[5][0], words(2))


def test_a_half_of_lds_that_was_never_written():
    with pytest.raises(LaunchError, match="never written"):
        run("ds_write_b16 v1, v2\ns_waitcnt lgkmcnt(0)\nds_read_b32 v3, v1",
            {1: stepping(4), 2: words(2)}, arrays=SHORT, lds_bytes=256)


def half(value):
    """A float16 of its 16 bits, by Python's own."""
    return struct.unpack("<e", struct.pack("<H", value & 0xFFFF))[0]


def same(bits, value):
    """Whether 16 bits are the float16 of a number, or both are no number."""
    if math.isnan(value):
        return math.isnan(half(bits))
    try:
        return struct.pack("<e", value) == struct.pack("<H", bits)
    except OverflowError:  # Python's word for an infinity
        return abs(half(bits)) == float("inf")


def test_float16_to_float32_and_back():
    values = words(3)
    floats = np.float32([half(int(value)) * 1.0009 for value in values])
    floats[:4] = 65519.0, 65520.0, -1e9, 2.0**-25
    after = run("""
    v_cvt_f32_f16 v2, v1
    v_cvt_f32_f16_sdwa v3, v1 dst_sel:DWORD src0_sel:WORD_1
    v_cvt_f16_f32 v5, v4
    v_cvt_f16_f32_sdwa v7, v4 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:DWORD
    v_pack_b32_f16 v6, v1, v5""", {1: values, 4: floats.view(np.uint32)})
    for lane, value in enumerate(values.tolist()):
        for register, bits in ((2, value), (3, value >> 16)):
            number = float(after.vf[register][0, lane])
            assert np.array_equal(number, half(bits), equal_nan=True)
        assert same(int(after.v[5][0, lane]), float(floats[lane]))
    assert np.array_equal(after.v[6][0], after.v[5][0] << np.uint32(16) | values & 0xFFFF)
    assert np.array_equal(after.v[7][0], after.v[5][0] << np.uint32(16))


@settings(max_examples=60)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=3, max_size=3),
       st.lists(st.booleans(), min_size=6, max_size=6))
def test_multiply_adds_of_both_widths(values, flags):
    is_half, high = flags[:3], flags[3:]
    selections = [f"[{','.join(str(int(flag)) for flag in some)}]" for some in (high, is_half)]
    after = run("\n".join(
        f"v_fma_{name} v{register}, v1, -v2, |v3| op_sel:{selections[0]} op_sel_hi:{selections[1]}"
        for register, name in ((4, "mix_f32"), (5, "mixlo_f16"), (6, "mixhi_f16"))),
        {**{n + 1: np.full(LANES, value) for n, value in enumerate(values)},
         5: np.full(LANES, 0xABCD1234), 6: np.full(LANES, 0xABCD1234)})
    a, b, c = (half(value >> 16 * top) if short else float(np.uint32(value).view(np.float32))
               for value, short, top in zip(values, is_half, high, strict=True))
    alone = run("v_fma_f32 v4, v1, v2, v3", {n: np.float32(x).view(np.uint32) + np.zeros(LANES)
                                             for n, x in ((1, a), (2, -b), (3, abs(c)))})
    total, wanted = after.vf[4][0, 3], alone.vf[4][0, 3]
    assert np.array_equal(total, wanted, equal_nan=True)
    assert same(int(after.v[5][0, 3]) & 0xFFFF, float(wanted))
    assert int(after.v[5][0, 3]) >> 16 == 0xABCD
    assert same(int(after.v[6][0, 3]) >> 16, float(wanted))
    assert int(after.v[6][0, 3]) & 0xFFFF == 0x1234


def test_a_dot_product_of_two_is_within_the_bound_of_two_multiply_adds():
    """Its bound as a sum's: float32's denormals may be zeros, and where it rounds is open."""
    random = np.random.default_rng(3)
    a, b = (random.standard_normal((LANES, 2)).astype(np.float16) for _ in range(2))
    total = random.standard_normal(LANES).astype(np.float32)
    a[0], total[0] = (0, 0), 1e-40
    given = {1: a.view(np.uint32)[:, 0], 2: b.view(np.uint32)[:, 0], 3: total.view(np.uint32)}
    after = run("v_dot2_f32_f16 v4, v1, v2, v3", given).v[4][0].view(np.float32)
    products = a.astype(np.float64) * b
    exact, size = products.sum(1) + total, np.abs(products).sum(1) + np.abs(total)
    assert np.all(np.abs(after - exact) <= 3 * 2.0**-24 * size + 3 * 2.0**-126)
    assert after[0] == 0


@pytest.mark.parametrize(("opcode", "shift"), [
    ("v_pk_lshlrev_b16", lambda value, by: value << by & 0xFFFF),
    ("v_pk_lshrrev_b16", lambda value, by: value >> by),
    ("v_pk_ashrrev_i16", lambda value, by: (value - (value >> 15 << 16)) >> by & 0xFFFF)])
@pytest.mark.parametrize(("modifiers", "places"), [
    ("", ((0, 0), (1, 1))), (" op_sel_hi:[1,0]", ((0, 0), (1, 0))),
    (" op_sel:[1,0] op_sel_hi:[0,1]", ((1, 0), (0, 1)))])
def test_both_halves_are_shifted_by_four_bits_of_a_half(modifiers, places, opcode, shift):
    by, value = words(2) & 0x001F001F, words(3)
    after = run(f"{opcode} v4, v2, v3{modifiers}", {2: by, 3: value, 4: words(4)})

    def half(of, place):
        return of.astype(np.int64) >> 16 * place & 0xFFFF

    low, high = (shift(half(value, at), half(by, of) & 15) for of, at in places)
    assert np.array_equal(after.v[4][0], low | high << 16)


def test_the_high_half_of_a_constant_is_refused():
    with pytest.raises(UnavailableError, match="the high half of a constant"):
        run("v_pk_lshlrev_b16 v4, 3, v2", {2: words(1)})
    after = run("v_pk_lshlrev_b16 v4, 3, v2 op_sel_hi:[0,1]", {2: words(1)})
    low, high = (words(1) & 0xFFFF) << 3 & 0xFFFF, (words(1) >> 16) << 3 & 0xFFFF
    assert np.array_equal(after.v[4][0], low | high << 16)
