"""Codes of limits: each has a configuration that exceeds it, and is reported with its numbers."""

import pytest

from dscore.algorithms import registry
from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling
from dscore.algorithms.channel_vectors.tiling import ChannelVectorsTiling
from dscore.algorithms.gate.tiling import GateTiling
from dscore.algorithms.gemm.tiling import GemmTiling
from dscore.algorithms.gemm_universal.tiling import GemmUniversalTiling
from dscore.algorithms.image_gemm.tiling import ImageGemmTiling
from dscore.algorithms.implicit_gemm.tiling import ImplicitGemmTiling
from dscore.algorithms.implicit_warpgroup.tiling import ImplicitWarpgroupTiling
from dscore.algorithms.plane_gemm.tiling import PlaneGemmTiling
from dscore.algorithms.row_reuse.tiling import RowReuseTiling
from dscore.algorithms.split_k.tiling import SplitKTiling
from dscore.algorithms.tap_sums.tiling import TapSumsTiling
from dscore.algorithms.warpgroup_gemm.tiling import WarpgroupGemmTiling
from dscore.algorithms.warpgroup_tf32.tiling import WarpgroupTf32Tiling
from dscore.algorithms.winograd.tiling import WinogradTiling
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.rules import limits_of
from dscore.solving.verdict import validate

Z100SM, H200 = catalog.device("z100sm"), catalog.device("h200")
P28 = catalog.layers()["P28"]
TEMPLATE = ChannelDistributionTiling(1, 64, 1, 4, 16)


def line_of(verdict, code):
    return next(line for line in str(verdict).splitlines() if line.endswith(code))


def _gradient(name):
    [layer] = catalog.find(name)
    return layer.problem


