"""The reference of the product of matrices: its order of additions, its lanes, what it counts."""

from __future__ import annotations

from functools import reduce
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import UNIT
from plans import plan_of
from profiles import examples
from reference_runs import CHECKED, arrays, check, gemm_plans, run

from dscore.algorithms.gemm import Gemm
from dscore.algorithms.gemm.tiling import GemmTiling
from dscore.algorithms.registry import algorithm
from dscore.backends.reference.backend import ReferenceBackend
from dscore.backends.reference.gemm_lanes import halves
from dscore.core.errors import LaunchError
from dscore.core.problem import ConvProblem
from dscore.core.spec import ConvSpec
from dscore.core.token import parse_problem
from dscore.core.trace import Trace
from dscore.solving.explain import wavefront_map

PLAIN = GemmTiling(16, 64, 8, 32, 8, 2, 16, 2)
SPLIT = GemmTiling(16, 64, 8, 32, 8, 2, 16, 3, arithmetic="tf32x3")
EIGHT = (0, 2, 4, 6, 1, 3, 5, 7)  # the order in which the matrix units are given channels


@settings(CHECKED, max_examples=examples(200))
@given(gemm_plans(), st.integers(0, 99))
def test_gemm_is_within_the_bound(plan, seed):
    check(plan, seed)


def fl(value):
    return np.float32(value)


def shares(t, channels):
    """The channels of each block of a cluster, of each slice, in runs of one step and slice."""
    steps, each = -(-channels // t.step_c), t.step_c // t.slices
    per_block = -(-steps // t.cluster)
    for rank in range(t.cluster):
        mine = range(steps)[rank * per_block:(rank + 1) * per_block]
        yield [[range(first, min(first + each, channels))
                for first in (step * t.step_c + part * each for step in mine)]
               for part in range(t.slices)]


def plainly(run_of_channels, a, b, total):
    for c in run_of_channels:
        total = fl(total + fl(a[c] * b[c]))
    return total


def in_three_terms(run_of_channels, a, b, total):
    parts_a, parts_b, step = halves(a), halves(b), fl(0)
    for at in range(run_of_channels.start, run_of_channels.stop, 8):
        channels = [at + c for c in EIGHT if at + c in run_of_channels]
        for small_a, small_b in ((1, 0), (0, 1), (0, 0)):
            for c in channels:
                step = fl(step + parts_a[small_a][c] * parts_b[small_b][c])
    return fl(total + step)


def added(t, a, b, add):
    """The sum of products of *a* and *b* in the documented order."""
    blocks = []
    for slices in shares(t, a.size):
        sums = []
        for runs in slices:
            sums.append(fl(0))
            for channels in runs:
                sums[-1] = add(channels, a, b, sums[-1])
        blocks.append(reduce(np.add, sums))
    return reduce(np.add, blocks)


@pytest.mark.parametrize("token", ["n2c37h3w3_o5k1", "n1c32h2w4_o3k1"])
@pytest.mark.parametrize(("fields", "add"), [
    ({}, plainly), ({"slices": 4}, plainly), ({"cluster": 2, "stages": 4}, plainly),
    ({"lanes_c": 4, "slices": 1}, plainly), ({"arithmetic": "tf32x3"}, in_three_terms),
    ({"arithmetic": "tf32x3", "cluster": 3, "stages": 3}, in_three_terms)])
def test_gemm_adds_in_the_documented_order(token, fields, add):
    tiling = GemmTiling(**{**PLAIN.as_dict(), **fields})
    plan = plan_of(parse_problem(token), tiling, 32)
    x, w, _ = arrays(plan.problem)
    out = run(plan, x, w, None)
    for n, o, row, column in product(*map(range, out.shape)):
        assert out[n, o, row, column] == added(tiling, x[n, :, row, column], w[o, :, 0, 0], add)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False,
                          max_value=2.0**126, min_value=-2.0**126)))
def test_two_tf32_make_a_float32(values):
    given_values = np.array(values, dtype=np.float32)
    big, small = halves(given_values)
    for part in (big, small):
        assert not (part.view(np.uint32) & 0x1FFF).any()
    # A TF32 below the normal range has no less than 2**-136.
    error = np.abs(given_values.astype(np.float64) - big - small)
    assert np.all(error <= np.maximum(2 * UNIT * np.abs(given_values, dtype=np.float64), 2.0**-136))


