"""What the cost model of warpgroup_gemm learned from tilings that were timed on an H200."""

import pytest

import dscore
from dscore.algorithms.warpgroup_gemm.cost import WEIGHTS
from dscore.algorithms.warpgroup_gemm.tiling import WarpgroupGemmTiling
from dscore.core import catalog
from dscore.core.token import parse_problem

# A weight, a pointwise layer of float16 in NHWC, a tiling, and one that was timed as slower.
LEARNED = [
    ("three", "n64c480h7w7_o256k1", WarpgroupGemmTiling(128, 32, 64, 6, 2, True),
     WarpgroupGemmTiling(64, 192, 128, 3)),
    ("three", "n32c144h20w20_o672k1", WarpgroupGemmTiling(128, 64, 64, 6, 9, True),
     WarpgroupGemmTiling(64, 112, 64, 3, 5)),
    ("large", "n32c960h14w14_o960k1", WarpgroupGemmTiling(128, 80, 64, 4, 5),
     WarpgroupGemmTiling(192, 160, 64, 2, 2)),
    ("large", "n4c640h28w28_o1152k1", WarpgroupGemmTiling(64, 64, 128, 8, 7, True),
     WarpgroupGemmTiling(128, 256, 64, 3)),
    ("few", "n32c160h10w10_o320k1", WarpgroupGemmTiling(192, 32, 64, 3, 2, True),
     WarpgroupGemmTiling(64, 128, 128, 4, 2)),
    ("few", "n8c320h7w7_o1280k1", WarpgroupGemmTiling(64, 64, 64, 4),
     WarpgroupGemmTiling(192, 32, 64, 6)),
]


def _seconds(layer, tiling):
    problem = parse_problem(f"{layer}_float16_nhwc")
    return dscore.plan_for(problem, catalog.device("h200"), tiling=tiling).cost.seconds


@pytest.mark.parametrize(("weight", "layer", "faster", "slower"), LEARNED)
def test_the_slower_tiling_is_estimated_slower_by_its_weight(weight, layer, faster, slower,
                                                            monkeypatch):
    assert _seconds(layer, faster) < _seconds(layer, slower)
    monkeypatch.setitem(WEIGHTS, weight, 0.0)
    assert _seconds(layer, faster) > _seconds(layer, slower)
