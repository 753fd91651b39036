"""Traffic of a wavefront of the implicit product of matrices by warpgroups, and the work the cost
model makes of it."""

from __future__ import annotations

from dscore.algorithms.base import LDS_BANKS, Case, Work
from dscore.algorithms.columns import Count
from dscore.algorithms.implicit_gemm.tiling import taps_of
from dscore.algorithms.implicit_warpgroup.tiling import beside_of, shape_of
from dscore.algorithms.warpgroup_tf32.cost import WarpgroupTraffic, work_of
from dscore.algorithms.warpgroup_tf32.tiling import GROUP_WAVES
from dscore.core.numerics import ACCUMULATOR

# Clocks of a unit for each of what is named (dscore.solving.cost says what all algorithms' weights
# are). Fitted to 86 timings of 11 layers of Jia et al. 2020 at batch 64, of three at batch 8 too,
# on one NVIDIA H200 (docs/model.md): estimates erred by 6 %, and ranked the fastest first.
WEIGHTS = {"split": 23.5, "copy": 5.6, "store": 0.0, "join": 50.0, "product": 1.0,
           "lds": 0.0, "step": 350.0, "turn": 205.0, "batch": 76.0, "wait": 975.0, "serial": 0.95,
           "block": 100.0, "memory": 1.1, "loaded": 1.05, "first": 1400.0, "norm": 4.0,
           "cluster": 4450.0, "cluster_sum": 40.0, "single": 2.0, "fill": 1.7}


def traffic_of(case: Case) -> WarpgroupTraffic:
    """The traffic of a case."""
    problem, t, footprint = case.problem, case.tiling, case.footprint
    shape = shape_of(problem, t)
    turns = shape.steps * shape.turns
    eights, splits = turns * shape.batches, turns * shape.split
    images = 4 * eights * shape.rows
    # The lanes of a row of pixels lie as far apart as the stride, in as many times the banks.
    conflicts = min(problem.spec.stride[1], 2)
    return WarpgroupTraffic(
        splits=splits,
        # A row of 64 by 8 by 8 takes 4 clocks of all four units, thrice.
        products=eights * 3 * shape.rows * t.group_c / 2,
        eights=eights, lds_loads=images + splits,
        # The units of a warpgroup read its columns from LDS, 128 bytes a clock. Of filters each
        # element is read once, and both its parts are written.
        lds_clocks=images * conflicts + 3 * splits
        + eights * 3 * shape.rows * t.group_c / 4 / GROUP_WAVES,
        copies=shape.steps * (shape.filter_vectors + shape.copies),
        stores=shape.sums / beside_of(problem, t),
        joined=(t.slices - 1) * shape.sums / footprint.waves,
        load_bytes=footprint.blocks * ACCUMULATOR.bytes * shape.steps * t.step_c
        * (t.tile_c * taps_of(problem) + t.patch))


def named(case: Case) -> dict[str, Count]:
    """The traffic of a case by the names of `Algorithm.traffic`."""
    traffic = traffic_of(case)
    return {"LDS words read": traffic.lds_loads,
            "LDS clocks": traffic.lds_clocks * (case.device.wavefront / LDS_BANKS),
            "global loads": traffic.copies, "global stores": traffic.stores}


def work(case: Case) -> Work:
    """The work of a case."""
    weight, shape, traffic = case.weights, shape_of(case.problem, case.tiling), traffic_of(case)
    return work_of(
        case, shape, traffic, lines=weight["single"] * traffic.copies,
        fill_bytes=ACCUMULATOR.bytes * weight["fill"] * shape.buffer,
        waits=weight["turn"] * shape.steps * shape.turns
        + weight["batch"] * traffic.eights * shape.rows)
