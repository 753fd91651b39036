"""Channels side by side: any channels and sizes, slices, and what a tiling may not be."""

import numpy as np
import pytest
from profiles import deep

from dscore.algorithms.channel_sums.tiling import ChannelSumsTiling
from dscore.algorithms.channel_sums.tiling import shape_of as sums_shape
from dscore.algorithms.channel_vectors.tiling import ChannelVectorsTiling, copies, shape_of
from dscore.algorithms.registry import algorithm, case_of
from dscore.core import catalog
from dscore.core.backend import backend
from dscore.core.token import parse_problem
from dscore.solving.rules import keeps_all
from dscore.solving.solver import best_plan, make_plan, solve
from dscore.solving.verdict import validate

H200, GFX906 = catalog.device("h200"), catalog.device("gfx906")
TYPES = ("", "_float16", "_bfloat16")


def result(plan, *inputs):
    out = np.full(plan.problem.y_shape if plan.problem.operation == "conv" else
                  plan.problem.spec.w_shape, np.nan, plan.problem.spec.element.numpy)
    backend("reference").compile(plan)(*inputs, out)
    return out


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("channels", [1, 5, 8, 12])
def test_small_whole_numbers_are_exact_whatever_the_channels(channels, dtype):
    problem = parse_problem(f"n2c{channels}h6w5_o{2 * channels}k3s2x1p1g{channels}{dtype}_nhwc")
    tiling = ChannelVectorsTiling(4, 3, 2, 3, 2, 1, 2)
    rng, element = np.random.default_rng(channels), problem.spec.element.numpy
    x = rng.integers(-4, 5, problem.x_shape)
    w = rng.integers(-2, 3, problem.spec.w_shape)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))).repeat(2, axis=3)
    expected = sum(padded[:, f:f + 5:2, g:g + 5] * w[:, 0, f, g] for f in range(3)
                   for g in range(3))
    y = result(make_plan(problem, H200, tiling), x.astype(element), w.astype(element), None)
    np.testing.assert_array_equal(y.astype(np.float64), expected)


@pytest.mark.parametrize("slices", [1, 3])
def test_two_runs_of_a_weight_gradient_are_bit_equal(slices):
    problem = parse_problem("weight_gradient_n3c6h7w5_o6k3p1g6_nhwc")
    plan = make_plan(problem, H200, ChannelSumsTiling(2, 2, 2, 3, 2, 1, slices, 2))
    assert (plan.workspace_bytes, len(plan.further_launches)) == (
        (0, 0) if slices == 1 else (4 * slices * 6 * 9, 1))
    rng = np.random.default_rng(slices)
    x, gradient = (rng.integers(-8, 8, problem.x_shape).astype(np.float32) for _ in range(2))
    first, second = (result(plan, x, gradient) for _ in range(2))
    assert first.tobytes() == second.tobytes()
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    for f in range(3):
        for g in range(3):
            np.testing.assert_array_equal(
                first[:, 0, f, g], (padded[:, f:f + 7, g:g + 5] * gradient).sum((0, 1, 2)))


def test_a_column_that_the_gradient_lacks_meets_no_infinity():
    problem = parse_problem("weight_gradient_n1c2h3w4_o2k2s2g2_nhwc")
    x, gradient = np.ones(problem.x_shape, np.float32), np.ones(problem.y_shape, np.float32)
    x[:, 2:] = np.inf  # a row under no tap
    plan = make_plan(problem, H200, ChannelSumsTiling(2, 1, 2, 3, 1, 1, 1))
    np.testing.assert_array_equal(result(plan, x, gradient), 2)


@pytest.mark.parametrize("token", [
    "n1c3h5w6_o3k1x7p3g3_nhwc", "n2c1025h7w7_o1025k3p1g1025_nhwc", "n1c8h1w1_o24k5p2g8_nhwc",
    "n1c96h56w56_o96k7p3g96_float16_nhwc", "n1c4h9w300000_o4k3p1g4_nhwc",
    "n8c2h300w3_o2k3x1s7d5x1g2_bfloat16_nhwc", "input_gradient_n2c40h29w31_o40k5s3p1g40_nhwc"])
@pytest.mark.parametrize("device", [H200, GFX906], ids=str)
def test_a_layer_of_any_size_has_tilings(token, device):
    plan = best_plan(parse_problem(token), device)
    assert plan.tiling.algorithm == "channel_vectors"
    assert keeps_all(case_of(plan.problem, device, plan.tiling), "hardware", masked=True)


