"""First layers of networks on the emulated device: equal to the reference and, of int8, to the
exact result; faults caught."""

import subprocess

import numpy as np
import pytest
from emulated_runs import (
    altered,
    checked_under_sanitizers,
    reports_of,
    require_bit_equal,
    require_right,
    require_silence,
    unoptimised,
)
from profiles import deep, mostly_deep, share

from dscore.algorithms.stem.tiling import StemTiling
from dscore.api import validate
from dscore.backends.emulated import EmulatedBackend
from dscore.backends.reference.backend import ReferenceBackend
from dscore.building.codegen import KernelSource, render
from dscore.building.compilers import find_compiler, missing_compiler
from dscore.building.headers import sources
from dscore.checking import bound
from dscore.checking.check import check_plan
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

MISSING, MISSING_NVCC = EmulatedBackend().missing(), missing_compiler("nvcc")
needs_host = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


def planned(token, *tiling, device="h200"):
    return make_plan(parse_problem(token), catalog.device(device), StemTiling(*tiling))


# One to four channels; rows that move by vectors of 16 bytes, 8, 4 and single elements; taps that
# fill fragments or do not, of rows that share one; strides, dilation, padding of one side; tiles
# that reach past the image; lanes that store two channels, four and eight.
FLOATS = [planned(*row) for row in (
    ("n2c3h9w16_o32k3s2p1_float16_nhwc_bias_relu6", 2, 16, 32, 32, 2),
    ("n1c3h12w40_o40k3p1_bfloat16_nhwc_residual", 4, 32, 32, 32, 2),
    ("n1c1h12w40_o8k3p1_float16_nhwc_silu", 4, 32, 8, 8, 2),
    ("n1c2h11w37_o16k5x3p1_float16_nhwc_bias", 3, 16, 16, 16, 2),
    ("n1c4h12w21_o64k3s1x3p1_float16_nhwc", 2, 16, 64, 32, 1),
    ("n2c3h9w9_o24k2x1s2_bfloat16_nhwc_hardswish", 2, 16, 24, 24, 2),
    ("n1c3h14w24_o64k7s2p3_float16_nhwc", 2, 16, 64, 16, 1),
    ("n1c3h13w24_o8k8x6s2p3d1x2_float16_nhwc", 2, 16, 8, 8, 1),
    ("n1c3h10w12_o16k5p2d2_float16_nhwc", 4, 16, 16, 16, 3),
    # Several tiles of a block, of which the last one has fewer, or rows past the image.
    ("n2c3h27w32_o32k3s2p1_float16_nhwc_bias", 3, 16, 32, 32, 2, 2),
    ("n1c4h10w18_o16k3p1_bfloat16_nhwc", 1, 32, 16, 16, 2, 4))]
BYTES = [planned(*row) for row in (
    ("n2c3h9w16_o32k3s2p1_int8_nhwc_bias", 2, 16, 32, 32, 2),
    ("n1c3h9w10_o32k3p1_int8_nhwc_bias_table_residual", 2, 16, 32, 32, 2),
    ("n1c1h12w37_o8k3p1_int8_nhwc", 3, 32, 8, 8, 2),
    ("n1c2h9w20_o40k3s3p1_int8_nhwc_bias", 2, 16, 64, 64, 1),
    ("n1c4h11w14_o24k2x4p1d2_int8_nhwc_outfloat16_bias_relu", 2, 16, 24, 24, 2),
    ("n1c2h11w14_o16k2x6s2p3_int8_nhwc_outfloat32_bias", 2, 16, 16, 16, 1),
    ("n1c3h14w24_o64k7s2p3_int8_nhwc", 2, 16, 64, 32, 1),
    ("n1c3h19w32_o32k3p1_int8_nhwc_bias", 2, 16, 32, 32, 2, 4),
    # Floats that become integers on their way, by vectors, words and single elements.
    ("n2c3h9w16_o32k3s2p1_int8_infloat16_nhwc_bias", 2, 16, 32, 32, 2),
    ("n1c3h12w9_o16k3p1_int8_infloat16_nhwc_table", 2, 16, 16, 16, 2),
    ("n1c2h11w14_o16k5p2_int8_infloat32_outfloat16_nhwc_bias", 2, 16, 16, 16, 1),
    ("n1c4h10w18_o24k3p1_int8_inbfloat16_nhwc_bias", 1, 32, 24, 24, 2, 4))]


