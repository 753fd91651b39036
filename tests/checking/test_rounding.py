"""Bounds of three TF32 products and of Winograd's tiles: held, approached, and just exceeded."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from adverse import (
    adverse_split,
    by_parts,
    exact_magnitude,
    rounded,
    tiled,
    truncated,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import plan_of
from profiles import examples

from dscore.algorithms.gemm.tiling import GemmTiling
from dscore.backends.reference.backend import ReferenceBackend
from dscore.checking import bound
from dscore.checking.check import check_kernel
from dscore.checking.oracle import tile_magnitude
from dscore.checking.rounding import Rounding, gamma, rounding_of, transform_steps
from dscore.core.token import parse_problem

SPLIT = Rounding("tf32x3")
TILED = tuple(Rounding(name) for name in ("winograd2", "winograd4", "winograd2_tf32x3",
                                          "winograd4_tf32x3"))
TILING = GemmTiling(16, 32, 8, 16, 8, 1, 8, 2, arithmetic="tf32x3")


def judged(x, w, y, rounding=SPLIT):
    """Accuracy of one sum of products."""
    problem = parse_problem(f"n1c{x.size}h1w1_o1k1")
    wanted = bound.expected(problem, x.reshape(problem.x_shape), w.reshape(1, -1, 1, 1),
                            rounding=rounding)
    return bound.compare(np.reshape(y, (1, 1, 1, 1)), wanted)


def test_what_each_arithmetic_may_err():
    unit, k = 2.0**-24, 64
    assert Rounding().relative(k, 1) == gamma(k + 1)
    assert SPLIT.relative(k) == pytest.approx((8 + 6 * k) * unit, rel=3e-3)
    assert Rounding("tf32x3", 8).relative(k) == pytest.approx((8 + 6 * 8) * unit, rel=3e-3)
    assert Rounding("winograd4").relative(k, 1) == pytest.approx((k + 22 + 1) * unit, rel=1e-4)
    assert Rounding("winograd2_tf32x3").relative(k) == pytest.approx((8 + 6 * k + 10) * unit,
                                                                     rel=3e-3)
    assert [transform_steps(m) for m in (2, 4)] == [2 * (1 + 2 + 2), 2 * (3 + 4 + 4)]


@pytest.mark.parametrize(("channels", "at_least"), [(24, 2.4), (256, 2.7)])
def test_adverse_operands_exceed_the_bound_of_a_sum_and_keep_their_own(channels, at_least):
    in_one_step = replace(TILING, step_c=channels)
    plan = plan_of(parse_problem(f"n1c{channels}h4w4_o8k1"), in_one_step, 32)
    operands = adverse_split(channels, 0.5)
    x = np.broadcast_to(operands[0][None, :, None, None], plan.problem.x_shape).copy()
    w = np.broadcast_to(operands[1][None, :, None, None], plan.problem.spec.w_shape).copy()
    accuracy = check_kernel(plan, ReferenceBackend().compile(plan), x, w, None)
    assert accuracy.ok
    assert accuracy.arithmetic == "tf32x3"
    assert accuracy.of_sum > at_least
    assert f"of the bound of tf32x3, {accuracy.of_sum:.1%} of γ_k's" in str(accuracy)
    assert accuracy.got == by_parts(*operands, rounded)


def test_steps_are_summed_apart():
    """The same operands, which lose half a place at each addition, in steps of eight."""
    channels = 256
    plan = plan_of(parse_problem(f"n1c{channels}h4w4_o8k1"), TILING, 32)
    assert rounding_of(plan).chain == TILING.step_c + channels // TILING.step_c + 1 + 1
    operands = adverse_split(channels, 0.5)
    x = np.broadcast_to(operands[0][None, :, None, None], plan.problem.x_shape).copy()
    w = np.broadcast_to(operands[1][None, :, None, None], plan.problem.spec.w_shape).copy()
    accuracy = check_kernel(plan, ReferenceBackend().compile(plan), x, w, None)
    assert accuracy.ok
    assert accuracy.of_sum < 0.1


def test_what_truncates_comes_near_the_bound():
    x, w = adverse_split(256, 1.0)
    accuracy = judged(x, w, by_parts(x, w, truncated))
    assert accuracy.ok
    assert accuracy.share > 0.9


@settings(max_examples=examples(200))
@given(st.integers(1, 40), st.sampled_from((rounded, truncated)), st.integers(0, 2**16),
       st.integers(0, 130))
def test_three_products_keep_their_bound_at_any_size(channels, add, seed, spread):
    rng = np.random.default_rng(seed)
    # Down to where small parts are below the normal range.
    sizes = 2.0**-rng.integers(0, spread + 1, (2, channels))
    x, w = (rng.standard_normal((2, channels)) * sizes).astype(np.float32)
    assert judged(x, w, by_parts(x, w, add)).ok


@pytest.mark.parametrize("token", ["n1c2h4w5_o2k3p1", "n1c3h6w4_o1k3p0x2x1x0"])
@pytest.mark.parametrize("m", [2, 4])
def test_the_magnitude_of_tiles_is_that_of_the_absolute_matrices(token, m):
    problem = parse_problem(token)
    x, w, _ = bound.sample(problem, 1)
    expected = exact_magnitude(problem, x[0], w, m)
    assert np.allclose(tile_magnitude(np, problem, m, x, w)[0], expected, rtol=1e-13)
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    there = tile_magnitude(torch, problem, m, torch.from_numpy(x), torch.from_numpy(w))
    assert np.allclose(there.numpy()[0], expected, rtol=1e-13)


@pytest.mark.parametrize("m", [2, 4])
def test_the_magnitude_of_groups_and_images_is_that_of_each(m):
    problem, single = parse_problem("n2c6h5w7_o4k3p1g2"), parse_problem("n1c3h5w7_o2k3p1")
    x, w, _ = bound.sample(problem, 1)
    whole = tile_magnitude(np, problem, m, x, w)
    for image in range(2):
        for group in range(2):
            part = tile_magnitude(np, single, m, x[image:image + 1, 3 * group:3 * group + 3],
                                  w[2 * group:2 * group + 2])
            assert np.array_equal(part[0], whole[image, 2 * group:2 * group + 2])


def by_three(filters, inputs):
    """Products of matrices by three TF32 products, of each element of the tiles."""
    y = np.empty((*filters.shape[:3], 1), np.float32)
    for a, b, out in np.ndindex(*filters.shape[:3]):
        y[a, b, out, 0] = by_parts(np.ascontiguousarray(filters[a, b, out]),
                                   np.ascontiguousarray(inputs[a, b, :, 0]), truncated)
    return y


@settings(max_examples=60)
@given(st.sampled_from(TILED), st.integers(1, 12), st.integers(3, 9), st.integers(3, 9),
       st.integers(0, 1), st.integers(0, 2**16), st.sampled_from((0, 3, 60)))
def test_tiles_keep_their_bound(rounding, channels, height, width, padding, seed, spread):
    problem = parse_problem(f"n1c{channels}h{height}w{width}_o2k3p{padding}")
    rng = np.random.default_rng(seed)
    x, w, _ = bound.sample(problem, seed)
    x *= 2.0**-rng.integers(0, spread + 1, x.shape)
    w *= 2.0**-rng.integers(0, spread + 1, w.shape)
    multiply = by_three if rounding.splits else np.matmul
    y = tiled(problem, x[0], w, rounding.tile, multiply)[None]
    assert bound.compare(y, bound.expected(problem, x, w, rounding=rounding)).ok


def test_large_neighbours_take_tiles_beyond_the_bound_of_a_sum():
    # A tile's outputs share its largest input, which those that do not meet it must cancel.
    problem = parse_problem("n1c1h6w6_o1k3")
    x, w, _ = bound.sample(problem, 2)
    x[0, 0, 3, 3] = 2.0**20
    for rounding in TILED:
        y = tiled(problem, x[0], w, rounding.tile)[None]
        accuracy = bound.compare(y, bound.expected(problem, x, w, rounding=rounding))
        assert accuracy.ok
        assert (accuracy.of_sum > 100) == (rounding.tile == 4)
    assert not bound.compare(y, bound.expected(problem, x, w)).ok


@pytest.mark.parametrize("rounding", [SPLIT, Rounding("tf32x3", 5), *TILED], ids=str)
@pytest.mark.parametrize("parts", ["", "_bias_silu", "_bias_relu_residual", "_hardswish"])
def test_an_error_just_above_a_bound_is_caught(rounding, parts):
    problem = parse_problem(f"n2c16h6w5_o3k3p1{parts}")
    inputs = bound.sample(problem, 4)
    wanted = bound.expected(problem, *inputs, rounding=rounding)
    usual = bound.expected(problem, *inputs)
    assert np.array_equal(wanted.of_sum, usual.bound)
    for share, ok in ((0.999, True), (1.001, False)):
        for sign in (1, -1):
            y = wanted.y.copy()
            y[1, 2, 3, 4] += sign * share * wanted.bound[1, 2, 3, 4]
            accuracy = bound.compare(y, wanted)
            assert (accuracy.ok, accuracy.where) == (ok, (1, 2, 3, 4))
            assert accuracy.share == pytest.approx(share)
            assert bound.judge(np, problem, inputs, y, rounding) == accuracy
            assert ok or f"the bound of {rounding.arithmetic})" in str(accuracy)


@pytest.mark.parametrize("share", [0.95, 1.05])
def test_a_plan_is_held_to_the_bound_of_its_own_arithmetic(share):
    problem = parse_problem("n1c32h4w4_o8k1")
    plain = GemmTiling(**TILING.as_dict() | {"arithmetic": "plain"})
    for tiling in (TILING, plain):
        plan = plan_of(problem, tiling, 32)
        x, w, _ = bound.sample(problem, 0)
        wanted = bound.expected(problem, x, w, rounding=rounding_of(plan))

        def planted(*operands, y=wanted.y + share * wanted.bound):
            operands[-1][...] = y

        assert check_kernel(plan, planted, x, w, None).ok == (share < 1)
    # What the one may err is wrong of the other.
    wide = bound.expected(problem, x, w, rounding=SPLIT)
    assert not check_kernel(plan, partial(_write, wide.y + 0.95 * wide.bound), x, w, None).ok


def _write(y, *operands):
    operands[-1][...] = y


def test_a_weight_gradient_is_held_to_the_chain_of_its_plan():
    from dscore.algorithms.split_k.tiling import SplitKTiling

    problem = parse_problem("weight_gradient_n64c32h28w28_o32k1")
    tiling = SplitKTiling(32, 16, 16, 16, 8, 1, 16, 3, 49, False, "tf32x3")
    rounding = rounding_of(plan_of(problem, tiling, 32))
    # Of 64 · 784 pixels each part has 1024, in 64 steps of 16; one slice, one block of a cluster.
    assert rounding == ("tf32x3", 16 + 64 + 1 + 1 + 49)
    assert rounding.relative(64 * 784) < SPLIT.relative(64 * 784) / 300
