"""Winograd's tasks: their order by Algorithm 1, what they wait for, and the rules of the tiling."""

import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples, mostly_deep

from dscore.algorithms.registry import algorithm, case_of
from dscore.algorithms.winograd.tasks import TaskMapping, mapping_of
from dscore.algorithms.winograd.tiling import WinogradTiling, shape_of, workspace_of
from dscore.building.headers import sources
from dscore.core import catalog
from dscore.core.numerics import FLOAT32_ARITHMETICS
from dscore.core.token import parse_problem
from dscore.core.winograd import TILES, transforms
from dscore.solving.rules import keeps_all

FEW = st.integers(1, 4)


@st.composite
def mappings(draw):
    groups, lead, lag, spare, task_groups = (draw(st.integers(1, most)) for most in (4, 4, 4, 3, 9))
    return TaskMapping(
        draw(FEW), task_groups, draw(FEW), draw(st.integers(1, 9)), draw(FEW), groups, lead, lag,
        min((lead + spare) * groups, task_groups), min((lag + spare) * groups, task_groups))


@settings(max_examples=examples(300), deadline=None)
@given(mappings())
def test_the_task_of_a_number_is_that_of_the_loops(mapping):
    tasks = list(mapping)
    assert [mapping.task(number) for number in range(len(mapping))] == tasks
    assert len(tasks) == len(set(tasks)) == len(mapping)


def all_stand_before(mapping):
    """Whether one block that runs the tasks in their order never waits."""
    ended = Counter()
    for task in mapping:
        if any(ended[wait.kind, wait.group] != wait.tasks for wait in mapping.waits(task)):
            return False
        ended[task.kind, task.group] += 1
    return True


@settings(max_examples=examples(300), deadline=None)
@given(mappings())
def test_all_that_a_task_waits_for_stands_before_it(mapping):
    assert all_stand_before(mapping)


@pytest.mark.parametrize("field", ["lead", "lag"])
@settings(max_examples=50, deadline=None)
@given(mapping=mappings())
def test_distances_below_1_put_tasks_before_their_parents(field, mapping):
    # Of one product for each task group, all inputs of a round stand before it anyway.
    mapping = replace(mapping, product_tasks=mapping.product_tasks + 1, output_tasks=2)
    assert all_stand_before(mapping)
    assert not all_stand_before(replace(mapping, **{field: 0}))
    with pytest.raises(ValueError, match=f"{field} must be"):
        WinogradTiling(4, 8, 8, 8, 8, 8, 8, 4, 2, 1, 4, 4, **{field: 0})


def test_the_papers_sequence():
    """Algorithm 1 with S_I = 2, S_G = 4, S_O = 2, M = 2: a set of filters for M task groups, with a
    share of inputs before and of outputs behind."""
    mapping = TaskMapping(1, 6, 2, 4, 2, 2, 1, 1, 4, 4)
    kinds = "".join(task.kind[0] for task in mapping)
    initial, rising, body, falling, tail = ("f" + "i" * 4, "ipp" * 4, "ippo" * 4, "ppo" * 4,
                                            "o" * 4)
    assert kinds == initial + rising + body + falling + tail
    assert (mapping.input_distance, mapping.output_distance) == (4, len(rising))
    products = [(task.group, task.part) for task in mapping if task.kind == "product"][:4]
    assert products == [(0, 0), (1, 0), (0, 1), (1, 1)]


@pytest.mark.parametrize("m", TILES)
def test_the_kernels_matrices_are_the_exact_ones(m):
    text = (sources() / "winograd" / "transforms.hpp").read_text()
    text = text.split(f"struct WinogradMatrices<{m}>")[1].split("\n};\n")[0]
    for name, matrix in zip(("input", "filter", "output"), transforms(m), strict=True):
        body = text.split(f"double {name}(")[1].split("return of")
        values = re.search(r"=\s*\{(.*)\};", body[0], re.S).group(1)
        over = Fraction(re.search(r"\[column\](?: / (\d+))?;", body[1]).group(1) or 1)
        rows = [[Fraction(number) / over for number in row.split(",")]
                for row in re.findall(r"\{([^{}]*)\}", values)]
        assert rows == [list(row) for row in matrix]


PROBLEM = parse_problem("n1c16h9w9_o24k3p1_winograd")
FREE = st.builds(
    WinogradTiling, outputs=st.sampled_from([2, 3, 4, 6]), tile_k=st.sampled_from([8, 12, 16, 48]),
    tile_t=st.sampled_from([8, 16, 20, 32]), wave_k=st.sampled_from([4, 8, 12, 16]),
    wave_t=st.sampled_from([4, 8, 16]), lanes_k=st.sampled_from([2, 4, 8, 16]),
    lanes_t=st.sampled_from([2, 4, 8, 16]), step=st.sampled_from([2, 4, 8, 16, 24]),
    stages=st.integers(1, 4), planes=st.sampled_from([1, 2, 3, 4, 5, 6]),
    input_channels=st.sampled_from([2, 4, 6, 8]), output_channels=FEW,
    arithmetic=st.sampled_from(FLOAT32_ARITHMETICS))


