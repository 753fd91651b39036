"""What the cost models learned of activations that take long, from tilings timed in MobileNetV3."""

import pytest

import dscore
from dscore.algorithms.warpgroup_gemm.tiling import WarpgroupGemmTiling
from dscore.core import catalog, spec
from dscore.core.token import parse_problem

H200 = catalog.device("h200")
# A pointwise layer of MobileNetV3-Small in NHWC, a tiling, and one that was timed as slower there:
# 3.3 and 4.4 us, 2.9 and 3.5, 3.0 and 3.4. Where activations take nothing it is estimated faster.
LEARNED = [
    ("n32c40h14w14_o240k1", WarpgroupGemmTiling(256, 48, 64, 2, spans=True),
     WarpgroupGemmTiling(64, 80, 64, 4, 3, True, spans=True)),
    ("n32c96h7w7_o576k1", WarpgroupGemmTiling(128, 64, 128, 2),
     WarpgroupGemmTiling(64, 48, 128, 4, 3, True)),
    ("n32c48h14w14_o144k1", WarpgroupGemmTiling(192, 48, 64, 2, spans=True),
     WarpgroupGemmTiling(64, 48, 64, 4, 3, True, spans=True)),
]


def _seconds(layer, tiling):
    return dscore.plan_for(parse_problem(layer), H200, tiling=tiling).cost.seconds


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("layer", "faster", "slower"), LEARNED)
def test_the_slower_tiling_is_estimated_slower_by_its_hardswish(layer, faster, slower, dtype,
                                                               monkeypatch):
    layer = f"{layer}_{dtype}_nhwc_bias_hardswish"
    assert _seconds(layer, faster) < _seconds(layer, slower)
    monkeypatch.setattr(spec, "COSTLY_ACTIVATIONS", ("silu", "sigmoid"))
    assert _seconds(layer, faster) > _seconds(layer, slower)


@pytest.mark.parametrize("layer", ["n32c480h14w14_o480k3p1g480", "n32c80h14w14_o480k1"])
def test_activations_of_many_instructions_take_longer_than_clamps(layer):
    def least(activation):
        problem = parse_problem(f"{layer}_float16_nhwc_{activation}")
        return dscore.solve(problem, H200).least_seconds()

    assert least("relu6") < least("hardswish") == least("silu")
