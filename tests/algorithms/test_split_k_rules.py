"""The rules of the split sum over pixels admit the kernels that exist, and no others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples, mostly_deep

from dscore.algorithms.registry import case_of
from dscore.algorithms.split_k.tiling import SUM_THREADS, SplitKTiling, sum_rows
from dscore.core import catalog
from dscore.core.numerics import FLOAT32_ARITHMETICS
from dscore.core.token import parse_problem
from dscore.solving.rules import keeps_all

PROBLEM = parse_problem("weight_gradient_n1c16h4w4_o8k1")
FREE = st.builds(
    SplitKTiling, tile_o=st.sampled_from([8, 16, 32, 48]),
    tile_i=st.sampled_from([2, 8, 16, 24, 32]),
    wave_o=st.sampled_from([4, 8, 16, 24]), wave_i=st.sampled_from([2, 8, 12, 16]),
    lanes_o=st.sampled_from([1, 4, 6, 8, 16, 32, 64]), slices=st.integers(1, 3),
    step=st.sampled_from([4, 8, 12, 16, 24, 48]), stages=st.integers(1, 4),
    parts=st.integers(1, 3), planes=st.booleans(), arithmetic=st.sampled_from(FLOAT32_ARITHMETICS))


@st.composite
def sound(draw):
    """Tilings of whole wavefronts, vectors and slices, of wavefronts of 32 or 64."""
    split, lanes_o = draw(st.booleans()), draw(st.sampled_from([4, 8, 16]))
    lanes_o = 8 if split else lanes_o
    wave_o = (16 if split else lanes_o) * draw(st.integers(1, 2))
    wave_i = 8 if split else draw(st.sampled_from([32, 64])) // lanes_o * draw(st.integers(1, 2))
    slices = draw(st.integers(1, 2))
    return SplitKTiling(wave_o * draw(st.integers(1, 2)), wave_i * draw(st.integers(1, 2)), wave_o,
                        wave_i, lanes_o, slices, slices * 8 * draw(st.integers(1, 2)),
                        draw(st.integers(2, 3)), draw(st.integers(1, 9)), draw(st.booleans()),
                        "tf32x3" if split else "plain")


def exists(t, device):
    """Whether the assertions of hip_src/split_k/kernel.hpp hold, and the device can."""
    tf32, wavefront = t.arithmetic == "tf32x3", device.wavefront
    lanes_i = wavefront // t.lanes_o
    fragments = ((t.wave_o % 16, t.wave_i % 8, t.lanes_o - 8, wavefront - 32) if tf32
                 else (t.wave_o % t.lanes_o, t.wave_i % lanes_i if lanes_i else 1,
                       wavefront % t.lanes_o))
    modern = device.name in ("a100", "h200")
    return (not any((t.tile_o % t.wave_o, t.tile_i % t.wave_i, t.tile_i % 4, t.step % t.slices,
                     0 if t.planes else t.step // t.slices % (8 if tf32 else 4), *fragments))
            and (not t.planes or (t.step == t.slices * 16))
            and t.stages >= 2
            and (modern or (t.stages == 2 and not tf32))
            and t.tile_o // t.wave_o * (t.tile_i // t.wave_i) * t.slices * wavefront
            <= device.threads_per_block)


@pytest.mark.parametrize("name", mostly_deep(
    ["z100sm", "rtx2080ti", "a100", "h200"], "z100sm", "h200"))
@settings(max_examples=examples(300))
@given(t=st.one_of(FREE, sound()))
def test_the_rules_are_the_kernels_assertions(name, t):
    device = catalog.device(name)
    case = case_of(PROBLEM, device, t)
    assert bool(keeps_all(case, "hardware", masked=True, legality=True)) == exists(t, device)


@settings(max_examples=100)
@given(parts=st.integers(2, 1024))
def test_every_part_is_some_rows_and_the_rows_divide_the_threads(parts):
    rows = sum_rows(parts)
    assert SUM_THREADS % rows == 0
    assert rows == 1 or rows // 2 * 8 < parts
    assert parts <= 8 * rows or rows == 32


def test_more_parts_than_the_workspace_can_count_are_refused():
    problem = parse_problem("weight_gradient_n1c4096h8w8_o4096k1")
    t = SplitKTiling(32, 32, 16, 16, 8, 1, 8, 2, 128)
    case = case_of(problem, catalog.device("h200"), t)
    assert not keeps_all(case, "hardware", masked=True, legality=True)
