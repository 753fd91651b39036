"""The stated cost model by which the solver ranks tilings before anything is measured.

A CU holds ``block_n`` blocks at a time, so the grid takes ``rounds = ceil(blocks / (block_n ·
CUs))`` rounds. The launch lasts an empty launch plus a norm of these parts, which overlap, but not
perfectly (a p-norm is the longest where one dominates, and some more where several are alike):

* issue: the instructions of all wavefronts, over the CUs' SIMDs; so for matrix units, LDS and the
  load-store unit, each with the clocks that it is busy;
* latency: the waits that follow one another in a block, which other resident wavefronts cannot
  shorten, and the instructions of those that share its SIMD, once a round; the filling of LDS;
* memory: the problem's compulsory bytes; all blocks' bytes from the L2 cache;
* the start of every block.

The weights (``_MATRIX``, ``_DEPTHWISE``) are clocks, or bytes for a byte, so that they scale with a
device; they were fitted to timings of P1-P45 and D1-D30 on one NVIDIA H200 (docs/model.md). The
paper's pointwise kernel and the direct one are estimated without a fit (``_unfitted``).
It orders tilings; it does not promise microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscore.algorithms.case import Case
from dscore.algorithms.geometry import Count, ceil_div, depthwise_shape, matrix_shape
from dscore.algorithms.traffic import SECTOR_BYTES, depthwise_traffic, matrix_traffic
from dscore.core.plan import Cost
from dscore.core.tiling import GemmTiling, RowReuseTiling

# Clock cycles from a load to its use, cold in L2, about alike on GCN/CDNA and Volta to Hopper.
LATENCY_CYCLES = 600
# LDS serves 32 banks of 4 bytes a clock on all of these.
LDS_LANES = 32
# The L2 cache delivers a few times what memory does.
L2_OVER_MEMORY = 3.0
# An empty launch where the device file holds no measured one.
LAUNCH_SECONDS = 2e-6

# What a launch may be bound by, in the order of a cost's parts.
BOUNDS = ("issue", "matrix units", "LDS", "loads and stores", "latency", "memory", "L2 cache",
          "starting blocks", "launch")

# Clocks of a unit for each of what is named; `first`: from a launch to the first data, `serial`:
# of an instruction of a wavefront on the same SIMD; `memory`, `loaded`, `stored`: bytes for a byte;
# `ahead`: what working ahead saves, `ahead_crowded`: where compute units do not hold two grids,
# `crowd`: what it costs a round of many.
_MATRIX = {"wavefront": 9.6, "fma": 1.1, "split": 0.28, "lds_load": 0.88, "copy": 9.0,
           "store": 16.0, "join": 22.7, "product": 7.0, "lds": 1.06, "step": 173.0,
           "fragment": 9.8, "cluster": 1670.0, "cluster_sum": 40.6, "through_registers": 158.0,
           "wait": 102.0, "serial": 1.44, "block": 262.0, "memory": 1.23, "loaded": 0.9,
           "first": 1583.0, "norm": 3.19}
_DEPTHWISE = {"wavefront": 6.98, "fma": 0.502, "load": 1.50, "store": 0.349, "shuffle": 1.03,
              "line": 0.556, "lds": 0.873, "wait": 41.8, "row": 230.0, "staging": 163.0,
              "both": 350.0, "serial": 1.34, "block": 150.0, "memory": 1.06, "loaded": 0.129,
              "stored": 0.663, "fill": 0.670, "first": 963.0, "norm": 2.33, "ahead": 1319.0,
              "ahead_crowded": 643.0, "crowd": 309.0}
# Rounds of a grid above which blocks that work ahead are in the way of those before them.
_ROUNDS_AHEAD = 4


@dataclass(frozen=True)
class CostColumns:
    """The model's answer: a number, or an array with one entry per tiling."""

    seconds: Count
    bound: Count  # index into BOUNDS
    rounds: Count
    occupancy: Count
    intensity: Count

    def one(self, utilisation: float) -> Cost:
        """The answer for a single tiling."""
        return Cost(float(self.seconds), BOUNDS[int(self.bound)], int(self.rounds),
                    float(self.occupancy), float(self.intensity), float(utilisation))


