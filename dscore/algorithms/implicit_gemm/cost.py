"""Traffic of a wavefront of the implicit product of matrices, and the work the cost model makes of
it."""

from __future__ import annotations

import numpy as np

from dscore.algorithms.base import Case, Work
from dscore.algorithms.columns import Count, ceil_div
from dscore.algorithms.gemm.cost import work_of
from dscore.algorithms.implicit_gemm.tiling import (
    beside_of,
    shape_of,
    slides,
    splits,
    taps_of,
)
from dscore.algorithms.products import ProductTraffic
from dscore.core.numerics import WORD_BYTES

# Called as gemm's. Fitted to 400 timings of 11 layers of networks at batch 1 and 64 on one NVIDIA
# H200 (docs/model.md).
WEIGHTS = {"wavefront": 6.19, "split": 0.143, "lds_load": 0.326, "copy": 1.7, "store": 7.06,
           "join": 54.6, "product": 6.32, "lds": 1.2, "step": 919.0, "fragment": 107.0,
           "through_registers": 30.5, "wait": 604.0, "serial": 0.521, "block": 107.0,
           "memory": 0.604, "loaded": 0.155, "first": 83.8, "norm": 1.47, "cluster": 4450.0,
           "cluster_sum": 75.1, "fma": 0.804, "crowd": 0.0154, "single": 0.666, "uncached": 1.75,
           "fill": 0.463, "drain": 2.03}


def fragments_of(case: Case) -> Count:
    """Fragments of eight products of a slice's step, on matrix units: of eight channels, or of four
    by two taps."""
    channels, taps = case.tiling.step_c // case.tiling.slices, taps_of(case.problem)
    return np.where(channels % 8 == 0, channels / 8 * taps, channels / 4 * ceil_div(taps, 2))


def traffic_of(case: Case) -> ProductTraffic:
    """The traffic of a case."""
    problem, t, footprint, wavefront = (case.problem, case.tiling, case.footprint,
                                        case.device.wavefront)
    shape, element = shape_of(problem, t, wavefront), problem.spec.element.bytes
    split, taps = splits(t), taps_of(problem)
    depth, fragments = shape.steps * t.step_c / t.slices * taps, shape.steps * fragments_of(case)
    eights_p, eights_c = t.wave_p / 8, t.wave_c / 8
    thread_c, thread_p = t.wave_c / t.lanes_c, t.wave_p * t.lanes_c / wavefront
    # Lanes that slide read an element for each tap of a row, and those of the other pixels.
    read_p = np.where(slides(problem, t, wavefront),
                      1 + (thread_p - 1) / np.minimum(problem.spec.kernel[1], 16), thread_p)
    lds_loads = np.where(split, fragments * 2 * (eights_p + eights_c),
                         depth * (thread_c + read_p))
    # Of the table, by threads that keep to their columns of the patch.
    lds_loads = lds_loads + shape.steps * t.patch / shape.across
    # The lanes of a row of pixels lie as far apart as the stride, in as many times the banks.
    conflicts = np.minimum(problem.spec.stride[1], 2)
    even = np.where(slides(problem, t, wavefront) & (thread_p % 2 == 0), 2, 1)
    clocks_p = eights_p * conflicts, read_p * conflicts * even
    lds_clocks = np.where(split, fragments * 2 * (clocks_p[0] + eights_c),
                          depth * (thread_c + clocks_p[1])) * (element / WORD_BYTES)
    return ProductTraffic(
        fmas=np.where(split, 0, depth * thread_c * thread_p),
        splits=np.where(split, fragments * 8 * (eights_p + eights_c), 0),
        products=np.where(split, fragments * 3 * eights_p / 2 * eights_c, 0),
        lds_loads=lds_loads, lds_clocks=lds_clocks,
        fragments=np.where(split, fragments, depth / 4),
        copies=shape.steps * (shape.filter_vectors + shape.turns),
        stores=shape.sums / beside_of(problem, t),
        joined=(t.slices - 1) * shape.sums / footprint.waves,
        load_bytes=footprint.blocks * element * shape.steps * t.step_c
        * (t.tile_c * taps + t.patch))


def named(case: Case) -> dict[str, Count]:
    """The traffic of a case by the names of `Algorithm.traffic`."""
    return {"LDS words read" if name == "LDS reads" else name: count
            for name, count in traffic_of(case).named(case).items()}


def work(case: Case) -> Work:
    """The work of a case."""
    t, shape = case.tiling, shape_of(case.problem, case.tiling, case.device.wavefront)
    return work_of(case, shape, traffic_of(case), shape.steps * shape.turns * (t.stages != 2))