@needs_host
@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share([*FLOATS, *BYTES], sizes), sizes, monkeypatch)


@pytest.mark.parametrize("plan", [*FLOATS, *BYTES], ids=lambda plan: plan.token)
def test_the_reference_is_right(plan):
    accuracy = check_plan(ReferenceBackend(), plan, 1)
    assert accuracy.ok, str(accuracy)


FIRST, ODD, RESIDUAL, ZERO, SEVERAL = FLOATS[0], FLOATS[3], BYTES[1], BYTES[0], FLOATS[9]
OF_FLOATS = next(plan for plan in BYTES if "infloat16" in plan.token)
KERNEL, PIXELS, LANES = "stem/kernel.hpp", "stem/pixels.hpp", "stem/lanes.hpp"
# The plan, the file and its source as it is, and with its fault.
FAULTS = {
    "padding by zero": (
        ZERO, KERNEL, "pixels.fill = static_cast<Word>(zero & 0xFF) * 0x01010101u;", ""),
    "the filters' sums forgotten": (
        ZERO, LANES, "static_cast<Sum>(zero) * sums", "0 * sums"),
    "the biases forgotten": (
        ZERO, KERNEL, ".biases[i % Columns::run]) -", ".biases[i % Columns::run] * 0) -"),
    "pixels side by side whatever the stride": (
        FIRST, LANES, "(g + half * 8) * Layer::stride_w", "(g + half * 8)"),
    "a pixel past the row stored": (
        ODD, KERNEL, "if (s.out_width % 16 != 0 && x >= s.out_width) continue;", ""),
    "rows past the image stored": (
        RESIDUAL, KERNEL, "if (s.out_height % t::tile_h != 0 && tile_top + row >= s.out_height)",
        "if (false)"),
    "the next pixel's channel among a pixel's": (
        FIRST, PIXELS, "t::exact || bytes >= 4 ? word : word & 0xFFFFu", "word"),
    "a unit that begins where the tile does": (
        FIRST, PIXELS, "column(first_column & -t::unit)", "column(first_column)"),
    "a row of the filter twice": (
        FIRST, LANES, "piece + row * Layer::dilation_h * t::row_bytes", "piece"),
    "floats that are cut off": (
        OF_FLOATS, "support/rounded_bytes.hpp", "__builtin_rint(product + even)",
        "std::floor(product + even)"),
    "floats past the range that wrap": (
        OF_FLOATS, "support/quantised_operands.hpp", "ByteRange::of(-128, 127, zero)",
        "ByteRange::of(-137, 136, zero)"),
    "the second float of a word twice": (
        OF_FLOATS, PIXELS, ">> i % 2 * 16", ">> 16"),
    "a channel past the last": (
        ZERO, LANES, "if (there(part) && first_channel + i < t::channels)", "if (there(part))"),
    "columns of filters in their own order": (
        FIRST, LANES, "column / 2 * run + fragment % group * 2",
        "column / 2 * 2 + fragment % group * 8"),
    "a tile's pixels in place of those that others still read": (
        SEVERAL, KERNEL, "lds + (tile + 1) % 2 * t::tile_bytes", "lds + tile % 2 * t::tile_bytes"),
    "the next tile multiplied before its pixels are there": (
        SEVERAL, KERNEL, "units, thread);\n      __syncthreads();", "units, thread);"),
    "the first tile's pixels again": (
        SEVERAL, KERNEL, "pixels.row += t::tile_h * Layer::stride_h;", ""),
    "filters read before they are there": (
        FIRST, KERNEL, "    wait_copies<0>();\n    __syncthreads();\n", "    wait_copies<0>();\n"),
}
# A channel beside a pixel's own meets a zero weight: it does harm where it is not finite.
INFINITE = {"the next pixel's channel among a pixel's"}


def with_infinity(plan, where):
    """Operands among which an element of x is infinite."""
    x, *others = bound.sample(plan.problem, 0)
    x[where] = np.inf
    return x, *others


def results_of(backend, plan, operands):
    out = np.zeros(plan.problem.y_shape, plan.problem.spec.out_element.numpy)
    backend.compile(plan)(*operands, out)
    return out


