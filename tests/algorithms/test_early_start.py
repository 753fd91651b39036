"""LDS that launches ask for, so that blocks which come early spread evenly over the CUs, and what
kernels know of these."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

import dscore
from dscore.algorithms.image_gemm.tiling import DRIVER_LDS_BYTES, UNIT_LDS_BYTES
from dscore.algorithms.registry import algorithm_of
from dscore.building.codegen import KernelSource
from dscore.building.headers import sources
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.ops import operands_of
from dscore.solving.explain import explanation_of
from dscore.solving.solver import best_plan, make_plan, solve

H200, MI250X = catalog.device("h200"), catalog.device("mi250x")
LAYERS = [layer.problem for layer in catalog.find("D1-D30") + catalog.find("P1-P45")]
# 256 blocks for 132 CUs, of which LDS and threads have room for six each.
CROWDED = parse_problem("n32c480h14w14_o480k3p1g480_float16_nhwc_bias_hardswish")
TILING = dscore.tiling(dict(algorithm="channel_vectors", vector=2, lanes_c=32, thread_h=7,
                            thread_w=7, lanes_h=2, lanes_w=2, bands=4, ahead=True))


def asked_by(plan, behind=False):
    return algorithm_of(plan.tiling).asked_lds_bytes(plan, behind)


def room(plan, lds_bytes):
    """Blocks that a CU of an H200 has room for, as CUDA counts: by LDS, of which it takes a KiB for
    each block, and by warps."""
    return min(233_472 // (lds_bytes + 1024), 64 // plan.use.waves)


def of_type(problem, dtype, batch):
    return replace(problem, batch=batch, spec=problem.spec.in_form(dtype=dtype, layout="nhwc"))


@settings(max_examples=examples(40))
@given(st.sampled_from(LAYERS), st.sampled_from(["float16", "bfloat16", "int8"]),
       st.sampled_from([1, 8, 32, 64]), st.randoms())
def test_a_cu_has_room_for_its_share_and_no_more(problem, dtype, batch, random):
    problem = of_type(problem, dtype, batch)
    space = solve(problem, H200)
    plan = space.plan(random.randrange(len(space)))
    asked, share = asked_by(plan), -(-plan.launch.blocks // 132)
    if asked:
        assert plan.launch.lds_bytes < asked <= H200.lds_bytes_per_block
        assert room(plan, asked) == share < room(plan, plan.launch.lds_bytes)


@pytest.mark.parametrize("token", [
    "n32c480h14w14_o480k3p1g480_float16_nhwc_bias_hardswish",
    "input_gradient_n32c480h14w14_o480k3p1g480_bfloat16_nhwc",
    "n32c480h14w14_o480k3p1g480_int8_nhwc"])
def test_a_grid_that_would_crowd_is_spread(token):
    tiling = TILING if "int8" not in token else replace(
        TILING, vector=4, lanes_c=16, thread_w=2, lanes_w=7)
    plan = make_plan(parse_problem(token), H200, tiling)
    assert room(plan, asked_by(plan)) == -(-plan.launch.blocks // 132)


@pytest.mark.parametrize("token", [
    "n1c480h14w14_o480k3p1g480_float16_nhwc",  # too little work
    "n32c480h14w14_o480k3p1g480_nhwc",
    "n32c480h14w14_o480k3p1g480_float16",
    "n32c384h14w14_o64k1_float16_nhwc"])
def test_other_launches_ask_for_what_blocks_use(token):
    assert asked_by(best_plan(parse_problem(token), H200)) == 0


def test_int8_products_are_spread():
    plan = best_plan(parse_problem("n32c80h14w14_o184k1_int8_nhwc_bias"), H200)
    tiling = replace(plan.tiling, tile_m=64, tile_n=64, stages=3)
    plan = make_plan(plan.problem, H200, tiling)
    assert room(plan, plan.launch.lds_bytes) > room(plan, asked_by(plan)) > 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_of_16_bits_are_spread_behind_other_kernels(dtype):
    problem = parse_problem(f"n32c80h14w14_o184k1_{dtype}_nhwc_bias")
    tiling = replace(best_plan(problem, H200).tiling, tile_m=64, tile_n=64, stages=3)
    plan = make_plan(problem, H200, tiling)
    asked, text = asked_by(plan, behind=True), KernelSource(plan).text()
    assert room(plan, asked) == -(-plan.launch.blocks // 132) < room(plan, plan.launch.lds_bytes)
    assert f"static constexpr int asked_behind_lds_bytes = {asked};" in text
    assert " asked_lds_bytes" not in text
    told = " ".join(explanation_of(plan, 1, "", "a test").text().split())
    assert f"{asked:,} B a block behind another kernel's launch, as in a network" in told


def test_where_kernels_follow_one_another_nothing_is_asked_for():
    plan = make_plan(CROWDED, MI250X, replace(TILING, ahead=False))
    assert asked_by(plan) == 0
    assert asked_by(make_plan(CROWDED, replace(H200, early_start=False), TILING)) == 0


def test_no_launch_asks_for_more_than_a_block_may_have():
    assert asked_by(make_plan(CROWDED, replace(H200, lds_bytes_per_block=76_928), TILING)) == 76_928
    assert asked_by(make_plan(CROWDED, replace(H200, lds_bytes_per_block=76_800), TILING)) == 0


def test_a_kernel_says_what_its_launch_asks_for_where_its_grid_is_known():
    plan = make_plan(CROWDED, H200, TILING)
    for name in ("asked_lds_bytes", "asked_behind_lds_bytes"):
        line = f"static constexpr int {name} = {asked_by(plan)};"
        assert line in KernelSource(plan, "fixed").text()
    assert "asked_lds_bytes" not in KernelSource(plan, "any").text()
    assert f"{asked_by(plan):,} B a block" in explanation_of(plan, 1, "", "a test").text()


def test_the_smallest_layer_that_is_spread_has_a_mebi_of_elements():
    elements = {asked_by(plan) > 0: sum(one.elements for one in operands_of(plan.problem))
                for plan in (make_plan(replace(CROWDED, batch=batch), H200, TILING)
                             for batch in (32, 6, 1, 5))}
    assert elements[False] < 1 << 20 <= elements[True]


def test_what_kernels_know_of_hoppers_compute_units_is_what_devices_have():
    header = (sources() / "support/early_start.hpp").read_text()
    units = int(re.search(r"hopper_units = (\d+);", header)[1])
    unit_kib, block_bytes = re.search(r"return (\d+) \* 1024 / \(lds_bytes \+ (\d+)\);",
                                      header).groups()
    assert (1024 * int(unit_kib), int(block_bytes)) == (UNIT_LDS_BYTES, DRIVER_LDS_BYTES)
    hoppers = [device for device in catalog.devices().values() if device.warpgroups]
    assert "h200" in {device.name for device in hoppers}
    for device in hoppers:
        assert device.lds_bytes_per_cu == UNIT_LDS_BYTES, device.name
        assert device.lds_reserved_bytes == DRIVER_LDS_BYTES, device.name
        assert device.compute_units <= units, device.name
