"""Depthwise convolution by row reuse (Liu et al. 2024, §4.2) and column reuse (Lu et al. 2021).

A thread walks over its input rows once; a row is added to every output row that it lies under.
Through LDS a block's input rows come whole, in one piece as they lie in memory; what a thread does
with them is the same.
Order of additions, for one output: filter rows, within these filter columns, both ascending,
beginning with +0; then bias, then activation. Products are rounded before they are added. A row
outside the image is left out; a column outside it is +0 · w.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from dscore.algorithms.columns import ceil_div
from dscore.algorithms.row_reuse import ARRIVALS_BYTES
from dscore.algorithms.row_reuse.tiling import (
    RowReuseTiling,
    column_offsets,
    owned_columns,
    shape_of,
)
from dscore.backends.reference.machine import (
    Addresses,
    Blocks,
    Bools,
    Floats,
    Ints,
    LockstepKernel,
    Operands,
    batches,
    inside,
    lane_ids,
    require_launch,
    split,
)
from dscore.backends.reference.vectors import Piece
from dscore.core.errors import LaunchError
from dscore.core.plan import Plan
from dscore.core.trace import Trace


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the convolution of *plan* to the operand out."""
    assert isinstance(plan.tiling, RowReuseTiling)
    kind = _ThroughRegisters if plan.tiling.staging == "registers" else _ThroughLds
    kernel = kind(plan, operands)
    for blocks, first in batches(plan, kernel.grid, trace, kernel.allocate):
        blocks.begin()
        kernel.place(first + lane_ids(blocks.count, 1, 1))
        kernel.stage()
        kernel.walk()


