"""Rows of warpgroup_gemm that come as one span, on the emulated device: equal to the reference, and
faults caught; infinities stay in their rows; what is refused."""

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
from refusals import needs

import dscore
from dscore.algorithms.registry import algorithm
from dscore.algorithms.warpgroup_gemm.tiling import WarpgroupGemmTiling
from dscore.backends.emulated import EmulatedBackend
from dscore.core import catalog
from dscore.core.errors import InfeasibleError
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan, solve

needs_compiler = needs(EmulatedBackend())
H200 = catalog.device("h200")
SPANS, SCALES = "warpgroup_gemm/spans.hpp", "warpgroup_gemm/scaled.hpp"
BANKS = "support/banked_table.hpp"


def planned(token, *fields, **more):
    return make_plan(parse_problem(token), H200,
                     WarpgroupGemmTiling(*fields, **{"spans": True, **more}))


# Rows of odd and even multiples of 16 bytes, of less than an instruction, of a step and a bit less;
# last tiles of few rows; filters that stay and that come anew.
PLANS = [
    planned("n2c72h9w9_o40k1_float16_nhwc_bias_relu", 64, 40, 128, 3, 2, True),
    planned("n1c24h13w13_o136k1_bfloat16_nhwc_bias_hardswish_residual", 128, 64, 64, 2, 1),
    planned("n3c40h5w5_o24k1_float16_nhwc", 64, 24, 64, 3, 1),
    planned("n1c8h9w23_o16k1_bfloat16_nhwc_bias", 192, 16, 64, 2, 2, True),
    planned("n1c64h10w21_o48k1_float16_nhwc_relu6", 64, 48, 64, 2, 3, True),
    planned("n1c120h7w11_o200k1_float16_nhwc", 64, 256, 128, 2, 2, True),
    planned("input_gradient_n1c136h17w11_o120k1_float16_nhwc", 192, 64, 128, 4, 2, True),
    planned("input_gradient_n2c24h9w9_o16k1_bfloat16_nhwc", 64, 24, 64, 2, 3, True)]
# Of int8: rows of words, of half vectors and of vectors; tables, floats, part tiles of columns.
INTEGERS = [
    planned("n1c24h8w14_o144k1_int8_nhwc_bias", 64, 144, 128, 2, 2, True),
    planned("n2c40h9w9_o48k1_int8_nhwc_relu_outfloat32", 128, 48, 128, 2, 1),
    planned("n1c8h9w22_o16k1_int8_nhwc_table", 64, 16, 128, 2, 3, True),
    planned("n2c48h7w9_o40k1_int8_nhwc_bias_residual", 64, 48, 128, 3, 2, True),
    planned("n1c136h10w7_o80k1_int8_nhwc", 64, 32, 256, 2, 2, True),
    # Results of whole rows, which leave as a span.
    planned("n1c24h8w13_o96k1_int8_nhwc_bias_residual", 64, 96, 128, 2, 2, True),
    planned("n2c40h9w9_o32k1_int8_nhwc_relu_outfloat16", 64, 32, 128, 2, 2, True)]
# Scaled: warpgroups with rows of two images and of one; rows that end within an instruction's
# bytes, and that fill a step; blocks of one tile and of several, each with scales of its own;
# rows of half vectors, which have no map.
SCALED = [
    planned("n3c48h7w7_o32k1_int8_nhwc_bias_scaled", 64, 32, 128, 2, 2, True),
    planned("n2c144h9w9_o48k1_int8_nhwc_bias_residual_scaled", 128, 48, 256, 2, 1),
    planned("n4c32h8w9_o16k1_int8_nhwc_bias_scaled", 64, 16, 128, 2, 4, True),
    planned("n1c256h10w7_o80k1_int8_nhwc_table_scaled", 64, 80, 256, 3, 2, True),
    planned("n2c120h7w9_o40k1_int8_nhwc_bias_residual_scaled", 64, 48, 128, 2, 2, True),
    planned("n2c24h9w13_o16k1_int8_nhwc_bias_scaled", 128, 16, 128, 2, 1)]
