"""Gates of squeeze-and-excitation on the emulated device: equal to the reference, right by the
definition, and faults caught; which problems are gates."""

import numpy as np
import oracle
import pytest
from emulated_runs import (
    checked_under_sanitizers,
    require_bit_equal,
    require_caught,
    require_right,
    require_silence,
    result,
)
from profiles import deep, mostly_deep, share, some
from refusals import needs

import dscore
from dscore.algorithms.gate.tiling import GateTiling
from dscore.backends.emulated import EmulatedBackend
from dscore.backends.reference.backend import ReferenceBackend
from dscore.checking import bound
from dscore.checking.check import check_plan
from dscore.core import catalog
from dscore.core.errors import InfeasibleError, SpecError
from dscore.core.token import parse_problem, problem_token
from dscore.ops import compulsory_bytes, operands_of
from dscore.solving.solver import make_plan
from dscore.solving.verdict import validate

needs_compiler = needs(EmulatedBackend())


def planned(token, *tiling, device="h200"):
    return make_plan(parse_problem(token), catalog.device(device), GateTiling(*tiling))


# Vectors of every width, of channels and of pixels; blocks that share channels, pixels and both;
# slices and shares that are not full, and empty ones; more channels than threads, several runs of
# parts; filters in one turn and in several, rows of which a lane reads a part at a time,
# lanes that share a row; wavefronts of 64.
PLANS = [
    planned("gate_n2c40h7w7_o10k1_float16_nhwc_bias_relu", 64, 4, 2),
    planned("hard_gate_n1c32h30w31_o8k1_bfloat16_nhwc", 128, 8, 8),
    planned("gate_n3c144h5w5_o6k1_nhwc_bias_relu6", 64, 2),
    planned("hard_gate_n1c24h3w4_o5k1_bias", 32, 6, 3),
    planned("gate_n2c36h8w8_o12k1_float16_bias_hardswish", 96, 3),
    planned("hard_gate_n1c17h9w5_o3k1_bfloat16_bias_relu", 64, 8, 2),
    planned("gate_n2c48h9w9_o7k1_int8_outfloat16_nhwc_bias_relu", 64, 4, 4),
    planned("hard_gate_n1c100h6w6_o16k1_int8_outfloat32_nhwc", 64, 2, 2),
    planned("gate_n1c12h8w8_o9k1_int8_outfloat32_bias_relu", 32, 2),
    planned("hard_gate_n2c5h7w7_o2k1_int8_outfloat16_nhwc_bias", 64, 1),
    planned("gate_n1c480h4w4_o120k1_float16_nhwc_bias_relu", 64, 2),
    planned("hard_gate_n1c480h3w3_o24k1_bias_relu", 64, 1, device="z100sm"),
    planned("gate_n2c24h20w9_o6k1_float16_nhwc_bias_relu", 256, 1, device="z100sm"),
    planned("hard_gate_n1c1664h2w2_o6k1_bias_relu", 32, 1),
    # Slices that are no whole vectors of what the channels and a share are: 7 of 14 and 28.
    planned("hard_gate_n2c14h1w1_o17k1_float16", 128, 4, 2),
    planned("hard_gate_n1c28h3w3_o8k1_float16_bias_relu", 64, 8, 2)]
SILU = [planned(f"gate_n2c40h7w7_o10k1_{types}_bias_silu", 64, 4, 2)
        for types in ("float16_nhwc", "float32", "int8_outfloat16_nhwc")]
# Whose bound is tight, for there are few roundings.
SMALL = planned("gate_n2c8h1w1_o2k1_bias_relu", 32, 1)
FEW, PLANES, UNEVEN, BYTES, LONG = PLANS[0], PLANS[3], PLANS[5], PLANS[6], PLANS[10]
ODD = PLANS[-2]


@needs_compiler
@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_in_every_order(sizes, monkeypatch):
    """But for exponentials, which NumPy rounds otherwise: the gate's own."""
    hard = [plan for plan in PLANS if plan.problem.operation == "hard_gate"]
    # Whose vectors once reached past a slice's end.
    further = [] if ODD in share(hard, sizes) else [ODD]
    require_bit_equal([*share(hard, sizes), *further], sizes, monkeypatch)


