"""The implicit product of matrices of both layouts: its rules admit the kernels that exist and no
others, its sums are in the documented order, and it serves what networks have."""

from functools import reduce
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import plan_of
from profiles import deep, examples, mostly_deep

from dscore.algorithms.implicit_gemm_universal.tiling import ImplicitGemmUniversalTiling
from dscore.algorithms.registry import case_of, running
from dscore.backends.reference.backend import ReferenceBackend
from dscore.backends.reference.gemm_lanes import halves
from dscore.backends.reference.implicit_gemm_universal_lanes import lanes_of
from dscore.core import catalog
from dscore.core.errors import LaunchError
from dscore.core.numerics import FLOAT_ARITHMETICS
from dscore.core.token import parse_problem
from dscore.solving.rules import keeps_all
from dscore.solving.solver import best_plan, solve

FREE = st.builds(
    ImplicitGemmUniversalTiling, tile_c=st.sampled_from([8, 12, 16, 48]),
    tile_p=st.sampled_from([8, 16, 24, 32, 64]), wave_c=st.sampled_from([4, 8, 12, 16]),
    wave_p=st.sampled_from([8, 16, 24, 32, 64]), lanes_c=st.sampled_from([1, 4, 6, 8, 16, 64]),
    slices=st.integers(1, 3), step_c=st.sampled_from([3, 4, 8, 12, 24]), stages=st.integers(1, 4),
    patch=st.sampled_from([35, 36, 64]), cluster=st.integers(1, 9),
    arithmetic=st.sampled_from(FLOAT_ARITHMETICS))
SIXTEEN, WHOLE = (parse_problem(f"n1c16h4w4_o8k3p1_{of}") for of in ("float16", "nhwc"))


