"""Hints that were timed on another device of the same architecture, with as many compute units."""

from dataclasses import replace

import pytest

from dscore.calling import choice
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.tuning import shipped_hints

H100, H200 = catalog.device("h100"), catalog.device("h200")


def of_the_first_alone(device, other):
    """A problem of which the one device's file has a hint with its time, and the other's none."""
    hints = shipped_hints.shipped(device.name)
    problems = map(parse_problem, sorted(hints.hints))
    return next(one for one in problems if hints.microseconds(one, device)
                and shipped_hints.shipped(other.name).plan(one, other) is None)


OF_H200, OF_H100 = of_the_first_alone(H200, H100), of_the_first_alone(H100, H200)


def test_a_sibling_takes_what_was_timed_on_its_like():
    for problem, device, timed_on in ((OF_H200, H100, H200), (OF_H100, H200, H100)):
        plan = shipped_hints.shipped_plan(problem, device)
        assert plan.device == device
        assert plan.tiling == shipped_hints.shipped_plan(problem, timed_on).tiling
        assert choice.origin(plan) == "hint"
        assert choice.origin_text(plan).endswith(f"µs on {timed_on.name}")
        own = choice.origin_text(shipped_hints.shipped_plan(problem, timed_on))
        assert own.endswith("µs")


def test_a_devices_own_hint_comes_first():
    both = next(token for token in shipped_hints.shipped("h100").hints
                if token in shipped_hints.shipped("h200").hints)
    for device in (H100, H200):
        problem = parse_problem(both)
        own = shipped_hints.shipped(device.name).plan(problem, device)
        assert shipped_hints.shipped_plan(problem, device) == own


def test_others_take_none():
    for other in (replace(H100, name="smaller", compute_units=114), catalog.device("b200"),
                  catalog.device("z100sm")):
        assert shipped_hints.shipped_plan(OF_H200, other) is None


def test_a_report_expects_a_devices_own_time_alone():
    report = pytest.importorskip("dscore.torch.report", reason="PyTorch is not installed",
                                 exc_type=ImportError)
    own, borrowed = (shipped_hints.shipped_plan(OF_H200, device) for device in (H200, H100))
    device, microseconds = shipped_hints.timing(borrowed)
    assert (device, microseconds) == shipped_hints.timing(own)
    assert report.expected_seconds(own) == pytest.approx(microseconds * 1e-6)
    assert report.expected_seconds(borrowed) == borrowed.cost.seconds != microseconds * 1e-6


def test_a_siblings_hint_for_the_very_problem_comes_before_one_for_its_like():
    files = [shipped_hints.shipped(device.name) for device in (H200, H100)]
    problems = map(parse_problem, sorted(
        token for token in files[1].hints.keys() - files[0].hints.keys() if "_silu" in token))
    plans = ((one, *(hints.plan(one, H200) for hints in files)) for one in problems)
    costly, of_its_like, of_itself = next(
        row for row in plans if row[1] and row[1].tiling != row[2].tiling)
    assert shipped_hints.shipped_plan(costly, H200) == of_itself != of_its_like
