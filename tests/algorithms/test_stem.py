"""First layers of networks: the rules admit the kernels that exist and no others, what is refused
is refused by name, the sums are in the documented order, and networks' first layers are served."""

from dataclasses import astuple, replace
from functools import reduce
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import plan_of
from profiles import examples

from dscore.algorithms.registry import algorithm, case_of, running
from dscore.algorithms.stem.tiling import StemTiling, copy_of, shape_of, unit_of
from dscore.backends.reference.backend import ReferenceBackend
from dscore.core import catalog
from dscore.core.errors import DscoreError, LaunchError
from dscore.core.token import parse_problem
from dscore.solving.rules import keeps_all
from dscore.solving.solver import best_plan, solve

LAYER = parse_problem("n1c3h5w6_o16k3p1_float16_nhwc")
FREE = st.builds(
    StemTiling, tile_h=st.integers(1, 3), tile_w=st.sampled_from([8, 16, 24, 32]),
    tile_n=st.sampled_from([8, 12, 16, 24, 32]), wave_n=st.sampled_from([4, 8, 12, 16, 32]),
    waves_p=st.integers(1, 40), repeat=st.integers(1, 2))


def exists(t, device):
    """Whether the kernel's assertions hold, by the reference's copy of them, and the device can."""
    plan = plan_of(LAYER, t, 32)
    x, w = (np.zeros(shape, np.float16) for shape in (LAYER.x_shape, LAYER.spec.w_shape))
    try:
        ReferenceBackend().compile(plan)(x, w, None, np.zeros(LAYER.y_shape, np.float16))
    except LaunchError:
        return False
    return device.name == "h200" and plan.use.threads <= device.threads_per_block


@pytest.mark.parametrize("name", ["z100sm", "gfx90a", "h200"])
@settings(max_examples=examples(80))
@given(t=FREE)
def test_the_rules_are_the_kernels_assertions(name, t):
    device = catalog.device(name)
    case = case_of(LAYER, device, t)
    assert bool(keeps_all(case, "hardware", masked=True, legality=True)) == exists(t, device)


@pytest.mark.parametrize(("token", "code"), [
    ("n1c5h9w9_o16k3_float16_nhwc", "E-CHANNELS"), ("n1c3h9w9_o12k3_float16_nhwc", "E-VECTOR"),
    ("n1c3h9w9_o16k1_float16_nhwc", "E-KIND"), ("n1c4h9w9_o16k3g2_float16_nhwc", "E-KIND"),
    ("n1c3h9w9_o16k1x9_float16_nhwc", "E-TAPS"), ("n1c3h9w9_o16k9x1_int8_nhwc", "E-TAPS"),
    ("n1c3h9w9_o16k3_nhwc", "E-DTYPE"), ("n1c3h9w9_o16k3_float16", "E-LAYOUT")])
def test_other_layers_are_refused_by_name(token, code):
    assert code in [one.code for one in algorithm("stem").refuses(parse_problem(token))]


@pytest.mark.parametrize("token", [
    "n1c16h9w9_o16k3p1g16_int8_infloat16_nhwc", "n1c16h9w9_o16k3p1g16_int8_infloat32",
    "n1c16h9w9_o16k1_int8_inbfloat16_nhwc", "n1c16h9w9_o16k3_int8_infloat16_nhwc"])
def test_floats_that_become_integers_are_for_first_layers_and_the_definition(token):
    problem = parse_problem(token)
    integers = replace(problem, spec=replace(problem.spec, in_dtype=None))
    others = [one for one in running(integers) if one.name != "direct"]
    assert others
    assert [one.name for one in running(problem)] == ["direct"]
    for one in others:
        [violation] = one.refuses(problem)
        assert (violation.code, violation.used) == ("E-FLOATS", problem.spec.in_dtype)
    first = parse_problem("n1c3h9w9_o16k3_int8_infloat16_nhwc")
    assert [one.name for one in running(first)] == ["stem", "direct"]