@needs_compiler
@pytest.mark.deep
def test_orders_of_lanes_do_not_matter(monkeypatch):
    backend = EmulatedBackend()
    for plan in SILU:
        results = []
        for order in ("forward", "reverse", "random"):
            monkeypatch.setenv("DSCORE_LANE_ORDER", order)
            results.append(result(backend, plan))
        assert np.array_equal(results[0], results[1])
        assert np.array_equal(results[0], results[2])


@pytest.mark.parametrize("plan", [*PLANS, *SILU], ids=lambda plan: plan.name)
def test_the_reference_is_right(plan):
    accuracy = check_plan(ReferenceBackend(), plan, 1)
    assert accuracy.ok, str(accuracy)


@pytest.mark.deep
@needs_compiler
def test_the_emulated_device_is_right():
    backend, plans = EmulatedBackend(), some([*PLANS, *SILU])
    backend.prepare(plans)
    for plan in plans:
        accuracy = check_plan(backend, plan, 1)
        assert accuracy.ok, f"{plan.name}: {accuracy}"


@pytest.mark.parametrize("plan", [*PLANS, *SILU], ids=lambda plan: plan.name)
def test_the_shipped_oracle_is_the_definition(plan):
    """Of int8, too, which tests/checking/test_bound.py leaves out."""
    inputs = bound.sample(plan.problem, 2)
    wanted, (y, magnitude) = bound.expected(plan.problem, *inputs), oracle.gate(plan.problem,
                                                                                *inputs)
    assert np.all(np.abs(wanted.y - y) <= 1e-13 * (magnitude + 1))


@pytest.mark.parametrize("plan", [deep(PLANS[0]), PLANS[6], deep(PLANS[8])],
                         ids=lambda plan: plan.name)
def test_the_oracle_on_pytorch_is_the_same(plan):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    inputs = bound.sample(plan.problem, 3)
    tensors = [None if one is None else torch.from_numpy(one) for one in inputs]
    wanted = bound.expected(plan.problem, *inputs)
    by_torch = bound.expected(plan.problem, *tensors, xp=torch)
    assert np.allclose(by_torch.y.numpy(), wanted.y, rtol=1e-12, atol=1e-15)
    assert np.allclose(by_torch.bound.numpy(), wanted.bound, rtol=1e-9)
    y = torch.from_numpy(wanted.y).to(getattr(torch, plan.problem.spec.out_element.name))
    assert bound.judge(torch, plan.problem, tensors, y).ok
    assert not bound.judge(torch, plan.problem, tensors, y + 1).ok


# The plan, the file, its source as it is, and with its fault.
KERNEL, ROWS, SHAPE, SUMS = (f"{name}.hpp" for name in (
    "gate/kernel", "gate/rows", "gate/shape", "support/mean_sums"))
FAULTS = {
    "a pixel too many": (FEW, KERNEL, "at + i * shares < end);", "at + i * shares <= end);"),
    "a part left out": (FEW, KERNEL, "for (int part = 1; part < parts; part++) sum +=",
                        "for (int part = 2; part < parts; part++) sum +="),
    "a block's sums left out": (FEW, KERNEL, "sum_of_all<cluster>(partial + row, t::between)",
                                "sum_of_all<cluster - 2>(partial + row, t::between)"),
    "a sharer's sums left out": (FEW, KERNEL, "sum_of_all<t::sharers>(shared() + c, t::share)",
                                 "sum_of_all<t::sharers - 1>(shared() + c, t::share)"),
    "channels in another order": (LONG, SHAPE, "return at % row / quad * unit + at / row * quad",
                                  "return at % row / quad * quad + at / row * quad"),
    "lanes that are not joined": (FEW, ROWS, "sum += DSCORE_SHFL_DOWN(sum, by, Wavefront);", ""),
    "vectors of a share's end": (ODD, KERNEL, "t::channels | t::slice | t::share",
                                 "t::channels | t::share"),
    "a row's end read past": (UNEVEN, ROWS, "if (column_of(begin + i) < count) {", "{"),
    "the first turn's rows twice": (LONG, ROWS, "if (first + begin > 0) load(first, begin);", ""),
    "a sum of 16 bits": (SMALL, ROWS, "sum += by.at[k] * static_cast<float>(elements.at[k]);",
                         "sum = static_cast<float>(float16(sum + by.at[k] * static_cast<float>("
                         "elements.at[k])));"),
    "the second layer's bias left out": (
        FEW, ROWS, "sum + static_cast<float>(addends[from].elements().at[0])", "sum"),
    "the first layer without its activation": (
        FEW, KERNEL, "between[row] = First::activate(", "between[row] = ("),
    "the zero point left out": (BYTES, SUMS, "sum - pixels * zero", "sum"),
    "a number to another block": (FEW, KERNEL, "partial + rank() * t::between + row, to, sum",
                                  "partial + to * t::between + row, rank(), sum"),
}