def cost(case: Case, block_n: Count) -> CostColumns:
    """The estimate for *case* with *block_n* blocks resident on each CU."""
    device, foot = case.device, case.foot
    rounds = ceil_div(foot.blocks, block_n * device.compute_units)
    # In the last round, and in small grids, a CU holds only its share of the blocks.
    resident = np.minimum(block_n, ceil_div(foot.blocks, device.compute_units))
    if case.kind is GemmTiling:
        work, weights = _matrix_work(case), _MATRIX
    elif case.kind is RowReuseTiling:
        work, weights = _depthwise_work(case), _DEPTHWISE
    else:
        work, weights = None, {"norm": 4.0, "first": 0.0}
    grids = foot.blocks / (block_n * device.compute_units)
    parts = (_unfitted(case, rounds, resident) if work is None
             else _fitted(case, work, weights, rounds, resident, _unevenness(case, grids)))
    launch = np.broadcast_to((device.measured_launch_seconds or LAUNCH_SECONDS)
                             + weights["first"] / device.clock_hz, parts[0].shape)
    if case.kind is RowReuseTiling:
        launch = launch - _saved_ahead(case, grids)
    overlapped = (parts ** weights["norm"]).sum(axis=0) ** (1 / weights["norm"])
    bound = np.concatenate([parts, launch[None]]).argmax(axis=0)
    return CostColumns(launch + overlapped, bound, rounds,
                       resident * foot.waves / device.waves_per_cu,
                       foot.fmas / foot.operand_loads)


def _stacked(*parts: Any) -> NDArray[np.float64]:
    return np.stack([np.asarray(part, dtype=np.float64) for part in np.broadcast_arrays(*parts)])


@dataclass(frozen=True)
class _Work:
    """Clocks for which a wavefront keeps the units of its CU busy, and its block waits."""

    issue: Count
    products: Count
    lds: Count
    lines: Count
    waits: Count  # of a block, one after the other
    fill_bytes: Count  # of LDS, before a block can begin
    l2_bytes: Count  # of all blocks


def _fitted(case: Case, work: _Work, weight: dict[str, float], rounds: Count,
            resident: Count, uneven: Count) -> NDArray[np.float64]:
    """Seconds of each part, on the CU that has the most of it: *uneven* times the others' share."""
    device, foot = case.device, case.foot
    cus, simds, clock = device.compute_units, device.simds_per_cu, device.clock_hz
    waves = foot.blocks * foot.waves * uneven
    # A SIMD of 16 lanes takes four clocks for a wavefront of 64; LDS serves 32 lanes a clock.
    issue = work.issue * (device.wavefront * simds / device.fp32_lanes_per_cu)
    lds = work.lds * (device.wavefront / LDS_LANES)
    beside = np.ceil(resident * uneven * foot.waves / simds)
    latency = rounds * (work.waits + weight["serial"] * beside * (issue + work.products)) / clock
    # A block alone on its CU fills its LDS each time; others fill theirs while one computes.
    fills = np.where(resident == 1, rounds, 1) * work.fill_bytes * cus / device.bandwidth
    return _stacked(
        waves * issue / (cus * simds) / clock, waves * work.products / (cus * simds) / clock,
        waves * lds / cus / clock, waves * work.lines / cus / clock, latency + fills,
        weight["memory"] * case.problem.compulsory_bytes / device.bandwidth,
        work.l2_bytes / device.bandwidth, weight["block"] * foot.blocks / cus / clock)