@needs_host
@pytest.mark.parametrize("fault", mostly_deep(
    [fault for fault in FAULTS if fault not in INFINITE], "filters read before they are there"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    plan, name, right, wrong = FAULTS[fault]
    reports = reports_of(plan, altered(tmp_path, name, right, wrong), monkeypatch)
    assert any("right" not in text for text in reports.values()), reports


@needs_host
@pytest.mark.parametrize(("name", "right", "wrong"), [
    FAULTS["the next pixel's channel among a pixel's"][1:],
    # A tap past the filter's, of which a lane reads the first one.
    deep(LANES, "return t::exact || there(part) ? *from : 0;", "return *from;")])
def test_an_infinity_that_meets_a_zero_is_caught(name, right, wrong, tmp_path):
    operands = with_infinity(FIRST, (1, 3, 5, 0))
    wanted = results_of(ReferenceBackend(), FIRST, operands)
    assert np.isinf(wanted).any() or (wanted == 6).any()
    assert not np.isnan(wanted).any()
    assert np.array_equal(results_of(EmulatedBackend(), FIRST, operands), wanted)
    faulty = results_of(unoptimised(altered(tmp_path, name, right, wrong)), FIRST, operands)
    assert np.isnan(faulty).any()


@needs_host
@pytest.mark.parametrize("plan", [FIRST, deep(ODD), deep(FLOATS[6])], ids=["3x3", "5x3", "7x7"])
def test_a_nan_reaches_the_pixels_whose_taps_it_is_under(plan):
    x, *others = bound.sample(plan.problem, 0)
    at = (0, 4, 6, plan.problem.spec.in_channels - 1)
    x[at] = np.nan
    out = results_of(EmulatedBackend(), plan, (x, *others))
    spec, (top, _, left, _) = plan.problem.spec, plan.problem.padding
    reached = np.zeros(plan.problem.y_shape[1:3], bool)
    for row, column in np.ndindex(reached.shape):
        y, x = at[1] - (row * spec.stride[0] - top), at[2] - (column * spec.stride[1] - left)
        reached[row, column] = 0 <= y < spec.kernel[0] and 0 <= x < spec.kernel[1]
    assert np.isnan(out[0][reached]).all()
    assert np.count_nonzero(np.isnan(out)) == reached.sum() * spec.out_channels


@needs_host
@pytest.mark.deep
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([FIRST, ODD, ZERO, RESIDUAL, SEVERAL], monkeypatch)


@needs_host
@pytest.mark.deep
def test_the_sanitizers_find_nothing(tmp_path):
    require_silence(checked_under_sanitizers(tmp_path, [FIRST, ODD, FLOATS[6], SEVERAL, BYTES[3]]))


@pytest.mark.skipif(MISSING_NVCC is not None, reason=str(MISSING_NVCC))
@pytest.mark.parametrize(("plan", "instruction"), [
    deep(FIRST, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
    (ZERO, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")], ids=["float16", "int8"])
def test_ptx_has_its_instructions(plan, instruction, tmp_path):
    (tmp_path / "unit.cu").write_text(render([KernelSource(plan)]))
    subprocess.run([find_compiler("nvcc").path, "-std=c++17", "-O3", "-arch=sm_90", "--ptx",
                    f"-I{sources()}", "unit.cu"], cwd=tmp_path, check=True)
    assert instruction in (tmp_path / "unit.ptx").read_text()


LAYER = "n1c3h9w9_o16k3p1_float16_nhwc"


@pytest.mark.parametrize(("code", "plan"), [
    ("E-MATRIX", planned(LAYER, 2, 16, 16, 16, 1, device="z100sm")),
    ("E-MATRIX", planned(LAYER, 2, 16, 16, 16, 1, device="gfx90a")),
    ("E-MATRIX", planned("n1c3h9w9_o16k3p1_bfloat16_nhwc", 2, 16, 16, 16, 1, device="v100")),
    ("E-TILE", planned(LAYER, 2, 16, 24, 16, 1)),
    ("E-FRAGMENT", planned(LAYER, 2, 24, 16, 16, 1)),
    ("E-FRAGMENT", planned(LAYER, 2, 16, 12, 12, 1)),
    ("E-REPEAT", planned(LAYER, 8, 32, 16, 16, 1, 2))])
def test_tilings_that_have_no_kernel_are_refused(code, plan):
    assert code in {one.code for one in
                    validate(plan.problem, plan.tiling, plan.device).violations}
