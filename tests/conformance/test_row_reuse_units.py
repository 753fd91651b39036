"""Depthwise rows by Toeplitz matrices, emulated: equal to the reference, and faults caught."""

import numpy as np
import pytest
from emulated_runs import (
    checked_under_sanitizers,
    require_bit_equal,
    require_caught,
    require_right,
    require_silence,
)
from plans import plan_of
from profiles import deep, mostly_deep, share

from dscore.algorithms.columns import ceil_div
from dscore.algorithms.row_reuse.tiling import RowReuseTiling
from dscore.algorithms.row_reuse.view import view_of
from dscore.backends.emulated import EmulatedBackend
from dscore.backends.reference.backend import ReferenceBackend
from dscore.checking import bound
from dscore.core import catalog
from dscore.core.errors import CompileError
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

MISSING = EmulatedBackend().missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


def planned(token, thread, strips, planes, staging="lds", repeat=1, ahead=False):
    """The plan of blocks with *strips* of one plane or, for none, with *planes* whole ones."""
    problem, (thread_h, thread_w) = parse_problem(token), thread
    view = view_of(problem)
    lanes_h = strips or ceil_div(view.rows.written_size, thread_h)
    lanes_w = ceil_div(view.columns.written_size, thread_w)
    tiling = RowReuseTiling(thread_h, thread_w, lanes_h, lanes_w, planes, staging, ahead=ahead,
                            arithmetic="matrix16", repeat=repeat)
    return make_plan(problem, catalog.device("h200"), tiling)


# Columns that come by words, from the first one or the one before, and one by one; places that fill
# wavefronts, and that do not; strides, dilation, multipliers; what is left of planes and turns.
PLANS = [
    planned("n2c3h14w14_o3k5p2g3_float16_bias_relu6", (4, 4), 0, 4, repeat=2),
    planned("n1c5h9w10_o5k3p1g5_bfloat16", (2, 4), 0, 6, "both", 3),
    planned("n2c2h11w7_o6k3p1g2_float16_bias", (8, 2), 0, 5, "both"),
    planned("n1c3h20w12_o3k5s2p2g3_float16", (4, 2), 2, 1, ahead=True),
    planned("n1c2h12w9_o2k7p3g2_bfloat16_hardswish", (8, 2), 1, 1, "both"),
    planned("n1c4h13w16_o4k3p2d2g4_float16", (4, 4), 3, 1),
    planned("n2c3h6w30_o3k3x5s3x1p0x2g3_float16", (2, 4), 0, 2),
    planned("input_gradient_n2c3h9w12_o3k5p2g3_float16", (4, 4), 0, 4, "both", 2),
    planned("input_gradient_n1c4h12w11_o4k3s2p1g4_bfloat16", (4, 2), 0, 3),
]


@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS, sizes), sizes, monkeypatch)


