"""The tiling of row reuse, and the geometry of its threads and blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from dscore.algorithms.base import LDS_ALIGNMENT_BYTES, VECTOR_BYTES
from dscore.algorithms.columns import Count, ceil_div, once_for_each, remembered
from dscore.algorithms.row_reuse.view import view_of
from dscore.core.numerics import Arithmetic, Element
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling, choice

Staging = Literal["registers", "lds", "both"]
STAGINGS: tuple[str, ...] = get_args(Staging)
ARITHMETICS = ("plain", "matrix16")
# Lanes of a plane that a wavefront takes on matrix units.
UNIT_LANES = 16


@dataclass(frozen=True)
class RowReuseTiling(Tiling):
    """Tiling of row reuse (Liu et al. 2024, §4.2) and column reuse (Lu et al. 2021).

    A thread writes `thread_h` rows of `thread_w` columns; `lanes_w` threads stand side by side,
    `lanes_h` such rows of threads one above the other, and a block holds `planes` of these (a
    plane is one written channel of one image). Thread order: plane, then lanes_h, then lanes_w
    fastest. Rows come straight to `registers` or through the block's `lds`, to which whole
    rows are copied as vectors; with "both" the results leave through it as well. The rows and
    columns that a thread writes of an input gradient are multiples of the stride.
    With `column_reuse` a lane loads only its own columns and takes the overlap from the lanes at
    its right by shuffles, which needs `lanes_w` to be a power of two within the wavefront; elements
    of int8 are not passed on.
    With `ahead` (devices with an early start) a kernel overlaps with its neighbours: a block that
    starts while the previous kernel still runs fetches its rows (where they go through LDS) and
    filters to the L2 cache, and the next kernel's blocks may start once all of this one's may read.
    With the `arithmetic` "matrix16" (NVIDIA's matrix units, elements of 16 bits) patches of eight
    results, `thread_w` columns by 8 / `thread_w` rows, are made by a product of the pixels under
    them with a Toeplitz matrix of the taps. What is a thread's else is then a patch's column of
    patches, and a wavefront takes 16 of these, of one plane, and of `repeat` planes one after the
    other. Rows come through LDS.
    """

    thread_h: int
    thread_w: int
    lanes_h: int
    lanes_w: int
    planes: int
    staging: Staging = choice(*STAGINGS, default="registers")
    column_reuse: bool = False
    ahead: bool = False
    arithmetic: str = choice(*ARITHMETICS, default="plain")
    repeat: int = 1

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
                f"{'_shfl' if self.column_reuse else ''}{'_ahead' if self.ahead else ''}"
                f"{'' if self.arithmetic == 'plain' else '_' + self.arithmetic}"
                f"{f'_r{self.repeat}' if self.repeat > 1 else ''}")

    def computes(self, arithmetic: Arithmetic | None) -> bool:
        return arithmetic in (None, self.arithmetic)


@dataclass(frozen=True)
class RowReuseShape:
    """The geometry of a thread and its block."""

    live_rows: Count  # rows that a thread accumulates at a time
    rows: Count  # rows that a thread walks over
    columns: Count  # columns that a thread holds of one of these
    reach: Count  # columns from its first to its last, gaps of strides and dilation included
    tile_h: Count  # rows that a block walks over
    span_in: Count  # elements of LDS for the block's rows, which lie in one piece
    span_out: Count  # and for its results


@remembered
def staged(t: Any) -> Any:
    """Whether rows come through LDS."""
    return np.asarray(t.staging) != "registers"


@remembered
def on_units(t: Any) -> Any:
    """Whether matrix units multiply."""
    return np.asarray(t.arithmetic) == "matrix16"


def waves_of(t: Any, wavefront: int) -> Count:
    """Wavefronts of a block."""
    lanes = t.lanes_h * t.lanes_w
    return np.where(on_units(t), t.planes // t.repeat * ceil_div(lanes, UNIT_LANES),
                    ceil_div(t.planes * lanes, wavefront))


def column_offsets(problem: ConvProblem, thread_w: int) -> tuple[int, ...]:
    """Columns, counted from the thread's first, that taps connect with those it writes.

    A stride or dilation may leave gaps, which are not loaded.
    """
    axis = view_of(problem).columns
    positions = (axis.position(c, f) for c in range(thread_w) for f in range(axis.kernel))
    return tuple(sorted({position for position in positions if position is not None}))


def owned_columns(problem: ConvProblem, thread_w: int) -> tuple[int, ...]:
    """Columns of its own that a lane loads with column reuse, for itself and its neighbours.

    An offset past the columns from its first to its neighbour's is some neighbour's residue.
    """
    own = view_of(problem).columns.step(thread_w)
    return tuple(sorted({offset % own for offset in column_offsets(problem, thread_w)}))


def _held_columns(problem: ConvProblem, thread_w: int, column_reuse: bool) -> int:
    held = set(column_offsets(problem, thread_w))
    return len(held | set(owned_columns(problem, thread_w)) if column_reuse else held)


def _per_tiling(problem: ConvProblem, t: Any) -> Count:
    """`_held_columns` of one tiling or of each in columns, computed once for each distinct pair."""
    if isinstance(t.thread_w, int):
        return _held_columns(problem, t.thread_w, t.column_reuse)
    return once_for_each(lambda widths, reuses: np.array([
        _held_columns(problem, int(w), bool(r)) for w, r in zip(widths, reuses, strict=True)],
        dtype=np.int64), t.thread_w, t.column_reuse)


@remembered
def shape_of(problem: ConvProblem, t: Any) -> RowReuseShape:
    """Geometry of *t*, a RowReuseTiling or columns of many."""
    view = view_of(problem)
    rows, columns, multiplier = view.rows, view.columns, view.multiplier
    tile_h = rows.under(t.lanes_h * t.thread_h)
    # Of planes that share their inputs, some may share them with those of the block before.
    shared = np.gcd(t.planes, multiplier)
    planes_in = (t.planes - 1 + multiplier - shared) // multiplier + 1
    rows_out = np.minimum(t.lanes_h * t.thread_h, rows.written_size)
    span_in = _span(problem, planes_in, rows.walked_size, np.minimum(tile_h, rows.walked_size),
                    columns.walked_size)
    span_out = _span(problem, t.planes, rows.written_size, rows_out, columns.written_size)
    return RowReuseShape(
        live_rows=rows.live(t.thread_h), rows=rows.under(t.thread_h),
        columns=_per_tiling(problem, t),
        reach=np.maximum(columns.under(t.thread_w), columns.step(t.thread_w)),
        tile_h=tile_h, span_in=np.where(staged(t), span_in, 0),
        span_out=np.where(np.asarray(t.staging) == "both", span_out, 0))


def blocks(problem: ConvProblem, t: Any) -> Count:
    """Blocks of the grid."""
    view = view_of(problem)
    return (ceil_div(view.planes, t.planes)
            * ceil_div(view.rows.written_size, t.lanes_h * t.thread_h)
            * ceil_div(view.columns.written_size, t.lanes_w * t.thread_w))


def _span(problem: ConvProblem, planes: Count, height: int, rows: Count, width: int) -> Count:
    """Elements of LDS for some rows of the last of *planes* planes and all of the others.

    LDS is filled by vectors, the first of which may begin before the block's first row.
    """
    element = problem.spec.element.bytes
    most = ((planes - 1) * height + rows) * width + VECTOR_BYTES // element - 1
    aligned = LDS_ALIGNMENT_BYTES // element
    return ceil_div(most, aligned) * aligned


@remembered
def row_vectors(problem: ConvProblem, t: Any) -> tuple[Count, Count]:
    """Columns that a lane moves as one: of the row that it walks over, and of its results.

    They begin at multiples of their size in every row, which the image's width is one of.
    """
    axis, spec = view_of(problem).columns, problem.spec

    def common(width: int, step: Count, element: Element) -> Count:
        """The most elements, of at most a vector, that divide both."""
        return np.gcd(np.gcd(width, VECTOR_BYTES // element.bytes), step)

    loaded = common(axis.walked_size, axis.step(t.thread_w), spec.element)
    return (np.where(t.column_reuse, 1, loaded),
            common(axis.written_size, t.thread_w, spec.out_element))
