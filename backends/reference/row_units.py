"""Fragments of row reuse in lockstep: patches of results by Toeplitz matrices on matrix units."""

from __future__ import annotations

import numpy as np

from dscore.algorithms.columns import ceil_div
from dscore.algorithms.row_reuse.patches import FRAGMENT_WORDS, patches_of
from dscore.algorithms.row_reuse.tiling import UNIT_LANES
from dscore.algorithms.row_reuse.view import Axis
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
from dscore.backends.reference.row_block import RowsInLds
from dscore.core.plan import Plan

# Summed elements of a fragment: columns of a row, two rows; halves of its sixteen rows.
_COLUMNS, _ROWS, _HALVES = 8, 2, 2


class UnitsKernel(RowsInLds):
    """The walk by products of fragments: lane 4 g + i of a wavefront reads columns 2 i and 2 i + 1
    under places g and g + 8, has what connects these columns with result g of a patch, and sums
    results 2 i and 2 i + 1 of both places.

    Products by zeros of a Toeplitz matrix are left out here. The kernel's make a NaN of what is not
    finite; it makes such a sum anew, of its own products, which are these.
    """

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands)
        t, self.patches = self.t, patches_of(self.problem, self.t)
        self.patch_h, self.lead = int(self.patches.height), int(self.patches.lead)
        self.pairs, self.step = int(self.patches.pairs), int(self.patches.step)
        self.lane, wave = split(self.thread, self.wavefront)
        of_plane, self.wave_plane = split(wave, ceil_div(t.lanes_h * t.lanes_w, UNIT_LANES))
        places = [of_plane * UNIT_LANES + half * UNIT_LANES // _HALVES + self.lane // 4
                  for half in range(_HALVES)]
        self.has_place = [place < t.lanes_h * t.lanes_w for place in places]
        self.strips = [place // t.lanes_w * t.thread_h for place in places]
        self.lefts = [place % t.lanes_w * t.thread_w for place in places]

    def allocate(self, blocks: Blocks) -> None:
        """Registers of the matrices of taps, of sums and of a fragment; LDS as of lanes."""
        self.blocks, t = blocks, self.t
        self.taps = blocks.registers("the matrices of taps",
                                     t.repeat * self.pairs * FRAGMENT_WORDS, packed=self.element)
        self.sums = blocks.registers("patches", FRAGMENT_WORDS * int(self.patches.live))
        self.row = blocks.registers("a fragment", 2 * FRAGMENT_WORDS, packed=self.element)
        self.product = np.empty_like(self.row[0])
        self.spans()

    def place(self, block: Ints) -> None:
        super().place(block)
        self.wave_first = self.first_plane + self.wave_plane
        self.top = self.row_tile * self.t.lanes_h * self.t.thread_h

    def turn(self, number: int) -> None:
        """The wavefront's plane of that number."""
        self.plane = self.wave_first + number * (self.t.planes // self.t.repeat)
        self.live = self.plane < self.view.planes

    def stage(self) -> None:
        """Copies of all rows begin, and the filters of all turns come."""
        self.copy_rows()
        for number in range(self.t.repeat):
            self.turn(number)
            for q, k in np.ndindex(self.pairs, _ROWS * _COLUMNS // FRAGMENT_WORDS):
                row, column = divmod(k, 2)
                tap, there = self.tap_of(self.lane // 4, 2 * q + row, self.lane % 4 * 2 + column)
                self.blocks.load(self.matrix(number, q, row, column), self.w, Addresses(
                    self.filters_of(self.plane) + tap, self.live & there), "filters", operand=True)

    def matrix(self, number: int, q: int, row: int, column: int) -> Floats:
        """A turn's register of what connects a column of either row of pair *q* with a result."""
        held: Floats = self.taps[((number * self.pairs + q) * _ROWS + row) * 2 + column]
        return held

    def tap_of(self, result: Ints, i: int, column: Ints) -> tuple[Ints, Bools]:
        """The tap that connects row *i* and a column under a patch with a *result* of it, and
        whether there is one."""
        f, on_row = _tap(self.rows, i + 0 * result, result // self.t.thread_w)
        g, on_column = _tap(self.columns, column - self.lead, result % self.t.thread_w)
        return f * self.columns.kernel + g, on_row & on_column

    def walk(self) -> None:
        """Every pair of rows once, into all the patches that it lies under."""
        patches = self.t.thread_h // self.patch_h
        self.sums.fill(0)
        for number in range(self.t.repeat):
            self.turn(number)
            for q in range((patches - 1) * self.step + self.pairs):
                inside_rows = [self.read(q, half, row) for half, row in np.ndindex(_HALVES, _ROWS)]
                for patch in range(patches):
                    under = q - patch * self.step
                    if not 0 <= under < self.pairs:
                        continue
                    for half, n in np.ndindex(_HALVES, 2):
                        self.multiply(number, patch, under, half, n, inside_rows)
                    if under == self.pairs - 1:
                        self.finish_patch(patch)
        self.store_from_lds()

    def read(self, q: int, half: int, row: int) -> Bools:
        """Two columns of a row of pair *q* under a place; whether the row lies in the image."""
        i = 2 * q + row
        in_row = self.rows.step(self.top + self.strips[half]) + self.rows.first + i
        in_column = (self.columns.step(self.lefts[half]) + self.columns.first - self.lead
                     + self.lane % 4 * 2)
        there: Bools = (self.live & self.has_place[half] & inside(in_row, self.rows.end)
                        & (i < int(self.shape.rows)))
        for n in range(2):
            index = (self.input_plane(self.plane) + in_row * self.columns.walked_size
                     + in_column + n)
            self.load(self.fragment(half, row, n), index,
                      there & inside(in_column + n, self.columns.end))
        return there

    def fragment(self, half: int, row: int, column: int) -> Floats:
        """The register of a column of a row under a place."""
        held: Floats = self.row[(half * _ROWS + row) * 2 + column]
        return held

    def multiply(self, number: int, patch: int, under: int, half: int, n: int,
                 inside_rows: list[Bools]) -> None:
        """The sixteen products of a lane's *n*-th result of a patch."""
        result = self.lane % 4 * 2 + n
        for row, column in np.ndindex(_ROWS, _COLUMNS):
            _, there = self.tap_of(result, 2 * under + row, column + 0 * result)
            lanes = there & inside_rows[half * _ROWS + row]
            if not lanes.any():
                continue
            # Where the operands lie: the place's lane with this column, and the result's.
            pixel = self.lane // 4 * 4 + column // 2
            tap = result * 4 + column // 2
            self.blocks.fma(self.sum_of(patch, half, n),
                            _of_lanes(self.fragment(half, row, column % 2), pixel),
                            _of_lanes(self.matrix(number, under, row, column % 2), tap),
                            self.product, lanes, True)

    def sum_of(self, patch: int, half: int, n: int) -> Floats:
        """The register of a lane's *n*-th result of a patch of one of its places."""
        held: Floats = self.sums[patch % int(self.patches.live) * FRAGMENT_WORDS + half * 2 + n]
        return held

    def finish_patch(self, patch: int) -> None:
        """Store a patch, which is complete, and clear its registers for another."""
        height, width = self.rows.written_size, self.columns.written_size
        for half, n in np.ndindex(_HALVES, 2):
            result, sums = self.lane % 4 * 2 + n, self.sum_of(patch, half, n)
            row = self.top + self.strips[half] + patch * self.patch_h + result // self.t.thread_w
            column = self.lefts[half] + result % self.t.thread_w
            mask = self.live & self.has_place[half] & (row < height) & (column < width)
            index = (self.plane * height + row) * width + column
            channel = self.plane % self.problem.spec.out_channels
            made = self.epilogue(self.blocks, sums, channel, Addresses(index, mask))
            self.store(made, index, mask)
            sums.fill(0)


def _of_lanes(register: Floats, lanes: Ints) -> Floats:
    """What a register holds in other *lanes* of the wavefront."""
    return np.take_along_axis(register, np.broadcast_to(lanes, register.shape), axis=-1)


def _tap(axis: Axis, position: Ints, written: Ints) -> tuple[Ints, Bools]:
    """The tap that connects both, counted from a tile's first, and whether there is one."""
    apart = (written + axis.lead - position * axis.stride if axis.gradient
             else position - written * axis.stride)
    there = inside(apart, axis.span) & (apart % axis.dilation == 0)
    return np.where(there, apart // axis.dilation, 0), there
