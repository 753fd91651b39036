"""What the reference backend counts, and the order in which it adds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from plans import plan_of

from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling
from dscore.algorithms.direct import DirectTiling
from dscore.algorithms.registry import algorithm_of
from dscore.algorithms.row_reuse.tiling import RowReuseTiling
from dscore.backends.reference import machine
from dscore.backends.reference.backend import ReferenceBackend
from dscore.core.errors import LaunchError
from dscore.core.problem import ConvProblem
from dscore.core.spec import ConvSpec
from dscore.core.trace import Trace

PAPER_ROWS = ConvProblem(ConvSpec.make(1, 1, 3), 1, 5, 5)


def traced(problem, tiling, wavefront=64):
    """(trace, out, x, w) of one run."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=problem.x_shape).astype(np.float32)
    w = rng.normal(size=problem.spec.w_shape).astype(np.float32)
    out = np.full(problem.y_shape, np.nan, dtype=np.float32)
    trace = Trace()
    ReferenceBackend().compile(plan_of(problem, tiling, wavefront))(x, w, None, out, trace=trace)
    return trace, out, x, w


@pytest.mark.parametrize(("tiling", "rows"), [
    (RowReuseTiling(1, 1, 1, 3, 1), 9),  # three blocks of one strip
    (RowReuseTiling(1, 1, 3, 3, 1), 9),  # three strips of one block
    (RowReuseTiling(3, 1, 1, 3, 1), 5),  # row reuse
    (RowReuseTiling(3, 1, 1, 4, 1, "registers", True), 5),
    (RowReuseTiling(1, 1, 3, 3, 1, "lds"), 5),  # three strips of one block, which copies once
    (RowReuseTiling(1, 1, 1, 3, 1, "lds"), 9),  # three blocks
    (RowReuseTiling(1, 1, 2, 3, 1, "both"), 7),  # rows 0 to 3, and 2 to 4
    (RowReuseTiling(4, 1, 1, 3, 1), 5),  # the fourth output row does not exist
])
def test_rows_loaded_in_the_papers_example(tiling, rows):
    assert traced(PAPER_ROWS, tiling)[0].rows_loaded == rows


@pytest.mark.parametrize(("problem", "rows"), [
    (ConvProblem(ConvSpec.make(2, 2, 3, padding=1, groups=2), 1, 3, 3), 2 * 3),
    # Rows 1 and 3 serve no tap.
    (ConvProblem(ConvSpec.make(2, 2, 1, stride=2, groups=2), 1, 5, 5), 2 * 3),
    (ConvProblem(ConvSpec.make(1, 2, 3), 2, 5, 5), 2 * 2 * 5),  # a plane is an output channel
    (ConvProblem(ConvSpec.make(1, 1, 2, stride=3), 1, 7, 7), 4),
])
def test_rows_in_the_padding_or_under_no_tap_are_not_loaded(problem, rows):
    assert traced(problem, RowReuseTiling(8, 1, 1, 8, 3))[0].rows_loaded == rows


