"""Tap sums: slices, the launch that adds them, and the layers that are tiled."""

import numpy as np
import pytest

from dscore.algorithms.registry import algorithm, case_of
from dscore.algorithms.tap_sums.tiling import TapSumsTiling, shape_of
from dscore.core import catalog
from dscore.core.backend import backend
from dscore.core.token import parse_problem, problem_token
from dscore.solving.rules import keeps_all
from dscore.solving.solver import best_plan, make_plan, solve

H200, GFX906 = catalog.device("h200"), catalog.device("gfx906")


@pytest.mark.parametrize("slices", [1, 3, 4])
def test_two_runs_are_bit_equal_and_slices_differ_by_rounding_alone(slices):
    problem = parse_problem("weight_gradient_n4c3h6w5_o6k3s2p1g3")
    plan = make_plan(problem, H200, TapSumsTiling(3, 3, 1, 1, 2, 1, slices, 2, 3, 3))
    assert (plan.workspace_bytes, len(plan.further_launches)) == (
        (0, 0) if slices == 1 else (4 * slices * 6 * 9, 1))
    rng = np.random.default_rng(slices)
    x, gradient = (rng.integers(-8, 8, shape).astype(np.float32)
                   for shape in (problem.x_shape, problem.y_shape))
    kernel, results = backend("reference").compile(plan), []
    for _ in range(2):
        results.append(np.full(problem.spec.w_shape, np.nan, np.float32))
        kernel(x, gradient, results[-1])
    assert results[0].tobytes() == results[1].tobytes()
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))).repeat(2, axis=1)
    expected = [[(gradient * padded[:, :, f:f + 5:2, g:g + 5:2]).sum((0, 2, 3))
                 for g in range(3)] for f in range(3)]
    np.testing.assert_array_equal(results[0][:, 0], np.moveaxis(np.array(expected), 2, 0))


@pytest.mark.parametrize("token", [
    "weight_gradient_n1c8h40w40_o8k31p15g8",  # tiles of the filter
    "weight_gradient_n2c8h40w4000_o16k31p15g8",  # LDS holds a few rows alone
    "weight_gradient_n1c3h5w6_o3k1x61p0x0x30x30g3",
    "weight_gradient_n4c8h1w1_o8k3p1g8",
    "weight_gradient_n3c5h300w300_o10k7s4p3g5"])
@pytest.mark.parametrize("device", [H200, GFX906], ids=str)
def test_a_layer_of_any_size_has_tilings(token, device):
    plan = best_plan(parse_problem(token), device)
    assert plan.tiling.algorithm == "tap_sums"
    assert keeps_all(case_of(plan.problem, device, plan.tiling), "hardware", masked=True)


def test_rows_that_lds_cannot_hold_are_left_to_the_direct_algorithm():
    plan = best_plan(parse_problem("weight_gradient_n1c3h5w60000_o3k3p1g3"), H200)
    assert plan.tiling.algorithm == "direct"


@pytest.mark.parametrize("layer", ["D1", "D11", "D13", "D30"])
def test_the_units_of_all_slices_cover_the_images(layer):
    problem = parse_problem(f"weight_gradient_{_token(layer)}")
    space = solve(problem, H200, algorithm="tap_sums")
    assert algorithm("tap_sums").footprint(problem, space[0], 32).fmas > 0
    for at in range(0, len(space), 97):
        shape, shares = shape_of(problem, space[at]), space[at].slices * space[at].cluster
        assert shape.unit_slices * shares >= shape.units
        assert (shares - 1) * shape.unit_slices < shape.units  # none has no work


def _token(layer):
    return problem_token(catalog.layers()[layer].with_batch(32))
