"""Depthwise layers of int8 in NCHW by rows of words, on the emulated device and in machine code of
gfx906: equal to the reference and to the exact result, and faults caught."""

import pytest
from emulated_runs import (
    altered,
    checked_under_sanitizers,
    reports_of,
    require_bit_equal,
    require_silence,
)
from machine_plans import opcodes
from profiles import deep, mostly_deep, some

from dscore.algorithms.row_reuse.tiling import RowReuseTiling
from dscore.algorithms.row_reuse.words import words_of
from dscore.api import validate
from dscore.backends.emulated import EmulatedBackend
from dscore.backends.machine_code import disassembly
from dscore.backends.machine_code.backend import Gfx906Backend
from dscore.backends.reference.backend import ReferenceBackend
from dscore.building.compilers import missing_compiler
from dscore.checking.check import check_plan
from dscore.core import catalog
from dscore.core.errors import SpecError
from dscore.core.token import parse_problem
from dscore.solving.solver import best_plan, make_plan

MISSING = EmulatedBackend().missing()
MISSING_HIP = missing_compiler("hip") or disassembly.missing_objdump()
needs_host = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
needs_hip = pytest.mark.skipif(MISSING_HIP is not None, reason=str(MISSING_HIP))


def planned(token, *tiling, device="h200", **further):
    return make_plan(parse_problem(token), catalog.device(device),
                     RowReuseTiling(*tiling, **further))


# Rows that begin with a word, and anywhere; taps once, twice and four times; strides, dilation,
# multipliers, padding past the kernel; images that end amid a word; results of floats.
PLANS = [
    planned("n2c5h9w28_o5k3p1g5_int8_bias", 4, 4, 2, 8, 2, "registers"),
    planned("n2c5h4w56_o5k3p1g5_int8_bias", 4, 8, 1, 7, 2, "lds", ahead=True),
    planned("n2c5h7w7_o5k3p1g5_int8_bias", 3, 7, 3, 1, 4, "both"),
    planned("n2c3h9w13_o6k5s2p2g3_int8_outfloat16_relu", 2, 2, 2, 4, 1, "registers"),
    planned("n1c3h14w14_o3k7p3g3_int8", 7, 14, 2, 1, 2, "lds"),
    planned("n1c4h11w10_o4k3x2s1x3p2d2x3g4_int8_outfloat32_bias", 3, 3, 2, 4, 3, "registers",
            device="z100sm"),
    planned("n1c3h9w12_o3k1x4p1g3_int8", 4, 4, 2, 3, 2, "registers", device="z100sm"),
    planned("n2c9h7w7_o9k7p3g9_int8_bias", 7, 1, 1, 7, 9, "both", device="z100sm"),
    planned("n2c9h14w14_o9k3p1g9_int8_bias", 4, 7, 2, 2, 1, "lds", device="z100sm"),
    planned("n1c5h8w20_o10k3x1s2p4g5_int8", 2, 5, 4, 7, 3, "lds", device="z100sm")]


@needs_host
@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_in_every_order(sizes, monkeypatch):
    plans = PLANS if sizes == "fixed" else PLANS[::2]
    require_bit_equal(some(plans), sizes, monkeypatch)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.token)
def test_the_reference_gives_the_exact_integers(plan):
    accuracy = check_plan(ReferenceBackend(), plan, 1)
    assert accuracy.ok, str(accuracy)
    assert accuracy.bound == 0


WALK = "row_reuse/integer_walk.hpp"
# The plan, the file and its source as it is, and with its fault.
FAULTS = {
    "padding by zero": (
        PLANS[0], WALK, "(fill & ~inside_row[word])", "0"),
    "rows outside of the image by zero": (
        PLANS[2], WALK, "row[word] = fill;", "row[word] = 0;"),
    "the filter's sum forgotten": (
        PLANS[8], WALK, "static_cast<Word>(Results::zero_of(args)) * static_cast<Word>(sum)", "0"),
    "a tail column too many": (
        PLANS[3], WALK, "left >= 4) return word_of(x + at);",
        "left >= 4) return word_of(x + at);\n      return 0;"),
    "a lane too many": (
        PLANS[0], WALK, "(inside_w || out_column + c < width)",
        "(inside_w || out_column + c <= width)"),
    "sums in 16 bits": (
        PLANS[7], "support/integers.hpp", "  return static_cast<int>(total);",
        "  return static_cast<int16_t>(total);"),
    "half rounded up": (
        PLANS[4], "support/rounded_bytes.hpp", "__builtin_rint(product + even)",
        "std::floor(product + 0.5) + even"),
    "taps of the phase before": (
        PLANS[4], WALK, "taps[f][Words::phase(c)][word], sum", "taps[f][0][word], sum"),
    "the bias of one row alone": (
        PLANS[8], WALK, "done[j] = bias;", "done[j] = 0;"),
}


@needs_host
@pytest.mark.parametrize("fault", mostly_deep(FAULTS, "a lane too many"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    plan, name, right, wrong = FAULTS[fault]
    reports = reports_of(plan, altered(tmp_path, name, right, wrong), monkeypatch)
    assert all("right" not in text for text in reports.values()), reports


@needs_host
@pytest.mark.deep
def test_the_sanitizers_find_nothing(tmp_path):
    require_silence(checked_under_sanitizers(tmp_path, [
        planned("n1c3h5w13_o3k5x3p3g3_int8_bias", 2, 5, 2, 4, 1, staging, device="z100sm")
        for staging in ("registers", "lds")]))


@needs_hip
def test_machine_code_is_exact_and_has_dot_products():
    backend, plans = Gfx906Backend(), some(PLANS[5:])
    backend.prepare(plans)
    for plan in plans:
        accuracy = check_plan(backend, plan, 0)
        assert accuracy.ok, f"{plan.name}: {accuracy}"
        kernel = backend.compile(plan)
        assert kernel.use.spills == 0
        assert kernel.use.registers <= plan.compiled_registers
        # At least those of the first row, by all rows of taps that reach one.
        assert opcodes(backend, plan).count("v_dot4_i32_i8") >= words_of(
            plan.problem, plan.tiling).dots * plan.tiling.thread_h


@pytest.mark.parametrize(("code", "plan"), [
    ("E-REUSE", planned("n1c16h7w8_o16k3p1g16_int8", 7, 2, 1, 4, 8, "registers", True)),
    ("E-BOTH", planned("n1c16h7w7_o16k3p1g16_int8_outfloat32", 7, 7, 1, 1, 32, "both"))])
def test_what_words_of_int8_do_not_fit_is_refused(code, plan):
    assert code in {one.code for one in
                    validate(plan.problem, plan.tiling, plan.device).violations}


def test_a_residual_is_refused():
    with pytest.raises(SpecError, match="residual of int8"):
        planned("n1c16h7w7_o16k3p1g16_int8_residual", 7, 7, 1, 1, 32, "registers")


@pytest.mark.parametrize("device", ["h200", "z100sm"])
@pytest.mark.parametrize("token", ["n32c96h112w112_o96k3s2p1g96_int8",
                                   "n1c960h7w7_o960k5p2g960_int8_outfloat16"])
def test_a_networks_depthwise_layers_are_planned_so(token, device):
    assert best_plan(parse_problem(token), catalog.device(device)).tiling.algorithm == "row_reuse"
