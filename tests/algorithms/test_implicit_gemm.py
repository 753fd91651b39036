"""The implicit product of matrices: its rules admit the kernels that exist and no others, and what
it says of the images under a tile is so."""

from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import plan_of
from profiles import deep, examples, mostly_deep
from reference_runs import near, problems

from dscore.algorithms.implicit_gemm.space import columns_of
from dscore.algorithms.implicit_gemm.tiling import (
    ImplicitGemmTiling,
    pixels_of,
    place_of,
    rows_of,
    under_tile,
)
from dscore.algorithms.registry import case_of, running
from dscore.backends.reference.implicit_gemm_lanes import lanes_of
from dscore.core import catalog
from dscore.core.errors import LaunchError
from dscore.core.numerics import FLOAT32_ARITHMETICS
from dscore.core.token import parse_problem
from dscore.solving.rules import keeps_all
from dscore.solving.solver import best_plan, solve

PROBLEM = parse_problem("n1c16h4w4_o8k3p1")
FREE = st.builds(
    ImplicitGemmTiling, tile_c=st.sampled_from([8, 12, 16, 48]),
    tile_p=st.sampled_from([8, 16, 24, 32, 64]), wave_c=st.sampled_from([4, 8, 12, 16]),
    wave_p=st.sampled_from([8, 16, 24, 32, 64]), lanes_c=st.sampled_from([1, 4, 6, 8, 16, 64]),
    slices=st.integers(1, 3), step_c=st.sampled_from([3, 4, 8, 12, 24]), stages=st.integers(1, 4),
    patch=st.sampled_from([35, 36, 64]), cluster=st.integers(1, 9),
    arithmetic=st.sampled_from(FLOAT32_ARITHMETICS))


