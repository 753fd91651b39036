"""The tilings that each algorithm tries, held to what its enumeration promises."""

from dataclasses import replace
from math import ceil, gcd
from types import SimpleNamespace

import numpy as np
import pytest

from dscore.algorithms.channel_distribution import space as distribution
from dscore.algorithms.columns import select
from dscore.algorithms.gemm import space as gemm
from dscore.algorithms.row_reuse import space as row_reuse
from dscore.algorithms.row_reuse.tiling import blocks
from dscore.algorithms.split_k import space as split_k
from dscore.algorithms.warpgroup_gemm import space as warpgroup_gemm
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.solver import solve

Z100SM, H200 = catalog.device("z100sm"), catalog.device("h200")


def rows_of(columns):
    """Columns as dicts, one for each tiling."""
    names = list(vars(columns))
    return [dict(zip(names, row, strict=True)) for row in zip(
        *(column.tolist() for column in vars(columns).values()), strict=True)]


@pytest.mark.parametrize("token", ["n1c3h13w13_o7k1", "n1c6h4w6_o32k1", "n1c64h7w16_o24k1"])
def test_a_masked_tile_lies_less_than_half_past_the_output(token):
    """As `masked_columns` says, over every value of every field."""
    problem = parse_problem(token)
    height, width = problem.out_height, problem.out_width
    inputs, outputs = problem.spec.in_channels, problem.spec.out_channels
    # Channels of a wavefront: up to 8 one by one, then in ever larger steps.
    wave_c = {*range(1, 8), *range(8, 16, 2), *range(16, 32, 4), *range(32, 64, 8),
              64, 96, 128, 192, 256}
    # A wavefront holds one lane a channel, so that smaller layers may have one too large.
    most_c = max(2 * outputs - 1, Z100SM.wavefront)
    wanted = {(w, c, repeat_w, repeat_c, group) for repeat_w in range(1, 17)
              for w in range(1, min(width, 16) + 1) for repeat_c in range(1, 17) for c in wave_c
              for group in (1, 2, 4, 8, 16, 32, 64)
              if repeat_w // gcd(height, repeat_w) * w / 2 < width
              and repeat_c * c <= most_c and group / 2 < inputs}
    rows = [tuple(row.values()) for row in rows_of(distribution.masked_columns(problem, Z100SM))]
    assert len(rows) == len(set(rows))
    assert set(rows) == wanted


# 96 pixels are three tiles of 32, or most of four; 8 channels one, or half of 16.
@pytest.mark.parametrize("token", ["n1c64h8w12_o32k1", "n1c48h7w7_o24k1", "n3c20h8w4_o100k1"])
@pytest.mark.parametrize("device", [Z100SM, H200], ids=lambda device: device.name)
def test_no_wavefront_of_a_product_lies_wholly_past_the_output(token, device):
    problem = parse_problem(token)
    pixels = problem.batch * problem.out_height * problem.out_width
    rows = rows_of(gemm.columns_of(problem, device))
    assert rows
    for row in rows:
        # A block's last wavefront begins before the last pixel, and before the last channel.
        assert row["tile_p"] - row["wave_p"] < pixels
        assert row["tile_c"] - row["wave_c"] < problem.spec.out_channels
        slices = row["tile_c"] // row["wave_c"] * (row["tile_p"] // row["wave_p"]) * row["slices"]
        assert 1 < slices <= 8
        lanes = device.wavefront // row["lanes_c"]
        assert row["wave_c"] * row["wave_p"] <= 128 * device.wavefront
        assert row["arithmetic"] == "tf32x3" or row["wave_p"] % (4 * lanes) == 0
        assert row["step_c"] * row["cluster"] < max(2 * problem.spec.in_channels, 16)
    full = [tile_c * tile_p for tile_c, tile_p in {(row["tile_c"], row["tile_p"]) for row in rows}
            if ceil(problem.spec.out_channels / tile_c) * tile_c * ceil(pixels / tile_p) * tile_p
            * 0.6 > problem.spec.out_channels * pixels]
    assert not full


@pytest.mark.parametrize("token", ["weight_gradient_n1c64h8w12_o32k1",
                                   "weight_gradient_n32c24h28w28_o144k1"])
@pytest.mark.parametrize("device", [Z100SM, H200], ids=lambda device: device.name)
def test_every_block_of_a_split_sum_has_channels_and_pixels(token, device):
    problem = parse_problem(token)
    rows = rows_of(split_k.columns_of(problem, device))
    assert len(rows) == len({tuple(row.values()) for row in rows})
    for row in rows:
        assert row["tile_o"] - row["wave_o"] < problem.spec.out_channels
        assert row["tile_i"] - row["wave_i"] < problem.spec.in_channels
        steps = ceil(problem.batch * problem.out_height * problem.out_width / row["step"])
        assert row["parts"] <= steps
        waves = row["tile_o"] // row["wave_o"] * (row["tile_i"] // row["wave_i"]) * row["slices"]
        assert 1 < waves <= 8
        assert row["wave_o"] * row["wave_i"] <= 128 * device.wavefront
    assert {row["parts"] for row in rows} > {1}


def test_clusters_are_tried_where_tiles_leave_compute_units_idle():
    for token, clusters in (("n1c256h7w7_o256k1", {1, 2, 4, 8}), ("n32c256h28w28_o512k1", {1})):
        rows = rows_of(gemm.columns_of(parse_problem(token), H200))
        assert {row["cluster"] for row in rows if row["tile_c"] * row["tile_p"] <= 2048} == clusters


