"""Winograd's algorithm: the identity that its transforms state, and the layers that permit it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dscore.core.token import parse_problem, problem_token
from dscore.core.winograd import KERNEL, TILES, transforms


def matrices(m):
    return (np.array(matrix, dtype=object) for matrix in transforms(m))


@pytest.mark.parametrize("m", TILES)
def test_one_dimension_is_exact_for_each_pair_of_an_input_and_a_tap(m):
    # Both sides are linear in the input and in the filter, so that unit vectors prove the identity.
    bt, g, at = matrices(m)
    for i, x in enumerate(np.eye(m + KERNEL - 1, dtype=int)):
        for tap, w in enumerate(np.eye(KERNEL, dtype=int)):
            assert list(at @ ((g @ w) * (bt @ x))) == [i == output + tap for output in range(m)]


@given(st.sampled_from(TILES), st.data())
def test_a_tile_of_whole_numbers_is_exact(m, data):
    whole = st.integers(-2**40, 2**40)
    size = m + KERNEL - 1
    x = data.draw(arrays(object, (size, size), elements=whole))
    w = data.draw(arrays(object, (KERNEL, KERNEL), elements=whole))
    bt, g, at = matrices(m)
    y = at @ ((g @ w @ g.T) * (bt @ x @ bt.T)) @ at.T
    direct = [[(x[i:i + KERNEL, j:j + KERNEL] * w).sum() for j in range(m)] for i in range(m)]
    assert y.tolist() == direct


def test_winograd_is_a_permission_of_layers_that_it_has_tiles_for():
    token = "n1c64h56w56_o64k3p1_relu_winograd"
    problem = parse_problem(token)
    assert (problem.spec.arithmetic, problem_token(problem)) == ("winograd", token)
    assert problem.permitting("sum") == parse_problem("n1c64h56w56_o64k3p1_relu")
    assert problem.permitting("sum").permitting("winograd") == problem
    for other in ("n1c8h9w9_o8k1", "n1c8h9w9_o8k3s2", "n1c8h9w9_o8k3d2", "n1c8h9w9_o8k3x1",
                  "n1c8h9w9_o8k3g2", "n1c8h9w9_o8k3g8"):
        assert parse_problem(f"{other}_winograd") == parse_problem(other)
    gradient = parse_problem("weight_gradient_n1c8h9w9_o8k3")
    assert gradient.permitting("winograd") == gradient
