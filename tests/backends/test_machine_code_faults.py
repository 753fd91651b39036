"""What gfx906 machine code must not do: each is a fault that names the instruction."""

import numpy as np
import pytest
from machine_programs import LANES, address, code, fault, run

from dscore.backends.machine_code.hazards import hazards
from dscore.backends.machine_code.launch import Batch

X = np.arange(2 * LANES, dtype=np.float32)
# v1 and v2: the address of the thread's element of array 0.
PLACE = """
v_lshlrev_b32 v1, 2, v0
v_add_co_u32 v1, vcc, s4, v1
v_mov_b32 v2, s5
v_addc_co_u32 v2, vcc, 0, v2, vcc
"""


def array(writable=False, name="x"):
    return [(name, np.full(2 * LANES, np.nan, np.float32) if writable else X, writable)]


def test_loads_and_stores_reach_their_operands():
    out = np.full(2 * LANES, np.nan, np.float32)
    run(PLACE + """
    global_load_dwordx2 v[4:5], v[1:2], off offset:4
    v_lshlrev_b32 v3, 2, v0
    global_load_dword v6, v3, s[4:5] offset:256
    s_waitcnt vmcnt(0)
    v_add_f32 v4, v4, v5
    v_add_f32 v4, v4, v6
    global_store_dword v3, v4, s[6:7]""", scalars={**address(0), 6: address(1)[4],
                                                    7: address(1)[5]},
        arrays=[("x", X, False), ("out", out, True)])
    lane = np.arange(LANES)
    assert np.array_equal(out[:LANES], lane + 1 + lane + 2 + 64 + lane)
    assert np.isnan(out[LANES:]).all()


def test_registers_that_were_never_written():
    fault("v_add_u32 v1, v0, v9", r"0x0: v_add_u32 v1, v0, v9: it reads v9, which was never")
    fault("s_add_i32 s9, s8, 1", "reads s8, which was never written")
    fault("s_cselect_b32 s9, 1, 2", "reads SCC, which was never written")
    fault("s_cbranch_vccz 1\ns_nop 0", "reads vcc_lo, which was never written")
    # Written, but not in the lanes that read.
    fault("""
    s_mov_b64 exec, s[8:9]
    v_mov_b32 v1, 1
    s_mov_b64 exec, -1
    v_not_b32 v2, v1""", "reads v1, which was never written in some executing lane",
          scalars={8: 0xFF, 9: 0})


def test_a_load_delivers_at_the_wait_that_covers_it():
    load = PLACE + "global_load_dword v3, v[1:2], off\nglobal_load_dword v4, v[1:2], off offset:4\n"
    given = dict(scalars=address(0), arrays=array())
    late = "touches v4, which a load is still to deliver: no s_waitcnt vmcnt covers it"
    run(load + "s_waitcnt vmcnt(1)\nv_mov_b32 v5, v3", **given)
    fault(load + "s_waitcnt vmcnt(1)\nv_mov_b32 v5, v4", late, **given)
    fault(load + "s_waitcnt lgkmcnt(0)\nv_mov_b32 v5, v4", late, **given)
    fault(load + "v_mov_b32 v4, 0", late, **given)
    run(load + "s_waitcnt vmcnt(0)\nv_mov_b32 v5, v4", **given)
    # A store counts as well, and comes after the loads.
    store = load + "s_waitcnt vmcnt(0)\nglobal_load_dword v5, v[1:2], off\n"
    fault(store + "s_nop 0\nv_mov_b32 v6, v5", "touches v5", **given)


def test_loads_of_constants_come_in_any_order():
    load = "s_load_dword s8, s[4:5], 0x0\ns_load_dwordx2 s[10:11], s[4:5], 0x4\n"
    given = dict(scalars=address(0), arrays=array())
    after = run(load + "s_waitcnt lgkmcnt(0)\ns_mov_b64 s[12:13], s[10:11]", **given)
    assert after.sf[0, 12:14].tolist() == [1.0, 2.0]
    fault(load + "s_waitcnt lgkmcnt(1)\ns_mov_b32 s12, s8", "touches s8", **given)
    fault(load + "s_mov_b32 s10, 0", "touches s10", **given)


