"""Rings whose buffers are filled many times, on a GPU of sm_90: a buffer that is let go too early
makes some results wrong there. The emulated device knows the rule, and no clocks."""

import pytest
from refusals import needs

from dscore.algorithms.warpgroup_gemm.tiling import WarpgroupGemmTiling
from dscore.backends.hip import HipBackend
from dscore.checking.check import check_plan
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

HIP = HipBackend()
pytestmark = [
    needs(HIP),
    pytest.mark.skipif(HIP.missing() is None and not HIP.device().warpgroups,
                       reason="this GPU has no warpgroups")]

# Many short tiles, few buffers; rows of words, of vectors, and of whole sectors.
LONG = [
    ("n64c32h112w112_o16k1_float16_nhwc", (192, 16, 64, 3, 16, True)),
    ("n64c24h56w56_o144k1_float16_nhwc", (64, 144, 64, 2, 12, True)),
    ("n64c40h28w28_o120k1_bfloat16_nhwc", (128, 120, 64, 2, 3, True)),
    ("n64c16h112w112_o48k1_int8_nhwc", (128, 48, 128, 2, 16, True)),
    ("n64c24h56w56_o144k1_int8_nhwc", (64, 144, 128, 2, 8, True))]


@pytest.mark.parametrize(("token", "fields"), LONG)
def test_every_result_is_right(token, fields):
    tiling = WarpgroupGemmTiling(*fields, spans=True)
    plan = make_plan(parse_problem(token), HIP.device(), tiling)
    for seed in range(4):
        assert check_plan(HIP, plan, seed).ok, plan.name
