"""The stated cost model by which the solver ranks tilings before anything is measured.

A CU holds ``block_n`` blocks at a time, so the grid takes ``rounds = ceil(blocks / (block_n ·
CUs))`` rounds. A round lasts as long as the longer of

* issue: what the resident lanes execute, FMAs and operand loads, over the lanes a CU has. An
  operand loaded from LDS costs as much as an FMA on 32 banks: lanes / 32 of one;
* latency: the waits for memory that follow one another in a block, ``steps · LATENCY``, which
  other resident wavefronts cannot shorten, plus the block's own FMAs.

Memory traffic is the longer of the problem's compulsory bytes from memory and all blocks' bytes
from the L2 cache, by whole cache lines. Issue, latency and memory overlap, but not perfectly: the
launch lasts an empty launch plus their 4-norm, which is the longest of them where one dominates
and up to a third more where they are alike. It orders tilings; it does not promise microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .constraints import Case
from .plan import Cost
from .resources import Count, ceil_div

# Clock cycles from a load to its use, cold in L2, about alike on GCN/CDNA and Volta to Hopper.
LATENCY_CYCLES = 600
# LDS serves 32 banks of 4 bytes a clock on all of these.
LDS_LANES = 32
# The L2 cache delivers a few times what memory does.
L2_OVER_MEMORY = 3.0
# An empty launch where the device file holds no measured one.
LAUNCH_SECONDS = 2e-6

BOUNDS = ("issue", "latency", "memory", "launch")


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
    device, foot, problem = case.device, case.foot, case.problem
    rounds = ceil_div(foot.blocks, block_n * device.compute_units)
    # In the last round, and in small grids, a CU holds only its share of the blocks.
    resident = np.minimum(block_n, ceil_div(foot.blocks, device.compute_units))
    lane_work = foot.fmas + foot.operand_loads * (device.fp32_lanes_per_cu / LDS_LANES)
    issue = resident * foot.threads * lane_work / device.fp32_lanes_per_cu
    alone = foot.threads / np.minimum(foot.threads, device.fp32_lanes_per_cu)
    latency = foot.steps * LATENCY_CYCLES + lane_work * alone
    memory: Any = np.maximum(
        problem.compulsory_bytes / device.bandwidth,
        foot.blocks * foot.global_bytes / (device.bandwidth * L2_OVER_MEMORY))
    launch = device.measured_launch_seconds or LAUNCH_SECONDS
    parts = np.stack(np.broadcast_arrays(
        rounds * issue / device.clock_hz, rounds * latency / device.clock_hz, memory, launch))
    overlapped = (parts[:3] ** 4).sum(axis=0) ** 0.25
    return CostColumns(launch + overlapped, parts.argmax(axis=0), rounds,
                       resident * foot.waves / device.waves_per_cu,
                       foot.fmas / foot.operand_loads)