@pytest.mark.parametrize(("group_c", "intensity"), [(1, 8 / 9), (8, 4)])
def test_arithmetic_intensity_of_the_papers_pointwise_example(group_c, intensity):
    problem, tiling = ConvProblem(ConvSpec.make(56, 64, 1), 1, 1, 8), ChannelDistributionTiling(
        8, 64, 1, 1, group_c)
    trace, *_ = traced(problem, tiling)
    assert trace.arithmetic_intensity == pytest.approx(intensity)
    assert trace.fmas == problem.macs
    assert trace.operands == trace.lds_reads
    assert trace.lds_writes == trace.inputs_loaded + trace.filters_loaded == 56 * 8 + 56 * 64
    # log2(group_c) shuffles of every result of every lane.
    assert trace.shuffles == 64 * 8 * (group_c * 64 // 64) * (group_c.bit_length() - 1)


@pytest.mark.parametrize("tiling", [
    ChannelDistributionTiling(4, 32, 2, 2, 8), RowReuseTiling(2, 2, 2, 4, 2), DirectTiling(32, 2),
    RowReuseTiling(2, 2, 2, 4, 2, "lds"), RowReuseTiling(2, 2, 2, 4, 2, "both")])
def test_work_is_what_the_resources_predict_where_tiles_divide(tiling):
    spec = (ConvSpec.make(16, 64, 1) if isinstance(tiling, ChannelDistributionTiling)
            else ConvSpec.make(4, 4, 3, groups=4 if isinstance(tiling, RowReuseTiling) else 1))
    problem = ConvProblem(spec, 1, 3 + spec.kernel[0], 7 + spec.kernel[0])
    trace, *_ = traced(problem, tiling, 32)
    foot = algorithm_of(tiling).footprint(problem, tiling, 32)
    used = foot.blocks * (16 if isinstance(tiling, RowReuseTiling) else foot.threads)
    assert trace.fmas == used * foot.fmas == problem.macs
    assert trace.operands == used * foot.operand_loads
    assert trace.elements_stored == 4 * 8 * spec.out_channels


def test_column_reuse_loads_every_column_once():
    problem = ConvProblem(ConvSpec.make(1, 1, 3, padding=1), 1, 6, 8)
    plain, reused = (traced(problem, RowReuseTiling(6, 1, 1, 8, 1, "registers", reuse))[0]
                     for reuse in (False, True))
    assert (plain.shuffles, plain.inputs_loaded) == (0, 6 * (3 * 8 - 2))
    # Eight lanes own the columns -1 to 6; the last two load column 7 for themselves.
    assert reused.inputs_loaded == 6 * (7 + 2)
    assert reused.shuffles == 6 * 8 * 2
    assert reused.fmas == plain.fmas


def test_a_block_copies_its_rows_as_vectors_and_so_stores_its_results():
    problem = ConvProblem(ConvSpec.make(2, 2, 3, groups=2), 1, 5, 5)
    trace, *_ = traced(problem, RowReuseTiling(1, 1, 3, 3, 2, "both"))
    # Two planes of 25 elements are 12 vectors and two elements; of the last, two words are zeros.
    assert (trace.inputs_loaded, trace.vectors_loaded, trace.rows_loaded) == (50, 13, 10)
    # Every lane brings its filter. 18 results are four vectors and two elements.
    assert trace.filters_loaded == 18 * 9
    assert (trace.elements_stored, trace.vectors_stored) == (18, 4)
    assert trace.lds_writes == 13 * 4 + 18
    # 18 lanes read the columns of an output from LDS, and all results are read there once.
    assert trace.lds_reads == 18 * 9 + 18
    assert trace.operands == 18 * (9 + 9)


def test_vectors_begin_before_a_row_that_is_not_aligned():
    trace, *_ = traced(PAPER_ROWS, RowReuseTiling(1, 1, 1, 3, 1, "both"))
    # Three blocks need the elements 0 to 14, 5 to 19 and 10 to 24, and copy from 0, 4 and 8 on.
    assert trace.inputs_loaded == 15 + 16 + 17
    assert trace.vectors_loaded == 4 + 4 + 5
    # Results 0 to 2, 3 to 5 and 6 to 8 fill no vector.
    assert (trace.elements_stored, trace.vectors_stored) == (9, 0)


def test_output_planes_of_one_block_share_their_input_plane():
    problem = ConvProblem(ConvSpec.make(2, 6, 3, groups=2), 1, 5, 5)
    # Planes 0 and 1, 2 and 3, 4 and 5 of the output lie over one, two and one of the input.
    trace, *_ = traced(problem, RowReuseTiling(3, 1, 1, 3, 2, "lds"))
    assert trace.rows_loaded == (1 + 2 + 1) * 5
    assert traced(problem, RowReuseTiling(3, 1, 1, 3, 2))[0].rows_loaded == 6 * 5


def test_lanes_past_the_output_load_nothing():
    problem = ConvProblem(ConvSpec.make(1, 1, 5), 1, 7, 7)
    # Strips of two output rows each: rows 0 to 5, rows 2 to 6, and one that has no output row.
    assert traced(problem, RowReuseTiling(2, 1, 3, 3, 1))[0].rows_loaded == 6 + 5
    assert traced(problem, DirectTiling(32, 1))[0].inputs_loaded == 9 * 25


def test_a_shuffle_stays_in_its_segment():
    tiling = RowReuseTiling(1, 1, 1, 4, 1)
    blocks = machine.Blocks(plan_of(PAPER_ROWS, tiling, 32), 1, None)
    values = np.arange(32, dtype=np.float32)
    passed = blocks.shfl_down(values, 3, 4)
    assert passed.tolist() == [lane + 3 if lane % 4 == 0 else lane for lane in range(32)]


def test_a_trace_adds_up_and_costs_nothing_unless_asked_for():
    trace, *_ = traced(PAPER_ROWS, RowReuseTiling(3, 1, 1, 3, 1))
    assert (trace.inputs_loaded, trace.filters_loaded) == (3 * 5 * 3, 3 * 9)
    assert Trace().arithmetic_intensity == 0


def test_addresses_past_the_end_are_an_error():
    with pytest.raises(LaunchError, match=r"elements 2 to 5 of x, which has 5"):
        machine.Addresses(np.arange(4)).require_within(5, 2, "x")
    machine.Addresses(np.arange(9), np.arange(9) < 3).require_within(5, 2, "x")


def fl(value):
    return np.float32(value)


def test_channel_distribution_adds_in_the_documented_order():
    G, problem = 8, ConvProblem(ConvSpec.make(21, 8, 1), 1, 1, 2)
    _, out, x, w = traced(problem, ChannelDistributionTiling(2, 8, 1, 1, G))
    for o, column in itertools.product(range(8), range(2)):
        sums = [fl(0)] * G
        for c in range(21):
            sums[c % G] = fl(sums[c % G] + fl(x[0, c, 0, column] * w[o, c, 0, 0]))
        by = G // 2
        while by:
            sums = [fl(sums[lane] + sums[lane + by]) for lane in range(by)]
            by //= 2
        assert out[0, o, 0, column] == sums[0]


@pytest.mark.parametrize("tiling", [
    RowReuseTiling(2, 2, 2, 2, 1), RowReuseTiling(3, 1, 1, 4, 2, "registers", True),
    RowReuseTiling(3, 1, 2, 3, 2, "lds"), RowReuseTiling(3, 2, 1, 2, 1, "both")])
def test_row_reuse_adds_in_the_documented_order(tiling):
    problem = ConvProblem(ConvSpec.make(2, 2, 3, padding=1, stride=2, groups=2), 1, 7, 6)
    _, out, x, w = traced(problem, tiling)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    for o, row, column in itertools.product(*(range(size) for size in out.shape[1:])):
        total = fl(0)
        for f, g in itertools.product(range(3), range(3)):
            total = fl(total + fl(padded[0, o, 2 * row + f, 2 * column + g] * w[o, 0, f, g]))
        assert out[0, o, row, column] == total


def test_direct_adds_in_the_documented_order():
    problem = ConvProblem(ConvSpec.make(4, 6, 2, groups=2), 1, 4, 4)
    _, out, x, w = traced(problem, DirectTiling(4, 2))
    for o, row, column in itertools.product(*(range(size) for size in out.shape[1:])):
        total = fl(0)
        for c, f, g in itertools.product(range(2), range(2), range(2)):
            total = fl(total + fl(x[0, o // 3 * 2 + c, row + f, column + g] * w[o, c, f, g]))
        assert out[0, o, row, column] == total
