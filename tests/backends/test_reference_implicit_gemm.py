"""The reference of the implicit product of matrices: its order of additions, and what it counts."""

from __future__ import annotations

from functools import reduce
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import plan_of
from profiles import deep, examples
from reference_runs import CHECKED, arrays, check, near, problems, run

from dscore.algorithms.implicit_gemm import ImplicitGemm
from dscore.algorithms.implicit_gemm.tiling import ImplicitGemmTiling, under_tile
from dscore.algorithms.registry import algorithm
from dscore.backends.reference.backend import ReferenceBackend
from dscore.backends.reference.gemm_lanes import halves
from dscore.core.errors import LaunchError
from dscore.core.problem import ConvProblem
from dscore.core.spec import ConvSpec
from dscore.core.token import parse_problem
from dscore.core.trace import Trace
from dscore.solving.explain import wavefront_map

PLAIN = ImplicitGemmTiling(16, 32, 8, 16, 8, 2, 8, 2, 200)
SPLIT = ImplicitGemmTiling(16, 32, 8, 16, 8, 2, 16, 3, 200, arithmetic="tf32x3")


@st.composite
def plans(draw):
    tf32 = draw(st.booleans())
    wavefront = 32 if tf32 else draw(st.sampled_from([64, 32]))
    lanes_c = 8 if tf32 else draw(st.sampled_from([4, 8, 16]))
    wave_c = lanes_c * draw(st.integers(1, 2))
    wave_p = (16 if tf32 else wavefront // lanes_c) * draw(st.integers(1, 2))
    slices, groups = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    tile_c, tile_p = wave_c * draw(st.integers(1, 2)), wave_p * draw(st.integers(1, 2))
    # Of fewer products the error of tf32x3 is no float32 sum's.
    channels = (groups * draw(st.integers(16 if tf32 else 1, 20)),
                groups * draw(near(tile_c, 18)), groups)
    problem = draw(problems(st.integers(1, 5), st.integers(1, 7), channels).filter(
        lambda problem: problem.spec.kind in ("dense", "grouped")))
    step_c = slices * (4 if tf32 else 1) * draw(st.integers(1, 2))
    if step_c * problem.spec.kernel[0] * problem.spec.kernel[1] % 4:
        step_c *= 4
    t = ImplicitGemmTiling(
        tile_c, tile_p, wave_c, wave_p, lanes_c, slices, step_c, draw(st.integers(1, 4)),
        under_tile(problem, tile_p) + draw(st.integers(0, 3)), draw(st.integers(1, 3)),
        "tf32x3" if tf32 else "plain")
    return plan_of(problem, t, wavefront)


@settings(CHECKED, max_examples=examples(120))
@given(plans(), st.integers(0, 99))
def test_the_implicit_product_is_within_the_bound(plan, seed):
    check(plan, seed)


def fl(value):
    return np.float32(value)


def shares(t, channels):
    """The channels of each block of a cluster, of each slice, in runs of one step and slice; those
    past the last as well."""
    steps, each = -(-channels // t.step_c), t.step_c // t.slices
    per_block = -(-steps // t.cluster)
    for rank in range(t.cluster):
        mine = range(steps)[rank * per_block:(rank + 1) * per_block]
        yield [[range(first, first + each)
                for first in (step * t.step_c + part * each for step in mine)]
               for part in range(t.slices)]


def plainly(channels, a, b, total):
    for c, tap in product(channels, range(a.shape[1])):
        if c < len(a):
            total = fl(total + fl(a[c, tap] * b[c, tap]))
    return total


def in_three_terms(channels, a, b, total):
    parts_a, parts_b, taps, step = halves(a), halves(b), range(a.shape[1]), fl(0)
    if len(channels) % 8 == 0:
        eights = [[(c + i, tap) for i in range(8)] for c in channels[::8] for tap in taps]
    else:
        eights = [[(c + i, tap) for tap in two for i in range(4)]
                  for c in channels[::4] for two in (taps[at:at + 2] for at in taps[::2])]
    for eight in eights:
        for small_a, small_b in ((1, 0), (0, 1), (0, 0)):
            for c, tap in eight:
                if c < len(a):
                    step = fl(step + parts_a[small_a][c, tap] * parts_b[small_b][c, tap])
    return fl(total + step)


def added(t, a, b, add):
    """The sum of products of *a* and *b*, channels by taps, in the documented order."""
    blocks = []
    for slices in shares(t, len(a)):
        sums = []
        for runs in slices:
            sums.append(fl(0))
            for channels in runs:
                sums[-1] = add(channels, a, b, sums[-1])
        blocks.append(reduce(np.add, sums))
    return reduce(np.add, blocks)


@pytest.mark.parametrize("token", [deep("n2c37h4w5_o5k3p1"), "n1c24h4w4_o6k2x3s3x1p1g2"])
@pytest.mark.parametrize(("fields", "add"), [
    ({}, plainly), ({"slices": 4}, plainly), ({"cluster": 2, "stages": 4}, plainly),
    ({"lanes_c": 4, "slices": 1, "stages": 1}, plainly), ({"arithmetic": "tf32x3"}, in_three_terms),
    ({"arithmetic": "tf32x3", "step_c": 16, "cluster": 3, "stages": 3}, in_three_terms)])
def test_it_adds_in_the_documented_order(token, fields, add):
    tiling = ImplicitGemmTiling(**{**PLAIN.as_dict(), **fields})
    plan = plan_of(parse_problem(token), tiling, 32)
    spec, (x, w, _) = plan.problem.spec, arrays(plan.problem)
    out = run(plan, x, w, None)
    padded = np.pad(x, ((0, 0), (0, 0), *((1, 1) for _ in "hw")))
    for n, o, row, column in product(*map(range, out.shape)):
        first = o // spec.group_out * spec.group_in
        top, left = row * spec.stride[0], column * spec.stride[1]
        under = padded[n, first:first + spec.group_in, top:top + spec.kernel[0],
                       left:left + spec.kernel[1]].reshape(spec.group_in, -1)
        wanted = added(tiling, under, w[o].reshape(spec.group_in, -1), add)
        assert out[n, o, row, column] == wanted


def traced(plan):
    trace = Trace()
    x, w, bias = arrays(plan.problem)
    out = np.empty(plan.problem.y_shape, np.float32)
    ReferenceBackend().compile(plan)(x, w, bias, out, trace=trace)
    return trace


@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("tiling", [PLAIN, SPLIT], ids=["plain", "tf32x3"])
def test_work_is_what_was_planned_where_tiles_divide(tiling, cluster):
    t = ImplicitGemmTiling(**{**tiling.as_dict(), "cluster": cluster, "patch": 60})
    problem = ConvProblem(ConvSpec.make(64, 32, 3, padding=1, bias=True), 2, 8, 8)
    plan = plan_of(problem, t, 32)
    footprint, trace = ImplicitGemm().footprint(problem, t, 32), traced(plan)
    lanes = footprint.blocks * footprint.threads
    assert lanes * footprint.fmas == problem.macs
    assert trace.fmas == problem.macs * (1 if t.arithmetic == "plain" else 3)
    assert trace.operands == lanes * footprint.operand_loads
    # Every tile of filters once for each of four tiles of pixels; four rows of the output have five
    # rows of the image under them, for each of two tiles of channels.
    assert trace.filters_loaded == 4 * 32 * 64 * 9
    assert trace.inputs_loaded == 2 * 4 * 64 * 5 * 8
    assert trace.elements_stored == trace.biases_loaded == 32 * 128
    assert trace.shuffles == 0


def test_what_lies_past_the_problem_is_not_loaded():
    trace = traced(plan_of(parse_problem("n1c17h3w3_o5k3s2p2"), PLAIN, 32))
    # Outputs stand over rows and columns -2 to 4, of which the image has three.
    assert trace.inputs_loaded == 17 * 9
    assert trace.filters_loaded == 17 * 5 * 9


@pytest.mark.parametrize(("fields", "says"), [
    ({"wave_c": 12, "tile_c": 12}, "whole fragments of 8 channels x 4 pixels"),
    ({"tile_p": 40}, "not of whole wavefronts"),
    ({"slices": 3}, "a slice has 2.66667 channels of a step, which must be a multiple of 1"),
    ({"step_c": 4, "arithmetic": "tf32x3"}, "must be a multiple of 4"),
    ({"lanes_c": 4, "arithmetic": "tf32x3"}, "here are 4 of 32"),
    ({"patch": 30}, "32 elements of a channel lie under a tile, and patch has 30"),
    ({"lanes_c": 24, "wave_c": 24, "tile_c": 24}, "lanes_c must divide the wavefront 32")])
def test_a_kernel_that_does_not_exist_is_an_error(fields, says):
    problem = parse_problem("n2c16h2w2_o8k3p1")
    plan = plan_of(problem, ImplicitGemmTiling(**{**PLAIN.as_dict(), **fields}), 32)
    with pytest.raises(LaunchError, match=says):
        run(plan, *arrays(problem))


def test_the_picture_is_of_pixels_one_after_the_other():
    plan = plan_of(parse_problem("n2c16h5w20_o40k3p1"), PLAIN, 32)
    assert wavefront_map(plan)[:2] == ["A" * 16 + "BBBB", "B" * 12 + "a" * 8]
    assert algorithm("implicit_gemm").caption(plan) == [
        "a wavefront: 8 channels x 16 pixels, 2 sharing the input channels",
        "a block: 16 channels x 32 pixels, counted through all images; 8 input channels a step, of "
        "each 9 taps and 200 elements",
        "the grid: 3 (channels) x 7 (pixels) blocks"]
