"""The judgement of a configuration: its numbers, every code, and suggestions that really fit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dscore
from dscore.algorithms import registry
from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling
from dscore.algorithms.channel_vectors.tiling import ChannelVectorsTiling
from dscore.algorithms.direct import DirectTiling
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
from dscore.core.errors import InfeasibleError, SpecError
from dscore.core.token import parse_problem
from dscore.solving.rules import limits_of
from dscore.solving.solver import solve
from dscore.solving.verdict import InvalidTiling, validate

Z100SM, H200 = catalog.device("z100sm"), catalog.device("h200")
P28 = catalog.layers()["P28"]
TEMPLATE = ChannelDistributionTiling(1, 64, 1, 4, 16)


def line_of(verdict, code):
    return next(line for line in str(verdict).splitlines() if line.endswith(code))


@pytest.mark.parametrize("rules", ["paper", "hardware"])
def test_the_template_of_a_refusal(rules):
    verdict = validate(P28, TEMPLATE, Z100SM, rules, block_n=2)
    text = str(verdict)
    assert text.startswith("InvalidTiling: pointwise 320x7x7->1280 on z100sm "
                           "(wavefront 64, 64 KiB LDS per CU)\n")
    assert "wave_w=1 wave_c=64 repeat=(1,4) group_c=16 block_n=2" in text
    assert line_of(verdict, "E-LDS").split() == (
        "shared memory used 32,896 B limit 32,768 B (64 KiB / block_n=2) over by 128 B "
        "Eq. 4 E-LDS").split()
    assert line_of(verdict, "E-VGPR").split() == (
        "registers used 80 limit 128 48 spare Eq. 7 E-VGPR").split()
    nearest = [str(suggestion) for suggestion in verdict.nearest]
    assert "group_c 16->8 (16,448 B, 56 registers)" in nearest
    assert "block_n 2->1 (limit 65,536 B)" in nearest
    assert max(map(len, text.splitlines())) <= 100


def test_a_limit_that_is_met_has_nothing_to_spare():
    verdict = validate(P28, TEMPLATE, Z100SM)
    assert verdict.ok
    assert line_of(verdict, "E-GROUP").split()[:3] == ["group_c", "used", "16"]
    assert "  0 spare  " in line_of(verdict, "E-GROUP")
    assert "over by" not in str(verdict)
    assert " limit 65,536 B (64 KiB)  " in line_of(verdict, "E-LDS")


def test_broken_limits_come_first_in_the_ledgers_order():
    verdict = validate(P28, ChannelDistributionTiling(2, 60, 1, 4, 16), Z100SM, block_n=3)
    lines = verdict.text(every_limit=True).splitlines()
    codes = [line.split()[-1] for line in lines[2:] if " limit " in line]
    broken = [violation.code for violation in verdict.violations]
    kept = [check.code for check in verdict.ledger if check.code not in broken]
    assert len(broken) > 2
    assert codes == broken + kept


def _gradient(name):
    [layer] = catalog.find(name)
    return layer.problem


IMAGES, LONG = map(parse_problem, ("n2c72h12w14_o40k1_float16", "n1c136h1w251_o64k1_float16"))
D1, LAST = catalog.layers()["D1"], parse_problem("n1c8h9w9_o8k3p1g8_nhwc")
WEIGHTS, TAPS = _gradient("weight_gradient:P28"), _gradient("weight_gradient:D1")
HALVES, PLANES = map(parse_problem, ("n1c64h9w9_o144k1_float16_nhwc", "n2c8h8w2_o8k1_float16"))
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
    "E-BOTH": (parse_problem("n1c8h7w7_o8k3p1g8_int8_outfloat32"), Z100SM,
               RowReuseTiling(7, 7, 1, 1, 8, "both"), 1),
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
    "E-TILE": (P28, H200, GemmTiling(40, 64, 32, 32, 4, 1, 16, 3), 1),
    "E-FRAGMENT": (P28, H200, GemmTiling(32, 24, 32, 24, 8, 1, 16, 3, 1, "tf32x3"), 1),
    "E-SLICE": (P28, H200, GemmTiling(32, 64, 32, 32, 8, 4, 16, 3, 1, "tf32x3"), 1),
    "E-STAGES": (P28, Z100SM, GemmTiling(32, 64, 32, 64, 8, 1, 16, 3), 1),
    "E-CLUSTER": (P28, Z100SM, GemmTiling(32, 64, 32, 64, 8, 1, 16, 2, 2), 1),
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
    "E-BOXES": (HALVES, H200, WarpgroupGemmTiling(64, 72, 64, 2), 1),
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


tilings = st.builds(ChannelDistributionTiling, st.integers(1, 9), st.integers(1, 200),
                    st.integers(1, 6), st.integers(1, 6), st.sampled_from(
                        [1, 2, 3, 8, 16, 64, 128]))


@given(tilings, st.sampled_from([P28, catalog.layers()["P1"]]), st.integers(1, 12),
       st.sampled_from(["paper", "hardware"]))
def test_suggestions_fit_and_say_how_they_differ(tiling, problem, block_n, rules):
    verdict = validate(problem, tiling, Z100SM, rules, block_n)
    assert verdict.ok == (not verdict.violations)
    assert verdict.ok <= (not verdict.nearest)
    for suggestion in verdict.nearest:
        require_fitting(verdict, suggestion)
    assert max(map(len, str(verdict).splitlines())) <= 100


def require_fitting(verdict, suggestion):
    """A suggestion fits as it says, and its changes make it of what was judged."""
    assert suggestion.changes
    assert validate(verdict.problem, suggestion.tiling, verdict.device, verdict.rules,
                    suggestion.block_n, suggestion.masked).ok
    changed = {**verdict.tiling.as_dict(), "block_n": verdict.block_n, "masked": verdict.masked}
    for name, old, new in suggestion.changes:
        assert changed[name] == old
        changed[name] = new
    assert changed == {**suggestion.tiling.as_dict(), "block_n": suggestion.block_n,
                       "masked": suggestion.masked}


# An odd number of input channels and of outputs: no group of lanes shares the one and fills the
# other.
unexact = st.builds("n1c{}h{}w{}_o{}k1".format, st.sampled_from([3, 7, 35, 71]), st.integers(1, 25),
                    st.sampled_from([1, 13, 51, 53]), st.sampled_from([1, 7, 23, 41]),
                    ).map(parse_problem)


@settings(max_examples=20)
@given(unexact, st.sampled_from(["z100sm", "h200"]), st.sampled_from(["paper", "hardware"]),
       st.integers(1, 9), st.randoms(use_true_random=False))
def test_what_fits_only_masked_is_suggested_masked(problem, name, rules, block_n, random):
    device = catalog.device(name)
    with pytest.raises(InfeasibleError):
        solve(problem, device, rules, masked=False)
    space = solve(problem, device, rules, algorithm="channel_distribution")
    tiling = space[random.randrange(len(space))]
    verdict = validate(problem, tiling, device, rules)
    assert not verdict.ok
    assert [s.changes for s in verdict.nearest] == [(("masked", False, True),)]
    assert "nearest valid  masked=true (" in str(verdict)
    crowded = validate(problem, tiling, device, rules, block_n)
    assert crowded.nearest
    for suggestion in crowded.nearest:
        assert suggestion.masked
        require_fitting(crowded, suggestion)
    masked = validate(problem, tiling, device, rules, masked=True)
    assert masked.ok
    assert "block_n=1 masked=true\n" in str(masked)


def test_a_tiling_right_only_when_masked():
    problem = "n1c71h23w51_o984k1"
    tiling = dict(wave_w=3, wave_c=64, repeat_w=1, repeat_c=4, group_c=16)
    verdict = dscore.validate(problem, tiling)
    assert [str(s) for s in verdict.nearest] == ["masked=true (33,152 B, 114 registers)"]
    assert dscore.validate(problem, tiling, masked=True).ok


def test_suggestions_for_other_kinds():
    depthwise = validate(D1, RowReuseTiling(1, 1, 1, 31, 4, column_reuse=True),
                         Z100SM)
    assert any("lanes_w 31->32" in str(s) for s in depthwise.nearest)
    staged = validate(D1, RowReuseTiling(1, 1, 1, 64, 1, "lds"), Z100SM)
    assert any("lanes_w 64->" in str(s) for s in staged.nearest)
    direct = validate(parse_problem("n1c3h9w9_o8k3"), DirectTiling(96, 1), Z100SM)
    assert any("threads 96->" in str(s) for s in direct.nearest)


def test_an_invalid_tiling_is_an_infeasible_error_with_the_ledger():
    verdict = validate(P28, TEMPLATE, Z100SM, block_n=2)
    with pytest.raises(InvalidTiling, match="over by 128 B") as caught:
        verdict.require()
    assert isinstance(caught.value, InfeasibleError)
    assert caught.value.verdict is verdict
    with pytest.raises(InvalidTiling, match="E-LANES"):
        dscore.plan_for("P28", tiling=dict(wave_w=1, wave_c=5, repeat_w=1, repeat_c=1, group_c=16))


@pytest.mark.parametrize(("call", "message"), [
    (lambda: dscore.validate("P28", TEMPLATE, block_n=0), "block_n must be positive, got 0"),
    (lambda: dscore.validate("P28", TEMPLATE, rules="strict"), "rules must be one of paper"),
    (lambda: dscore.validate("D1", TEMPLATE), "ChannelDistributionTiling does not run depthwise"),
    (lambda: dscore.validate("P28", TEMPLATE, device="z101"), "z100sm"),
])
def test_bad_questions_are_refused(call, message):
    with pytest.raises(SpecError, match=message):
        call()


@pytest.mark.parametrize("name", sorted(catalog.devices()))
def test_explanations_fit_100_columns(name):
    for layer in ("D1", "D27", "P2", "P28", "VGG-1"):
        text = str(dscore.explain(layer, name, "paper"))
        assert max(map(len, text.splitlines())) <= 100
        assert "floor" in text


@pytest.mark.parametrize("value", [2**17, 10**26])
def test_counts_beyond_all_devices_are_refused(value):
    with pytest.raises(SpecError, match="group_c must be at most 65,536"):
        ChannelDistributionTiling(1, 1, 1, 1, value)
    with pytest.raises(SpecError, match="block_n must be at most 65,536"):
        validate(P28, TEMPLATE, Z100SM, block_n=value)
