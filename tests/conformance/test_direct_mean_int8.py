"""Means of int8 images on the emulated device and in machine code: equal to the reference and to
the exact result, long sums, and faults caught."""

import numpy as np
import pytest
from emulated_runs import (
    checked_under_sanitizers,
    require_bit_equal,
    require_caught,
    require_right,
    require_silence,
)
from integer_oracle import means
from profiles import deep, mostly_deep, share, some

import dscore
from dscore.algorithms.direct import DirectTiling
from dscore.algorithms.direct.mean import vector_of
from dscore.backends.emulated import EmulatedBackend
from dscore.backends.machine_code import disassembly
from dscore.backends.machine_code.backend import Gfx906Backend
from dscore.backends.machine_code.objects import kernel_object
from dscore.backends.reference.backend import ReferenceBackend
from dscore.building.codegen import KernelSource
from dscore.building.compilers import missing_compiler
from dscore.checking import bound
from dscore.checking.check import check_kernel, check_plan
from dscore.core import catalog
from dscore.core.errors import InfeasibleError
from dscore.core.token import parse_problem, problem_token
from dscore.ops import compulsory_bytes, operands_of
from dscore.ops.mean import MOST_PIXELS
from dscore.solving.solver import make_plan

MISSING = EmulatedBackend().missing()
MISSING_HIP = missing_compiler("hip") or disassembly.missing_objdump()
needs_host = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
needs_hip = pytest.mark.skipif(MISSING_HIP is not None, reason=str(MISSING_HIP))


def planned(token, *tiling, device="h200"):
    return make_plan(parse_problem(f"mean_{token}"), catalog.device(device), DirectTiling(*tiling))


# Vectors of 16, 8 and 4 bytes, and single ones; lanes that share columns, as many as a vector has
# elements, more and fewer, or none; a wavefront of 64; clusters; one pixel, blocks without pixels,
# several rounds of loads, pixels and channels left over; planes of each width.
PLANS = [
    planned("n2c32h40w31_o32k1_int8_outfloat32_nhwc", 64, 2, 2),
    planned("n1c48h61w67_o48k1_int8_outfloat16_nhwc", 128, 1, 8),
    planned("n3c13h9w11_o13k1_int8_outfloat32_nhwc", 64, 4, 3),
    planned("n2c72h9w11_o72k1_int8_outfloat16_nhwc", 32, 8, 4),
    planned("n1c36h20w20_o36k1_int8_outfloat32_nhwc", 64, 16),
    planned("n2c272h5w5_o272k1_int8_outfloat32_nhwc", 32, 32, 4),
    planned("n2c24h20w20_o24k1_int8_outfloat32_nhwc", 96, 6, 1),
    planned("n2c40h1w1_o40k1_int8_outfloat32_nhwc", 32, 2),
    planned("n2c48h9w9_o48k1_int8_outfloat16_nhwc", 128, 2, device="z100sm"),
    planned("n1c33h30w30_o33k1_int8_outfloat32_nhwc", 64, 1, device="z100sm"),
    planned("n2c5h20w20_o5k1_int8_outfloat32", 64, 2),
    planned("n1c3h6w4_o3k1_int8_outfloat16", 64, 4),
    planned("n2c4h14w14_o4k1_int8_outfloat32", 32, 1),
    planned("n2c9h5w5_o9k1_int8_outfloat16", 64, 8, device="z100sm"),
    planned("n1c7h1w1_o7k1_int8_outfloat32", 64, 1, device="z100sm")]
MADE = [plan for plan in PLANS if plan.device.name == "z100sm"]


@needs_host
@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS, sizes), sizes, monkeypatch)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.token)
def test_the_reference_gives_the_exact_numbers(plan):
    accuracy = check_plan(ReferenceBackend(), plan, 1)
    assert accuracy.ok, str(accuracy)
    assert accuracy.arithmetic == "exact"


@needs_hip
@pytest.mark.deep
def test_machine_code_is_exact_and_adds_words():
    """A word of planes is one product of four; of channels eight words are four."""
    backend = Gfx906Backend()
    plans = some(MADE)
    backend.prepare(plans)
    for plan in plans:
        accuracy = check_plan(backend, plan, 1)
        assert accuracy.ok, f"{plan.name}: {accuracy}"
        kernel, source = backend.compile(plan), KernelSource(plan, backend.sizes)
        assert kernel.use.spills == 0
        assert kernel.use.registers <= plan.compiled_registers
        code = disassembly.disassemble(kernel_object(
            backend._stored[source.name].library, source.name, "gfx906"), "gfx906")
        dots = sum(one.opcode == "v_dot4_i32_i8" for one in code)
        assert dots >= vector_of(plan.problem) // 4


@needs_hip
@pytest.mark.parametrize("layout", ["", "_nhwc"])
@pytest.mark.deep
def test_lanes_hand_over_all_bits_of_an_integer(layout):
    """Of sums past 2^24 a float has the even ones alone."""
    channels = 16 if layout else 4
    plan = planned(f"n1c{channels}h604w600_o{channels}k1_int8_outfloat32{layout}", 64, 1,
                   device="z100sm")
    x = np.random.default_rng(0).integers(126, 128, plan.problem.x_shape, np.int8)
    inputs = x, np.float32([1]), np.int32([127])
    assert check_kernel(plan, Gfx906Backend().compile(plan), *inputs).ok


# Sums past 16 bits: of one thread, of one wavefront, of the whole block.
LONG = [planned("n1c32h100w100_o32k1_int8_outfloat32_nhwc", 64, 2),
        planned("n1c16h300w1_o16k1_int8_outfloat16_nhwc", 32, 32),
        planned("n1c8h120w100_o8k1_int8_outfloat32", 32, 1)]


