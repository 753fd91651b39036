"""The solver against brute force written from the rules, and the properties of what it returns."""

import time
from dataclasses import replace
from math import ceil, gcd

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plans import DEVICES
from profiles import DEEP, examples

from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling
from dscore.algorithms.direct import DirectTiling
from dscore.algorithms.gemm.tiling import GemmTiling
from dscore.algorithms.gemm_universal.tiling import GemmUniversalTiling
from dscore.algorithms.implicit_gemm.tiling import ImplicitGemmTiling
from dscore.algorithms.registry import case_of, running
from dscore.algorithms.row_reuse.tiling import RowReuseTiling
from dscore.core import catalog
from dscore.core.errors import InfeasibleError, SpecError
from dscore.core.plan import RULES
from dscore.core.token import parse_problem
from dscore.solving.rules import keeps_all, residency
from dscore.solving.solver import best_plan, make_plan, solve
from dscore.solving.verdict import validate

Z100SM, H200 = catalog.device("z100sm"), catalog.device("h200")
POINTWISE = {name: problem for name, problem in catalog.layers().items()
             if problem.spec.kind == "pointwise"}


def legal_tilings(problem, wavefront=64, most_threads=1024):
    """R1–R5, rule by rule, over every value of every field."""
    height, width = problem.out_height, problem.out_width
    inputs, outputs = problem.spec.in_channels, problem.spec.out_channels
    groups = [2**k for k in range(wavefront.bit_length()) if inputs % 2**k == 0]
    for repeat_w in range(1, most_threads // wavefront + 1):
        across = repeat_w // gcd(height, repeat_w)
        for repeat_c in range(1, most_threads // wavefront // repeat_w + 1):
            for wave_w in range(1, width + 1):
                if width % (across * wave_w):
                    continue
                for wave_c in range(1, outputs + 1):
                    if outputs % (repeat_c * wave_c):
                        continue
                    for group in groups:
                        if wave_c * group % wavefront == 0:
                            yield wave_w, wave_c, repeat_w, repeat_c, group


def spends(tiling, wavefront=64):
    """(LDS bytes, registers, wavefronts) by Eq. 3, 5 and 6, and registers as hipcc takes them."""
    wave_w, wave_c, repeat_w, repeat_c, group = tiling
    waves = repeat_w * repeat_c
    used_s = 4 * (repeat_w * wave_w * group + repeat_c * wave_c * group) * 2
    thread_c = wave_c * group // wavefront
    temp = (ceil(repeat_w * wave_w * group / (waves * wavefront))
            + ceil(repeat_c * wave_c * group / (waves * wavefront)))
    operands = wave_w * thread_c + wave_w + thread_c
    return used_s, operands + temp + 30, waves, operands + 3 * temp + 14


def fits_paper(tiling):
    lds, registers, waves, _ = spends(tiling)
    return lds <= 65536 and registers <= 65536 / (waves * 64)


def fits_gfx906(tiling):
    """The paper's limits, and those of the gfx906: 256 VGPRs in fours, 4 SIMDs, LDS by 512."""
    lds, _, waves, compiled = spends(tiling)
    allocated = -(-compiled // 4) * 4
    return (fits_paper(tiling) and compiled <= 256 and ceil(lds / 512) * 512 <= 65536
            and allocated * ceil(waves / 4) <= 256)


def as_tuple(tiling):
    return tuple(tiling.as_dict().values())


@pytest.mark.parametrize("name", POINTWISE)
def test_the_space_is_the_brute_force_set(name):
    problem = POINTWISE[name]
    legal = set(legal_tilings(problem))
    for rules, fits in (("paper", fits_paper), ("hardware", fits_gfx906)):
        space = solve(problem, Z100SM, rules, masked=False)
        tilings = [as_tuple(tiling) for tiling in space]
        assert len(tilings) == len(set(tilings))
        assert space.legal == len(legal)
        assert set(tilings) == {tiling for tiling in legal if fits(tiling)}


def test_the_counts_of_the_layer_table():
    assert len(POINTWISE) == 45
    spaces = [solve(problem, Z100SM, "paper") for problem in POINTWISE.values()]
    assert sum(space.legal for space in spaces) == 44_288
    assert sum(len(space) for space in spaces) == 35_580


def test_enumeration_is_fast():
    best_of = {}
    for _ in range(3):
        for name, problem in POINTWISE.items():
            began = time.thread_time()
            solve(problem, Z100SM)
            best_of[name] = min(best_of.get(name, 9), time.thread_time() - began)
    assert max(best_of.values()) < 0.010
    assert sum(best_of.values()) < 0.3


def test_what_the_columns_say_is_what_one_tiling_says():
    for problem in (POINTWISE["P13"], catalog.layers()["D6"], parse_problem("n1c3h9w9_o8k3")):
        space = solve(problem, Z100SM)
        foot = space.case.footprint
        for index in range(0, len(space), max(1, len(space) // 40)):
            plan = space.plan(index)
            columns = {name: np.broadcast_to(getattr(foot, name), (len(space),))[index]
                       for name in ("threads", "waves", "lds_bytes", "registers")}
            assert {name: getattr(plan.use, name) for name in columns} == columns
            assert plan.block_n == space.block_n[index]
            assert plan.cost.seconds == pytest.approx(space.costs.seconds[index])
            assert validate(problem, space[index], Z100SM, masked=space.masked).ok


problems = st.builds(
    "n1c{}h{}w{}_o{}k1".format, st.integers(1, 200), st.integers(1, 40), st.integers(1, 40),
    st.integers(1, 200)).map(parse_problem)
RAISABLE = ("lds_bytes_per_cu", "registers_per_cu", "threads_per_block", "waves_per_simd",
            "blocks_per_cu", "registers_per_thread")


@settings(max_examples=40)
@given(problems, st.sampled_from(RAISABLE), st.sampled_from(RULES), st.integers(1, 4))
def test_raising_a_limit_never_removes_a_tiling(problem, limit, rules, divisor):
    full = replace(Z100SM, lds_bytes_per_block=8192, lds_bytes_per_cu=65536)
    low = replace(full, **{limit: getattr(full, limit) // (2 * divisor) // 256 * 256
                           or getattr(full, limit) // 2})
    before = set(map(as_tuple, _exact(problem, low, rules)))
    after = set(map(as_tuple, _exact(problem, full, rules)))
    assert before <= after


def _exact(problem, device, rules):
    try:
        return solve(problem, device, rules, masked=False)
    except InfeasibleError:
        return []


@settings(max_examples=examples(60))
@given(problems, st.sampled_from(["z100sm", "gfx90a", "h200", "rtx2080ti"]),
       st.sampled_from(RULES), st.randoms(use_true_random=False))
def test_residency_is_the_most_that_is_valid(problem, name, rules, random):
    device = catalog.device(name)
    space = solve(problem, device, rules)
    tiling = space[random.randrange(len(space))]
    valid = [n for n in range(1, 130) if keeps_all(
        case_of(problem, device, tiling, n), rules, space.masked)]
    # Valid at some residency means valid at every lower one.
    assert valid == list(range(1, len(valid) + 1))
    assert int(residency(case_of(problem, device, tiling), rules)) == len(valid)


@given(problems)
def test_every_pointwise_problem_has_a_plan(problem):
    plan = best_plan(problem, Z100SM)
    assert isinstance(plan.tiling, GemmTiling | GemmUniversalTiling)
    assert 0 < plan.cost.utilisation <= 1
    assert plan.masked == (plan.cost.utilisation < 1) or plan.masked
    assert validate(problem, plan.tiling, Z100SM, masked=plan.masked).ok
    assert plan.name.isidentifier()


def test_the_masked_space_opens_where_nothing_divides():
    problem = parse_problem("n1c3h13w13_o7k1")
    with pytest.raises(InfeasibleError, match="no exact channel_distribution tiling fits"):
        solve(problem, Z100SM, masked=False)
    space = solve(problem, Z100SM, algorithm="channel_distribution")
    assert space.masked
    assert "no exact" in space.note
    assert space.plan(int(space.ranked()[0])).cost.utilisation < 1


def test_algorithms_by_name():
    problem = POINTWISE["P13"]
    in_order = [one.name for one in running(problem, "paper", Z100SM)]
    assert in_order == ["channel_distribution", "gemm", "direct"]
    assert "warpgroup_tf32" in [one.name for one in running(problem, "paper", H200)]
    with pytest.raises(InfeasibleError, match="warpgroup_tf32 does not suit z100sm; the "):
        solve(problem, Z100SM, algorithm="warpgroup_tf32")
    for name in in_order:
        assert solve(problem, Z100SM, algorithm=name).algorithm.name == name
    with pytest.raises(SpecError, match="'row_reuse' does not run pointwise"):
        solve(problem, Z100SM, algorithm="row_reuse")


@pytest.mark.parametrize(("token", "tiling"), [
    ("n1c8h9w9_o8k3p1g8", RowReuseTiling), ("n1c8h9w9_o8k3p1", ImplicitGemmTiling),
    ("n1c8h9w9_o8k3p1g2", ImplicitGemmTiling), ("n1c8h9w9_o8k1", GemmTiling),
    # 40,000 taps exceed every register file: only the direct algorithm loops over them.
    ("n1c2h200w200_o2k200g2", DirectTiling),
])
def test_each_kind_gets_its_algorithm(token, tiling):
    assert isinstance(best_plan(parse_problem(token), Z100SM).tiling, tiling)


@pytest.mark.parametrize("token", ["n2c6h13w11_o12k3p1g6", "n1c8h28w28_o8k5s2p2g8"])
def test_through_lds_a_block_takes_one_piece_of_memory(token):
    problem = parse_problem(token)
    staged = [t for t in solve(problem, H200) if t.staging != "registers"]
    strips = [t for t in staged if t.lanes_h * t.thread_h < problem.out_height]
    assert {t.staging for t in strips} == {t.staging for t in staged} == {"lds", "both"}
    assert {t.planes for t in strips} == {1} < {t.planes for t in staged}
    assert all(t.lanes_w * t.thread_w >= problem.out_width for t in staged)
    assert not any(t.column_reuse for t in staged)


def test_the_reason_for_another_algorithm_is_given():
    assert "row_reuse" in solve(parse_problem("n1c2h200w200_o2k200g2"), Z100SM).note


def test_ranking_is_by_the_stated_model():
    space = solve(POINTWISE["P13"], Z100SM)
    order = space.ranked()
    assert sorted(order) == list(range(len(space)))
    assert np.all(np.diff(space.costs.seconds[order]) >= 0)
    assert best_plan(POINTWISE["P13"], Z100SM).tiling == space[int(order[0])]


# Pointwise and dense layers of float32, which two algorithms run on Hopper.
TWICE = {"n64c240h14w14_o80k1": ("warpgroup_tf32", "gemm"),
         "n1c480h14w14_o80k1": ("warpgroup_tf32", "gemm"),
         "n8c64h28w28_o64k3p1": ("implicit_warpgroup", "implicit_gemm")}


def test_algorithms_that_are_compared_are_taken_by_their_estimates():
    taken = []
    for token, names in TWICE.items():
        problem = parse_problem(token)
        spaces = [solve(problem, H200, algorithm=name) for name in names]
        plan = best_plan(problem, H200)
        assert plan == min((space.plan(space.first()) for space in spaces),
                           key=lambda one: one.cost.seconds)
        taken.append(plan.tiling.algorithm)
    assert taken[:2] == ["warpgroup_tf32", "gemm"]  # neither comes first of itself


@pytest.mark.parametrize("token", ["n1c480h14w14_o80k1", "n8c64h28w28_o64k3p1"])
def test_the_arithmetic_asked_for_is_found_in_an_algorithm_that_has_it(token):
    """Of these two the first multiplies by TF32 alone."""
    problem, (without, having) = parse_problem(token), TWICE[token]
    assert solve(problem, H200, algorithm=without).first("plain") is None
    space = solve(problem, H200, algorithm=having)
    first = next(index for index in space.ranked() if space[int(index)].computes("plain"))
    assert best_plan(problem, H200, arithmetic="plain") == space.plan(int(first))
    with pytest.raises(InfeasibleError, match="no tiling computes by matrix16"):
        best_plan(problem, H200, arithmetic="matrix16")


@pytest.mark.parametrize("name", DEVICES)
def test_every_device_plans_every_shipped_layer(name):
    """A fifth of the layers for each device, all of them in the deep profile."""
    device, first = catalog.device(name), sorted(catalog.devices()).index(name) % 5
    problems = list(catalog.layers().values())
    for problem in problems if DEEP else problems[first::5]:
        plan = best_plan(problem, device)
        verdict = validate(problem, plan.tiling, device, block_n=plan.block_n, masked=plan.masked)
        assert verdict.ok, str(verdict)


def test_a_tiling_of_another_kind_is_refused():
    with pytest.raises(SpecError, match="ChannelDistributionTiling does not run depthwise"):
        make_plan(catalog.layers()["D1"], Z100SM, ChannelDistributionTiling(1, 64, 1, 1, 16))


@settings(max_examples=examples(100))
@given(problems)
def test_a_device_too_small_for_anything_says_so(problem):
    assume(problem.spec.kind == "pointwise")
    tiny = replace(Z100SM, registers_per_thread=20)
    with pytest.raises(InfeasibleError, match="registers per thread"):
        solve(problem, tiny)
