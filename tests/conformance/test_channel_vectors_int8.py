"""Depthwise layers of int8 by channel vectors, on the emulated device and in machine code: equal to
the reference and to the exact result, and faults caught."""

import pytest
from emulated_runs import altered, reports_of, require_bit_equal
from profiles import deep, mostly_deep, share

from dscore.algorithms.channel_vectors.tiling import ChannelVectorsTiling
from dscore.api import validate
from dscore.backends.emulated import EmulatedBackend
from dscore.backends.machine_code import disassembly
from dscore.backends.machine_code.backend import Gfx906Backend
from dscore.backends.machine_code.objects import kernel_object
from dscore.backends.reference.backend import ReferenceBackend
from dscore.building.codegen import KernelSource
from dscore.building.compilers import missing_compiler
from dscore.checking.check import check_plan
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

MISSING = EmulatedBackend().missing()
MISSING_HIP = missing_compiler("hip") or disassembly.missing_objdump()
needs_host = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
needs_hip = pytest.mark.skipif(MISSING_HIP is not None, reason=str(MISSING_HIP))


def planned(token, *tiling, device="h200", **further):
    return make_plan(parse_problem(token), catalog.device(device),
                     ChannelVectorsTiling(*tiling, **further))


# Channels that are whole words and vectors, and odd ones; columns that share words and that do not;
# filter rows of one word and of several; multipliers, strides, dilation; results of floats.
PLANS = [
    planned("n2c16h7w9_o16k3p1g16_int8_nhwc_bias", 4, 2, 2, 4, 2, 2, 3),
    planned("n1c13h9w8_o13k5x3s2p2x1x0x2g13_int8_nhwc", 8, 2, 3, 3, 1, 2, ahead=True),
    planned("n1c6h9w12_o12k3x5p1d2x1g6_int8_outfloat32_nhwc_bias_relu6", 4, 3, 2, 4, 1, 3, 2),
    planned("n1c40h9w12_o40k3x4p1d1x2g40_int8_outfloat16_nhwc", 16, 2, 2, 3, 1, 3,
            device="z100sm"),
    planned("n2c3h6w7_o3k7p3g3_int8_nhwc_bias", 4, 1, 2, 4, 3, 2, device="z100sm"),
    planned("n1c32h7w8_o32k3p1g32_int8_nhwc", 16, 2, 2, 2, 1, 4, device="z100sm"),
    planned("n2c13h9w8_o13k3s2p1g13_int8_nhwc_bias_table_residual", 4, 2, 3, 3, 1, 2),
    # A tile wider than the image, whose first pixel is the image's.
    planned("n1c25h9w2_o25k5x3s3x2p0x0x0x1d2x1g25_int8_nhwc_bias_table", 8, 1, 1, 3, 1, 1, 4),
    # Rows that follow one another in the same registers.
    planned("n1c8h9w6_o8k3p1g8_int8_nhwc_bias", 4, 2, 7, 2, 2, 1, 2),
    planned("n1c16h6w9_o16k3p1g16_int8_nhwc_bias_table", 4, 4, 2, 3, 1, 3, 2),
    # Blocks that take tiles of two images, and a last one that has fewer.
    planned("n3c13h9w8_o13k3p1g13_int8_nhwc_bias", 4, 2, 2, 3, 1, 2, 2, repeat=2),
    planned("n2c16h9w8_o16k5x3s2p2g16_int8_nhwc_bias_table", 4, 3, 1, 2, 2, 2, repeat=3),
    # A table in each bank, of blocks with one tile and with several.
    planned("n2c13h9w8_o13k3s2p1g13_int8_nhwc_bias_table_residual", 4, 2, 3, 3, 1, 2, banked=True),
    planned("n3c16h9w8_o16k5x3s2p2g16_int8_nhwc_bias_table", 4, 3, 1, 2, 2, 2, repeat=3,
            banked=True),
    planned("n1c16h6w9_o16k3p1g16_int8_nhwc_bias_table", 4, 4, 2, 3, 1, 3, 2, banked=True,
            device="z100sm"),
    # Two rows that share a word: of odd columns too, of a stride, of an even number of filter rows.
    planned("n2c16h11w9_o16k5p2g16_int8_nhwc_bias", 4, 2, 4, 3, 1, 2, 3),
    planned("n2c16h11w13_o16k5s2p2g16_int8_nhwc_bias", 8, 2, 3, 2, 1, 2, repeat=2),
    planned("n1c12h9w9_o12k4x5p1x2x2x2g12_int8_nhwc", 4, 3, 3, 2, 2, 2, 2, device="z100sm"),
    planned("n1c12h7w12_o12k3x9p1x4x1x4g12_int8_nhwc_bias", 4, 3, 7, 4, 1, 2, device="z100sm"),
]


@needs_host
@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS, sizes), sizes, monkeypatch)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.token)
def test_the_reference_gives_the_exact_integers(plan):
    accuracy = check_plan(ReferenceBackend(), plan, 1)
    assert accuracy.ok, str(accuracy)
    assert accuracy.arithmetic == "exact"


