"""The floor of a plan, by the arithmetic that the plan computes with."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from plans import DEVICES

import dscore
from dscore.core import catalog
from dscore.core.catalog import device
from dscore.ops import compulsory_bytes, flops
from dscore.solving.solver import solve


def explained(layer: str, name: str = "h200", **options):
    problem, = (one.problem for one in catalog.find(layer, batch=32))
    return dscore.explain(dscore.plan_for(problem, name, **options))


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
def test_no_plan_is_estimated_under_its_floor_by_another_types_rate(name: str, dtype: str) -> None:
    told = explained(f"P31_{dtype}_nhwc", name)
    problem, one = told.plan.problem, told.plan.device
    rates = [flops(problem) / told.floor_seconds, compulsory_bytes(problem) / told.floor_seconds]
    assert rates[1] <= one.bandwidth * (1 + 1e-9)
    assert told.floor_seconds <= told.plan.cost.seconds
    if told.arithmetic == "sum" and dtype != "int8":
        assert rates[0] <= one.fp32_flops * (1 + 1e-9)


@pytest.mark.parametrize(("layer", "name", "words"), [
    ("P31_bfloat16_nhwc", "h200", "at 790.0 TFLOP/s (bfloat16, measured)"),
    ("P31_float16_nhwc", "h200", "at 989.5 TFLOP/s (float16, data sheet)"),
    ("P31_int8_nhwc", "a100", "at 624.0 TFLOP/s (int8, data sheet)"),
    ("P31", "h200", "at 164.8 TFLOP/s (tf32, data sheet, three products for one)"),
    ("D5_float16_nhwc", "h200", "flops at 51.2 TFLOP/s, an empty launch)"),
    ("P31_float16_nhwc", "z100sm", "flops at 14.1 TFLOP/s)")])
def test_the_rate_is_of_the_plans_arithmetic(layer: str, name: str, words: str) -> None:
    assert words in explained(layer, name).floor


@pytest.mark.parametrize(("layer", "name", "kind"), [
    ("P31_float16_nhwc", "b200", "float16"), ("P31", "b200", "tf32"),
    ("P31_int8_nhwc", "z100sm", "int8")])
def test_operations_without_a_rate_are_left_out(layer: str, name: str, kind: str) -> None:
    told = explained(layer, name)
    moved = compulsory_bytes(told.plan.problem)
    assert told.floor_seconds == moved / told.plan.device.bandwidth
    assert re.search(rf"= {moved:,} B at .* GB/s \(\w+( \w+)?\); its {flops(told.plan.problem):,} "
                     rf"flops are left out: no rate of {name} for products of {kind} is stated$",
                     told.floor)


def test_winograds_products_are_fewer_than_the_definitions() -> None:
    problem = catalog.find("n1c64h56w56_o64k3p1_winograd")[0].problem
    plan = solve(problem, device("h200"), algorithm="winograd").plan(0)
    told = dscore.explain(plan)
    assert told.floor_seconds == max(compulsory_bytes(plan.problem) / plan.device.bandwidth,
                                     plan.device.measured_launch_seconds)
    assert told.floor.endswith("flops are left out: Winograd's algorithm makes fewer products")


def test_a_measured_rate_stands_before_the_data_sheets() -> None:
    h200 = device("h200")
    assert h200.matrix_rate("bfloat16") == 7.9e14 < dict(h200.matrix_flops)["bfloat16"]
    assert replace(h200, measured_matrix_flops={}).matrix_rate("bfloat16") == 9.895e14
    assert device("v100").matrix_rate("float16") is None
