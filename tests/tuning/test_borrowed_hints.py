"""Hints that serve other problems as well.

Those of float16 serve bfloat16, whose kernels are the same but for the type. Those of layers
without a residual serve layers with one, and those of weight gradients in 16 bits such as have
results of float32.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from profiles import deep

from dscore.building.codegen import KernelSource
from dscore.core import catalog
from dscore.core.device import Device
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling
from dscore.core.token import parse_problem
from dscore.solving import solver
from dscore.tuning import shipped_hints

DEVICE = catalog.device("z100sm")


def line_of(problem: ConvProblem, tiling: Tiling) -> str:
    fields = {"us": 3.25, **tiling.as_json()}
    listed = ", ".join(f"{name} = {json.dumps(value)}" for name, value in fields.items())
    return f"{shipped_hints.hint_token(problem)} = {{ {listed} }}"


def hints_of(*lines: str) -> shipped_hints.ShippedHints:
    return shipped_hints.parse_hints("\n".join(('device = "z100sm"', "[hints]", *lines)), "test")


SHORT = ("n1c8h6w6_o16k1", "n1c8h6w6_o16k1_nhwc", "n2c8h9w9_o8k3p1g8", "n2c8h9w9_o8k3p1g8_nhwc",
         "n1c8h6w6_o16k3p1_nhwc", "input_gradient_n1c8h9w9_o8k3p1g8_nhwc",
         "weight_gradient_n1c8h9w9_o8k3p1g8", "weight_gradient_n1c64h9w9_o32k1_nhwc")


def in_type(token: str, dtype: str) -> ConvProblem:
    problem = parse_problem(token)
    return replace(problem, spec=problem.spec.in_form(dtype=dtype))


@pytest.mark.parametrize("token", SHORT)
@pytest.mark.parametrize("device", [deep(DEVICE), catalog.device("h200")], ids=["z100sm", "h200"])
def test_kernels_of_bfloat16_are_those_of_float16_but_for_the_type(
        token: str, device: Device) -> None:
    short, other = in_type(token, "float16"), in_type(token, "bfloat16")
    space, others = solver.solve(short, device), solver.solve(other, device)
    assert [space[int(i)] for i in space.ranked()] == [others[int(i)] for i in others.ranked()]
    for index in space.ranked()[:8]:
        plan, same = space.plan(int(index)), others.plan(int(index))
        assert (plan.use, plan.launch, plan.compiled_registers) == (
            same.use, same.launch, same.compiled_registers)
        text = KernelSource(same).text()
        assert "bfloat16" in text
        assert text.replace("bfloat16", "float16") == KernelSource(plan).text()


@pytest.mark.parametrize("token", SHORT[:4])
def test_bfloat16_has_the_hint_of_float16_unless_it_has_its_own(token: str) -> None:
    short, other = in_type(token, "float16"), in_type(token, "bfloat16")
    first, second = solver.solve(short, DEVICE).ranked()[:2]
    space = solver.solve(short, DEVICE)
    borrowed = line_of(short, space[int(first)])
    own = line_of(other, space[int(second)])
    assert hints_of(borrowed).plan(other, DEVICE) == solver.make_plan(
        other, DEVICE, space[int(first)])
    assert hints_of(borrowed).microseconds(other, DEVICE) == 3.25
    assert hints_of(own, borrowed).plan(other, DEVICE).tiling == space[int(second)]  # type: ignore[union-attr]
    # None of another type borrows.
    assert hints_of(own).plan(short, DEVICE) is None
    for dtype in ("float32", "int8"):
        assert hints_of(own, borrowed).plan(in_type(token, dtype), DEVICE) is None


@pytest.mark.parametrize("token", ["n1c8h6w6_o16k1", "n1c8h6w6_o16k1_nhwc", "n2c8h9w9_o8k3p1g8"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_layer_with_a_residual_has_the_hint_of_that_without_unless_it_has_its_own(
        token: str, dtype: str) -> None:
    bare = in_type(token, dtype)
    added = replace(bare, spec=replace(bare.spec, bias=True, activation="relu", residual="after"))
    space = solver.solve(bare, DEVICE)
    first, second = (space[int(index)] for index in space.ranked()[:2])
    borrowed, own = line_of(bare, first), line_of(added, second)
    assert hints_of(borrowed).plan(added, DEVICE) == solver.make_plan(added, DEVICE, first)
    assert hints_of(borrowed, own).plan(added, DEVICE).tiling == second  # type: ignore[union-attr]
    assert hints_of(own).plan(bare, DEVICE) is None  # nor the other way round


WIDE = ("weight_gradient_n1c8h9w9_o8k3p1g8_{}_nhwc", "weight_gradient_n1c64h9w9_o32k1_{}")


@pytest.mark.parametrize("token", WIDE)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_float32_have_the_hint_of_the_rounded_gradient(token: str, dtype: str) -> None:
    wide = parse_problem(token.format(f"{dtype}_outfloat32"))
    narrow = parse_problem(token.format("float16"))
    space = solver.solve(narrow, DEVICE)
    tiling = space[int(space.ranked()[1])]
    plan = hints_of(line_of(narrow, tiling)).plan(wide, DEVICE)
    assert plan == solver.make_plan(wide, DEVICE, tiling)
    assert plan.problem.spec.out_element.name == "float32"
