"""Channels side by side on the emulated device: equal to the reference, and faults caught."""

import numpy as np
import pytest
from emulated_runs import (
    altered,
    checked_under_sanitizers,
    require_bit_equal,
    require_caught,
    require_right,
    require_silence,
)
from plans import plan_of
from profiles import deep, mostly_deep, share

from dscore.algorithms.channel_sums.tiling import ChannelSumsTiling
from dscore.algorithms.channel_vectors.tiling import ChannelVectorsTiling
from dscore.backends.emulated import EmulatedBackend
from dscore.checking import bound
from dscore.core import catalog
from dscore.core.errors import CompileError
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

MISSING = EmulatedBackend().missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


def planned(token, *tiling, device="h200", **further):
    problem = parse_problem(token)
    sums = problem.operation == "weight_gradient"
    made = (ChannelSumsTiling if sums else ChannelVectorsTiling)(*tiling, **further)
    return make_plan(problem, catalog.device(device), made)


# Channels that are whole blocks and vectors, and odd ones; multipliers; strides and dilation; lanes
# that are left over; elements of 16 bits, whose copies are as wide as two of them, or one alone.
PLANS = [
    planned("n2c16h7w7_o16k3p1g16_nhwc_bias_relu6", 4, 2, 2, 3, 2, 2, 3),
    planned("n1c13h9w5_o13k5s2psameg13_nhwc", 2, 3, 2, 1, 1, 3),
    planned("n3c4h4w6_o12k3p2d2g4_nhwc_bias", 2, 5, 3, 2, 2, 1, 2),
    planned("n1c20h8w9_o20k2s3g20_float16_nhwc_hardswish", 8, 1, 1, 2, 2, 1),
    planned("n1c7h6w13_o7k3p1g7_bfloat16_nhwc_bias", 4, 3, 4, 3, 1, 2, 6, ahead=True),
    planned("input_gradient_n2c6h9w8_o6k3s2p1g6_nhwc", 2, 3, 4, 2, 1, 2, 2),
    planned("input_gradient_n1c9h7w7_o9k5p2g9_float16_nhwc", 1, 9, 7, 2, 1, 2),
    planned("n2c24h9w11_o24k3p1g24_float16_nhwc_bias_relu", 16, 2, 3, 8, 1, 2, 2,
            arithmetic="matrix16"),
    planned("n1c13h10w19_o13k5s2p2g13_bfloat16_nhwc", 8, 1, 2, 8, 3, 1, ahead=True,
            arithmetic="matrix16"),
    planned("input_gradient_n2c8h9w23_o8k3s2p1g8_float16_nhwc", 8, 1, 4, 16, 2, 2, 2,
            arithmetic="matrix16"),
    planned("weight_gradient_n3c10h7w9_o10k3p1g10_nhwc", 2, 3, 3, 2, 2, 2, 4, 2),
    planned("weight_gradient_n2c3h8w8_o6k5s2p2g3_float16_nhwc", 2, 2, 2, 2, 1, 2, 1, 3),
    planned("weight_gradient_n3c10h7w9_o10k3p1g10_nhwc", 2, 3, 3, 2, 2, 2, 2, 2, bands=3,
            cluster=2),
    planned("weight_gradient_n4c12h9w9_o12k5s2p2g12_float16_nhwc", 4, 2, 3, 2, 2, 1, 1, 1,
            bands=4, cluster=3, ahead=True),
    planned("weight_gradient_n5c6h8w7_o6k3x5s1x2p1g6_nhwc", 2, 2, 4, 2, 1, 1, 1, 2, bands=2,
            cluster=4),
    planned("weight_gradient_n3c24h9w11_o24k3p1g24_float16_nhwc", 16, 2, 3, 8, 2, 2, 2, 2,
            arithmetic="matrix16"),
    planned("weight_gradient_n2c13h10w7_o13k5s2p2g13_bfloat16_nhwc", 8, 1, 4, 8, 1, 1, 1, 1,
            bands=3, arithmetic="matrix16"),
    planned("weight_gradient_n3c16h7w7_o16k3p1g16_float16_nhwc", 8, 2, 7, 8, 1, 1, 1, 3, cluster=2,
            arithmetic="matrix16"),
    planned("weight_gradient_n2c8h12w17_o8k3x4s3x1p1d2g8_float16_nhwc", 8, 1, 3, 8, 1, 2, 2, 2,
            bands=2, ahead=True, arithmetic="matrix16"),
    planned("n1c16h9w9_o16k3p1g16_nhwc", 4, 4, 3, 2, 2, 5, device="z100sm"),
    planned("weight_gradient_n1c12h9w9_o12k3p1g12_nhwc", 4, 3, 3, 2, 2, 3, 2, device="z100sm"),
]


