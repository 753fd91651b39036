"""Products of matrices by warpgroups whose steps the blocks of a cluster share, on the emulated
device: equal to the reference, and faults caught; what is refused."""

import pytest
from emulated_runs import (
    checked_under_sanitizers,
    require_bit_equal,
    require_caught,
    require_right,
    require_silence,
)
from profiles import deep, mostly_deep, share
from refusals import needs

from dscore.algorithms.registry import tiling_from
from dscore.algorithms.warpgroup_gemm.tiling import WarpgroupGemmTiling, shape_of
from dscore.backends.emulated import EmulatedBackend
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan
from dscore.solving.verdict import validate

needs_compiler = needs(EmulatedBackend())
H200 = catalog.device("h200")


def clustered(fields, parts, cluster, token):
    tiling = WarpgroupGemmTiling(*fields, parts=parts, cluster=cluster)
    return make_plan(parse_problem(token), H200, tiling)


# Blocks with one step, several, fewer than others, and none; rows and columns that end within a
# tile; columns that blocks share unevenly, and fewer runs of them than blocks; parts beside.
PLANS = [clustered(*fields) for fields in (
    ((64, 64, 64, 2), 1, 2, "n1c264h8w8_o64k1_float16_nhwc_bias_relu"),
    ((128, 72, 64, 2), 1, 4, "n1c520h13w13_o136k1_bfloat16_nhwc_bias_hardswish_residual"),
    ((64, 8, 64, 2), 1, 4, "n3c320h1w1_o8k1_float16_nhwc_bias"),
    ((64, 40, 64, 3), 1, 3, "n5c264h5w9_o40k1_bfloat16_nhwc_bias_residual_scaled"),
    ((64, 64, 64, 2), 1, 4, "n1c320h7w7_o72k1_float16_nhwc_scaled"),
    ((128, 64, 128, 2), 1, 2, "input_gradient_n1c72h12w12_o648k1_bfloat16_nhwc"),
    ((64, 128, 64, 2), 1, 8, "weight_gradient_n2c200h16w17_o136k1_float16_nhwc"),
    ((128, 40, 64, 3), 2, 2, "weight_gradient_n1c40h17w17_o136k1_bfloat16_nhwc"),
    ((64, 16, 64, 3), 3, 4, "weight_gradient_n3c16h8w13_o72k1_float16_nhwc"))]


@needs_compiler
@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS, sizes), sizes, monkeypatch)


FEW, MANY, WEIGHTS, PARTS = PLANS[0], PLANS[1], PLANS[6], PLANS[7]
JOINED, PRODUCT = "warpgroup_gemm/joined.hpp", "warpgroup_gemm/product.hpp"
SHARED = "support/shared_sums.hpp"
# The plan, the file and its source as it is, with its fault, and what is said of it.
FAULTS = {
    "sums added before all have come": (
        FEW, JOINED, "    shared.mailbox.wait();\n", "", "WRONG"),
    "a mailbox that waits for a block too few": (
        MANY, SHARED, "prepare((Cluster - 1) *", "prepare((Cluster - 2) *",
        "WRONG"),
    "threads that do not wait for the others": (
        FEW, JOINED, "      wait_for_cluster();\n    }\n", "    }\n", "divergent rendezvous"),
    "sums of one block left out": (
        FEW, SHARED, "from = 0; from < Cluster;", "from = 0; from < Cluster - 1;", "WRONG"),
    "sums handed to the place of another block": (
        MANY, SHARED, "mailbox.send(sent(rank, run", "mailbox.send(sent(rank / 2, run", "WRONG"),
    "runs of the next block": (
        MANY, JOINED, "number = block.rank * t::own_runs + i;",
        "number = (block.rank + 1) % t::cluster * t::own_runs + i;", "WRONG"),
    "a row past the last": (
        MANY, JOINED, "rows = Roles::m(block.s) - first_m - row;",
        "rows = Roles::m(block.s) - first_m - row + 1;", "beside it changed"),
    "a block with the steps of the first": (
        FEW, PRODUCT, "first_step((part * cluster + rank)", "first_step((part * cluster)", "WRONG"),
    "parts that begin with the last one's end": (
        PARTS, PRODUCT, "first_step((part * cluster + rank)", "first_step((part + rank)", "WRONG"),
}


@needs_compiler
@pytest.mark.parametrize("fault", mostly_deep(FAULTS, "sums handed to the place of another block"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    require_caught(tmp_path, monkeypatch, *FAULTS[fault])


@pytest.mark.deep
@needs_compiler
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([FEW, MANY, WEIGHTS, PARTS], monkeypatch)


@pytest.mark.deep
@needs_compiler
def test_the_sanitizers_find_nothing(tmp_path):
    require_silence(checked_under_sanitizers(tmp_path, PLANS[1::2]))


def codes(token, device="h200", **fields):
    tiling = WarpgroupGemmTiling(64, 64, 64, 2, **fields)
    verdict = validate(parse_problem(token), tiling, catalog.device(device))
    return [violation.code for violation in verdict.violations]


@pytest.mark.parametrize(("token", "fields", "refused"), [
    ("n1c512h8w8_o64k1_float16_nhwc", {"cluster": 8}, []),
    ("n1c512h8w8_o64k1_float16_nhwc", {"cluster": 9}, ["E-CLUSTER", "E-STEPS"]),
    ("n1c448h8w8_o64k1_float16_nhwc", {"cluster": 8}, ["E-STEPS"]),
    ("n1c512h16w16_o64k1_float16_nhwc", {"cluster": 2, "repeat": 2}, ["E-REPEAT"]),
    ("n1c512h8w8_o64k1_float16_nhwc", {"cluster": 2, "kept": True}, ["E-REPEAT"])])
def test_what_clusters_are_refused(token, fields, refused):
    assert codes(token, **fields) == refused


def test_int8_has_no_clusters():
    verdict = validate(parse_problem("n1c512h8w8_o64k1_int8_nhwc"),
                       WarpgroupGemmTiling(64, 64, 128, 2, cluster=2), H200)
    assert [violation.code for violation in verdict.violations] == ["E-CLUSTER"]


def test_a_cluster_in_place_of_parts_needs_neither_workspace_nor_second_launch():
    token = "weight_gradient_n2c200h16w17_o136k1_float16_nhwc"
    parts, cluster = (clustered((64, 128, 64, 2), *shares, token) for shares in ((8, 1), (1, 8)))
    assert parts.launch.blocks == cluster.launch.blocks
    assert (len(parts.further_launches), len(cluster.further_launches)) == (1, 0)
    assert cluster.workspace_bytes == 0 < parts.workspace_bytes


def test_lds_has_a_place_for_each_sum_that_is_handed_over():
    plan = PLANS[0]
    shape = shape_of(plan.problem, plan.tiling)
    assert shape.handed_bytes == 64 * 32 * 4  # of the half that this block adds
    # 72 columns are nine runs of eight, of which a block of four adds up to three.
    shape = shape_of(MANY.problem, MANY.tiling)
    assert shape.handed_bytes == 128 * 3 * 3 * 8 * 4


def test_hints_of_before_have_one_block():
    tiling = tiling_from({"algorithm": "warpgroup_gemm", "tile_m": 64, "tile_n": 64, "step": 64,
                          "stages": 2, "repeat": 1, "kept": False, "parts": 1})
    assert tiling == WarpgroupGemmTiling(64, 64, 64, 2, cluster=1)
