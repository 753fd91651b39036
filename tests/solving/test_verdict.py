"""The judgement of a configuration: its numbers, and suggestions that really fit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import DEVICES
from profiles import examples

import dscore
from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling
from dscore.algorithms.direct import DirectTiling
from dscore.algorithms.row_reuse.tiling import RowReuseTiling
from dscore.core import catalog
from dscore.core.errors import InfeasibleError, SpecError
from dscore.core.token import parse_problem
from dscore.solving.solver import solve
from dscore.solving.verdict import InvalidTiling, validate

Z100SM, H200 = catalog.device("z100sm"), catalog.device("h200")
P28, D1 = catalog.layers()["P28"], catalog.layers()["D1"]
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


@settings(max_examples=examples(20))
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


@pytest.mark.parametrize("name", DEVICES)
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
