"""Traffic of a wavefront of the product of matrices, and the work the cost model makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.base import VECTOR_BYTES, Case, Work
from dscore.algorithms.columns import Count
from dscore.algorithms.gemm.tiling import shape_of, splits, turned, vectors_of
from dscore.algorithms.products import ProductTraffic, ring_waits
from dscore.core.numerics import WORD_BYTES

# Clocks of a unit for each of what is named (dscore.solving.cost says what all algorithms'
# weights are), fitted to every second of 67 layers, P1-P45 at five batches and others at 8 and 32,
# of which there are 1,897 timings on H200s (docs/model.md). `crowd` is the share by which a CU has
# more than its own where two blocks of a small grid may lie on one; `single` is of a copy of one
# element, which passes the first-level cache, and `uncached` where LDS leaves little of that;
# `fill` and `drain` are bytes for a byte of the first tiles and of the result, where a block is
# alone on its CU.
WEIGHTS = {"wavefront": 4.2, "split": 0.437, "lds_load": 0.308, "copy": 4.0, "store": 4.14,
           "join": 57.6, "product": 7.14, "lds": 0.839, "step": 180.0, "fragment": 4.19,
           "through_registers": 31.2, "wait": 369.0, "serial": 0.384, "block": 710.0,
           "memory": 0.662, "loaded": 0.751, "first": 94.2, "norm": 1.47, "cluster": 1600.0,
           "cluster_sum": 30.0, "fma": 0.908, "crowd": 0.0184, "single": 0.778, "uncached": 5.19,
           "fill": 0.602, "drain": 1.4}
# Of the input gradient, fitted to 500 timings of these layers at batch 32.
INPUT_GRADIENT = {"wavefront": 11.7, "split": 0.657, "lds_load": 0.368, "copy": 7.59, "store": 8.65,
                  "join": 42.6, "product": 6.58, "lds": 0.43, "step": 269.0, "fragment": 8.45,
                  "through_registers": 24.3, "wait": 48.8, "serial": 0.804, "block": 1160.0,
                  "memory": 0.455, "loaded": 0.434, "first": 744.0, "norm": 1.59, "cluster": 1860.0,
                  "cluster_sum": 28.1, "fma": 0.977, "crowd": 0.087, "single": 0.693,
                  "uncached": 10.0, "fill": 0.507, "drain": 0.919}
# LDS of a CU beyond which NVIDIA's first-level cache, which shares its memory, is small.
CACHED_LDS_BYTES = 164 * 1024


def traffic_of(case: Case) -> ProductTraffic:
    """The traffic of a case."""
    problem, t, footprint, wavefront = (case.problem, case.tiling, case.footprint,
                                        case.device.wavefront)
    shape, element = shape_of(problem, t, wavefront), problem.spec.element.bytes
    (vector_p, vector_c), split = vectors_of(problem), splits(t)
    depth = shape.steps * t.step_c / t.slices
    # Fragments of eight channels: 8 pixels or 8 output channels each (hip_src/gemm/kernel.hpp).
    eights_p, eights_c = t.wave_p / 8, t.wave_c / 8
    group = np.where(vector_p == 1, 1, np.where(t.wave_p % 32 == 0, 4, 2))
    # Plain, by four channels: fours of filters, and of pixels, each a vector of 16 bytes or more.
    thread_c, fours = t.wave_c / t.lanes_c, t.wave_p * t.lanes_c / wavefront / 4
    four = max(4 * element / VECTOR_BYTES, 1)
    # Filters turned: as many channels side by side as make vectors, by one channel summed.
    beside = _together(t.wave_c / 8), _together(thread_c)
    vectors_c = ((2 * eights_c / beside[0], 4 * thread_c / beside[1]) if turned(problem)
                 else (eights_c, thread_c))
    lds_loads = np.where(split, depth / 8 * (2 * eights_p / group + vectors_c[0]),
                         depth / 4 * four * (vectors_c[1] + 4 * fours))
    lds_clocks = np.where(split, depth / 8 * (2 * eights_p + 2 * eights_c),
                          depth * element / WORD_BYTES * (thread_c + 4 * fours))
    threads, step = footprint.threads, t.step_c
    copies = shape.steps * (np.ceil(t.tile_c * step / vector_c / threads)
                            + np.ceil(t.tile_p * step / vector_p / threads))
    return ProductTraffic(
        fmas=np.where(split, 0, depth * thread_c * 4 * fours),
        splits=np.where(split, depth / 8 * 8 * (eights_p + eights_c), 0),
        products=np.where(split, depth / 8 * 3 * eights_p / 2 * eights_c, 0),
        lds_loads=lds_loads, lds_clocks=lds_clocks,
        fragments=np.where(split, depth / 8, depth / 4), copies=copies,
        stores=shape.sums / np.where(split, np.minimum(group, vector_p), vector_p),
        joined=(t.slices - 1) * shape.sums / footprint.waves,
        load_bytes=footprint.blocks * element * (t.tile_c + t.tile_p) * shape.steps * step)


def _together(count: Count) -> Count:
    """The largest vector of up to 4 by which *count* elements are read."""
    return np.where(count % 4 == 0, 4, np.where(count % 2 == 0, 2, 1))


def named(case: Case) -> dict[str, Count]:
    """The traffic of a case by the names of `Algorithm.traffic`."""
    return traffic_of(case).named(case)


def work(case: Case) -> Work:
    """The work of a case."""
    shape = shape_of(case.problem, case.tiling, case.device.wavefront)
    traffic = traffic_of(case)
    singles = traffic.copies * ((vectors_of(case.problem)[0] == 1) & (case.tiling.stages > 2))
    return work_of(case, shape, traffic, singles)


def work_of(case: Case, shape: Any, traffic: ProductTraffic, singles: Count) -> Work:
    """The work of a product in float32, implicit or not, of which *singles* copies are of one
    element."""
    weight, t, footprint = case.weights, case.tiling, case.footprint
    uncached = singles * (footprint.lds_bytes * case.block_n > CACHED_LDS_BYTES)
    crowds = (footprint.blocks <= case.device.compute_units) & (case.block_n > 1)
    return Work(
        issue=traffic.issue(weight),
        products=weight["product"] * traffic.products, lds=weight["lds"] * traffic.lds_clocks,
        lines=weight["single"] * singles + weight["uncached"] * uncached,
        waits=ring_waits(weight, shape.steps, t.stages) + weight["step"] * shape.steps
        + weight["fragment"] * traffic.fragments + weight["cluster"] * (t.cluster > 1)
        + weight["cluster_sum"] * (t.cluster - 1) * shape.sums
        + weight["through_registers"] * np.where(t.stages == 2, shape.steps, 0),
        fill_bytes=case.problem.spec.element.bytes * (
            weight["fill"] * shape.buffer + weight["drain"] * t.tile_c * t.tile_p),
        l2_bytes=weight["loaded"] * traffic.load_bytes, uneven=1 + weight["crowd"] * crowds)
