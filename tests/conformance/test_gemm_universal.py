"""Products of matrices in any order of axes on the emulated device: equal to the reference, and
faults caught."""

import pytest
from emulated_runs import (
    checked_under_sanitizers,
    require_bit_equal,
    require_caught,
    require_right,
    require_silence,
)
from profiles import deep, mostly_deep, share

from dscore.algorithms.gemm_universal.tiling import GemmUniversalTiling
from dscore.backends.emulated import EmulatedBackend
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

MISSING = EmulatedBackend().missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


def tiling(tile, wave, lanes_m, slices, step, shared=(1, 1), arithmetic="plain"):
    return GemmUniversalTiling(*tile, *wave, lanes_m, slices, *step, *shared,
                               arithmetic=arithmetic)


def planned(t, token, device="h200"):
    return make_plan(parse_problem(token), catalog.device(device), t)


UNITS = "matrix16"
# Rows and columns that end with a tile, a vector, both or neither; strides, padding, odd channels.
PLANS = [planned(*row) for row in (
    (tiling((16, 64), (16, 32), 8, 1, (32, 3), (1, 1), UNITS), "n2c40h3w5_o56k1_float16_nhwc_bias"),
    (tiling((32, 48), (16, 48), 8, 1, (16, 1), (1, 1), UNITS), "n1c13h5w7_o29k1_bfloat16_nhwc"),
    (tiling((32, 24), (16, 24), 8, 2, (32, 4), (2, 1), UNITS),
     "n2c72h6w7_o24k1s2p1_float16_nhwc_bias_hardswish_scaled"),
    (tiling((32, 32), (16, 32), 8, 1, (8, 3), (1, 1), "tf32x3"), "n3c20h3w4_o36k1_nhwc_bias_relu"),
    (tiling((16, 16), (16, 16), 8, 1, (16, 2), (3, 1)), "n37c18h1w1_o21k1_bias_relu6"),
    (tiling((16, 32), (8, 16), 4, 3, (12, 2)), "n2c23h6w7_o19k1s2p1_nhwc_bias", "z100sm"),
    (tiling((16, 40), (16, 40), 8, 1, (32, 4), (1, 1), UNITS),
     "input_gradient_n2c36h4w5_o40k1s2p1_float16_nhwc"),
    (tiling((32, 32), (16, 16), 8, 2, (16, 3), (1, 1), "tf32x3"),
     "input_gradient_n1c20h5w7_o18k1_nhwc"),
    (tiling((16, 64), (16, 64), 8, 1, (8, 2)), "input_gradient_n2c20h3w5_o24k1s2_nhwc", "z100sm"),
    (tiling((32, 64), (16, 32), 8, 2, (32, 3), (1, 3), UNITS),
     "weight_gradient_n2c33h6w7_o22k1s2p1_bfloat16_nhwc"),
    (tiling((32, 16), (16, 16), 8, 1, (16, 4), (2, 9), "tf32x3"),
     "weight_gradient_n3c20h7w9_o30k1_nhwc"),
    (tiling((16, 32), (16, 32), 8, 2, (8, 1)), "weight_gradient_n2c17h3w5_o9k1_nhwc", "z100sm"),
    # AMD's matrix units.
    (tiling((32, 32), (16, 32), 8, 2, (32, 2), (1, 1), UNITS), "n2c40h3w5_o36k1_float16_nhwc_bias",
     "gfx90a"),
    (tiling((16, 48), (16, 16), 8, 1, (48, 1), (1, 1), UNITS),
     "input_gradient_n2c33h3w5_o24k1_bfloat16_nhwc", "gfx90a"),
    # Several tiles of rows by one block; results that pass LDS.
    (tiling((16, 64), (16, 32), 8, 1, (32, 3), (1, 1, 3), UNITS),
     "n2c24h5w9_o56k1_float16_nhwc_bias_relu6_scaled"),
    (tiling((32, 24), (16, 24), 8, 1, (48, 2), (1, 1, 2, True), UNITS),
     "input_gradient_n2c24h5w9_o40k1_bfloat16_nhwc"),
    (tiling((16, 32), (8, 32), 8, 1, (24, 2), (1, 1, 2, True)), "n2c23h6w7_o19k1s2p1_nhwc_bias",
     "z100sm"),
    # Channels first: vectors of pixels, single ones of odd planes and strides.
    (tiling((32, 64), (16, 32), 8, 1, (32, 3), (1, 1, 1, True), UNITS),
     "n2c40h4w10_o36k1_float16_bias_relu_scaled"),
    (tiling((16, 32), (16, 16), 8, 2, (32, 4), (2, 1), UNITS), "n3c33h3w5_o21k1s2p1_bfloat16_bias"),
    (tiling((16, 32), (8, 32), 8, 1, (8, 2)), "n2c12h3w7_o10k1_float16", "z100sm"),
    (tiling((48, 32), (16, 32), 8, 1, (32, 3), (1, 1), UNITS),
     "input_gradient_n2c40h4w6_o56k1_float16"),
    (tiling((16, 48), (16, 48), 8, 1, (16, 1), (1, 1), UNITS),
     "input_gradient_n2c24h5w5_o17k1s2_float16"),
    # Vectors of pixels, of which an output was made of the second or the third alone.
    (tiling((16, 32), (16, 32), 8, 1, (32, 3), (1, 1), UNITS),
     "input_gradient_n2c24h3w6_o17k1s1x2p0x0x1x1_bfloat16"),
    (tiling((16, 32), (8, 32), 8, 1, (8, 2)), "input_gradient_n2c13h4w7_o9k1s3_float16", "z100sm"),
    (tiling((32, 32), (16, 16), 8, 2, (32, 3), (1, 2), UNITS),
     "weight_gradient_n3c24h4w6_o40k1_float16"),
    (tiling((16, 24), (16, 24), 8, 1, (32, 4), (2, 9), UNITS),
     "weight_gradient_n3c20h5w5_o17k1s2p1_bfloat16"))]


