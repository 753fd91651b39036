"""What the cost model of warpgroup_gemm learned from tilings that were timed on an H200."""

import pytest

import dscore
from dscore.algorithms.warpgroup_gemm.cost import WEIGHTS
from dscore.algorithms.warpgroup_gemm.tiling import WarpgroupGemmTiling
from dscore.core import catalog
from dscore.core.token import parse_problem

# A weight, a pointwise layer of float16 in NHWC, a tiling, and one that was timed as slower.
LEARNED = [
    ("two", "n32c2048h14w14_o512k1", WarpgroupGemmTiling(64, 128, 64, 8, 3),
     WarpgroupGemmTiling(192, 64, 128, 2)),
    ("two", "n16c1280h28w28_o480k1", WarpgroupGemmTiling(128, 96, 128, 3, 4),
     WarpgroupGemmTiling(192, 80, 128, 2)),
    ("three", "n8c1536h28w28_o960k1", WarpgroupGemmTiling(128, 96, 64, 6, 4),
     WarpgroupGemmTiling(192, 64, 128, 3)),
    ("three", "n8c1152h7w7_o320k1", WarpgroupGemmTiling(64, 80, 128, 4),
     WarpgroupGemmTiling(128, 32, 128, 3)),
    ("large", "n32c384h14w14_o576k1", WarpgroupGemmTiling(64, 144, 64, 6, 3),
     WarpgroupGemmTiling(256, 128, 64, 3)),
    ("large", "n4c640h28w28_o1152k1", WarpgroupGemmTiling(128, 128, 64, 6, 2),
     WarpgroupGemmTiling(256, 128, 64, 3)),
    ("few", "n8c192h7w7_o1152k1", WarpgroupGemmTiling(64, 64, 64, 3),
     WarpgroupGemmTiling(192, 48, 64, 4)),
    ("crowded", "n64c40h28w28_o120k1", WarpgroupGemmTiling(128, 128, 64, 3, 3, True),
     WarpgroupGemmTiling(64, 128, 64, 3, 3, True, spans=True)),
    ("crowded", "n32c40h28w28_o120k1", WarpgroupGemmTiling(64, 128, 64, 2, 3, True),
     WarpgroupGemmTiling(64, 128, 64, 2, 2, True, spans=True)),
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
