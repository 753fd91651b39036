"""The reference backend against the oracle: every shape, every tiling, every lane predicated."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracle import bound, direct, gamma, within_bound, worst_share
from plans import plan_of
from profiles import examples
from reference_runs import CHECKED, arrays, check, gemm_plans, near, problems, run

from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling
from dscore.algorithms.columns import ceil_div
from dscore.algorithms.direct import DirectTiling
from dscore.algorithms.row_reuse.tiling import STAGINGS, RowReuseTiling
from dscore.backends.reference import direct as direct_kernel
from dscore.backends.reference import machine
from dscore.backends.reference.backend import ReferenceBackend
from dscore.core.errors import LaunchError, UnavailableError
from dscore.core.problem import ConvProblem
from dscore.core.spec import ConvSpec


@st.composite
def channel_distribution_plans(draw):
    wavefront = draw(st.sampled_from([64, 32]))
    group_c = draw(st.sampled_from([g for g in (1, 2, 4, 8, 16, 32, 64) if g <= wavefront]))
    t = ChannelDistributionTiling(draw(st.integers(1, 4)), wavefront // group_c * draw(
        st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 2)), group_c)
    channels = (draw(near(group_c, 40)), draw(near(t.repeat_c * t.wave_c, 40)), 1)
    problem = draw(problems(st.integers(1, 4), near(t.wave_w, 9), channels, kernels=(1,)))
    return plan_of(problem, t, wavefront)


@st.composite
def depthwise_problems(draw, rows, columns):
    """Problems of depthwise layers; one channel and a 1x1 kernel make a pointwise one."""
    channels = draw(st.integers(1, 4))
    problem = draw(problems(rows, columns, (channels, channels * draw(st.integers(1, 3)), channels),
                            kernels=(1, 2, 3, 5)))
    assume(problem.spec.kind == "depthwise")
    return problem


@st.composite
def register_plans(draw):
    reuse = draw(st.booleans())
    t = RowReuseTiling(
        draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 3)),
        draw(st.sampled_from([1, 2, 4, 8, 32] if reuse else [1, 2, 3, 5, 8, 33])),
        draw(st.integers(1, 4)), "registers", reuse)
    problem = draw(depthwise_problems(near(t.thread_h * t.lanes_h, 9),
                                      near(t.thread_w * t.lanes_w, 17)))
    return plan_of(problem, t, draw(st.sampled_from([64, 32])))


@st.composite
def staged_plans(draw):
    """Blocks of several whole planes, or of some rows of one."""
    problem = draw(depthwise_problems(st.integers(1, 9), st.integers(1, 17)))
    counts = [draw(st.integers(*limits)) for limits in ((1, 5), (1, 3), (0, 3), (1, 4))]
    t = staged(problem, *counts, draw(st.sampled_from(STAGINGS[1:])))
    return plan_of(problem, t, draw(st.sampled_from([64, 32])))


def staged(problem, thread_h, thread_w, strips, planes, staging):
    """A tiling through LDS, with *strips* of one plane or, for none, of so many planes whole."""
    lanes_h = strips or ceil_div(problem.out_height, thread_h)
    return RowReuseTiling(thread_h, thread_w, lanes_h, ceil_div(problem.out_width, thread_w),
                           1 if strips else planes, staging)


def row_reuse_plans():
    return st.one_of(register_plans(), staged_plans())


@st.composite
def direct_plans(draw):
    t = DirectTiling(draw(st.sampled_from([1, 7, 32, 64, 96])), draw(st.integers(1, 4)))
    groups = draw(st.integers(1, 3))
    channels = (groups * draw(st.integers(1, 4)), groups * draw(near(t.thread_c, 9)), groups)
    problem = draw(problems(st.integers(1, 5), st.integers(1, 9), channels))
    return plan_of(problem, t, draw(st.sampled_from([64, 32])))


ANY_PLAN = st.one_of(channel_distribution_plans(), gemm_plans(), row_reuse_plans(), direct_plans())


@CHECKED
@given(channel_distribution_plans(), st.integers(0, 99))
def test_channel_distribution_is_within_the_bound(plan, seed):
    check(plan, seed)


@pytest.mark.deep
@settings(CHECKED, max_examples=examples(300))
@given(row_reuse_plans(), st.integers(0, 99))
def test_row_reuse_is_within_the_bound(plan, seed):
    check(plan, seed)


@CHECKED
@given(direct_plans(), st.integers(0, 99))
def test_direct_is_within_the_bound(plan, seed):
    check(plan, seed)


@CHECKED
@given(ANY_PLAN, st.data())
def test_a_nan_reaches_exactly_the_outputs_whose_window_holds_it(plan, data):
    x, w, bias = arrays(plan.problem)
    x.flat[data.draw(st.integers(0, x.size - 1))] = np.nan
    y, _ = direct(plan.problem, x, w, bias)
    assert (np.isnan(run(plan, x, w, bias)) == np.isnan(y)).all()


@pytest.mark.deep
@settings(CHECKED, max_examples=60)
@given(ANY_PLAN)
def test_the_blocks_that_run_together_do_not_change_a_bit(plan):
    given_arrays = arrays(plan.problem)
    together = run(plan, *given_arrays)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "CHUNK_BYTES", 1)
        patch.setattr(direct_kernel, "PIXEL_LANES", 1)
        patch.setattr(direct_kernel, "BLOCK_SUMS", 1)
        assert run(plan, *given_arrays).tobytes() == together.tobytes()


@settings(CHECKED, max_examples=80)
@given(ANY_PLAN)
def test_a_plan_with_less_memory_than_it_needs_is_an_error(plan):
    given_arrays = arrays(plan.problem)
    short = [(replace(plan, use=replace(plan.use, registers=plan.use.registers - 1)), "registers")]
    if plan.use.lds_bytes:
        short.append((replace(plan, use=replace(plan.use, lds_bytes=plan.use.lds_bytes - 4)),
                      f"the plan has {plan.use.lds_bytes - 4}"))
    short.append((replace(plan, launch=replace(plan.launch, blocks=plan.launch.blocks + 1)),
                  f"launches {plan.launch.blocks + 1} blocks"))
    short.append((replace(plan, use=replace(plan.use, threads=plan.use.threads + 1)), "threads"))
    for planned, says in short:
        with pytest.raises(LaunchError, match=says):
            run(planned, *given_arrays)


ROW_REUSE = {
    "stride 3": ConvProblem(ConvSpec.make(2, 2, 3, stride=3, padding=1, groups=2), 1, 11, 10),
    "stride beyond the kernel": ConvProblem(
        ConvSpec.make(1, 1, (1, 2), stride=(3, 4), groups=1), 2, 10, 9),
    "dilation 2": ConvProblem(
        ConvSpec.make(2, 2, 3, dilation=2, padding=2, groups=2), 1, 7, 9),
    "dilation 3, stride 2": ConvProblem(
        ConvSpec.make(1, 2, (3, 2), dilation=3, stride=2, padding=3, groups=1), 1, 8, 7),
    "one row": ConvProblem(ConvSpec.make(3, 3, 3, padding=1, groups=3), 1, 1, 13),
    "one pixel": ConvProblem(ConvSpec.make(1, 1, 5, padding=2, groups=1), 3, 1, 1),
    "kernel larger than the image": ConvProblem(
        ConvSpec.make(2, 4, 7, padding=(2, 4, 3, 3), groups=2), 1, 2, 3),
    "padding beyond the kernel": ConvProblem(
        ConvSpec.make(1, 1, 2, padding=(3, 4, 5, 6), groups=1), 1, 2, 2),
    "columns in nothing but padding": ConvProblem(
        ConvSpec.make(2, 2, (2, 1), stride=3, padding=(1, 1, 5, 0), groups=2), 1, 5, 1),
    "rows in nothing but padding": ConvProblem(
        ConvSpec.make(2, 2, (1, 2), stride=3, padding=(5, 0, 1, 1), groups=2), 1, 1, 5),
    "same, stride 2": ConvProblem(
        ConvSpec.make(3, 3, 3, stride=2, padding="same", groups=3), 1, 6, 8),
}


@pytest.mark.parametrize("wavefront", [64, 32])
@pytest.mark.parametrize("reuse", [False, True], ids=["loads", "shuffles"])
@pytest.mark.parametrize("case", ROW_REUSE)
def test_row_reuse(case, reuse, wavefront):
    for thread_h, thread_w, lanes_h, lanes_w in ((1, 1, 1, 1), (2, 3, 2, 2), (5, 1, 1, 4)):
        tiling = RowReuseTiling(thread_h, thread_w, lanes_h, lanes_w, 2, "registers", reuse)
        check(plan_of(ROW_REUSE[case], tiling, wavefront))


@pytest.mark.parametrize("wavefront", [64, 32])
@pytest.mark.parametrize("staging", STAGINGS[1:])
@pytest.mark.parametrize("case", ROW_REUSE)
def test_row_reuse_through_lds(case, staging, wavefront):
    for thread_h, thread_w, strips, planes in ((1, 1, 1, 1), (2, 3, 2, 1), (5, 1, 0, 2),
                                               (1, 2, 0, 5)):
        tiling = staged(ROW_REUSE[case], thread_h, thread_w, strips, planes, staging)
        check(plan_of(ROW_REUSE[case], tiling, wavefront))


@pytest.mark.parametrize("staging", STAGINGS)
def test_a_tap_that_is_infinite_does_not_leave_its_window(staging):
    problem = ConvProblem(ConvSpec.make(1, 1, 3, padding=(1, 1, 0, 0), groups=1), 1, 4, 4)
    x, w, _ = arrays(problem)
    w[0, 0, 0] = np.inf  # the first filter row, which meets no row of the image at output row 0
    out = run(plan_of(problem, RowReuseTiling(2, 1, 2, 2, 1, staging)), x, w, None)
    assert np.isfinite(out[0, 0, 0]).all()
    assert not np.isfinite(out[0, 0, 1:]).any()


@pytest.mark.parametrize(("tiling", "says"), [
    (ChannelDistributionTiling(1, 64, 1, 1, 3), "power of two"),
    (ChannelDistributionTiling(1, 64, 1, 1, 128), "power of two of at most the wavefront 64"),
    (ChannelDistributionTiling(1, 24, 1, 1, 4), "multiple of the wavefront 64; it is 96"),
    (RowReuseTiling(1, 1, 1, 3, 1, "registers", True), "power of two of at most"),
    (RowReuseTiling(1, 1, 1, 128, 1, "registers", True), "at most the wavefront 64; it is 128"),
    (RowReuseTiling(1, 1, 1, 4, 1, "lds", True), "rows that come straight to registers"),
    (RowReuseTiling(4, 1, 1, 3, 1, "lds"), "whole rows; it has 3 of 4 columns"),
    (RowReuseTiling(1, 1, 3, 4, 2, "both"), "several planes whole; it has 3 of 4 rows"),
])
def test_lanes_that_cannot_be_mapped_are_an_error(tiling, says):
    groups = 2 if tiling.algorithm == "row_reuse" else 1
    problem = ConvProblem(ConvSpec.make(2, 2, 1, groups=groups), 1, 4, 4)
    with pytest.raises(LaunchError, match=says):
        run(plan_of(problem, tiling), *arrays(problem))


def test_arrays_that_do_not_fit_are_an_error():
    problem = ConvProblem(ConvSpec.make(2, 3, 1, bias=True), 1, 4, 4)
    plan = plan_of(problem, DirectTiling(64, 1))
    x, w, bias = arrays(problem)
    with pytest.raises(LaunchError, match=r"x must be .* got float64"):
        run(plan, x.astype(np.float64), w, bias)
    with pytest.raises(LaunchError, match=r"w must be .* shape \(3, 2, 1, 1\); got float32"):
        run(plan, x, w[:2], bias)
    with pytest.raises(LaunchError, match="C-contiguous"):
        run(plan, x.swapaxes(2, 3), w, bias)
    with pytest.raises(LaunchError, match=r"a bias of shape \(3,\)"):
        run(plan, x, w, None)


def test_what_is_refused_is_named():
    backend = ReferenceBackend()
    assert backend.missing() is None
    assert backend.device().name == "z100sm"
    spec = ConvSpec.make(4, 4, 3, dtype="float16", layout="nhwc")
    plan = plan_of(ConvProblem(spec, 1, 5, 5), ChannelDistributionTiling(1, 64, 1, 1, 1))
    refused = backend.refuses(plan)
    assert [violation.code for violation in refused] == ["E-DTYPE", "E-LAYOUT"]
    dense = plan_of(ConvProblem(ConvSpec.make(4, 4, 3), 1, 5, 5), RowReuseTiling(1, 1, 1, 1, 1))
    with pytest.raises(UnavailableError, match=r"E-KIND: .* is dense, allowed depthwise"):
        backend.compile(dense)


def test_the_comparer_catches_wrong_answers():
    problem = ConvProblem(ConvSpec.make(3, 2, 3, padding=1, bias=True), 1, 4, 4)
    x, w, bias = arrays(problem)
    y, magnitude = direct(problem, x, w, bias)
    right = y.astype(np.float32)
    assert worst_share(problem, right, y, magnitude) < 0.5
    dropped = x.copy()
    dropped[0, 1, 2, 2] = 0  # one product less in every output whose window holds it
    wrong = direct(problem, dropped, w, bias)[0].astype(np.float32)
    assert worst_share(problem, wrong, y, magnitude) > 100
    for poison in (np.nan, np.inf):
        wrong = right.copy()
        wrong[0, 0, 0, 0] = poison
        assert worst_share(problem, wrong, y, magnitude) == math.inf
        with pytest.raises(AssertionError, match="times the error bound"):
            within_bound(problem, wrong, x, w, bias)
    assert worst_share(problem, right[:, :1], y, magnitude) == math.inf
    assert gamma(28) == pytest.approx(28 * 2.0**-24, rel=1e-5)
    assert (bound(problem, y, magnitude) < 1e-3).all()
