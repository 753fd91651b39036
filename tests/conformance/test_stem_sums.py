"""Weight gradients of first layers on the emulated device: equal to the reference; faults caught;
what is infinite and not under a tap does no harm."""

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

from dscore.algorithms.stem_sums.tiling import StemSumsTiling
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
    problem = parse_problem(f"weight_gradient_{token}")
    return make_plan(problem, catalog.device(device), StemSumsTiling(*tiling))


# One to four channels; rows that move by vectors of 16 bytes, 8, 4 and single elements; an even
# number of taps in a row and an odd one, an odd number of fragments; odd strides and even ones;
# padding of one side; tiles that reach past the gradient; several slices, of which one has no tile;
# wavefronts over channels, of which some are past the last, and over pixels.
PLANS = [planned(*row) for row in (
    ("n2c3h9w16_o32k3s2p1_float16_nhwc", 2, 16, 32, 32, 2),
    ("n1c3h12w40_o40k3p1_bfloat16_nhwc", 4, 32, 32, 16, 2, 3),
    ("n1c1h12w40_o8k3p1_float16_nhwc", 4, 32, 16, 16, 2, 2),
    ("n1c2h11w37_o16k5x3p1_float16_nhwc", 3, 16, 16, 16, 2, 4),
    ("n1c4h12w21_o64k3s1x3p1_float16_nhwc", 2, 16, 64, 32, 1, 5),
    ("n2c3h9w9_o24k2x1s2_bfloat16_nhwc", 2, 16, 32, 16, 2, 3),
    ("n1c3h14w24_o64k7s2p3_float16_nhwc", 2, 16, 64, 16, 1, 2),
    ("n1c3h13w24_o8k8x6s2p3d2x1_float16_nhwc", 2, 16, 16, 16, 1),
    ("n1c3h10w12_o16k5p2_float16_nhwc", 4, 16, 16, 16, 3, 2),
    ("n1c4h16w16_o24k4s4_float16_nhwc", 1, 16, 32, 32, 1, 4))]


@needs_host
@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS, sizes), sizes, monkeypatch)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.token)
def test_the_reference_is_right(plan):
    accuracy = check_plan(ReferenceBackend(), plan, 1)
    assert accuracy.ok, str(accuracy)


EVEN, SHARED, ODD = PLANS[0], PLANS[1], PLANS[3]
UNEVEN = PLANS[8]  # of whose wavefronts one has two pieces, the others one
KERNEL = "stem_sums/kernel.hpp"
# The plan, the file and its source as it is, and with its fault.
FAULTS = {
    "the first tap at an odd pixel": (EVEN, KERNEL, "return pixels.before % 2;", "return 0;"),
    "the copy at the place of what it copies": (
        ODD, KERNEL, "(t::copied && beside ? t::copy_bytes : 0)", "0"),
    "the copy a pixel too early": (
        ODD, KERNEL, "t::copy_bytes + (p + 1) * t::pixel", "t::copy_bytes + p * t::pixel"),
    "pixels side by side whatever the stride": (
        EVEN, KERNEL, "lane % 16 * Layer::stride_w + before", "lane % 16 + before"),
    "a row of the filter twice": (
        EVEN, KERNEL, "e / t::twos * Layer::dilation_h * t::row_bytes +", "0 +"),
    "a wavefront's sums forgotten": (
        EVEN, KERNEL, "for (int wave = 1; wave < t::waves_p; wave++)",
        "for (int wave = 1; wave + 1 < t::waves_p; wave++)"),
    "slices in one place": (
        SHARED, KERNEL, "[slice * s.out_channels * Filter::taps + at]", "[at]"),
    "a tile of the next slice": (
        SHARED, KERNEL, "unit_end = least(unit + each, units(s));",
        "unit_end = least(unit + each + 1, units(s));"),
    "the next tile in place of one that is multiplied": (
        SHARED, KERNEL, "(stage ^ 1) * t::stage_bytes", "stage * t::stage_bytes"),
    "a tile multiplied before it is there": (
        UNEVEN, KERNEL, "      wait_copies<0>();\n      __syncthreads();",
        "      wait_copies<0>();"),
    "sums over pixels that are still read": (
        UNEVEN, KERNEL, "    __syncthreads();\n    put_sums();", "    put_sums();"),
    "the second tap's channels first": (
        EVEN, KERNEL, "g % 2 * 4 + of_filter", "(1 - g % 2) * 4 + of_filter"),
}


