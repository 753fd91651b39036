"""Instructions of bytes: accesses of 8 bits, dot products, orders, parts, products of matrices."""

import math

import numpy as np
import pytest
from machine_programs import LANES, WORD, address, run, signed, words

from dscore.core.errors import LaunchError, UnavailableError

BYTES = np.random.default_rng(5).integers(0, 256, 2 * LANES + 3).astype(np.uint8)
KEPT = np.full(LANES, 0xABCD1234)
OUT = [("y", np.zeros(1, np.int8), True)]  # by which LDS holds bytes, too


def lanes(*names):
    """Values of the registers, lane by lane, as Python's integers."""
    return zip(*([int(word) for word in one] for one in names), strict=True)


def byte(word, at):
    return signed(word >> 8 * at, 8)


def dot(a, b, total=0):
    return (total + sum(byte(a, at) * byte(b, at) for at in range(4))) % WORD


@pytest.mark.parametrize("second", ["v2", "s8"])
def test_dot_products(second):
    b = words(2) if second == "v2" else np.full(LANES, 0x80FF7F01)
    given = {n: words(n) for n in (1, 2, 3)} | {5: words(3)}
    after = run(f"v_dot4_i32_i8 v4, v1, {second}, v3\nv_dot4c_i32_i8 v5, v1, v2", given,
                {8: 0x80FF7F01})
    for lane, (x, y, z, total) in enumerate(lanes(words(1), b, words(2), words(3))):
        assert after.v[4][0, lane] == dot(x, y, total)
        assert after.v[5][0, lane] == dot(x, z, total)
    with pytest.raises(UnavailableError, match="clamp"):
        run("v_dot4_i32_i8 v4, v1, v2, v3 clamp", given)


def permuted(high, low, selectors):
    both, result = high << 32 | low, 0
    for at in range(4):
        pick = selectors >> 8 * at & 0xFF
        chosen = (both >> 8 * pick & 0xFF if pick < 8 else
                  0xFF * (both >> 16 * (pick - 8) + 15 & 1) if pick < 12 else
                  0 if pick == 12 else 0xFF)
        result |= chosen << 8 * at
    return result


@pytest.mark.parametrize("selectors", [0x07020500, 0x0C0D0801, 0x090A0B03, 0xFF0E0604])
def test_bytes_in_another_order(selectors):
    after = run("v_perm_b32 v4, v1, v2, s8\nv_perm_b32 v5, v1, v2, v3",
                {1: words(1), 2: words(2), 3: words(3)}, {8: selectors})
    for lane, (high, low, own) in enumerate(lanes(words(1), words(2), words(3))):
        assert after.v[4][0, lane] == permuted(high, low, selectors)
        assert after.v[5][0, lane] == permuted(high, low, own)


ORDERED = {"v_med3_i32": (signed, sorted, 1), "v_med3_u32": (int, sorted, 1),
           "v_min3_i32": (signed, sorted, 0), "v_max3_i32": (signed, sorted, 2)}


@pytest.mark.parametrize("opcode", ORDERED)
def test_one_of_three(opcode):
    number, order, place = ORDERED[opcode]
    after = run(f"{opcode} v4, v1, -128, v3", {1: words(1), 3: words(3)})
    for lane, values in enumerate(lanes(words(1), np.full(LANES, WORD - 128), words(3))):
        assert after.v[4][0, lane] == order(map(number, values))[place] % WORD


def test_multiply_adds_of_16_bits():
    after = run("v_mad_i32_i16 v4, v1, v2, v3\nv_mad_u32_u16 v5, v1, v2, v3",
                {n: words(n) for n in (1, 2, 3)})
    for lane, (a, b, c) in enumerate(lanes(words(1), words(2), words(3))):
        assert after.v[4][0, lane] == (signed(a, 16) * signed(b, 16) + c) % WORD
        assert after.v[5][0, lane] == (a % 2**16 * (b % 2**16) + c) % WORD


def test_the_float_of_a_byte():
    after = run("""
    v_cvt_f32_ubyte0 v2, v1
    v_cvt_f32_ubyte1 v3, v1
    v_cvt_f32_ubyte2 v4, v1
    v_cvt_f32_ubyte3 v5, v1""", {1: words(1)})
    for lane, [word] in enumerate(lanes(words(1))):
        assert [after.vf[2 + at][0, lane] for at in range(4)] == [*word.to_bytes(4, "little")]


