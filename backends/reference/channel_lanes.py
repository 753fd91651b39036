"""Lanes of channel vectors in lockstep: the tile of an image in LDS, and the walk over its rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dscore.algorithms.channel_vectors.tiling import (
    FRAGMENT,
    UNIT_VECTORS,
    ChannelVectorsTiling,
    column_offsets,
    grid_of,
    grid_size,
    shape_of,
    threads_of,
    vector_elements,
)
from dscore.algorithms.columns import ceil_div
from dscore.algorithms.row_reuse.view import View, view_of
from dscore.algorithms.table_copies import table_bytes
from dscore.backends.reference.lockstep import LockstepKernel, require_launch
from dscore.backends.reference.machine import (
    Addresses,
    Blocks,
    Bools,
    Ints,
    Operands,
    Tensor,
    inside,
    lane_ids,
    split,
)
from dscore.core.errors import LaunchError
from dscore.core.numerics import ACCUMULATOR
from dscore.core.plan import Plan


class ImageOf(NamedTuple):
    """Images whose channels lie side by side, in global memory."""

    memory: npt.NDArray[Any]
    height: int
    width: int
    channels: int

    def copy(self, blocks: Blocks, first: int, begin: tuple[Ints, Ints, Ints, Ints],
             size: tuple[int, int, int], there: Bools | None = None, pitch: int = 0,
             fill: int = 0) -> None:
        """A tile to LDS from element *first* on, *fill* for what is outside the image.

        It begins at an image, row, column and channel of each block, and has *size* rows, columns
        and channels; only blocks that are *there* load any. Pixels lie *pitch* elements apart, or
        as many as they have channels.
        """
        offset, c, r = split(lane_ids(1, size[0] * size[1] * size[2]), size[2], size[1])
        image, row, column, channel = (one[:, :, 0] for one in begin)
        row, column, channel = row + r, column + c, channel + offset
        index = ((image * self.height + row) * self.width + column) * self.channels + channel
        mask = inside(row, self.height) & inside(column, self.width) & (channel < self.channels)
        if there is not None:
            mask = mask & there[:, :, 0]
        words = (r * size[1] + c) * (pitch or size[2]) + offset
        to_lds(blocks, first, self.memory, Addresses(index, mask), "inputs", words[0], fill)


def to_lds(blocks: Blocks, first: int, memory: npt.NDArray[Any], at: Addresses,
           what: Tensor, words: Ints | None = None, fill: int = 0) -> None:
    """Elements *at* their addresses to LDS, from element *first* on, or to *words* from there; of
    lanes without an address *fill*."""
    values = np.empty(at.index.shape, dtype=np.float32)
    blocks.load(values, memory, at, what)
    if fill:
        values[~at.live] = fill
    blocks.lds_write(first, values, words, element=blocks.plan.problem.spec.element)


class LanesKernel(LockstepKernel):
    """The tile, and the walk over its rows.

    Grid order: channel tile fastest, then column tile, row tile, image.
    """

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands)
        problem, t, S = self.problem, self.t, self.wavefront
        gradient = problem.operation == "input_gradient"
        self.x, self.w = operands["gradient" if gradient else "x"], operands["w"]
        self.view = view_of(problem)
        require_tile(plan, t, self.view)
        self.rows, self.columns = self.view.rows, self.view.columns
        self.shape, self.element = shape_of(problem, t), problem.spec.element
        self.live_rows = int(self.shape.live_rows)
        self.tiles = tuple(int(n) for n in grid_of(problem, t))
        self.grid = int(grid_size(problem, t))
        waves = int(ceil_div(threads_of(t, S), S))
        require_launch(plan, self.grid, waves * S)
        self.thread = lane_ids(waves, S)
        self.lane_c, self.lane_w, self.lane_h = split(self.thread, t.lanes_c, t.lanes_w)
        self.offsets = column_offsets(self.columns, t.thread_w)

    def allocate(self, blocks: Blocks) -> None:
        """Registers: the taps, the live rows and one row that is walked over; LDS: the tile and
        the filters."""
        t, self.blocks = self.t, blocks
        packed = self.element if self.element.exact else ACCUMULATOR
        self.taps = blocks.registers("the filter", self.problem.spec.products * t.vector,
                                     packed=packed)
        self.sums = blocks.registers("the live rows", self.live_rows * t.thread_w * t.vector)
        self.row = blocks.registers("a row", len(self.offsets) * t.vector, packed=packed)
        self.product = np.empty_like(self.row[0])
        self.buffers = blocks.lds_tile("the pixels", int(self.shape.tiles), self.element)
        self.filters_at = blocks.lds_tile("the filters", int(self.shape.filters), self.element)
        table = int(table_bytes(self.problem.spec, t.banked))
        blocks.lds_tile("a table", table // self.element.bytes, self.element)

    def place(self, block: Ints, turn: int = 0) -> None:
        """Channels and first rows and columns of the lanes of the blocks numbered *block*, for
        their tile number *turn*."""
        t = self.t
        channels, columns, units = split(block, *self.tiles[:2])
        rows, self.image = split(units * t.repeat + turn, self.tiles[2])
        self.tile_at = self.buffers + turn % 2 * int(self.shape.tile)
        self.first_channel = channels * int(self.shape.channels)
        self.top, self.left = rows * t.lanes_h * t.thread_h, columns * t.lanes_w * t.thread_w
        self.channel = self.first_channel + self.lane_c * t.vector
        self.out_row = self.top + self.lane_h * t.thread_h
        self.out_column = self.left + self.lane_w * t.thread_w
        self.walked_channel = self.first_channel // self.view.multiplier
        self.present = self._there & (self.channel < self.problem.spec.out_channels) & (
            self.out_column < self.columns.written_size)
        self.live = self.present & (self.image < self.problem.batch) & (
            self.out_row < self.rows.written_size)

    def stage(self, turn: int = 0) -> None:
        """Copies to LDS, and each lane's taps from there, before the first tile."""
        self._copy_pixels()
        if turn > 0:
            return
        self._copy_filters()
        first, taps = self.filters_at + self.lane_c * self.t.vector * self._products, self.taps
        lanes = self.present if self.t.repeat > 1 else self.live
        for v in range(self.t.vector):
            for tap in range(self._products):
                self.blocks.lds_read(taps[tap * self.t.vector + v],
                                     Addresses(first + v * self._products + tap, self._there), 0,
                                     lanes, element=self.element)

    @property
    def _products(self) -> int:
        return self.problem.spec.products

    @property
    def _there(self) -> Bools:
        """Threads that have work."""
        there: Bools = self.thread < self.t.lanes_c * self.t.lanes_w * self.t.lanes_h
        return there

    def _copy_pixels(self) -> None:
        """The tile: rows, columns and channels of the image under the block."""
        rows, columns, shape = self.rows, self.columns, self.shape
        image = ImageOf(self.x, rows.walked_size, columns.walked_size,
                        self.problem.spec.out_channels // self.view.multiplier)
        image.copy(self.blocks, self.tile_at,
                   (self.image, rows.step(self.top) + rows.first,
                    columns.step(self.left) + columns.first, self.walked_channel),
                   (int(shape.tile_h), int(shape.tile_w), int(shape.walked)),
                   self.image < self.problem.batch, int(shape.pitch), self._zero)

    @property
    def _zero(self) -> int:
        """The zero point of x, of int8; else 0."""
        return int(self.operands["points"][0]) if self.element.exact else 0

    def _copy_filters(self) -> None:
        """The filters of the block's channels, which lie in one piece."""
        place = lane_ids(1, int(self.shape.channels) * self._products)
        index = self.first_channel[:, :, 0] * self._products + place
        at = Addresses(index, index < self.problem.spec.out_channels * self._products)
        to_lds(self.blocks, self.filters_at, self.w, at, "filters")

    def walk(self) -> None:
        """Every row once, into all the written rows that its taps connect it with."""
        axis, thread_h = self.rows, self.t.thread_h
        self.sums.fill(0)
        for i in range(int(self.shape.rows)):
            self.read_row(i)
            for f in range(axis.kernel):
                for r in (r for r in range(thread_h) if axis.position(r, f) == i):
                    self.accumulate(f, r)
            for r in range(axis.complete(i), min(axis.complete(i + 1), thread_h)):
                self.finish(r)

    def read_row(self, i: int) -> None:
        """The columns of local row *i* from LDS."""
        t, walked, pitch = self.t, int(self.shape.walked), int(self.shape.pitch)
        row = self.lane_h * int(self.rows.step(t.thread_h)) + i
        column = self.lane_w * int(self.columns.step(t.thread_w))
        pixel = self.tile_at + (row * int(self.shape.tile_w) + column) * pitch
        for number, offset in enumerate(self.offsets):
            for v in range(t.vector):
                out = self.row[number * t.vector + v]
                if self.view.multiplier == 1:
                    at = Addresses(pixel + self.lane_c * t.vector + v, self._there)
                    self.blocks.lds_read(out, at, offset * pitch, self.live,
                                         element=self.element)
                else:
                    channel = (self.channel + v) // self.view.multiplier - self.walked_channel
                    self.blocks.lds_read_apart(
                        out, Addresses(pixel + channel, self._there & (channel < walked)),
                        offset * pitch, element=self.element)

    def accumulate(self, f: int, r: int) -> None:
        """Filter row *f* times the row at hand, added to local written row *r*."""
        t, axis = self.t, self.columns
        for c in range(t.thread_w):
            first = (r % self.live_rows * t.thread_w + c) * t.vector
            for g in range(axis.kernel):
                offset = axis.position(c, g)
                if offset is None:
                    continue
                held, tap = self.offsets.index(offset), f * axis.kernel + g
                for v in range(t.vector):
                    self.blocks.fma(self.sums[first + v], self.row[held * t.vector + v],
                                    self.taps[tap * t.vector + v], self.product, self.live)

    def finish(self, r: int) -> None:
        """Store local written row *r*, which is complete, and clear its registers for another."""
        t, height, width = self.t, self.rows.written_size, self.columns.written_size
        channels, row = self.problem.spec.out_channels, self.out_row + r
        for c in range(t.thread_w):
            column = self.out_column + c
            for v in range(t.vector):
                sums, channel = (self.sums[(r % self.live_rows * t.thread_w + c) * t.vector + v],
                                 self.channel + v)
                mask = self.live & (row < height) & (column < width) & (channel < channels)
                at = Addresses(((self.image * height + row) * width + column) * channels + channel,
                               mask)
                if self.element.exact:  # products of x, less those of its zero point
                    sums -= self._zero * self.taps[v::t.vector].sum(0, dtype=sums.dtype)
                self.blocks.store(self.out, at, self.epilogue(self.blocks, sums, channel, at))
                sums.fill(0)


def require_tile(plan: Plan, t: ChannelVectorsTiling, view: View) -> None:
    """LaunchError where a thread's tile is none."""
    most, units = vector_elements(plan.problem), t.computes("matrix16")
    for wrong, what in (
            (not units and (t.vector & (t.vector - 1) or t.vector > most),
             f"a vector has a power of two of up to {most} channels; it is {t.vector}"),
            (units and (t.vector not in UNIT_VECTORS or view.multiplier > 1
                        or t.thread_w != FRAGMENT * view.columns.unit),
             f"a wavefront takes {' or '.join(map(str, UNIT_VECTORS))} channels of "
             f"{FRAGMENT * view.columns.unit} columns, a filter for each; it has {t.vector} of "
             f"{t.thread_w}"),
            (t.thread_h % view.rows.unit or t.thread_w % view.columns.unit,
             f"a thread's rows and columns must be multiples of {view.rows.unit} and "
             f"{view.columns.unit}; they are {t.thread_h} and {t.thread_w}")):
        if wrong:
            raise LaunchError(f"{plan.name}: {what}")
