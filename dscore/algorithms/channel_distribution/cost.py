"""Traffic of a wavefront of channel distribution, and the work that the cost model makes of it.

There are weights for devices that have their own alone (specs/weights). Elsewhere the cost is
estimated without a fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dscore.algorithms.base import Case, Work
from dscore.algorithms.channel_distribution.tiling import shape_of
from dscore.algorithms.columns import Count, ceil_div


@dataclass(frozen=True)
class ChannelDistributionTraffic:
    """Counts per wavefront."""

    fmas: Count
    lds_loads: Count  # of operands
    copies: Count  # of a lane, from memory over a register to LDS
    shuffles: Count  # that add the parts of a sum
    stores: Count


def traffic_of(case: Case) -> ChannelDistributionTraffic:
    """The traffic of a case."""
    t, footprint = case.tiling, case.footprint
    shape = shape_of(case.problem, t, case.device.wavefront)
    sums, threads = t.wave_w * shape.thread_c, footprint.threads
    copies = ceil_div(shape.input_tile, threads) + ceil_div(shape.filter_tile, threads)
    return ChannelDistributionTraffic(
        fmas=footprint.fmas, lds_loads=footprint.operand_loads, copies=copies * shape.steps,
        shuffles=sums * np.log2(t.group_c), stores=sums)


def named(case: Case) -> dict[str, Count]:
    """The traffic of a case by the names of `Algorithm.traffic`."""
    traffic = traffic_of(case)
    return {"multiply-adds": traffic.fmas, "LDS words read": traffic.lds_loads,
            "lane permutes": traffic.shuffles, "global loads": traffic.copies,
            "global stores": traffic.stores}


def work(case: Case) -> Work:
    """The work of a case, by the weights of its device."""
    weight, traffic = case.weights, traffic_of(case)
    return Work(
        issue=weight["fma"] * traffic.fmas + weight["lds_load"] * traffic.lds_loads
        + weight["copy"] * traffic.copies + weight["shuffle"] * traffic.shuffles,
        products=0.0, lds=0.0, lines=0.0, waits=0.0, fill_bytes=0.0, l2_bytes=0.0,
        uneven=_unevenness(case))


def _unevenness(case: Case) -> Count:
    """The work of the fullest SIMD of the fullest CU, over an even share.

    A block's wavefronts go to one SIMD after the other, beginning with the same one.
    """
    cus, simds = case.device.compute_units, case.device.simds_per_cu
    blocks, waves = case.footprint.blocks, case.footprint.waves
    return ceil_div(blocks, cus) * cus / blocks * (ceil_div(waves, simds) * simds / waves)