def _matrix_work(case: Case) -> _Work:
    weight, t = _MATRIX, case.tiling
    shape = matrix_shape(case.problem, t, case.device.wavefront)
    traffic = matrix_traffic(case.problem, t, case.device.wavefront)
    # Once the ring is full, each turn of it waits for memory again.
    turns = np.maximum(0, shape.steps / np.maximum(t.stages - 1, 1) - 1)
    return _Work(
        issue=weight["wavefront"] + weight["lds_load"] * traffic.lds_loads
        + weight["split"] * traffic.splits + weight["fma"] * traffic.fmas
        + weight["copy"] * traffic.copies + weight["store"] * traffic.stores
        + weight["join"] * traffic.joined,
        products=weight["product"] * traffic.products, lds=weight["lds"] * traffic.lds_clocks,
        lines=0.0,
        waits=weight["wait"] * (1 + turns / 2) + weight["step"] * shape.steps
        + weight["fragment"] * traffic.fragments + weight["cluster"] * (t.cluster > 1)
        + weight["cluster_sum"] * (t.cluster - 1) * shape.sums
        + weight["through_registers"] * np.where(t.stages == 2, shape.steps, 0),
        fill_bytes=0.0, l2_bytes=weight["loaded"] * traffic.load_bytes)


def _depthwise_work(case: Case) -> _Work:
    weight, foot, staging = _DEPTHWISE, case.foot, np.asarray(case.tiling.staging)
    traffic = depthwise_traffic(case.problem, case.tiling, case.device)
    rows = depthwise_shape(case.problem, case.tiling).rows
    moved = weight["loaded"] * traffic.load_sectors + weight["stored"] * traffic.store_sectors
    return _Work(
        issue=weight["wavefront"] + weight["fma"] * foot.fmas + weight["load"] * traffic.loads
        + weight["store"] * traffic.stores + weight["shuffle"] * traffic.shuffles,
        products=0.0, lds=weight["lds"] * traffic.lds_clocks,
        lines=weight["line"] * (traffic.load_lines + traffic.store_lines),
        waits=weight["wait"] + np.where(staging == "registers", weight["row"] * rows,
                                        weight["staging"])
        + weight["both"] * (staging == "both"),
        fill_bytes=weight["fill"] * foot.lds_bytes,
        l2_bytes=foot.blocks * foot.waves * moved * SECTOR_BYTES)


def _unevenness(case: Case, grids: Count) -> Count:
    """The share of the CU that has most of a grid which fills the device *grids* times, at worst.

    Blocks that come early take what room there is beside the grid before. Where that is too little
    for all and the device holds all of a grid, the CUs that end first take the rest.
    """
    ahead = np.asarray(getattr(case.tiling, "ahead", False)) & (grids > 1 / 2) & (grids < 1)
    return np.where(ahead, 1 / grids, 1.0)


def _saved_ahead(case: Case, grids: Count) -> Count:
    """Seconds that working ahead saves a kernel whose grid fills the device *grids* times.

    Results that leave through LDS make blocks so alike that it matters less who begins where.
    """
    weight, both = _DEPTHWISE, np.asarray(case.tiling.staging) == "both"
    saved = np.where((grids <= 1 / 2) | both, weight["ahead"], weight["ahead_crowded"])
    lost = weight["crowd"] * np.maximum(grids - _ROUNDS_AHEAD, 0)
    return case.tiling.ahead * (saved - lost) / case.device.clock_hz


def _unfitted(case: Case, rounds: Count, resident: Count) -> NDArray[np.float64]:
    """Seconds of each part for the paper's pointwise kernel and the direct one."""
    device, foot = case.device, case.foot
    lane_work = foot.fmas + foot.operand_loads * (device.fp32_lanes_per_cu / LDS_LANES)
    issue = resident * foot.threads * lane_work / device.fp32_lanes_per_cu
    alone = foot.threads / np.minimum(foot.threads, device.fp32_lanes_per_cu)
    latency = foot.steps * LATENCY_CYCLES + lane_work * alone
    memory = case.problem.compulsory_bytes / device.bandwidth
    l2 = foot.blocks * foot.global_bytes / (device.bandwidth * L2_OVER_MEMORY)
    return _stacked(rounds * issue / device.clock_hz, 0.0, 0.0, 0.0,
                    rounds * latency / device.clock_hz, memory, l2, 0.0)