IMAGES, LONG = map(parse_problem, ("n2c72h12w14_o40k1_float16", "n1c136h1w251_o64k1_float16"))
D1, LAST = catalog.layers()["D1"], parse_problem("n1c8h9w9_o8k3p1g8_nhwc")
WEIGHTS, TAPS = _gradient("weight_gradient:P28"), _gradient("weight_gradient:D1")
HALVES, PLANES = map(parse_problem, ("n1c64h9w9_o144k1_float16_nhwc", "n2c8h8w2_o8k1_float16"))
ROWS = parse_problem("n1c8h14w14_o8k7p3g8_float16")
VGG = catalog.layers()["VGG-1"].permitting("winograd")
WINOGRAD = (32, 32, 16, 32, 8, 8, 8, 2, 1, 8, 8)
# One configuration for every code: (problem, device, tiling, block_n).
BROKEN = {
    "E-LDS": (P28, Z100SM, TEMPLATE, 2),
    "E-VGPR": (P28, Z100SM, ChannelDistributionTiling(7, 640, 1, 2, 32), 1),
    "E-THREADS": (P28, Z100SM, ChannelDistributionTiling(1, 4, 1, 20, 16), 1),
    "E-WAVES": (P28, Z100SM, ChannelDistributionTiling(1, 4, 1, 4, 16), 11),
    "E-DIV-W": (P28, Z100SM, ChannelDistributionTiling(2, 64, 1, 1, 16), 1),
    "E-DIV-C": (P28, Z100SM, ChannelDistributionTiling(1, 48, 1, 1, 16), 1),
    "E-GROUP": (P28, Z100SM, ChannelDistributionTiling(1, 64, 1, 1, 5), 1),
    "E-DIV-G": (parse_problem("n1c24h7w7_o64k1"), Z100SM,
                ChannelDistributionTiling(1, 64, 1, 1, 16), 1),
    "E-LANES": (P28, Z100SM, ChannelDistributionTiling(1, 5, 1, 1, 16), 1),
    "E-SHUFFLE": (D1, Z100SM, RowReuseTiling(1, 1, 1, 7, 1, column_reuse=True), 1),
    "E-BANDS": (LAST, H200, ChannelVectorsTiling(4, 8, 2, 2, 1, 2, bands=5), 1),
    "E-MATRIX": (LAST, H200, ChannelVectorsTiling(8, 1, 2, 8, 1, 2, arithmetic="matrix16"), 1),
    "E-WORD": (parse_problem("n1c8h9w9_o8k3p1g8_int8_nhwc"), Z100SM,
               ChannelVectorsTiling(2, 8, 2, 2, 1, 2), 1),
    "E-REUSE": (D1, Z100SM, RowReuseTiling(1, 1, 1, 128, 1, "lds", column_reuse=True), 1),
    "E-PAIRS": (ROWS, H200, RowReuseTiling(5, 4, 3, 4, 2, "lds", arithmetic="matrix16"), 1),
    "E-WINDOW": (ROWS, H200, RowReuseTiling(4, 4, 4, 4, 2, "lds", arithmetic="matrix16"), 1),
    "E-BOTH": (parse_problem("n1c8h7w7_o8k3p1g8_int8_outfloat32"), Z100SM,
               RowReuseTiling(7, 7, 1, 1, 8, "both"), 1),
    "E-TABLE": (LAST, H200, ChannelVectorsTiling(4, 8, 2, 2, 1, 2, banked=True), 1),
    "E-AHEAD": (D1, Z100SM, RowReuseTiling(7, 1, 1, 128, 1, "lds", ahead=True), 1),
    "E-SPAN": (D1, Z100SM, RowReuseTiling(1, 1, 1, 64, 1, "both"), 1),
    "E-SPAN-H": (D1, Z100SM, RowReuseTiling(7, 1, 2, 128, 2, "lds"), 1),
    "E-VGPR-MAX": (P28, Z100SM, ChannelDistributionTiling(7, 128, 1, 1, 16), 1),
    "E-VGPR-ALLOC": (P28, Z100SM, ChannelDistributionTiling(1, 64, 1, 5, 16), 4),
    "E-LDS-BLOCK": (P28, H200, ChannelDistributionTiling(7, 160, 1, 8, 32), 1),
    "E-LDS-ALLOC": (P28, Z100SM, TEMPLATE, 2),
    "E-ROWS": (catalog.layers()["D26"], Z100SM, RowReuseTiling(16, 2, 2, 2, 4, "lds"), 1),
    "E-COLUMNS": (parse_problem("n1c8h1w1000_o8k1x3d1x150g8"), Z100SM,
                  RowReuseTiling(1, 1, 1, 64, 1), 1),
    "E-CODE": (D1, Z100SM, RowReuseTiling(30, 8, 1, 8, 1), 1),
    "E-BAND": (parse_problem("n1c25h28w28_o25k3s2p2g25_int8_nhwc"), Z100SM,
               ChannelVectorsTiling(8, 4, 14, 4, 1, 4), 1),
    "E-TILE": (P28, H200, GemmTiling(40, 64, 32, 32, 4, 1, 16, 3), 1),
    "E-FRAGMENT": (P28, H200, GemmTiling(32, 24, 32, 24, 8, 1, 16, 3, 1, "tf32x3"), 1),
    "E-SLICE": (P28, H200, GemmTiling(32, 64, 32, 32, 8, 4, 16, 3, 1, "tf32x3"), 1),
    "E-STAGES": (P28, Z100SM, GemmTiling(32, 64, 32, 64, 8, 1, 16, 3), 1),
    "E-CLUSTER": (P28, Z100SM, GemmTiling(32, 64, 32, 64, 8, 1, 16, 2, 2), 1),
    "E-SHARERS": (parse_problem("gate_n1c8h9w9_o4k1"), H200, GateTiling(64, 4, 3), 1),
    "E-SPLIT": (P28, Z100SM, GemmTiling(32, 64, 32, 64, 8, 1, 16, 2, 1, "tf32x3"), 1),
    "E-BLOCKS": (P28, H200, ChannelDistributionTiling(1, 4, 1, 1, 8), 33),
    "E-UNIT": (_gradient("input_gradient:D25"), Z100SM, RowReuseTiling(1, 2, 1, 64, 1), 1),
    "E-VECTOR": (WEIGHTS, Z100SM, SplitKTiling(32, 18, 32, 18, 8, 1, 16, 2), 1),
    "E-PARTS": (WEIGHTS, Z100SM, SplitKTiling(32, 32, 32, 32, 8, 1, 16, 2, 2**16), 1),
    "E-PLANES": (WEIGHTS, Z100SM, SplitKTiling(32, 32, 32, 32, 8, 1, 16, 2, planes=True), 1),
    "E-SLICES": (TAPS, Z100SM, TapSumsTiling(7, 7, 4, 16, 1, 1, 1000, 1, 3, 3), 1),
    "E-TAPS": (TAPS, Z100SM, TapSumsTiling(7, 7, 4, 16, 1, 1, 1, 1, 4, 3), 1),
    "E-OUTPUTS": (VGG, Z100SM, WinogradTiling(3, *WINOGRAD), 1),
    "E-DIV-P": (VGG, Z100SM, WinogradTiling(4, *WINOGRAD[:8], 5, 8, 8), 1),
    "E-TASKS": (VGG, Z100SM, WinogradTiling(4, 8, 32, 8, 32, *WINOGRAD[4:-1], 1, groups=2**16), 1),
    "E-LDS-PRODUCT": (VGG, Z100SM, WinogradTiling(4, 128, 128, *WINOGRAD[2:6], 64, 2, 1, 8, 8), 1),
    "E-WORKSPACE": (VGG.with_batch(1024), Z100SM, WinogradTiling(4, *WINOGRAD, fused=False), 1),
    "E-PATCH": (parse_problem("n1c8h9w9_o8k3p1"), Z100SM,
                ImplicitGemmTiling(8, 16, 8, 16, 4, 1, 4, 2, 40), 1),
    "E-STEPS": (P28, H200, WarpgroupTf32Tiling(32, 64, 32, 64, 1, 64, 3, 4), 1),
    "E-TURNS": (parse_problem("n1c32h9w9_o32k3p1"), H200,
                ImplicitWarpgroupTiling(32, 64, 32, 64, 1, 8, 2, 3, 104), 1),
    "E-REPEAT": (parse_problem("n1c64h9w9_o8k1_nhwc"), Z100SM,
                 GemmUniversalTiling(8, 32, 8, 32, 8, 1, 32, 2, repeat=2), 1),
    "E-WARPGROUPS": (HALVES, Z100SM, WarpgroupGemmTiling(64, 64, 64, 2), 1),
    "E-BOX": (HALVES, H200, WarpgroupGemmTiling(320, 64, 64, 2), 1),
    "E-IMAGES": (PLANES, H200, PlaneGemmTiling(64, 8, 2, 64, 2), 1),
    "E-SUMS": (IMAGES, H200, ImageGemmTiling(192, 1, 1, 1, 16, 2), 1),
    "E-GROUPS": (IMAGES, H200, ImageGemmTiling(64, 1, 3, 2, 16, 4), 1),
    "E-IDLE": (IMAGES, H200, ImageGemmTiling(64, 1, 4, 1, 16, 2), 1),
    "E-MAP": (parse_problem("n1c24h8w8_o16k1_int8_nhwc"), H200,
              WarpgroupGemmTiling(64, 16, 128, 2), 1),
    "E-RUN": (LONG, H200, ImageGemmTiling(8, 1, 4, 1, 128, 1), 1),
    "E-MOVERS": (PLANES, H200, PlaneGemmTiling(64, 16, 1, 64, 2, movers=16), 1),
    "E-BOXES": (HALVES, H200, WarpgroupGemmTiling(64, 80, 64, 2), 1),
    "E-SCALE": (parse_problem("n1c64h9w9_o8k1_float16_nhwc_scaled"), Z100SM,
                GemmUniversalTiling(8, 32, 8, 32, 8, 1, 32, 2), 1),
}


