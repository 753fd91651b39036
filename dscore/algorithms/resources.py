"""What a tiling costs: threads, LDS, registers, blocks and work, predicted from its fields.

Every formula works on one tiling or, field for field, on int64 arrays of many, so that the solver
and the judge of a single configuration cannot differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dscore.algorithms.geometry import (
    Count,
    ceil_div,
    depthwise_shape,
    matrix_shape,
    pointwise_shape,
)
from dscore.core.plan import Launch, ResourceUse
from dscore.core.problem import ConvProblem
from dscore.core.spec import ELEMENT_BYTES
from dscore.core.tiling import (
    ChannelDistributionTiling,
    DirectTiling,
    GemmTiling,
    RowReuseTiling,
    Tiling,
)

# Registers that the paper leaves to the HIP compiler for addresses and counters (Eq. 6).
COMPILER_REGISTERS = 30


# What counts the bytes that have come to a block's LDS (hip_src/support/bulk_copy.hpp).
ARRIVALS_BYTES = 16

# Memory moves in lines; half a line more is met on average where a run of elements begins.
LINE_BYTES = 64


def _line_bytes(run: Count, whole: int, element_bytes: int) -> Count:
    """Bytes moved for *run* elements side by side; rows taken *whole* follow one another."""
    moved = ceil_div(run * element_bytes + LINE_BYTES // 2, LINE_BYTES) * LINE_BYTES
    return np.where(run >= whole, run * element_bytes, moved)


@dataclass(frozen=True)
class Footprint:
    """What the blocks of a tiling take and do; work is counted per lane of a block."""

    threads: Count
    waves: Count
    lds_bytes: Count
    registers: Count
    blocks: Count
    utilisation: Count  # useful FMA lanes over all
    fmas: Count
    operand_loads: Count  # operands brought to registers for the FMAs, from LDS or memory
    global_bytes: Count  # moved by one block, loads and stores
    steps: Count  # waits for global memory that follow one another


def _pointwise(problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
    spec, shape = problem.spec, pointwise_shape(problem, t, wavefront)
    element = ELEMENT_BYTES[spec.dtype]
    threads = shape.wave_n * wavefront
    tiles = shape.input_tile + shape.filter_tile
    # Eq. 5 and 6: results, operands, and the registers of the double buffer.
    results, operands = t.wave_w * shape.thread_c, t.wave_w + shape.thread_c
    buffered = ceil_div(shape.input_tile, threads) + ceil_div(shape.filter_tile, threads)
    images = problem.batch * ceil_div(problem.out_height, shape.rows)
    blocks = images * ceil_div(problem.out_width, shape.columns) * ceil_div(
        spec.out_channels, shape.channels)
    lanes = blocks * shape.rows * shape.columns * shape.channels * (shape.steps * t.group_c)
    row_bytes = shape.rows * _line_bytes(shape.columns, problem.out_width, element)
    filter_bytes = shape.channels * _line_bytes(t.group_c, spec.in_channels, element)
    return Footprint(
        threads=threads, waves=shape.wave_n, lds_bytes=element * tiles * 2,
        registers=results + operands + buffered + COMPILER_REGISTERS,
        blocks=blocks, utilisation=problem.macs / lanes,
        fmas=results * shape.steps, operand_loads=operands * shape.steps,
        global_bytes=(row_bytes * t.group_c + filter_bytes) * shape.steps
        + row_bytes * shape.channels,
        # The first group is waited for, and the double buffer hides about half of the others.
        steps=1 + shape.steps / 2)


def _matrix(problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
    shape, element = matrix_shape(problem, t, wavefront), ELEMENT_BYTES[problem.spec.dtype]
    blocks = t.cluster * shape.channel_tiles * shape.pixel_tiles
    depth = shape.steps * t.step_c
    area, depth_lane = t.tile_c * t.tile_p, shape.steps * t.step_c // t.slices
    fetched = np.where(t.stages == 2, shape.fetched, 0)
    # Matrix units take their operands from all of a wavefront's lanes together.
    read = np.where(np.asarray(t.arithmetic) == "tf32x3", (t.wave_c + t.wave_p) / wavefront,
                    t.wave_c / t.lanes_c + t.wave_p * t.lanes_c / wavefront)
    return Footprint(
        threads=shape.waves * wavefront, waves=shape.waves,
        lds_bytes=element * np.maximum(t.stages * shape.buffer, shape.joined),
        registers=shape.sums + shape.operands + fetched + COMPILER_REGISTERS,
        blocks=blocks, utilisation=problem.macs / (blocks * area * depth),
        fmas=shape.sums * depth_lane, operand_loads=read * depth_lane,
        global_bytes=element * ((t.tile_c + t.tile_p) * depth + area),
        steps=1 + shape.steps / t.stages)


def _depthwise(problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
    spec, shape = problem.spec, depthwise_shape(problem, t)
    (kernel_h, kernel_w), element = spec.kernel, ELEMENT_BYTES[spec.dtype]
    taps, in_lds = kernel_h * kernel_w, np.asarray(t.staging) != "registers"
    waves = ceil_div(t.planes * t.lanes_h * t.lanes_w, wavefront)
    outputs = t.thread_h * t.thread_w
    loads = shape.rows * shape.columns + taps
    blocks = (ceil_div(problem.batch * spec.out_channels, t.planes)
              * ceil_div(problem.out_height, t.lanes_h * t.thread_h)
              * ceil_div(problem.out_width, t.lanes_w * t.thread_w))
    useful = problem.macs // taps / (blocks * waves * wavefront * outputs)
    # Lanes side by side share the lines of a row, in LDS and in the cache.
    row_bytes = _line_bytes(shape.tile_w, problem.width, element)
    out_bytes = _line_bytes(t.lanes_w * t.thread_w, problem.out_width, element)
    strips = np.where(in_lds, shape.tile_h, t.lanes_h * shape.rows)
    reloads = np.where(in_lds | t.column_reuse, 1, shape.columns / t.thread_w)
    return Footprint(
        threads=waves * wavefront, waves=waves,
        lds_bytes=element * (shape.span_in + shape.span_out) + np.where(in_lds, ARRIVALS_BYTES, 0),
        registers=shape.live_rows * t.thread_w + shape.columns + taps + COMPILER_REGISTERS,
        blocks=blocks, utilisation=useful, fmas=outputs * taps, operand_loads=loads,
        global_bytes=t.planes * (strips * row_bytes * reloads + element * taps
                                 + t.lanes_h * t.thread_h * out_bytes),
        # Row loads do not depend on one another; a compiler keeps about four in flight.
        steps=np.where(in_lds, 2, 1 + shape.rows / 4))


def _direct(problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
    spec, element = problem.spec, ELEMENT_BYTES[problem.spec.dtype]
    channel_tiles = spec.groups * ceil_div(spec.group_out, t.thread_c)
    pixels = problem.out_height * problem.out_width
    blocks = problem.batch * channel_tiles * ceil_div(pixels, t.threads)
    loads = spec.products * (t.thread_c + 1)
    return Footprint(
        threads=t.threads, waves=ceil_div(t.threads, wavefront), lds_bytes=0 * t.threads,
        # Accumulators, a filter element each, the input element.
        registers=2 * t.thread_c + 1 + COMPILER_REGISTERS,
        blocks=blocks,
        utilisation=problem.macs / (blocks * t.threads * t.thread_c * spec.products),
        fmas=spec.products * t.thread_c, operand_loads=loads,
        global_bytes=element * t.threads * (loads + t.thread_c), steps=1 + spec.products / 4)


def footprint(problem: ConvProblem, kind: type[Tiling], t: Any, wavefront: int) -> Footprint:
    """The footprint of *t*: a tiling of class *kind*, or an object with a column per field."""
    by_kind = {ChannelDistributionTiling: _pointwise, GemmTiling: _matrix,
               RowReuseTiling: _depthwise, DirectTiling: _direct}
    return by_kind[kind](problem, t, wavefront)


def resource_use(problem: ConvProblem, tiling: Tiling, wavefront: int) -> ResourceUse:
    """The predicted ResourceUse of one tiling.

    >>> from dscore.core.token import parse_problem
    >>> resource_use(parse_problem("n1c320h7w7_o1280k1"),
    ...              ChannelDistributionTiling(1, 64, 1, 4, 16), 64)
    ResourceUse(threads=256, waves=4, lds_bytes=32896, registers=80, spills=0)
    """
    foot = footprint(problem, type(tiling), tiling, wavefront)
    return ResourceUse(int(foot.threads), int(foot.waves), int(foot.lds_bytes),
                       int(foot.registers))


def launch_of(problem: ConvProblem, tiling: Tiling, wavefront: int) -> Launch:
    """The launch of one tiling."""
    foot = footprint(problem, type(tiling), tiling, wavefront)
    return Launch(int(foot.blocks), int(foot.threads), int(foot.lds_bytes))