@st.composite
def sound(draw):
    """Tilings of whole wavefronts and slices, of wavefronts of 32 or 64."""
    split, lanes_c = draw(st.booleans()), draw(st.sampled_from([4, 8, 16]))
    lanes_c, wavefront = (8, 32) if split else (lanes_c, draw(st.sampled_from([32, 64])))
    wave_c = lanes_c * draw(st.integers(1, 2))
    wave_p = (16 if split else wavefront // lanes_c) * draw(st.integers(1, 2))
    slices = draw(st.integers(1, 2))
    return ImplicitGemmTiling(
        wave_c * draw(st.integers(1, 2)), wave_p * draw(st.integers(1, 2)), wave_c, wave_p, lanes_c,
        slices, slices * 4 * draw(st.integers(1, 2)), draw(st.integers(2, 3)),
        draw(st.sampled_from([35, 36])), draw(st.integers(1, 2)), "tf32x3" if split else "plain")


def exists(t, device):
    """Whether the kernel's assertions hold, the reference's copy of them, and the device can."""
    plan = plan_of(PROBLEM, t, device.wavefront)
    try:
        lanes_of(plan)
    except LaunchError:
        return False
    modern = device.name in ("a100", "h200")
    return (plan.use.threads <= device.threads_per_block
            and t.cluster <= (8 if device.name == "h200" else 1)
            # The 6 x 6 rows of an image with its padding, where a tile takes all of it.
            and t.patch >= (36 if t.tile_p >= 16 else 22) and t.step_c * 9 % 4 == 0
            and (modern or (t.stages <= 2 and t.arithmetic == "plain")))


@pytest.mark.parametrize("name", mostly_deep(
    ["z100sm", "rtx2080ti", "a100", "h200"], "z100sm", "h200"))
@settings(max_examples=examples(300))
@given(t=st.one_of(FREE, sound()))
def test_the_rules_are_the_kernels_assertions(name, t):
    device = catalog.device(name)
    case = case_of(PROBLEM, device, t)
    assert bool(keeps_all(case, "hardware", masked=True, legality=True)) == exists(t, device)


def test_few_products_are_not_split():
    device = catalog.device("h200")
    t = ImplicitGemmTiling(8, 16, 8, 16, 8, 1, 4, 3, 99, 1, "tf32x3")
    for token, admitted in (("n1c5h4w4_o8k1x3", False), ("n1c4h4w4_o8k2", True)):
        case = case_of(parse_problem(token), device, t)
        assert keeps_all(case, "hardware", masked=True, legality=True) == admitted


@settings(max_examples=examples(200), deadline=None)
@given(problem=problems(st.integers(1, 9), st.integers(1, 9), (4, 3, 1), kernels=(1, 2, 3, 5)),
       tile_p=near(16, 40))
def test_under_a_tile_lie_as_many_elements_as_its_taps_reach(problem, tile_p):
    """Counted tap by tap, in images written out with their padding."""
    spec, pixels = problem.spec, pixels_of(problem)
    rows = rows_of(problem)
    most = 0
    for first in range(0, pixels, tile_p):
        reached = [
            place_of(problem, pixel) - place_of(problem, first)
            + f * spec.dilation[0] * rows.width + g * spec.dilation[1]
            for pixel in range(first, min(first + tile_p, pixels))
            for f in range(spec.kernel[0]) for g in range(spec.kernel[1])]
        assert min(reached) == 0
        most = max(most, max(reached) + 1)
    assert under_tile(problem, tile_p) == most
    assert list(under_tile(problem, np.array([tile_p, 1]))) == [most, rows.reach]


def test_it_runs_what_direct_ran_alone():
    kinds = {"n1c8h9w9_o8k3p1": True, "n1c8h9w9_o8k3p1g2": True, "n1c8h9w9_o8k1g4": True,
             "n1c8h9w9_o8k1": False, "n1c8h9w9_o8k3p1g8": False}
    for token, able in kinds.items():
        assert ("implicit_gemm" in [one.name for one in running(parse_problem(token))]) == able


@pytest.mark.parametrize("token", [
    "n1c3h224w224_o32k3s2p1", "n8c3h224w224_o24k3s2p1", "n64c3h224w224_o64k7s2p3",
    "n1c64h56w56_o64k3p1", "n64c512h7w7_o512k3p1", "n1c512h7w7_o512k3p1",
    "n8c128h56w56_o128k3p1g32", "n8c1024h7w7_o1024k3p1g32"])
@pytest.mark.parametrize("name", ["z100sm", "gfx90a", "h200"])
def test_it_serves_networks_first_layers_dense_ones_and_groups(name, token):
    problem, device = parse_problem(token), catalog.device(name)
    space = solve(problem, device)
    # Hopper's warpgroups multiply many images of many channels.
    others = name == "h200" and token == "n64c512h7w7_o512k3p1"
    assert space.algorithm.name == ("implicit_warpgroup" if others else "implicit_gemm")
    plan = best_plan(problem, device)
    # Fours of three channels are the emptiest.
    assert plan.cost.utilisation > (0.25 if problem.spec.groups == 32 else 0.6)
    by_tf32 = name == "h200" and problem.spec.group_out > 4
    assert (space.algorithm.arithmetic(problem, plan.tiling) == "tf32x3") == by_tf32


@pytest.mark.parametrize("token", ["n1c16h6w8_o32k3p1", deep("n8c24h28w28_o144k3s2"),
                                   "n2c64h9w9_o64k3g8"])
@pytest.mark.parametrize("name", ["z100sm", "h200"])
def test_every_wavefront_has_channels_and_pixels(token, name):
    problem, device = parse_problem(token), catalog.device(name)
    spec, columns = problem.spec, columns_of(problem, device)
    rows = [dict(zip(vars(columns), values, strict=True))
            for values in zip(*vars(columns).values(), strict=True)]
    assert len(rows) == len({tuple(row.values()) for row in rows})
    for row in rows:
        assert row["tile_c"] - row["wave_c"] < spec.group_out
        assert row["tile_p"] - row["wave_p"] < pixels_of(problem)
        slice_c = row["step_c"] // row["slices"]
        assert (row["slices"] - 1) * slice_c < spec.group_in
        each = ceil(ceil(spec.group_in / row["step_c"]) / row["cluster"])
        assert (row["cluster"] - 1) * each * row["step_c"] < spec.group_in
        assert row["patch"] >= under_tile(problem, row["tile_p"])
        # No bank of LDS is met twice by lanes of four channels.
        if row["arithmetic"] == "tf32x3":
            assert row["patch"] % 32 in (1, 8)
