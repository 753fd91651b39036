"""The shipped oracle against the literal definition, and comparers that are fed wrong answers."""

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from dscore import ops
from dscore.algorithms import registry
from dscore.checking import bound, cases
from dscore.checking.rounding import TF32_SHARE, Rounding, gamma
from dscore.core import catalog
from dscore.core.errors import SpecError
from dscore.core.token import parse_problem

CASES = st.one_of([cases.cases(kind, (catalog.device("z100sm"),))
                   for kind in registry.names()])


@settings(max_examples=examples(80))
@given(CASES.filter(lambda case: case.plan.problem.macs < 20_000
                    and case.plan.problem.spec.filter == "plain"
                    and not case.plan.problem.spec.element.exact
                    and case.plan.problem.operation not in ("quantise", "gradients")))
def test_the_shipped_oracle_is_the_definition(case):
    """Random elements of a packed filter are those of no filter: tests/calling/test_pack.py. Layers
    of int8, and what makes int8 of floats, are in test_integers.py. Both gradients at once are
    judged by each."""
    problem, inputs = case.plan.problem, bound.sample(case.plan.problem, case.seed)
    wanted = bound.expected(problem, *inputs)
    first = [None if array is None else ops.channels_first(np, operand, array)
             for operand, array in zip(ops.operands_of(problem), inputs, strict=False)]
    operation = ops.operation(problem.operation)
    exact = operation.exact(np, problem.laid_out("nchw"), *first)
    definition = {"conv": oracle.direct, "mean": oracle.mean, "gate": oracle.gate,
                  "hard_gate": oracle.gate}.get(problem.operation, oracle.gradient)
    y, magnitude = definition(problem, *inputs)
    # Both are float64: they differ by float64's own rounding, 2⁻²⁹ of the float32 bound.
    assert np.all(np.abs(wanted.y - y) <= 1e-13 * magnitude + 1e-13)
    slope = min(oracle.LIPSCHITZ[operation.activation(problem)], 1)
    least = slope * gamma(exact.products + len(exact.addends)) * magnitude
    assert np.all(wanted.bound >= least * (1 - 1e-12))
    after = 0 if exact.after is None else np.abs(
        ops.as_laid_out(np, ops.operands_of(problem)[-1], exact.after))
    # Those of silu and sigmoid grow with an argument below 0, at most as large as the magnitude.
    logistic = 2.5 * magnitude if operation.activation(problem) in ("silu", "sigmoid") else 0
    most = 1.5002 * least + (20 + logistic) * 2.0**-24 * (np.abs(y) + after + 1e-29)
    if problem.spec.out_element.name != "float32":  # rounded once more, to the result's type
        short = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[problem.spec.out_element.name]
        assert np.all(wanted.bound >= least + short * np.abs(y))
        most = most + short * (np.abs(y) + most) + 2.0**-25
    assert np.all(wanted.bound <= most)


def _result():
    problem = parse_problem("n1c64h6w6_o8k1")
    x, w, bias = bound.sample(problem, 3)
    wanted = bound.expected(problem, x, w, bias)
    return problem, x, w, wanted


def test_a_float32_sum_is_within_the_bound():
    _, x, w, wanted = _result()
    y = np.einsum("oc,nchw->nohw", w[:, :, 0, 0], x)
    assert y.dtype == np.float32
    verdict = bound.compare(y, wanted)
    assert verdict.ok
    assert 0 < verdict.share < 0.5


def _poisoned(y):
    y[0, 3, 2, 1] = np.nan


def _infinite(y):
    y[0, 0, 0, 0] = np.inf


def _shifted(y):
    y[...] = np.roll(y, 1, axis=-1)


def _swapped(y):
    y[:, [0, 1]] = y[:, [1, 0]]


def _unwritten(y):
    y[0, -1, -1, -1] = 0


def _half(y):
    y[...] = y.astype(np.float16)


@pytest.mark.parametrize("spoil", [_poisoned, _infinite, _shifted, _swapped, _unwritten, _half])
def test_wrong_answers_are_caught(spoil):
    _, _, _, wanted = _result()
    y = wanted.y.astype(np.float32)
    assert bound.compare(y, wanted).ok
    spoil(y)
    verdict = bound.compare(y, wanted)
    assert not verdict.ok
    assert verdict.share > 1
    assert "WRONG" in str(verdict)


def test_one_dropped_product_is_caught_almost_everywhere():
    problem, x, w, wanted = _result()
    kept = w.copy()
    kept[:, 17] = 0
    dropped = bound.expected(problem, x, kept).y
    caught = np.abs(dropped - wanted.y) > wanted.bound
    assert caught.mean() > 0.99


def test_the_worst_output_is_named():
    _, _, _, wanted = _result()
    y = wanted.y.astype(np.float32)
    y[0, 5, 4, 3] += 1
    verdict = bound.compare(y, wanted)
    assert verdict.where == (0, 5, 4, 3)
    assert "(0, 5, 4, 3)" in str(verdict)


def test_a_wrong_shape_is_refused():
    _, _, _, wanted = _result()
    with pytest.raises(SpecError, match=r"shape \(1, 8, 36\)"):
        bound.compare(wanted.y.reshape(1, 8, 36), wanted)


def test_no_bound_is_claimed_where_none_exists():
    with pytest.raises(SpecError, match="no float32 error bound"):
        gamma(2**24)


def test_samples_are_random_repeatable_and_never_zero():
    problem = parse_problem("n2c16h9w9_o16k3g16_bias")
    first, again, other = (bound.sample(problem, seed) for seed in (5, 5, 6))
    for a, b, c in zip(first, again, other, strict=True):
        assert np.array_equal(a, b)
        assert not np.array_equal(a, c)
        assert np.all(a != 0)


@pytest.mark.parametrize("step", [1, 1 << 27])
@pytest.mark.parametrize("token", ["n3c8h5w7_o16k1_bias", "n4c6h7w5_o6k3s2p1g6_silu"])
def test_judging_in_steps_is_comparing_the_whole(step, token, monkeypatch):
    monkeypatch.setattr(bound, "_STEP_ELEMENTS", step)
    problem = parse_problem(token)
    arrays = bound.sample(problem, 1)
    wanted = bound.expected(problem, *arrays)
    y = wanted.y.astype(np.float32)
    for where in ((0, 0, 0, 0), (2, 1, 0, 1), (-1, -1, -1, -1)):
        y[where] = wanted.y[where] + 40 * wanted.bound[where]
        assert bound.judge(np, problem, arrays, y) == bound.compare(y, wanted)
        assert not bound.compare(y, wanted).ok
    y[1, 0, 0, 0] = np.nan
    assert bound.judge(np, problem, arrays, y).where == (1, 0, 0, 0)
    with pytest.raises(SpecError, match="a result of shape"):
        bound.judge(np, problem, arrays, y[1:])


def test_products_in_tf32_widen_the_bound_by_their_operands_alone():
    problem = parse_problem("n1c8h3w3_o4k1_bias")
    x, w, bias = bound.sample(problem, 2)
    plain, wide = (bound.expected(problem, x, w, bias, rounding=Rounding(name))
                   for name in ("sum", "tf32"))
    magnitude = oracle.direct(problem, x, w, bias)[1] - abs(bias)[None, :, None, None]
    assert np.allclose(wide.bound - plain.bound, TF32_SHARE * magnitude, rtol=1e-5)