@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS, sizes), sizes, monkeypatch)


UNITS = planned("n2c24h9w11_o24k3p1g24_float16_nhwc", 16, 2, 3, 8, 1, 2, 2,
                arithmetic="matrix16")
WALK = planned("n2c10h11w9_o10k3p1g10_nhwc", 2, 3, 3, 2, 2, 2, 3)
ROWS = planned("n2c8h6w8_o8k3p1x1x2x1g8_nhwc", 4, 2, 2, 4, 1, 2)
HALVES = planned("n1c12h6w5_o12k3p1g12_float16_nhwc", 8, 2, 3, 5, 2, 1, 2, ahead=True)
FEW = planned("n1c5h6w5_o5k3p1g5_bfloat16_nhwc", 4, 2, 3, 5, 2, 1)
AHEAD = planned("n1c24h6w5_o24k3p1g24_float16_nhwc", 8, 2, 3, 5, 2, 1, ahead=True)
SUMS = planned("weight_gradient_n3c10h7w9_o10k3p1g10_nhwc", 2, 3, 3, 2, 2, 2, 4, 2)
BANDED = planned("weight_gradient_n4c6h9w7_o6k5p2g6_nhwc", 2, 3, 4, 2, 1, 2, 1, 2, bands=2,
                 cluster=2)
PAIRS = planned("weight_gradient_n3c8h7w9_o8k3s2p1g8_float16_nhwc", 8, 1, 4, 8, 1, 1, 1, 1,
                bands=2, arithmetic="matrix16")
TWINS = planned("weight_gradient_n2c8h5w8_o8k3p1g8_float16_nhwc", 8, 1, 5, 8, 1, 1, 1, 1,
                arithmetic="matrix16")
ODD = planned("weight_gradient_n2c6h5w7_o6k3p1g6_nhwc", 2, 3, 2, 2, 3, 2, 1)
# Tiles of three images, two of them for a block, of which the last has one.
REPEATED = planned("n3c10h9w8_o10k3p1g10_float16_nhwc", 2, 5, 2, 2, 1, 4, 2, repeat=2)

BLOCK, UNITS_KERNEL = "channel_vectors/block.hpp", "channel_vectors/diagonal_walk.hpp"
TILE, KERNEL, SUMS_KERNEL = ("channel_vectors/tile.hpp", "channel_vectors/walk.hpp",
                             "channel_sums/shares.hpp")
