"""Lanes of row reuse in lockstep: rows from memory or from LDS, and the walk over them."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from dscore.algorithms.row_reuse.tiling import column_offsets, owned_columns
from dscore.backends.reference.machine import (
    Addresses,
    Blocks,
    Bools,
    Floats,
    Ints,
    Operands,
    inside,
    split,
)
from dscore.backends.reference.row_block import RowBlock, RowsInLds
from dscore.core.numerics import ACCUMULATOR
from dscore.core.plan import Plan


class RowLanes(RowBlock, ABC):
    """The walk over the rows; subclasses say where a column comes from and a result goes."""

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands)
        problem, t = self.problem, self.t
        self.live_rows = int(self.shape.live_rows)
        self.used_threads = t.planes * t.lanes_h * t.lanes_w
        self.offsets = column_offsets(problem, t.thread_w)
        self.own = int(self.columns.step(t.thread_w))
        # What every lane loads by itself: with column reuse only the columns that it owns.
        self.fetched = owned_columns(problem, t.thread_w) if t.column_reuse else self.offsets
        held = sorted(set(self.offsets) | set(self.fetched))
        self.register_of = {offset: number for number, offset in enumerate(held)}
        self.lane, self.strip, self.plane_in_block = split(self.thread, t.lanes_w, t.lanes_h)

    def allocate(self, blocks: Blocks) -> None:
        """Registers: the taps, the live rows and one row that is walked over."""
        self.blocks = blocks
        self.taps = blocks.registers("the filter", self.problem.spec.products,
                                     packed=self.element if self.element.exact else ACCUMULATOR)
        self.sums = blocks.registers("the live rows", self.live_rows * self.t.thread_w)
        self.row = blocks.registers("a row", len(self.register_of),
                                    packed=self.element if self.element.exact else ACCUMULATOR)
        self.product = np.empty_like(self.row[0])

    def place(self, block: Ints) -> None:
        """Planes and first rows and columns of the lanes of the blocks numbered *block*."""
        super().place(block)
        t = self.t
        self.plane = self.first_plane + self.plane_in_block
        self.out_row = (self.row_tile * t.lanes_h + self.strip) * t.thread_h
        self.out_column = (self.column_tile * t.lanes_w + self.lane) * t.thread_w
        self.in_row = self.rows.step(self.out_row) + self.rows.first
        self.in_column = self.columns.step(self.out_column) + self.columns.first
        self.base = self.input_plane(self.plane) + self.in_column
        # Lanes past the last column stay: their neighbours at the left take columns from them.
        self.live = ((self.thread < self.used_threads) & (self.plane < self.view.planes)
                     & (self.out_row < self.rows.written_size))

    def stage(self) -> None:
        """Load what is held for the whole walk: for every lane its taps."""
        for tap in range(self.problem.spec.products):
            self.load_tap(self.taps[tap], tap)

    def load_tap(self, out: Floats, tap: int) -> None:
        """Fill a register with a tap of each live lane's filter; zero for the others."""
        at = Addresses(self.filters_of(self.plane) + tap, self.live)
        self.blocks.load(out, self.w, at, "filters", operand=True)

    @abstractmethod
    def load(self, out: Floats, index: Ints, lanes: Bools) -> None:
        """Fill a register with the elements *index* of the image; zero where not in *lanes*."""

    def column(self, offset: int, i: int, lanes: Bools) -> Floats:
        """Fill the register of *offset* with that column of local row *i*, in *lanes*."""
        out: Floats = self.row[self.register_of[offset]]
        index = self.base + (self.in_row + i) * self.columns.walked_size + offset
        there = lanes & inside(self.in_column + offset, self.columns.end)
        self.load(out, index, there)
        self.distances(out, there)
        return out

    def walk(self) -> None:
        """Every row once, into all the written rows that its taps connect it with."""
        axis, thread_h = self.rows, self.t.thread_h
        self.sums.fill(0)
        for i in range(self.shape.rows):
            uses = [(f, r) for f in range(axis.kernel) for r in range(thread_h)
                    if axis.position(r, f) == i]
            lanes = self.live & inside(self.in_row + i, axis.end)
            if uses and lanes.any():
                self.fetch_row(i, lanes)
                divided = bool((self.live & ~lanes).any())
                for f, r in uses:
                    self.accumulate(f, r, lanes, divided)
            for r in range(axis.complete(i), min(axis.complete(i + 1), thread_h)):
                self.finish(r)

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
        """Filter row *f* times the row at hand, added to local written row *r*.

        *divided*: some live lane has no such row, and its sum must stay as it is.
        """
        axis, first_tap = self.columns, f * self.columns.kernel
        for c in range(self.t.thread_w):
            sums = self.sums[r % self.live_rows * self.t.thread_w + c]
            for g in range(axis.kernel):
                offset = axis.position(c, g)
                if offset is not None:
                    self.blocks.fma(sums, self.row[self.register_of[offset]],
                                    self.taps[first_tap + g], self.product, lanes, divided)

    def finish(self, r: int) -> None:
        """Store local written row *r*, which is complete, and clear its registers for another."""
        height, width = self.rows.written_size, self.columns.written_size
        row, channels = self.out_row + r, self.problem.spec.out_channels
        for c in range(self.t.thread_w):
            sums, column = self.sums[r % self.live_rows * self.t.thread_w + c], self.out_column + c
            mask = self.live & (row < height) & (column < width)
            index = (self.plane * height + row) * width + column
            made = self.epilogue(self.blocks, sums, self.plane % channels, Addresses(index, mask))
            self.store(made, index, mask)
            sums.fill(0)


class ThroughRegisters(RowLanes):
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


class ThroughLds(RowsInLds, RowLanes):
    """Rows through LDS, and taps straight from global memory to registers."""

    def allocate(self, blocks: Blocks) -> None:
        super().allocate(blocks)
        self.spans()

    def stage(self) -> None:
        """Copies of all rows begin; a barrier follows when they have come."""
        self.copy_rows()
        super().stage()

    def walk(self) -> None:
        super().walk()
        self.store_from_lds()