@pytest.mark.parametrize("dtype", TYPES)
def test_what_moves_as_one_lies_at_a_multiple_of_itself(dtype):
    for channels in (1, 6, 20, 33, 64):
        problem = parse_problem(f"n1c{channels}h9w9_o{channels}k3p1g{channels}{dtype}_nhwc")
        space = solve(problem, H200, algorithm="channel_vectors")
        element = problem.spec.element.bytes
        for at in range(0, len(space), 199):
            image, filters, results = copies(problem, space[at])
            shape = shape_of(problem, space[at])
            assert channels % image == shape.walked % image == channels % results == 0
            assert shape.channels * 9 % filters == channels * 9 % filters == 0
            assert max(image, filters, results) * element <= 16


@pytest.mark.parametrize("layer", ["D1", "D11"])
def test_the_tiles_of_all_slices_cover_the_images(layer):
    problem = parse_problem({"D1": "weight_gradient_n32c32h112w112_o32k3p1g32_float16_nhwc",
                             "D11": "weight_gradient_n8c1152h7w7_o1152k5p2g1152_nhwc"}[layer])
    space = solve(problem, H200, algorithm="channel_sums")
    for at in range(0, len(space), 997):
        shape, shares = sums_shape(problem, space[at]), space[at].slices * space[at].cluster
        assert shape.unit_slices * shares >= shape.units
        assert (shares - 1) * shape.unit_slices < shape.units  # none has no work


@pytest.mark.parametrize(("tiling", "code"), [
    (ChannelVectorsTiling(3, 2, 2, 2, 1, 1), "E-VECTOR"),
    (ChannelVectorsTiling(8, 2, 2, 2, 1, 1), "E-VECTOR"),
    (ChannelVectorsTiling(4, 2, 2, 2, 1, 1, 5), "E-BANDS"),
    (ChannelVectorsTiling(4, 2, 2, 2, 1, 1, repeat=21), "E-REPEAT"),
    (ChannelVectorsTiling(4, 2, 40, 1, 1, 1), "E-ROWS")])
def test_a_tiling_that_is_none_is_refused_by_name(tiling, code):
    case = case_of(parse_problem("n1c8h40w8_o8k3p1g8_nhwc"), H200, tiling)
    checks = [limit.check(case) for limit in algorithm("channel_vectors").limits]
    assert [check.code for check in checks if check.used > check.allowed] == [code]
    assert not keeps_all(case, "hardware", masked=True)