@pytest.mark.parametrize(("token", "copy", "unit"), [
    ("n1c3h9w224_o8k3_float16_nhwc", 8, 8), ("n1c3h9w20_o8k3_float16_nhwc", 4, 4),
    ("n1c3h9w9_o8k3_float16_nhwc", 1, 1), ("n1c4h9w9_o8k3_float16_nhwc", 4, 1),
    ("n1c1h9w8_o8k3_float16_nhwc", 8, 8), ("n1c3h9w224_o8k3_int8_nhwc", 16, 16),
    ("n1c2h9w10_o8k3_int8_nhwc", 4, 2), ("n1c3h9w224_o8k3_int8_infloat16_nhwc", 8, 8),
    ("n1c3h9w224_o8k3_int8_infloat32_nhwc", 4, 4)])
def test_pixels_come_by_as_few_as_are_whole_vectors(token, copy, unit):
    problem = parse_problem(token)
    assert (copy_of(problem), unit_of(problem)) == (copy, unit)
    assert problem.width % unit == 0
    assert unit * problem.spec.in_channels % copy == 0


@pytest.mark.parametrize("token", [
    "n1c3h224w224_o32k3s2p1", "n32c3h224w224_o32k3s2p1", "n64c3h224w224_o64k7s2p3",
    "n8c3h224w224_o24k3s2p1", "n8c3h299w299_o32k3s2", "n64c1h28w28_o32k3", "n16c3h32w32_o64k3p1",
    "n8c3h224w224_o96k4s4"])
@pytest.mark.parametrize("of", ["float16", "bfloat16", "int8"])
def test_networks_first_layers_have_tilings_that_fit(token, of):
    problem, device = parse_problem(f"{token}_{of}_nhwc"), catalog.device("h200")
    space = solve(problem, device, algorithm="stem")
    assert len(space) >= 20
    plan = space.plan(int(space.ranked()[0]))
    assert plan.use.lds_bytes == shape_of(problem, plan.tiling).lds_bytes <= 200_000
    # A fragment of 16 pixels by 8 channels is mostly of those that there are.
    assert plan.cost.utilisation > 0.05
    assert "stem" not in [one.name for one in running(problem, device=catalog.device("gfx90a"))]


def test_what_does_not_suit_goes_to_others():
    for name in ("z100sm", "gfx90a"):
        plan = best_plan(parse_problem("n1c3h224w224_o32k3s2p1_float16_nhwc"), catalog.device(name))
        assert plan.tiling.algorithm == "implicit_gemm_universal"
    with pytest.raises(DscoreError, match="stem does not suit gfx90a"):
        solve(LAYER, catalog.device("gfx90a"), algorithm="stem")


def fl(value):
    return np.float32(value)


@pytest.mark.parametrize(("token", "tiling"), [
    ("n1c3h6w7_o16k3p1_float16_nhwc", (2, 16, 16, 8, 1)),
    ("n1c4h7w9_o8k5x2s2p1_bfloat16_nhwc", (3, 16, 8, 8, 2)),
    ("n1c2h8w9_o8k2x7p3d1x2_float16_nhwc", (1, 16, 8, 8, 1))])
def test_it_adds_in_the_documented_order(token, tiling):
    problem = parse_problem(token)
    spec, element = problem.spec, problem.spec.element.numpy
    rng = np.random.default_rng(7)
    x, w = (rng.standard_normal(shape, np.float32).astype(element)
            for shape in (problem.x_shape, spec.w_shape))
    out = np.full(problem.y_shape, np.nan, element)
    ReferenceBackend().compile(plan_of(problem, StemTiling(*tiling), 32))(x, w, None, out)
    top, bottom, left, right = problem.padding
    padded = np.pad(fl(x[0]), ((top, bottom), (left, right), (0, 0)))
    taps = [*product(*map(range, spec.kernel), range(spec.in_channels))]
    for row, column, o in product(*map(range, out.shape[1:])):
        products = [fl(padded[row * spec.stride[0] + i * spec.dilation[0],
                              column * spec.stride[1] + j * spec.dilation[1], c]
                       * fl(w[o, c, i, j])) for i, j, c in taps]
        assert out[0, row, column, o] == reduce(np.add, products, fl(0)).astype(element)


def test_a_tiling_is_written_and_read():
    t = StemTiling(4, 112, 64, 32, 4)
    assert astuple(t) == (4, 112, 64, 32, 4, 1)
    assert t.computes("matrix16")
    assert not t.computes("plain")
