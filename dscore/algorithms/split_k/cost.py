"""Traffic of a wavefront of the split sum over pixels, and the work the cost model makes of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dscore.algorithms.base import Case, Work
from dscore.algorithms.columns import Count
from dscore.algorithms.products import ProductTraffic, ring_waits
from dscore.algorithms.split_k.tiling import shape_of, splits, vectors_of
from dscore.core.numerics import ACCUMULATOR, WORD_BYTES

# `join` is of a sum that passes LDS once, `sum_launch` are the clocks of the kernel that adds the
# parts, and `part` bytes for a byte of them; `plane` are those of a step of planes, whose bytes of
# L2 `loaded_planes` weighs; the others are called as gemm's. Fitted to 1,100 timings of P2-P45 at
# batches 8 and 32 on one NVIDIA H200 (docs/model.md).
WEIGHTS = {"wavefront": 9.08, "fma": 1.1, "through_registers": 158.0, "split": 0.205,
           "product": 8.41, "lds_load": 0.593, "lds": 1.09, "copy": 7.95, "store": 12.3,
           "join": 6.66, "wait": 807.0, "step": 228.0, "fragment": 5.44, "loaded": 0.543,
           "loaded_planes": 0.7, "plane": 150.0, "sum_launch": 1210.0, "part": 0.694,
           "cluster": 2000.0, "block": 261.0, "memory": 1.07, "first": 1920.0, "serial": 1.0,
           "norm": 3.8}


@dataclass(frozen=True)
class SplitKTraffic(ProductTraffic):
    """Counts per wavefront, and bytes of all parts' sums, which are written and read."""

    part_bytes: Count


def traffic_of(case: Case) -> SplitKTraffic:
    """The traffic of a case."""
    problem, t, footprint, wavefront = (case.problem, case.tiling, case.footprint,
                                        case.device.wavefront)
    shape, element = shape_of(problem, t, wavefront), problem.spec.element.bytes
    (vector_g, vector_x, vector_w), split = vectors_of(problem, t.planes), splits(t)
    # Planes are read pixel by pixel, half of them from banks that another row's lie in.
    loads = np.where(t.planes, 2, 1)
    depth = shape.steps * t.step / t.slices
    eights_o, eights_i = t.wave_o / 8, t.wave_i / 8
    thread_o, thread_i = t.wave_o / t.lanes_o, t.wave_i * t.lanes_o / wavefront
    threads, weights = footprint.threads, problem.spec.out_channels * problem.spec.in_channels
    return SplitKTraffic(
        fmas=np.where(split, 0, depth * thread_o * thread_i),
        splits=np.where(split, depth * (eights_o + eights_i), 0),
        products=np.where(split, depth / 8 * 3 * eights_o / 2 * eights_i, 0),
        lds_loads=np.where(split, loads * depth / 8 * (eights_o + eights_i),
                           depth / np.where(t.planes & (t.step % 4 > 0), 1, 4)
                           * (thread_o + thread_i)),
        lds_clocks=np.where(split, loads * depth / 8 * 2 * (eights_o + eights_i),
                            depth * element / WORD_BYTES * (thread_o + thread_i)),
        fragments=np.where(split, depth / 8, depth / 4),
        copies=shape.steps * (np.ceil(t.tile_o * t.step / vector_g / threads)
                              + np.ceil(t.tile_i * t.step / vector_x / threads)),
        stores=np.ceil(t.tile_o * t.tile_i / (vector_w * threads)),
        joined=2 * shape.sums,
        load_bytes=footprint.blocks * element * (t.tile_o + t.tile_i) * shape.steps * t.step,
        part_bytes=np.where(t.parts > 1, 2 * ACCUMULATOR.bytes * t.parts * weights, 0))


def named(case: Case) -> dict[str, Count]:
    """The traffic of a case by the names of `Algorithm.traffic`."""
    return traffic_of(case).named(case)


def work(case: Case) -> Work:
    """The work of a case."""
    weight, t, device = case.weights, case.tiling, case.device
    shape, traffic = shape_of(case.problem, t, device.wavefront), traffic_of(case)
    return Work(
        issue=traffic.issue(weight),
        products=weight["product"] * traffic.products, lds=weight["lds"] * traffic.lds_clocks,
        lines=0.0,
        waits=ring_waits(weight, shape.steps, t.stages) + weight["step"] * shape.steps
        + weight["fragment"] * traffic.fragments + weight["plane"] * shape.steps * t.planes
        + weight["cluster"] * (t.cluster > 1)
        + weight["through_registers"] * np.where(t.stages == 2, shape.steps, 0),
        fill_bytes=0.0, l2_bytes=traffic.load_bytes * np.where(
            t.planes, weight["loaded_planes"], weight["loaded"]),
        saved_seconds=-np.where(t.parts > 1, weight["sum_launch"] / device.clock_hz
                                + weight["part"] * traffic.part_bytes / device.bandwidth, 0.0))