def test_blocks_of_several_tiles_are_tried_of_int8_and_fill_the_device_once():
    token = "n32c144h56w56_o144k3p1g144_{}nhwc"
    space = solve(parse_problem(token.format("int8_")), H200, algorithm="channel_vectors")
    repeated = [space[at] for at in range(len(space)) if space.case.tiling.repeat[at] > 1]
    assert {tiling.repeat for tiling in repeated} >= {2, 4}
    for tiling in repeated[::97]:
        blocks = make_plan(space.problem, H200, tiling).launch.blocks
        count = -(-blocks // H200.compute_units)
        assert count * H200.compute_units * 0.83 <= blocks
        assert count * case_of(space.problem, H200, tiling).use.lds_bytes <= H200.lds_bytes_per_cu
    small = "n32c576h14w14_o576k3p1g576_int8_nhwc"  # which took longer by them in networks
    for other, device in ((small, H200), (token.format(""), H200),
                          (token.format("float16_"), H200), (token.format("int8_"), GFX906)):
        space = solve(parse_problem(other), device, algorithm="channel_vectors")
        assert set(space.case.tiling.repeat) == {1}


# Microseconds in MobileNetV2 and EfficientNet-B0 on an H200, by tilings (lanes over channels,
# results of a thread, lanes over them, bands, tiles of a block); all work ahead.
@pytest.mark.parametrize(("token", "crowded", "others"), [
    ("n32c32h112w112_o32k3p1g32_int8_nhwc_table", (20.05, 8, 7, 2, 2, 8, 1, 7),
     (14.27, 8, 4, 2, 4, 8, 1, 3)),
    ("n32c144h56w56_o144k3p1g144_int8_nhwc_table", (25.5, 36, 14, 1, 1, 7, 1, 8),
     (19.74, 36, 2, 2, 2, 7, 1, 7)),
    ("n32c144h56w56_o144k5s2p2g144_int8_nhwc_table", (16.14, 36, 7, 1, 1, 7, 2, 4),
     (10.5, 36, 7, 1, 2, 7, 2, 2)),
    ("n32c144h56w56_o144k3p1g144_int8_nhwc", (19.28, 36, 28, 1, 1, 7, 1, 4),
     (13.22, 36, 14, 2, 2, 7, 1, 1))])
def test_few_blocks_of_several_tiles_that_come_early_are_expected_to_crowd(token, crowded, others):
    names = ("lanes_c", "thread_h", "thread_w", "lanes_h", "lanes_w", "bands", "repeat")

    def seconds(timing):
        tiling = ChannelVectorsTiling(vector=4, ahead=True,
                                      **dict(zip(names, timing[1:], strict=True)))
        return make_plan(parse_problem(token), H200, tiling).cost.seconds

    assert seconds(crowded) > 1.05 * seconds(others)


@pytest.mark.parametrize(("token", "device", "arithmetics"), [
    ("_float16", H200, {"plain", "matrix16"}), ("_bfloat16", H200, {"plain", "matrix16"}),
    ("", H200, {"plain"}), ("_float16", GFX906, {"plain"})])
def test_weight_gradients_of_16_bits_are_tried_on_nvidias_matrix_units(token, device, arithmetics):
    problem = parse_problem(f"weight_gradient_n8c144h28w28_o144k5p2g144{token}_nhwc")
    space = solve(problem, device, algorithm="channel_sums")
    assert set(space.case.tiling.arithmetic) == arithmetics


@pytest.mark.parametrize("device", [deep("gfx908"), "gfx90a", deep("gfx942")])
@pytest.mark.parametrize("token", ["n8c144h56w56_o144k3p1g144_float16_nhwc",
                                   "input_gradient_n8c144h56w56_o144k3p1g144_float16_nhwc",
                                   "weight_gradient_n8c144h56w56_o144k3p1g144_float16_nhwc"])
def test_diagonals_are_multiplied_by_nvidias_matrix_units_alone(token, device):
    """AMD's take fragments of another shape: a kernel's products there would be none at all."""
    problem, device = parse_problem(token), catalog.device(device)
    name = "channel_sums" if token.startswith("weight") else "channel_vectors"
    space = solve(problem, device, algorithm=name)
    assert {tiling.arithmetic for tiling in space} == {"plain"}
    assert best_plan(problem, device).tiling.computes("plain")
    units = (ChannelSumsTiling(8, 1, 1, 8, 1, 2, 1, arithmetic="matrix16")
             if name == "channel_sums" else
             ChannelVectorsTiling(8, 1, 1, 8, 1, 2, arithmetic="matrix16"))
    codes = [one.code for one in validate(problem, units, device, masked=True).violations]
    assert "E-MATRIX" in codes


# Kernels of int8 that hipcc compiled for gfx906: two whose loop over rows stayed rolled, one that
# spilled, as each byte of a row took a register, and one that did neither; and the first one's rows
# in eight bands.
@pytest.mark.parametrize(("token", "tiling", "codes"), [
    ("n1c25h28w28_o25k3s2p2g25_int8_nhwc_bias_table",
     ChannelVectorsTiling(8, 4, 14, 4, 1, 4, 1), {"E-BAND"}),
    ("n1c48h28w28_o48k7s2p2g48_int8_nhwc_bias_table",
     ChannelVectorsTiling(4, 3, 3, 3, 2, 2, 1, repeat=3), {"E-BAND"}),
    ("n1c25h28w28_o100k2x7p2d2x1g25_int8_nhwc_bias",
     ChannelVectorsTiling(8, 3, 4, 2, 1, 1, 2, repeat=2), {"E-VGPR-MAX", "E-VGPR-ALLOC"}),
    ("n1c25h28w28_o25k5s2x3p2d2g25_int8_nhwc", ChannelVectorsTiling(4, 1, 2, 1, 1, 2, 4), set()),
    ("n1c25h28w28_o25k3s2p2g25_int8_nhwc_bias_table",
     ChannelVectorsTiling(8, 4, 14, 4, 1, 4, 8), set())])
def test_what_hipcc_would_keep_in_memory_is_refused(token, tiling, codes):
    verdict = validate(parse_problem(token), tiling, GFX906, masked=True)
    assert {violation.code for violation in verdict.violations} == codes
