"""Layers of int8: the shipped result against Python's integers, the data drawn, the comparer."""

from dataclasses import replace

import integer_oracle
import numpy as np
import pytest
from faulty_integers import FAULTS
from hypothesis import given, settings
from profiles import examples, mostly_deep

import dscore
from dscore.checking import bound, cases, conformance
from dscore.checking.check import GuardedOutput, check_plan
from dscore.core import backend, catalog
from dscore.core.errors import SpecError
from dscore.core.token import parse_problem, problem_token
from dscore.ops import compulsory_bytes, operands_of, output_of

DIRECT = cases.cases("direct", (catalog.device("z100sm"),))
LAYER = "n2c6h5w7_o8k3s2p1x0x2x1g2_int8"


@settings(max_examples=examples(25))
@given(DIRECT.filter(lambda case: case.plan.problem.spec.dtype == "int8"
                     and case.plan.problem.macs < 3_000))
def test_the_shipped_result_is_that_of_pythons_integers(case):
    problem, inputs = case.plan.problem, bound.sample(case.plan.problem, case.seed)
    wanted = bound.expected(problem, *inputs)
    assert wanted.arithmetic == "exact"
    assert not wanted.bound.any()
    by_python = integer_oracle.means if problem.operation == "mean" else integer_oracle.direct
    exact = by_python(problem, *inputs)
    assert np.array_equal(wanted.y, exact.astype(np.float64))
    assert bound.compare(exact, wanted).ok


@pytest.mark.parametrize("token", [
    LAYER, LAYER + "_outfloat32_bias", LAYER + "_infloat16_bias",
    LAYER + "_outfloat16_nhwc_bias_relu6",
    "mean_n2c6h5w7_o6k1_int8_outfloat16_nhwc", "mean_n2c6h5w7_o6k1_int8_outfloat32"])
def test_results_on_pytorch_are_the_same(token):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    problem = parse_problem(token)
    inputs = bound.sample(problem, 3)
    tensors = [None if one is None else torch.from_numpy(one) for one in inputs]
    wanted = bound.expected(problem, *inputs)
    assert np.array_equal(bound.expected(problem, *tensors, xp=torch).y.numpy(), wanted.y)
    y = torch.from_numpy(wanted.y).to(getattr(torch, problem.spec.out_element.name))
    assert bound.judge(torch, problem, tensors, y).ok
    assert not bound.judge(torch, problem, tensors, y + 1).ok


def test_drawn_results_have_ties_and_reach_past_the_range():
    problem = parse_problem("n2c30h9w9_o30k3p1g30_int8_bias")
    ties = low = high = inside = 0
    for seed in range(20):
        x, w, bias, multiplier, points = bound.sample(problem, seed)
        assert points[0] != 0 != points[1]
        assert -128 <= points[2] <= points[1] <= points[3] <= 127
        whole = replace(problem.spec, out_dtype="float32")
        products = bound.expected(replace(problem, spec=whole), x, w, bias, multiplier, points).y
        ties += np.count_nonzero(products % 1 == 0.5)
        q = bound.expected(problem, x, w, bias, multiplier, points).y
        low += np.count_nonzero(q == points[2])
        high += np.count_nonzero(q == points[3])
        inside += np.count_nonzero((q > points[2]) & (q < points[3]))
    total = 20 * q.size
    assert ties > total / 50
    assert low > total / 20
    assert high > total / 20
    assert inside > total / 3
    first, again = (bound.sample(problem, 5) for _ in range(2))
    assert all(np.array_equal(*pair) for pair in zip(first, again, strict=True))


def test_drawn_floats_have_ties_and_reach_past_the_range():
    problem, ties, low, high, infinite = parse_problem(LAYER + "_infloat32_bias"), 0, 0, 0, 0
    for seed in range(8):
        x, _, _, _, points, ratios = bound.sample(problem, seed)
        steps = x[np.isfinite(x)].astype(np.float64) * ratios[0]
        infinite += np.count_nonzero(np.isinf(x))
        ties += np.count_nonzero(steps % 1 == 0.5)
        low += np.count_nonzero(steps + points[0] < -128.5)
        high += np.count_nonzero(steps + points[0] > 127.5)
    assert min(ties / 10, low, high, infinite) > x.size / 40


@pytest.mark.parametrize("fault", mostly_deep(FAULTS, "HalfUp", "TailLane"))
def test_planted_faults_are_caught_and_reproduced(fault):
    """By the run of conformance, and on the layer that is named beside the fault."""
    name = f"faulty_integers:{fault}"
    report = conformance.conformance(name, examples=60, algorithms=("direct",), dtype="int8")
    [failure] = report.failures
    assert failure.plan.problem.spec.dtype == "int8"
    assert "_int8" in failure.reproduce
    assert f"--backend {name}" in failure.reproduce
    again = check_plan(backend.backend(name), failure.plan, failure.seed)
    assert str(again) == failure.message
    assert "expected exactly" in failure.message
    plan = dscore.plan_for(FAULTS[fault], "z100sm", tiling=dict(threads=64, thread_c=2))
    assert not all(check_plan(backend.backend(name), plan, seed).ok for seed in range(3))
    assert check_plan(backend.backend("reference"), plan, 0).ok