def test_lds_comes_in_order_but_not_before_its_wait():
    text = """
    v_lshlrev_b32 v1, 2, v0
    ds_write2st64_b32 v1, v0, v1 offset1:1
    ds_read_b32 v2, v1
    ds_read_b32 v3, v1 offset:256
    s_waitcnt lgkmcnt({})
    v_add_u32 v4, v2, v3"""
    after = run(text.format(0), lds_bytes=512)
    assert after.v[4][0].tolist() == [5 * n for n in range(LANES)]
    fault(text.format(1), "touches v3, .* no s_waitcnt lgkmcnt", lds_bytes=512)
    fault(text.format(2), "touches v[23]", lds_bytes=512)


def test_addresses_outside_of_an_operand():
    given = dict(scalars=address(0), arrays=array())
    load = PLACE + "global_load_dword v3, v[1:2], off offset:{}"
    run(load.format(256), **given)
    fault(load.format(260), r"accesses bytes 260 to 515 of x, which has 512", **given)
    fault(load.format(-4), r"accesses bytes -4 to ", **given)
    fault(load.format(2), "no multiple of 4", **given)
    # The carry is left out: 4 GiB away.
    fault(load.format(0).replace("v_addc_co_u32 v2, vcc, 0, v2, vcc", "s_nop 0"), "accesses bytes",
          **given)
    fault("global_load_dword v3, v[1:2], off", "which is in no operand",
          vectors={1: [64] * LANES, 2: [0] * LANES})


def test_a_scalar_load_goes_back_by_an_offset_that_it_holds_not_by_one_in_a_register():
    begin = "s_add_u32 s6, s4, 8\ns_addc_u32 s7, s5, 0\ns_mov_b32 s10, -4\n"
    load = begin + "s_load_dword s8, s[6:7], {}\ns_waitcnt lgkmcnt(0)"
    given = dict(scalars=address(0), arrays=array())
    assert run(load.format("-0x4"), **given).sf[0, 8] == 1.0
    fault(load.format("s10"), "s_load_dword s8, s.6:7., s10: it accesses bytes 4,294,967,300 to",
          **given)


def test_what_a_kernel_may_read_and_write():
    store = PLACE + "global_store_dword v[1:2], v0, off"
    fault(store, "writes to x, which is an input", scalars=address(0), arrays=array())
    fault(PLACE + "global_load_dword v3, v[1:2], off", "reads out, which it is to write",
          scalars=address(0), arrays=array(True, "out"))
    # Every block writes the same elements.
    fault(store, "an element of out that another wavefront writes", scalars=address(0),
          arrays=array(True, "out"), blocks=2)


def test_lds_outside_of_the_block_s_and_out_of_line():
    place = "v_lshlrev_b32 v1, 2, v0\n"
    fault(place + "ds_write_b32 v1, v0 offset:4", r"bytes 4 to 259 of LDS, .* has 256",
          lds_bytes=256)
    fault(place + "ds_write_b64 v1, v[0:1]", "no multiple of", lds_bytes=512)
    fault(place + "ds_read_b32 v2, v1", "reads a word of LDS that was never written",
          lds_bytes=256)


def test_three_words_of_lds_lie_at_a_multiple_of_16_bytes():
    text = """
    v_lshlrev_b32 v1, {}, v0
    v_mov_b32 v2, v0
    v_add_u32 v3, 1, v0
    v_add_u32 v4, 2, v0
    ds_write_b96 v1, v[2:4]
    ds_read_b96 v[5:7], v1
    s_waitcnt lgkmcnt(0)
    v_add3_u32 v8, v5, v6, v7"""
    after = run(text.format(4), lds_bytes=1024)
    assert after.v[8][0].tolist() == [3 * n + 3 for n in range(LANES)]
    fault(text.format(3), "accesses 12 bytes of LDS at an address that is no multiple of 16",
          lds_bytes=1024)


SHARE = """
v_lshlrev_b32 v1, 2, v0
v_xor_b32 v2, 64, v0
v_lshlrev_b32 v2, 2, v2
ds_write_b32 v1, v0
s_waitcnt lgkmcnt(0)
s_barrier
ds_read_b32 v3, v2
s_waitcnt lgkmcnt(0)
v_mov_b32 v4, v3
"""


def test_wavefronts_meet_at_barriers():
    given = dict(threads=128, lds_bytes=512)
    after = run(SHARE, blocks=3, **given)
    assert after.v[4].reshape(2, 3, LANES)[0, 2].tolist() == [*range(64, 128)]
    fault(SHARE.replace("s_barrier", "s_nop 0"), "wrote, without a barrier", **given)
    fault(SHARE.replace("s_waitcnt lgkmcnt(0)\ns_barrier", "s_barrier"),
          "comes to s_barrier with accesses of LDS that no s_waitcnt", **given)
    fault(SHARE + "ds_write_b32 v1, v0", "another wavefront reads, without a barrier", **given)
    fault("v_mov_b32 v1, 0\nds_write_b32 v1, v0", "another wavefront writes, without", **given)


