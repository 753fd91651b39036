"""Blocks of row reuse in lockstep: which rows of which planes a block takes, and how these pass its
LDS."""

from __future__ import annotations

import numpy as np

from dscore.algorithms.base import BARRIER_BYTES
from dscore.algorithms.columns import ceil_div
from dscore.algorithms.row_reuse.tiling import RowReuseTiling, shape_of, waves_of
from dscore.algorithms.row_reuse.view import view_of
from dscore.backends.reference.lockstep import LockstepKernel, require_launch
from dscore.backends.reference.machine import (
    Addresses,
    Blocks,
    Bools,
    Floats,
    Ints,
    Operands,
    lane_ids,
    split,
)
from dscore.backends.reference.vectors import Piece
from dscore.core.errors import LaunchError
from dscore.core.plan import Plan


class RowBlock(LockstepKernel):
    """The grid, and what a block takes of it: a tile of columns and rows, of some planes.

    Subclasses say how lanes share it. Grid order: column tile fastest, then row tile, then planes.
    """

    blocks: Blocks  # that run in lockstep

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands)
        gradient = plan.problem.operation == "input_gradient"
        self.x, self.w = operands["gradient" if gradient else "x"], operands["w"]
        problem, t, S = self.problem, self.t, self.wavefront
        _require_block(plan, t, S)
        self.view, self.element = view_of(problem), problem.spec.element
        self.rows, self.columns = self.view.rows, self.view.columns
        self.shape = shape_of(problem, t)
        waves = int(waves_of(t, S))
        self.column_tiles = ceil_div(self.columns.written_size, t.lanes_w * t.thread_w)
        self.row_tiles = ceil_div(self.rows.written_size, t.lanes_h * t.thread_h)
        self.grid = ceil_div(self.view.planes, t.planes) * self.row_tiles * self.column_tiles
        require_launch(plan, self.grid, waves * S)
        self.thread = lane_ids(waves, S)

    def place(self, block: Ints) -> None:
        """Tiles of the blocks numbered *block*, and their first planes."""
        self.column_tile, self.row_tile, plane_tile = split(
            block, self.column_tiles, self.row_tiles)
        self.first_plane = plane_tile * self.t.planes

    def input_plane(self, plane: Ints) -> Ints:
        """First element walked over under a written plane: of a convolution, plane o / multiplier
        of all images' planes.
        """
        in_plane: Ints = plane // self.view.multiplier
        return in_plane * (self.rows.walked_size * self.columns.walked_size)

    def filters_of(self, plane: Ints) -> Ints:
        """First element of w for a written plane."""
        return plane % self.problem.spec.out_channels * self.problem.spec.products

    def store(self, values: Floats, index: Ints, lanes: Bools) -> None:
        """Store results: the elements *index* of the output."""
        self.blocks.store(self.out, Addresses(index, lanes), values)


class RowsInLds(RowBlock):
    """The block's rows come through LDS as vectors.

    With "both" its results leave through it, too. From the first row of its first plane to the last
    of its last one they lie in one piece, as a block takes whole rows, and whole planes if several.
    """

    def spans(self) -> None:
        """LDS of the block's rows and its results."""
        blocks = self.blocks
        self.piece = Piece(blocks, "the block's rows", int(self.shape.span_in))
        self.results = Piece(blocks, "its results", int(self.shape.span_out))
        blocks.lds_tile("the count of bytes that have come", BARRIER_BYTES // 4)

    def place(self, block: Ints) -> None:
        super().place(block)
        axis, t, first_plane = self.rows, self.t, self.first_plane
        last_plane = np.minimum(first_plane + t.planes, self.view.planes) - 1
        top, width = self.row_tile * t.lanes_h * t.thread_h, self.columns.walked_size
        row = axis.step(top) + axis.first
        row_end = np.minimum(row + int(self.shape.tile_h), axis.end)
        self.piece.place(self.input_plane(first_plane) + np.maximum(row, 0) * width,
                         self.input_plane(last_plane) + row_end * width)
        row_end = np.minimum(top + t.lanes_h * t.thread_h, axis.written_size)
        width = self.columns.written_size
        self.results.place((first_plane * axis.written_size + top) * width,
                           (last_plane * axis.written_size + row_end) * width)

    def copy_rows(self) -> None:
        """Copies of all rows begin."""
        self.piece.copy(self.x, "inputs")
        if self.blocks.trace is not None:
            self.blocks.trace.rows_loaded += (
                self.piece.elements // self.columns.walked_size)

    def load(self, out: Floats, index: Ints, lanes: Bools) -> None:
        self.piece.read(out, index, lanes, operand=True)

    def store(self, values: Floats, index: Ints, lanes: Bools) -> None:
        store = self.results.write if self.t.staging == "both" else super().store
        store(values, index, lanes)

    def store_from_lds(self) -> None:
        """Results that lie in LDS leave it."""
        if self.t.staging == "both":
            self.results.store(self.out)


def _require_block(plan: Plan, t: RowReuseTiling, wavefront: int) -> None:
    """LaunchError where lanes cannot pass columns on, or a block's rows lie in several pieces."""
    view, staged = view_of(plan.problem), t.staging != "registers"
    rows, columns = view.rows, view.columns
    for wrong, what in (
            (t.column_reuse and staged, "column_reuse is for rows that come straight to registers"),
            (t.column_reuse and (t.lanes_w & (t.lanes_w - 1) or t.lanes_w > wavefront),
             f"column_reuse needs lanes_w to be a power of two of at most the wavefront "
             f"{wavefront}; it is {t.lanes_w}"),
            (staged and t.lanes_w * t.thread_w < columns.written_size, "through LDS a block takes "
             f"whole rows; it has {t.lanes_w * t.thread_w} of {columns.written_size} columns"),
            (staged and t.planes > 1 and t.lanes_h * t.thread_h < rows.written_size,
             "through LDS a block takes several planes whole; it has "
             f"{t.lanes_h * t.thread_h} of {rows.written_size} rows"),
            (t.thread_h % rows.unit or t.thread_w % columns.unit,
             f"a thread's rows and columns must be multiples of {rows.unit} and {columns.unit}; "
             f"they are {t.thread_h} and {t.thread_w}")):
        if wrong:
            raise LaunchError(f"{plan.name}: {what}")
