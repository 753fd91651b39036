"""Traffic of a wavefront of the product of matrices in any order of axes, and the work that the
cost model makes of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dscore.algorithms.base import VECTOR_BYTES, Case, Work
from dscore.algorithms.columns import Count
from dscore.algorithms.gemm_universal.tiling import (
    DOT_VECTOR,
    copies_of,
    direct,
    on_units,
    shape_of,
    single,
    sizes_of,
    splits,
    vectors_of,
)
from dscore.algorithms.products import ProductTraffic, ring_waits
from dscore.core.numerics import ACCUMULATOR, WORD_BYTES

# Called as gemm's; `product16` is of elements of 16 bits, `sum_launch` are the clocks of the kernel
# that adds parts, and `part` bytes for a byte of them. Fitted to 1,020 timings in float16 of 12 of
# P1-P45 at batches 1, 8 and 32; those of gradients to 120 each of six layers at batch 32
# (docs/model.md). `cluster` is an estimate: these kernels joined their sums more slowly. `first` of
# input gradients is that of forward layers: the fit, which knew batch 32 alone, had 0.7 us more,
# and a small gradient, which takes 1.72 us, at 2.62. `single`, of a copy where elements of an
# operand move one by one, is of 90 timings of images of 7 x 7 in NCHW at batch 8.
WEIGHTS = {"wavefront": 0.213, "split": 0.539, "lds_load": 1.13, "copy": 4.96, "store": 0.228,
           "join": 0.846, "product": 5.03, "product16": 0.817, "lds": 0.0401, "step": 152.0,
           "fragment": 0.171, "through_registers": 3290.0, "wait": 41.3, "serial": 6.72, "block":
           948.0, "memory": 1.74, "loaded": 0.548, "first": 233.0, "norm": 1.91, "cluster":
           3000.0, "fma": 0.908, "line": 6.11, "joined": 9.96, "fill": 0.236, "drain": 0.889,
           "sum_launch": 2000.0, "part": 0.4, "single": 36.0, "scale": 0.0, "scaled": 0.0,
           "table": 0.0}
INPUT_GRADIENT = {"wavefront": 0.213, "split": 0.539, "lds_load": 3.77, "copy": 13.1, "store":
                  0.228, "join": 1.92, "product": 5.03, "product16": 13.2, "lds": 0.0401, "step":
                  152.0, "fragment": 0.171, "through_registers": 4650.0, "wait": 41.3, "serial":
                  0.925, "block": 1780.0, "memory": 1.51, "loaded": 0.552, "first": 233.0,
                  "norm": 2.41, "cluster": 4000.0, "fma": 0.908, "line": 3.37, "joined": 300.0,
                  "fill": 0.593, "drain": 0.069, "sum_launch": 2000.0, "part": 0.4}
# Fitted to every second of 45 layers, 363 timings in float16 on an H200 of P1-P45 at batch 32, and
# drawn to a fit to 120 of six of them.
WEIGHT_GRADIENT = {"wavefront": 0.213, "split": 0.539, "lds_load": 1.78, "copy": 7.17, "store":
                   9.56, "join": 2.52, "product": 5.03, "product16": 0.902, "lds": 0.0401, "step":
                   30.4, "fragment": 2.89, "through_registers": 7540.0, "wait": 425.0, "serial":
                   5.86, "block": 97.8, "memory": 1.4, "loaded": 0.729, "first": 2530.0, "norm":
                   4.09, "cluster": 4000.0, "fma": 0.908, "line": 0.199, "joined": 9.96, "fill":
                   0.0192, "drain": 0.937, "sum_launch": 87.2, "part": 0.0203}
# Of int8, whose results take instructions that those of floats do not: fitted to 888 timings of
# P1-P45 at batches 1 to 64. `scale`, of a thread's words of x that it scales, `scaled`, of each
# step then, and `table`, of two results that are looked up: to 92 timings of every second of 19
# layers.
BYTES = {"lds_load": 0.66, "copy": 1.08, "store": 11.9, "join": 0.602, "product16": 0.393, "step":
         568.0, "wait": 49.3, "serial": 16.6, "block": 2470.0, "memory": 1.2, "loaded": 0.23,
         "line": 2.74, "joined": 8.94, "fill": 0.768, "drain": 1.58, "scale": 5.9,
         "scaled": 628.0, "table": 1.3}


@dataclass(frozen=True)
class GemmTraffic(ProductTraffic):
    """Counts per wavefront of a product of matrices, and lines that stores touch."""

    lines: Count


def traffic_of(case: Case) -> GemmTraffic:
    """The traffic of a case."""
    problem, t, footprint, wavefront = (case.problem, case.tiling, case.footprint,
                                        case.device.wavefront)
    shape, element, sizes = shape_of(problem, t, wavefront), problem.spec.element.bytes, (
        sizes_of(problem))
    vector_out, units = vectors_of(problem)[2], on_units(t)
    depth, small = t.repeat * shape.steps * t.step / t.slices, problem.spec.element != ACCUMULATOR
    eights_m, eights_n = t.wave_m / 8, t.wave_n / 8
    # Of 16 bits, four matrices of 8 x 8 by an instruction, of int8 of 8 x 16; of float32, pairs or
    # single elements.
    unit = 32 if problem.spec.element.exact else 16 if small else 8
    loads_16 = depth / unit * (eights_m + eights_n) / 2
    loads_tf32 = depth / 8 * ((1 if sizes.along_a else 2) * eights_m
                              + (1 if sizes.along_b else 2) * eights_n)
    thread_m, thread_n = t.wave_m / t.lanes_m, t.wave_n * t.lanes_m / wavefront
    dots = DOT_VECTOR / 4 if problem.spec.element.exact else 1
    loads = depth / (4 * dots) * ((1 if sizes.along_a else 2) * thread_m
                         + (1 if sizes.along_b else 2) * thread_n)
    on_loads = loads_16 if small else loads_tf32
    bytes_read = depth * element * np.where(units, t.wave_m + t.wave_n,
                                            wavefront * (thread_m + thread_n))
    of_a, of_b = copies_of(problem, t, footprint.threads)
    copies = shape.steps * (t.repeat * of_a + of_b)
    own = direct(t)
    run = np.minimum(VECTOR_BYTES / element if sizes.along_b else 2, vector_out)
    return GemmTraffic(
        fmas=np.where(units, 0, depth / dots * thread_m * thread_n),
        splits=np.where(splits(t), depth * (eights_m + eights_n), 0),
        products=np.where(units, depth / unit * (1 if small else 3)
                          * eights_m / 2 * eights_n, 0),
        lds_loads=np.where(units, on_loads, loads),
        lds_clocks=bytes_read / (WORD_BYTES * wavefront),
        fragments=np.where(units, depth / unit, depth / (4 * dots)), copies=copies,
        stores=t.repeat * np.where(own, shape.sums / run, shape.sums / vector_out / t.slices),
        # Of a lane's own sums, eight rows by an instruction; else neighbouring vectors.
        lines=t.repeat * np.where(own, 8 * shape.sums / run,
                                  4 * shape.sums / vector_out / t.slices),
        joined=t.repeat * np.where(own, 0, 2 * shape.sums),
        load_bytes=footprint.blocks * element * (t.repeat * t.tile_m + t.tile_n) * shape.steps
        * t.step)


def named(case: Case) -> dict[str, Count]:
    """The traffic of a case by the names of `Algorithm.traffic`."""
    return traffic_of(case).named(case)


def work(case: Case) -> Work:
    """The work of a case."""
    weight, t, problem = case.weights, case.tiling, case.problem
    shape, traffic = shape_of(problem, t, case.device.wavefront), traffic_of(case)
    small = problem.spec.element != ACCUMULATOR
    rounds = shape.steps * t.repeat
    sizes, shared = sizes_of(problem), t.parts > 1
    partial = shared * (2 * ACCUMULATOR.bytes * t.parts * sizes.m * sizes.n)
    spec = problem.spec
    pixels = t.tile_m if spec.layout == "nhwc" else t.tile_n
    words = pixels * t.step * spec.element.bytes / (WORD_BYTES * case.footprint.threads)
    return Work(
        issue=traffic.issue(weight) + weight["scale"] * spec.scaled * words * rounds
        + weight["table"] * spec.table * t.repeat * shape.sums / 2,
        products=weight["product16" if small else "product"] * traffic.products,
        lds=weight["lds"] * traffic.lds_clocks, lines=weight["line"] * traffic.lines,
        waits=ring_waits(weight, rounds, t.stages) + weight["step"] * rounds
        + weight["fragment"] * traffic.fragments + weight["cluster"] * (t.cluster > 1)
        + weight["joined"] * t.repeat * np.logical_not(direct(t)) + weight["sum_launch"] * shared
        + weight["through_registers"] * np.where(t.stages == 2, shape.steps, 0)
        + weight["single"] * single(problem) * traffic.copies
        + weight["scaled"] * spec.scaled * rounds,
        fill_bytes=problem.spec.element.bytes * (
            weight["fill"] * shape.buffer + weight["drain"] * t.tile_m * t.tile_n),
        l2_bytes=weight["loaded"] * traffic.load_bytes + weight["part"] * partial)
