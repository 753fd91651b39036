"""Bounds of results in 16 bits: approached, just exceeded, and infinities where they belong."""

from functools import partial

import numpy as np
import pytest
from adverse import truncated
from hypothesis import example, given
from hypothesis import strategies as st

from dscore.checking import bound
from dscore.checking.rounding import Rounding, half_least, overflow
from dscore.core.numerics import ELEMENTS
from dscore.core.token import parse_problem

SHORT = ("float16", "bfloat16")
MATRIX = Rounding("matrix16")


def expected(token, *values, rounding=MATRIX):
    """What is expected of one output whose products are *values* by one."""
    problem = parse_problem(token)
    x = np.array(values, np.float64).astype(problem.spec.element.numpy)
    assert np.array_equal(x.astype(np.float64), values), "the operands are not of the type"
    ones = np.ones(problem.spec.w_shape, x.dtype)
    return bound.expected(problem, x.reshape(problem.x_shape), ones, rounding=rounding)


def verdict(wanted, y):
    return bound.compare(np.full((1, 1, 1, 1), y), wanted)


@pytest.mark.parametrize("name", SHORT)
def test_the_types_are_those_of_numpy(name):
    import ml_dtypes

    element, info = ELEMENTS[name], ml_dtypes.finfo(name)
    assert element.numpy == np.dtype(getattr(ml_dtypes, name, name))
    assert element.unit_roundoff == float(info.eps) / 2
    assert half_least(element) == float(info.smallest_subnormal) / 2
    limit = np.float32(overflow(element))
    with np.errstate(over="ignore"):
        assert np.isinf(limit.astype(element.numpy))
        assert float(np.nextafter(limit, np.float32(0)).astype(element.numpy)) == float(info.max)


@given(st.sampled_from(SHORT), st.floats(2.0**-24, 60000), st.integers(0, 2**16))
@example("float16", 2.0**-14, 0)
def test_one_rounding_of_an_exact_sum_keeps_the_bound_and_two_do_not(name, size, seed):
    problem = parse_problem(f"n1c4h5w6_o8k1_{name}")
    x, w, _ = bound.sample(problem, seed)
    x = (x.astype(np.float64) * min(size, 4000)).astype(x.dtype)
    wanted = bound.expected(problem, x, w)
    y = wanted.y.astype(x.dtype)
    assert bound.compare(y, wanted).ok
    # The next number but one is off by more than a rounding of the sum, wherever that lies.
    bits = y.view(np.int16)
    wrong = np.where(wanted.y.astype(np.float64) >= y.astype(np.float64), bits - 2, bits + 2)
    away = wrong.astype(np.int16).view(x.dtype)
    assert not bound.compare(away, wanted).ok


@pytest.mark.parametrize("name", SHORT)
def test_a_sum_that_is_kept_in_16_bits_is_caught(name):
    problem = parse_problem(f"n1c64h8w8_o16k1_{name}")
    x, w, _ = bound.sample(problem, 3)
    total = np.zeros(problem.y_shape, x.dtype)
    for c in range(64):
        product = x[:, c, None].astype(np.float32) * w[None, :, c].astype(np.float32)
        total = (total.astype(np.float32) + product).astype(x.dtype)
    for rounding in (Rounding(), MATRIX):
        assert not bound.compare(total, bound.expected(problem, x, w, rounding=rounding)).ok


@pytest.mark.parametrize(("values", "y", "ok"), [
    ((65504, 16), np.inf, True), ((65504, 16), 65504, True),  # half way to 65536
    ((65504, 15), np.inf, False), ((65504, 15), 65504, True),
    ((65504, 64), np.inf, True), ((65504, 64), 65504, False),
    ((65504, 65504), np.inf, True), ((65504, 65504), -np.inf, False),
    ((-65504, -65504), -np.inf, True), ((65504, 65504), 65504, False),
    ((65504, 65504), np.nan, False), ((1, 2), np.inf, False), ((1, 2), np.nan, False)])
def test_infinities_of_float16_belong_beyond_its_numbers(values, y, ok):
    for rounding in (Rounding(), MATRIX):
        assert verdict(expected("n1c2h1w1_o1k1_float16", *values, rounding=rounding), y).ok == ok


