"""The split sum over pixels on the emulated device: equal to the reference, and its faults caught.
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

from dscore.algorithms.split_k.tiling import SplitKTiling
from dscore.backends.emulated import EmulatedBackend
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

MISSING = EmulatedBackend().missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

# Channels, pixels and steps that end with a tile, a vector, both or neither; steps that lie in one
# image, over two or over several; more shares of them than steps.
TOKENS = ("weight_gradient_n3c32h8w8_o48k1", "weight_gradient_n2c37h5w7_o29k1",
          "weight_gradient_n5c40h4w4_o17k1", "weight_gradient_n2c23h6w7_o19k1s2p1")


def tiling(tile, wave, lanes_o, slices, step, parts=1, arithmetic="plain", planes=False,
           cluster=1):
    return SplitKTiling(*tile, *wave, lanes_o, slices, *step, parts, planes, arithmetic, cluster)


TILINGS = {
    "z100sm": (tiling((16, 32), (8, 16), 4, 1, (8, 2)),
               tiling((8, 8), (8, 8), 8, 3, (24, 2), 3),
               tiling((32, 8), (16, 4), 16, 2, (8, 2), 20)),
    "h200": (tiling((16, 16), (8, 8), 8, 2, (16, 2)),
             tiling((8, 16), (4, 8), 4, 4, (16, 4), 2),
             tiling((32, 16), (16, 16), 8, 1, (8, 2), 9, "tf32x3"),
             tiling((16, 48), (16, 24), 8, 2, (16, 3), 1, "tf32x3"),
             tiling((32, 8), (16, 8), 8, 3, (48, 4), 2, "tf32x3"),
             tiling((16, 16), (8, 8), 8, 2, (16, 3), cluster=4),
             tiling((32, 16), (16, 16), 8, 2, (16, 3), 2, "tf32x3", cluster=2))}
# Planes of 35 and 9 pixels, which are neither vectors nor eights; an image of a step missing.
PLANES = (
    ("z100sm", "weight_gradient_n3c20h5w7_o28k1", tiling((16, 32), (8, 16), 4, 2, (70, 2),
                                                         planes=True)),
    ("h200", "weight_gradient_n5c40h3w3_o36k1", tiling((16, 16), (16, 8), 8, 2, (18, 4), 2,
                                                       "tf32x3", planes=True)),
    ("h200", "weight_gradient_n4c12h5w7_o20k1", tiling((32, 8), (16, 8), 8, 1, (35, 3), 3,
                                                       "tf32x3", planes=True)),
    ("h200", "weight_gradient_n4c12h5w7_o20k1", tiling((32, 8), (16, 8), 8, 1, (35, 3),
                                                       planes=True, cluster=3)),
    ("h200", "weight_gradient_n3c8h2w2_o12k1", tiling((8, 8), (8, 8), 8, 3, (12, 2), planes=True)))
# Each tiling on two of the problems.
PLANS = [make_plan(parse_problem(TOKENS[(number + part) % 4]), catalog.device(device), t)
         for device, tilings in TILINGS.items() for number, t in enumerate(tilings)
         for part in (0, 1)]
PLANS += [make_plan(parse_problem(token), catalog.device(device), t)
          for device, token, t in PLANES for _ in (0, 1)]


@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS, sizes), sizes, monkeypatch)


def planned(t, token="weight_gradient_n2c37h5w7_o29k1"):
    return make_plan(parse_problem(token), catalog.device("h200"), t)


RING = planned(tiling((16, 16), (8, 8), 8, 1, (8, 3), 2))
SLICES = planned(tiling((16, 16), (8, 8), 8, 2, (8, 3)))
PARTS = planned(tiling((32, 16), (16, 8), 8, 1, (8, 3), 9))
JOINED = planned(tiling((32, 16), (8, 8), 8, 1, (8, 3), cluster=2))
SPLIT = planned(tiling((32, 16), (16, 16), 8, 1, (16, 3), 1, "tf32x3"))
WHOLE, FETCHED = (make_plan(parse_problem(token), catalog.device(device), t)
                  for device, token, t in (PLANES[1], PLANES[0]))
# The plan, the source as it is, with its fault, what is said of it, and the file.
FAULTS = {
    "share of the steps dropped": (
        RING, "steps = all / t::shares + (share < all % t::shares)", "steps = all / t::shares",
        "WRONG", "split_k/tiles.hpp"),
    "last pixel masked": (
        RING, "|| pixel < pixels(s);", "|| pixel < pixels(s) - 1;", "WRONG",
        "split_k/tiles.hpp"),
    "slice dropped": (SLICES, "other < t::slices;", "other < t::slices - 1;", "WRONG"),
    "slices not waited for": (
        SLICES, "    else __syncthreads();\n    constexpr int columns", "    constexpr int columns",
        "WRONG"),
    "blocks of a cluster not waited for": (
        JOINED, "    if constexpr (cluster > 1) cluster_barrier();\n    else __syncthreads();\n",
        "    __syncthreads();\n", "WRONG"),
    "a block of the cluster left out": (
        JOINED, "int block = 0; block < together;", "int block = 1; block < together;", "WRONG",
        "support/joined_sums.hpp"),
    "pixels past a plane's last multiplied": (
        WHOLE, "t::slice % 8 == 0 || at < t::slice ?", "at >= 0 ?", "WRONG"),
    "image past the last multiplied": (
        WHOLE, "if (slice < Tiles::images(step)) multiply", "multiply", "WRONG"),
    "planes not waited for": (
        WHOLE, "wait_for_load<t::stages - 2>", "wait_for_load<t::stages - 1>", "WRONG"),
    "last channel not copied": (
        WHOLE, "const int elements_g = least(t::tile_o, s.out_channels - first_o) * t::row;",
        "const int elements_g = least(t::tile_o, s.out_channels - first_o - 4) * t::row;",
        "WRONG", "split_k/tiles.hpp"),
    "vector not fetched": (
        FETCHED, "(whole || first * t::row + at < all)", "(whole || first * t::row + at < all - 4)",
        "WRONG", "split_k/tiles.hpp"),
    "sums over what is still multiplied": (
        RING, "    __syncthreads();\n    if constexpr (t::split) put_split",
        "    if constexpr (t::split) put_split", "WRONG"),
    "channels past the last stored": (
        SPLIT, "first_o + o < s.out_channels &&", "first_o + o <= s.out_channels &&",
        "wrote outside its output"),
    "pixels of a fragment exchanged": (
        SPLIT, "b[n][0] = Halves(two.at[0]), b[n][1] = Halves(two.at[1]);",
        "b[n][1] = Halves(two.at[0]), b[n][0] = Halves(two.at[1]);", "WRONG"),
    "part left out": (PARTS, "part < t::parts; part += rows", "part < t::parts - 1; part += rows",
                      "WRONG", "split_k/sum.hpp"),
    "rows of the parts not waited for": (
        PARTS, "sums[threadIdx.x] = sum;\n      __syncthreads();", "sums[threadIdx.x] = sum;",
        "WRONG", "split_k/sum.hpp"),
}


@pytest.mark.parametrize("fault", mostly_deep(FAULTS, "image past the last multiplied"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    plan, right, wrong, words, *file = FAULTS[fault]
    name = file[0] if file else "split_k/kernel.hpp"
    require_caught(tmp_path, monkeypatch, plan, name, right, wrong, words)


@pytest.mark.deep
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([RING, SLICES, PARTS, SPLIT, WHOLE, FETCHED], monkeypatch)


@pytest.mark.deep
def test_the_sanitizers_find_nothing(tmp_path):
    plan = planned(tiling((32, 16), (16, 8), 8, 2, (32, 3), 2, "tf32x3"),
                   "weight_gradient_n3c20h3w5_o29k1")
    require_silence(checked_under_sanitizers(tmp_path, [plan]))


def test_a_nan_of_the_input_reaches_its_channel_alone():
    x, gradient = (np.ones(shape, np.float32)
                   for shape in (SPLIT.problem.x_shape, SPLIT.problem.y_shape))
    x[1, 5, 2, 3] = np.nan
    out = np.zeros((29, 37, 1, 1), np.float32)
    EmulatedBackend().compile(SPLIT)(x, gradient, out)
    assert np.isnan(out[:, 5]).all()
    assert np.count_nonzero(np.isnan(out)) == 29
