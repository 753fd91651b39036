"""Products of whole images by filters on the emulated device: equal to the reference, and faults
caught; what is refused, and on which devices."""

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

from dscore.algorithms.image_gemm.tiling import ImageGemmTiling, conflicts_of, run_of, shape_of
from dscore.algorithms.registry import algorithm
from dscore.backends.emulated import EmulatedBackend
from dscore.core import catalog
from dscore.core.errors import InfeasibleError
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan, solve
from dscore.solving.verdict import validate

needs_compiler = needs(EmulatedBackend())
H200 = catalog.device("h200")


def planned(tiling, token):
    return make_plan(parse_problem(token), H200, tiling)


# Planes of odd and even sizes; several images, the last of which are missing; rings that are
# refilled or have one buffer; slices, and tiles that follow one another; instructions read one by
# one and several together, even and odd numbers of these; results where the ring was.
PLANS = [planned(ImageGemmTiling(*fields), token) for fields, token in (
    ((64, 1, 1, 1, 64, 2), "n1c64h8w8_o64k1_float16"),
    ((40, 1, 1, 1, 64, 2), "n3c200h7w7_o72k1_float16_bias_relu"),
    ((64, 2, 1, 1, 48, 3), "n3c136h7w7_o72k1_bfloat16_bias_hardswish_residual"),
    ((24, 1, 1, 3, 16, 6), "n2c136h7w7_o40k1_float16_bias_residual"),
    ((64, 1, 2, 1, 32, 3), "n2c88h14w14_o136k1_float16_bias_residual"),
    ((72, 2, 2, 2, 48, 4), "n3c200h8w8_o72k1_bfloat16"),
    ((32, 1, 1, 1, 80, 1), "n1c80h14w14_o72k1_float16_bias_relu6_residualafter"),
    ((56, 1, 4, 1, 32, 3, 2), "n3c72h14w14_o112k1_bfloat16_bias"),
    ((64, 1, 1, 1, 64, 2, 3), "n5c136h7w7_o72k1_float16_bias_relu_residual"),
    ((32, 2, 1, 1, 32, 4, 2), "n7c40h5w7_o40k1_float16_residual"),
    ((40, 1, 1, 1, 48, 2, 1, 4), "n3c264h7w7_o72k1_float16_bias_relu"),
    ((112, 1, 4, 1, 16, 2, 1, 4), "n2c168h14w14_o112k1_bfloat16_bias_residual"),
    ((32, 3, 1, 2, 16, 4, 1, 3), "n4c136h5w7_o40k1_float16_bias_hardswish"),
    ((40, 1, 1, 1, 64, 2, 1, 1, 4), "n2c136h14w14_o72k1_float16_bias_relu"),
    ((24, 1, 2, 1, 32, 3, 1, 1, 2), "n3c88h14w14_o40k1_bfloat16_bias_hardswish_residual"),
    ((56, 1, 1, 2, 16, 4, 1, 2, 2), "n2c168h10w10_o72k1_float16_residual"),
    ((72, 1, 1, 1, 48, 2, 1, 3, 3), "n1c200h6w14_o136k1_bfloat16"),
    ((56, 1, 1, 2, 128, 4), "n1c520h7w7_o40k1_float16_bias_relu"),
    ((40, 1, 1, 2, 64, 8, 1, 2), "n2c264h7w7_o72k1_bfloat16_residual"),
    ((80, 1, 1, 1, 64, 6, 1, 1, 4), "n1c136h14w14_o72k1_float16_bias"),
    ((96, 5, 2, 1, 32, 4), "n6c72h7w7_o88k1_float16"),
    ((32, 1, 1, 1, 64, 2, 1, 1, 4), "input_gradient_n2c136h14w14_o72k1_float16"),
    ((40, 1, 2, 2, 16, 4, 1, 1, 2), "input_gradient_n3c72h14w14_o136k1_bfloat16"),
    ((40, 1, 1, 1, 128, 2, 1, 1, 5), "n1c136h4w61_o40k1_float16"),
    ((24, 2, 1, 1, 16, 2, 1, 8), "input_gradient_n3c72h7w7_o136k1_float16"),
    ((72, 1, 4, 1, 64, 3), "input_gradient_n2c136h14w14_o200k1_bfloat16"),
    ((24, 3, 2, 2, 16, 4), "input_gradient_n5c136h7w7_o88k1_float16"),
    ((32, 2, 1, 1, 32, 2, 3), "input_gradient_n7c136h5w7_o40k1_bfloat16"))]


