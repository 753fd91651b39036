"""Implicit products by warpgroups on the emulated device: equal to the reference; faults caught."""

from types import SimpleNamespace

import pytest
from emulated_runs import (
    checked_under_sanitizers,
    require_bit_equal,
    require_caught,
    require_right,
    require_silence,
)
from profiles import deep, mostly_deep, share

from dscore.algorithms.implicit_warpgroup.space import patch_of
from dscore.algorithms.implicit_warpgroup.tiling import ImplicitWarpgroupTiling
from dscore.backends.emulated import EmulatedBackend
from dscore.backends.reference.backend import ReferenceBackend
from dscore.checking.check import check_plan
from dscore.core import catalog
from dscore.core.errors import LaunchError
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan, solve
from dscore.solving.verdict import validate

MISSING = EmulatedBackend().missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

# Channels, pixels and steps that end with a tile, a vector, both or neither; images of which a
# tile takes part, one or several; kernels of other sides, strides and dilations.
TOKENS = ("n1c32h8w8_o32k3p1", "n2c37h5w7_o29k3p1_bias_relu6", "n3c40h6w4_o45k3p1_bias",
          "n2c35h6w7_o19k3s2p1_bias_hardswish", "n5c33h3w3_o9k2p1_relu_residual",
          "n1c24h8w8_o24k3p2d2_relu6", "n2c17h9w6_o20k2x3s1x2_bias")
TILINGS = ((32, 64, 32, 64, 1, 16, 3, 3), (16, 128, 16, 128, 1, 8, 1, 2),
           (24, 64, 24, 64, 2, 16, 3, 4), (16, 128, 8, 64, 1, 8, 1, 3, 2),
           (32, 64, 16, 64, 1, 8, 2, 3), (24, 128, 24, 128, 1, 8, 1, 3),
           (16, 128, 16, 64, 2, 32, 1, 2))


def planned(token, *fields):
    """The plan of these fields, of the least patch; the cluster comes last."""
    problem = parse_problem(token)
    t = SimpleNamespace(tile_p=fields[1], group_p=fields[3])
    tiling = ImplicitWarpgroupTiling(*fields[:8], int(patch_of(problem, t)), *fields[8:])
    return make_plan(problem, catalog.device("h200"), tiling)


def _runs(plan):
    return validate(plan.problem, plan.tiling, plan.device).ok


PLANS = [plan for number, fields in enumerate(TILINGS) for apart in (0, 3)
         if _runs(plan := planned(TOKENS[(number + apart) % 7], *fields))]


def test_all_tokens_and_tilings_are_among_the_plans():
    assert {plan.tiling.name.partition("_e")[0] for plan in PLANS} == {
        planned(TOKENS[0], *fields).tiling.name.partition("_e")[0] for fields in TILINGS}
    assert {plan.token for plan in PLANS} == set(TOKENS)


@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS, sizes), sizes, monkeypatch)


RING = planned("n2c45h5w7_o29k3p1_bias", 32, 64, 32, 64, 1, 8, 3, 3)
PAIR = planned("n2c45h5w7_o29k3p1_bias", 32, 64, 16, 64, 1, 8, 3, 3)
TURNS = planned("n2c40h5w7_o29k3p1_bias", 32, 64, 32, 64, 1, 8, 1, 2)
VECTORS = planned("n2c32h6w6_o24k3p1", 24, 128, 24, 128, 1, 16, 3, 3)
SLICES = planned("n2c48h6w6_o24k3p1_bias", 24, 64, 24, 64, 2, 32, 1, 2)
CLUSTER = planned("n1c32h6w6_o24k3p1_bias", 24, 64, 24, 64, 1, 8, 3, 3, 2)

