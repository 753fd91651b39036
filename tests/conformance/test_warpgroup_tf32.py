"""Products by warpgroups on the emulated device: equal to the reference, and faults caught."""

import pytest
from emulated_runs import (
    checked_under_sanitizers,
    require_bit_equal,
    require_caught,
    require_right,
    require_silence,
)
from profiles import deep, mostly_deep, share

from dscore.algorithms.warpgroup_tf32.tiling import WarpgroupTf32Tiling
from dscore.backends.emulated import EmulatedBackend
from dscore.backends.reference.backend import ReferenceBackend
from dscore.checking.check import check_plan
from dscore.core import catalog
from dscore.core.errors import LaunchError
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan
from dscore.solving.verdict import validate

MISSING = EmulatedBackend().missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

# Channels, pixels and steps that end with a tile, a vector, both or neither; images of which a
# tile takes part, one or several.
TOKENS = ("n1c32h8w8_o32k1", "n2c37h5w7_o29k1_bias_relu6", "n3c40h6w4_o45k1_bias_scaled",
          "n2c35h6w7_o19k1s2p1_bias_hardswish", "n5c33h3w3_o9k1_relu_residual")
GRADIENTS = ("input_gradient_n1c32h8w8_o32k1", "input_gradient_n2c37h5w7_o29k1",
             "input_gradient_n2c40h3w4_o45k1", "input_gradient_n2c23h6w7_o19k1s2p1",
             "input_gradient_n2c20h6w6_o48k1")
TILINGS = ((32, 64, 32, 64, 1, 16, 3), (16, 128, 16, 128, 1, 8, 3), (48, 64, 24, 64, 2, 16, 4),
           (16, 128, 8, 64, 1, 16, 3, 2), (32, 64, 16, 64, 1, 40, 3))


def planned(token, *fields):
    return make_plan(parse_problem(token), catalog.device("h200"), WarpgroupTf32Tiling(*fields))


PLANS = [planned(token, *fields) for number, fields in enumerate(TILINGS)
         for token in (TOKENS[number], TOKENS[(number + 2) % 5], GRADIENTS[number],
                       TOKENS[(number + 3) % 5], GRADIENTS[(number + 1) % 5])
         if number != 3 or "29" not in token]


@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS, sizes), sizes, monkeypatch)


RING = planned("n2c45h5w7_o29k1_bias", 32, 64, 32, 64, 1, 8, 3)
VECTORS = planned("n2c48h6w6_o24k1", 24, 128, 24, 128, 1, 16, 3)
SLICES = planned("n2c48h6w6_o24k1_bias", 24, 64, 24, 64, 3, 24, 3)
TURNED = planned("input_gradient_n1c20h5w7_o18k1", 24, 64, 24, 64, 1, 8, 3)
GAPS = planned("input_gradient_n1c20h5w7_o18k1s2", 24, 64, 24, 64, 1, 8, 3)
CLUSTER = planned("n1c48h6w6_o24k1_bias", 24, 64, 24, 64, 1, 8, 3, 2)

WAIT = "      wait_copies<t::stages - 2>();\n"
STEP = "      if (step > 0) finish_step();\n"
BARRIER = "      __syncthreads();\n"
# The plan, the source as it is, with its fault, and what is said of it.
FAULTS = {
    "copies not waited for": (RING, WAIT, "", "WRONG"),
    "missing barrier": (RING, BARRIER, "", "WRONG"),
    "ring one buffer short": (RING, "next % t::stages * t::buffer, next",
                              "next % (t::stages - 1) * t::buffer, next", "WRONG"),
    "filters written over those that products read": (
        RING, "(step + 1) % t::filter_buffers * t::parts, step + 1", "0 * t::parts, step + 1",
        "WRONG"),
    "products of a step not waited for": (
        RING, "    wait_products<0>();\n", "    wait_products<1>();\n", "WRONG"),
    "half of the sums of a step left out": (
        VECTORS, "i < columns / 2; i++) {\n        settle",
        "i < columns / 4; i++) {\n        settle", "WRONG"),
    "sums of a step begin with those before": (
        RING, "first, eight > 0);", "first, true);", "WRONG"),
    "small part of the image left out": (
        RING, "(products[m], rest[m], b, first,", "(products[m], a[m], b, first,", "WRONG"),
    "small part of the filters left out": (RING, "a[m], b + t::part,", "a[m], b,", "WRONG"),
    "halves of an eight exchanged": (
        VECTORS, "images + (k + half * 4 +", "images + (k + 4 - half * 4 +", "WRONG"),
    "pixels of a lane exchanged": (
        VECTORS, "values[(i + j) / 2][(i + j) % 2 +", "values[(i + j) / 2][1 - (i + j) % 2 +",
        "WRONG"),
    "slice of another": (
        SLICES, "channel = slice * t::slice + eight * 8", "channel = eight * 8", "WRONG"),
    "steps of a cluster's blocks alike": (
        CLUSTER, "in = (first_step + step) * t::step_c", "in = step * t::step_c", "WRONG"),
    "part of the filters not brought": (
        RING, "fetch_filters(step + 2, part)", "fetch_filters(step + 2, Part{1, 2})", "WRONG"),
    "filters of a step too early": (
        RING, "if (step > 0) finish_step();", "if (step > 1) finish_step();", "WRONG"),
    "channels past the last stored": (
        RING, "if (!wanted(lane_channel(c)))", "if (!wanted(lane_channel(c) - 1))",
        "wrote outside its output"),
    "filters turned as if they were not": (
        TURNED, "const int along = t::turned ? channels(s) : 1", "const int along = 1", "WRONG"),
    "bias of the neighbour": (RING, "bias_of(args, lane_channel(i))",
                              "bias_of(args, lane_channel(i ^ 1))", "WRONG"),
}


@pytest.mark.parametrize("fault", mostly_deep(FAULTS, "missing barrier"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    plan, right, wrong, words = FAULTS[fault]
    require_caught(tmp_path, monkeypatch, plan, "warpgroup_tf32/kernel.hpp", right, wrong, words)


@pytest.mark.deep
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([RING, VECTORS, SLICES, CLUSTER, TURNED, GAPS], monkeypatch)


@pytest.mark.deep
def test_the_sanitizers_find_nothing(tmp_path):
    plan = make_plan(parse_problem("n3c20h3w4_o29k1"), catalog.device("h200"), CLUSTER.tiling)
    require_silence(checked_under_sanitizers(tmp_path, [plan]))


@pytest.mark.parametrize(("fields", "words"), [
    ((40, 64, 16, 64, 1, 16, 3), "whole warpgroups"), ((12, 64, 12, 64, 1, 16, 3), "instructions"),
    ((16, 192, 16, 192, 1, 16, 3), "instructions"), ((16, 64, 16, 64, 2, 24, 3), "eights"),
    ((16, 64, 16, 64, 1, 16, 2), "3 buffers"), ((16, 64, 16, 64, 1, 16, 3, 4), "no step")])
def test_a_tiling_without_a_kernel_is_refused(fields, words):
    plan = planned("n1c32h8w8_o32k1", *fields)
    assert not validate(plan.problem, plan.tiling, plan.device).ok
    with pytest.raises(LaunchError, match=words):
        check_plan(ReferenceBackend(), plan, 0)


@pytest.mark.parametrize("device", ["a100", "b200", "z100sm"])
def test_devices_without_warpgroups_are_refused_by_name(device):
    verdict = validate(RING.problem, RING.tiling, catalog.device(device))
    assert "E-SPLIT" in [violation.code for violation in verdict.violations]
    assert "warpgroups" in str(verdict)