@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS, sizes), sizes, monkeypatch)


HALVES = planned(tiling((16, 32), (16, 32), 8, 1, (32, 3), (1, 1), UNITS),
                 "n1c90h5w7_o24k1_float16_nhwc")
STREAMED = planned(tiling((16, 32), (16, 16), 8, 1, (32, 3), (1, 1, 4, True), UNITS),
                   "n1c24h9w7_o32k1_float16_nhwc_bias")
# The plan, the file and its source as it is, with its fault, and what is said of it.
FAULTS = {
    "sums kept in 16 bits": (
        HALVES, "support/matrix_units.hpp", "  lanes.done();\n#elif defined(__CUDACC__)",
        "  for (int i = 0; i < 4; i++) d[i] = static_cast<float>(T(d[i]));\n  lanes.done();\n"
        "#elif defined(__CUDACC__)", "WRONG"),
    "elements past the last of a row": (
        HALVES, "gemm_universal/operands.hpp", "column < columns;",
        "column <= columns;", "WRONG"),
    "ring of tiles one buffer short": (
        STREAMED, "gemm_universal/product.hpp", "return ring + tile % t::stages *",
        "return ring + tile % (t::stages - 1) *", "WRONG"),
    "results read before all are in LDS": (
        STREAMED, "gemm_universal/product.hpp",
        "if constexpr (t::cluster > 1) cluster_barrier();\n    else __syncthreads();\n",
        "if constexpr (t::cluster > 1) cluster_barrier();\n", "WRONG"),
}


@pytest.mark.parametrize("fault", mostly_deep(
    FAULTS, "results read before all are in LDS", "sums kept in 16 bits"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    require_caught(tmp_path, monkeypatch, *FAULTS[fault])


@pytest.mark.deep
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([HALVES, STREAMED], monkeypatch)


FORWARD, SUMS = ((2, 1, 1, True), (2, 3))


@pytest.mark.deep
def test_the_sanitizers_find_nothing(tmp_path):
    """Of all pixels operands are fetched ahead, by whole vectors alone."""
    require_silence(checked_under_sanitizers(tmp_path, [
        planned(tiling((32, 24), (16, 24), 8, 1, (32, 3), shared, UNITS), token)
        for token, shared in (
            ("n2c36h5w7_o22k1s2p1_float16_nhwc_bias", FORWARD),
            ("n2c37h5w7_o23k1_float16_nhwc_bias", FORWARD), ("n3c29h5w5_o33k1_float16", FORWARD),
            ("weight_gradient_n5c37h5w7_o23k1_float16_nhwc", SUMS),
            ("weight_gradient_n5c29h5w5_o33k1_float16", SUMS))]))