FLOATS = [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 127.0]


def picked(values, greatest):
    """The least or the greatest number; a NaN where there is none."""
    numbers = [one for one in values if not math.isnan(one)]
    order = sorted(numbers, key=lambda one: (one, math.copysign(1, one)))
    return order[-1 if greatest else 0] if order else math.nan


def test_the_least_and_the_greatest_and_the_middle_float():
    pairs = np.array([(a, b) for a in FLOATS for b in FLOATS], np.float32)
    a, b = (one.copy().view(np.uint32) for one in pairs.T)
    after = run("v_min_f32 v3, v1, v2\nv_max_f32 v4, v1, v2\nv_med3_f32 v5, v1, v2, 1.0",
                {1: a, 2: b})
    for lane, pair in enumerate(pairs.tolist()):
        wanted = [picked(pair, False), picked(pair, True)]
        three = [*pair, 1.0]
        wanted.append(picked(three, False) if any(map(math.isnan, pair)) else
                      sorted(three, key=lambda one: (one, math.copysign(1, one)))[1])
        found = [float(after.vf[register][0, lane]) for register in (3, 4, 5)]
        assert [repr(one) for one in found] == [repr(one) for one in wanted], pair


@pytest.mark.parametrize(("part", "shift", "bits"), [
    ("BYTE_0", 0, 8), ("BYTE_1", 8, 8), ("BYTE_3", 24, 8), ("WORD_0", 0, 16), ("WORD_1", 16, 16)])
@pytest.mark.parametrize("unused", ["PAD", "SEXT", "PRESERVE"])
def test_results_go_to_parts_of_registers(part, shift, bits, unused):
    after = run(f"v_add_u32_sdwa v4, sext(v1), v2 dst_sel:{part} dst_unused:UNUSED_{unused} "
                "src0_sel:BYTE_1 src1_sel:WORD_1", {1: words(1), 2: words(2), 4: KEPT})
    for lane, (a, b) in enumerate(lanes(words(1), words(2))):
        low = (byte(a, 1) + (b >> 16)) & (1 << bits) - 1
        others = 0xABCD1234 & ~((1 << bits) - 1 << shift)
        wanted = {"PAD": low << shift, "SEXT": signed(low, bits) << shift,
                  "PRESERVE": low << shift | others}[unused]
        assert after.v[4][0, lane] == wanted % WORD


def test_a_register_of_which_a_part_is_kept_must_have_been_written():
    with pytest.raises(LaunchError, match="reads v4, which was never written"):
        run("v_or_b32_sdwa v4, v1, v2 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD "
            "src1_sel:DWORD", {1: words(1), 2: words(2)})


LOADS = {"ubyte": lambda byte: byte, "sbyte": lambda byte: signed(byte, 8) % WORD,
         "ubyte_d16": lambda byte: 0xABCD0000 | byte,
         "ubyte_d16_hi": lambda byte: byte << 16 | 0x1234,
         "sbyte_d16": lambda byte: 0xABCD0000 | signed(byte, 8) % 2**16,
         "sbyte_d16_hi": lambda byte: signed(byte, 8) % 2**16 << 16 | 0x1234}


@pytest.mark.parametrize("name", LOADS)
def test_loads_of_bytes(name):
    """From global memory, and from LDS, at any address."""
    of_lds = f"{'i' if name[0] == 's' else 'u'}8{name[5:]}"
    after = run(f"""
    global_load_{name} v2, v1, s[4:5] offset:3
    global_load_dword v4, v1, s[4:5] offset:1
    v_mov_b32 v6, v1
    s_waitcnt vmcnt(0)
    ds_write_b8 v6, v4 offset:1
    s_waitcnt lgkmcnt(0)
    ds_read_{of_lds} v3, v6 offset:1
    s_waitcnt lgkmcnt(0)""", {1: np.arange(LANES), 2: KEPT, 3: KEPT}, address(0),
        [("x", BYTES, False), *OUT], lds_bytes=LANES + 4)
    for lane in range(LANES):
        assert after.v[2][0, lane] == LOADS[name](int(BYTES[lane + 3]))
        assert after.v[3][0, lane] == LOADS[name](int(BYTES[lane + 1]))
        assert after.v[4][0, lane] == int.from_bytes(BYTES[lane + 1:lane + 5].tobytes(), "little")