@needs_host
@pytest.mark.parametrize("fault", mostly_deep(FAULTS, "sums over pixels that are still read"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    plan, name, right, wrong = FAULTS[fault]
    reports = reports_of(plan, altered(tmp_path, name, right, wrong), monkeypatch)
    assert any("right" not in text for text in reports.values()), reports


@needs_host
@pytest.mark.deep
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([EVEN, SHARED, ODD, UNEVEN], monkeypatch)


def results_of(backend, plan, operands):
    out = np.full(plan.problem.spec.w_shape, np.nan, plan.problem.spec.element.numpy)
    backend.compile(plan)(*operands, out)
    return out


@needs_host
def test_an_infinity_under_no_gradient_does_no_harm():
    """The last column of x lies under the first tap of a pixel past the gradient, in its tile."""
    x, gradient = bound.sample(ODD.problem, 0)
    assert ODD.problem.out_width % ODD.tiling.tile_w > 0
    wanted = results_of(ReferenceBackend(), ODD, (x, gradient))
    x[:, :, -1] = np.inf
    for backend in (ReferenceBackend(), EmulatedBackend()):
        found = results_of(backend, ODD, (x, gradient))
        # Of pixels that there are it is under the other two taps alone.
        assert np.array_equal(found[..., 0], wanted[..., 0])
        assert not np.isfinite(found[..., 1:]).any()


@needs_host
def test_pixels_past_the_gradient_that_are_not_left_out_are_caught(tmp_path):
    x, gradient = bound.sample(ODD.problem, 0)
    x[:, :, -1] = np.inf
    root = altered(tmp_path, KERNEL, "b.words[0] &= mask(pixels);", "")
    assert np.isnan(results_of(unoptimised(root), ODD, (x, gradient))[..., 0]).any()


@needs_host
@pytest.mark.deep
def test_the_sanitizers_find_nothing(tmp_path):
    require_silence(checked_under_sanitizers(tmp_path, [EVEN, SHARED, UNEVEN]))


@pytest.mark.skipif(MISSING_NVCC is not None, reason=str(MISSING_NVCC))
@pytest.mark.deep
def test_ptx_has_its_instructions(tmp_path):
    (tmp_path / "unit.cu").write_text(render([KernelSource(EVEN)]))
    subprocess.run([find_compiler("nvcc").path, "-std=c++17", "-O3", "-arch=sm_90", "--ptx",
                    f"-I{sources()}", "unit.cu"], cwd=tmp_path, check=True)
    ptx = (tmp_path / "unit.ptx").read_text()
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in ptx
    assert "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16" in ptx


LAYER = "n1c3h9w9_o16k3p1_float16_nhwc"


@pytest.mark.parametrize(("code", "plan"), [
    ("E-MATRIX", planned(LAYER, 2, 16, 16, 16, 1, device="z100sm")),
    ("E-MATRIX", planned("n1c3h9w9_o16k3p1_bfloat16_nhwc", 2, 16, 16, 16, 1, device="v100")),
    ("E-TILE", planned(LAYER, 2, 16, 48, 32, 1)),
    ("E-FRAGMENT", planned(LAYER, 2, 24, 16, 16, 1)),
    ("E-FRAGMENT", planned(LAYER, 2, 16, 24, 24, 1)),
    ("E-SLICES", planned(LAYER, 9, 16, 16, 16, 1, 2)),
    ("E-TURNS", planned("n1c3h40w133_o16k3p1_float16_nhwc", 32, 128, 16, 16, 1))])
def test_tilings_that_have_no_kernel_are_refused(code, plan):
    assert code in {one.code for one in
                    validate(plan.problem, plan.tiling, plan.device).violations}