@needs_compiler
@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS, sizes), sizes, monkeypatch)


RING, ODD, SLICED, EVEN = PLANS[1], PLANS[2], PLANS[3], PLANS[4]
REPEATED, TURNED = PLANS[8], PLANS[25]
JOINED, PART, OVER = PLANS[10], PLANS[13], PLANS[17]
KERNEL, PIXELS = "image_gemm/product.hpp", "image_gemm/pixels.hpp"
RESULTS, SHARED = "image_gemm/results.hpp", "image_gemm/shared.hpp"
OF_CLUSTER = "support/shared_sums.hpp"
# The plan, its source as it is, with its fault, and what is said of it; the file, if another.
FAULTS = {
    "a buffer filled before it is read": (
        RING, "if (copied >= t::stages) wait_barrier(empty + turn.stage, turn.parity ^ 1);", "",
        "wait for one another"),
    "pixels read before they have come": (
        ODD, "if (turn == 0) wait_barrier(full + stage, number / t::stages & 1);", "",
        "came to LDS that nobody"),
    "another image's pixels": (ODD, "image[r] = held[r] ? pair / t::pairs : 0;",
                               "image[r] = 0;", "WRONG", PIXELS),
    "the second pixel of an odd plane from the word before": (
        ODD, "behind = two(at + t::area + 1);", "behind = two(at + t::area - 1);", "WRONG", PIXELS),
    "halves of words exchanged": (EVEN, "to[1] = permuted(even, odd, 0x7632);",
                                  "to[1] = permuted(even, odd, 0x3276);", "WRONG", PIXELS),
    "summed channels four on": (EVEN, "half * t::depth / 2;", "half * t::depth / 4;", "WRONG",
                                PIXELS),
    "filters of the step's first instructions": (
        ODD, "(depth + i) * t::depth));", "i * t::depth));", "WRONG"),
    "turned filters taken along": (TURNED, "operand_place<T>(t::across, t::filter_box,",
                                   "operand_place<T>(false, t::filter_box,", "WRONG"),
    "sums of the tile before": (REPEATED, "step > slice || turn > 0);", "true);", "WRONG"),
    "a slice's sums left out": (SLICED, "for (int other = 1; other < t::slices; other++)",
                                "for (int other = 2; other < t::slices; other++)", "WRONG",
                                SHARED),
    "slices' sums read before they are there": (
        SLICED, "  wait_barrier(block.shared, 0);\n", "", "WRONG", SHARED),
    "a slice's sums where another one reads": (
        OVER, "if (t::over_ring) wait_barrier(vacant, 0);", "if (t::over_ring) {}", "WRONG"),
    "the last pixel's neighbour stored": (ODD, "i % 2 == 0, pixel + 1 < t::area);",
                                          "i % 2 == 0, true);", "WRONG", RESULTS),
    "results of a tile in place of another's": (
        REPEATED, "const int tile = block_i + number * blocks_i(s);",
        "const int tile = block_i + number;", "WRONG"),
    "results stored before they are made": (
        EVEN, "      wait_barrier(block.made + chunk, tile.number & 1);\n", "", "WRONG", RESULTS),
    "results not waited for": (EVEN, "    wait_stores<0>();\n  }\n  __device__ void copy_filters",
                               "  }\n  __device__ void copy_filters", "WRONG"),
    "images past the last": (ODD, "if (e < block.images_from(tile.image) && channels > 0)",
                             "if (channels > 0)", "outside its output", RESULTS),
    "channels past the last": (
        ODD, "least(t::chunk, block.own_end() - first_n)",
        "least(t::chunk, block.own_end() - first_n + 8)",
        "outside its output", RESULTS),
    "a second plane where the first one begins": (
        PART, "pixel + second * t::moved;", "pixel;", "WRONG", PIXELS),
    "vectors of a part taken in order": (
        PART, "swizzled(within) / ", "within / ", "WRONG", PIXELS),
    "the first part in place of another": (
        PART, "tile % t::parts * t::part};", "0};", "WRONG"),
    "pixels past a plane stored": (
        PART, "t::part || tile.pixel + pixel >= t::area) continue;", "t::part) continue;",
        "outside its output", RESULTS),
    "results of a part stored before they are made": (
        PART, "    warpgroup_barrier<t::groups>(group);\n", "", "WRONG", RESULTS),
    "sums of a cluster's last block left out": (
        JOINED, "from = 0; from < Cluster;", "from = 0; from < Cluster - 1;", "WRONG", OF_CLUSTER),
    "sums of a cluster added before they have come": (
        JOINED, "    runs.mailbox.wait();\n", "", "WRONG", SHARED),
    "sums sent to the place of another block": (
        JOINED, "mailbox.send(sent(rank, run", "mailbox.send(sent(rank / 2, run", "WRONG",
        OF_CLUSTER),
    "the first block's steps in all blocks": (
        JOINED, "const int summed = (first_step + step) * t::step;",
        "const int summed = step * t::step;", "WRONG"),
    "steps shared unevenly, and one left out": (
        JOINED, "return all_steps(s) * rank / cluster;",
        "return all_steps(s) / cluster * rank;", "WRONG"),
    "channels of the next block": (
        JOINED, "return first_n + rank * t::own_n;", "return first_n + (rank + 1) % 3 * t::own_n;",
        "WRONG"),
    "sums expected of channels past the tile": (
        JOINED, "prepare((Cluster - 1) * own()", "prepare((Cluster - 1) * most",
        "wait for one another", OF_CLUSTER),
    "threads that do not meet the cluster's others": (
        JOINED, "    if (cluster > 1) meet_cluster();\n    if (moves &&", "    if (moves &&",
        "wait for one another"),
    "more bytes than come": (EVEN, "t::filter_bytes + t::plane_bytes);",
                             "t::filter_bytes + t::plane_bytes + 16);", "wait for one another"),
}


