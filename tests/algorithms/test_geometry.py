"""Geometry of tilings: which tiles reach past the problem, and what lies in whole vectors."""

from dataclasses import replace
from math import ceil, gcd

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling
from dscore.algorithms.direct import DirectTiling
from dscore.algorithms.gemm.tiling import GemmTiling, vectors_of
from dscore.algorithms.registry import algorithm_of, case_of
from dscore.algorithms.row_reuse.tiling import RowReuseTiling, row_vectors, shape_of
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

Z100SM, H200 = catalog.device("z100sm"), catalog.device("h200")
DISTRIBUTION = ChannelDistributionTiling(3, 32, 2, 2, 8)
PRODUCT = GemmTiling(16, 64, 16, 32, 8, 1, 16, 2)
ROWS = RowReuseTiling(4, 2, 2, 8, 4)
DIRECT = DirectTiling(64, 2)


@pytest.mark.parametrize(("tiling", "token", "masked"), [
    # 6 columns x 1 row (the height is odd), 64 channels of 8.
    (DISTRIBUTION, "n1c24h5w12_o128k1", False),
    (DISTRIBUTION, "n1c25h5w12_o128k1", True),
    (DISTRIBUTION, "n1c24h5w13_o128k1", True),
    (DISTRIBUTION, "n1c24h5w12_o127k1", True),
    (DISTRIBUTION, "n1c24h9w24_o128k1s2", False),
    (DISTRIBUTION, "n1c24h4w3_o128k1", False),
    # 16 channels of 64 pixels, 16 input channels a step.
    (PRODUCT, "n2c32h8w4_o32k1", False),
    (PRODUCT, "n2c36h8w4_o32k1", True),
    (PRODUCT, "n2c32h8w5_o32k1", True),
    (PRODUCT, "n3c32h8w4_o32k1", True),
    (PRODUCT, "n2c32h8w4_o40k1", True),
    # 8 rows x 16 columns of 4 planes.
    (ROWS, "n2c6h16w32_o6k3p1g6", False),
    (ROWS, "n2c6h17w32_o6k3p1g6", True),
    (ROWS, "n2c6h16w33_o6k3p1g6", True),
    (ROWS, "n2c5h16w32_o5k3p1g5", True),
    (RowReuseTiling(4, 2, 2, 8, 3), "n1c6h16w32_o6k3p1g6", True),
    # 64 pixels of 2 channels of a group.
    (DIRECT, "n1c6h8w8_o12k3p1g3", False),
    (DIRECT, "n1c6h8w9_o12k3p1g3", True),
    (DIRECT, "n1c6h8w8_o15k3p1g3", True)])
def test_a_tile_past_the_problem_makes_a_plan_masked(tiling, token, masked):
    assert make_plan(parse_problem(token), Z100SM, tiling).masked == masked


side = st.integers(1, 12)


@example(parse_problem("n1c4h3w2_o8k1"))  # planes of 6 begin amid a vector of 4
@example(parse_problem("n1c6h2w6_o8k1_bfloat16"))
@given(st.builds("n1c{}h{}w{}_o8k1s{}p{}{}".format, side, side, side, st.integers(1, 2),
                 st.integers(0, 1), st.sampled_from(["", "_bfloat16"])).map(parse_problem))
def test_pixels_and_channels_move_as_vectors_where_all_are_aligned(problem):
    """A vector begins at a multiple of 16 bytes, and ends in the plane or filter it began in."""
    bytes_of_one, most = problem.spec.element.bytes, 16 // problem.spec.element.bytes
    area, channels = problem.height * problem.width, problem.spec.in_channels

    def aligned(size):
        """Whether planes or filters of that size, one behind the other, all begin at a vector."""
        return not np.any(np.arange(16) * size * bytes_of_one % 16)

    # The pixels of the output are those of the input only without stride and padding.
    whole = (problem.out_height, problem.out_width) == (problem.height, problem.width) \
        and not any(problem.padding) and problem.spec.stride == (1, 1)
    assert vectors_of(problem) == (most if whole and aligned(area) else 1,
                                   most if aligned(channels) else 1)


@given(st.builds("n1c2h5w{}_o2k3s{}p1g2{}".format, st.integers(3, 40), st.integers(1, 3),
                 st.sampled_from(["", "_bfloat16"])).map(parse_problem),
       st.integers(1, 9), st.booleans())
def test_columns_of_a_row_move_as_vectors_that_divide_it(problem, thread_w, reuse):
    most, stride = 16 // problem.spec.element.bytes, problem.spec.stride[1]
    tiling = RowReuseTiling(1, thread_w, 1, 8, 1, column_reuse=reuse)
    loaded = max(n for n in (1, 2, 4, 8) if n <= most and problem.width % n == 0
                 and thread_w * stride % n == 0)
    stored = max(n for n in (1, 2, 4, 8) if n <= most and problem.out_width % n == 0
                 and thread_w % n == 0)
    assert row_vectors(problem, tiling) == (1 if reuse else loaded, stored)


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 40), st.integers(1, 3),
       st.integers(1, 6), st.integers(1, 4))
