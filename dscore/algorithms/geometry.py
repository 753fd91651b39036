"""The shapes of kernels: what a thread, a wavefront and a block of a tiling hold and cover.

Every formula works on one tiling or, field for field, on int64 arrays of many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dscore.core.problem import ConvProblem

# An int, or an int64 array with one entry per tiling.
Count = Any


def ceil_div(a: Count, b: Count) -> Count:
    """The quotient rounded up."""
    return -(-a // b)


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
    """Geometry of *t* (a ChannelDistributionTiling or columns of many)."""
    rows = np.gcd(problem.out_height, t.repeat_w)
    waves_per_row = t.repeat_w // rows
    return PointwiseShape(
        wave_n=t.repeat_w * t.repeat_c, rows=rows, waves_per_row=waves_per_row,
        columns=waves_per_row * t.wave_w, channels=t.repeat_c * t.wave_c,
        thread_c=t.wave_c * t.group_c // wavefront,
        input_tile=t.repeat_w * t.wave_w * t.group_c,
        filter_tile=t.repeat_c * t.wave_c * t.group_c,
        steps=ceil_div(problem.spec.in_channels, t.group_c))


@dataclass(frozen=True)
class MatrixShape:
    """The geometry of a block of the product of matrices."""

    slice_waves: Count  # wavefronts of one slice
    waves: Count
    sums: Count  # outputs of a lane
    operands: Count  # elements that a lane holds for one step of its multiplication
    fetched: Count  # elements that a thread takes of one step's tiles
    buffer: Count  # elements of one LDS buffer
    joined: Count  # elements of LDS for the slices' sums
    steps: Count  # of one block
    channel_tiles: Count
    pixel_tiles: Count


def vectors(problem: ConvProblem) -> tuple[int, int]:
    """Elements that lie side by side at multiples of 16 bytes, of an image and of a filter."""
    area = problem.height * problem.width
    whole = problem.spec.stride == (1, 1) and not any(problem.padding) and area % 4 == 0
    return 4 if whole else 1, 4 if problem.spec.in_channels % 4 == 0 else 1


def matrix_shape(problem: ConvProblem, t: Any, wavefront: int) -> MatrixShape:
    """Geometry of *t*, a GemmTiling or columns of many."""
    spec, split = problem.spec, np.asarray(t.arithmetic) == "tf32x3"
    # What no tiling may be has at least one of each, so that its rules can be judged.
    slice_waves = np.maximum((t.tile_c // t.wave_c) * (t.tile_p // t.wave_p), 1)
    waves, sums = slice_waves * t.slices, np.maximum(t.wave_c * t.wave_p // wavefront, 1)
    lanes_p, threads = np.maximum(wavefront // t.lanes_c, 1), waves * wavefront
    vector_p, vector_c = vectors(problem)
    # Rows of the buffers begin some banks apart (hip_src/gemm/kernel.hpp).
    filter_row = t.step_c + np.where(t.step_c % 16 == 8, 0, 8)
    image_row = t.tile_p + np.where(t.tile_p % 8 == 0, 4, 0)
    return MatrixShape(
        slice_waves=slice_waves, waves=waves, sums=sums,
        # Four channels of the filters at a time; on matrix units eight of both, in two parts.
        operands=np.where(split, t.wave_c // 2 + t.wave_p // 2,
                          4 * (t.wave_c // t.lanes_c) + t.wave_p // lanes_p),
        fetched=vector_c * ceil_div(t.tile_c * t.step_c, vector_c * threads)
        + vector_p * ceil_div(t.tile_p * t.step_c, vector_p * threads),
        buffer=t.tile_c * filter_row + t.step_c * image_row,
        joined=np.maximum(t.slices - 1, t.cluster > 1) * slice_waves * wavefront * sums,
        steps=ceil_div(ceil_div(spec.in_channels, t.step_c), t.cluster),
        channel_tiles=ceil_div(spec.out_channels, t.tile_c),
        pixel_tiles=ceil_div(problem.batch * problem.out_height * problem.out_width, t.tile_p))


@dataclass(frozen=True)
class DepthwiseShape:
    """The geometry of a depthwise thread and its block."""

    live_rows: Count  # output rows that a thread accumulates at a time
    rows: Count  # input rows that a thread walks over
    columns: Count  # input columns that a thread holds of one row
    reach: Count  # columns from its first to its last, gaps of strides and dilation included
    tile_h: Count  # input rows of a block
    tile_w: Count  # input columns of a block
    span_in: Count  # elements of LDS for the block's rows, which lie in one piece
    span_out: Count  # and for its results


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
    """Geometry of *t*, a RowReuseTiling or columns of many."""
    (stride_h, stride_w), (span_h, span_w) = problem.spec.stride, problem.spec.span
    # An output row lives from its first input row to its last: ceil(F_H / stride) rows at a time
    # for a dilation of 1, and never more than the thread computes.
    live = np.minimum(t.thread_h, (span_h - 1) // stride_h + 1)
    staging, tile_h = np.asarray(t.staging), (t.lanes_h * t.thread_h - 1) * stride_h + span_h
    multiplier = problem.spec.group_out
    # Of planes that share their inputs, some may share them with those of the block before.
    shared = np.gcd(t.planes, multiplier)
    planes_in = (t.planes - 1 + multiplier - shared) // multiplier + 1
    rows_out = np.minimum(t.lanes_h * t.thread_h, problem.out_height)
    span_in = _span(planes_in, problem.height, np.minimum(tile_h, problem.height), problem.width)
    span_out = _span(t.planes, problem.out_height, rows_out, problem.out_width)
    return DepthwiseShape(
        live_rows=live, rows=(t.thread_h - 1) * stride_h + span_h,
        columns=_per_tiling(problem, t),
        reach=np.maximum((t.thread_w - 1) * stride_w + span_w, t.thread_w * stride_w),
        tile_h=tile_h, tile_w=(t.lanes_w * t.thread_w - 1) * stride_w + span_w,
        span_in=np.where(staging == "registers", 0, span_in),
        span_out=np.where(staging == "both", span_out, 0))


def row_vectors(problem: ConvProblem, t: Any) -> tuple[Count, Count]:
    """Columns that a lane moves as one: of its input row, and of its results.

    They begin at multiples of their size in every row, which the image's width is one of.
    """
    step = t.thread_w * problem.spec.stride[1]
    loaded = np.where(t.column_reuse, 1, _common_vector(problem.width, step))
    return loaded, _common_vector(problem.out_width, t.thread_w)


def _common_vector(width: int, step: Count) -> Count:
    """The most elements, of at most a vector, that divide both."""
    return np.gcd(np.gcd(width, _VECTOR), step)


# LDS is filled by vectors of 16 bytes, the first of which may begin before the block's first row.
_VECTOR = 4
# A block's LDS begins at a multiple of these (hip_src/support/vendor.hpp), and so do its
# results: the copy engine of sm_90 is slower to others.
LDS_ALIGNMENT_BYTES = 128


def _span(planes: Count, height: int, rows: Count, width: int) -> Count:
    """Elements of LDS for some rows of the last of *planes* planes and all of the others."""
    most = ((planes - 1) * height + rows) * width + _VECTOR - 1
    aligned = LDS_ALIGNMENT_BYTES // 4
    return ceil_div(most, aligned) * aligned