def test_every_code_has_its_case():
    assert set(BROKEN) == {limit.code for name in registry.names()
                           for limit in limits_of(registry.algorithm(name), "hardware", False)}


@pytest.mark.parametrize("code", BROKEN)
def test_every_code_is_reported_with_its_numbers(code):
    problem, device, tiling, block_n = BROKEN[code]
    verdict = validate(problem, tiling, device, block_n=block_n)
    broken = next(v for v in verdict.violations if v.code == code)
    assert broken.used > broken.allowed
    check = next(c for c in verdict.ledger if c.code == code)
    assert check.slack == broken.allowed - broken.used < 0
    assert "over by" in line_of(verdict, code)


@pytest.mark.parametrize(("token", "columns"), [
    ("n1c8h1w1000_o8k1x3d1x150g8", 301), ("n1c8h1w1000_o8k1s1x257g8", 257)])
def test_a_thread_goes_over_its_stride_and_its_span(token, columns):
    verdict = validate(parse_problem(token), RowReuseTiling(1, 1, 1, 64, 1), Z100SM)
    assert [(v.code, v.used) for v in verdict.violations] == [("E-COLUMNS", columns)]


def test_codes_are_distinct_within_an_algorithm():
    for name in registry.names():
        codes = [limit.code for limit in limits_of(registry.algorithm(name), "hardware", False)]
        assert len(codes) == len(set(codes))
