"""What a tiling costs: threads, LDS, registers, blocks and work, predicted from its fields.

Every formula works on one tiling or, field for field, on int64 arrays of many, so that the solver
and the judge of a single configuration cannot differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .plan import Launch, ResourceUse
from .spec import ELEMENT_BYTES, ConvProblem
from .tiling import DepthwiseTiling, DirectTiling, PointwiseTiling, Tiling

# An int, or an int64 array with one entry per tiling.
Count = Any

# Registers that the paper leaves to the HIP compiler for addresses and counters (Eq. 6).
COMPILER_REGISTERS = 30


# Memory moves in lines; half a line more is met on average where a run of elements begins.
LINE_BYTES = 64


def ceil_div(a: Count, b: Count) -> Count:
    """The quotient rounded up."""
    return -(-a // b)


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


@dataclass(frozen=True)
class PointwiseShape:
    """The geometry of a pointwise block (DESIGN of the pointwise tile, R1–R5)."""

    wave_n: Count
    rows: Count  # output rows of a block: gcd(H, repeat_w)
    waves_per_row: Count  # wavefronts side by side in a row
    columns: Count  # output columns of a block
    channels: Count  # output channels of a block
    thread_c: Count  # output channels of a thread
    input_tile: Count  # elements of one LDS input buffer
    filter_tile: Count  # elements of one LDS filter buffer
    steps: Count  # channel groups


def pointwise_shape(problem: ConvProblem, t: Any, wavefront: int) -> PointwiseShape:
    """Geometry of *t* (a PointwiseTiling or columns of many) for wavefronts of *wavefront*."""
    rows = np.gcd(problem.out_height, t.repeat_w)
    waves_per_row = t.repeat_w // rows
    return PointwiseShape(
        wave_n=t.repeat_w * t.repeat_c, rows=rows, waves_per_row=waves_per_row,
        columns=waves_per_row * t.wave_w, channels=t.repeat_c * t.wave_c,
        thread_c=t.wave_c * t.group_c // wavefront,
        input_tile=t.repeat_w * t.wave_w * t.group_c,
        filter_tile=t.repeat_c * t.wave_c * t.group_c,
        steps=ceil_div(problem.spec.in_channels, t.group_c))


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


@dataclass(frozen=True)
class DepthwiseShape:
    """The geometry of a depthwise thread and its block."""

    live_rows: Count  # output rows that a thread accumulates at a time
    rows: Count  # input rows that a thread walks over
    columns: Count  # input columns that a thread holds of one row
    tile_h: Count  # input rows of a block
    tile_w: Count  # input columns of a block


def column_offsets(problem: ConvProblem, thread_w: int) -> tuple[int, ...]:
    """Columns, counted from the thread's first, under the outputs of one thread.

    A stride or dilation may leave gaps, which are not loaded.
    """
    (_, kernel_w), (_, stride_w), (_, dilation_w) = (
        problem.spec.kernel, problem.spec.stride, problem.spec.dilation)
    return tuple(sorted({c * stride_w + f * dilation_w
                         for c in range(thread_w) for f in range(kernel_w)}))


def owned_columns(problem: ConvProblem, thread_w: int) -> tuple[int, ...]:
    """With column reuse: the columns of its own that a lane loads, for itself and its neighbours.

    A lane owns ``thread_w * stride`` columns; an offset past these is some neighbour's residue.
    """
    own = thread_w * problem.spec.stride[1]
    return tuple(sorted({offset % own for offset in column_offsets(problem, thread_w)}))


def _held_columns(problem: ConvProblem, thread_w: int, column_reuse: bool) -> int:
    held = set(column_offsets(problem, thread_w))
    return len(held | set(owned_columns(problem, thread_w)) if column_reuse else held)


def _per_tiling(problem: ConvProblem, t: Any) -> Count:
    """`_held_columns` of one tiling or of each in columns, computed once for each distinct pair."""
    if isinstance(t.thread_w, int):
        return _held_columns(problem, t.thread_w, t.column_reuse)
    key = 2 * t.thread_w + t.column_reuse
    distinct, inverse = np.unique(key, return_inverse=True)
    held = [_held_columns(problem, int(k) // 2, bool(k % 2)) for k in distinct]
    return np.asarray(held, dtype=np.int64)[inverse]


def depthwise_shape(problem: ConvProblem, t: Any) -> DepthwiseShape:
    """Geometry of *t*, a DepthwiseTiling or columns of many."""
    (stride_h, stride_w), (span_h, span_w) = problem.spec.stride, problem.spec.span
    # An output row lives from its first input row to its last: ceil(F_H / stride) rows at a time
    # for a dilation of 1, and never more than the thread computes.
    live = np.minimum(t.thread_h, (span_h - 1) // stride_h + 1)
    return DepthwiseShape(
        live_rows=live, rows=(t.thread_h - 1) * stride_h + span_h,
        columns=_per_tiling(problem, t),
        tile_h=(t.lanes_h * t.thread_h - 1) * stride_h + span_h,
        tile_w=(t.lanes_w * t.thread_w - 1) * stride_w + span_w)


def _depthwise(problem: ConvProblem, t: Any, wavefront: int) -> Footprint:
    spec, shape = problem.spec, depthwise_shape(problem, t)
    (kernel_h, kernel_w), element = spec.kernel, ELEMENT_BYTES[spec.dtype]
    taps, in_lds = kernel_h * kernel_w, t.staging == "lds"
    waves = ceil_div(t.planes * t.lanes_h * t.lanes_w, wavefront)
    tile = t.planes * (shape.tile_h * shape.tile_w + taps)
    # Through LDS a thread holds one filter row and one register on the way to LDS, else all taps.
    filters = np.where(in_lds, kernel_w + 1, taps)
    outputs = t.thread_h * t.thread_w
    # Through LDS a filter row is read again for every output row that it is added to.
    loads = shape.rows * shape.columns + np.where(in_lds, t.thread_h * taps, 0)
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
        threads=waves * wavefront, waves=waves, lds_bytes=np.where(in_lds, element * tile, 0),
        registers=shape.live_rows * t.thread_w + shape.columns + filters + COMPILER_REGISTERS,
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
    by_kind = {PointwiseTiling: _pointwise, DepthwiseTiling: _depthwise, DirectTiling: _direct}
    return by_kind[kind](problem, t, wavefront)


def resource_use(problem: ConvProblem, tiling: Tiling, wavefront: int) -> ResourceUse:
    """The predicted ResourceUse of one tiling.

    >>> from .notation import parse_problem
    >>> resource_use(parse_problem("n1c320h7w7_o1280k1"), PointwiseTiling(1, 64, 1, 4, 16), 64)
    ResourceUse(threads=256, waves=4, lds_bytes=32896, registers=80, spills=0)
    """
    foot = footprint(problem, type(tiling), tiling, wavefront)
    return ResourceUse(int(foot.threads), int(foot.waves), int(foot.lds_bytes),
                       int(foot.registers))


def launch_of(problem: ConvProblem, tiling: Tiling, wavefront: int) -> Launch:
    """The launch of one tiling."""
    foot = footprint(problem, type(tiling), tiling, wavefront)
    return Launch(int(foot.blocks), int(foot.threads), int(foot.lds_bytes))
