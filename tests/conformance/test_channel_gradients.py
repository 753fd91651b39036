"""Both gradients by one kernel, on the emulated device: equal to the reference, and faults caught.
"""

import numpy as np
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

from dscore.algorithms.channel_sums.tiling import ChannelSumsTiling
from dscore.backends.emulated import EmulatedBackend
from dscore.backends.reference.backend import ReferenceBackend
from dscore.checking import bound
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

MISSING = EmulatedBackend().missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


def planned(layer, *tiling, device="h200", **further):
    return make_plan(parse_problem(f"gradients_{layer}"), catalog.device(device),
                     ChannelSumsTiling(*tiling, **further))


# Channels that are whole blocks and vectors, and odd ones; strides that leave rows without taps,
# dilation, slices, clusters, stages and bands; lanes that are left over; wider sums.
PLANS = [
    planned("n3c10h7w9_o10k3p1g10_nhwc", 2, 3, 3, 2, 2, 2, 4, 2),
    planned("n2c6h8w8_o6k5s2p2g6_float16_nhwc", 2, 2, 2, 2, 1, 2, 1, 3),
    planned("n3c10h7w9_o10k3p1g10_bfloat16_outfloat32_nhwc", 2, 3, 3, 2, 2, 2, 2, 2, bands=3,
            cluster=2),
    planned("n4c12h9w9_o12k5s2p2g12_float16_nhwc", 4, 2, 4, 2, 2, 1, 1, 1, bands=4, cluster=3,
            ahead=True),
    planned("n5c6h8w7_o6k3x5s1x2p1g6_nhwc", 2, 2, 4, 2, 1, 1, 1, 2, bands=2, cluster=4),
    planned("n2c7h9w10_o7k2s3g7_float16_outfloat32_nhwc", 1, 8, 3, 6, 1, 1, 3, 1),
    planned("n2c8h11w6_o8k3x2p1d2x1g8_nhwc", 4, 2, 4, 3, 2, 2, 2, 1, bands=3),
    planned("n1c12h9w9_o12k3p1g12_nhwc", 4, 3, 3, 2, 2, 3, 2, device="z100sm"),
]


@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS, sizes), sizes, monkeypatch)


def test_both_are_what_the_definition_says_tap_by_tap():
    """Of integers all sums are exact, whatever their order."""
    plan = planned("n3c10h7w9_o10k3s2p1g10_nhwc", 2, 3, 4, 2, 2, 2, 4, 2)
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-4, 5, one.shape).astype(np.float32)
              for one in bound.sample(plan.problem, 0)]
    outs = bound.blank(plan.problem)
    EmulatedBackend().compile(plan)(*inputs, *outs)
    x, gradient, w = inputs
    of_w = np.zeros_like(w)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    of_padded = np.zeros_like(padded)
    for r, c in np.ndindex(3, 3):
        rows, columns = slice(r, r + 2 * gradient.shape[1] - 1, 2), slice(
            c, c + 2 * gradient.shape[2] - 1, 2)
        of_padded[:, rows, columns] += gradient * w[:, 0, r, c]
        of_w[:, 0, r, c] = (padded[:, rows, columns] * gradient).sum((0, 1, 2))
    np.testing.assert_array_equal(outs[0], of_padded[:, 1:-1, 1:-1])
    np.testing.assert_array_equal(outs[1], of_w)


PLAIN = planned("n3c10h7w9_o10k3p1g10_nhwc", 2, 3, 3, 2, 2, 2, 4, 2)
BANDED = planned("n4c6h9w7_o6k5p2g6_nhwc", 2, 3, 4, 2, 1, 2, 1, 2, bands=2, cluster=2)
STRIDED = planned("n2c6h9w8_o6k3s2p1g6_nhwc", 2, 3, 4, 2, 1, 2, 2, 1)
TAILED = planned("n1c5h6w5_o5k3p1g5_float16_nhwc", 4, 2, 3, 5, 2, 1, 1)
BOTH, SHARES = "channel_sums/gradients.hpp", "channel_sums/shares.hpp"