# NVIDIA's own NaN, the same with a sign, NumPy's, a signalling one.
@pytest.mark.parametrize("bits", [0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000, 0x7F800001])
@pytest.mark.parametrize("tiling", [PLAIN, SPLIT], ids=["plain", "tf32x3"])
def test_a_nan_of_any_bits_stays_one(tiling, bits):
    plan = plan_of(parse_problem("n1c16h2w2_o8k1"), tiling, 32)
    x, w, _ = arrays(plan.problem)
    x.view(np.uint32)[0, 5, 1, 0] = bits
    assert (np.isnan(run(plan, x, w, None)) == [[[False, False], [True, False]]]).all()


def traced(plan):
    trace = Trace()
    x, w, bias = arrays(plan.problem)
    out = np.empty(plan.problem.y_shape, np.float32)
    ReferenceBackend().compile(plan)(x, w, bias, out, trace=trace)
    return trace


@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("tiling", [PLAIN, SPLIT], ids=["plain", "tf32x3"])
def test_work_is_what_was_planned_where_tiles_divide(tiling, cluster):
    t = GemmTiling(**{**tiling.as_dict(), "cluster": cluster})
    problem = ConvProblem(ConvSpec.make(64, 32, 1, bias=True), 2, 8, 8)
    plan = plan_of(problem, t, 32)
    footprint, trace = Gemm().footprint(problem, t, 32), traced(plan)
    lanes, terms = footprint.blocks * footprint.threads, 1 if t.arithmetic == "plain" else 3
    assert lanes * footprint.fmas == problem.macs
    assert trace.fmas == terms * problem.macs
    # A slice's lane reads whole fragments: 1 channel x 8 pixels at once, or an eighth of 8 x 32
    # and 8 x 8.
    read = 1 + 8 if terms == 1 else (32 + 8) / 32
    assert trace.operands == lanes * read * (64 // cluster // t.slices)
    # Every tile of filters once for each of two tiles of pixels, and the other way round.
    assert (trace.filters_loaded, trace.inputs_loaded) == (2 * 32 * 64, 2 * 2 * 64 * 64)
    sums = (2 - 1) * cluster + cluster - 1  # that go through LDS, of an output
    assert trace.lds_writes == trace.filters_loaded + trace.inputs_loaded + sums * 32 * 128
    assert trace.lds_reads == trace.operands + sums * 32 * 128
    assert trace.elements_stored == trace.biases_loaded == 32 * 128
    assert trace.shuffles == 0


def test_what_lies_past_the_problem_is_not_loaded():
    trace = traced(plan_of(parse_problem("n1c17h3w3_o5k1s2p1"), PLAIN, 32))
    # Outputs stand over rows and columns -1, 1 and 3, of which the image has one.
    assert trace.inputs_loaded == 17
    assert trace.filters_loaded == 17 * 5


@pytest.mark.parametrize(("fields", "says"), [
    ({"wave_c": 12, "tile_c": 12}, "whole fragments of 8 channels x 16 pixels"),
    ({"tile_p": 48}, "not of whole wavefronts"), ({"stages": 1}, "one buffer"),
    ({"slices": 3}, "a slice has 5.33333 channels of a step, which must be a multiple of 4"),
    ({"step_c": 8, "arithmetic": "tf32x3"}, "must be a multiple of 8"),
    ({"lanes_c": 4, "arithmetic": "tf32x3"}, "here are 4 of 32"),
    ({"lanes_c": 24, "wave_c": 24, "tile_c": 24}, "lanes_c must divide the wavefront 32")])
def test_a_kernel_that_does_not_exist_is_an_error(fields, says):
    problem = parse_problem("n1c16h2w2_o8k1")
    plan = plan_of(problem, GemmTiling(**{**PLAIN.as_dict(), **fields}), 32)
    with pytest.raises(LaunchError, match=says):
        run(plan, *arrays(problem))


def test_the_picture_is_of_pixels_one_after_the_other():
    plan = plan_of(parse_problem("n2c16h5w20_o40k1"), PLAIN, 32)
    assert wavefront_map(plan) == [
        "A" * 20, "A" * 12 + "B" * 8, "B" * 20, "BBBB" + "a" * 16, "a" * 16 + "bbbb"]
    assert algorithm("gemm").owner(plan, 3, 3) == (0, 1)
    assert algorithm("gemm").caption(plan) == [
        "a wavefront: 8 channels x 32 pixels, 2 sharing the input channels",
        "a block: 16 channels x 64 pixels, counted through all images; 16 input channels a step",
        "the grid: 3 (channels) x 4 (pixels) blocks"]