@needs_host
@pytest.mark.parametrize("value", [-128, 127])
@pytest.mark.parametrize("plan", [*map(deep, LONG[:2]), LONG[2]], ids=lambda plan: plan.token)
def test_long_sums_of_the_least_and_the_greatest(plan, value):
    x = np.full(plan.problem.x_shape, value, np.int8)
    pixels = plan.problem.height * plan.problem.width
    for zero in (-value - 1, value):
        inputs = x, np.float32([0.25 / pixels]), np.int32([zero])
        assert np.array_equal(bound.expected(plan.problem, *inputs).y,
                              means(plan.problem, *inputs))
        for backend in (ReferenceBackend(), EmulatedBackend()):
            assert check_kernel(plan, backend.compile(plan), *inputs).ok


SHORT, FEW, COPIES = PLANS[0], PLANS[3], PLANS[1]
KERNEL, SUMS = "direct/mean.hpp", "support/mean_sums.hpp"
# The plan, the file, its source as it is, and with its fault.
FAULTS = {
    "sums of 16 bits in a thread": (
        LONG[0], SUMS, "= dot4(rows[k], times, sums[4 * i + k]);",
        "= static_cast<int16_t>(dot4(rows[k], times, sums[4 * i + k]));"),
    "sums of 16 bits of planes": (
        LONG[2], SUMS, "sum = add_bytes(read.at[i], sum);",
        "sum = static_cast<int16_t>(add_bytes(read.at[i], sum));"),
    "the zero point left out": (SHORT, SUMS, "sum - pixels * zero", "sum"),
    "the zero point once": (SHORT, SUMS, "sum - pixels * zero", "sum - zero"),
    "a pixel too many": (SHORT, KERNEL, "there && pixel < area(s)", "there && pixel <= area(s)"),
    "a vector of a plane too many": (
        PLANS[12], KERNEL, "at < count && first + c", "at <= count && first + c"),
    "a carry that counts once": (SHORT, SUMS, "0x04020101u", "0x04010101u"),
    "bits that two words have left out": (SHORT, SUMS, "a & b | a & c | b & c", "a & b | a & c"),
    "another lane's share of the sums": (SHORT, SUMS, "(upper ? half : 0)", "(upper ? 0 : half)"),
    "a sum kept that was handed over": (
        SHORT, SUMS, "(upper ? high : low) +", "(upper ? low : high) +"),
    "lanes that are not joined": (
        COPIES, SUMS, "sums[0] += DSCORE_SHFL_XOR(sums[0], By);", ""),
    "the multiplier rounded to the result's type": (
        COPIES, SUMS, "pixels * zero), multiplier)",
        "pixels * zero), static_cast<float>(float16(multiplier)))"),
}


@needs_host
@pytest.mark.parametrize("fault", mostly_deep(FAULTS, "sums of 16 bits of planes"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    require_caught(tmp_path, monkeypatch, *FAULTS[fault], "WRONG")


@needs_host
@pytest.mark.deep
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([SHORT, FEW, COPIES, LONG[0], LONG[2]], monkeypatch)


@needs_host
@pytest.mark.deep
def test_the_sanitizers_find_nothing(tmp_path):
    plan = planned("n2c40h23w17_o40k1_int8_outfloat16_nhwc", 64, 2, 4)
    require_silence(checked_under_sanitizers(tmp_path, [plan]))


def test_operands_and_their_bytes():
    problem = parse_problem("mean_n2c8h5w5_o8k1_int8_outfloat16_nhwc")
    assert problem_token(problem) == "mean_n2c8h5w5_o8k1_int8_outfloat16_nhwc"
    assert [(one.name, one.element.name, one.shape) for one in operands_of(problem)] == [
        ("x", "int8", (2, 5, 5, 8)), ("multiplier", "float32", (1,)),
        ("zero_point", "int32", (1,)), ("out", "float16", (2, 8))]
    assert compulsory_bytes(problem) == 400 + 4 + 4 + 32


@pytest.mark.parametrize(("token", "tiling", "lds_bytes"), [
    ("n32c32h112w112", DirectTiling(512, 2, 4), 2048),
    ("n32c144h56w56", DirectTiling(512, 8, 2), 8192),
    ("n32c72h28w28", DirectTiling(512, 8, 2), 8192),
    ("n32c1152h7w7", DirectTiling(64, 8), 1024),
    ("n1c1152h7w7", DirectTiling(32, 2), 128)])
def test_tilings_of_networks(token, tiling, lds_bytes):
    channels = token.split("c")[1].split("h")[0]
    plan = dscore.plan_for(f"mean_{token}_o{channels}k1_int8_outfloat32_nhwc", "h100")
    assert (plan.tiling, plan.launch.lds_bytes) == (tiling, lds_bytes)


def test_what_there_is_no_arithmetic_for_is_refused():
    with pytest.raises(InfeasibleError, match="layer of mean"):
        dscore.plan_for("mean_n1c4h5w5_o4k1_int8", "h100")
    assert MOST_PIXELS * 255 < 2**31 <= (MOST_PIXELS + 1) * 255
    fits = parse_problem(f"mean_n1c1h1w{MOST_PIXELS}_o1k1_int8_outfloat32")
    assert dscore.plan_for(fits, "h100").tiling.algorithm == "direct"
    with pytest.raises(InfeasibleError, match=r"8,421,505.*8,421,504, whose sum an int32 holds"):
        dscore.plan_for(f"mean_n1c1h1w{MOST_PIXELS + 1}_o1k1_int8_outfloat32", "h100")