@st.composite
def sound(draw):
    """Tilings of whole fragments, for wavefronts of 32 or 64."""
    split, lanes_k = draw(st.booleans()), draw(st.sampled_from([4, 8]))
    lanes_k = 8 if split else lanes_k
    lanes_t = 4 if split else draw(st.sampled_from([32, 64])) // lanes_k
    wave_k, wave_t = (16, 16) if split else (8, max(lanes_t, 8))
    return WinogradTiling(
        draw(st.sampled_from(TILES)), wave_k * draw(st.integers(1, 2)),
        wave_t * draw(st.integers(1, 2)), wave_k, wave_t, lanes_k, lanes_t,
        16 if split else 4, draw(st.integers(2, 3)), draw(st.sampled_from([1, 2, 4])), 4, 3,
        fused=draw(st.booleans()), arithmetic="tf32x3" if split else "plain")


def exists(t, device):
    """Whether the assertions of hip_src/winograd/kernel.hpp hold, and the device can."""
    tf32 = t.arithmetic == "tf32x3"
    fragments = ((t.wave_k % 16, t.wave_t % 16, t.lanes_k - 8, t.step % 16) if tf32
                 else (t.wave_k % t.lanes_k, t.wave_t % t.lanes_t, t.step % 4))
    modern = device.name in ("a100", "h200")
    return (t.outputs in TILES and t.lanes_k * t.lanes_t == device.wavefront
            and not any((t.tile_k % t.wave_k, t.tile_t % t.wave_t, t.tile_k % 8, t.tile_t % 8,
                         t.input_channels % 4, (t.outputs + 2) ** 2 % t.planes, *fragments))
            and t.stages >= 2 and (modern or (t.stages == 2 and not tf32))
            and t.tile_k // t.wave_k * (t.tile_t // t.wave_t) * device.wavefront
            <= device.threads_per_block)


@pytest.mark.parametrize("name", mostly_deep(
    ["z100sm", "rtx2080ti", "a100", "h200"], "z100sm", "h200"))
@settings(max_examples=examples(300), deadline=None)
@given(t=st.one_of(FREE, sound()))
def test_the_rules_are_the_kernels_assertions(name, t):
    device = catalog.device(name)
    case = case_of(PROBLEM, device, t)
    assert bool(keeps_all(case, "hardware", masked=True, legality=True)) == exists(t, device)


@pytest.mark.parametrize(("token", "allowed"), [
    ("n1c8h9w9_o8k3s2p1", "stride 2x2"), ("n1c8h9w9_o8k3p1d2", "dilation 2x2"),
    ("n1c8h9w9_o8k5p1", "5x5"), ("n1c8h9w9_o8k3p1g2", "groups of winograd is 2"),
    ("input_gradient_n1c8h9w9_o8k3p1", "input_gradient"),
    ("n1c8h9w9_o8k3p1", "E-ARITHMETIC")])
def test_other_problems_are_refused_by_name(token, allowed):
    [violation] = algorithm("winograd").refuses(parse_problem(token))
    assert allowed in str(violation)


def test_the_workspace_holds_the_rounds_between_inputs_and_outputs():
    problem = parse_problem("n8c32h56w56_o64k3p1_winograd")
    t = WinogradTiling(4, 64, 32, 32, 16, 8, 4, 16, 3, 1, 8, 8, groups=2, lead=3, lag=2, spare=2,
                       blocks=264, arithmetic="tf32x3")
    shape, workspace = shape_of(problem, t), workspace_of(problem, t)
    assert (shape.input_slots, shape.product_slots) == (10, 8)
    assert (workspace.filters, workspace.inputs, workspace.products) == (
        4 * 36 * 64 * 32, 10 * 4 * 36 * 32 * 32, 8 * 4 * 36 * 64 * 32)
    whole = workspace_of(problem, replace(t, fused=False))
    assert whole.inputs == 4 * 36 * 32 * int(shape.task_groups) * 32
    mapping = mapping_of(problem, t)
    assert mapping.rounds == -(-int(shape.task_groups) // 2)
    assert mapping.input_distance == 3 * 2 * mapping.input_tasks
    assert mapping.output_distance == 2 * 2 * (mapping.input_tasks + mapping.product_tasks)
