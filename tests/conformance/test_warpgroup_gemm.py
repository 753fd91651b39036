"""Products of matrices by warpgroups on the emulated device: equal to the reference, and faults
caught; what is refused, and on which devices."""

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
from refusals import needs

from dscore.algorithms.registry import algorithm
from dscore.algorithms.warpgroup_gemm.tiling import WarpgroupGemmTiling
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


# Rows, columns and summed elements that end with a tile and before its end; rings that are
# refilled, columns that stay, parts, the last of which has no steps; tiles that share all columns.
PLANS = [planned(WarpgroupGemmTiling(*fields), token) for fields, token in (
    ((64, 64, 64, 2), "n1c64h8w8_o64k1_float16_nhwc"),
    ((64, 40, 64, 3, 2, True), "n2c72h9w9_o40k1_float16_nhwc_bias_relu"),
    ((128, 64, 64, 2, 2), "n1c200h13w13_o136k1_bfloat16_nhwc_bias_hardswish_residual"),
    ((64, 8, 128, 2), "n3c8h1w1_o8k1_bfloat16_nhwc_bias"),
    ((192, 16, 128, 2), "n1c264h10w21_o16k1_float16_nhwc_relu6_residual"),
    ((64, 192, 64, 4, 3, True), "n1c136h17w11_o200k1_float16_nhwc"),
    ((128, 64, 64, 2, 1, True), "input_gradient_n1c200h13w13_o136k1_bfloat16_nhwc"),
    ((64, 24, 128, 2, 2), "input_gradient_n2c24h9w9_o264k1_float16_nhwc"),
    ((64, 128, 64, 2, 1, False, 2), "weight_gradient_n1c200h13w13_o136k1_float16_nhwc"),
    ((128, 40, 128, 2), "weight_gradient_n1c40h13w13_o136k1_float16_nhwc"),
    ((64, 16, 64, 3, 1, False, 9), "weight_gradient_n3c16h8w13_o72k1_bfloat16_nhwc"),
    ((64, 48, 64, 3), "n2c136h9w9_o144k1_float16_nhwc_bias_relu"))]
# Of int8: results by rows, also of part tiles, and by a span, also of a last tile of few rows;
# floats; zero points that columns which stay keep, too.
INTEGERS = [planned(WarpgroupGemmTiling(*fields), token) for fields, token in (
    ((128, 64, 128, 2, 2), "n1c208h13w13_o144k1_int8_nhwc_bias_residual"),
    ((64, 48, 128, 3, 2, True), "n2c80h9w9_o40k1_int8_nhwc_bias"),
    ((64, 192, 128, 4, 3, True), "n1c144h17w11_o208k1_int8_nhwc_outfloat32"),
    ((192, 16, 256, 2), "n1c272h10w21_o16k1_int8_nhwc_table"),
    ((64, 32, 128, 2, 2), "n2c48h9w9_o72k1_int8_nhwc_relu_outfloat16"),
    ((64, 16, 256, 2), "n4c16h1w1_o8k1_int8_nhwc_bias"))]
# Scaled: of several images to a warpgroup, channels that end within a step, tiles that follow one
# another and columns that stay.
SCALED = [planned(WarpgroupGemmTiling(*fields), token) for fields, token in (
    ((128, 64, 64, 2, 2), "n3c200h7w7_o136k1_float16_nhwc_bias_scaled"),
    ((64, 40, 128, 3, 2, True), "n5c72h5w9_o40k1_bfloat16_nhwc_bias_relu_residual_scaled"),
    ((64, 64, 128, 2, 2), "n3c208h7w7_o144k1_int8_nhwc_bias_residual_scaled"),
    ((192, 48, 128, 3, 2, True), "n6c80h9w9_o40k1_int8_nhwc_bias_scaled"))]


@needs_compiler
@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS + INTEGERS + SCALED, sizes), sizes, monkeypatch)


@pytest.mark.parametrize(("tile_n", "fits"), [(48, True), (72, True), (64, True), (40, False),
                                              (80, False)])
def test_tiles_share_all_columns_evenly_or_by_boxes(tile_n, fits):
    problem = parse_problem("n2c136h9w9_o144k1_float16_nhwc")
    verdict = validate(problem, WarpgroupGemmTiling(64, tile_n, 64, 3), H200, masked=True)
    assert [one.code for one in verdict.violations] == ([] if fits else ["E-BOXES"])