FAULTS = {
    "rows of x that come a band late": (
        BANDED, BOTH, "greatest(band_rows * Layer::stride_h, ceil_div(rows, bands))",
        "ceil_div(rows, bands)", "WRONG"),
    "bands not waited for": (
        BANDED, SHARES,
        "wait_copies_but<t::stages * t::bands - 1>(t::stages * t::bands - 1 - band);", "",
        "WRONG"),
    "a row of x that stays in its register": (
        PLAIN, BOTH, "unmet(i) + n; r < unmet(i + 1)", "unmet(i) + n; i == 0 && r < unmet(1)",
        "WRONG"),
    "a row that is given away before it is complete": (
        STRIDED, BOTH, "Rows::complete(i) + n; r < least(Rows::complete(i + 1), t::thread_h)",
        "Rows::complete(i) + n; r < least(Rows::complete(i + 1) + 1, t::thread_h)", "WRONG"),
    "registers that are not cleared for another row": (
        PLAIN, BOTH, "done[v] = 0.0f", "done[v] += 0.0f", "WRONG"),
    "a vector of channels past the last": (
        TAILED, BOTH, "if (has_channel(v))\n            write_vector",
        "if (channel < s.out_channels)\n            write_vector", "wrote outside its output"),
    "rows past the last": (
        PLAIN, BOTH, "const bool row_there = Images::out_height(s) % block_h == 0 || r < down;",
        "const bool row_there = true;", "wrote outside its output"),
    "columns past the last": (
        PLAIN, BOTH, "if (row_there && (Images::out_width(s) % block_w == 0 || c < right)) {",
        "if (row_there) {", "wrote outside its output"),
    "sums of 16 bits": (
        TAILED, "support/vendor.hpp", "sums[i] += a[i] * b[i];",
        "sums[i] = static_cast<float>(float16(sums[i] + a[i] * b[i]));", "WRONG"),
    "taps in reverse": (
        PLAIN, BOTH, "filters[v * L::taps + tap]", "filters[v * L::taps + L::taps - 1 - tap]",
        "WRONG"),
    "images that begin where smaller ones would": (
        STRIDED, BOTH, "(p.image * Images::out_height(s) + top)",
        "(p.image * Images::in_height(s) + top)", "WRONG"),
}


@pytest.mark.parametrize("fault", mostly_deep(FAULTS, "sums of 16 bits"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    require_caught(tmp_path, monkeypatch, *FAULTS[fault])


@pytest.mark.deep
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([PLAIN, BANDED, STRIDED, TAILED], monkeypatch)


@pytest.mark.deep
def test_the_sanitizers_find_nothing(tmp_path):
    require_silence(checked_under_sanitizers(tmp_path, [PLAIN, BANDED, STRIDED, TAILED]))


@pytest.mark.deep
def test_the_sanitizers_find_a_filter_read_past_the_end(tmp_path):
    wrong = altered(tmp_path, BOTH, "const bool there = live && has_channel(v);",
                    "const bool there = live;")
    assert "AddressSanitizer" in checked_under_sanitizers(tmp_path, [TAILED], wrong).stderr


@pytest.mark.parametrize("backend", [ReferenceBackend(), EmulatedBackend()],
                         ids=lambda one: one.name)
def test_what_no_gradient_lies_over_reaches_no_sum(backend):
    """Pixels of x that no tap connects with the output's gradient, though with its border."""
    plan = planned("n1c4h5w7_o4k3s2g4_nhwc", 2, 2, 4, 2, 2, 2, 1)
    x, gradient, w = bound.sample(plan.problem, 0)
    plain = bound.blank(plan.problem)
    backend.compile(plan)(x, gradient, w, *plain)
    wide = make_plan(parse_problem("gradients_n1c4h6w8_o4k3s2g4_nhwc"), plan.device, plan.tiling)
    beside = np.full(wide.problem.x_shape, np.inf, np.float32)
    beside[:, :5, :7] = x  # the last row and column are under no filter
    outs = bound.blank(wide.problem)
    backend.compile(wide)(beside, gradient, w, *outs)
    np.testing.assert_array_equal(outs[1], plain[1])
    np.testing.assert_array_equal(outs[0][:, :5, :7], plain[0])
    assert not outs[0][:, 5:].any()
    assert not outs[0][:, :, 7:].any()