@st.composite
def sound(draw):
    """Tilings of whole wavefronts and slices, of wavefronts of 32 or 64."""
    arithmetic = draw(st.sampled_from(FLOAT_ARITHMETICS))
    wavefront = draw(st.sampled_from([32, 64]))
    units = arithmetic != "plain"
    lanes_c = 8 if units else draw(st.sampled_from([4, 8, 16]))
    wave_c = (wavefront // 4 if units else lanes_c) * draw(st.integers(1, 2))
    wave_p = (16 if units else wavefront // lanes_c) * draw(st.integers(1, 2))
    slices = draw(st.integers(1, 2))
    return ImplicitGemmUniversalTiling(
        wave_c * draw(st.integers(1, 2)), wave_p * draw(st.integers(1, 2)), wave_c, wave_p, lanes_c,
        slices, slices * 4 * draw(st.integers(1, 2)), draw(st.integers(1, 3)),
        draw(st.sampled_from([35, 36])), draw(st.integers(1, 2)), arithmetic)


def exists(problem, t, device):
    """Whether the kernel's assertions hold, the reference's copy of them, and the device can."""
    plan = plan_of(problem, t, device.wavefront)
    try:
        lanes_of(plan)
    except LaunchError:
        return False
    own = "matrix16" if problem is SIXTEEN else "tf32x3"
    able = {"gfx90a": {"matrix16"}, "a100": {"matrix16", "tf32x3"}, "h200": {"matrix16", "tf32x3"}}
    modern = device.name in ("a100", "h200")
    return (plan.use.threads <= device.threads_per_block
            and t.cluster <= (8 if device.name == "h200" else 1)
            # The 6 x 6 rows of an image with its padding, where a tile takes all of it.
            and t.patch >= (36 if t.tile_p >= 16 else 22) and (modern or t.stages <= 2)
            and t.arithmetic in ({own} & able.get(device.name, set())) | {"plain"})


@pytest.mark.parametrize("problem", [SIXTEEN, WHOLE], ids=["float16", "nhwc"])
@pytest.mark.parametrize("name", mostly_deep(
    ["z100sm", "gfx90a", "a100", "h200"], "z100sm", "h200"))
@settings(max_examples=examples(150))
@given(t=st.one_of(FREE, sound()))
def test_the_rules_are_the_kernels_assertions(name, problem, t):
    device = catalog.device(name)
    case = case_of(problem, device, t)
    assert bool(keeps_all(case, "hardware", masked=True, legality=True)) == exists(
        problem, t, device)


def test_it_runs_what_direct_ran_alone():
    kinds = {"n1c8h9w9_o8k3p1": "implicit_gemm", "n1c8h9w9_o8k3p1_nhwc": "implicit_gemm_universal",
             "n1c8h9w9_o8k3p1g2_float16": "implicit_gemm_universal",
             "n1c8h9w9_o8k1g4_bfloat16_nhwc": "implicit_gemm_universal",
             "n1c8h9w9_o8k3p1g8_float16": None}
    for token, name in kinds.items():
        able = [one.name for one in running(parse_problem(token)) if "implicit" in one.name]
        assert able == ([name] if name else [])


NAME = "implicit_gemm_universal"


@pytest.mark.parametrize("token", [
    "n1c3h224w224_o32k3s2p1", "n8c3h224w224_o24k3s2p1", "n64c3h224w224_o64k7s2p3",
    "n64c64h56w56_o64k3p1", "n1c512h7w7_o512k3p1", "n8c128h56w56_o128k3p1g32",
    "n8c1024h7w7_o1024k3p1g32"])
@pytest.mark.parametrize("of", ["float16", "bfloat16_nhwc", "nhwc"])
@pytest.mark.parametrize("name", ["z100sm", "gfx90a", "h200"])
def test_it_serves_networks_first_layers_dense_ones_and_groups(name, of, token):
    problem, device = parse_problem(f"{token}_{of}"), catalog.device(name)
    first = "stem" if (name, of, "c3h" in token) == ("h200", "bfloat16_nhwc", True) else NAME
    assert solve(problem, device).algorithm.name == first
    plan = best_plan(problem, device, among=(NAME,))
    # Fours of three channels, and halves of fragments of four output channels, are the emptiest.
    assert plan.cost.utilisation > (0.2 if problem.spec.groups == 32 else 0.5)
    units = {"z100sm": "plain", "gfx90a": "plain" if of == "nhwc" else "matrix16",
             "h200": "tf32x3" if of == "nhwc" else "matrix16"}[name]
    assert plan.tiling.arithmetic in (units, "plain" if problem.spec.groups == 32 else units)


PLAIN = ImplicitGemmUniversalTiling(16, 32, 8, 16, 8, 2, 8, 2, 200)


def fl(value):
    return np.float32(value)


def fragments(t, channels, taps, fragment):
    """The channels and taps of each block of a cluster, of each slice, of each of its steps, by
    fragments; those past the last as well."""
    steps, own = -(-channels // t.step_c), t.step_c // t.slices
    across = next(size for size in (fragment, fragment // 2, 4) if own % size == 0)
    together, per_block = fragment // across, -(-steps // t.cluster)
    for rank in range(t.cluster):
        mine = range(steps)[rank * per_block:(rank + 1) * per_block]
        yield [[[[(c + i, tap + further) for further in range(together) for i in range(across)]
                 for c in range(first, first + own, across) for tap in range(0, taps, together)]
                for first in (step * t.step_c + part * own for step in mine)]
               for part in range(t.slices)]


def summed(arithmetic, step, a, b, total):
    """*total* and the products of a step's fragments; what lies past the last is zero."""
    def of(part, c, tap):
        return part[c, tap] if c < part.shape[0] and tap < part.shape[1] else fl(0)

    if arithmetic != "tf32x3":
        for fragment in step:
            for c, tap in fragment:
                total = fl(total + fl(of(a, c, tap) * of(b, c, tap)))
        return total
    parts_a, parts_b, apart = halves(a), halves(b), fl(0)
    for fragment in step:
        for small_a, small_b in ((1, 0), (0, 1), (0, 0)):
            # Of pairs, which lanes hold, the first ones and then the second.
            for c, tap in fragment[::2] + fragment[1::2]:
                apart = fl(apart + of(parts_a[small_a], c, tap) * of(parts_b[small_b], c, tap))
    return fl(total + apart)


@pytest.mark.parametrize("token", [deep("n2c37h4w5_o5k3p1"), "n1c24h4w4_o6k2x3s3x1p1g2"])
@pytest.mark.parametrize(("of", "fields"), [
    ("nhwc", {}), ("nhwc", {"slices": 1, "cluster": 2, "stages": 4}),
    ("nhwc", {"arithmetic": "tf32x3", "step_c": 16}),
    ("nhwc", {"arithmetic": "tf32x3", "step_c": 4, "slices": 1, "cluster": 2}),
    ("float16", {"lanes_c": 4, "slices": 1, "stages": 1}),
    *(("bfloat16_nhwc" if step > 8 else "float16",
       {"arithmetic": "matrix16", "slices": 1, "step_c": step, "cluster": step // 4})
      for step in (4, 8, 16))])
def test_it_adds_in_the_documented_order(token, of, fields):
    t = ImplicitGemmUniversalTiling(**{**PLAIN.as_dict(), **fields})
    plan = plan_of(parse_problem(f"{token}_{of}"), t, 32)
    spec, element = plan.problem.spec, plan.problem.spec.element.numpy
    rng = np.random.default_rng(5)
    x, w = (rng.standard_normal(shape, np.float32).astype(element)
            for shape in (plan.problem.x_shape, spec.w_shape))
    out = np.full(plan.problem.y_shape, np.nan, element)
    ReferenceBackend().compile(plan)(x, w, None, out)
    fragment = {"plain": 4, "tf32x3": 8, "matrix16": 16}[t.arithmetic]
    planes = [fl(one) if "nhwc" not in of else fl(one).transpose(0, 3, 1, 2) for one in (x, out)]
    padded = np.pad(planes[0], ((0, 0), (0, 0), *((1, 1) for _ in "hw")))
    for n, o, row, column in product(*map(range, planes[1].shape)):
        first = o // spec.group_out * spec.group_in
        top, left = row * spec.stride[0], column * spec.stride[1]
        under = padded[n, first:first + spec.group_in, top:top + spec.kernel[0],
                       left:left + spec.kernel[1]].reshape(spec.group_in, -1)
        filters, blocks = fl(w[o]).reshape(spec.group_in, -1), []
        for slices in fragments(t, spec.group_in, under.shape[1], fragment):
            blocks.append(reduce(np.add, [
                reduce(lambda total, step, of_tap=under, by=filters: summed(
                    t.arithmetic, step, of_tap, by, total), steps, fl(0)) for steps in slices]))
        assert planes[1][n, o, row, column] == fl(reduce(np.add, blocks).astype(element))