@needs_compiler
@pytest.mark.parametrize("fault", mostly_deep(FAULTS, "a block's sums left out"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    require_caught(tmp_path, monkeypatch, *FAULTS[fault], "WRONG")


@needs_compiler
@pytest.mark.parametrize("box", [deep("of_blocks"), "of_sharers"])
def test_numbers_that_nobody_waits_for_are_caught(box, tmp_path, monkeypatch):
    require_caught(tmp_path, monkeypatch, FEW, KERNEL, f"{box}.wait();", "__syncthreads();",
                   "that nobody waited for")


@pytest.mark.deep
@needs_compiler
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([FEW, PLANES, BYTES, LONG, SMALL, UNEVEN], monkeypatch)


@pytest.mark.deep
@needs_compiler
def test_the_sanitizers_find_nothing(tmp_path):
    require_silence(checked_under_sanitizers(tmp_path, [FEW, PLANES, BYTES, UNEVEN]))


def test_operands_and_their_bytes():
    problem = parse_problem("gate_n2c8h5w5_o4k1_int8_outfloat16_nhwc_bias_silu")
    assert problem_token(problem) == "gate_n2c8h5w5_o4k1_int8_outfloat16_nhwc_bias_silu"
    operands = operands_of(problem)
    assert [(one.name, one.shape, one.element.name) for one in operands] == [
        ("x", (2, 5, 5, 8), "int8"), ("w", (4, 8, 1, 1), "float16"), ("bias", (4,), "float16"),
        ("second_w", (8, 4, 1, 1), "float16"), ("second_bias", (8,), "float16"),
        ("multiplier", (1,), "float32"), ("zero_point", (1,), "int32"), ("out", (2, 8), "float16")]
    assert compulsory_bytes(problem) == 400 + 2 * (32 + 4 + 32 + 8) + 8 + 2 * 16


@pytest.mark.parametrize(("token", "message"), [
    ("gate_n1c8h5w5_o4k3", "this one has a dense layer"),
    ("gate_n1c8h5w5_o4k1s2", "this one has the stride (2, 2)"),
    ("gate_n1c8h5w5_o4k1_sigmoid", "this one has the activation sigmoid between"),
    ("hard_gate_n1c8h5w5_o4k1_scaled", "this one has a scale"),
    ("gate_n1c8h5w5_o4k1_int8", "this one has a result of int8"),
    ("gate_n1c8h5w5_o4k1_bias_residual", "this one has a residual")])
def test_what_is_no_gate_is_refused_by_name(token, message):
    with pytest.raises(SpecError) as refused:
        dscore.plan_for(token, "h200")
    assert message in str(refused.value)


def test_pixels_of_int8_that_an_int32_does_not_sum():
    with pytest.raises((SpecError, InfeasibleError), match="pixels of a mean of int8"):
        dscore.plan_for("gate_n1c4h3000w3000_o2k1_int8_outfloat16_nhwc", "h200")


def test_clusters_need_a_device_that_has_them():
    problem = parse_problem("gate_n1c8h5w5_o4k1")
    assert "E-CLUSTER" in str(validate(problem, GateTiling(64, 2), catalog.device("z100sm")))
    assert dscore.plan_for(problem, "z100sm").tiling == GateTiling(256, 1)
    assert dscore.plan_for(problem, "h200").tiling == GateTiling(256, 8)
