"""Pointwise layers of int8 by dot products and matrix units, on the emulated device and in machine
code: equal to the reference and to the exact result, and faults caught."""

import subprocess

import pytest
from emulated_runs import altered, reports_of, require_bit_equal
from machine_plans import opcodes
from profiles import deep, mostly_deep, share, some

from dscore.algorithms.gemm_universal.tiling import GemmUniversalTiling
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
from dscore.solving.solver import make_plan

MISSING = EmulatedBackend().missing()
MISSING_NVCC = missing_compiler("nvcc")
MISSING_HIP = missing_compiler("hip") or disassembly.missing_objdump()
needs_host = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
needs_hip = pytest.mark.skipif(MISSING_HIP is not None, reason=str(MISSING_HIP))


def planned(token, tile, wave, slices, step, shared=(), arithmetic="plain", device="z100sm",
            lanes_m=8):
    tiling = GemmUniversalTiling(*tile, *wave, lanes_m, slices, *step, *shared,
                                 arithmetic=arithmetic)
    return make_plan(parse_problem(token), catalog.device(device), tiling)


def on_units(token, *tiling, device="h200"):
    return planned(token, *tiling, arithmetic="matrix8", device=device)


# Rows and columns that end with a tile, a vector, both or neither; strides, padding, odd channels.
DOTS = [
    planned("n1c37h5w7_o45k1_int8_nhwc_bias", (32, 32), (16, 32), 1, (32, 2)),
    planned("n2c48h6w7_o32k1s2p1_int8_nhwc_bias", (16, 32), (8, 16), 2, (32, 2), lanes_m=4),
    planned("n19c70h1w1_o36k1_int8_outfloat16", (16, 16), (8, 16), 1, (48, 1)),
    planned("n2c40h4w8_o33k1_int8_bias", (32, 64), (16, 64), 1, (32, 2)),
    planned("n3c20h5w5_o21k1s2p1_int8_outfloat32_bias_relu", (16, 64), (16, 32), 3, (48, 1)),
    planned("n2c37h5w7_o45k1p1_int8_nhwc_bias_scaled_table_residual", (32, 32), (16, 32), 1,
            (32, 2)),
    planned("n3c40h4w8_o33k1_int8_bias_scaled_residual", (32, 64), (16, 64), 1, (32, 1)),
]
MFMA = [
    on_units("n1c72h5w7_o44k1_int8_nhwc_bias", (32, 32), (16, 32), 2, (64, 2), device="gfx90a"),
    on_units("n2c33h6w6_o20k1s2p1_int8_bias", (16, 64), (16, 64), 1, (64, 1), device="gfx90a"),
]
NVIDIA = [
    # Fragments whose columns are neighbours by eight, four, two and one.
    on_units("n2c80h3w5_o64k1_int8_nhwc_bias", (32, 64), (16, 64), 1, (64, 3)),
    on_units("n1c45h5w7_o40k1_int8_nhwc", (32, 32), (16, 32), 1, (32, 4), (2,)),
    on_units("n2c64h6w7_o24k1s2p1_int8_nhwc_outfloat32_bias_relu6", (32, 48), (16, 48), 1, (64, 2)),
    on_units("n23c66h1w1_o30k1_int8", (16, 16), (16, 8), 2, (128, 3)),
    # Several tiles of rows by one block; results that pass LDS.
    on_units("n2c32h6w7_o32k1s2p1_int8_nhwc", (32, 32), (16, 32), 1, (32, 2), (1, 1, 2, True)),
    # Channels first: vectors of pixels, single ones of odd planes and strides.
    on_units("n2c72h4w12_o36k1_int8_bias", (32, 64), (16, 32), 1, (32, 3), (1, 1, 1, True)),
    on_units("n3c33h5w5_o21k1s2p1_int8_outfloat16_bias", (16, 32), (16, 16), 2, (64, 4), (3,)),
    # With what lies beside: a scale by image and channel, a residual, a table.
    on_units("n2c80h3w5_o64k1_int8_nhwc_bias_scaled_residual", (32, 64), (16, 64), 1, (64, 3)),
    on_units("n3c32h6w7_o32k1p1_int8_nhwc_scaled_table", (32, 32), (16, 32), 1, (32, 2),
             (1, 1, 2, True)),
    on_units("n2c72h4w12_o36k1_int8_scaled_table_residual", (32, 64), (16, 32), 1, (32, 3)),
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


@needs_host
def test_scales_begin_where_vectors_of_them_do():
    """Eight bytes of x at once take 16 bytes of scales; results leave one by one."""
    plan = planned("n2c40h5w7_o45k1_int8_nhwc_scaled", (32, 32), (16, 32), 1, (32, 2))
    kernel = EmulatedBackend().compile(plan)
    assert kernel._loaded.alignment == 16
    assert check_plan(EmulatedBackend(), plan, 0).ok


PADDED, BESIDE, FIRST = DOTS[1], DOTS[5], DOTS[6]
# The plan, the file and its source as it is, and with its fault.
FAULTS = {
    "the filters' sums forgotten": (
        DOTS[0], "gemm_universal/product.hpp", "if (zero != 0 && slice == 0) take_off_zero();",
        "if (zero > 1000) take_off_zero();"),
    "a tail lane too many": (
        DOTS[0], "gemm_universal/operands.hpp", "column < columns;", "column <= columns;"),
    "the zero point taken off pixels of padding": (
        PADDED, "gemm_universal/kernel.hpp",
        "return !Tiling::gathered || Places::pixel(s, last ? row : column) >= 0;", "return true;"),
    "the zero point taken off by every slice": (
        PADDED, "gemm_universal/product.hpp", "if (zero != 0 && slice == 0)", "if (zero != 0)"),
    "sums in 16 bits": (
        NVIDIA[0], "support/integers.hpp", "  return static_cast<int>(total);",
        "  return static_cast<int16_t>(total);"),
    "the scale of another image": (
        BESIDE, "gemm_universal/kernel.hpp", "scaling.scales + pixel / area * s.in_channels",
        "scaling.scales"),
    "a scale for pixels of padding": (
        BESIDE, "gemm_universal/operands.hpp", """      if (!there) return;
      write_vector(lds + at, change""", "      write_vector(lds + at, change"),
    "the scaled integers counted from 0": (
        BESIDE, "support/byte_scaling.hpp", "nearest_within(product, low, high) + to",
        "nearest_within(product, low, high)"),
    "a factor that is not rounded to float16": (
        BESIDE, "support/byte_scaling.hpp", "half_of(factors(scale, scale), 0)",
        "static_cast<float>(scale) * multiplier"),
    "the residual added after the bounds": (
        FIRST, "support/requantised.hpp", "ByteRange::of(points[2], points[3],",
        "ByteRange::of(points[2] - 9, points[3],"),
    "the residual of another pixel": (
        FIRST, "gemm_universal/kernel.hpp", "(values, of_row, points, at)",
        "(values, of_row, points, at ^ 1)"),
    "bytes turned the wrong way": (
        DOTS[3], "support/integers.hpp", "rows[2] = permuted(c, d, low_halves)",
        "rows[2] = permuted(d, c, low_halves)"),
}


@needs_host
@pytest.mark.parametrize("fault", mostly_deep(FAULTS, "a tail lane too many"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    plan, name, right, wrong = FAULTS[fault]
    reports = reports_of(plan, altered(tmp_path, name, right, wrong), monkeypatch)
    assert all("WRONG" in text for text in reports.values()), reports


@needs_hip
@pytest.mark.parametrize(("backend", "plans", "opcode"), [
    (Gfx906Backend(), [*DOTS[::3], PADDED, BESIDE], "v_dot4_i32_i8"),
    (Gfx90aBackend(), MFMA, "v_mfma_i32_16x16x16i8")])
@pytest.mark.deep
def test_machine_code_is_exact_and_has_its_instruction(backend, plans, opcode):
    plans = some(plans)
    backend.prepare(plans)
    for plan in plans:
        accuracy = check_plan(backend, plan, 0)
        assert accuracy.ok, f"{plan.name}: {accuracy}"
        assert backend.compile(plan).use.spills == 0
        assert opcodes(backend, plan).count(opcode) >= 8, plan.name


@pytest.mark.skipif(MISSING_NVCC is not None, reason=str(MISSING_NVCC))
@pytest.mark.parametrize(("plan", "instructions"), [
    (NVIDIA[0], ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "dp4a.s32.s32")),
    (NVIDIA[5], ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "x4.trans", "prmt"))])
@pytest.mark.deep
def test_ptx_has_its_instructions(plan, instructions, tmp_path):
    (tmp_path / "unit.cu").write_text(render([KernelSource(plan)]))
    subprocess.run([find_compiler("nvcc").path, "-std=c++17", "-O3", "-arch=sm_90", "--ptx",
                    f"-I{sources()}", "unit.cu"], cwd=tmp_path, check=True)
    text = (tmp_path / "unit.ptx").read_text()
    assert all(instruction in text for instruction in instructions)


@pytest.mark.parametrize(("code", "plan"), [
    ("E-SPLIT", planned("n1c64h8w8_o64k1_int8_nhwc", (32, 32), (16, 32), 1, (32, 2),
                        arithmetic="matrix16", device="h200")),
    ("E-SPLIT", on_units("n1c64h8w8_o64k1_float16_nhwc", (32, 32), (16, 32), 1, (32, 2))),
    ("E-SPLIT", on_units("n1c64h8w8_o64k1_int8_nhwc", (32, 32), (16, 32), 1, (32, 2),
                         device="z100sm")),
    ("E-SLICE", on_units("n1c64h8w8_o64k1_int8_nhwc", (32, 32), (16, 32), 1, (48, 2))),
    ("E-FRAGMENT", on_units("n1c64h8w8_o64k1_int8", (32, 48), (16, 24), 1, (32, 2)))])
def test_what_no_matrix_units_are_for_is_refused(code, plan):
    assert code in {one.code for one in
                    validate(plan.problem, plan.tiling, plan.device).violations}