SUMS_BLOCK, FRAGMENTS = "channel_sums/block.hpp", "channel_sums/fragments.hpp"
SHARED = "support/shared_sums.hpp"
BAND = "    wait_copies_but<behind + t::bands - 1>(behind + t::bands - 1 - band);\n"
BARRIER = "    __syncthreads();\n"
# The plan, the file, the source as it is, with its fault, and what is said of it.
FAULTS = {
    "bands not waited for": (WALK, BLOCK, BAND, "", "WRONG"),
    "missing barrier after a band": (WALK, BLOCK, BAND + BARRIER, BAND, "WRONG"),
    "a tile too many": (
        REPEATED, BLOCK, "of % t::repeat != 0 && of < units(s)", "of % t::repeat != 0",
        "wrote outside its output"),
    "rows of the next strip not loaded": (
        WALK, TILE, "strip == Strips - 1 ? Walked : least(Walked, Step)", "least(Walked, Step)",
        "WRONG"),
    "pixels beside the image taken from it": (
        ROWS, TILE, "const bool beside = inside(column + c, width) &&", "const bool beside =",
        "WRONG"),
    "rows above the image taken from it": (
        ROWS, TILE, "beside && inside(row + group + r, height)",
        "beside && row + group + r < height", "WRONG"),
    "half a vector past the last channel": (
        HALVES, KERNEL, "s.out_channels % t::vector == 0 || channel + v < s.out_channels",
        "channel < s.out_channels", "wrote outside its output"),
    "a vector of channels stored as one": (
        FEW, KERNEL, "v += t::vector_out)\n          if", "v += 2 * t::vector_out)\n          if",
        "WRONG"),
    "a weight beside the diagonal": (
        UNITS, UNITS_KERNEL, "column / 2 != lane % 4 ? 0", "column / 2 != lane % 4 ? 1", "WRONG"),
    "neighbours exchange the wrong words": (
        UNITS, UNITS_KERNEL, "odd ? words[0] : words[1]", "odd ? words[1] : words[0]", "WRONG"),
    "sums of 16 bits": (
        HALVES, KERNEL, "accumulators[r % live_rows][c][v] += row[offset][v]",
        "accumulators[r % live_rows][c][v] = static_cast<float>(static_cast<T>(\n"
        "                accumulators[r % live_rows][c][v])) + row[offset][v]", "WRONG"),
    "sums added before all are there": (
        SUMS, SUMS_BLOCK, "continue;\n      __syncthreads();\n", "continue;\n", "WRONG"),
    "the last slice left out": (
        SUMS, SUMS_BLOCK, "first_unit() + ceil_div(units(s), t::shares), units(s)",
        "first_unit() + ceil_div(units(s), t::shares), units(s) - 1", "WRONG"),
    "rows of the gradient that come a band late": (
        BANDED, SUMS_BLOCK, "View::own_rows(band_rows, t::thread_h, t::bands)>;",
        "ceil_div(t::thread_h, t::bands)>;", "WRONG"),
    "bands of a weight gradient not waited for": (
        BANDED, SUMS_KERNEL,
        "wait_copies_but<t::stages * t::bands - 1>(t::stages * t::bands - 1 - band);", "",
        "WRONG"),
    "a tap that shares a product taken for the other": (
        TWINS, FRAGMENTS, "is_second(f, column) * 2", "(1 - is_second(f, column)) * 2", "WRONG"),
    "sums beside the diagonal": (
        TWINS, FRAGMENTS, "if (lane % 4 != g / 2) return;", "if (lane % 4 != g / 4) return;",
        "WRONG"),
    "two rows of the gradient of which one is taken": (
        TWINS, FRAGMENTS, "multiply_16(d, a, FragmentB<T>{{b[0], b[1]}})",
        "multiply_8(d, a, b[0])", "WRONG"),
    "the first row of the gradient, of which only the second of two is met, left out": (
        TWINS, FRAGMENTS, "if (end > 0) multiply_8", "if (end < 0) multiply_8", "WRONG"),
    "rows of the gradient of another step": (
        TWINS, FRAGMENTS, "const int behind = later(f) / 2", "const int behind = 0", "WRONG"),
    "a row that fragments read before its band": (
        PAIRS, FRAGMENTS,
        "least((2 * step + 1) * stride + last + column_left * dilation, rows - 1) / band_rows",
        "least(2 * step * stride, rows - 1) / band_rows", "WRONG"),
    "a block of the cluster left out": (
        BANDED, SHARED, "from = 1; from < Cluster;", "from = 2; from < Cluster;", "WRONG"),
    "sums of a cluster added before all have come": (
        BANDED, SHARED, "    mailbox.wait();\n", "", "WRONG"),
}


