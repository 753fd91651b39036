"""Products of matrices in any order of axes (hip_src/gemm_universal): pointwise layers and their
gradients.

Order of additions, for one result: slice ``s`` of the wavefronts sums the elements
``[s · slice, (s + 1) · slice)`` of every step of its block, ascending, beginning with +0; the
slices are added, ascending; then the blocks of a cluster, each of which has had some of the steps;
then the parts (backends/reference/split_k.py); then bias, then activation. Row tile ``r`` begins
with the ``r``-th of its block's steps, and goes on with the first after the last. Products are
rounded before they are added. Elements past the last are +0 · +0. Of int8, sums are of int32, of
which those of the filters times x's zero point are taken off, but of pixels of padding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.gemm_universal.tiling import (
    channels_last,
    direct,
    gathered,
    pitches_of,
    shape_of,
    sizes_of,
)
from dscore.backends.reference.gemm_universal_pixels import in_images, result_of, source_of
from dscore.backends.reference.gemm_universal_units import group_of, lanes_of
from dscore.backends.reference.lockstep import LockstepKernel, batches, require_launch
from dscore.backends.reference.machine import (
    Addresses,
    Blocks,
    Floats,
    Ints,
    Operands,
    lane_ids,
    split,
)
from dscore.backends.reference.split_k import sum_of_parts
from dscore.core.numerics import ACCUMULATOR
from dscore.core.plan import Plan
from dscore.core.trace import Trace


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
        self.last, operation = channels_last(self.problem), self.problem.operation
        # The operands that are multiplied.
        factors = {"conv": ("x", "w"), "input_gradient": ("gradient", "w"),
                   "weight_gradient": ("gradient", "x")}[operation]
        if not self.last and operation != "weight_gradient":
            factors = factors[::-1]
        self.a, self.b = (operands[name] for name in factors)
        self.a_name, self.b_name = factors
        self.element = self.problem.spec.element
        self.threads = int(self.shape.waves) * self.wavefront
        self.tiles = int(self.shape.blocks_m * self.shape.tiles_n)
        self.lanes = lanes_of(plan)
        self.direct = bool(direct(self.t))
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
        self.filters = self.element.exact and int(t.tile_n if self.last else t.tile_m)

    def allocate(self, blocks: Blocks) -> None:
        """Registers, and LDS, which holds the ring and then the sums."""
        self.blocks, elements = blocks, self.a_words.size + self.b_words.size
        self.lanes.allocate(blocks)
        if self.t.stages == 2 and self.t.repeat == 1:
            # Thread e % threads takes element e of the two tiles, one laid after the other.
            way = blocks.registers("tiles on their way", int(self.shape.fetched),
                                   (blocks.count, self.threads), self.element).reshape(
                                       blocks.count, -1)
        else:
            way = np.empty((blocks.count, elements), dtype=self.element.sums.numpy)
        self.a_temp, self.b_temp = way[:, :self.a_words.size], way[:, self.a_words.size:elements]
        self._allocate_lds(blocks)

    def _allocate_lds(self, blocks: Blocks) -> None:
        """The ring; the sums in its place, or behind it where further tiles are under way."""
        shape, stages = self.shape, self.t.stages
        self.sums_at = 0
        if self.t.repeat > 1:
            blocks.lds_tile("the ring of buffers", int(shape.b_elements)
                            + stages * int(shape.a_elements), self.element)
            if not self.direct:
                self.sums_at = blocks.lds_tile("the sums", int(shape.joined))
            self._allocate_filters(blocks)
            return
        sums = -(-ACCUMULATOR.bytes * int(shape.joined) // self.element.bytes)
        blocks.lds_tile("the ring of buffers", max(stages * int(shape.buffer), sums), self.element)
        self._allocate_filters(blocks)

    def _allocate_filters(self, blocks: Blocks) -> None:
        if self.filters:
            blocks.lds_tile("the filters' sums", int(self.shape.filter_sums))

    def run_part(self, tile: Ints, part: int) -> None:
        """The blocks of the tiles numbered *tile* that have a part of the steps."""
        column_tile, row_tile = split(tile, int(self.shape.tiles_n))
        self.first_n = column_tile * self.t.tile_n
        for at in range(self.t.repeat):
            self.row_tile = row_tile * self.t.repeat + at
            self.first_m = self.row_tile * self.t.tile_m
            self._run_tile(part, at)

    def _run_tile(self, part: int, at: int) -> None:
        total: Any = None
        for rank in range(self.t.cluster):
            if at == 0:
                self.blocks.begin()
            self._accumulate((part * self.t.cluster + rank) * int(self.shape.steps), at)
            if self.direct:
                self._store_direct(part)
                return
            own = self._slices()
            total = own if total is None else np.add(total, own, out=total)
        row, column = np.divmod(lane_ids(self.t.tile_m * self.t.tile_n), self.t.tile_n)
        self._store(part, total.reshape(total.shape[0], -1), self.first_m + row,
                    self.first_n + column)

    def _accumulate(self, first: int, tile: int) -> None:
        """The steps of a block; a barrier parts each from the next. With several tiles of rows the
        step of each is the ring's, and the columns' elements stay."""
        self.lanes.sums.fill(0)
        if tile == 0 and self.filters:
            self.filter_sums = np.zeros((self.blocks.count, self.filters), np.int32)
        shape, stages = self.shape, self.t.stages
        steps = max(min(int(shape.steps), int(shape.all_steps) - first), 0)
        for at in range(steps):
            step = first + (at + self.row_tile) % steps
            if self.t.repeat == 1:
                a = at % stages * int(shape.buffer)
                b = a + int(shape.a_elements)
            else:
                a, b = int(shape.b_elements) + tile % stages * int(shape.a_elements), 0
            self._copy_a(a, step)
            if tile == 0:
                self._copy_b(b, step)
            self.lanes.multiply(a, b)
        if self.filters:
            self._take_off_zero()

    def _take_off_zero(self) -> None:
        """Take the filters' sums times x's zero point off the first slice's sums."""
        shape = self.lanes.sums.shape[1:]
        row, column, first = (np.broadcast_to(of, shape).ravel() for of in (
            self.lanes.row, self.lanes.column, self.lanes.slice == 0))
        off = self.operands["points"][0] * self.filter_sums[:, column if self.last else row]
        held = first[None]
        if gathered(self.problem):
            pixel = self.first_m + row if self.last else self.first_n + column
            held = held & source_of(self.problem, pixel)[1]
        self.lanes.sums -= np.where(held, off, 0).reshape(self.lanes.sums.shape)

    def _sum_filters(self, tile: Floats, row: Ints) -> None:
        """Add a step's elements of the filters to their sums, which are in the order of memory."""
        places = np.broadcast_to(row, tile.shape[1:]).reshape(self.filters, -1)[:, 0]
        self.filter_sums[:, places] += tile.reshape(
            -1, self.filters, self.t.step).sum(-1, dtype=np.int32)

    def _copy_a(self, first: int, step: Ints) -> None:
        """A step's tile of rows to LDS, from element *first* on; each block has a step of its own.
        """
        sizes, begin = self.sizes, step * self.t.step
        row = self.a_row + (self.first_m if sizes.along_a else begin)
        column = self.a_column + (begin if sizes.along_a else self.first_m)
        self._bring(self.a_temp, self.a, self.a_name, row, column, sizes.along_a, sizes.m)
        if self.filters and not self.last:
            self._sum_filters(self.a_temp, self.a_row)
        self.blocks.lds_write(first, self.a_temp, self.a_words, self.element)

    def _copy_b(self, first: int, step: Ints) -> None:
        """The same of columns."""
        sizes, begin = self.sizes, step * self.t.step
        row = self.b_row + (self.first_n if sizes.along_b else begin)
        column = self.b_column + (begin if sizes.along_b else self.first_n)
        self._bring(self.b_temp, self.b, self.b_name, row, column, sizes.along_b, sizes.n)
        if self.filters and self.last:
            self._sum_filters(self.b_temp, self.b_row)
        self.blocks.lds_write(first, self.b_temp, self.b_words, self.element)

    def _bring(self, temp: Floats, memory: Any, name: str, row: Ints, column: Ints, along: bool,
               extent: int) -> None:
        """Elements of an operand's rows and columns, zeros where there are none."""
        rows, columns = (extent, self.sizes.k) if along else (self.sizes.k, extent)
        held = (row < rows) & (column < columns)
        if name == "w":
            at, image, channel = row * self.problem.spec.in_channels + column, row, row
        else:
            pixel, channel = (row, column) if self.last else (column, row)
            at, image, there = in_images(self.problem, self.layout, name == "x", pixel, channel)
            held = held & there
        at, held = (np.broadcast_to(one, temp.shape) for one in (at, held))
        self.blocks.load(temp, memory, Addresses(at, held), "filters" if name == "w" else "inputs")
        if name == "x" and self.problem.spec.scaled:
            scale = np.broadcast_to(image * self.problem.spec.in_channels + channel, temp.shape)
            self.scaled(self.blocks, temp, Addresses(scale, held))

    def _slices(self) -> Floats:
        """The sums of all slices of a block, through LDS, added in their order."""
        t, count, sum_row = self.t, self.blocks.count, int(self.shape.sum_row)
        shape = self.lanes.sums.shape[1:]
        words = self.lanes.slice * t.tile_m * sum_row + self.lanes.row * sum_row + self.lanes.column
        of_sums = self.element.sums
        self.blocks.lds_write(self.sums_at, self.lanes.sums.reshape(count, -1),
                              np.broadcast_to(words, shape).ravel(), of_sums)
        slices, row, column = np.ogrid[:t.slices, :t.tile_m, :t.tile_n]
        sums = np.empty((count, t.slices, t.tile_m, t.tile_n), of_sums.numpy)
        self.blocks.lds_read(sums, Addresses((slices * t.tile_m + row) * sum_row + column),
                             self.sums_at, operand=False, element=of_sums)
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
        sizes, problem = self.sizes, self.problem
        held, index = (row < sizes.m) & (column < sizes.n), row * sizes.n + column
        if self.t.parts > 1:
            self.blocks.store(self.workspace[part],
                              Addresses(*np.broadcast_arrays(index, held)), sums)
            return
        pixel, channel = (row, column) if self.last else (column, row)
        if not self.last and problem.operation != "weight_gradient":
            area = (problem.out_height * problem.out_width if problem.operation == "conv"
                    else problem.height * problem.width)
            index = (pixel // area * sizes.m + channel) * area + pixel % area
        at = Addresses(*np.broadcast_arrays(index, held))
        if problem.operation == "conv":
            sums = self.epilogue(self.blocks, sums.copy(), np.broadcast_to(channel, sums.shape), at)
        elif gathered(problem) and problem.operation == "input_gradient":
            # Of a pixel that no output was made of, zero by an infinite filter is no number.
            sums = np.where(result_of(self.problem, pixel)[1], sums, np.float32(0))
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