WORDS = planned("n2c3h14w14_o3k5p2g3_float16", (4, 4), 0, 4, repeat=2)
BEFORE = planned("n1c3h9w8_o3k3p1g3_float16", (2, 4), 2, 1)
APART = planned("n1c3h7w7_o3k5p2g3_bfloat16", (4, 2), 0, 2, "both")
WALK = "row_reuse/toeplitz_walk.hpp"
# The plan, the file, the source as it is, with its fault, and what is said of it.
FAULTS = {
    "columns beside the image taken from other rows": (
        WORDS, WALK, "if (words && !left[half]) rows_left[half] = 0;", "", "WRONG"),
    "a column beside the image taken from the next row": (
        APART, WALK, "right[half] ? from[1].bits : 0", "from[1].bits", "WRONG"),
    "rows above the image taken from another plane": (
        WORDS, WALK, "in_row[half] + i >= 0;", "true;", "WRONG"),
    "rows below the image taken from another plane": (
        WORDS, WALK, "|| i >= rows_left[half]) return 0;", ") return 0;", "WRONG"),
    "windows that begin a column late": (
        BEFORE, WALK, "first = lane % 4 * 2 - lead;", "first = lane % 4 * 2;", "WRONG"),
    "the filter of another turn": (
        WORDS, WALK, "(plane + turn * plane_step) % s.out_channels : 0;",
        "plane % s.out_channels : 0;", "WRONG"),
    "columns of a word exchanged": (
        APART, WALK, "return high << 16 | low;", "return low << 16 | high;", "WRONG"),
    "a patch that is stored before its last rows": (
        WORDS, WALK, "if (under == pairs - 1) finish", "if (under == pairs - 2) finish", "WRONG"),
    "results below the image": (
        BEFORE, WALK, "p * patch_h < height_left[half] && (", "(", "wrote outside its output"),
    "a result past the last column": (
        APART, WALK, "(n == 0 || !last[half])", "true", "WRONG"),
    "sums of 16 bits": (
        WORDS, WALK, "      FragmentA<T> a = {};\n",
        "      for (int n = 0; n < 4 * live; n++)\n        sums[n / 4][n % 4] = "
        "static_cast<float>(static_cast<T>(sums[n / 4][n % 4]));\n      FragmentA<T> a = {};\n",
        "WRONG"),
}


@pytest.mark.parametrize("fault", mostly_deep(
    FAULTS, "a patch that is stored before its last rows"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    require_caught(tmp_path, monkeypatch, *FAULTS[fault])


@pytest.mark.deep
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([WORDS, BEFORE, APART], monkeypatch)


@pytest.mark.deep
def test_the_sanitizers_find_nothing(tmp_path):
    require_silence(checked_under_sanitizers(tmp_path, [WORDS, BEFORE, APART, PLANS[3], PLANS[7]]))


def test_fragments_of_32_lanes_are_not_compiled_for_64():
    with pytest.raises(CompileError, match="fragments"):
        EmulatedBackend().compile(plan_of(WORDS.problem, WORDS.tiling, wavefront=64))


def test_what_is_not_finite_is_made_anew_of_strides_alone():
    """Between the rows and columns that a strided gradient connects there are none."""
    plan = planned("input_gradient_n1c4h12w11_o4k3s2p1g4_bfloat16", (4, 2), 0, 3)
    gradient, w = bound.sample(plan.problem, 0)[:2]
    gradient[0, 2, 3, 2] = np.inf
    outs = [np.zeros(plan.problem.x_shape, gradient.dtype) for _ in range(2)]
    for backend, out in zip((EmulatedBackend(), ReferenceBackend()), outs, strict=True):
        backend.compile(plan)(gradient, w, out)
    spoiled = ~np.isfinite(outs[0].astype(np.float32))
    np.testing.assert_array_equal(outs[0], outs[1])
    assert {tuple(at) for at in np.argwhere(spoiled)} == {
        (0, 2, row, column) for row in (5, 6, 7) for column in (3, 4, 5)}


@pytest.mark.parametrize("plan", [WORDS, APART], ids=["words", "columns"])
def test_what_is_not_finite_reaches_its_own_results_alone(plan):
    """Zeros of a Toeplitz matrix times infinities are none of them."""
    problem = plan.problem
    x, w = bound.sample(problem, 0)[:2]
    reach, places = problem.spec.kernel[0] // 2, ((0, 1, 4, 3), (0, 2, 0, problem.width - 1))
    plain = np.full(problem.y_shape, 0, x.dtype)
    EmulatedBackend().compile(plan)(x, w, None, plain)
    x[places[0]], x[places[1]] = np.inf, np.nan
    out = np.full(problem.y_shape, 0, x.dtype)
    EmulatedBackend().compile(plan)(x, w, None, out)
    under = np.zeros(out.shape, bool)
    for n, c, row, column in places:
        under[n, c, max(row - reach, 0):row + reach + 1,
              max(column - reach, 0):column + reach + 1] = True
    np.testing.assert_array_equal(~np.isfinite(out.astype(np.float32)), under)
    np.testing.assert_array_equal(out[~under], plain[~under])
