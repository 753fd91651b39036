"""The rules of the product of matrices admit the kernels that exist, and no others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import plan_of
from profiles import examples, mostly_deep
from reference_runs import gemm_plans

from dscore.algorithms.gemm.tiling import GemmTiling
from dscore.algorithms.registry import case_of
from dscore.backends.reference.gemm_lanes import lanes_of
from dscore.core import catalog
from dscore.core.errors import LaunchError
from dscore.core.numerics import FLOAT32_ARITHMETICS
from dscore.core.token import parse_problem
from dscore.solving.rules import keeps_all

TILINGS = st.builds(
    GemmTiling, tile_c=st.sampled_from([8, 12, 16, 32, 48]),
    tile_p=st.sampled_from([8, 16, 24, 32, 64, 128]), wave_c=st.sampled_from([4, 8, 12, 16]),
    wave_p=st.sampled_from([8, 16, 24, 32, 64]), lanes_c=st.sampled_from([1, 4, 6, 8, 16, 32, 64]),
    slices=st.integers(1, 3), step_c=st.sampled_from([4, 8, 12, 16, 24, 32]),
    stages=st.integers(1, 4), cluster=st.integers(1, 9),
    arithmetic=st.sampled_from(FLOAT32_ARITHMETICS))
SOUND = gemm_plans().map(lambda plan: plan.tiling)


def compiles(t, device):
    """Whether the kernel's assertions hold, the reference's copy of them, and the device can."""
    plan = plan_of(parse_problem("n1c16h4w4_o8k1"), t, device.wavefront)
    try:
        lanes_of(plan)
    except LaunchError:
        return False
    modern = device.name in ("a100", "h100", "h200")
    most = 8 if device.name in ("h100", "h200") else 1
    return (plan.use.threads <= device.threads_per_block and t.cluster <= most
            and (modern or (t.stages == 2 and t.arithmetic == "plain")))


@pytest.mark.parametrize("name", mostly_deep(
    ["z100sm", "gfx90a", "rtx2080ti", "a100", "h200"], "z100sm", "h200"))
@settings(max_examples=examples(500))
@given(t=st.one_of(TILINGS, SOUND))
def test_the_rules_are_the_kernels_assertions(name, t):
    device, problem = catalog.device(name), parse_problem("n1c16h4w4_o8k1")
    case = case_of(problem, device, t)
    assert bool(keeps_all(case, "hardware", masked=True, legality=True)) == compiles(t, device)