# A table in each bank: brought by one warpgroup and by three, beside rows by spans and by boxes.
BANKED = [
    planned("n1c24h8w14_o144k1_int8_nhwc_bias_table", 64, 144, 128, 2, 2, True, banked=True),
    planned("n2c48h7w9_o40k1_int8_nhwc_table_residual", 192, 48, 128, 2, 1, banked=True),
    planned("n1c80h9w9_o48k1_int8_nhwc_bias_table", 128, 48, 128, 2, 1, spans=False, banked=True)]
KEPT, PAIR = PLANS[:2]
BYTES = INTEGERS[0]
LONG = planned("n4c24h9w9_o16k1_float16_nhwc", 64, 16, 64, 2, 6, True)


@needs_compiler
@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS + INTEGERS + SCALED + BANKED, sizes), sizes, monkeypatch)


READ = ("    read(words, products.lds + stage * t::stage_bytes + group * warpgroup_rows * pitch, "
        "pitch);\n    change(words, pitch);\n")
MULTIPLIED = """    order_products();
    products.multiply(sums, words, turn, 0);
    turn.pass();
    wait_products<0>();
"""
RELEASED = "    products.release(stage);\n"
REFILLED = "LDS is filled again before what was read of it is in a product"
FAULTS = {
    "buffers that nobody lets go": (
        LONG, SPANS, RELEASED, "", "wait for one another"),
    "a buffer let go before its rows are read": (
        LONG, SPANS, READ + MULTIPLIED + RELEASED, RELEASED + READ + MULTIPLIED, REFILLED),
    "a buffer let go as its rows are under way": (
        LONG, SPANS, READ + MULTIPLIED + RELEASED, READ + RELEASED + MULTIPLIED, REFILLED),
    "rows of what has not come": (
        PAIR, SPANS, "    wait_barrier(products.full + stage, turn.parity);\n", "",
        "came to LDS that nobody"),
    "rows of the warpgroup before": (
        PAIR, SPANS, "group * warpgroup_rows * pitch, pitch);", "group * pitch, pitch);",
        "WRONG"),
    "elements eight further on": (
        KEPT, SPANS, "i * bytes + lane / 16 * half", "i * bytes + lane / 16 * bytes", "WRONG"),
    "elements of the next row": (
        KEPT, SPANS, "(t::quantised ? 0 : j / 2 * half)", "0", "WRONG"),
    "words of the row eight on": (
        BYTES, SPANS, "(row + lane / 4 + j % 2 * 8) * pitch", "(row + lane / 4) * pitch", "WRONG"),
    "filters as they lie": (
        BYTES, SPANS, "t::row_of(column) * swizzled_row", "column * swizzled_row", "WRONG"),
    "sums of other filters": (
        BYTES, "warpgroup_gemm/bytes.hpp", "t::row_of(column))", "column)", "WRONG"),
    "results of the row before": (
        BYTES, "warpgroup_gemm/results.hpp", "half * 2 + j % 2];", "j % 2];", "WRONG"),
    "bytes of the next filter": (
        BYTES, SPANS, "&& k < pitch)", "&& k - j * half < pitch)", "WRONG"),
    "filters that nobody says are there": (
        BYTES, "warpgroup_gemm/product.hpp", "    arrive(empty + t::stages);\n", "",
        "wait for one another"),
    "a table of which a word is another one's": (
        BANKED[0], BANKS, "(j + thread) % vectors", "j % (vectors - 1)", "WRONG"),
    "entries of the row below": (
        BANKED[0], BANKS, "number % table_rows * table_row_bytes",
        "(number + 1) % table_rows * table_row_bytes", "WRONG"),
    "scales of the tile before": (
        SCALED[2], SCALES, "if (t::repeat > 1) ask(", "if (t::repeat > 99) ask(", "WRONG"),
    "factors of fewer rows": (
        SCALED[1], SCALES, "first - first % t::depth >= count", "first + t::depth > count",
        "WRONG"),
    "fewer bytes than come": (
        KEPT, "warpgroup_gemm/copies.hpp", "rows_bytes(first_m) + (columns",
        "rows_bytes(first_m) - 16 + (columns",
        "wait for one another"),
}


