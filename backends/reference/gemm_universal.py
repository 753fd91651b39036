"""Products of matrices in any order of axes (hip_src/gemm_universal): pointwise layers whose channels
come last, and their gradients.

Order of additions, for one result: slice ``s`` of the wavefronts sums the elements
``[s · slice, (s + 1) · slice)`` of every step of its block, ascending, beginning with +0; the slices
are added, ascending; then the blocks of a cluster, each of which has had some of the steps; then
the parts (backends/reference/split_k.py); then bias, then activation. Products are rounded before
they are added. Elements past the last are +0 · +0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.gemm_universal.tiling import (
    gathered,
    pitches_of,
    shape_of,
    sizes_of,
)
from dscore.backends.reference.gemm_universal_lanes import group_of, lanes_of
from dscore.backends.reference.lockstep import LockstepKernel, batches, require_launch
from dscore.backends.reference.machine import (
    Addresses,
    Blocks,
    Bools,
    Floats,
    Ints,
    Operands,
    inside,
    lane_ids,
    split,
)
from dscore.backends.reference.split_k import sum_of_parts
from dscore.core.numerics import ACCUMULATOR
from dscore.core.plan import Plan
from dscore.core.trace import Trace

# The operands that are multiplied, of each operation.
_FACTORS = {"conv": ("x", "w"), "input_gradient": ("gradient", "w"),
            "weight_gradient": ("gradient", "x")}


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the result of *plan* to the operand out."""
    kernel = _Product(plan, operands)
    for blocks, first in batches(plan, kernel.tiles, trace, kernel.allocate):
        tile = first + lane_ids(blocks.count, 1)
        for part in range(kernel.t.parts):
            kernel.run_part(tile, part)
    kernel.add_parts()


run_input_gradient = run_weight_gradient = run


