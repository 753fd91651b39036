"""The tiling of row reuse, and the geometry of its threads and blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from dscore.algorithms.base import LDS_ALIGNMENT_BYTES, VECTOR_BYTES
from dscore.algorithms.columns import Count, ceil_div
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling, choice

Staging = Literal["registers", "lds", "both"]
STAGINGS: tuple[str, ...] = get_args(Staging)


@dataclass(frozen=True)
class RowReuseTiling(Tiling):
    """Tiling of row reuse (Liu et al. 2024, §4.2) and column reuse (Lu et al. 2021).

    A thread walks down `thread_h` output rows of `thread_w` columns; `lanes_w` threads stand side
    by side, `lanes_h` such rows of threads one above the other, and a block holds `planes` of
    these (a plane is one output channel of one image). Thread order: plane, then lanes_h, then
    lanes_w fastest. Rows come straight to `registers` or through the block's `lds`, to which whole
    rows are copied as vectors; with "both" the results leave through it as well.
    With `column_reuse` a lane loads only its own columns and takes the overlap from the lanes at
    its right by shuffles, which needs `lanes_w` to be a power of two within the wavefront.
    With `ahead` (devices with an early start) a kernel overlaps with its neighbours: a block that
    starts while the previous kernel still runs fetches its rows (where they go through LDS) and
    filters to the L2 cache, and the next kernel's blocks may start once all of this one's may read.
    """

    thread_h: int
    thread_w: int
    lanes_h: int
    lanes_w: int
    planes: int
    staging: Staging = choice(*STAGINGS, default="registers")
    column_reuse: bool = False
    ahead: bool = False

    algorithm: ClassVar[str] = "row_reuse"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> RowReuseTiling(4, 2, 1, 32, 2, "registers", True).name
        'row_reuse_t4x2_l1x32_p2_reg_shfl'
        >>> RowReuseTiling(7, 1, 1, 7, 8, "both", ahead=True).name
        'row_reuse_t7x1_l1x7_p8_both_ahead'
        """
        return (f"row_reuse_t{self.thread_h}x{self.thread_w}_l{self.lanes_h}x{self.lanes_w}"
                f"_p{self.planes}_{'reg' if self.staging == 'registers' else self.staging}"
                f"{'_shfl' if self.column_reuse else ''}{'_ahead' if self.ahead else ''}")


@dataclass(frozen=True)
class RowReuseShape:
    """The geometry of a thread and its block."""

    live_rows: Count  # output rows that a thread accumulates at a time
    rows: Count  # input rows that a thread walks over
    columns: Count  # input columns that a thread holds of one row
    reach: Count  # columns from its first to its last, gaps of strides and dilation included
    tile_h: Count  # input rows of a block
    span_in: Count  # elements of LDS for the block's rows, which lie in one piece
    span_out: Count  # and for its results


def staged(t: Any) -> Any:
    """Whether rows come through LDS."""
    return np.asarray(t.staging) != "registers"


def column_offsets(problem: ConvProblem, thread_w: int) -> tuple[int, ...]:
    """Columns, counted from the thread's first, under the outputs of one thread.

    A stride or dilation may leave gaps, which are not loaded.
    """
    (_, kernel_w), (_, stride_w), (_, dilation_w) = (
        problem.spec.kernel, problem.spec.stride, problem.spec.dilation)
    return tuple(sorted({c * stride_w + f * dilation_w
                         for c in range(thread_w) for f in range(kernel_w)}))


def owned_columns(problem: ConvProblem, thread_w: int) -> tuple[int, ...]:
    """Columns of its own that a lane loads with column reuse, for itself and its neighbours.

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


def shape_of(problem: ConvProblem, t: Any) -> RowReuseShape:
    """Geometry of *t*, a RowReuseTiling or columns of many."""
    (stride_h, stride_w), (span_h, span_w) = problem.spec.stride, problem.spec.span
    # An output row lives from its first input row to its last: ceil(F_H / stride) rows at a time
    # for a dilation of 1, and never more than the thread computes.
    live = np.minimum(t.thread_h, (span_h - 1) // stride_h + 1)
    tile_h = (t.lanes_h * t.thread_h - 1) * stride_h + span_h
    multiplier = problem.spec.group_out
    # Of planes that share their inputs, some may share them with those of the block before.
    shared = np.gcd(t.planes, multiplier)
    planes_in = (t.planes - 1 + multiplier - shared) // multiplier + 1
    rows_out = np.minimum(t.lanes_h * t.thread_h, problem.out_height)
    span_in = _span(problem, planes_in, problem.height, np.minimum(tile_h, problem.height),
                    problem.width)
    span_out = _span(problem, t.planes, problem.out_height, rows_out, problem.out_width)
    return RowReuseShape(
        live_rows=live, rows=(t.thread_h - 1) * stride_h + span_h,
        columns=_per_tiling(problem, t),
        reach=np.maximum((t.thread_w - 1) * stride_w + span_w, t.thread_w * stride_w),
        tile_h=tile_h, span_in=np.where(staged(t), span_in, 0),
        span_out=np.where(np.asarray(t.staging) == "both", span_out, 0))


def blocks(problem: ConvProblem, t: Any) -> Count:
    """Blocks of the grid."""
    return (ceil_div(problem.batch * problem.spec.out_channels, t.planes)
            * ceil_div(problem.out_height, t.lanes_h * t.thread_h)
            * ceil_div(problem.out_width, t.lanes_w * t.thread_w))


def _span(problem: ConvProblem, planes: Count, height: int, rows: Count, width: int) -> Count:
    """Elements of LDS for some rows of the last of *planes* planes and all of the others.

    LDS is filled by vectors, the first of which may begin before the block's first row.
    """
    element = problem.spec.element.bytes
    most = ((planes - 1) * height + rows) * width + VECTOR_BYTES // element - 1
    aligned = LDS_ALIGNMENT_BYTES // element
    return ceil_div(most, aligned) * aligned


def row_vectors(problem: ConvProblem, t: Any) -> tuple[Count, Count]:
    """Columns that a lane moves as one: of its input row, and of its results.

    They begin at multiples of their size in every row, which the image's width is one of.
    """
    vector, step = VECTOR_BYTES // problem.spec.element.bytes, (
        t.thread_w * problem.spec.stride[1])

    def common(width: int, step: Count) -> Count:
        """The most elements, of at most a vector, that divide both."""
        return np.gcd(np.gcd(width, vector), step)

    return np.where(t.column_reuse, 1, common(problem.width, step)), common(
        problem.out_width, t.thread_w)
