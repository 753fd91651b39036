"""Products of filters by planes on the emulated device: equal to the reference, and faults caught;
what is refused, and on which devices."""

import pytest
from emulated_runs import (
    checked_under_sanitizers,
    require_bit_equal,
    require_caught,
    require_right,
    require_silence,
)
from profiles import deep, mostly_deep, share
from refusals import needs

from dscore.algorithms.plane_gemm.tiling import PlaneGemmTiling
from dscore.algorithms.registry import algorithm
from dscore.backends.emulated import EmulatedBackend
from dscore.core import catalog
from dscore.core.errors import InfeasibleError
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan, solve
from dscore.solving.verdict import validate

needs_compiler = needs(EmulatedBackend())
H200 = catalog.device("h200")


def planned(tiling, token):
    return make_plan(parse_problem(token), H200, tiling)


# Planes that are moved and others, whole and in parts; several images, the last of which are
# missing; rings that are refilled or have one buffer; filters that stay; results that leave by
# boxes of a row of LDS, and by narrower ones.
PLANS = [planned(PlaneGemmTiling(*fields), token) for fields, token in (
    ((64, 64, 1, 64, 2), "n1c64h8w8_o64k1_float16"),
    ((64, 56, 1, 64, 3, 2, True, 7), "n3c72h7w7_o40k1_float16_bias_relu"),
    ((128, 56, 2, 64, 2, 2), "n3c200h7w7_o136k1_bfloat16_bias_hardswish_residual"),
    ((64, 56, 1, 48, 2), "n2c88h14w14_o72k1_float16_bias_residual"),
    ((64, 104, 1, 32, 3, 2), "n2c40h14w14_o72k1_bfloat16"),
    ((64, 200, 1, 64, 1), "n1c80h14w14_o72k1_float16_bias_relu6_residualafter"),
    ((128, 128, 1, 16, 2, 3, True), "n1c24h20w20_o136k1_float16_relu6_residual"),
    ((64, 40, 1, 64, 2, 1, False, 2), "n1c72h9w9_o40k1_float16_bias_residual"),
    ((64, 24, 1, 128, 1), "n1c136h5w6_o40k1_float16_bias_residual"),
    ((128, 56, 1, 64, 2, 1, True), "input_gradient_n2c136h7w7_o200k1_bfloat16"),
    ((64, 104, 1, 48, 2, 2), "input_gradient_n2c72h14w14_o88k1_float16"),
    ((64, 56, 1, 64, 1), "n1c200h7w7_o40k1_float16"),
    ((64, 56, 1, 64, 1, 1, False, 1), "n1c136h1w11_o8k1_bfloat16"),
    ((64, 112, 1, 32, 2, 2, True), "n2c24h8w29_o72k1_float16_bias_residual"),
    ((128, 56, 1, 32, 2), "input_gradient_n2c136h8w29_o40k1_bfloat16"))]


@needs_compiler
@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS, sizes), sizes, monkeypatch)


IMAGES, PARTS, SPANS, TURNED, STAYING = PLANS[2], PLANS[4], PLANS[5], PLANS[10], PLANS[6]
NARROW = PLANS[13]
REPEATED = planned(PlaneGemmTiling(64, 64, 1, 64, 2, 3), "n3c72h8w8_o40k1_float16")
KERNEL = "plane_gemm/product.hpp"
FILTERS, MOVE, RESULTS = (f"plane_gemm/{name}.hpp" for name in ("filters", "move", "results"))
# The plan, its source as it is, with its fault, and what is said of it; the file, if another.
FAULTS = {
    "a buffer filled before it is read": (
        IMAGES, "if (refilled) wait_barrier(empty + turn.stage, turn.parity ^ 1);", "",
        "wait for one another"),
    "products of what has not come": (
        STAYING, "wait_barrier(full + turn.stage, turn.parity);\n        if (t::moved)",
        "if (t::moved)", "came to LDS that nobody"),
    "products of what has not been moved": (
        PARTS, "if (t::moved) wait_barrier(moved + turn.stage, turn.parity);", "", "WRONG"),
    "boxes from within vectors": (IMAGES, "(i % t::apart * area(s) + pixel) / 8 * 8 +",
                                  "i % t::apart * area(s) + pixel +", "not aligned"),
    "planes a pixel on": (IMAGES, "* area % 8;", "* area % 8 + 1;", "WRONG", MOVE),
    "planes moved before neighbours have read": (IMAGES, "    wavefront_barrier();\n", "", "WRONG",
                                                 MOVE),
    "pixels of the next box left behind": (PARTS, "of + 1 < t::columns * 8 ?",
                                           "of % 8 < 7 ?", "WRONG", MOVE),
    "planes moved twice as far": (PARTS, "row / alike * area % 8;", "2 * row / alike * area % 8;",
                                  "WRONG", MOVE),
    "the first planes that are moved left out": (IMAGES, "first_row = alike + thread",
                                                 "first_row = 2 * alike + thread", "WRONG", MOVE),
    "planes in the order of memory": (IMAGES, "planes + 2 * i * t::box_bytes",
                                      "planes + i * t::box_bytes", "WRONG"),
    "another image's planes": (IMAGES, "image * t::box_rows * swizzled_row +",
                               "0 * image * t::box_rows * swizzled_row +", "WRONG"),
    "filters of neighbours": (IMAGES, "two = read[i + t::apart / 2];", "two = read[i];", "WRONG",
                              FILTERS),
    "filters not exchanged": (IMAGES, "filters + swizzled(place + i * 16)",
                              "filters + place + i * 16", "WRONG", FILTERS),
    "turned filters in the order of memory": (
        TURNED, "t::apart * (eight * 8 + lane % 8) + 2 * i + lane / 16;",
        "t::apart * eight * 8 + lane % 8 + 8 * (lane / 16) + 16 * i;", "WRONG",
        FILTERS),
    "pixels 64 on from another box": (PARTS, "t::box_bytes, t::column_bytes);",
                                      "t::box_bytes, t::box_bytes);", "WRONG"),
    "pixels past the plane": (
        PARTS, "if (of < all && first_channel + row < Roles::m(block.s) && pixel + at < area())",
        "if (of < all && first_channel + row < Roles::m(block.s))", "outside its output", RESULTS),
    "results of the tile before": (
        PARTS, "further || eight + i > 0);", "true);", "WRONG"),
    "results that follow too soon": (
        REPEATED, "      if (t::by_engine && of_group == 0) wait_stores<0>();\n", "", "WRONG",
        RESULTS),
    "boxes that follow too soon": (
        STAYING, "      if (t::by_engine && of_group == 0) wait_stores<0>();\n", "", "WRONG",
        RESULTS),
    "boxes not exchanged": (
        STAYING, "(swizzled(at * bytes) ^ within * bytes) / bytes", "at + within", "WRONG",
        RESULTS),
    "boxes of another tile's pixels": (NARROW, "{pixel + first,", "{first,", "WRONG", RESULTS),
    "the second box from the first one's place": (
        NARROW, "results + first * warpgroup_rows,\n", "results,\n", "WRONG", RESULTS),
    "results not waited for": (
        SPANS, "if (t::by_engine && thread % warpgroup_threads == 0) wait_stores<0>();", "",
        "WRONG"),
    "boxes of results not waited for": (
        NARROW, "if (t::by_engine && thread % warpgroup_threads == 0) wait_stores<0>();", "",
        "WRONG"),
    "more bytes than come": (STAYING, "(filters ? t::filter_bytes : 0)", "t::filter_bytes",
                             "wait for one another"),
}


