"""The implicit product of matrices of both layouts on the emulated device: equal to the reference,
and its faults caught."""

import numpy as np
import pytest
from emulated_runs import (
    checked_under_sanitizers,
    require_bit_equal,
    require_caught,
    require_right,
    require_silence,
)
from profiles import deep, mostly_deep, share

from dscore.algorithms.implicit_gemm_universal.tiling import ImplicitGemmUniversalTiling
from dscore.backends.emulated import EmulatedBackend
from dscore.checking import bound
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

MISSING = EmulatedBackend().missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


def tiling(tile, wave, lanes_c, slices, step, patch, cluster=1, arithmetic="plain"):
    return ImplicitGemmUniversalTiling(*tile, *wave, lanes_c, slices, *step, patch, cluster,
                                       arithmetic)


def planned(t, token, device="h200"):
    return make_plan(parse_problem(token), catalog.device(device), t)


UNITS = "matrix16"
# Channels, pixels and steps that end with a tile, a vector, both or neither; fragments of one tap,
# two and four, with taps left over; strides within the kernel and past it; groups; both layouts.
PLANS = [planned(*row) for row in (
    (tiling((16, 32), (16, 16), 8, 1, (16, 3), 120, 1, UNITS),
     "n2c40h5w7_o56k3p1_float16_nhwc_bias_relu"),
    (tiling((24, 32), (24, 16), 8, 1, (4, 1), 200, 1, UNITS), "n2c3h9w8_o20k3s2p1_bfloat16_nhwc"),
    (tiling((16, 32), (16, 16), 8, 2, (16, 4), 160, 2, UNITS), "n2c20h6w7_o13k3p1_float16_bias"),
    (tiling((8, 32), (8, 16), 8, 1, (8, 2), 150, 1, UNITS),
     "n2c24h5w9_o24k2x3p1g3_bfloat16_nhwc_hardswish"),
    (tiling((16, 48), (8, 48), 8, 1, (12, 2), 403, 3, UNITS), "n1c30h8w8_o12k3p2d2_float16_relu6"),
    (tiling((32, 16), (16, 16), 8, 2, (16, 3), 120, 1, "tf32x3"), "n2c20h4w5_o36k3p1_nhwc_bias"),
    (tiling((16, 32), (16, 32), 8, 1, (4, 2), 390, 2, "tf32x3"), "n1c9h11w8_o12k5s3p2_nhwc"),
    (tiling((32, 16), (16, 8), 8, 2, (8, 3), 120), "n3c12h3w5_o19k3p1_nhwc_bias_relu"),
    # AMD: plain arithmetic and matrix units.
    (tiling((16, 32), (16, 32), 4, 2, (8, 2), 200), "n2c12h6w6_o20k3s2p1g2_bfloat16", "z100sm"),
    (tiling((32, 32), (16, 32), 8, 1, (16, 2), 120, 1, UNITS), "n2c40h5w6_o36k3p1_float16_nhwc",
     "gfx90a"),
    (tiling((16, 32), (16, 16), 8, 2, (24, 1), 120, 1, UNITS), "n2c33h4w6_o24k3p1_float16_bias",
     "gfx90a"),
    (tiling((16, 16), (16, 16), 8, 1, (4, 2), 140, 1, UNITS), "n1c3h8w9_o16k3s2_bfloat16_nhwc",
     "gfx90a"))]


@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS, sizes), sizes, monkeypatch)


EIGHTS = planned(tiling((16, 32), (16, 16), 8, 1, (8, 3), 120, 1, UNITS),
                 "n2c21h5w7_o24k3p1_float16_nhwc")
WHOLE = planned(tiling((16, 32), (16, 16), 8, 2, (32, 1), 120, 1, UNITS),
                "n2c48h5w7_o12k3p1_float16")
STEM = planned(tiling((16, 32), (16, 32), 8, 1, (4, 2), 230, 1, UNITS),
               "n2c3h9w9_o16k3s2p1_float16_nhwc")
TILES, LANES = "implicit_gemm_universal/tiles.hpp", "implicit_gemm_universal/lanes.hpp"
KERNEL = "implicit_gemm_universal/kernel.hpp"
# The plan, the file and its source as it is, with its fault.
FAULTS = {
    "half vector past the last channel": (
        EIGHTS, TILES, "channel < group_in(s);", "channel / 8 * 8 < group_in(s);"),
    "sums kept in 16 bits": (
        WHOLE, "support/matrix_units.hpp", "  lanes.done();\n#elif defined(__CUDACC__)",
        "  for (int i = 0; i < 4; i++) d[i] = static_cast<float>(T(d[i]));\n  lanes.done();\n"
        "#elif defined(__CUDACC__)"),
    "tap past the last": (
        STEM, LANES, "t::taps % t::taps_together == 0 || tap + other < t::taps", "true"),
    "taps of a filter in the order of memory": (
        WHOLE, TILES, "at = j * taps_each + tap;", "at = tap * piece + j;"),
    "slice dropped": (
        WHOLE, "support/joined_sums.hpp", "other < t::slices; other++",
        "other < t::slices - 1; other++"),
    "sums read before all are in LDS": (
        WHOLE, KERNEL, "if constexpr (t::cluster > 1) cluster_barrier();\n    else "
        "__syncthreads();\n", "if constexpr (t::cluster > 1) cluster_barrier();\n"),
}


@pytest.mark.parametrize("fault", mostly_deep(FAULTS, "half vector past the last channel"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    require_caught(tmp_path, monkeypatch, *FAULTS[fault], "WRONG")


@pytest.mark.deep
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([EIGHTS, WHOLE, STEM], monkeypatch)


@pytest.mark.deep
def test_the_sanitizers_find_nothing(tmp_path):
    plan = planned(tiling((24, 32), (24, 16), 8, 2, (16, 3), 120, 2, UNITS),
                   "n2c30h5w7_o22k3p1_float16_nhwc_bias")
    require_silence(checked_under_sanitizers(tmp_path, [plan]))


@pytest.mark.parametrize("plan", [EIGHTS, deep(STEM)], ids=["eights", "fours"])
def test_a_nan_reaches_the_pixels_whose_taps_it_is_under(plan):
    x, w, bias = bound.sample(plan.problem, 0)[:3]
    x[1, 2, 3, 1] = np.nan
    out = np.zeros(plan.problem.y_shape, np.float16)
    EmulatedBackend().compile(plan)(x, w, bias, out)
    stride, reached = plan.problem.spec.stride[0], np.zeros(plan.problem.y_shape[1:3], bool)
    for row, column in np.ndindex(reached.shape):
        reached[row, column] = (abs(row * stride - 2) <= 1) and abs(column * stride - 3) <= 1
    assert np.isnan(out[1][reached]).all()
    assert np.count_nonzero(np.isnan(out)) == reached.sum() * plan.problem.spec.out_channels
