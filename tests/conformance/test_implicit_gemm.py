"""The implicit product of matrices on the emulated device: equal to the reference, and its faults
caught.
"""

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

from dscore.algorithms.implicit_gemm.tiling import ImplicitGemmTiling
from dscore.backends.emulated import EmulatedBackend
from dscore.checking import bound
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

MISSING = EmulatedBackend().missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

# Channels, pixels and steps that end with a tile, a vector, both or neither; tiles that take part
# of an image, one or several; strides within the kernel and past it; groups; kernels of many taps.
TOKENS = ("n1c32h8w8_o32k3p1", "n2c12h7w9_o29k3s2p1_bias_relu6", "n3c40h3w4_o46k1x3p0d1x1g2_bias",
          "n2c9h8w9_o20k2s3p1_hardswish", "n5c17h3w3_o9k3p1d2_relu", "n1c3h11w13_o12k7s2p3_bias")


def tiling(tile, wave, lanes_c, slices, step, patch, cluster=1, arithmetic="plain"):
    return ImplicitGemmTiling(*tile, *wave, lanes_c, slices, *step, patch, cluster, arithmetic)


TILINGS = {
    "z100sm": (tiling((16, 32), (16, 32), 4, 1, (4, 2), 300),
               tiling((32, 16), (16, 8), 16, 2, (8, 2), 280),
               tiling((24, 32), (8, 16), 8, 3, (12, 1), 403)),
    "h200": (tiling((32, 16), (16, 8), 8, 1, (4, 2), 280),
             tiling((8, 16), (4, 16), 4, 4, (16, 4), 300, 3),
             tiling((16, 32), (16, 16), 8, 1, (8, 2), 360, 1, "tf32x3"),
             tiling((24, 64), (8, 32), 8, 2, (8, 3), 417, 1, "tf32x3"),
             tiling((24, 32), (8, 32), 8, 1, (4, 1), 360, 1, "tf32x3"),
             tiling((16, 48), (8, 48), 8, 1, (24, 4), 360, 2, "tf32x3"))}
# Each tiling on two of the problems.
PLANS = [make_plan(parse_problem(token), catalog.device(device), t)
         for device, tilings in TILINGS.items() for number, t in enumerate(tilings)
         for token in (TOKENS[number % 6], TOKENS[(number + 3) % 6])]
# Depthwise layers of many taps: lanes that slide along rows, and rows that they do not divide.
PLANS += [make_plan(parse_problem(token), catalog.device("h200"), ImplicitGemmTiling(
    1, 2 * pixels, 1, pixels, 1, 1, 1, 1, 900)) for token, pixels in (
        ("n1c2h9w14_o2k13p6g2", 224), ("n2c3h7w10_o3k13p6g3_bias", 160),
        ("n1c3h7w8_o3k12p6g3", 96), ("n2c2h5w10_o2k13p6g2_relu", 96))]


@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS, sizes), sizes, monkeypatch)


def planned(t, token="n2c13h5w7_o29k3p1_bias"):
    return make_plan(parse_problem(token), catalog.device("h200"), t)


FETCHED = planned(tiling((16, 32), (8, 16), 8, 2, (4, 2), 120))
RING = planned(tiling((16, 32), (8, 16), 8, 1, (4, 3), 120))
SINGLE = planned(tiling((16, 32), (8, 16), 8, 1, (4, 1), 120))
SLICES = planned(tiling((8, 16), (8, 16), 8, 3, (6, 3), 120))
CLUSTER = planned(tiling((16, 32), (8, 16), 8, 2, (4, 3), 120, 3))
GROUPS = planned(tiling((8, 32), (8, 16), 8, 1, (4, 3), 120), "n2c12h5w7_o10k3p1g2")
STRIDE = planned(tiling((8, 16), (8, 16), 8, 1, (4, 2), 120), "n2c6h7w8_o9k2s3p1")
EIGHTS = planned(tiling((16, 32), (8, 32), 8, 1, (8, 2), 129, 1, "tf32x3"), "n2c12h4w6_o29k3p1")
FOURS = planned(tiling((16, 32), (8, 32), 8, 1, (4, 3), 129, 1, "tf32x3"), "n2c6h4w6_o29k3p1")

