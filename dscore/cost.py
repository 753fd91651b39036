"""The stated cost model by which the solver ranks tilings before anything is measured.

A CU holds ``block_n`` blocks at a time, so the grid takes ``rounds = ceil(blocks / (block_n ·
CUs))`` rounds. The launch lasts an empty launch plus a norm of these parts, which overlap, but not
perfectly (the 4-norm is the longest where one dominates, and a third more where three are alike):

* issue: the instructions of the resident lanes over the lanes that a CU has. An operand loaded from
  LDS costs as much as an FMA on 32 banks: lanes / 32 of one;
* latency: the waits for memory that follow one another in a block, which other resident wavefronts
  cannot shorten, and the block's own instructions, once a round;
* memory: the longer of the problem's compulsory bytes and all blocks' bytes from the L2 cache.

Depthwise kernels also pay for how their lanes touch memory (dscore.traffic) and for the start of
every block; the weights of their parts (``_WEIGHTS``) were fitted to timings of D1-D30 on one
NVIDIA H200 (docs/model.md), and are in clocks or bytes, so that they scale with a device.
It orders tilings; it does not promise microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .constraints import Case
from .plan import Cost
from .resources import Count, ceil_div, depthwise_shape
from .tiling import DepthwiseTiling
from .traffic import SECTOR_BYTES, depthwise_traffic

# Clock cycles from a load to its use, cold in L2, about alike on GCN/CDNA and Volta to Hopper.
LATENCY_CYCLES = 600
# LDS serves 32 banks of 4 bytes a clock on all of these.
LDS_LANES = 32
# The L2 cache delivers a few times what memory does.
L2_OVER_MEMORY = 3.0
# An empty launch where the device file holds no measured one.
LAUNCH_SECONDS = 2e-6

# What a launch may be bound by, in the order of a cost's parts.
BOUNDS = ("issue", "latency", "memory", "loads and stores", "L2 cache", "starting blocks", "launch")

# Of a depthwise kernel, in clocks: of a wavefront's instructions, of the load-store unit for each
# line, of a wait for memory; and, over the data sheet's bandwidth, bytes for each byte.
_WEIGHTS = {"wavefront": 7.0, "fma": 2.6, "load": 0.7, "store": 7.0, "lds": 0.42,
            "shuffle": 0.33, "line": 0.27, "wait": 130.0, "row": 210.0, "staging": 3000.0,
            "block": 64.0, "compulsory": 2.2, "loaded": 0.17, "stored": 0.39}


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
    parts, norm = ((_depthwise_parts(case, rounds, resident), 2)
                   if case.kind is DepthwiseTiling else (_parts(case, rounds, resident), 4))
    launch = np.broadcast_to(device.measured_launch_seconds or LAUNCH_SECONDS, parts[0].shape)
    overlapped = (parts ** norm).sum(axis=0) ** (1 / norm)
    bound = np.concatenate([parts, launch[None]]).argmax(axis=0)
    return CostColumns(launch + overlapped, bound, rounds,
                       resident * foot.waves / device.waves_per_cu,
                       foot.fmas / foot.operand_loads)


def _stacked(*parts: Any) -> NDArray[np.float64]:
    return np.stack([np.asarray(part, dtype=np.float64) for part in np.broadcast_arrays(*parts)])


def _parts(case: Case, rounds: Count, resident: Count) -> NDArray[np.float64]:
    """Seconds of each part for pointwise and direct kernels."""
    device, foot = case.device, case.foot
    lane_work = foot.fmas + foot.operand_loads * (device.fp32_lanes_per_cu / LDS_LANES)
    issue = resident * foot.threads * lane_work / device.fp32_lanes_per_cu
    alone = foot.threads / np.minimum(foot.threads, device.fp32_lanes_per_cu)
    latency = foot.steps * LATENCY_CYCLES + lane_work * alone
    memory = np.maximum(
        case.problem.compulsory_bytes / device.bandwidth,
        foot.blocks * foot.global_bytes / (device.bandwidth * L2_OVER_MEMORY))
    return _stacked(rounds * issue / device.clock_hz, rounds * latency / device.clock_hz, memory,
                    0.0, 0.0, 0.0)


def _depthwise_parts(case: Case, rounds: Count, resident: Count) -> NDArray[np.float64]:
    """Seconds of each part for depthwise kernels, by what their lanes touch."""
    device, foot, weight = case.device, case.foot, _WEIGHTS
    traffic = depthwise_traffic(case.problem, case.tiling, device.wavefront)
    cus, clock = device.compute_units, device.clock_hz
    instructions = (
        weight["wavefront"] + weight["fma"] * foot.fmas + weight["load"] * traffic.loads
        + weight["store"] * traffic.stores + weight["lds"] * traffic.lds_reads
        + weight["shuffle"] * traffic.shuffles)
    touched = (weight["line"] * (traffic.load_lines + traffic.store_lines) + traffic.lds_reads
               + weight["shuffle"] * traffic.shuffles)
    moved = weight["loaded"] * traffic.load_sectors + weight["stored"] * traffic.store_sectors
    waves, simds = foot.blocks * foot.waves, device.simds_per_cu
    in_lds = np.asarray(case.tiling.staging) == "lds"
    rows = depthwise_shape(case.problem, case.tiling).rows
    waits = weight["wait"] + np.where(in_lds, weight["staging"], weight["row"] * rows)
    bandwidth = device.bandwidth_bytes_per_second
    return _stacked(
        waves * instructions / (cus * simds) / clock,
        rounds * (waits + resident * foot.waves * instructions / simds) / clock,
        weight["compulsory"] * case.problem.compulsory_bytes / bandwidth,
        waves * touched / cus / clock,
        waves * moved * SECTOR_BYTES / bandwidth,
        weight["block"] * foot.blocks / cus / clock)
