"""Launches that ask for more LDS than their blocks use, on a GPU whose blocks come early: they
start, and results are right. The emulated device and other GPUs ask for nothing."""

import pytest
from refusals import needs

from dscore.algorithms.registry import algorithm_of
from dscore.backends.hip import HipBackend
from dscore.checking.check import check_plan
from dscore.core.token import parse_problem
from dscore.solving.solver import solve

HIP = HipBackend()
pytestmark = [
    needs(HIP),
    pytest.mark.skipif(HIP.missing() is None and not HIP.device().early_start,
                       reason="blocks do not come early on this GPU")]

# LDS of blocks that is declared, and that a launch passes; both algorithms.
LAYERS = ["n32c480h14w14_o480k3p1g480_float16_nhwc_bias_relu",
          "n32c240h28w28_o240k3s2p1g240_bfloat16_nhwc",
          "n32c184h14w14_o184k5p2g184_int8_nhwc_bias",
          "n32c80h14w14_o184k1_int8_nhwc_bias",
          "n32c120h28w28_o40k1_int8_nhwc_bias_scaled_residual",
          "input_gradient_n32c480h14w14_o480k3p1g480_float16_nhwc"]


@pytest.mark.parametrize("token", LAYERS)
def test_every_result_is_right(token):
    problem = parse_problem(token)
    space = solve(problem, HIP.device())
    plans = (space.plan(int(at)) for at in space.ranked()[:200])
    asking = [plan for plan in plans
              if algorithm_of(plan.tiling).asked_lds_bytes(plan, behind=False)]
    assert asking, token
    for plan in asking[:3]:
        assert check_plan(HIP, plan, 0).ok, plan.name