@needs_compiler
@pytest.mark.parametrize("fault", mostly_deep(
    FAULTS, "slices' sums read before they are there", "channels past the last"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    plan, right, wrong, words, *file = FAULTS[fault]
    require_caught(tmp_path, monkeypatch, plan, *file or [KERNEL], right, wrong, words)


@pytest.mark.deep
@needs_compiler
def test_without_a_fault_nothing_is_said(monkeypatch):
    require_right([ODD, SLICED, EVEN, REPEATED, TURNED], monkeypatch)


@pytest.mark.deep
@needs_compiler
def test_the_sanitizers_find_nothing(tmp_path):
    require_silence(checked_under_sanitizers(tmp_path, [
        planned(ImageGemmTiling(64, 2, 1, 1, 64, 2, 2), "n5c72h7w7_o40k1_float16_bias"),
        planned(ImageGemmTiling(24, 1, 2, 2, 48, 4), "n2c136h14w14_o40k1_float16_bias"),
        planned(ImageGemmTiling(40, 1, 1, 1, 64, 2, parts=4), "n2c136h14w14_o72k1_float16")]))


@pytest.mark.parametrize(("token", "code"), [
    ("n1c60h8w8_o64k1_float16", "E-CHANNELS"), ("n1c64h8w8_o60k1_float16", "E-CHANNELS"),
    ("n1c64h8w8_o64k1s2_float16", "E-STRIDE"), ("n1c64h8w8_o64k1p1_float16", "E-STRIDE"),
    ("n1c64h8w8_o64k1_float16_scaled", "E-SCALE"), ("n1c64h8w8_o64k1_float16_nhwc", "E-LAYOUT"),
    ("n1c64h1w1_o64k1_float16", "E-LAYOUT"), ("n1c64h8w8_o64k1", "E-DTYPE"),
    ("n1c64h17w16_o64k1_float16", "E-AREA"), ("n1c64h8w8_o64k3_float16", "E-KIND")])
def test_what_it_does_not_run_is_refused_by_name(token, code):
    [violation] = algorithm("image_gemm").refuses(parse_problem(token))
    assert violation.code == code


@pytest.mark.parametrize(("fields", "code"), [
    ((60, 1, 1, 1, 64, 2), "E-TILE"), ((264, 1, 4, 1, 16, 2), "E-BOX"),
    ((64, 1, 1, 1, 24, 2), "E-SLICE"), ((64, 1, 3, 2, 16, 4), "E-GROUPS"),
    ((64, 1, 4, 1, 16, 2), "E-IDLE"), ((64, 1, 1, 2, 64, 2), "E-SLICES"),
    ((64, 1, 1, 1, 16, 9), "E-STAGES"), ((64, 1, 1, 2, 16, 3), "E-STAGES"),
    ((64, 1, 1, 1, 16, 1), "E-STAGES"), ((192, 1, 1, 1, 16, 2), "E-SUMS"),
    ((16, 2, 1, 1, 16, 2), "E-ROWS"),
    ((64, 1, 1, 2, 16, 4, 2), "E-REPEAT"), ((64, 1, 1, 1, 16, 4, 2, 2), "E-REPEAT"),
    ((64, 1, 1, 1, 16, 2, 1, 1, 2), "E-PARTS"),
    ((64, 1, 1, 1, 16, 2, 1, 9), "E-CLUSTER"), ((64, 1, 1, 2, 16, 4, 1, 3), "E-SLICES"),
    ((64, 1, 1, 1, 16, 2, 1, 6), "E-SLICES")])
def test_tilings_without_a_kernel_are_refused(fields, code):
    problem = parse_problem("n2c72h12w14_o40k1_float16" if code != "E-SLICES"
                            else "n2c64h12w14_o40k1_float16")
    codes = {one.code for one in validate(problem, ImageGemmTiling(*fields), H200,
                                          masked=True).violations}
    assert code in codes


def test_a_step_whose_planes_no_box_brings_is_refused():
    """Of 251 pixels a step of 128 channels has more rows than a box, of 8 elements each."""
    problem = parse_problem("n1c136h1w251_o64k1_float16")
    assert run_of(problem, 128) == 0
    [violation] = [one for one in validate(problem, ImageGemmTiling(8, 1, 4, 1, 128, 1), H200,
                                           masked=True).violations if one.code == "E-RUN"]
    assert violation.used == 1


@pytest.mark.parametrize(("token", "step", "run"), [
    ("n1c672h14w14_o64k1_float16", 64, 128), ("n1c1152h7w7_o64k1_float16", 64, 64),
    ("n1c72h7w7_o64k1_float16", 64, 56), ("n1c112h14w14_o64k1_float16", 112, 224),
    ("n1c24h5w5_o64k1_float16", 32, 200)])
def test_rows_of_boxes_divide_the_planes_of_a_step_and_of_an_image(token, step, run):
    problem = parse_problem(token)
    assert run_of(problem, step) == run
    assert step * problem.height * problem.width % run == 0
    assert problem.spec.in_channels * problem.height * problem.width % run == 0


def test_blocks_of_a_cluster_share_steps_and_channels_of_results():
    plan = planned(ImageGemmTiling(40, 1, 1, 1, 48, 2, 1, 4), "n3c264h7w7_o72k1_float16")
    shape = shape_of(plan.problem, plan.tiling)
    assert plan.launch.blocks == 3 * 2 * 4
    assert (shape.all_steps, shape.steps) == (6, 2)
    # Five runs of eight channels: of a block of four up to two, which three others send it.
    assert shape.results_bytes == 16 * 49 * 2
    assert shape.sent_bytes == 3 * 16 * 25 * 2 * 4


@pytest.mark.parametrize(("fields", "over"), [
    ((48, 1, 1, 2, 64, 8), True),  # a unit has room for two blocks in place of one
    ((48, 1, 1, 2, 64, 6), False),  # for two in any case
    ((48, 1, 1, 2, 128, 8), False),  # for one in any case
    ((128, 1, 1, 1, 64, 3), False),  # for three in place of two, which lost
    ((160, 1, 1, 1, 64, 4, 2), False)])  # the ring runs on
def test_results_lie_where_the_ring_was_for_a_second_block(fields, over):
    plan = planned(ImageGemmTiling(*fields), "n32c1152h7w7_o1280k1_float16")
    t, shape = plan.tiling, shape_of(plan.problem, plan.tiling)
    ring, behind = t.stages * shape.stage_bytes, (
        (t.slices - 1) * shape.handed_bytes + shape.results_bytes)
    assert behind > 0
    assert shape.work_bytes == (max(ring, behind) if over else ring + behind)
    assert plan.launch.lds_bytes > shape.work_bytes


def test_clusters_are_tried_where_the_device_has_room_for_all_of_them_at_once():
    space = solve(parse_problem("n32c1152h7w7_o192k1_float16"), H200, algorithm="image_gemm")
    clusters = [tiling for tiling in space if tiling.cluster > 1]
    assert {tiling.cluster for tiling in clusters} == {2, 3, 4, 6, 8}
    for tiling in clusters[::97]:
        plan = make_plan(space.problem, H200, tiling)
        beside = H200.lds_bytes_per_cu // plan.launch.lds_bytes
        assert plan.launch.blocks <= beside * H200.cluster_units(tiling.cluster)


@pytest.mark.parametrize(("image", "parts"), [
    ("h14w14", {1, 2, 4}), ("h10w10", {1, 2}), ("h7w7", {1}), ("h12w12", {1})])
def test_parts_are_tried_where_half_a_vector_of_a_plane_is_left_over(image, parts):
    space = solve(parse_problem(f"n8c384{image}_o64k1_float16"), H200, algorithm="image_gemm")
    assert {tiling.parts for tiling in space} == parts


@pytest.mark.parametrize(("image", "parts", "most"), [
    ("h14w14", 5, 5), ("h14w14", 6, 5), ("h14w14", 7, 7), ("h7w7", 2, 1), ("h12w12", 2, 1)])
def test_each_part_of_a_plane_has_pixels(image, parts, most):
    """Six parts of 14 x 14 have 40 pixels each, of which the fifth has the last."""
    problem = parse_problem(f"n2c64{image}_o64k1_float16")
    [check] = [one for one in validate(problem, ImageGemmTiling(64, 1, 1, 1, 16, 2, parts=parts),
                                       H200, masked=True).ledger if one.code == "E-PARTS"]
    assert (check.used, check.allowed) == (parts, most)


def test_lanes_of_usual_planes_meet_in_no_bank():
    """Of these four neighbouring lanes read planes of channels two apart, eight others pairs of
    pixels: all 32 in banks of their own, which a plain order of pairs has not."""
    assert [conflicts_of(side * side) for side in (5, 7, 9, 10, 14, 15)] == [1] * 6
    assert [conflicts_of(side * side) for side in (8, 12, 16)] == [4, 2, 4]


def test_it_suits_hopper_alone():
    one, problem = algorithm("image_gemm"), parse_problem("n1c64h7w7_o64k1_float16")
    assert [name for name, device in catalog.devices().items() if one.suits(device)] == [
        "h100", "h200"]
    with pytest.raises(InfeasibleError, match="image_gemm does not suit a100; "):
        solve(problem, catalog.device("a100"), algorithm="image_gemm")