class _Product(LockstepKernel):
    """The geometry of a block, its two tiles, and the blocks that run at present.

    Grid order: block of the cluster fastest, then column tile, row tile, part. Blocks that have the
    same share of the steps run together.
    """

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands)
        self.sizes, self.shape = sizes_of(self.problem), shape_of(self.problem, self.t,
                                                                  self.wavefront)
        self.a, self.b = (operands[name] for name in _FACTORS[self.problem.operation])
        self.element = self.problem.spec.element
        self.threads = int(self.shape.waves) * self.wavefront
        self.tiles = int(self.shape.tiles_m * self.shape.tiles_n)
        self.lanes = lanes_of(plan)
        self.direct = self.t.slices == self.t.cluster == 1
        require_launch(plan, self.tiles * self.t.cluster * self.t.parts, self.threads)
        if self.t.parts > 1:
            self.workspace = np.full((self.t.parts, self.sizes.m * self.sizes.n), np.nan,
                                     np.float32)
        self._map_tiles()

    def _map_tiles(self) -> None:
        """Row and column of the elements of both tiles, and the words of a buffer they go to."""
        t, sizes, (pitch_a, pitch_b) = self.t, self.sizes, pitches_of(self.problem, self.t)
        self.a_row, self.a_column, self.a_words = _tile(
            t.tile_m, t.step, sizes.along_a, pitch_a)
        self.b_row, self.b_column, self.b_words = _tile(
            t.tile_n, t.step, sizes.along_b, pitch_b, group_of(self.plan))
        self.b_words = int(self.shape.a_elements) + self.b_words

    def allocate(self, blocks: Blocks) -> None:
        """Registers, and LDS, which holds the ring and then the sums."""
        self.blocks, elements = blocks, self.a_words.size + self.b_words.size
        self.lanes.allocate(blocks)
        if self.t.stages == 2:
            # Thread e % threads takes element e of the two tiles, one laid after the other.
            way = blocks.registers("tiles on their way", int(self.shape.fetched),
                                   (blocks.count, self.threads), self.element).reshape(
                                       blocks.count, -1)
        else:
            way = np.empty((blocks.count, elements), dtype=np.float32)
        self.a_temp, self.b_temp = way[:, :self.a_words.size], way[:, self.a_words.size:elements]
        blocks.lds_tile("the ring of buffers", self.t.stages * int(self.shape.buffer),
                        self.element)
        if self.t.stages * int(self.shape.buffer) * self.element.bytes < (
                ACCUMULATOR.bytes * int(self.shape.joined)):
            blocks.lds_tile("the sums", -(-ACCUMULATOR.bytes * int(self.shape.joined)
                                          // self.element.bytes)
                            - self.t.stages * int(self.shape.buffer), self.element)

    def run_part(self, tile: Ints, part: int) -> None:
        """The blocks of the tiles numbered *tile* that have a part of the steps."""
        column_tile, row_tile = split(tile, int(self.shape.tiles_n))
        self.first_m, self.first_n = row_tile * self.t.tile_m, column_tile * self.t.tile_n
        total: Any = None
        for rank in range(self.t.cluster):
            self.blocks.begin()
            self._accumulate((part * self.t.cluster + rank) * int(self.shape.steps))
            if self.direct:
                self._store_direct(part)
                return
            own = self._slices()
            total = own if total is None else np.add(total, own, out=total)
        row, column = np.divmod(lane_ids(self.t.tile_m * self.t.tile_n), self.t.tile_n)
        self._store(part, total.reshape(tile.shape[0], -1), self.first_m + row,
                    self.first_n + column)

    def _accumulate(self, first: int) -> None:
        """The steps of a block; a barrier parts each from the next."""
        self.lanes.sums.fill(0)
        end = min(first + int(self.shape.steps), int(self.shape.all_steps))
        for at, step in enumerate(range(first, end)):
            buffer = at % self.t.stages * int(self.shape.buffer)
            self._copy(buffer, step)
            self.lanes.multiply(buffer)

    def _copy(self, buffer: int, step: int) -> None:
        """A step's tiles to the LDS buffer at element *buffer*."""
        sizes, first = self.sizes, step * self.t.step
        row = self.a_row + (self.first_m if sizes.along_a else first)
        column = self.a_column + (first if sizes.along_a else self.first_m)
        at, held = self._row_a(row)
        width = sizes.k if sizes.along_a else sizes.m
        self._bring(self.a_temp, self.a, at * sizes.row_a + column,
                    held & (row < (sizes.m if sizes.along_a else sizes.k)) & (column < width))
        if self.problem.spec.scaled:
            self._scale(row, column, held & (row < sizes.m) & (column < sizes.k))
        self.blocks.lds_write(buffer, self.a_temp, self.a_words, self.element)
        row = self.b_row + (self.first_n if sizes.along_b else first)
        column = self.b_column + (first if sizes.along_b else self.first_n)
        at, held = self._row_b(row)
        width = sizes.k if sizes.along_b else sizes.n
        self._bring(self.b_temp, self.b, at * sizes.row_b + column,
                    held & (row < (sizes.n if sizes.along_b else sizes.k)) & (column < width))
        self.blocks.lds_write(buffer, self.b_temp, self.b_words, self.element)

    def _bring(self, temp: Floats, memory: Any, at: Ints, held: Bools) -> None:
        at, held = (np.broadcast_to(one, temp.shape) for one in (at, held))
        self.blocks.load(temp, memory, Addresses(at, held), "inputs")

    def _scale(self, row: Ints, column: Ints, held: Bools) -> None:
        """The elements of x by the scale of their image and channel, rounded to elements."""
        image = row // (self.problem.out_height * self.problem.out_width)
        at, held = np.broadcast_arrays(image * self.sizes.k + column, held)
        self.scaled(self.blocks, self.a_temp, Addresses(at, held))

    def _row_a(self, row: Ints) -> tuple[Ints, Bools]:
        """The row of memory that a row of the first operand is, and whether there is one."""
        if not gathered(self.problem) or self.problem.operation == "weight_gradient":
            return row, np.True_
        return self._result(row) if self.problem.operation == "input_gradient" else (
            self._source(row))

    def _row_b(self, row: Ints) -> tuple[Ints, Bools]:
        if not gathered(self.problem) or self.problem.operation != "weight_gradient":
            return row, np.True_
        return self._source(row)

    def _source(self, pixel: Ints) -> tuple[Ints, Bools]:
        """The input's pixel that an output's is made of."""
        problem, (stride_h, stride_w) = self.problem, self.problem.spec.stride
        column, row, image = split(pixel, problem.out_width, problem.out_height)
        row = row * stride_h - problem.padding[0]
        column = column * stride_w - problem.padding[2]
        held = inside(row, problem.height) & inside(column, problem.width)
        return (image * problem.height + row) * problem.width + column, held

    def _result(self, pixel: Ints) -> tuple[Ints, Bools]:
        """The output's pixel that is made of an input's."""
        problem, (stride_h, stride_w) = self.problem, self.problem.spec.stride
        column, row, image = split(pixel, problem.width, problem.height)
        (row, row_left), (column, column_left) = (
            np.divmod(row + problem.padding[0], stride_h),
            np.divmod(column + problem.padding[2], stride_w))
        held = ((row_left == 0) & (column_left == 0) & (row < problem.out_height)
                & (column < problem.out_width))
        return (image * problem.out_height + row) * problem.out_width + column, held

    def _slices(self) -> Floats:
        """The sums of all slices of a block, through LDS, added in their order."""
        t, count, sum_row = self.t, self.blocks.count, int(self.shape.sum_row)
        shape = self.lanes.sums.shape[1:]
        words = self.lanes.slice * t.tile_m * sum_row + self.lanes.row * sum_row + self.lanes.column
        self.blocks.lds_write(0, self.lanes.sums.reshape(count, -1),
                              np.broadcast_to(words, shape).ravel())
        slices, row, column = np.ogrid[:t.slices, :t.tile_m, :t.tile_n]
        sums = np.empty((count, t.slices, t.tile_m, t.tile_n), np.float32)
        self.blocks.lds_read(sums, Addresses((slices * t.tile_m + row) * sum_row + column), 0,
                             operand=False)
        total = np.zeros_like(sums[:, 0])
        for at in range(t.slices):
            np.add(total, sums[:, at], out=total)
        return total

    def _store_direct(self, part: int) -> None:
        shape = self.lanes.sums.shape[1:]
        row, column = (np.broadcast_to(of, shape).reshape(1, -1)
                       for of in (self.lanes.row, self.lanes.column))
        self._store(part, self.lanes.sums.reshape(self.blocks.count, -1), self.first_m + row,
                    self.first_n + column)

    def _store(self, part: int, sums: Floats, row: Ints, column: Ints) -> None:
        """The epilogue, and the stores of results (block, number)."""
        sizes = self.sizes
        at = Addresses(*np.broadcast_arrays(row * sizes.n + column,
                                            (row < sizes.m) & (column < sizes.n)))
        if self.t.parts > 1:
            self.blocks.store(self.workspace[part], at, sums)
            return
        if self.problem.operation == "conv":
            sums = self.epilogue(self.blocks, sums.copy(), column, at)
        elif gathered(self.problem) and self.problem.operation == "input_gradient":
            # Of a pixel that no output was made of, zero by an infinite filter is no number.
            sums = np.where(self._result(row)[1], sums, np.float32(0))
        self.blocks.store(self.out, at, sums)

    def add_parts(self) -> None:
        """Add the parts of the workspace."""
        if self.t.parts > 1:
            self.out[...] = sum_of_parts(self.workspace)


def _tile(extent: int, step: int, along: bool, pitch: int, group: int = 1
          ) -> tuple[Ints, Ints, Ints]:
    """Row and column in memory of the elements of a tile, and their places in LDS."""
    place, column = np.divmod(lane_ids(extent * step), step if along else extent)
    fragment, at = place // 8 % group, place % 8
    row = place // (8 * group) * 8 * group + at // 2 * 2 * group + fragment * 2 + at % 2
    return row if group > 1 else place, column, place * int(pitch) + column