class _RowReuse(LockstepKernel, ABC):
    """The walk over the rows; subclasses say where a column comes from and a result goes.

    Grid order: column tile fastest, then row tile, then planes.
    """

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands)
        self.x, self.w = operands["x"], operands["w"]
        problem, t, S = self.problem, self.t, self.wavefront
        _require_lanes(plan, t, S)
        self.shape = shape_of(problem, t)
        self.live_rows = int(self.shape.live_rows)
        self.used_threads = t.planes * t.lanes_h * t.lanes_w
        waves = int(ceil_div(self.used_threads, S))
        self.all_planes = problem.batch * problem.spec.out_channels
        self.column_tiles = ceil_div(problem.out_width, t.lanes_w * t.thread_w)
        self.row_tiles = ceil_div(problem.out_height, t.lanes_h * t.thread_h)
        self.grid = ceil_div(self.all_planes, t.planes) * self.row_tiles * self.column_tiles
        require_launch(plan, self.grid, waves * S)
        # Rows past the last tap of the last output row are not loaded, though they may exist.
        self.row_end, self.column_end = (
            min(size, (outputs - 1) * stride + span - before)
            for size, outputs, stride, span, before in zip(
                (problem.height, problem.width), (problem.out_height, problem.out_width),
                problem.spec.stride, problem.spec.span, problem.padding[::2], strict=True))
        self.offsets = column_offsets(problem, t.thread_w)
        self.own = t.thread_w * problem.spec.stride[1]
        # What every lane loads by itself: with column reuse only the columns that it owns.
        self.fetched = owned_columns(problem, t.thread_w) if t.column_reuse else self.offsets
        held = sorted(set(self.offsets) | set(self.fetched))
        self.register_of = {offset: number for number, offset in enumerate(held)}
        self.thread = lane_ids(waves, S)
        self.lane, self.strip, self.plane_in_block = split(self.thread, t.lanes_w, t.lanes_h)

    def allocate(self, blocks: Blocks) -> None:
        """Registers: the taps, the live output rows and one input row."""
        self.blocks = blocks
        self.taps = blocks.registers("the filter", self.problem.spec.products)
        self.sums = blocks.registers("the live output rows", self.live_rows * self.t.thread_w)
        self.row = blocks.registers("an input row", len(self.register_of))
        self.product = np.empty_like(self.row[0])

    def place(self, block: Ints) -> None:
        """Planes and first rows and columns of the lanes of the blocks numbered *block*."""
        problem, spec, t = self.problem, self.problem.spec, self.t
        self.column_tile, self.row_tile, self.plane_tile = split(
            block, self.column_tiles, self.row_tiles)
        self.plane = self.plane_tile * t.planes + self.plane_in_block
        self.out_row = (self.row_tile * t.lanes_h + self.strip) * t.thread_h
        self.out_column = (self.column_tile * t.lanes_w + self.lane) * t.thread_w
        self.in_row = self.out_row * spec.stride[0] - problem.padding[0]
        self.in_column = self.out_column * spec.stride[1] - problem.padding[2]
        self.base = self.input_plane(self.plane) + self.in_column
        # Lanes past the last column stay: their neighbours at the left take columns from them.
        self.live = ((self.thread < self.used_threads) & (self.plane < self.all_planes)
                     & (self.out_row < problem.out_height))

    def input_plane(self, plane: Ints) -> Ints:
        """First element of x under an output plane: plane o / multiplier of all images' planes."""
        in_plane: Ints = plane // self.problem.spec.group_out
        return in_plane * (self.problem.height * self.problem.width)

    def stage(self) -> None:
        """Load what is held for the whole walk: for every lane its taps."""
        for tap in range(self.problem.spec.products):
            self.load_tap(self.taps[tap], tap)

    def filters_of(self, plane: Ints) -> Ints:
        """First element of w for an output plane."""
        return plane % self.problem.spec.out_channels * self.problem.spec.products

    def load_tap(self, out: Floats, tap: int) -> None:
        """Fill a register with a tap of each live lane's filter; zero for the others."""
        at = Addresses(self.filters_of(self.plane) + tap, self.live)
        self.blocks.load(out, self.w, at, "filters", operand=True)

    @abstractmethod
    def load(self, out: Floats, index: Ints, lanes: Bools) -> None:
        """Fill a register with the elements *index* of x; zero where not in *lanes*."""

    def store(self, values: Floats, index: Ints, lanes: Bools) -> None:
        """Store results: the elements *index* of the output."""
        self.blocks.store(self.out, Addresses(index, lanes), values)

    def column(self, offset: int, i: int, lanes: Bools) -> Floats:
        """Fill the register of *offset* with that column of local row *i*, in *lanes*."""
        out: Floats = self.row[self.register_of[offset]]
        index = self.base + (self.in_row + i) * self.problem.width + offset
        self.load(out, index, lanes & inside(self.in_column + offset, self.column_end))
        return out

    def walk(self) -> None:
        """Every input row once, into all the output rows above it that it belongs to."""
        (kernel_h, _), (stride_h, _), t = self.problem.spec.kernel, self.problem.spec.stride, self.t
        dilation_h, span_h = self.problem.spec.dilation[0], self.problem.spec.span[0]
        self.sums.fill(0)
        for i in range(self.shape.rows):
            uses = [(f, (i - f * dilation_h) // stride_h) for f in range(kernel_h)
                    if (i - f * dilation_h) % stride_h == 0
                    and 0 <= i - f * dilation_h <= (t.thread_h - 1) * stride_h]
            lanes = self.live & inside(self.in_row + i, self.row_end)
            if uses and lanes.any():
                self.fetch_row(i, lanes)
                divided = bool((self.live & ~lanes).any())
                for f, r in uses:
                    self.accumulate(f, r, lanes, divided)
            if i >= span_h - 1 and (i - span_h + 1) % stride_h == 0:
                self.finish((i - span_h + 1) // stride_h)

    def fetch_row(self, i: int, lanes: Bools) -> None:
        """Load the columns of local row *i*; with column reuse the overlap comes by shuffles."""
        for offset in self.fetched:
            self.column(offset, i, lanes)
        if not self.t.column_reuse:
            return
        for offset in (offset for offset in self.offsets if offset >= self.own):
            neighbour, residue = divmod(offset, self.own)
            past = self.lane + neighbour >= self.t.lanes_w
            loaded = self.column(offset, i, lanes & past)
            if neighbour < self.t.lanes_w:
                passed = self.blocks.shfl_down(self.row[self.register_of[residue]], neighbour,
                                               self.t.lanes_w, lanes)
                np.copyto(loaded, passed, where=~past)

    def accumulate(self, f: int, r: int, lanes: Bools, divided: bool) -> None:
        """Filter row *f* times the row at hand, added to local output row *r*.

        *divided*: some live lane has no such row, and its sum must stay as it is.
        """
        spec, first_tap = self.problem.spec, f * self.problem.spec.kernel[1]
        for c in range(self.t.thread_w):
            sums = self.sums[r % self.live_rows * self.t.thread_w + c]
            for g in range(spec.kernel[1]):
                value = self.row[self.register_of[c * spec.stride[1] + g * spec.dilation[1]]]
                self.blocks.fma(sums, value, self.taps[first_tap + g], self.product, lanes, divided)

    def finish(self, r: int) -> None:
        """Store local output row *r*, which is complete, and clear its registers for another."""
        problem, spec = self.problem, self.problem.spec
        row = self.out_row + r
        for c in range(self.t.thread_w):
            sums, column = self.sums[r % self.live_rows * self.t.thread_w + c], self.out_column + c
            mask = self.live & (row < problem.out_height) & (column < problem.out_width)
            index = (self.plane * problem.out_height + row) * problem.out_width + column
            made = self.epilogue(self.blocks, sums, self.plane % spec.out_channels,
                                 Addresses(index, mask))
            self.store(made, index, mask)
            sums.fill(0)


class _ThroughRegisters(_RowReuse):
    """Rows and taps straight from global memory to registers."""

    def fetch_row(self, i: int, lanes: Bools) -> None:
        self.loaded = np.zeros_like(lanes)
        super().fetch_row(i, lanes)
        if self.blocks.trace is not None:
            strips = self.loaded.reshape(self.blocks.count, -1)[:, :self.used_threads]
            rows = strips.reshape(-1, self.t.lanes_w).any(axis=-1)
            self.blocks.trace.rows_loaded += int(np.count_nonzero(rows))

    def load(self, out: Floats, index: Ints, lanes: Bools) -> None:
        self.blocks.load(out, self.x, Addresses(index, lanes), "inputs", operand=True)
        self.loaded |= lanes


class _ThroughLds(_RowReuse):
    """The block's rows come through LDS as vectors.

    With "both" its results leave through it, too. From the first row of its first plane to the last
    of its last one they lie in one piece, as a block takes whole rows, and whole planes if several.
    """

    def allocate(self, blocks: Blocks) -> None:
        super().allocate(blocks)
        self.rows = Piece(blocks, "the block's rows", int(self.shape.span_in))
        self.results = Piece(blocks, "its results", int(self.shape.span_out))
        blocks.lds_tile("the count of bytes that have come", ARRIVALS_BYTES // 4)

    def place(self, block: Ints) -> None:
        super().place(block)
        problem, t, first_plane = self.problem, self.t, self.plane_tile * self.t.planes
        last_plane = np.minimum(first_plane + t.planes, self.all_planes) - 1
        top = self.row_tile * t.lanes_h * t.thread_h
        row = top * problem.spec.stride[0] - problem.padding[0]
        row_end = np.minimum(row + int(self.shape.tile_h), self.row_end)
        self.rows.place(self.input_plane(first_plane) + np.maximum(row, 0) * problem.width,
                        self.input_plane(last_plane) + row_end * problem.width)
        row_end = np.minimum(top + t.lanes_h * t.thread_h, problem.out_height)
        self.results.place((first_plane * problem.out_height + top) * problem.out_width,
                           (last_plane * problem.out_height + row_end) * problem.out_width)

    def stage(self) -> None:
        """Copies of all rows begin; a barrier follows when they have come."""
        self.rows.copy(self.x, "inputs")
        super().stage()
        if self.blocks.trace is not None:
            self.blocks.trace.rows_loaded += self.rows.elements // self.problem.width

    def load(self, out: Floats, index: Ints, lanes: Bools) -> None:
        self.rows.read(out, index, lanes, operand=True)

    def store(self, values: Floats, index: Ints, lanes: Bools) -> None:
        store = self.results.write if self.t.staging == "both" else super().store
        store(values, index, lanes)

    def walk(self) -> None:
        super().walk()
        if self.t.staging == "both":
            self.results.store(self.out)


def _require_lanes(plan: Plan, t: RowReuseTiling, wavefront: int) -> None:
    """LaunchError where lanes cannot pass columns on, or a block's rows lie in several pieces."""
    problem, staged = plan.problem, t.staging != "registers"
    for wrong, what in (
            (t.column_reuse and staged, "column_reuse is for rows that come straight to registers"),
            (t.column_reuse and (t.lanes_w & (t.lanes_w - 1) or t.lanes_w > wavefront),
             f"column_reuse needs lanes_w to be a power of two of at most the wavefront "
             f"{wavefront}; it is {t.lanes_w}"),
            (staged and t.lanes_w * t.thread_w < problem.out_width, "through LDS a block takes "
             f"whole rows; it has {t.lanes_w * t.thread_w} of {problem.out_width} columns"),
            (staged and t.planes > 1 and t.lanes_h * t.thread_h < problem.out_height,
             "through LDS a block takes several planes whole; it has "
             f"{t.lanes_h * t.thread_h} of {problem.out_height} rows")):
        if wrong:
            raise LaunchError(f"{plan.name}: {what}")
