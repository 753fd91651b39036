"""Winograd's tasks in any order that blocks may run them: the same bits, and faults are caught."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import plan_of
from profiles import examples
from reference_runs import CHECKED, arrays, check

from dscore.algorithms.winograd.tasks import TaskMapping
from dscore.algorithms.winograd.tiling import WinogradTiling
from dscore.backends.reference.winograd import Blocks, WinogradTasks
from dscore.core.errors import LaunchError
from dscore.core.problem import ConvProblem
from dscore.core.spec import ACTIVATIONS, ConvSpec

SOME = st.integers(1, 3)


@st.composite
def plans(draw, most=14):
    outputs, tf32 = draw(st.sampled_from((2, 4))), draw(st.booleans())
    t = WinogradTiling(
        outputs, 16 * draw(st.integers(1, 2)), 16, 16, 16, 8, 4, 16 if tf32 else 4, 3,
        draw(st.sampled_from((2, 4) if outputs == 2 else (6, 12))), 4 * draw(SOME), draw(SOME) * 5,
        groups=draw(SOME), lead=draw(SOME), lag=draw(SOME), spare=draw(SOME), blocks=draw(SOME),
        fused=draw(st.booleans()), arithmetic="tf32x3" if tf32 else "plain")
    top, left = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    spec = ConvSpec.make(draw(st.integers(1, 20)), draw(st.integers(1, 20)), 3,
                         padding=((top, 1), (left, 2)), bias=draw(st.booleans()),
                         activation=draw(st.sampled_from((None, *ACTIVATIONS))),
                         arithmetic="winograd")
    return plan_of(ConvProblem(spec, draw(st.integers(1, 2)), draw(st.integers(2, most)),
                               draw(st.integers(2, most))), t, 32)


@CHECKED
@given(plans())
def test_every_output_is_right_and_written_once(plan):
    trace = check(plan)
    filters, spec = plan.tiling, plan.problem.spec
    taps = 9 * spec.in_channels * spec.out_channels
    assert trace.filters_loaded == taps
    assert trace.fmas % (filters.tile_k * filters.tile_t) == 0


def ring_plan(groups=1, lead=1, lag=1, spare=1):
    """Seven task groups, of a tiling whose workspace holds two or more of them."""
    t = WinogradTiling(2, 16, 16, 16, 16, 8, 4, 4, 3, 4, 4, 5, groups=groups, lead=lead, lag=lag,
                       spare=spare, blocks=3)
    spec = ConvSpec.make(9, 11, 3, padding=1, arithmetic="winograd")
    return plan_of(ConvProblem(spec, 1, 20, 21), t, 32)


def result(plan, resident=1, choose=lambda blocks: blocks[0], change=lambda mapping: mapping):
    x, w, _ = arrays(plan.problem)
    out = np.full(plan.problem.y_shape, np.nan, np.float32).reshape(-1)
    operands = {"x": x.reshape(-1), "w": w.reshape(-1), "out": out}
    tasks = WinogradTasks(plan, operands)
    blocks = Blocks(change(tasks.mapping), tasks.execute, resident, choose)
    blocks.run()
    return out


@pytest.mark.deep
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), resident=st.integers(1, 40), groups=SOME, lead=SOME, lag=SOME, spare=SOME)
def test_any_order_of_any_number_of_blocks_gives_the_same_bits(data, resident, groups, lead, lag,
                                                              spare):
    plan, random = ring_plan(groups, lead, lag, spare), data.draw(st.randoms())
    assert result(plan, resident, random.choice).tobytes() == result(plan).tobytes()


class WithoutWait(TaskMapping):
    """What tasks of a kind wait for, but for one kind."""

    def waits(self, task):
        return tuple(wait for wait in super().waits(task)
                     if (task.kind, wait.kind) != self.dropped)


class WrongCount(TaskMapping):
    """Products that wait for one input task less."""

    def waits(self, task):
        return tuple(replace_count(wait, -1) if wait.kind == "input" else wait
                     for wait in super().waits(task))


def replace_count(wait, by):
    return wait._replace(tasks=wait.tasks + by)


def changed(cls, dropped=None):
    def change(mapping):
        made = cls(**vars(mapping))
        object.__setattr__(made, "dropped", dropped)
        return made
    return change


def fails(change, plan=None, resident=8):
    """Whether some order of blocks shows the fault, in the result or as blocks that wait forever.
    """
    plan = plan or ring_plan()
    right, random = result(plan), np.random.default_rng(0)
    for _ in range(20):
        try:
            wrong = result(plan, resident, random.choice, change)
        except LaunchError as stuck:
            assert "blocks wait for one another" in str(stuck)  # noqa: PT017
            return True
        if wrong.tobytes() != right.tobytes():
            return True
    return False


@pytest.mark.parametrize("dropped", [
    ("product", "filter"), ("product", "input"), ("output", "product"),
    # Of the slots that are used again:
    ("input", "product"), ("product", "output")])
def test_a_missing_dependency_is_caught(dropped):
    assert fails(changed(WithoutWait, dropped))


def test_a_wrong_counter_is_caught():
    assert fails(changed(WrongCount))


@pytest.mark.parametrize("wrong", [{"lead": 0}, {"lag": 0}, {"input_slots": 1},
                                   {"product_slots": 1}])
def test_a_distance_below_1_is_caught(wrong):
    """One resident block waits for itself, and more of them for one another."""
    for resident in (1, 2):
        with pytest.raises(LaunchError, match="blocks wait for one another"):
            result(ring_plan(), resident, change=lambda mapping: replace(mapping, **wrong))


def test_without_a_fault_nothing_is_said():
    assert not fails(lambda mapping: mapping)


def test_plans_that_are_no_kernel_are_refused():
    plan = ring_plan()
    with pytest.raises(LaunchError, match="lanes_k x lanes_t must be the wavefront 32"):
        result(replace(plan, tiling=replace(plan.tiling, lanes_k=16)))
    with pytest.raises(LaunchError, match="the plan launches 3 blocks, the tiling needs 5"):
        result(replace(plan, tiling=replace(plan.tiling, blocks=5)))
    with pytest.raises(LaunchError, match="bytes of LDS, but the plan has"):
        result(replace(plan, use=replace(plan.use, lds_bytes=64)))