@needs_compiler
@pytest.mark.parametrize("fault", mostly_deep(
    FAULTS, "products of what has not come", "pixels 64 on from another box"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    plan, right, wrong, words, *file = FAULTS[fault]
    require_caught(tmp_path, monkeypatch, plan, *file or [KERNEL], right, wrong, words)


@pytest.mark.deep
@needs_compiler
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([IMAGES, PARTS, SPANS, TURNED, STAYING, REPEATED], monkeypatch)


@pytest.mark.deep
@needs_compiler
def test_the_sanitizers_find_nothing(tmp_path):
    require_silence(checked_under_sanitizers(tmp_path, [
        planned(PlaneGemmTiling(64, 56, 2, 64, 2), "n3c72h7w7_o40k1_float16_bias"),
        planned(PlaneGemmTiling(64, 56, 1, 48, 2, 2, True, 7), "n2c72h14w14_o40k1_float16_bias")]))


@pytest.mark.parametrize(("token", "code"), [
    ("n1c60h8w8_o64k1_float16", "E-CHANNELS"), ("n1c64h8w8_o60k1_float16", "E-CHANNELS"),
    ("n1c64h8w8_o64k1s2_float16", "E-STRIDE"), ("n1c64h8w8_o64k1p1_float16", "E-STRIDE"),
    ("n1c64h8w8_o64k1_float16_scaled", "E-SCALE"), ("n1c64h8w8_o64k1_float16_nhwc", "E-LAYOUT"),
    ("n1c64h1w1_o64k1_float16", "E-LAYOUT"), ("n1c64h8w8_o64k1", "E-DTYPE"),
    ("n1c64h8w8_o64k3_float16", "E-KIND")])
def test_what_it_does_not_run_is_refused_by_name(token, code):
    [violation] = algorithm("plane_gemm").refuses(parse_problem(token))
    assert violation.code == code


@pytest.mark.parametrize(("fields", "code"), [
    ((64, 56, 2, 64, 2), "E-IMAGES"), ((64, 56, 1, 24, 2), "E-SLICE"),
    ((96, 56, 1, 32, 2), "E-TILE"), ((64, 264, 1, 32, 2), "E-BOX"),
    ((64, 56, 1, 32, 9), "E-STAGES"), ((64, 56, 1, 32, 2, 1, False, 16), "E-MOVERS")])
def test_tilings_without_a_kernel_are_refused(fields, code):
    problem = parse_problem("n2c72h12w14_o40k1_float16")
    [violation] = validate(problem, PlaneGemmTiling(*fields), H200, masked=True).violations
    assert violation.code == code


@pytest.mark.parametrize(("fields", "token"), [
    ((64, 256, 1, 144, 2), "n2c152h30w30_o24k1_bfloat16_bias"),
    ((128, 104, 1, 96, 4), "n32c576h14w14_o96k1_float16"),
    ((192, 56, 4, 128, 2), "n9c264h7w7_o200k1_float16")])
def test_tilings_that_a_driver_refused_ask_for_more_lds_than_a_block_has(fields, token):
    problem, tiling = parse_problem(token), PlaneGemmTiling(*fields)
    assert planned(tiling, token).launch.lds_bytes > H200.lds_bytes_per_block
    codes = {one.code for one in validate(problem, tiling, H200, masked=True).violations}
    assert "E-LDS-BLOCK" in codes
    space = solve(problem, H200, algorithm="plane_gemm")
    assert tiling not in [space[index] for index in range(len(space))]


def test_it_suits_hopper_alone():
    one, problem = algorithm("plane_gemm"), parse_problem("n1c64h8w8_o64k1_float16")
    assert [name for name, device in catalog.devices().items() if one.suits(device)] == [
        "h100", "h200"]
    with pytest.raises(InfeasibleError, match="plane_gemm does not suit a100; "):
        solve(problem, catalog.device("a100"), algorithm="plane_gemm")
