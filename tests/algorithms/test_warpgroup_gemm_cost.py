"""What the cost model of warpgroup_gemm learned from tilings that were timed on an H200."""

import pytest

import dscore
from dscore.algorithms.warpgroup_gemm.cost import WEIGHTS
from dscore.algorithms.warpgroup_gemm.tiling import WarpgroupGemmTiling
from dscore.core import catalog
from dscore.core.token import parse_problem

# A weight, a pointwise layer of float16 in NHWC, a tiling, and one that was timed as slower.
LEARNED = [
    ("three", "n8c640h14w14_o768k1", WarpgroupGemmTiling(192, 64, 64, 6),
     WarpgroupGemmTiling(192, 64, 128, 3)),
    ("three", "n8c768h28w28_o192k1", WarpgroupGemmTiling(192, 64, 64, 6),
     WarpgroupGemmTiling(192, 64, 128, 3)),
    ("large", "n32c192h56w56_o256k1", WarpgroupGemmTiling(64, 256, 64, 8, 12, True),
     WarpgroupGemmTiling(128, 256, 64, 4, 6, True)),
    ("large", "n32c192h28w28_o768k1", WarpgroupGemmTiling(192, 128, 64, 4, 6, True),
     WarpgroupGemmTiling(192, 192, 64, 3, 4, True)),
    ("few", "n32c160h7w7_o960k1", WarpgroupGemmTiling(128, 64, 64, 4, 2),
     WarpgroupGemmTiling(64, 128, 64, 6, 2)),
    ("few", "n32c32h14w14_o120k1", WarpgroupGemmTiling(64, 120, 64, 2, spans=True),
     WarpgroupGemmTiling(256, 64, 64, 2, spans=True)),
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