def test_stores_of_bytes_leave_their_neighbours():
    out = np.full(4 * LANES + 3, 7, np.uint8)  # not a whole number of words
    after = run("""
    global_store_byte v1, v2, s[4:5] offset:1
    global_store_byte_d16_hi v1, v2, s[4:5] offset:3
    ds_write_b32 v1, v3
    ds_write_b8_d16_hi v1, v2 offset:2
    s_waitcnt lgkmcnt(0)
    ds_read_b32 v4, v1
    s_waitcnt lgkmcnt(0)""", {1: 4 * np.arange(LANES), 2: words(1), 3: words(2)}, address(0),
        [("y", out, True)], lds_bytes=4 * LANES)
    low, high = words(1) & 0xFF, words(1) >> 16 & 0xFF
    assert np.array_equal(out[:-3].reshape(LANES, 4), np.stack([0 * low + 7, low, 0 * low + 7,
                                                                high], -1))
    assert np.array_equal(after.v[4][0], words(2) & 0xFF00FFFF | high << 16)
    assert out[-3:].tolist() == [7, 7, 7]


@pytest.mark.parametrize(("opcode", "offset", "fault"), [
    ("global_load_sbyte v2, v1, s[4:5]", 0, "accesses bytes"),
    ("global_load_ushort v2, v1, s[4:5]", -1, "accesses bytes"),
    ("global_load_dword v2, v1, s[4:5]", -3, "accesses bytes"),
    ("global_store_byte v1, v0, s[4:5]", -1, "writes to x, which is an input")])
def test_accesses_of_bytes_are_checked(opcode, offset, fault):
    with pytest.raises(LaunchError, match=fault):
        run(opcode, {1: np.full(LANES, BYTES.size + offset)}, address(0), [("x", BYTES, False)])


def test_wavefronts_may_write_bytes_of_one_word_but_not_one_byte():
    text = "v_mov_b32 v1, v0\nv_mov_b32 v2, 5\nglobal_store_byte v1, v2, s[4:5]"
    run(text, {}, address(0), [("y", np.zeros(2 * LANES, np.int8), True)], threads=2 * LANES)
    with pytest.raises(LaunchError, match="another wavefront writes as well"):
        run(text.replace("v1, v0", "v1, 3"), {}, address(0),
            [("y", np.zeros(2 * LANES, np.int8), True)], threads=2 * LANES)
    with pytest.raises(LaunchError, match="1 bytes of an element of y, which has 2"):
        run(text, {}, address(0), [("y", np.zeros(LANES, np.int16), True)])


def test_a_byte_of_lds_that_was_never_written():
    with pytest.raises(LaunchError, match="never written"):
        run("ds_write_b16 v1, v2\nds_write_b8 v1, v2 offset:3\ns_waitcnt lgkmcnt(0)\n"
            "ds_read_b32 v3, v1", {1: 4 * np.arange(LANES), 2: words(2)}, arrays=OUT,
            lds_bytes=256)


def product(a, b):
    """16 x 16 sums of products of bytes, from the lanes' words, by loops."""
    rows = [[0] * 16 for _ in range(16)]
    for row in range(16):
        for column in range(16):
            rows[row][column] = sum(dot(int(a[16 * q + row]), int(b[16 * q + column]))
                                    for q in range(4))
    return rows


def test_products_of_matrices_of_bytes():
    given = {n: words(n) for n in range(1, 7)}
    after = run("v_mfma_i32_16x16x16i8 v[3:6], v1, v2, v[3:6]\n"
                "v_mfma_i32_16x16x16i8 v[7:10], v2, v1, 0", given)
    wanted, turned = product(words(1), words(2)), product(words(2), words(1))
    for lane in range(LANES):
        for at in range(4):
            row, column = lane // 16 * 4 + at, lane % 16
            assert after.v[3 + at][0, lane] == (
                wanted[row][column] + int(given[3 + at][lane])) % WORD
            assert after.v[7 + at][0, lane] == turned[row][column] % WORD
    with pytest.raises(LaunchError, match="while some lanes do not execute"):
        run("v_mfma_i32_16x16x16i8 v[3:6], v1, v2, v[3:6]", given, exec_mask=1)
    with pytest.raises(UnavailableError, match="a constant other than 0"):
        run("v_mfma_i32_16x16x16i8 v[3:6], v1, v2, 1", given)