@needs_compiler
@pytest.mark.parametrize("fault", mostly_deep(FAULTS, "a buffer let go as its rows are under way"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    require_caught(tmp_path, monkeypatch, *FAULTS[fault])


@pytest.mark.deep
@needs_compiler
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([KEPT, PAIR], monkeypatch)


@pytest.mark.deep
@needs_compiler
def test_the_sanitizers_find_nothing(tmp_path):
    require_silence(checked_under_sanitizers(
        tmp_path, [KEPT, PLANS[6], *INTEGERS, *SCALED, *BANKED]))


@needs_compiler
@pytest.mark.parametrize(("plan", "name", "right", "wrong"), [
    (KEPT, "warpgroup_gemm/copies.hpp", "least(t::tile_m, Roles::m(block.s) - first_m)",
     "t::tile_m"),
    (INTEGERS[3], SPANS, "column < least(columns, t::tile_n)", "column < t::tile_n")],
    ids=["a span of rows past the last", "filters past the last"])
@pytest.mark.deep
def test_the_sanitizers_find_what_is_read_past_the_end(plan, name, right, wrong, tmp_path):
    done = checked_under_sanitizers(tmp_path, [plan], altered(tmp_path, name, right, wrong))
    assert "AddressSanitizer" in done.stderr


@needs_compiler
def test_an_infinity_stays_in_its_pixel():
    x = np.full((1, 24, 10, 10), 0.5, np.float16).transpose(0, 2, 3, 1).copy()
    x[0, 3, 4, 0] = np.inf
    w = np.ones((16, 24, 1, 1), np.float16)
    plan = planned("n1c24h10w10_o16k1_float16_nhwc", 64, 16, 64, 2, 2, True)
    y = dscore.conv(x, w, layout="nhwc", plan=plan, backend="emulated")
    finite = np.isfinite(y).all(axis=-1)
    assert not finite[0, 3, 4]
    assert finite.sum() == 99
    assert (y[finite] == 12).all()


@pytest.mark.parametrize(("token", "fields"), [
    ("n1c136h8w8_o64k1_float16_nhwc", (64, 64, 128, 2)),
    ("n1c64h8w8_o64k1_float16_nhwc_scaled", (64, 64, 64, 2)),
    ("n1c272h8w8_o64k1_int8_nhwc_scaled", (64, 64, 128, 2)),
    # More factors for a warpgroup's images than a vector of each thread: 17 images of 256 channels.
    ("n32c256h2w2_o64k1_int8_nhwc_scaled", (64, 64, 256, 2)),
    ("weight_gradient_n1c64h8w8_o64k1_float16_nhwc", (64, 64, 64, 2))])
def test_rows_that_are_no_span_are_refused_by_name(token, fields):
    with pytest.raises(InfeasibleError, match="E-SPAN"):
        dscore.plan_for(parse_problem(token), H200,
                        tiling=WarpgroupGemmTiling(*fields, spans=True))


def test_rows_of_bytes_without_a_map_come_as_spans_alone():
    problem = parse_problem("n1c24h8w8_o64k1_int8_nhwc")
    with pytest.raises(InfeasibleError, match="E-MAP"):
        dscore.plan_for(problem, H200, tiling=WarpgroupGemmTiling(64, 64, 128, 2))
    assert solve(problem, H200, algorithm="warpgroup_gemm").plan(0).tiling.spans
    for token in ("n1c24h5w5_o64k1_int8_nhwc", "n1c264h8w8_o64k1_int8_nhwc"):
        [violation] = algorithm("warpgroup_gemm").refuses(parse_problem(token))
        assert violation.code == "E-CHANNELS"
