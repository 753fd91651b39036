"""Depthwise rows through LDS on the emulated device: equal to the reference, and faults caught."""

import pytest
from emulated_runs import (
    altered,
    checked_under_sanitizers,
    require_bit_equal,
    require_caught,
    require_right,
    require_silence,
)
from profiles import deep, mostly_deep, share

from dscore.algorithms.columns import ceil_div
from dscore.algorithms.row_reuse.tiling import STAGINGS, RowReuseTiling
from dscore.backends.emulated import EmulatedBackend
from dscore.backends.reference.backend import ReferenceBackend
from dscore.checking.check import check_plan
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

MISSING = EmulatedBackend().missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

# Planes and rows that begin at a multiple of a vector, and that do not; multipliers; rows and
# columns that no tap meets.
TOKENS = ("n2c3h7w7_o6k3p1g3_bias_relu6", "n1c5h9w5_o5k5s2psameg5", "n3c2h4w6_o6k3p2d2g2_bias",
          "n2c5h8w8_o5k2s3g5_hardswish", "n1c4h1w13_o8k3p1g4")


def planned(token, thread, strips, planes, staging, device="h200", ahead=False):
    """The plan of blocks with *strips* of one plane or, for none, with *planes* whole ones."""
    problem, (thread_h, thread_w) = parse_problem(token), thread
    lanes_h = strips or ceil_div(problem.out_height, thread_h)
    tiling = RowReuseTiling(thread_h, thread_w, lanes_h, ceil_div(problem.out_width, thread_w),
                             planes, staging, ahead=ahead)
    return make_plan(problem, catalog.device(device), tiling)


PLANS = [planned(token, thread, strips, planes, staging, device)
         for number, token in enumerate(TOKENS) for device in ("z100sm", "h200")
         for thread, strips, planes, staging in (
             (((2, 1), 1, 1, "lds"), ((1, 2), 2, 1, "both"), ((3, 2), 0, 2, "both"),
              ((2, 3), 0, 4, "lds"), ((7, 1), 0, 5, "both"))[number % 2::2])]


@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS, sizes), sizes, monkeypatch)


@pytest.mark.deep
@pytest.mark.parametrize("staging", mostly_deep(STAGINGS, "both"))
@pytest.mark.parametrize("token", ["n1c5h28w1_o15k2x1s3p4x2x5x0g5", "n2c3h1w9_o3k1x2s3p5x0x4x2g3"])
def test_taps_may_meet_nothing_but_padding(token, staging):
    plan = planned(token, (1, 1), 0, 2, staging)
    assert check_plan(ReferenceBackend(), plan, 0).ok
    assert check_plan(EmulatedBackend(), plan, 0).ok


STRIPS = planned("n2c3h11w9_o3k3p1g3", (2, 1), 2, 1, "lds")
PLANES = planned("n2c3h7w5_o6k3p1g3", (4, 2), 0, 3, "lds")
FULL = planned("n2c3h7w33_o3k3p1g3", (4, 2), 0, 3, "lds")
VECTORS = planned("n2c3h6w8_o3k3p1x1x2x1g3", (2, 4), 0, 2, "lds")
RESULTS = planned("n1c3h7w5_o3k3p1g3", (1, 5), 3, 1, "both")
# All rows of the last block lie below the image, whose last element is amid a vector.
BELOW = planned("n1c1h10w5_o2k3x1s3p0x6x0x3d1x2", (1, 2), 2, 1, "both")
AHEAD = planned("n2c3h11w9_o3k3p1g3", (2, 1), 2, 1, "lds", ahead=True)
AHEAD_PLANES = planned("n2c3h7w5_o6k3p1g3", (4, 2), 0, 4, "lds", ahead=True)