def test_a_result_below_the_normal_range_is_rounded_there_and_not_flushed():
    tiny = 2.0**-24
    wanted = expected("n1c2h1w1_o1k1_float16", 3 * tiny, 4 * tiny)
    assert verdict(wanted, 7 * tiny).ok
    assert not verdict(wanted, 6 * tiny).ok
    assert not verdict(wanted, 0.0).ok


def test_what_units_that_cut_off_lose_is_within_their_bound_and_not_within_a_sum_s():
    # A sum of 1 and many products just below its last place in float32, which cut each off.
    count, small = 2**15, 2.0**-23 * (1 - 2.0**-10)
    x = np.concatenate([[1.0], np.full(count - 1, 2.0**-12 * (1 - 2.0**-10))])
    w = np.concatenate([[1.0], np.full(count - 1, 2.0**-11)])
    problem = parse_problem(f"n1c{count}h1w1_o1k1_float16")
    x, w = (one.astype(np.float16).reshape(shape) for one, shape in (
        (x, problem.x_shape), (w, problem.spec.w_shape)))
    total = np.float32(1)
    for _ in range(count - 1):
        total = truncated(total, small)
    assert total == 1
    wide = verdict(bound.expected(problem, x, w, rounding=MATRIX), total)
    assert wide.ok
    assert wide.share > 0.8
    assert wide.of_sum > 1.3
    # Steps that are summed apart lose less, and are held to that.
    assert not verdict(bound.expected(problem, x, w, rounding=Rounding("matrix16", 64)), total).ok


def test_the_scale_of_an_input_is_rounded_before_matrix_units():
    problem = parse_problem("n1c8h3w3_o4k1_float16_scaled")
    x, w, _, scale = bound.sample(problem, 1)
    sums, units = (bound.expected(problem, x, w, None, scale, rounding=one)
                   for one in (Rounding(), MATRIX))
    scaled = np.abs(x.astype(np.float64) * scale.astype(np.float64)[:, :, None, None])
    magnitude = np.einsum("nchw,oc->nohw", scaled, np.abs(w[:, :, 0, 0]).astype(np.float64))
    least = magnitude * 2.0**-11
    assert np.all(units.bound >= sums.bound + least)
    assert np.all(units.bound <= sums.bound + 1.01 * least + 2.0**-20 * magnitude + 2.0**-20)
    rounded = (scaled * np.sign(x) * np.sign(scale)[:, :, None, None]).astype(np.float16)
    y = np.einsum("nchw,oc->nohw", rounded.astype(np.float64), w[:, :, 0, 0].astype(np.float64))
    assert bound.compare(y.astype(np.float16), units).ok


@pytest.mark.parametrize("token", ["n2c6h5w7_o12k3s2p1g6_float16{}_bias_silu", "n2c8h4w5_o6k1{}",
                                   "input_gradient_n2c6h5w7_o12k3s2p1g6{}",
                                   "weight_gradient_n2c6h5w7_o12k3s2p1g6_bfloat16{}"])
def test_both_layouts_have_the_same_bound(token):
    first, last = (parse_problem(token.format(layout)) for layout in ("", "_nhwc"))
    from dscore.ops import as_laid_out, operands_of

    arrays = bound.sample(first, 2)
    turned = [None if one is None else np.ascontiguousarray(as_laid_out(np, operand, one))
              for operand, one in zip(operands_of(last), arrays, strict=False)]
    wanted, there = (bound.expected(*one) for one in ((first, *arrays), (last, *turned)))
    lay_out = partial(as_laid_out, np, operands_of(last)[-1])
    assert np.array_equal(there.y, lay_out(wanted.y))
    assert np.array_equal(there.bound, lay_out(wanted.bound))
    y = there.y.astype(operands_of(last)[-1].element.numpy)
    assert bound.judge(np, last, turned, y).ok
    if y.shape == there.y.shape and operands_of(last)[-1].layout:  # one that lies otherwise
        assert not bound.compare(np.moveaxis(y, -1, 1).reshape(y.shape), there).ok
