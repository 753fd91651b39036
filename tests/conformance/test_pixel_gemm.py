"""Products of pixels by filters on the emulated device: equal to the reference, and faults caught;
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

from dscore.algorithms.pixel_gemm.tiling import PixelGemmTiling
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


# Planes of whole runs of 64 pixels and others, tiles that end one image and begin the next,
# channels past the last; rings that are refilled or have one buffer; filters that stay; more
# channels than are turned together, and an odd number of eights.
PLANS = [planned(PixelGemmTiling(*fields), token) for fields, token in (
    ((64, 64, 64, 2), "n1c64h8w8_o64k1_float16"),
    ((128, 40, 32, 3, 2, True), "n3c72h8w10_o40k1_float16_bias_relu"),
    ((192, 72, 48, 2), "n2c88h9w8_o136k1_bfloat16_bias_hardswish_residual"),
    ((64, 24, 16, 2, 3, True), "n2c24h10w20_o24k1_float16_bias_residualafter"),
    ((128, 136, 64, 1), "n1c40h12w12_o136k1_float16_bias_relu6_residual"),
    ((64, 8, 96, 2, 2), "n3c200h4w4_o8k1_bfloat16"),
    ((128, 80, 32, 2, 1, True), "input_gradient_n2c136h8w8_o72k1_bfloat16"),
    ((64, 40, 48, 3, 2), "input_gradient_n2c72h8w15_o88k1_float16"),
    ((64, 56, 64, 1, 2), "n2c72h8w12_o40k1_float16_bias"))]


@needs_compiler
@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS, sizes), sizes, monkeypatch)


KEPT, WIDE, ADDED, TURNED = PLANS[1], PLANS[2], PLANS[3], PLANS[6]
# An image has three runs of 64 pixels, and a tile two.
SHARED = planned(PixelGemmTiling(128, 40, 64, 2, 2), "n3c72h8w18_o40k1_float16")
KERNEL = "pixel_gemm/product.hpp"
RESULTS, ROLES = (f"pixel_gemm/{name}.hpp" for name in ("results", "roles"))
# The plan, its source as it is, with its fault, and what is said of it; the file, if another.
FAULTS = {
    "a buffer filled before it is read": (
        SHARED, "if (refilled) wait_barrier(empty + turn.stage, turn.parity ^ 1);", "",
        "wait for one another"),
    "products of what has not come": (
        KEPT, "wait_barrier(full + turn.stage, turn.parity);\n      multiply(", "multiply(",
        "came to LDS that nobody"),
    "a buffer let go before it is read": (
        SHARED, "        wait_products<1>();\n        release(previous());",
        "        release(turn.stage);", "wait for one another"),
    "pixels of the run before": (SHARED, "{pixel_of(run + i),", "{pixel_of(run),", "WRONG"),
    "pixels of the image before": (SHARED, "image_of(run + i)}", "image_of(run)}", "WRONG"),
    "another warpgroup's pixels": (WIDE, "planes_at(stage) + group * t::group_bytes);",
                                   "planes_at(stage));", "WRONG"),
    "filters of another step": (SHARED, "{(t::across ? first_n : summed) + i * t::row,",
                                "{(t::across ? first_n : 0) + i * t::row,", "WRONG"),
    "turned filters of another step": (TURNED, "t::across ? summed : first_n});",
                                       "t::across ? 0 : first_n});", "WRONG"),
    "filters of the first channels": (WIDE, "t::across ? summed : first_n});",
                                      "t::across ? summed : 0});", "WRONG"),
    "results of the tile before": (KEPT, "step + k > 0);", "true);", "WRONG"),
    "more bytes than come": (KEPT, "(filters ? t::filter_bytes : 0)", "t::filter_bytes",
                             "wait for one another"),
    "results that follow too soon": (SHARED, "if (of_group == 0) wait_stores<0>();\n", "", "WRONG",
                                     RESULTS),
    "results not waited for": (
        KEPT, "if (thread % warpgroup_threads == 0) wait_stores<0>();", "", "WRONG"),
    "results not exchanged": (
        KEPT, "swizzled(channel * swizzled_row + pixel * int{sizeof(T)}));",
        "channel * swizzled_row + pixel * int{sizeof(T)});", "WRONG", RESULTS),
    "channels turned into one another": (KEPT, "lane / 16 * 8 + lane % 8;", "lane % 8;", "WRONG",
                                         RESULTS),
    "the last eight channels left out": (
        KEPT, "else write_turned<2>(place(first + i), words + 2 * i);", "", "WRONG", RESULTS),
    "results of another image": (SHARED, "block.first_n, image});", "block.first_n, 0});", "WRONG",
                                 RESULTS),
    "one channel's residual for two": (
        ADDED, "residual_of<1>(args, at + apart)", "residual_of<1>(args, at)", "WRONG", ROLES),
    "the first runs' residual for all": (ADDED, "+ i * 8 * area, area);", ", area);", "WRONG",
                                         RESULTS),
}


@needs_compiler
@pytest.mark.parametrize("fault", mostly_deep(
    FAULTS, "pixels of the image before", "the last eight channels left out"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    plan, right, wrong, words, *file = FAULTS[fault]
    require_caught(tmp_path, monkeypatch, plan, *file or [KERNEL], right, wrong, words)


@pytest.mark.deep
@needs_compiler
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([KEPT, WIDE, ADDED, TURNED, SHARED], monkeypatch)


@pytest.mark.deep
@needs_compiler
def test_the_sanitizers_find_nothing(tmp_path):
    require_silence(checked_under_sanitizers(tmp_path, [
        planned(PixelGemmTiling(64, 40, 64, 2, 2), "n3c72h8w9_o40k1_float16_bias_residual"),
        planned(PixelGemmTiling(128, 24, 48, 2, 1, True),
                "input_gradient_n2c40h8w8_o72k1_float16")]))


@pytest.mark.parametrize(("token", "code"), [
    ("n1c60h8w8_o64k1_float16", "E-CHANNELS"), ("n1c64h8w8_o60k1_float16", "E-CHANNELS"),
    ("n1c64h8w8_o64k1s2_float16", "E-STRIDE"), ("n1c64h8w8_o64k1p1_float16", "E-STRIDE"),
    ("n1c64h8w8_o64k1_float16_scaled", "E-SCALE"), ("n1c64h8w8_o64k1_float16_nhwc", "E-LAYOUT"),
    ("n1c64h1w1_o64k1_float16", "E-LAYOUT"), ("n1c64h8w8_o64k1", "E-DTYPE"),
    ("n1c64h14w14_o64k1_float16", "E-AREA"), ("n1c64h8w8_o64k3_float16", "E-KIND")])
def test_what_it_does_not_run_is_refused_by_name(token, code):
    [violation] = algorithm("pixel_gemm").refuses(parse_problem(token))
    assert violation.code == code


@pytest.mark.parametrize(("fields", "code"), [
    ((96, 40, 64, 2), "E-TILE"), ((64, 36, 64, 2), "E-TILE"), ((64, 264, 64, 2), "E-BOX"),
    ((64, 40, 24, 2), "E-SLICE"), ((64, 40, 64, 9), "E-STAGES")])
def test_tilings_without_a_kernel_are_refused(fields, code):
    problem = parse_problem("n2c72h12w14_o40k1_float16")
    [violation] = validate(problem, PixelGemmTiling(*fields), H200, masked=True).violations
    assert violation.code == code


def test_tilings_ask_for_no_more_lds_than_a_block_has():
    token, tiling = "n8c384h28w28_o192k1_float16", PixelGemmTiling(256, 192, 128, 3)
    problem = parse_problem(token)
    assert planned(tiling, token).launch.lds_bytes > H200.lds_bytes_per_block
    codes = {one.code for one in validate(problem, tiling, H200, masked=True).violations}
    assert "E-LDS-BLOCK" in codes
    space = solve(problem, H200, algorithm="pixel_gemm")
    assert len(space) > 0
    assert tiling not in [space[index] for index in range(len(space))]


def test_it_suits_hopper_alone():
    one, problem = algorithm("pixel_gemm"), parse_problem("n1c64h8w8_o64k1_float16")
    assert [name for name, device in catalog.devices().items() if one.suits(device)] == [
        "h100", "h200"]
    with pytest.raises(InfeasibleError, match="pixel_gemm does not suit a100; "):
        solve(problem, catalog.device("a100"), algorithm="pixel_gemm")
