"""Dense and grouped layers of int8 by dot products and matrix units, on the emulated device and in
machine code: equal to the reference and to the exact result, and faults caught."""

import subprocess

import pytest
from emulated_runs import altered, reports_of, require_bit_equal
from machine_plans import opcodes
from profiles import deep, mostly_deep, share

from dscore.algorithms.implicit_gemm_universal.tiling import ImplicitGemmUniversalTiling
from dscore.api import validate
from dscore.backends.emulated import EmulatedBackend
from dscore.backends.machine_code import disassembly
from dscore.backends.machine_code.backend import Gfx90aBackend, Gfx906Backend
from dscore.backends.reference.backend import ReferenceBackend
from dscore.building.codegen import KernelSource, render
from dscore.building.compilers import find_compiler, missing_compiler
from dscore.building.headers import sources
from dscore.checking.check import check_plan
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.solver import best_plan, make_plan

MISSING = EmulatedBackend().missing()
MISSING_NVCC = missing_compiler("nvcc")
MISSING_HIP = missing_compiler("hip") or disassembly.missing_objdump()
needs_host = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
needs_hip = pytest.mark.skipif(MISSING_HIP is not None, reason=str(MISSING_HIP))


def planned(token, tile, wave, slices, step, patch, cluster=1, arithmetic="plain",
            device="z100sm", lanes_c=8):
    tiling = ImplicitGemmUniversalTiling(*tile, *wave, lanes_c, slices, *step, patch, cluster,
                                         arithmetic)
    return make_plan(parse_problem(token), catalog.device(device), tiling)


def on_units(token, *tiling, cluster=1, device="h200"):
    return planned(token, *tiling, cluster, "matrix8", device)


# Channels, pixels and steps that end with a tile, a vector, both or neither; groups; dilation;
# lanes that read four channels, eight and sixteen; filters that pass whole, in pieces, one by one.
DOTS = [
    planned("n1c37h5w7_o45k3p1_int8_nhwc_bias", (32, 16), (16, 16), 1, (32, 2), 120),
    planned("n3c12h3w5_o19k3p1_int8_nhwc_bias", (32, 16), (16, 8), 2, (8, 2), 120),
    planned("n2c40h6w6_o20k3s2p1g2_int8_bias", (16, 32), (16, 32), 1, (32, 2), 200, lanes_c=4),
    planned("n1c9h11w8_o12k5s3p2_int8_outfloat16_relu", (16, 32), (16, 32), 1, (4, 1), 390),
    planned("n1c32h8w8_o16k3p2d2_int8_nhwc_outfloat32_bias", (16, 16), (16, 8), 1, (16, 1), 160),
]
MFMA = [
    on_units("n2c33h4w6_o24k3p1_int8_bias", (16, 32), (16, 16), 2, (64, 1), 120, device="gfx90a"),
    on_units("n1c3h8w9_o16k3s2_int8_nhwc", (16, 16), (16, 16), 1, (4, 2), 140, device="gfx90a"),
    on_units("n2c24h5w6_o40k3p1_int8_nhwc_bias", (32, 32), (16, 32), 1, (8, 2), 120,
             device="gfx90a"),
]
NVIDIA = [
    # Each lane its own sums: neighbouring channels by sixteen, eight, four and two.
    on_units("n1c40h5w7_o128k3p1_int8_nhwc_bias", (128, 16), (128, 16), 1, (32, 3), 120),
    on_units("n2c3h9w9_o32k3s2p1_int8_nhwc_bias", (32, 32), (32, 32), 1, (4, 1), 230),
    on_units("n1c64h6w7_o44k3p1_int8_nhwc", (48, 32), (48, 16), 1, (64, 1), 160),
    on_units("n2c24h5w9_o24k2x3p1g3_int8_nhwc_outfloat16_relu", (8, 32), (8, 32), 1, (8, 2), 160),
    # Sums that pass LDS: slices, clusters, channels first.
    on_units("n2c48h6w7_o52k3p1_int8_nhwc_bias", (32, 32), (16, 16), 2, (32, 1), 160, cluster=2),
    on_units("n2c20h6w7_o13k3p1_int8_bias", (16, 32), (8, 16), 2, (32, 4), 160, cluster=2),
    on_units("n1c6h7w8_o12k3s2_int8_outfloat32_bias", (16, 16), (8, 16), 1, (8, 1), 120),
    on_units("n1c64h4w8_o16k4x2d1x2_int8", (16, 32), (16, 32), 1, (64, 2), 120),
]


@needs_host
@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_in_every_order(sizes, monkeypatch):
    require_bit_equal(share([*DOTS, *MFMA, *NVIDIA], sizes), sizes, monkeypatch)


@pytest.mark.parametrize("plan", [*DOTS, *MFMA, *NVIDIA], ids=lambda plan: plan.token)
def test_the_reference_gives_the_exact_integers(plan):
    accuracy = check_plan(ReferenceBackend(), plan, 1)
    assert accuracy.ok, str(accuracy)
    assert accuracy.bound == 0


