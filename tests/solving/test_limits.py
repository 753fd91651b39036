"""The edges of limits: the most that each allows is kept, and one more is refused."""

from dataclasses import replace

import pytest

from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling
from dscore.algorithms.direct import DirectTiling
from dscore.algorithms.gemm.tiling import GemmTiling
from dscore.algorithms.registry import case_of
from dscore.algorithms.row_reuse.tiling import RowReuseTiling
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.rules import residency
from dscore.solving.solver import make_plan
from dscore.solving.verdict import validate

Z100SM, H200 = catalog.device("z100sm"), catalog.device("h200")
D1, P28 = (catalog.layers()[name] for name in ("D1", "P28"))
# The output is 4x6 where the input is 7x11.
STRIDED = parse_problem("n1c24h7w11_o64k1s2")
WIDE = parse_problem("n1c8h1w1000_o8k1x3g8")


def tile(*fields):
    return ChannelDistributionTiling(*fields)


def product(**fields):
    return GemmTiling(**{**dict(tile_c=32, tile_p=64, wave_c=32, wave_p=32, lanes_c=8, slices=1,
                                step_c=16, stages=2), **fields})


# A code; a case at the edge of its limit, and one just past it: problem, device, tiling, block_n.
EDGES = [
    ("E-DIV-W", (STRIDED, Z100SM, tile(3, 64, 1, 1, 8), 1),
     (STRIDED, Z100SM, tile(4, 64, 1, 1, 8), 1)),
    # 11 columns of input would hold whole tiles, 6 of the output do not.
    ("E-DIV-W", (STRIDED, Z100SM, tile(2, 64, 1, 1, 8), 1),
     (STRIDED, Z100SM, tile(11, 64, 1, 1, 8), 1)),
    ("E-DIV-C", (P28, Z100SM, tile(1, 64, 1, 4, 16), 1), (P28, Z100SM, tile(1, 64, 1, 3, 16), 1)),
    ("E-DIV-G", (STRIDED, Z100SM, tile(1, 64, 1, 1, 8), 1),
     (STRIDED, Z100SM, tile(1, 64, 1, 1, 16), 1)),
    ("E-GROUP", (P28, Z100SM, tile(1, 64, 1, 1, 64), 1), (P28, Z100SM, tile(1, 64, 1, 1, 128), 1)),
    ("E-GROUP", (P28, H200, tile(1, 64, 1, 1, 32), 1), (P28, H200, tile(1, 64, 1, 1, 64), 1)),
    ("E-LANES", (P28, Z100SM, tile(1, 4, 1, 1, 16), 1), (P28, Z100SM, tile(1, 5, 1, 1, 16), 1)),
    ("E-THREADS", (P28, Z100SM, tile(1, 4, 1, 16, 16), 1),
     (P28, Z100SM, tile(1, 4, 1, 17, 16), 1)),
    ("E-WAVES", (P28, Z100SM, tile(1, 4, 1, 4, 16), 10), (P28, Z100SM, tile(1, 4, 1, 4, 16), 11)),
    ("E-BLOCKS", (P28, H200, tile(1, 4, 1, 1, 8), 32), (P28, H200, tile(1, 4, 1, 1, 8), 33)),
    ("E-ROWS", (D1, Z100SM, RowReuseTiling(30, 1, 1, 64, 1), 1),
     (D1, Z100SM, RowReuseTiling(31, 1, 1, 64, 1), 1)),
    ("E-COLUMNS", (WIDE, Z100SM, RowReuseTiling(1, 254, 1, 4, 1), 1),
     (WIDE, Z100SM, RowReuseTiling(1, 255, 1, 4, 1), 1)),
    # 2,048 and 2,052 multiply-adds of nine and of six taps.
    ("E-CODE", (parse_problem("n1c8h60w60_o8k2x4p1g8"), Z100SM, RowReuseTiling(16, 16, 1, 4, 1), 1),
     (D1, Z100SM, RowReuseTiling(12, 19, 1, 6, 1), 1)),
    ("E-SHUFFLE", (D1, Z100SM, RowReuseTiling(1, 1, 1, 64, 1, column_reuse=True), 1),
     (D1, Z100SM, RowReuseTiling(1, 1, 1, 128, 1, column_reuse=True), 1)),
    ("E-SPAN", (D1, Z100SM, RowReuseTiling(7, 1, 1, 112, 1, "lds"), 1),
     (D1, Z100SM, RowReuseTiling(7, 1, 1, 111, 1, "lds"), 1)),
    ("E-SPAN-H", (D1, Z100SM, RowReuseTiling(14, 1, 8, 112, 2, "lds"), 1),
     (D1, Z100SM, RowReuseTiling(14, 1, 7, 112, 2, "lds"), 1)),
    # Straight to registers a block may take any part of a plane, or of several.
    ("E-SPAN", (D1, Z100SM, RowReuseTiling(7, 1, 1, 32, 1), 1),
     (D1, Z100SM, RowReuseTiling(7, 1, 1, 32, 1, "both"), 1)),
    ("E-SPAN-H", (D1, Z100SM, RowReuseTiling(7, 1, 1, 112, 2), 1),
     (D1, Z100SM, RowReuseTiling(7, 1, 1, 112, 2, "both"), 1)),
    # A wavefront of one column of lanes has four pixels.
    ("E-FRAGMENT", (P28, Z100SM, product(tile_c=64, wave_c=64, lanes_c=64, wave_p=4), 1),
     (P28, Z100SM, product(tile_c=64, wave_c=64, lanes_c=64, tile_p=60, wave_p=6), 1)),
    ("E-TILE", (P28, Z100SM, product(tile_p=96), 1), (P28, Z100SM, product(tile_p=80), 1)),
    ("E-STAGES", (P28, Z100SM, product(stages=2), 1), (P28, Z100SM, product(stages=3), 1)),
    ("E-STAGES", (P28, H200, product(stages=16), 1), (P28, H200, product(stages=17), 1)),
    ("E-STAGES", (P28, H200, product(stages=2), 1), (P28, H200, product(stages=1), 1)),
    ("E-CLUSTER", (P28, H200, product(cluster=8, stages=3), 1),
     (P28, H200, product(cluster=9, stages=3), 1)),
    ("E-SLICE", (P28, H200, product(slices=4), 1), (P28, H200, product(slices=3), 1)),
    ("E-SLICE", (P28, H200, product(slices=4), 1), (P28, H200, product(slices=4, step_c=17), 1)),
    ("E-SPLIT", (parse_problem("n1c16h8w8_o32k1"), H200, product(arithmetic="tf32x3"), 1),
     (parse_problem("n1c15h8w8_o32k1"), H200, product(arithmetic="tf32x3"), 1)),
    ("E-LANES", (parse_problem("n1c3h9w9_o8k3"), Z100SM, DirectTiling(128, 1), 1),
     (parse_problem("n1c3h9w9_o8k3"), Z100SM, DirectTiling(127, 1), 1)),
]


