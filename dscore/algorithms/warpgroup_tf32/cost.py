"""Traffic of a wavefront of the product of matrices by warpgroups, and the work the cost model
makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dscore.algorithms.base import LDS_BANKS, Case, Work
from dscore.algorithms.columns import Count
from dscore.algorithms.gemm.tiling import turned, vectors_of
from dscore.algorithms.products import ring_waits
from dscore.algorithms.warpgroup_tf32.tiling import GROUP_WAVES, shape_of
from dscore.core.numerics import ACCUMULATOR

# Clocks of a unit for each of what is named (dscore.solving.cost says what all algorithms' weights
# are), fitted with those of gemm to the same layers, of which there are 1,840 timings
# (docs/model.md).
WEIGHTS = {"split": 19.8, "copy": 6.21, "store": 22.5, "join": 38.3, "product": 0.94, "lds": 0.499,
           "step": 249.0, "eight": 99.3, "wait": 440.0, "serial": 1.58, "block": 99.4,
           "memory": 1.21, "loaded": 0.907, "first": 420.0, "norm": 2.81, "cluster": 2770.0,
           "cluster_sum": 25.6, "single": 0.5, "fill": 0.0, "written": 0.0}


@dataclass(frozen=True)
class WarpgroupTraffic:
    """Counts per wavefront of a product of matrices by warpgroups, implicit or not."""

    splits: Count  # elements of filters that a lane makes two TF32 each of
    products: Count  # clocks of its matrix units, at the rate of the data sheet
    eights: Count  # rounds of eight summed channels (of a tap), one after the other
    lds_loads: Count
    lds_clocks: Count
    copies: Count  # from memory to LDS, and of filters to registers
    stores: Count
    joined: Count  # sums that pass through LDS
    load_bytes: Count  # of all blocks


def traffic_of(case: Case) -> WarpgroupTraffic:
    """The traffic of a case."""
    problem, t, footprint = case.problem, case.tiling, case.footprint
    shape, (vector_p, vector_c) = shape_of(problem, t), vectors_of(problem)
    eights = shape.steps * t.step_c / t.slices / 8
    beside = np.where(vector_p == 1, 1, 2 * shape.rows)
    reads = eights * 4 * shape.rows / beside
    threads = footprint.threads
    put = shape.steps * shape.fetched / 4
    images = shape.steps * np.ceil(t.step_c * t.tile_p / vector_p / threads)
    return WarpgroupTraffic(
        splits=shape.steps * shape.fetched,
        # A row of 64 by 8 by 8 takes 4 clocks of all four units, thrice.
        products=eights * 3 * shape.rows * t.group_c / 2,
        eights=eights, lds_loads=reads + 2 * put,
        # The units of a warpgroup read its columns from LDS, 128 bytes a clock.
        lds_clocks=reads * beside + 8 * put
        + eights * 3 * shape.rows * t.group_c / 4 / GROUP_WAVES,
        copies=images + put * (4 if turned(problem) else 4 / vector_c), stores=shape.sums / beside,
        joined=(t.slices - 1) * shape.sums / footprint.waves,
        load_bytes=footprint.blocks * ACCUMULATOR.bytes * (t.tile_c + t.tile_p)
        * shape.steps * t.step_c)


def named(case: Case) -> dict[str, Count]:
    """The traffic of a case by the names of `Algorithm.traffic`."""
    traffic = traffic_of(case)
    return {"LDS reads": traffic.lds_loads,
            "LDS clocks": traffic.lds_clocks * (case.device.wavefront / LDS_BANKS),
            "global loads": traffic.copies, "global stores": traffic.stores}


def work(case: Case) -> Work:
    """The work of a case."""
    weight, t = case.weights, case.tiling
    shape, traffic = shape_of(case.problem, t), traffic_of(case)
    singly = vectors_of(case.problem)[0] == 1
    return work_of(
        case, shape, traffic, lines=weight["single"] * traffic.copies * singly,
        fill_bytes=ACCUMULATOR.bytes * (weight["fill"] * (shape.buffer + shape.part)
                                        + weight["written"] * t.tile_c * t.tile_p),
        waits=weight["eight"] * traffic.eights)


def work_of(case: Case, shape: Any, traffic: WarpgroupTraffic, lines: Count, fill_bytes: Count,
            waits: Count) -> Work:
    """The work that products by warpgroups have alike, with what is an algorithm's own: clocks of
    the load-store unit, bytes before a block begins, and what waits beside its ring and cluster."""
    weight, t = case.weights, case.tiling
    return Work(
        issue=weight["split"] * traffic.splits + weight["copy"] * traffic.copies
        + weight["store"] * traffic.stores + weight["join"] * traffic.joined,
        products=weight["product"] * traffic.products, lds=weight["lds"] * traffic.lds_clocks,
        lines=lines,
        waits=ring_waits(weight, shape.steps, t.stages) + weight["step"] * shape.steps + waits
        + weight["cluster"] * (t.cluster > 1)
        + weight["cluster_sum"] * (t.cluster - 1) * shape.sums,
        fill_bytes=fill_bytes, l2_bytes=weight["loaded"] * traffic.load_bytes)
