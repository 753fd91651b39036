"""Counts of executed machine code, against counts by hand and by loops of Python's."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_programs import LANES, address, program

from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling
from dscore.algorithms.gemm.tiling import GemmTiling
from dscore.algorithms.implicit_gemm.tiling import ImplicitGemmTiling
from dscore.algorithms.registry import algorithm_of, case_of
from dscore.algorithms.row_reuse.tiling import RowReuseTiling
from dscore.backends.machine_code import disassembly
from dscore.backends.machine_code.backend import Gfx906AnySizes
from dscore.backends.machine_code.counts import count, lds_clocks
from dscore.backends.machine_code.launch import Grid
from dscore.building.compilers import missing_compiler
from dscore.checking import bound
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

MISSING = missing_compiler("hip") or disassembly.missing_objdump()
Z100SM = catalog.device("z100sm")


def counts_of(text, array=None, blocks=1, threads=LANES, lds_bytes=0):
    """Counts of a program; s4 and s5 hold the address of the *array* that it writes to."""
    setup = "\n".join(f"s_mov_b32 s{register}, {value:#x}"
                      for register, value in address(0).items())
    arrays = [("out", np.zeros(4096, np.uint32) if array is None else array, True)]
    return count(program(setup + text, lds_bytes), Grid(blocks, threads), arrays, b"")


def test_a_loop_is_counted_as_often_as_it_runs():
    counted = counts_of("""
        s_mov_b32 s1, 5
        again:
        v_mul_f32 v1, v0, v0
        v_add_u32 v2, v0, v0
        s_sub_u32 s1, s1, 1
        s_cmp_lg_u32 s1, 0
        s_cbranch_scc1 again
        """, blocks=3, threads=128)
    assert (counted.blocks, counted.waves) == (3, 6)
    assert counted.per_wave == {"scalar ALU": 2 + 1 + 10, "vector ALU": 10, "branches": 5,
                                "ends": 1, "multiply-adds": 0}


def test_wavefronts_that_branch_apart_are_counted_apart():
    counted = counts_of("""
        s_cmp_eq_u32 s0, 0
        s_cbranch_scc1 past
        v_add_u32 v1, v0, v0
        past:
        s_nop 0
        """, blocks=4)
    assert counted.counts["vector ALU"] == 3
    assert counted.counts["no-ops"] == counted.counts["branches"] == 4


def test_lines_are_those_that_the_executing_lanes_touch():
    stored = counts_of("""
        v_lshlrev_b32 v1, 3, v0
        global_store_dword v1, v0, s[4:5]
        v_cmp_gt_u32 vcc, 8, v0
        s_and_saveexec_b64 s[8:9], vcc
        global_store_dword v1, v0, s[4:5] offset:4
        """)
    # Windows begin 16 bytes before a line's end: 64 lanes of 8 bytes each from there.
    assert stored.counts["lines stored"] == 9 + 2
    assert stored.counts["global stores"] == 2
    assert "lines loaded" not in stored.counts


def test_waits_count_where_something_is_underway():
    counted = counts_of("""
        v_lshlrev_b32 v1, 2, v0
        s_waitcnt vmcnt(0)
        global_store_dword v1, v0, s[4:5]
        s_waitcnt vmcnt(1)
        s_waitcnt vmcnt(0) lgkmcnt(0)
        s_waitcnt vmcnt(0)
        """)
    assert counted.counts["waits"] == 4
    assert counted.counts["waits for memory"] == 1
    assert counted.counts["waits for LDS"] == 0


def test_conflicts_of_a_program():
    counted = counts_of("""
        v_lshlrev_b32 v1, 7, v0
        ds_write_b32 v1, v0
        s_waitcnt lgkmcnt(0)
        ds_read_b32 v2, v1
        s_waitcnt lgkmcnt(0)
        """, lds_bytes=64 * 128)
    # Each lane has a word of bank 0: 32 clocks for a half of the wavefront.
    assert counted.counts["LDS clocks"] == 4 * 32
    assert counted.counts["bank conflicts"] == 4 * 31


@st.composite
def accesses(draw):
    words = draw(st.sampled_from([1, 2, 4]))
    lanes = draw(st.lists(st.integers(0, 63), min_size=1, max_size=64, unique=True).map(sorted))
    offsets = draw(st.lists(st.integers(0, 4 * draw(st.integers(1, 200))), min_size=len(lanes),
                            max_size=len(lanes)))
    return words, lanes, [4 * words * offset for offset in offsets]


@given(accesses())
def test_lds_clocks_are_those_of_a_bank_after_the_other(access):
    words, lanes, offsets = access
    clocks = least = 0
    for group in range(0, 64, 32 // words):
        held = {offset // 4 + word for lane, offset in zip(lanes, offsets, strict=True)
                if group <= lane < group + 32 // words for word in range(words)}
        clocks += max(Counter(word % 32 for word in held).values(), default=0)
        least += bool(held)
    # A second wavefront of the batch, whose lanes do not meet the first one's.
    waves = np.repeat([0, 7], len(lanes))
    assert lds_clocks(waves, np.tile(lanes, 2), np.tile(offsets, 2), words) == (
        2 * clocks, 2 * least)


PLANS = [
    ("n1c32h8w8_o64k1", GemmTiling(32, 32, 16, 32, 8, 1, 16, 2)),
    ("n1c8h8w8_o16k3p1", ImplicitGemmTiling(16, 32, 16, 32, 8, 1, 4, 2, 60)),
    ("n1c8h8w8_o16k3p1", ImplicitGemmTiling(16, 64, 16, 32, 8, 1, 8, 2, 100)),
    ("n1c32h4w8_o16k1", ChannelDistributionTiling(8, 16, 4, 1, 8)),
    ("n1c12h14w14_o12k3p1g12", RowReuseTiling(7, 1, 2, 14, 4, staging="lds")),
]


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
@pytest.mark.deep
def test_the_cost_model_counts_as_the_machine_code_does():
    backend = Gfx906AnySizes()
    plans = [make_plan(parse_problem(token), Z100SM, tiling) for token, tiling in PLANS]
    backend.prepare(plans)
    for plan in plans:
        out = np.empty(plan.problem.y_shape, np.float32)
        executed = backend.compile(plan).counts(*bound.sample(plan.problem, 0), out).per_wave
        assumed = algorithm_of(plan.tiling).traffic(
            case_of(plan.problem, plan.device, plan.tiling, plan.block_n))
        # Where no tile is cut, both count the same.
        for name in ("multiply-adds", "LDS reads", "LDS words read", "lane permutes",
                     "global stores"):
            if name in assumed:
                assert executed.get(name, 0) == pytest.approx(float(assumed[name])), (
                    plan.name, name)