@pytest.mark.parametrize(("code", "most", "more"), EDGES, ids=[edge[0] for edge in EDGES])
def test_the_most_is_kept_and_one_more_is_refused(code, most, more):
    def broken(case):
        problem, device, tiling, block_n = case
        return code in [v.code for v in validate(problem, tiling, device, "hardware",
                                                 block_n).violations]

    assert not broken(most)
    assert broken(more)


@pytest.mark.parametrize(("granularity", "reserved", "allocated", "blocks"), [
    (512, 0, 33_280, 1), (128, 0, 32_896, 2), (128, 1024, 33_920, 1)])
def test_lds_is_allocated_by_its_granularity(granularity, reserved, allocated, blocks):
    """Two blocks of 32,896 bytes fit a CU to the byte, but not as whole granules of 512, nor beside
    what a driver keeps of each."""
    tiling = tile(1, 64, 1, 4, 16)
    device = replace(Z100SM, lds_bytes_per_cu=2 * 32_896, lds_granularity_bytes=granularity,
                     lds_reserved_bytes=reserved)
    verdict = validate(P28, tiling, device, block_n=2)
    assert {c.code: c.used for c in verdict.ledger if c.unit == "B"} == {
        "E-LDS": 32_896, "E-LDS-BLOCK": 32_896, "E-LDS-ALLOC": allocated}
    assert [v.code for v in verdict.violations] == ["E-LDS-ALLOC"] * (blocks == 1)
    case = case_of(P28, device, tiling)
    assert (residency(case, "hardware"), residency(case, "paper")) == (blocks, 2)


@pytest.mark.parametrize("granularity", [1, 4, 8, 64, 128])
def test_registers_are_allocated_by_their_granularity(granularity):
    """Of a SIMD's registers each wavefront takes whole granules."""
    tiling = tile(1, 4, 1, 1, 16)
    device = replace(Z100SM, register_granularity=granularity)
    case = case_of(P28, device, tiling)
    allocated = -(-int(case.wanted) // granularity) * granularity
    waves = device.simds_per_cu * (256 // allocated)
    paper = residency(case_of(P28, device, tiling), "paper")
    assert residency(case, "hardware") == min(waves, paper)
    checks = {check.code: check.used for check in validate(P28, tiling, device).ledger}
    assert (checks["E-VGPR-MAX"], checks["E-VGPR-ALLOC"]) == (case.wanted, allocated)


def test_blocks_of_clusters_that_do_not_fill_the_units_take_another_round():
    problem = parse_problem("n1c2048h7w7_o512k1")  # 16 x 2 tiles
    alone = product(tile_p=32, wave_c=16, wave_p=16, slices=2, step_c=64, stages=8,
                    arithmetic="tf32x3")  # 131 KB of LDS: a block on each unit

    def rounds(cluster, units):
        device = replace(H200, measured_cluster_units=units)
        tiling = replace(alone, cluster=cluster)
        return make_plan(problem, device, tiling).cost.rounds

    measured = ((), (132, 96, 128), (132, 128, 120), (132, 117, 120, 112), (132, 128))
    assert [rounds(4, units) for units in measured] == [
        2, 1, 2, 2, 2]  # what was not measured is estimated as the H200's 120 of 132
    assert rounds(1, (132, 120)) == rounds(2, (132, 120)) == rounds(2, ()) == 1
