"""Means by blocks of a cluster on the emulated device: equal to the reference, and faults caught;
which devices and problems have clusters."""

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

import dscore
from dscore.algorithms.direct import DirectTiling
from dscore.algorithms.direct.mean import columns
from dscore.backends.emulated import EmulatedBackend
from dscore.core import catalog
from dscore.core.errors import SpecError
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan, solve
from dscore.solving.verdict import validate

needs_compiler = needs(EmulatedBackend())
H200 = catalog.device("h200")


def planned(tiling, token, device=H200):
    return make_plan(parse_problem(token), device, tiling)


# Several rounds of loads and less than one, pixels and channels left over, vectors and single
# elements, blocks without pixels, more channels than threads, all types; and no cluster.
PLANS = [planned(DirectTiling(*fields), token) for fields, token in (
    ((64, 2, 2), "mean_n2c32h40w31_o32k1_float16_nhwc"),
    ((128, 4, 8), "mean_n1c40h61w67_o40k1_float16_nhwc"),
    ((64, 4, 3), "mean_n3c13h9w11_o13k1_bfloat16_nhwc"),
    ((32, 8, 4), "mean_n2c48h9w11_o48k1_nhwc"),
    ((64, 1, 8), "mean_n2c8h7w9_o8k1_bfloat16_nhwc"),
    ((32, 32, 4), "mean_n2c264h5w5_o264k1_float16_nhwc"),
    ((512, 2, 2), "mean_n1c24h70w70_o24k1_nhwc"),
    ((96, 2, 1), "mean_n2c24h20w20_o24k1_float16_nhwc"),
    ((512, 2, 1), "mean_n1c24h40w40_o24k1_float16_nhwc"),
    ((288, 4, 3), "mean_n2c40h20w31_o40k1_bfloat16_nhwc"),
    ((64, 2, 1), "mean_n2c5h20w20_o5k1_float16"))]


@needs_compiler
@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS, sizes), sizes, monkeypatch)


@needs_compiler
@pytest.mark.deep
def test_the_tilings_of_large_images_are_equal_to_the_reference(monkeypatch):
    plans = [dscore.plan_for("mean_n1c32h112w112_o32k1_float16_nhwc", device)
             for device in ("h200", "z100sm")]
    require_bit_equal(plans, "fixed", monkeypatch)


ROUNDS, FEW, RUNS = PLANS[0], PLANS[3], PLANS[9]
KERNEL, JOINED = "direct/mean.hpp", "support/joined_sums.hpp"
# The plan, the file, its source as it is, with its fault, and what is said of it.
FAULTS = {
    "the first block's pixels in all blocks": (
        ROUNDS, KERNEL, "first_at = rank() * parts + part;", "first_at = part;", "WRONG"),
    "a later round without the pixels of a block": (
        ROUNDS, KERNEL, "first_at += rounds * shares", "first_at += rounds * shares + parts",
        "WRONG"),
    "pixels of the neighbour": (
        ROUNDS, KERNEL, "first_at + r * shares;", "first_at + r * parts;", "WRONG"),
    "a block's parts not joined": (
        FEW, KERNEL, "join_parts<channels>(lds, [&](int c, Sum sum) { lds[c] = sum; });", "",
        "WRONG"),
    "the last part of a run left out": (
        RUNS, KERNEL, "for (int i = 1; i < of_run; i++)", "for (int i = 1; i < of_run - 1; i++)",
        "WRONG"),
    "the last part of the last run left out": (
        RUNS, KERNEL, "if (first + i < parts) sum", "if (first + i < parts - 1) sum", "WRONG"),
    "a run's sum in the place of a part that others read": (
        RUNS, KERNEL, "    __syncthreads();\n    if (first < parts)", "    if (first < parts)",
        "WRONG"),
    "the last block's sums left out": (
        FEW, JOINED, "for (int other = 1; other < Cluster; other++) sum += read_of_block(own",
        "for (int other = 1; other < Cluster - 1; other++) sum += read_of_block(own", "WRONG"),
    "sums read before they are there": (
        FEW, JOINED, "const Store &store) {\n  cluster_barrier();", "const Store &store) {",
        "WRONG"),
    "a block that ends while others read": (
        FEW, JOINED, "    store(at, sum);\n  }\n  // A block's LDS is there for as long as the "
        "block is.\n  cluster_barrier();", "    store(at, sum);\n  }\n  if (rank == 0) "
        "cluster_barrier();", "divergent rendezvous"),
}


