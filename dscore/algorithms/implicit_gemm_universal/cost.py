"""Traffic of a wavefront of the implicit product of matrices of both layouts, and the work that the
cost model makes of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dscore.algorithms.base import Case, Work
from dscore.algorithms.columns import Count, ceil_div
from dscore.algorithms.gemm_universal.tiling import on_units, splits
from dscore.algorithms.implicit_gemm.tiling import taps_of
from dscore.algorithms.implicit_gemm_universal.tiling import (
    across_of,
    direct,
    piece_of,
    reads_words,
    shape_of,
    takes_whole,
    taps_together,
    vectors_of,
)
from dscore.algorithms.products import ProductTraffic, ring_waits
from dscore.core.device import MATRIX_WAVEFRONT
from dscore.core.numerics import ACCUMULATOR, WORD_BYTES

# Called as gemm_universal's, from whose fit they are; `single` is of a load that passes through
# registers, `table` of an element's place, which each piece of it reads, `turn` of an element of a
# filter whose order in LDS is changed; `arrive` are clocks for a byte of a step that is waited for.
# Estimates: of floats a few plans alone were timed, which took twice to four times as long.
WEIGHTS = {"wavefront": 0.213, "split": 0.539, "lds_load": 1.13, "copy": 4.96, "single": 3.0,
           "table": 2.0, "turn": 1.0, "store": 0.228, "join": 0.846, "product": 5.03,
           "product16": 0.817, "lds": 0.0401, "step": 152.0, "fragment": 2.0,
           "through_registers": 300.0, "wait": 300.0, "loads": 500.0, "arrive": 0.02,
           "serial": 1.0, "block": 948.0, "memory": 1.74, "loaded": 0.548, "first": 233.0,
           "norm": 1.91, "cluster": 3000.0, "fma": 0.908, "line": 6.11, "joined": 300.0,
           "fill": 0.236, "drain": 0.889}
# Of int8, fitted to 193 timings of ResNet's layers and the first ones of networks at batch 32
# (docs/channels_last.md); of kernels whose filters came to LDS more slowly than today.
BYTES = {"lds_load": 4.58, "copy": 6.06, "single": 3.15, "table": 2.1, "turn": 1.49, "join": 3.43,
         "product16": 4.94, "step": 168.0, "wait": 315.0, "loads": 526.0, "arrive": 0.027, "serial":
         1.65, "block": 547.0, "memory": 6.38, "loaded": 2.58, "norm": 1.82, "cluster": 6040.0,
         "line": 6.75, "joined": 285.0, "fill": 0.214}


@dataclass(frozen=True)
class PatchTraffic(ProductTraffic):
    """Counts per wavefront of an implicit product of matrices."""

    singles: Count  # from memory to registers
    pieces: Count  # of images, each of which reads its place
    turned: Count  # elements of filters whose order in LDS is another one


def traffic_of(case: Case) -> PatchTraffic:
    """The traffic of a case."""
    problem, t, footprint, wavefront = (case.problem, case.tiling, case.footprint,
                                        case.device.wavefront)
    shape, element, taps = (shape_of(problem, t, wavefront), problem.spec.element,
                            taps_of(problem))
    units, small = on_units(t), element != ACCUMULATOR
    # Fragments of a slice's step: of `across` channels by as many taps as make it whole.
    own, across, exact = t.step_c / t.slices, across_of(problem, t), element.exact
    fragments = shape.steps * own / across * ceil_div(taps, taps_together(problem, t))
    eights_c, eights_p = t.wave_c / 8, t.wave_p / 8
    thread_c, thread_p = t.wave_c / t.lanes_c, t.wave_p * t.lanes_c / wavefront
    # Of 16 bits four matrices of 8 x 8 by an instruction (of bytes 8 x 16), but words of fewer
    # channels; and a quarter of a fragment's row on AMD's units.
    by_matrices = small & (wavefront == MATRIX_WAVEFRONT)
    loads = fragments * np.where(
        units & by_matrices,
        (eights_c + eights_p) / np.where(reads_words(problem, t, wavefront), 0.5, 2),
        np.where(units & small, (eights_c + eights_p) / 2,
                 np.where(units, eights_c + eights_p, thread_c + thread_p)))
    # Summed elements of a round, and the multiply-adds of a lane for each pair of its operands.
    depth = across * taps_together(problem, t)
    adds = depth / 4 if exact else depth
    bytes_read = fragments * element.bytes * depth * np.where(
        units, t.wave_c + t.wave_p, wavefront * (thread_c + thread_p))
    # Lanes of neighbouring pixels lie as far apart as the stride, in as many times the banks.
    conflicts = np.minimum(problem.spec.stride[1], 2)
    piece, vector = piece_of(problem, t), vectors_of(problem)[0]
    last = problem.spec.layout == "nhwc"
    moved = np.minimum(vector, piece)
    through, whole = t.stages == 2, takes_whole(problem, t)
    alone = last & (moved * element.bytes >= WORD_BYTES) & np.logical_not(through)
    images, filters = shape.steps * shape.image_turns, shape.steps * shape.filter_turns
    by_themselves = whole & np.logical_not(through)
    return PatchTraffic(
        fmas=np.where(units, 0, fragments * adds * thread_c * thread_p),
        splits=np.where(splits(t), fragments * 8 * (eights_c + eights_p), 0),
        products=np.where(units, fragments * (1 if small else 3) * eights_p / 2 * eights_c, 0),
        lds_loads=loads, lds_clocks=conflicts * bytes_read / (WORD_BYTES * wavefront),
        fragments=fragments,
        copies=np.where(alone, images * piece / moved, 0) + by_themselves * filters * taps,
        singles=np.where(by_themselves, 0, filters * np.where(whole, taps, piece))
        + np.where(alone, 0, images * piece / (moved if last else 1)),
        pieces=images, turned=whole * filters * taps * piece,
        stores=shape.sums / (np.minimum(vectors_of(problem)[1], WORD_BYTES) if exact
                             else vectors_of(problem)[1]) / t.slices,
        joined=np.where(direct(problem, t, wavefront), 0, 2 * shape.sums),
        load_bytes=footprint.blocks * element.bytes * shape.steps * t.step_c
        * (t.tile_c * taps + t.patch))


def named(case: Case) -> dict[str, Count]:
    """The traffic of a case by the names of `Algorithm.traffic`."""
    traffic = traffic_of(case)
    return {**traffic.named(case), "global loads": traffic.copies + traffic.singles}


def work(case: Case) -> Work:
    """The work of a case."""
    weight, t, problem = case.weights, case.tiling, case.problem
    shape, traffic = shape_of(problem, t, case.device.wavefront), traffic_of(case)
    small = problem.spec.element != ACCUMULATOR
    # What passes through registers is waited for in each step, but with two buffers, which fetch
    # it before.
    waited = shape.steps * ((t.stages != 2) & (traffic.singles > 0))
    single = problem.spec.element.bytes * np.where(t.stages == 1, shape.steps * shape.buffer, 0)
    return Work(
        issue=traffic.issue(weight) + weight["single"] * traffic.singles
        + weight["table"] * traffic.pieces + weight["turn"] * traffic.turned,
        products=weight["product16" if small else "product"] * traffic.products,
        lds=weight["lds"] * traffic.lds_clocks, lines=weight["line"] * traffic.stores,
        waits=ring_waits(weight, shape.steps, t.stages) + weight["step"] * shape.steps
        + weight["fragment"] * traffic.fragments + weight["cluster"] * (t.cluster > 1)
        + weight["joined"] + weight["loads"] * waited + weight["arrive"] * single
        + weight["through_registers"] * np.where(t.stages == 2, shape.steps, 0),
        fill_bytes=problem.spec.element.bytes * (
            weight["fill"] * shape.buffer + weight["drain"] * t.tile_c * t.tile_p),
        l2_bytes=weight["loaded"] * traffic.load_bytes)