def test_blocks_of_channel_distribution_cover_the_output_once(height, width, outputs, batch,
                                                              repeat_w, wave_w):
    """Each block's rows are gcd(height, repeat_w), so that they divide the height."""
    tiling = ChannelDistributionTiling(wave_w, 8, repeat_w, 2, 8)
    plan = make_plan(parse_problem(f"n{batch}c8h{height}w{width}_o{outputs}k1"), Z100SM, tiling)
    rows = gcd(height, repeat_w)
    assert plan.launch.blocks == (batch * height // rows * ceil(width / (repeat_w // rows * wave_w))
                                  * ceil(outputs / 16))


def test_work_of_the_direct_definition():
    """A thread loads an input and a filter element a channel for each product, and stores sums."""
    problem, threads, channels = parse_problem("n2c6h9w7_o10k3x2g2"), 64, 4
    products, pixels = 3 * 3 * 2, 7 * 6
    case = case_of(problem, Z100SM, DirectTiling(threads, channels))
    footprint, blocks = case.footprint, 2 * 2 * 2  # images, groups, fours of a group's 5 channels
    assert (footprint.threads, footprint.waves, footprint.lds_bytes) == (64, 1, 0)
    assert footprint.registers == channels + channels + 1 + 30
    assert footprint.blocks == blocks
    assert footprint.fmas == products * channels
    assert footprint.operand_loads == products + products * channels
    assert footprint.global_bytes == 4 * threads * (footprint.operand_loads + channels)
    assert footprint.utilisation == pytest.approx(
        2 * 10 * pixels / (blocks * threads * channels))


def test_eq_6_of_each_algorithm():
    """Results, operands, and what else a thread holds, beside the paper's 30."""
    for token, tiling, registers in (
            ("n1c24h5w12_o128k1", DISTRIBUTION, 3 * 4 + (3 + 4) + (1 + 2) + 30),
            # 8 outputs; 8 filter elements, 4 pixels; vectors on their way to LDS.
            ("n2c32h8w4_o32k1", PRODUCT, 8 + (4 * 2 + 4) + 4 + 8 + 30),
            ("n2c6h16w32_o6k3p1g6", ROWS, 3 * 2 + 4 + 9 + 30)):
        assert case_of(parse_problem(token), Z100SM, tiling).use.registers == registers


@pytest.mark.parametrize(("device", "token", "tiling", "fmas", "loads"), [
    # 2 channels x 4 pixels of 32 input channels; two slices take half of these each.
    (Z100SM, "n2c32h8w4_o32k1", PRODUCT, 8 * 32, 6 * 32),
    (Z100SM, "n2c32h8w4_o32k1", replace(PRODUCT, slices=2, step_c=32), 8 * 16, 6 * 16),
    # On matrix units the lanes of a wavefront take their operands together.
    (H200, "n2c32h8w4_o32k1", replace(PRODUCT, arithmetic="tf32x3"), 16 * 32, 1.5 * 32),
    # 3 columns x 4 channels, a lane has each eighth of 24 input channels.
    (Z100SM, "n1c24h5w12_o128k1", DISTRIBUTION, 12 * 3, 7 * 3),
    # 4 rows x 2 columns of 9 taps; 6 rows of 4 columns, and the taps.
    (Z100SM, "n2c6h16w32_o6k3p1g6", ROWS, 8 * 9, 6 * 4 + 9)])
def test_work_of_a_thread(device, token, tiling, fmas, loads):
    footprint = case_of(parse_problem(token), device, tiling).footprint
    assert (footprint.fmas, footprint.operand_loads) == (fmas, loads)


@pytest.mark.parametrize(("token", "lds_bytes"), [
    # Two buffers of 1,472 elements, or 1,792 sums of seven slices, 4 bytes each.
    ("n1c64h8w8_o16k1", 2 * 1472 * 4), ("n1c64h8w8_o16k1_bfloat16", 1792 * 4)])
def test_lds_of_a_product_holds_its_buffers_or_its_sums(token, lds_bytes):
    tiling = GemmTiling(8, 32, 4, 32, 4, 8, 32, 2)
    assert case_of(parse_problem(token), H200, tiling).use.lds_bytes == lds_bytes