TILES, KERNEL = "implicit_gemm_universal/tiles.hpp", "implicit_gemm_universal/kernel.hpp"
STEM, WHOLE = NVIDIA[1], NVIDIA[2]
# The plan, the file and its source as it is, and with its fault.
FAULTS = {
    "padding by zero": (
        STEM, TILES, "fill = static_cast<uint32_t>(zero & 0xFF) * 0x01010101u;", "fill = 0;"),
    "the filters' sums forgotten": (
        DOTS[0], KERNEL, "if (zero != 0) filters.add", "if (zero > 1000) filters.add"),
    "the zero point taken off by every slice": (
        DOTS[1], KERNEL, "if (slice > 0) return;", ""),
    "a tail lane too many": (
        DOTS[0], TILES, "channel < group_in(s);", "channel / 2 * 2 < group_in(s);"),
    "sums in 16 bits": (
        NVIDIA[2], "support/integers.hpp", "  return static_cast<int>(total);",
        "  return static_cast<int16_t>(total);"),
    "half rounded up": (
        NVIDIA[4], "support/rounded_bytes.hpp", "__builtin_rint(product + even)",
        "std::floor(product + 0.5) + even"),
    "neighbouring channels of another fragment": (
        WHOLE, "implicit_gemm_universal/byte_lanes.hpp", "q * t::group + e / 2) * 4",
        "q * t::group + (t::group - 1 - e / 2)) * 4"),
    "bytes of a filter in the order of memory": (
        WHOLE, TILES, "return turned_bytes<piece, taps_each>(filters);", "return filters;"),
}


@needs_host
@pytest.mark.parametrize("fault", mostly_deep(FAULTS, "the zero point taken off by every slice"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    plan, name, right, wrong = FAULTS[fault]
    reports = reports_of(plan, altered(tmp_path, name, right, wrong), monkeypatch)
    assert all("right" not in text for text in reports.values()), reports


DOT = "v_dot4_i32_i8"


@needs_hip
@pytest.mark.parametrize(("backend", "plans", "opcode"), [
    (Gfx906Backend(), DOTS, DOT),
    (Gfx90aBackend(), MFMA, "v_mfma_i32_16x16x16i8")])
@pytest.mark.deep
def test_machine_code_is_exact_and_has_its_instruction(backend, plans, opcode):
    backend.prepare(plans)
    for plan in plans:
        accuracy = check_plan(backend, plan, 0)
        assert accuracy.ok, f"{plan.name}: {accuracy}"
        assert backend.compile(plan).use.spills == 0
        # Of gfx906 a word of each product of a lane, of gfx90a two instructions for a fragment.
        products = plan.tiling.wave_c * plan.tiling.wave_p // (64 if opcode == DOT else 128)
        assert opcodes(backend, plan).count(opcode) >= products, plan.name


@pytest.mark.skipif(MISSING_NVCC is not None, reason=str(MISSING_NVCC))
@pytest.mark.parametrize("plan", [STEM, WHOLE], ids=["fours", "sixteens"])
@pytest.mark.deep
def test_ptx_has_its_instructions(plan, tmp_path):
    (tmp_path / "unit.cu").write_text(render([KernelSource(plan)]))
    subprocess.run([find_compiler("nvcc").path, "-std=c++17", "-O3", "-arch=sm_90", "--ptx",
                    f"-I{sources()}", "unit.cu"], cwd=tmp_path, check=True)
    text = (tmp_path / "unit.ptx").read_text()
    assert "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32" in text
    assert ("ldmatrix" in text) == (plan is WHOLE)
    assert "dp4a.s32.s32" in text  # sums of filters


@pytest.mark.parametrize(("code", "plan"), [
    ("E-SPLIT", planned("n1c64h8w8_o64k3p1_int8_nhwc", (32, 32), (16, 32), 1, (32, 2), 200,
                        arithmetic="matrix16", device="h200")),
    ("E-SPLIT", on_units("n1c64h8w8_o64k3p1_float16_nhwc", (32, 32), (16, 32), 1, (32, 2), 200)),
    ("E-SPLIT", on_units("n1c64h8w8_o64k3p1_nhwc", (32, 32), (16, 32), 1, (32, 2), 200)),
    ("E-SPLIT", on_units("n1c64h8w8_o64k3p1_int8_nhwc", (32, 32), (16, 32), 1, (32, 2), 200,
                         device="z100sm")),
    ("E-SLICE", on_units("n1c64h8w8_o64k3p1_int8_nhwc", (32, 32), (16, 32), 2, (12, 2), 200)),
    ("E-VECTOR", on_units("n1c64h8w8_o64k3p1_int8_nhwc", (8, 32), (8, 32), 1, (32, 2), 200))])
def test_what_no_matrix_units_are_for_is_refused(code, plan):
    assert code in {one.code for one in
                    validate(plan.problem, plan.tiling, plan.device).violations}


@pytest.mark.parametrize("layout", ["", "_nhwc"])
@pytest.mark.parametrize(("device", "arithmetic"), [("h200", "matrix8"), ("z100sm", "plain")])
def test_a_networks_dense_layers_are_planned_so(layout, device, arithmetic):
    for layer in ("n1c3h224w224_o32k3s2p1", "n32c64h56w56_o64k3p1", "n8c512h7w7_o512k3p1"):
        problem, name = parse_problem(f"{layer}_int8{layout}"), "implicit_gemm_universal"
        first = "stem" if (device, layout, layer[:4]) == ("h200", "_nhwc", "n1c3") else name
        assert best_plan(problem, catalog.device(device)).tiling.algorithm == first
        plan = best_plan(problem, catalog.device(device), among=(name,))
        assert plan.tiling.arithmetic == arithmetic