@needs_compiler
@pytest.mark.parametrize("fault", mostly_deep(FAULTS, "a block's parts not joined"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    require_caught(tmp_path, monkeypatch, *FAULTS[fault])


@pytest.mark.deep
@needs_compiler
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([ROUNDS, FEW], monkeypatch)


@pytest.mark.deep
@needs_compiler
def test_the_sanitizers_find_nothing(tmp_path):
    plan = planned(DirectTiling(64, 2, 4), "mean_n2c40h23w17_o40k1_float16_nhwc")
    require_silence(checked_under_sanitizers(tmp_path, [plan]))


def _chosen(token, device):
    t = columns(parse_problem(token), catalog.device(device))
    return DirectTiling(int(t.threads[0]), int(t.thread_c[0]), int(t.cluster[0]))


@pytest.mark.parametrize(("token", "tiling"), [
    # A block for every third CU, of a line of each pixel; else of fewer vectors.
    ("mean_n32c144h28w28_o144k1_float16_nhwc", DirectTiling(512, 8)),
    ("mean_n32c1152h7w7_o1152k1_float16_nhwc", DirectTiling(64, 8)),
    ("mean_n32c32h112w112_o32k1_float16_nhwc", DirectTiling(512, 2, 2)),
    # Six rounds of loads for a thread are two blocks' of three.
    ("mean_n32c144h56w56_o144k1_float16_nhwc", DirectTiling(512, 8, 2)),
    # Many blocks of fewer threads where CUs would be idle; no thread without a round of loads.
    ("mean_n1c32h112w112_o32k1_float16_nhwc", DirectTiling(512, 2, 8)),
    ("mean_n1c96h56w56_o96k1_float16_nhwc", DirectTiling(128, 2, 8)),
    ("mean_n1c1152h7w7_o1152k1_float16_nhwc", DirectTiling(32, 2)),
    ("mean_n32c32h112w112_o32k1_float16", DirectTiling(256, 1))])
def test_blocks_share_pixels_where_devices_and_pixels_leave_room(token, tiling):
    assert _chosen(token, "h200") == tiling
    for device in ("z100sm", "a100"):
        assert _chosen(token, device).cluster == 1


def test_blocks_and_lds_of_a_cluster():
    plan = planned(DirectTiling(512, 2, 4), "mean_n32c32h112w112_o32k1_float16_nhwc")
    assert plan.name.endswith("__direct_t512_c2_x4__h200")
    assert (plan.launch.blocks, plan.launch.lds_bytes) == (256, 16384)
    assert DirectTiling(512, 2).name == "direct_t512_c2"


@pytest.mark.parametrize(("token", "device"), [
    ("mean_n2c32h9w9_o32k1_nhwc", "z100sm"), ("mean_n2c32h9w9_o32k1_nhwc", "a100"),
    ("mean_n2c32h9w9_o32k1", "h200"), ("n2c32h9w9_o32k1_nhwc", "h200"),
    ("quantise_n2c32h9w9_o32k1_nhwc", "h200"), ("weight_gradient_n2c32h9w9_o32k1", "h200"),
    ("input_gradient_n2c32h9w9_o32k1_nhwc", "h200")])
def test_clusters_of_other_devices_layouts_and_operations_are_refused(token, device):
    def codes(cluster):
        verdict = validate(parse_problem(token), DirectTiling(64, 4, cluster),
                           catalog.device(device), masked=True)
        return [violation.code for violation in verdict.violations]

    assert (codes(1), codes(2)) == ([], ["E-CLUSTER"])


def test_a_cluster_has_no_more_blocks_than_the_device_says():
    problem = parse_problem("mean_n2c32h99w99_o32k1_nhwc")
    assert validate(problem, DirectTiling(64, 4, 8), H200, masked=True).ok
    [violation] = validate(problem, DirectTiling(64, 4, 9), H200, masked=True).violations
    assert violation.code == "E-CLUSTER"


@pytest.mark.parametrize(("token", "part"), [
    ("mean_n1c8h7w7_o8k1_nhwc_bias", "a bias"),
    ("mean_n1c8h7w7_o8k1_nhwc_relu", "the activation relu"),
    ("quantise_n1c16h8w8_o16k1_float16_nhwc_bias", "a bias")])
def test_what_would_not_be_added_is_refused_by_name(token, part):
    with pytest.raises(SpecError, match=f"is of images alone, and this layer has {part}; leave"):
        solve(parse_problem(token), H200)
