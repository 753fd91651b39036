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

import dscore
from dscore.algorithms.warpgroup_gemm.tiling import WarpgroupGemmTiling
from dscore.backends.emulated import EmulatedBackend
from dscore.core import catalog
from dscore.core.errors import InfeasibleError
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

MISSING = EmulatedBackend().missing()
needs_compiler = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
H200 = catalog.device("h200")
SPANS = "warpgroup_gemm/spans.hpp"


def planned(token, *fields):
    return make_plan(parse_problem(token), H200, WarpgroupGemmTiling(*fields, spans=True))


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
KEPT, PAIR = PLANS[:2]
LONG = planned("n4c24h9w9_o16k1_float16_nhwc", 64, 16, 64, 2, 6, True)


@needs_compiler
@pytest.mark.parametrize("sizes", ["any", "fixed"])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(PLANS[sizes == "fixed"::2], sizes, monkeypatch)


READ = ("    read(words, products.lds + stage * t::stage_bytes + group * warpgroup_rows * pitch, "
        "pitch);")
FAULTS = {
    "buffers that nobody lets go": (
        LONG, SPANS, "    products.release(stage);\n", "", "wait for one another"),
    "a buffer let go before its rows are read": (
        LONG, SPANS, f"{READ}\n    products.release(stage);",
        f"    products.release(stage);\n{READ}", "WRONG"),
    "rows of what has not come": (
        PAIR, SPANS, "    wait_barrier(products.full + stage, turn.parity);\n", "",
        "boxes of tensors came"),
    "rows of the warpgroup before": (
        PAIR, SPANS, "group * warpgroup_rows * pitch, pitch);", "group * pitch, pitch);",
        "WRONG"),
    "elements eight further on": (
        KEPT, SPANS, "i * bytes + lane / 16 * half", "i * bytes + lane / 16 * bytes", "WRONG"),
    "elements of the next row": (
        KEPT, SPANS, "if (i * bytes + j / 2 * half >= pitch) words[i][j] = 0;", "{}", "WRONG"),
    "fewer bytes than come": (
        KEPT, "warpgroup_gemm/product.hpp", "(t::spans ? span :", "(t::spans ? span - 16 :",
        "wait for one another"),
}


@needs_compiler
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    require_caught(tmp_path, monkeypatch, *FAULTS[fault])


@needs_compiler
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([KEPT, PAIR], monkeypatch)


@needs_compiler
def test_the_sanitizers_find_nothing_but_a_span_too_long(tmp_path):
    require_silence(checked_under_sanitizers(tmp_path, [KEPT, PLANS[6]]))
    done = checked_under_sanitizers(tmp_path, [KEPT], altered(
        tmp_path, "warpgroup_gemm/product.hpp", "least(t::tile_m, Roles::m(s) - first_m)",
        "t::tile_m"))
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
    ("n1c64h8w8_o64k1_int8_nhwc", (64, 64, 128, 2)),
    ("weight_gradient_n1c64h8w8_o64k1_float16_nhwc", (64, 64, 64, 2))])
def test_rows_that_are_no_span_are_refused_by_name(token, fields):
    with pytest.raises(InfeasibleError, match="E-SPAN"):
        dscore.plan_for(parse_problem(token), H200,
                        tiling=WarpgroupGemmTiling(*fields, spans=True))