WAIT, BARRIER = "    wait_copies<Ahead>();\n", "    __syncthreads();\n"
LEAVE = "    if ((first | end) % vector != 0 && thread < vector) {\n"
START = "span_start = first / Move::vector * Move::vector;"
ROW_END = "const int last_row = least(first_row() + block_rows, row_end);"
COPIED = "const int last_row = first_row() + block_rows;"
KERNEL, BLOCK, SPANS = "row_reuse/walk.hpp", "row_reuse/block.hpp", "support/bulk_copy.hpp"
ROWS = "row_reuse/rows.hpp"
# The plan, the file, the source as it is, with its fault, and what is said of it.
FAULTS = {
    "copies not waited for": (STRIPS, SPANS, WAIT + BARRIER, BARRIER, "WRONG"),
    "missing barrier after staging": (STRIPS, SPANS, WAIT + BARRIER, WAIT, "WRONG"),
    "missing barrier before the results leave": (
        RESULTS, SPANS, BARRIER + LEAVE, LEAVE, "WRONG"),
    "span begins a vector too late": (
        STRIPS, BLOCK, START, START.replace(";", " + Move::vector;"), "WRONG"),
    "vectors begin past the first element": (
        STRIPS, BLOCK, START, START.replace("first", "(first + Move::vector - 1)"), "WRONG"),
    "last row not copied": (
        STRIPS, BLOCK, ROW_END, ROW_END.replace("row_end", "row_end - 1"), "WRONG"),
    "rows below the image copied": (
        BELOW, BLOCK, "greatest(span_start, end * Move::vector)", "end * Move::vector",
        "LDS underrun"),
    "rows past the last copied": (FULL, BLOCK, ROW_END, COPIED, "LDS overrun"),
    "last plane not copied": (
        PLANES, BLOCK, "(planes_in * Images::in_height", "((planes_in - 1) * Images::in_height",
        "WRONG"),
    "end of the last vector not copied": (
        PLANES, ROWS, "if (ends_amid_vector() && at < span_end())", "if (at < 0)", "WRONG"),
    "columns outside the image taken from the next row": (
        STRIPS, KERNEL, "wanted && column_inside(offset, column_end)", "wanted", "WRONG"),
    "vectors outside the image taken from the next row": (
        VECTORS, KERNEL, "wanted && column_inside(start, Images::in_width(s))", "wanted", "WRONG"),
    "columns of a vector in the wrong order": (
        VECTORS, KERNEL, "row[start + j] = static_cast", "row[start + (j ^ 1)] = static_cast",
        "WRONG"),
    "rows taken to lie inside the image": (
        STRIPS, ROWS, "reaches(in_row, first,", "reaches(in_row, 0,", "WRONG"),
    "one filter for all planes": (
        PLANES, KERNEL, "w + plane % s.out_channels * L::taps", "w", "WRONG"),
    "vector over the next block's results": (
        RESULTS, SPANS, "whole_end = end / vector * vector",
        "whole_end = ceil_div(end, vector) * vector", "wrote outside its output"),
    "vector over the last block's results": (
        RESULTS, SPANS, "whole_first = ceil_div(first, vector) * vector",
        "whole_first = first / vector * vector", "WRONG"),
    "head over the last block's results": (RESULTS, SPANS, "head >= first && ", "", "WRONG"),
    "head not stored": (
        RESULTS, SPANS, "head < least(whole_first, end)", "head < least(whole_first, end) - 1",
        "WRONG"),
    "tail not stored": (RESULTS, SPANS, "if (tail < end)", "if (tail < end - 1)", "WRONG"),
}


@pytest.mark.parametrize("fault", mostly_deep(
    FAULTS, "tail not stored", "rows below the image copied"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    require_caught(tmp_path, monkeypatch, *FAULTS[fault])


@pytest.mark.deep
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([STRIPS, PLANES, FULL, VECTORS, RESULTS, BELOW], monkeypatch)


@pytest.mark.deep
def test_the_sanitizers_find_nothing(tmp_path):
    plans = [STRIPS, PLANES, VECTORS, RESULTS, BELOW, AHEAD, AHEAD_PLANES]
    require_silence(checked_under_sanitizers(tmp_path, plans))


# What is read there reaches no result.
@pytest.mark.parametrize(("plan", "name", "right", "wrong"), [
    (STRIPS, BLOCK, ROW_END, COPIED),
    (STRIPS, KERNEL, "return vector_or_zeros<Count>(t::through_lds",
     "(void)*static_cast<volatile T *>(lds + t::span_in + t::span_out + 8);\n"
     "    return vector_or_zeros<Count>(t::through_lds"),
    (AHEAD, ROWS, "prefetch_span(x + span_start, vectors_end()",
     "prefetch_span(x + span_start, Move::vector + vectors_end()"),
    (AHEAD_PLANES, ROWS, "least(filter + t::planes, s.out_channels) * L::taps",
     "(filter + t::planes) * L::taps"),
], ids=["rows past the last plane", "LDS past its end", "rows fetched ahead",
        "filters fetched ahead"])
@pytest.mark.deep
def test_the_sanitizers_find_reading_past_the_end(plan, name, right, wrong, tmp_path):
    done = checked_under_sanitizers(tmp_path, [plan], altered(tmp_path, name, right, wrong))
    assert "AddressSanitizer" in done.stderr


@pytest.mark.deep
def test_a_wrong_result_is_no_silence(tmp_path):
    copy = altered(tmp_path, BLOCK, ROW_END, ROW_END.replace("row_end", "row_end - 1"))
    done = checked_under_sanitizers(tmp_path, [STRIPS], copy)
    assert done.returncode == 1
    assert "WRONG" in done.stdout
    with pytest.raises(AssertionError):
        require_silence(done)