@pytest.mark.parametrize("token", ["n4c32h112w112_o32k3p1g32", "n32c96h56w56_o96k3p1g96"])
def test_few_blocks_work_ahead(token):
    """Up to 32 for each compute unit, and of rows that come through LDS."""
    problem = parse_problem(token)
    most = 32 * H200.compute_units
    planes = problem.batch * problem.spec.out_channels
    counted = {True: set(), False: set()}
    for row in rows_of(row_reuse.columns_of(problem, H200)):
        count = (ceil(planes / row["planes"])
                 * ceil(problem.out_height / (row["lanes_h"] * row["thread_h"]))
                 * ceil(problem.out_width / (row["lanes_w"] * row["thread_w"])))
        assert row["staging"] != "registers" or not row["ahead"]
        if row["staging"] != "registers":
            counted[row["ahead"]].add(count)
    assert counted[True] == {count for count in counted[False] if count <= most}
    assert max(counted[True]) > most / 4
    assert max(counted[False]) > most
    assert not np.any(row_reuse.columns_of(problem, Z100SM).ahead)


def test_32_blocks_for_each_compute_unit_still_work_ahead():
    problem = parse_problem("n1c32h112w112_o32k3p1g32")
    for units, works in ((112, True), (111, False)):
        columns = row_reuse.columns_of(problem, replace(H200, compute_units=units))
        ahead = select(columns, columns.ahead)
        assert (32 * 112 in blocks(problem, ahead)) == works


@pytest.mark.parametrize("token", ["n1c32h112w112_o32k3p1g32", "n2c6h13w11_o12k3p1g6",
                                   "n1c8h5w16_o8k3s2p1g8"])
def test_no_tile_of_row_reuse_is_twice_the_output(token):
    problem = parse_problem(token)
    for device in (Z100SM, H200):
        for row in rows_of(row_reuse.columns_of(problem, device)):
            threads = row["planes"] * row["lanes_h"] * row["lanes_w"]
            lanes = ceil(threads / device.wavefront) * device.wavefront
            assert row["lanes_h"] * row["thread_h"] < 2 * problem.out_height
            assert row["lanes_w"] * row["thread_w"] < 2 * problem.out_width
            assert row["planes"] < 2 * problem.batch * problem.spec.out_channels
            assert threads <= 512
            assert threads >= 0.75 * lanes


@pytest.mark.parametrize("layer", ["P7", "P16", "P28"])
def test_parts_of_a_weight_gradient_fill_one_or_two_places_of_each_compute_unit(layer):
    problem = catalog.find(f"weight_gradient:{layer}_float16_nhwc", 32)[0].problem
    counts = set()
    for row in rows_of(warpgroup_gemm.columns_of(problem, H200)):
        tiles = (ceil(problem.spec.out_channels / row["tile_m"])
                 * ceil(problem.spec.in_channels / row["tile_n"]))
        shares = row["parts"] * row["cluster"]
        counts.add(tiles * shares)
        if row["parts"].bit_count() > 1:  # those that are made to fill; none is without a step
            steps = ceil(problem.batch * problem.out_height * problem.out_width / row["step"])
            assert (shares - 1) * ceil(steps / shares) < steps
    for places in (H200.compute_units, 2 * H200.compute_units):
        assert max(count for count in counts if count <= places) > 0.95 * places


# How many tilings each algorithm tries, and the sum of all their numbers: what a change of an axis
# changes, which is then to be measured (docs/model.md).
@pytest.mark.parametrize(("columns_of", "token", "device", "count", "total"), [
    (gemm.columns_of, "n1c64h14w14_o96k1", Z100SM, 610, 169_684),
    (gemm.columns_of, "n1c64h14w14_o96k1", H200, 9_516, 2_144_236),
    (gemm.columns_of, "n8c20h7w7_o24k1", H200, 2_083, 381_992),
    (row_reuse.columns_of, "n1c32h14w14_o32k3p1g32", Z100SM, 702, 25_027),
    (row_reuse.columns_of, "n1c32h14w14_o32k3p1g32", H200, 1_154, 40_423),
    (row_reuse.columns_of, "n8c24h56w56_o24k5s2p2g24", H200, 1_348, 53_135),
    (row_reuse.columns_of, "n8c240h28w28_o240k5p2g240_float16", H200, 2_016, 81_055),
    (distribution.exact_columns, "n1c64h14w14_o96k1", Z100SM, 6_930, 313_792),
    (distribution.masked_columns, "n1c63h13w13_o95k1", Z100SM, 122_304, 5_953_878)])
def test_as_many_tilings_are_tried_as_were_measured(columns_of, token, device, count, total):
    columns = vars(columns_of(parse_problem(token), device)).values()
    numbers = [column for column in columns if column.dtype.kind != "U"]
    assert (len(numbers[0]), sum(int(column.sum()) for column in numbers)) == (count, total)


@pytest.mark.parametrize("device", ["h200", "z100sm"])
@pytest.mark.parametrize("name", ["D4", "P13", "input_gradient:D20", "weight_gradient:D20",
                                  "input_gradient:P7", "weight_gradient:P7"])
def test_the_first_tiling_is_that_of_the_whole_order(name, device):
    problem = catalog.find(name, 4)[0].problem
    space = solve(problem, catalog.device(device))
    order = space.ranked()
    assert space.first() == order[0]
    footprint = space.algorithm.footprint(problem, SimpleNamespace(**vars(space.case.tiling)),
                                          space.device.wavefront)
    for field, column in vars(footprint).items():
        assert np.array_equal(np.broadcast_to(getattr(space.case.footprint, field), len(space)),
                              np.broadcast_to(column, len(space))), field