def test_the_search_tries_shares_that_begin_with_sectors():
    space = solve(parse_problem("n2c136h9w9_o144k1_float16_nhwc"), H200,
                  algorithm="warpgroup_gemm")
    assert {tiling.tile_n for tiling in space} == {48, 64, 128, 144, 192}


REFILLED, WEIGHTS, SPAN, SHARES = PLANS[2], PLANS[8], PLANS[1], PLANS[11]
ROWS, BYTES = INTEGERS[0], "warpgroup_gemm/bytes.hpp"
IMAGES, SCALES = SCALED[0], "warpgroup_gemm/scaled.hpp"
# Of 16 bits and of int8, whose first tiles are not all, or end before the last rows of a tile;
# parts with fewer pixels than others, or none.
AHEAD = [PLANS[1], PLANS[4], WEIGHTS, PLANS[10], INTEGERS[1], INTEGERS[3]]
# The plan, the file and its source as it is, with its fault, and what is said of it.
FAULTS = {
    "a buffer filled before it is read": (
        REFILLED, "warpgroup_gemm/copies.hpp",
        "if (refilled) wait_barrier(block.empty + turn.stage, turn.parity ^ 1);", "",
        "wait for one another"),
    "a buffer released before it is read": (
        REFILLED, "warpgroup_gemm/product.hpp",
        "      if (step > 0) {\n        wait_products<1>();", "      if (step > 0) {",
        "WRONG"),
    "products of what has not come": (
        REFILLED, "warpgroup_gemm/product.hpp",
        "      wait_barrier(full + turn.stage, turn.parity);\n", "", "came to LDS that nobody"),
    "results exchanged in another way": (
        REFILLED, "warpgroup_gemm/results.hpp",
        "(swizzled(row * swizzled_row + of_lane) ^ within % swizzled_row);",
        "row * swizzled_row + of_lane + within % swizzled_row;", "WRONG"),
    "columns of another tile": (
        SHARES, "warpgroup_gemm/results.hpp", "block.first_n / t::tile_n", "block.first_n / t::row",
        "WRONG"),
    "results that follow too soon": (
        REFILLED, "warpgroup_gemm/results.hpp",
        "        if (!by_vectors() && of_group == 0) wait_stores<0>();\n", "", "WRONG"),
    "rows of a span a channel apart": (
        SPAN, "warpgroup_gemm/results.hpp", "(row + further) * Roles::n(block.s) * bytes",
        "(row + further) * (Roles::n(block.s) + 1) * bytes", "WRONG"),
    "results not waited for": (
        REFILLED, "warpgroup_gemm/product.hpp",
        "if (!Roles::stores_sums && thread % warpgroup_threads == 0) wait_stores<0>();", "",
        "WRONG"),
    "operands across read as along": (
        WEIGHTS, "warpgroup_gemm/product.hpp", "t::across_a, t::across_b>(", "false, t::across_b>(",
        "WRONG"),
    "columns 64 on from another tile": (
        WEIGHTS, "warpgroup_gemm/product.hpp", "swizzled_tile, t::box_b * swizzled_row);",
        "swizzled_tile, swizzled_tile);", "WRONG"),
    "more bytes than come": (
        REFILLED, "warpgroup_gemm/copies.hpp",
        "rows_bytes(first_m) + (columns ? t::bytes_b : 0));",
        "rows_bytes(first_m) + t::bytes_b + 16);", "wait for one another"),
    "no zero point taken off": (
        ROWS, BYTES, "static_cast<uint32_t>(zero) *", "0u *", "WRONG"),
    "multipliers of the next column": (
        ROWS, BYTES, "(from + t::tile_n + first));", "(from + t::tile_n + first + 2));",
        "WRONG"),
    "sums of half a step's elements": (
        ROWS, BYTES, "vectors = t::step / 16;", "vectors = t::step / 32;", "WRONG"),
    "sums of one share of a column's elements": (
        ROWS, BYTES, "other < shares - 1;", "other < shares - 2;", "WRONG"),
    "values of columns read before they are there": (
        ROWS, BYTES, "    });\n    meet();\n  }", "    });\n  }", "WRONG"),
    "a row past the last": (ROWS, BYTES, "row >= rows ||", "row > rows ||",
                            "beside it changed"),
    "a vector past the last column": (ROWS, BYTES, "|| column >= columns)",
                                      "|| column > columns)", "beside it changed"),
    "rows of results closer than they lie": (
        ROWS, BYTES, "row * t::result_pitch + column *", "row * t::tile_n + column *", "WRONG"),
    "sums of the tile before": (
        REFILLED, "warpgroup_gemm/product.hpp", "t::box_a, k)), columns, step + k > 0);",
        "t::box_a, k)), columns, true);", "WRONG"),
    "scales of the row eight before": (
        IMAGES, SCALES, "lane / 4 + half * 8) / area", "lane / 4) / area", "WRONG"),
    "scales of the tile's first channels": (
        IMAGES, SCALES, "{channel + i * t::scale_row, image}", "{i * t::scale_row, image}",
        "WRONG"),
    "rows of the next step made of this one's buffer": (
        IMAGES, SCALES, "take(following, next, step", "take(following, turn, step",
        "LDS is filled again"),
    "a table that is not waited for": (
        INTEGERS[3], "warpgroup_gemm/product.hpp", "    wait_copies<0>();\n    arrive(empty",
        "    arrive(empty", "WRONG"),
    "factors of the step before": (
        SCALED[2], SCALES, "products.summed_of(step)", "products.summed_of(0)", "WRONG"),
    "factors of the image before": (
        SCALED[2], SCALES, "(image + of) * channels", "image * channels", "WRONG"),
    "bytes that count from another point": (
        SCALED[2], "support/byte_scaling.hpp", "-1024.0f - 128.0f", "-1024.0f - 127.0f", "WRONG"),
    "factors of another pair of channels": (
        SCALED[2], "support/byte_scaling.hpp", "zero), by.at[i],\n", "zero), by.at[1 - i],\n",
        "WRONG"),
}