def owners(problem, block, lanes):
    """The (parity of the block, wavefront) of each output of a plane: *lanes* are the outputs, from
    a block's first, of each of its lanes in turn.
    """
    plane = {}
    for row in range(0, problem.out_height, block[0]):
        for column in range(0, problem.out_width, block[1]):
            for lane, outputs in enumerate(lanes):
                for down, right in outputs:
                    plane[row + down, column + right] = (
                        (row // block[0] + column // block[1]) % 2, lane // 64)
    return {at: owner for at, owner in plane.items()
            if at[0] < problem.out_height and at[1] < problem.out_width}


def of_rows(t):
    """Lanes side by side, then one above the other, each with its rows and columns."""
    return [[(strip * t.thread_h + down, lane * t.thread_w + right)
             for down in range(t.thread_h) for right in range(t.thread_w)]
            for strip in range(t.lanes_h) for lane in range(t.lanes_w)]


def of_wavefronts(t, rows):
    """Wavefronts of some columns, side by side and then one above the other."""
    across = t.repeat_w // rows
    return [[(wave // across, wave % across * t.wave_w + right) for right in range(t.wave_w)]
            for wave in range(t.repeat_w) for _ in range(64)]


@pytest.mark.parametrize(("token", "tiling", "block", "lanes"), [
    ("n1c2h11w21_o2k3p1g2", RowReuseTiling(2, 3, 4, 32, 1), (8, 96), of_rows),
    ("n1c2h17w45_o2k3p1g2", RowReuseTiling(3, 1, 5, 16, 1), (15, 16), of_rows),
    ("n1c8h6w19_o8k1", ChannelDistributionTiling(3, 64, 4, 1, 8), (2, 6),
     lambda t: of_wavefronts(t, 2)),
    ("n1c8h5w19_o8k1", ChannelDistributionTiling(3, 64, 4, 1, 8), (1, 12),
     lambda t: of_wavefronts(t, 1))])
def test_the_picture_shows_who_computes_an_output(token, tiling, block, lanes):
    plan = make_plan(parse_problem(token), Z100SM, tiling)
    shown = {(row, column): algorithm_of(tiling).owner(plan, row, column)
             for row in range(plan.problem.out_height) for column in range(plan.problem.out_width)}
    assert shown == owners(plan.problem, block, lanes(tiling))


@pytest.mark.parametrize(("left", "right", "phase"), [(0, 3, 0), (1, 2, 1), (3, 0, 3), (5, 6, 1)])
def test_vectors_of_a_row_begin_by_its_padding_at_the_left(left, right, phase):
    """Columns of 4 begin at multiples of 4 in memory, which the padding moves."""
    problem = parse_problem(f"n1c2h5w16_o2k3p0x0x{left}x{right}g2")
    tiling = RowReuseTiling(1, 4, 1, 8, 1)
    arguments = algorithm_of(tiling).template_arguments(make_plan(problem, Z100SM, tiling))
    stored = gcd(problem.out_width, 4)
    assert arguments[-4:] == (4, phase, stored, 64)


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(4, 9),
       st.integers(4, 9), st.integers(1, 2), st.integers(1, 9), st.integers(1, 4),
       st.integers(1, 3))
def test_lds_holds_the_rows_of_any_block(batch, channels, multiplier, height, width, stride,
                                         planes, thread_h, lanes_h):
    """What a block reads of the input, from its first element to its last, wherever it lies."""
    problem = parse_problem(f"n{batch}c{channels}h{height}w{width}_o{channels * multiplier}k3"
                            f"s{stride}p1g{channels}")
    if problem.spec.kind != "depthwise":
        return
    whole = -(-problem.out_height // thread_h)
    lanes_h = whole if planes > 1 else lanes_h  # several planes are whole
    tiling = RowReuseTiling(thread_h, 1, lanes_h, problem.out_width, planes, "lds")
    spans = []
    for first in range(0, batch * channels * multiplier, planes):
        last = min(first + planes, batch * channels * multiplier) - 1
        for row in range(0, problem.out_height, lanes_h * thread_h):
            top = max(row * stride - 1, 0)
            end = min((row + lanes_h * thread_h - 1) * stride + 2, height)
            begin = (first // multiplier * height + top) * width
            spans.append((last // multiplier * height + end) * width - begin // 4 * 4)
    held = int(shape_of(problem, tiling).span_in)
    assert max(spans) <= held
    # No more than whole 128 bytes, 3 elements before the first, and all rows of the planes.
    planes_in = (planes + multiplier - 2) // multiplier + 1
    rows = height if planes > 1 else min((lanes_h * thread_h - 1) * stride + 3, height)
    assert held < planes_in * rows * width + 3 + 32


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4), st.integers(1, 3),
       st.integers(1, 2))
def test_rows_and_columns_that_a_thread_walks_over(thread_h, thread_w, kernel, stride, dilation):
    problem = parse_problem(f"n1c2h40w40_o2k{kernel}s{stride}d{dilation}g2")
    if problem.spec.kind != "depthwise":
        return
    shape = shape_of(problem, RowReuseTiling(thread_h, thread_w, 1, 8, 1))
    under = [{at * stride + tap * dilation for at in range(count) for tap in range(kernel)}
             for count in (thread_h, thread_w)]
    assert shape.rows == max(under[0]) + 1
    assert shape.columns == len(under[1])
    assert shape.reach == max(max(under[1]) + 1, thread_w * stride)
    # The rows of output that some row of input lies between.
    begun = [sum(r * stride <= row <= r * stride + (kernel - 1) * dilation
                 for r in range(thread_h)) for row in range(int(shape.rows))]
    assert shape.live_rows == max(begun)