# The plan, the source as it is, with its fault, and the file if not the kernel's.
TILES, PATCH = "implicit_gemm/tiles.hpp", "implicit_gemm/patch.hpp"
SLIDES = make_plan(parse_problem("n1c2h9w14_o2k13p6g2"), catalog.device("h200"),
                   ImplicitGemmTiling(1, 448, 1, 224, 1, 1, 1, 1, 900))
FAULTS = {
    "elements that do not pass on": (
        SLIDES, "accumulators[p] += factor * held[tap + p];",
        "accumulators[p] += factor * held[tap];", "implicit_gemm/kernel.hpp"),
    "table not waited for": (
        RING, "    table = places;\n    __syncthreads();\n", "    table = places;\n", PATCH),
    "one buffer filled while it is read": (
        SINGLE, "    if (step > 0) __syncthreads();\n", "", "support/ring.hpp"),
    "padding read as the row before": (
        RING, "image >= s.batch || !inside(row, s.height) || !inside(column, s.width)",
        "image >= s.batch || !inside(row, s.height) || !inside(column + 1, s.width + 1)", PATCH),
    "images without the padding between them": (
        RING, "(image - first_image) * image_rows(s)", "(image - first_image) * s.height", PATCH),
    "last channel of a group masked": (
        GROUPS, "|| channel < group_in(s);", "|| channel < group_in(s) - 1;", PATCH),
    "filters of the first group": (
        GROUPS, "w + (group * group_out(s) + channel)", "w + channel", TILES),
    "columns between those of a large stride": (
        STRIDE, "return position / Step * Stride + position % Step - pad;",
        "return position - pad;", PATCH),
    "slice dropped": (
        SLICES, "other < t::slices - 1;", "other < t::slices - 2;", "support/joined_sums.hpp"),
    "cluster not waited for": (
        CLUSTER, "= sums[i];\n  cluster_barrier();", "= sums[i];", "support/joined_sums.hpp"),
    "channels past the last stored": (
        FETCHED, "!Tiles::wanted(first_channel + channel)",
        "!Tiles::wanted(first_channel + channel - 1)"),
    "second four of the first one's channels": (
        EIGHTS, "4 * taps, 4 * t::patch, true", "4 * taps, 0, true"),
    "odd tap not left out": (
        FOURS, "DSCORE_UNROLL\n      for (int tap = 0; tap < count; tap += Step) "
        "each(row, tap, tap + 1 < count);",
        "for (int tap = 0; tap < count; tap += Step) each(row, tap, true);"),
}


@pytest.mark.parametrize("fault", mostly_deep(FAULTS, "channels past the last stored"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    plan, right, wrong, *file = FAULTS[fault]
    name = file[0] if file else "implicit_gemm/kernel.hpp"
    words = "wrote outside its output" if "stored" in fault else "WRONG"
    require_caught(tmp_path, monkeypatch, plan, name, right, wrong, words)


@pytest.mark.deep
def test_without_a_fault_nothing_is_said(monkeypatch):
    plans = [FETCHED, RING, SINGLE, SLICES, CLUSTER, GROUPS, STRIDE, EIGHTS, FOURS]
    require_right(plans, monkeypatch)


@pytest.mark.deep
def test_the_sanitizers_find_nothing(tmp_path):
    plan = planned(tiling((16, 32), (8, 16), 8, 2, (8, 3), 129, 2, "tf32x3"), "n3c10h3w5_o29k3p1")
    require_silence(checked_under_sanitizers(tmp_path, [plan]))


@pytest.mark.parametrize("plan", [RING, deep(EIGHTS), deep(FOURS)],
                         ids=["plain", "eights", "fours"])
def test_a_nan_reaches_the_pixels_whose_taps_it_is_under(plan):
    x, w, bias = bound.sample(plan.problem, 0)[:3]
    x[1, 5, 2, 3] = np.nan
    out = np.zeros(plan.problem.y_shape, np.float32)
    EmulatedBackend().compile(plan)(x, w, bias, out)
    assert np.isnan(out[1, :, 1:4, 2:5]).all()
    assert np.count_nonzero(np.isnan(out)) == 9 * plan.problem.spec.out_channels