@pytest.mark.parametrize("first", [0, 1])
def test_a_race_is_a_fault_whichever_wavefront_goes_first(first, monkeypatch):
    """Even the second one, which no order shows: a word is written again with its own value."""
    def alone(batch, ready):
        going = ready < len(batch.program.blocks)
        preferred = going & (batch.wave_of_block == first)
        members = preferred if preferred.any() else going
        lowest = ready[members].min(initial=len(batch.program.blocks))
        return lowest, members & (ready == lowest)
    monkeypatch.setattr(Batch, "_next", alone)
    text = SHARE + "s_barrier\nds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)"
    given = dict(threads=128, lds_bytes=512)
    after = run(text, **given)
    assert after.v[4].tolist() == [[*range(64, 128)], [*range(64)]]
    fault(text.replace("s_barrier", "s_nop 0", 1), "was never written|without a barrier", **given)
    fault("s_nop 0".join(text.rsplit("s_barrier", 1)), "reads, without a barrier|wrote, without",
          **given)


@pytest.mark.parametrize("other", ["s_barrier", "s_nop 0"])
def test_a_barrier_at_which_some_wavefronts_never_are(other):
    fault(f"""
    v_readfirstlane_b32 s8, v0
    s_cmp_eq_u32 s8, 0
    s_cbranch_scc1 over
    s_barrier
    s_endpgm
    over:
    {other}""", "wait at s_barrier for others", threads=128)


def test_wavefronts_that_take_different_ways_meet_again():
    after = run("""
    v_readfirstlane_b32 s8, v0
    s_mov_b32 s9, 0
    again:
    s_add_i32 s9, s9, s8
    s_sub_i32 s8, s8, 32
    s_cmp_gt_i32 s8, 0
    s_cbranch_scc1 again
    v_mov_b32 v1, s9""", threads=256)
    sums = [sum(range(n, 0, -32)) for n in (0, 64, 128, 192)]
    assert after.v[1][:, 0].tolist() == sums


def test_lanes_take_turns_by_exec():
    after = run("""
    v_mov_b32 v1, 7
    v_cmp_gt_u32 vcc, 10, v0
    s_and_saveexec_b64 s[8:9], vcc
    s_cbranch_execz over
    v_mov_b32 v1, v0
    over:
    s_or_b64 exec, exec, s[8:9]
    v_add_u32 v1, v1, v1""", threads=128)
    assert after.v[1][0].tolist() == [2 * n if n < 10 else 14 for n in range(LANES)]
    assert after.v[1][1].tolist() == [14] * LANES


def test_values_of_other_lanes():
    after = run("""
    v_lshlrev_b32 v1, 2, v0
    v_add_u32 v1, 4, v1
    ds_bpermute_b32 v2, v1, v0
    s_waitcnt lgkmcnt(0)
    v_mov_b32 v3, v2""")
    assert after.v[3][0].tolist() == [*range(1, LANES), 0]
    fault("v_mov_b32 v1, 0\nds_bpermute_b32 v2, v1, v0\nv_mov_b32 v3, v2", "touches v2")


@pytest.mark.parametrize(("text", "needed"), [
    ("global_store_dwordx4 v[1:2], v[4:7], off\nv_mov_b32 v5, 0", 1),
    ("v_readfirstlane_b32 s4, v0\nglobal_load_dword v1, v0, s[4:5]", 5),
    ("v_readfirstlane_b32 s4, v0\nv_readlane_b32 s5, v1, s4", 4),
    ("v_div_scale_f32 v1, vcc, v2, v3, v2\nv_div_fmas_f32 v4, v5, v6, v7", 4)])
def test_instructions_that_follow_too_closely(text, needed):
    first, second = text.split("\n")
    assert len(hazards(code(text))) == 1
    if needed > 1:
        assert hazards(code(f"{first}\ns_nop {needed - 2}\n{second}"))
    assert not hazards(code(f"{first}\ns_nop {needed - 1}\n{second}"))
    assert not hazards(code("\n".join([first, *["v_mov_b32 v60, 0"] * needed, second])))