# The plan, the source as it is, with its fault, and what is said of it.
FAULTS = {
    "first copies not waited for": (RING, "    wait_copies<t::stages - 2>();\n    __sync",
                                    "    __sync", "WRONG"),
    "later copies not waited for": (
        RING, "      if (last) wait_copies<t::stages - (t::turns > 1 ? 2 : 3)>();\n", "", "WRONG"),
    "copies waited for a turn late": (TURNS, "if (last) wait", "if (turn == 0) wait", "WRONG"),
    "missing barriers": (
        PAIR, "    wait_copies<t::stages - 2>();\n    __syncthreads();\n",
        "    wait_copies<t::stages - 2>();\n", "WRONG"),
    "ring one buffer short": (RING, "later % t::stages * t::buffer, later",
                              "later % (t::stages - 1) * t::buffer, later", "WRONG"),
    "filters written over those that products read": (
        RING, "lds() + (1 - buffer) * t::parts", "lds()", "WRONG"),
    "products of a turn not waited for": (
        TURNS, "      wait_products<0>();\n", "      wait_products<1>();\n", "WRONG"),
    "last products not waited for": (
        TURNS, "    wait_products<0>();\n    finish_step",
        "    wait_products<1>();\n    finish_step", "WRONG"),
    "sums written while products are under way": (
        VECTORS, "columns, t::part_row>(products[m], a[m], b, first, true);\n",
        "columns, t::part_row>(products[m], a[m], b, first, true);\n"
        "        products[m][0] = 0;\n", "WRONG"),
    "half of the sums of a step left out": (
        VECTORS, "i < columns / 2; i++) {\n        settle",
        "i < columns / 4; i++) {\n        settle", "WRONG"),
    "sums of a step begin with those before": (RING, "batch > 0 || begun", "true", "WRONG"),
    "a turn begins anew": (TURNS, "batch > 0 || begun", "batch > 0", "WRONG"),
    "small part of the image left out": (
        RING, "(products[m], rest[m], b, first,", "(products[m], a[m], b, first,", "WRONG"),
    "small part of the filters left out": (RING, "a[m], b + t::part,", "a[m], b,", "WRONG"),
    "halves of an eight exchanged": (VECTORS, "places[i] + half * 4", "places[i] + (1 - half) * 4",
                                     "WRONG"),
    "slice of another": (
        SLICES, "const int channel = slice * t::slice + eight", "const int channel = eight",
        "WRONG"),
    "taps of another row": (TURNS, "tap_place(turn * t::rows, 0)", "tap_place(0, 0)", "WRONG"),
    "filters of another turn": (TURNS, "+ turn * t::taps_each + tap;", "+ tap;", "WRONG"),
    "filters of the turn before": (TURNS, "last ? 0 : turn + 1, part", "turn, part", "WRONG"),
    "filters of the step before": (RING, "(step + 1) % t::stages * t::buffer : own",
                                   "step % t::stages * t::buffer : own", "WRONG"),
    "filters of a tap as of the next": (
        RING, "turn * t::taps_each + tap;", "turn * t::taps_each + (tap + 1) % t::taps_each;",
        "WRONG"),
    "channels past the last stored": (
        RING, "if (!wanted(lane_channel(c)))", "if (!wanted(lane_channel(c) - 1))",
        "wrote outside its output"),
    "bias of the neighbour": (RING, "group_out(s) + lane_channel(i))",
                              "group_out(s) + lane_channel(i ^ 1))", "WRONG"),
    "the last pixel not stored": (
        RING, "pixel >= pixels(s)) continue", "pixel + 1 >= pixels(s)) continue", "WRONG"),
    "steps of a cluster's blocks alike": (
        CLUSTER, "least(steps_each(s), all_steps(s) - first_step)", "steps_each(s) - 1", "WRONG"),
}


@pytest.mark.parametrize("fault", mostly_deep(FAULTS, "sums written while products are under way"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    plan, right, wrong, words = FAULTS[fault]
    name = "implicit_warpgroup/kernel.hpp"
    require_caught(tmp_path, monkeypatch, plan, name, right, wrong, words)


@pytest.mark.deep
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([RING, PAIR, TURNS, VECTORS, SLICES, CLUSTER], monkeypatch)


@pytest.mark.deep
def test_the_sanitizers_find_nothing(tmp_path):
    require_silence(checked_under_sanitizers(tmp_path, [CLUSTER]))


@pytest.mark.parametrize(("fields", "words"), [
    ((40, 64, 16, 64, 1, 16, 1, 3), "whole warpgroups"),
    ((12, 64, 12, 64, 1, 16, 1, 3), "instructions"),
    ((16, 192, 16, 192, 1, 16, 1, 3), "instructions"), ((16, 64, 16, 64, 2, 24, 1, 3), "eights"),
    ((16, 64, 16, 64, 1, 16, 2, 3), "whole turns"), ((16, 64, 16, 64, 1, 16, 3, 2), "3 buffers"),
    ((16, 64, 16, 64, 1, 32, 3, 3), "batches"), ((16, 64, 16, 64, 1, 16, 3, 3, 4), "no step")])
def test_a_tiling_without_a_kernel_is_refused(fields, words):
    plan = planned("n1c32h8w8_o32k3p1", *fields)
    assert not _runs(plan)
    with pytest.raises(LaunchError, match=words):
        check_plan(ReferenceBackend(), plan, 0)


@pytest.mark.parametrize("device", ["a100", "b200", "z100sm"])
def test_devices_without_warpgroups_are_refused_by_name(device):
    verdict = validate(RING.problem, RING.tiling, catalog.device(device))
    assert "E-SPLIT" in [violation.code for violation in verdict.violations]
    assert "warpgroups" in str(verdict)


def test_layers_of_many_images_take_it_and_small_ones_do_not():
    h200 = catalog.device("h200")
    chosen = {token: solve(parse_problem(token), h200).algorithm.name for token in (
        "n64c64h56w56_o64k3p1", "n64c256h14w14_o256k3p1", "n1c64h56w56_o64k3p1",
        "n1c256h14w14_o256k3p1", "n64c3h224w224_o64k7s2p3")}
    assert [name == "implicit_warpgroup" for name in chosen.values()] == [
        True, True, False, False, False]