def test_what_is_not_written_and_a_changed_guard_are_seen():
    problem = parse_problem(LAYER)
    guarded = GuardedOutput(output_of(problem))
    assert guarded.out.dtype == np.int8
    assert guarded.changed() == 0
    guarded.buffer[-1] += 1
    assert guarded.changed() == 1
    inputs = bound.sample(problem, 0)
    wanted = bound.expected(problem, *inputs)
    for wrong in (1, -1):
        y = wanted.y.copy()
        y[1, 3, 1, 2] += wrong
        accuracy = bound.compare(y, wanted)
        assert not accuracy.ok
        assert accuracy.where == (1, 3, 1, 2)
        assert "expected exactly" in str(accuracy)


def test_a_zero_of_the_other_sign_and_an_infinity_are_told():
    problem = parse_problem("n1c1h1w1_o1k1_int8_outfloat16")
    x, w, points = np.full((1, 1, 1, 1), -1, np.int8), np.full((1, 1, 1, 1), 1, np.int8), (0,) * 4
    tiny = bound.expected(problem, x, w, None, np.float32([1e-30]), np.int32(points))
    assert not bound.compare(np.float16([[[[0.0]]]]), tiny).ok
    assert bound.compare(np.float16([[[[-0.0]]]]), tiny).ok
    huge = bound.expected(problem, x, w, None, np.float32([1e6]), np.int32(points))
    assert bound.compare(np.float16([[[[-np.inf]]]]), huge).ok
    assert not bound.compare(np.float16([[[[np.inf]]]]), huge).ok
    assert not bound.compare(np.float16([[[[np.nan]]]]), huge).ok


def test_operands_and_their_bytes():
    problem = parse_problem("n1c8h5w5_o8k3g8_int8_outfloat32_nhwc_bias")
    assert problem_token(problem) == "n1c8h5w5_o8k3g8_int8_outfloat32_nhwc_bias"
    assert [(one.name, one.element.name, one.shape) for one in operands_of(problem)] == [
        ("x", "int8", (1, 5, 5, 8)), ("w", "int8", (8, 1, 3, 3)), ("bias", "int32", (8,)),
        ("multiplier", "float32", (8,)), ("points", "int32", (4,)),
        ("out", "float32", (1, 3, 3, 8))]
    assert compulsory_bytes(problem) == 200 + 72 + 32 + 32 + 16 + 4 * 72


@pytest.mark.parametrize(("token", "message"), [
    ("n1c8h5w5_o8k3_int8_relu6", "relu6 of an int8 result is a bound of its points"),
    ("n1c8h5w5_o8k3_int8_outfloat32_silu", "and this one has the activation silu"),
    ("n1c8h5w5_o8k3_int8_outfloat32_residual", "and this one has a residual of a float result"),
    ("n1c8h5w5_o8k3_int8_outfloat16_table", "and this one has a table of a float result"),
    ("n1c8h5w5_o8k3_int8_scaled", "a scale of the input is for pointwise layers"),
    ("n1c8h5w5_o8k3_float16_table", "a table is for int8 results, and this layer is of float16"),
    ("n1c8h5w5_o8k3_int8_winograd", "and this one has Winograd's algorithm"),
    ("n1c8h5w5_o8k3_bfloat16_outfloat16", "out_dtype is float16 for a layer of bfloat16"),
    ("n1c65794h1w1_o1k1_int8", "65,794 products of int8, which may come to 2,147,516,160, more "
                               "than an int32 holds (limit 65,793 products)")])
def test_what_int8_has_no_arithmetic_for_is_refused_by_name(token, message):
    with pytest.raises(SpecError) as refused:
        operands_of(parse_problem(token))
    assert message in str(refused.value)


def test_the_most_products_are_summed_without_overflow():
    problem = parse_problem("n1c65793h1w1_o1k1_int8_outfloat32")
    x, w = (np.full(shape, value, np.int8) for shape, value in (
        (problem.x_shape, -128), (problem.spec.w_shape, -128)))
    points = np.array([127, 0, 0, 0], np.int32)
    y = bound.expected(problem, x, w, None, np.float32([1]), points).y
    assert y.item() == np.float32(65793 * 255 * 128)
    assert 65793 * 255 * 128 < 2**31 <= 65794 * 255 * 128


def test_gradients_of_integers_are_refused():
    with pytest.raises(SpecError, match="and this layer has the element type int8"):
        dscore.plan_for("input_gradient_n1c8h5w5_o8k3_int8", "z100sm")
