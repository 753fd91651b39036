"""The stated cost model by which the solver ranks tilings before anything is measured.

A CU holds ``block_n`` blocks at a time, so the grid takes ``rounds = ceil(blocks / (block_n ·
CUs))`` rounds. Blocks of a cluster, which lie together, do not fill all CUs of every device. The
launch lasts an empty launch plus a norm of these parts, which overlap, but not perfectly (a p-norm
is the longest where one dominates, and some more where several are alike):

* issue: the instructions of all wavefronts, over the CUs' SIMDs; so for matrix units, LDS and the
  load-store unit, each with the clocks that it is busy;
* latency: the waits that follow one another in a block, which other resident wavefronts cannot
  shorten, and the instructions of those that share its SIMD, once a round; the filling of LDS;
* memory: the problem's compulsory bytes; all blocks' bytes from the L2 cache;
* the start of every block.

What an algorithm's wavefronts do, and its weights, stand with the algorithm. Weights are clocks,
or bytes for a byte, so that they scale with a device; they were fitted to timings of P1-P45 and
D1-D30 on one NVIDIA H200 (docs/model.md). A device may have weights of its own (specs/weights), and
the time of a launch by which these were measured. Every fitted algorithm has these weights:
`first`, from a launch to the first data; `serial`, of an instruction of a wavefront on the same
SIMD; `block`, of a block's start; `memory`, bytes for a compulsory byte; `norm`, p. It may
have `alone`: as many wavefronts a SIMD seems to hold where it holds one, which waits for its own
results. Algorithms without weights are estimated without a fit (``_unfitted``). The model orders
tilings; it promises no microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscore.algorithms.base import LDS_BANKS, Case, Work
from dscore.algorithms.clusters import filled_units
from dscore.algorithms.columns import Count, ceil_div
from dscore.core.catalog import event_launch_seconds
from dscore.core.plan import Cost
from dscore.ops import compulsory_bytes

# Clock cycles from a load to its use, cold in L2, about alike on GCN/CDNA and Volta to Hopper.
LATENCY_CYCLES = 600
# The L2 cache delivers a few times what memory does.
L2_OVER_MEMORY = 3.0
# An empty launch where the device file holds no measured one.
LAUNCH_SECONDS = 2e-6
_UNFITTED = {"norm": 4.0, "first": 0.0}

# What a launch may be bound by, in the order of a cost's parts.
BOUNDS = ("issue", "matrix units", "LDS", "loads and stores", "latency", "memory", "L2 cache",
          "starting blocks", "launch")


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
    device, footprint, cus = case.device, case.footprint, filled_units(case.device, case.tiling)
    grids = footprint.blocks / (block_n * cus)
    rounds = ceil_div(footprint.blocks, block_n * cus)
    # In the last round, and in small grids, a CU holds only its share of the blocks.
    resident = np.minimum(block_n, ceil_div(footprint.blocks, cus))
    work = case.algorithm.work(case, grids)
    weights = _UNFITTED if work is None else case.weights
    parts = (_unfitted(case, rounds, resident) if work is None
             else _fitted(case, work, weights, rounds, resident))
    empty = (event_launch_seconds(device.name) or device.measured_launch_seconds
             or LAUNCH_SECONDS)
    launch = np.broadcast_to(empty + weights["first"] / device.clock_hz, parts[0].shape)
    launch = launch - (0.0 if work is None else work.saved_seconds)
    overlapped = (parts ** weights["norm"]).sum(axis=0) ** (1 / weights["norm"])
    bound = np.concatenate([parts, launch[None]]).argmax(axis=0)
    return CostColumns(launch + overlapped, bound, rounds,
                       resident * footprint.waves / device.waves_per_cu,
                       footprint.fmas / footprint.operand_loads)


def _stacked(*parts: Any) -> NDArray[np.float64]:
    return np.stack([np.asarray(part, dtype=np.float64) for part in np.broadcast_arrays(*parts)])


def _fitted(case: Case, work: Work, weight: Mapping[str, float], rounds: Count,
            resident: Count) -> NDArray[np.float64]:
    """Seconds of each part, on the CU that has the most of it."""
    device, footprint = case.device, case.footprint
    cus, simds, clock = device.compute_units, device.simds_per_cu, device.clock_hz
    waves = footprint.blocks * footprint.waves * work.uneven
    # A SIMD of 16 lanes takes four clocks for a wavefront of 64; LDS serves 32 lanes a clock.
    issue = work.issue * (device.wavefront * simds / device.fp32_lanes_per_cu)
    lds = work.lds * (device.wavefront / LDS_BANKS)
    beside = np.maximum(np.ceil(resident * work.uneven * footprint.waves / simds),
                        weight.get("alone", 1.0))
    latency = rounds * (work.waits + weight["serial"] * beside * (issue + work.products)) / clock
    # A block alone on its CU fills its LDS each time; others fill theirs while one computes.
    fills = np.where(resident == 1, rounds, 1) * work.fill_bytes * cus / device.bandwidth
    return _stacked(
        waves * issue / (cus * simds) / clock, waves * work.products / (cus * simds) / clock,
        waves * lds / cus / clock, waves * work.lines / cus / clock, latency + fills,
        weight["memory"] * compulsory_bytes(case.problem) / device.bandwidth,
        work.l2_bytes / device.bandwidth, weight["block"] * footprint.blocks / cus / clock)


def _unfitted(case: Case, rounds: Count, resident: Count) -> NDArray[np.float64]:
    """Seconds of each part for an algorithm without weights."""
    device, footprint = case.device, case.footprint
    lane_work = footprint.fmas + footprint.operand_loads * (device.fp32_lanes_per_cu / LDS_BANKS)
    issue = resident * footprint.threads * lane_work / device.fp32_lanes_per_cu
    alone = footprint.threads / np.minimum(footprint.threads, device.fp32_lanes_per_cu)
    latency = footprint.steps * LATENCY_CYCLES + lane_work * alone
    memory = compulsory_bytes(case.problem) / device.bandwidth
    l2 = footprint.blocks * footprint.global_bytes / (device.bandwidth * L2_OVER_MEMORY)
    return _stacked(rounds * issue / device.clock_hz, 0.0, 0.0, 0.0,
                    rounds * latency / device.clock_hz, memory, l2, 0.0)