# The plan, the file and its source as it is, and with its fault.
# Of 5x5 taps, two of whose rows share a word.
PAIRED = next(plan for plan in PLANS if "k5p2" in plan.token)
FAULTS = {
    "padding by 0": (
        PLANS[0], "channel_vectors/block.hpp", "(zero & 0xFF)", "(0 & 0xFF)"),
    "the taps of odd columns where those of even ones are": (
        PLANS[0], "channel_vectors/integer_walk.hpp", "<< -first * 8", "<< 0"),
    "the taps of a pair's other row": (
        PAIRED, "channel_vectors/integer_walk.hpp", "row_taps(v, f - 1, Of::whole",
        "row_taps(v, f, Of::whole"),
    "the row before last where the one before is": (
        PAIRED, "channel_vectors/integer_walk.hpp", "before[offset][q] = row[offset][q];",
        "if (i % 2 == 0) before[offset][q] = row[offset][q];"),
    "what is beside a wide tile's image left out": (
        PLANS[7], "channel_vectors/tile.hpp", "column + Columns <= width",
        "column <= width - Columns + 9"),
    "a tail lane too many": (
        PLANS[1], "channel_vectors/integer_walk.hpp", "channel + v < s.out_channels) {",
        "channel + v <= s.out_channels) {"),
    "the residual of another column": (
        PLANS[6], "channel_vectors/integer_walk.hpp", "multipliers + v, points, at)",
        "multipliers + v, points, at - c * s.out_channels)"),
    "the next row's sums begin with 0": (
        PLANS[8], "channel_vectors/integer_walk.hpp", "      begin_sums(done);\n",
        "      for (int v = 0; v < t::vector; v++) done[v] = 0;\n"),
    "the residual counted from 0": (
        PLANS[6], "support/requantised.hpp", "read.residual_zero = points[4];", ""),
    "the next entry of the table": (
        PLANS[6], "support/requantised.hpp", "entry(points.entries.number(product_of(i)))",
        "entry(points.entries.number(product_of(i)) + 1)"),
    "a table's first entry is none": (
        PLANS[9], "support/rounded_bytes.hpp",
        "return clamped_sum(integers.of(product), less, table_entries - 1);",
        "return greatest(clamped_sum(integers.of(product), less, table_entries - 1), 1);"),
    "a table's last entry is none": (
        PLANS[9], "support/rounded_bytes.hpp", "less, table_entries - 1);",
        "less, table_entries - 2);"),
    "half of a table": (
        PLANS[9], "support/requantised.hpp", "at < table_entries;", "at < table_entries / 2;"),
    "the next tile's padding left out": (
        PLANS[10], "channel_vectors/block.hpp",
        "if (there) next.tile.fill_outside(next.pixels, thread);", ";"),
    "the next tile in the same buffer": (
        PLANS[11], "channel_vectors/block.hpp", "next.unit++, next.pixels = other, next.place();",
        "next.unit++, next.place();"),
    "the next tile of the same rows": (
        PLANS[11], "channel_vectors/block.hpp", "next.unit++, next.pixels = other, next.place();",
        "next.pixels = other, next.place(), next.unit++;"),
    "no barrier between two tiles": (
        PLANS[11], "channel_vectors/block.hpp", "return false;\n    __syncthreads();",
        "return false;"),
    "half away from zero": (
        PLANS[5], "support/rounded_bytes.hpp", "__builtin_rint(product + even)",
        "std::round(product) + even"),
    "two results in the order of the other two": (
        PLANS[0], "support/integers.hpp", "selector(0, 2, 4, 6)", "selector(4, 6, 0, 2)"),
}


@needs_host
@pytest.mark.parametrize("fault", mostly_deep(FAULTS, "the next entry of the table"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    plan, name, right, wrong = FAULTS[fault]
    reports = reports_of(plan, altered(tmp_path, name, right, wrong), monkeypatch)
    assert all("right" not in text for text in reports.values()), reports


@needs_hip
@pytest.mark.deep
def test_machine_code_is_exact_and_has_dot_products():
    backend, plans = Gfx906Backend(), PLANS[4:6]
    backend.prepare(plans)
    for plan in plans:
        accuracy = check_plan(backend, plan, 0)
        assert accuracy.ok, f"{plan.name}: {accuracy}"
        kernel, source = backend.compile(plan), KernelSource(plan, backend.sizes)
        assert kernel.use.spills == 0
        assert kernel.use.registers <= plan.compiled_registers
        code = disassembly.disassemble(kernel_object(
            backend._stored[source.name].library, source.name, "gfx906"), "gfx906")
        dots = sum(one.opcode == "v_dot4_i32_i8" for one in code)
        assert dots >= plan.tiling.vector * plan.tiling.thread_h * plan.tiling.thread_w * 3


@needs_hip
@pytest.mark.deep
def test_bands_of_many_instructions_leave_no_array_in_memory():
    """In a loop over bands hipcc kept 672 bytes of a lane in scratch memory, which is refused."""
    token = "n1c1h11w1_o2k5x3s2p0x0x3x3d2x1_int8_outfloat16_nhwc_bias"
    accuracy = check_plan(Gfx906Backend(), planned(token, 8, 7, 4, 2, 1, 1, 3, device="z100sm"), 0)
    assert accuracy.ok, accuracy


@pytest.mark.parametrize(("code", "plan"), [
    ("E-WORD", planned("n1c16h7w7_o16k3p1g16_int8_nhwc", 2, 8, 2, 2, 2, 2)),
    ("E-MATRIX", planned("n1c16h7w7_o16k3p1g16_int8_nhwc", 8, 1, 2, 8, 2, 2,
                         arithmetic="matrix16"))])
def test_what_words_of_int8_do_not_fit_is_refused(code, plan):
    assert code in {one.code for one in
                    validate(plan.problem, plan.tiling, plan.device).violations}