@pytest.mark.parametrize("plan", [UNITS, TWINS], ids=["products", "sums"])
def test_fragments_of_32_lanes_are_not_compiled_for_64(plan):
    """Such a kernel ran, and stored past the end of its output: the process died later, by what it
    had overwritten. A limit refuses such plans, but not all plans come from the solver."""
    wide = plan_of(plan.problem, plan.tiling, wavefront=64)
    with pytest.raises(CompileError, match="NVIDIA's matrix units"):
        EmulatedBackend().compile(wide)


def test_what_no_gradient_lies_over_reaches_no_sum():
    """Columns and rows beside the gradient are zeros in LDS, and an infinity under them NaN."""
    plan = planned("weight_gradient_n1c16h4w11_o16k3s3g16_float16_nhwc", 8, 1, 2, 8, 1, 1, 1,
                   arithmetic="matrix16")
    x, gradient = bound.sample(plan.problem, 0)[:2]
    x[0, 3:, :, 3] = x[0, :, 9:, 3] = np.inf  # under the second row and fourth column
    out = np.full((16, 1, 3, 3), np.nan, np.float16)
    EmulatedBackend().compile(plan)(x, gradient, out)
    assert np.isfinite(out).all()


def test_what_is_not_finite_reaches_its_own_results_alone():
    """Zeros of a diagonal matrix times infinities are none of them."""
    problem = UNITS.problem
    x, w, _ = bound.sample(problem, 0)[:3]
    x[0, 4, 5, 3], x[1, 0, 0, 17] = np.inf, np.nan
    out = np.full(problem.y_shape, 0, np.float16)
    EmulatedBackend().compile(UNITS)(x, w, None, out)
    spoiled = np.argwhere(~np.isfinite(out))
    assert {tuple(at) for at in spoiled} == {
        (n, r, c, o) for n, row, column, o in ((0, 4, 5, 3), (1, 0, 0, 17))
        for r in range(max(row - 1, 0), row + 2) for c in range(max(column - 1, 0), column + 2)}
    kept = np.isfinite(out)
    x[0, 4, 5, 3] = x[1, 0, 0, 17] = 0
    plain = np.full(problem.y_shape, 0, np.float16)
    EmulatedBackend().compile(UNITS)(x, w, None, plain)
    np.testing.assert_array_equal(out[kept], plain[kept])


@pytest.mark.parametrize("fault", mostly_deep(FAULTS, "a row that fragments read before its band"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    require_caught(tmp_path, monkeypatch, *FAULTS[fault])


@pytest.mark.deep
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([WALK, ROWS, HALVES, FEW, UNITS, SUMS, ODD], monkeypatch)


@pytest.mark.deep
def test_the_sanitizers_find_nothing(tmp_path):
    require_silence(checked_under_sanitizers(tmp_path, [WALK, ROWS, HALVES, FEW, AHEAD, UNITS, SUMS,
                                                       ODD]))


# What is read there reaches no result.
@pytest.mark.parametrize(("plan", "name", "right", "wrong"), [
    (HALVES, TILE, "beside && inside(row + group + r, height)", "true"),
    (AHEAD, TILE, "+ start, least(piece, span - start))", "+ start, piece)"),
    (AHEAD, BLOCK, "least(first_channel + t::channels, s.out_channels) * L::taps",
     "(first_channel + t::channels) * L::taps"),
    (WALK, TILE, "place < elements)", "true)"),
], ids=["pixels outside the image", "pixels fetched ahead", "filters fetched ahead",
        "filters past the last"])
@pytest.mark.deep
def test_the_sanitizers_find_reading_past_the_end(plan, name, right, wrong, tmp_path):
    done = checked_under_sanitizers(tmp_path, [plan], altered(tmp_path, name, right, wrong))
    assert "AddressSanitizer" in done.stderr
