"""Weight gradients of 16 bits whose result is float32: the sums of kernels as they are, unrounded.

Rounded to the images' type they are the very bits of the kernel whose result is of that.
"""

from dataclasses import replace

import numpy as np
import pytest
from emulated_runs import altered, reports_of, result
from profiles import deep
from refusals import needs

from dscore.backends.emulated import EmulatedBackend
from dscore.backends.reference.backend import ReferenceBackend
from dscore.core import catalog
from dscore.core.errors import SpecError
from dscore.core.token import parse_problem
from dscore.ops import operands_of
from dscore.solving.solver import make_plan, solve

DEPTHWISE, POINTWISE = "n3c16h20w20_o16k3p1g16_{}", "n8c40h6w6_o72k1_{}"
FEW = "n1c16h6w6_o16k3p1g16_{}_nhwc"  # products, whose bound is less than a rounding to 16 bits
FIRST = "n3c3h40w32_o32k3s2p1_{}_nhwc"
# Results of the kernel itself, of blocks of a cluster, and of a kernel that adds slices or parts.
CASES = {
    "channel_sums": (DEPTHWISE + "_nhwc", {"slices": 1, "cluster": 1}),
    "channel_sums, a cluster": (DEPTHWISE + "_nhwc", {"slices": 1, "cluster": 2}),
    "channel_sums, slices": (DEPTHWISE + "_nhwc", {"slices": 2, "cluster": 1}),
    "channel_sums, few": (FEW, {"slices": 1, "cluster": 1}),
    "channel_sums, few slices": (FEW, {"slices": 2, "cluster": 1}),
    "channel_sums, matrix units": (DEPTHWISE + "_nhwc", {"arithmetic": "matrix16"}),
    "tap_sums": (DEPTHWISE, {"slices": 1}),
    "tap_sums, slices": (DEPTHWISE, {"slices": 3}),
    "stem_sums": (FIRST, {"slices": 1}),
    "stem_sums, slices": (FIRST, {"slices": 3}),
    "gemm_universal": (POINTWISE + "_nhwc", {"parts": 1}),
    "gemm_universal, parts": (POINTWISE + "_nhwc", {"parts": 2}),
    "warpgroup_gemm": (POINTWISE + "_nhwc", {"parts": 1, "cluster": 1}),
    "warpgroup_gemm, a cluster": (POINTWISE + "_nhwc", {"parts": 1, "cluster": 2}),
    "warpgroup_gemm, parts": (POINTWISE + "_nhwc", {"parts": 2}),
    "direct": (POINTWISE, {}),
}

SUMMED_LATER = ["tap_sums, slices", "gemm_universal, parts"]


def planned(name, dtype="float16"):
    token, fields = CASES[name]
    problem = parse_problem(f"weight_gradient_{token.format(f'{dtype}_outfloat32')}")
    device = catalog.device("h200")
    space = solve(problem, device, algorithm=name.partition(",")[0])
    if "arithmetic" in fields:
        return space.having(**fields).plan(0)
    return make_plan(problem, device, replace(space[0], **fields))


def narrow_of(plan):
    """The plan of the same tiling whose result is of the images' type."""
    problem = plan.problem
    own = replace(problem, spec=problem.spec.with_own_result())
    return make_plan(own, plan.device, plan.tiling)


def require_the_same_sums(backend, plan):
    wide, narrow = result(backend, plan), result(backend, narrow_of(plan))
    assert wide.dtype == np.float32
    assert np.array_equal(wide.astype(narrow.dtype), narrow)
    assert not np.array_equal(wide, narrow.astype(np.float32))  # which have been rounded


@pytest.mark.parametrize("name", CASES)
def test_the_reference_gives_the_sums_that_others_round(name):
    require_the_same_sums(ReferenceBackend(), planned(name))


@needs(EmulatedBackend())
@pytest.mark.parametrize(("dtype", "names"), [
    ("float16", SUMMED_LATER), deep("float16", [*CASES]), deep("bfloat16", [*CASES])],
    ids=["summed later", "float16", "bfloat16"])
def test_kernels_give_the_bits_of_the_reference(dtype, names):
    plans = [planned(name, dtype) for name in names]
    emulated = EmulatedBackend()
    emulated.prepare([*plans, *map(narrow_of, plans)])
    for plan in plans:
        assert np.array_equal(result(emulated, plan), result(ReferenceBackend(), plan)), plan.name
        require_the_same_sums(emulated, plan)


@needs(EmulatedBackend())
@pytest.mark.parametrize(("name", "source", "right"), [
    deep("channel_sums, few slices", "tap_sums/parts.hpp", "static_cast<Result>(sum)"),
    deep("channel_sums, few", "channel_sums/block.hpp", "static_cast<Result>(sum)"),
    ("gemm_universal, parts", "split_k/sum.hpp", "static_cast<T>(sums.at[i])")])
def test_a_sum_that_was_rounded_is_caught(name, source, right, tmp_path, monkeypatch):
    wrong = f"static_cast<float>(static_cast<float16>({right.partition('(')[2]})"
    copy = altered(tmp_path, source, right, wrong)
    for report in reports_of(planned(name), copy, monkeypatch).values():
        assert "WRONG" in report


def test_what_overflows_16_bits_is_finite():
    plan = planned("channel_sums")
    x, gradient = (np.full(one.shape, 60.0, one.element.numpy)
                   for one in operands_of(plan.problem)[:2])
    wide, narrow = np.empty((16, 1, 3, 3), np.float32), np.empty((16, 1, 3, 3), np.float16)
    ReferenceBackend().compile(plan)(x, gradient, wide)
    ReferenceBackend().compile(narrow_of(plan))(x, gradient, narrow)
    assert wide[0, 0, 1, 1] == 3 * 20 * 20 * 3600
    assert np.isinf(narrow).all()


@pytest.mark.parametrize(("token", "says"), [
    ("n1c8h5w5_o4k1_float16_outfloat32", "out_dtype is float32 for conv of float16"),
    ("input_gradient_n1c8h5w5_o4k1_bfloat16_outfloat32", "for input_gradient of bfloat16"),
    ("mean_n1c8h5w5_o8k1_float16_outfloat32", "for mean of float16"),
    ("weight_gradient_n1c8h5w5_o4k1_outfloat16", "out_dtype is float16 for a layer of float32")])
def test_others_are_refused_by_name(token, says):
    with pytest.raises(SpecError, match=says):
        operands_of(parse_problem(token))