@needs_compiler
@pytest.mark.parametrize("fault", mostly_deep(
    FAULTS, "a buffer filled before it is read", "a vector past the last column"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    require_caught(tmp_path, monkeypatch, *FAULTS[fault])


@pytest.mark.deep
@needs_compiler
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([REFILLED, WEIGHTS, IMAGES], monkeypatch)


@pytest.mark.deep
@needs_compiler
def test_the_sanitizers_find_nothing(tmp_path):
    require_silence(checked_under_sanitizers(tmp_path, [*AHEAD, *SCALED[::2]]))


@needs_compiler
@pytest.mark.parametrize(("plan", "right", "wrong"), [
    deep(AHEAD[1], "least(each, elements - static_cast<int>(before))", "each"),
    deep(AHEAD[1], "least(Roles::m(s), first_rows)", "first_rows"),
    deep(WEIGHTS, "(m + n) * parts), Roles::k(s) - first)", "(m + n) * parts), pixels_each)")],
    ids=["a share too long", "rows past the last", "pixels past those of the last part"])
def test_the_sanitizers_find_what_is_fetched_past_the_end(plan, right, wrong, tmp_path):
    done = checked_under_sanitizers(
        tmp_path, [plan], altered(tmp_path, "support/bulk_copy.hpp", right, wrong))
    assert "AddressSanitizer" in done.stderr


@pytest.mark.parametrize(("token", "code"), [
    ("n1c60h8w8_o64k1_float16_nhwc", "E-CHANNELS"), ("n1c64h8w8_o60k1_float16_nhwc", "E-CHANNELS"),
    ("n1c64h8w8_o64k1s2_float16_nhwc", "E-STRIDE"), ("n1c64h8w8_o64k1p1_float16_nhwc", "E-STRIDE"),
    ("n1c64h8w8_o64k1_float16", "E-LAYOUT"),
    ("n1c72h5w5_o64k1_int8_nhwc", "E-CHANNELS"), ("n1c64h8w8_o60k1_int8_nhwc", "E-CHANNELS"),
    ("n1c64h8w8_o264k1_int8_nhwc", "E-CHANNELS"), ("n1c64h3w3_o72k1_int8_nhwc", "E-CHANNELS"),
    ("n1c64h8w8_o64k1_nhwc", "E-DTYPE"),
    ("n1c64h8w8_o64k3_float16_nhwc", "E-KIND")])
def test_what_it_does_not_run_is_refused_by_name(token, code):
    [violation] = algorithm("warpgroup_gemm").refuses(parse_problem(token))
    assert violation.code == code


def test_it_suits_hopper_alone():
    one, problem = algorithm("warpgroup_gemm"), parse_problem("n1c64h8w8_o64k1_float16_nhwc")
    assert [name for name, device in catalog.devices().items() if one.suits(device)] == [
        "h100", "h200"]
    with pytest.raises(InfeasibleError, match="warpgroup_gemm does not suit a100; "):
        solve(problem, catalog.device("a100"), algorithm="warpgroup_gemm")
