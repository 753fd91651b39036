"""Blocks of channel sums in lockstep: the walk over the rows of x, and the addition of sums."""

from __future__ import annotations

import numpy as np

from dscore.algorithms.channel_sums.tiling import (
    ChannelSumsTiling,
    channel_tiles,
    shape_of,
    threads_of,
)
from dscore.algorithms.channel_vectors.tiling import column_offsets
from dscore.algorithms.columns import ceil_div
from dscore.algorithms.row_reuse.view import axes_of
from dscore.backends.reference.channel_lanes import ImageOf
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
from dscore.core.numerics import ACCUMULATOR
from dscore.core.plan import Plan


class ChannelSumsKernel(LockstepKernel):
    """The walk over the rows of x, and the reduction.

    Grid order: block of the cluster fastest, then channel tile, then slice. Blocks of the same rank
    in their clusters run together.
    """

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands)
        problem, t, S = self.problem, self.t, self.wavefront
        assert isinstance(t, ChannelSumsTiling)
        spec = problem.spec
        self.rows, self.columns = axes_of(problem)
        self.shape, self.element = shape_of(problem, t), spec.element
        self.walked, self.own = self.images()
        self.channel_tiles = int(channel_tiles(problem, t))
        self.clusters = self.channel_tiles * t.slices
        self.block = t.lanes_h * t.thread_h, t.lanes_w * t.thread_w
        self.tiles = (ceil_div(self.columns.written_size, self.block[1]),
                      ceil_div(self.rows.written_size, self.block[0]))
        self.units = t.computes("matrix16")
        self.used_threads = int(threads_of(t, S))
        waves = ceil_div(self.used_threads, S)
        require_launch(plan, self.clusters * t.cluster, waves * S)
        thread = lane_ids(waves, S)
        # Channels of a lane, and lanes that share those of a place.
        self.vector, self.lanes = (1, S) if self.units else (t.vector, 1)
        self.live_rows = 1 if self.units else int(self.shape.live_rows)
        lane, place = split(thread, self.lanes)
        self.lane_c, self.lane_w, self.lane_h = split(place, t.lanes_c, t.lanes_w)
        self.of_block = self.lane_c * t.vector + lane
        self.used = (thread < self.used_threads) & (lane < t.vector)
        # On matrix units columns are read for one tap at a time.
        self.offsets = tuple(range(0, t.thread_w * self.columns.stride, self.columns.stride)) if (
            self.units) else column_offsets(self.columns, t.thread_w)
        # The result, or the sums of each slice.
        sums = spec.out_channels * spec.products
        self.parts = (np.full((t.slices, sums), np.nan, dtype=np.float32) if t.slices > 1
                      else self.out.reshape(1, sums))

    def images(self) -> tuple[ImageOf, ImageOf]:
        """The image that is walked over, and the threads' own."""
        problem, spec = self.problem, self.problem.spec
        return (ImageOf(self.operands["x"], problem.height, problem.width, spec.in_channels),
                ImageOf(self.operands["gradient"], problem.out_height, problem.out_width,
                        spec.out_channels))

    def allocate(self, some: Blocks) -> None:
        """Registers: the sums, the live own rows, a walked row; LDS: the stages."""
        t, self.blocks = self.t, some
        self.sums = some.registers("the sums", self.problem.spec.products * self.vector)
        packed = self.element if self.units else ACCUMULATOR
        self.given = some.registers("own rows", self.live_rows * t.thread_w * self.vector,
                                    packed=packed)
        self.row = some.registers("a row", len(self.offsets) * self.vector, packed=packed)
        self.product = np.empty_like(self.row[0])
        self.stages = [(some.lds_tile("a tile", int(self.shape.walked_tile), self.element),
                        some.lds_tile("an own one", int(self.shape.own_tile), self.element))
                       for _ in range(t.stages)]

    def place(self, block: Ints) -> None:
        """Channels and slices of the clusters numbered *block*."""
        channels, self.slice = split(block, self.channel_tiles)
        self.first_channel = channels * int(self.shape.channels)
        self.first_of_x = self.first_channel // self.problem.spec.group_out
        self.channel = self.first_channel + self.of_block
        self.live = self.used & (self.channel < self.problem.spec.out_channels)

    def accumulate(self, rank: int) -> None:
        """All tiles of the blocks of that rank, one after the other."""
        size = int(self.shape.unit_slices)
        self.sums.fill(0)
        for step in range(size):
            unit = (self.slice * self.t.cluster + rank) * size + step
            there = unit < self.shape.units
            column, row, image = split(unit, *self.tiles)
            row, column = row * self.block[0], column * self.block[1]
            at, shape = self.stages[step % self.t.stages], self.shape
            self.walked.copy(self.blocks, at[0],
                             (image, self.rows.step(row) + self.rows.first,
                              self.columns.step(column) + self.columns.first, self.first_of_x),
                             (int(shape.tile_h), int(shape.tile_w), int(shape.walked)), there,
                             int(shape.walked_pitch))
            self.own.copy(self.blocks, at[1], (image, row, column, self.first_channel),
                          (*self.block, int(shape.channels)), there, int(shape.own_pitch))
            self.place_tile(image, row + self.lane_h * self.t.thread_h,
                            column + self.lane_w * self.t.thread_w)
            self.walk(at, there)

    def place_tile(self, image: Ints, row: Ints, column: Ints) -> None:
        """The image and the first own row and column of each lane, and how many there are from
        there on."""
        self.image, self.row_at, self.column_at = image, row, column
        self.down, self.right = self.rows.written_size - row, self.columns.written_size - column

    def walk(self, at: tuple[int, int], there: Bools) -> None:
        """Every row of x once, with all rows of the gradient that it lies under; on matrix units
        rows of the gradient, with those under them."""
        t, axis = self.t, self.rows
        taps = t.thread_h, axis.kernel, self.columns.kernel
        for r, f, g in np.ndindex(taps) if self.units else ():
            if f == g == 0:
                self.read_own(at[1], r)
            self.read_row(at[0], r * axis.stride + f * axis.dilation, g * self.columns.dilation)
            self.add(f, r, self.live & there & (r < self.down), g)
        for i in range(0 if self.units else int(self.shape.rows)):
            r, rest = divmod(i, axis.stride)
            if rest == 0 and r < t.thread_h:
                self.read_own(at[1], r)
            self.read_row(at[0], i)
            for f in range(axis.kernel):
                for r in (r for r in range(t.thread_h) if axis.position(r, f) == i):
                    self.add(f, r, self.live & there & (r < self.down))

    def read_own(self, first: int, r: int) -> None:
        """The thread's columns of local own row *r*."""
        t, pitch = self.t, int(self.shape.own_pitch)
        pixel = first + ((self.lane_h * t.thread_h + r) * self.block[1]
                         + self.lane_w * t.thread_w) * pitch + self.of_block
        for c in range(t.thread_w):
            for v in range(self.vector):
                self.blocks.lds_read(self.slot(r, c, v), Addresses(pixel + v, self.used),
                                     c * pitch, self.live, element=self.element)

    def slot(self, r: int, c: int, v: int) -> Floats:
        """The register of channel *v* of column *c* of local own row *r*."""
        row = r % self.live_rows
        held: Floats = self.given[(row * self.t.thread_w + c) * self.vector + v]
        return held

    def read_row(self, first: int, i: int, beside: int = 0) -> None:
        """The columns of local walked row *i*, so many *beside* the first."""
        t, walked, pitch = self.t, int(self.shape.walked), int(self.shape.walked_pitch)
        pixel = first + ((self.lane_h * int(self.rows.step(t.thread_h)) + i)
                         * int(self.shape.tile_w)
                         + self.lane_w * int(self.columns.step(t.thread_w))) * pitch
        for number, offset in enumerate(self.offsets):
            for v in range(self.vector):
                channel = (self.channel + v) // self.problem.spec.group_out - self.first_of_x
                self.blocks.lds_read_apart(
                    self.row[number * self.vector + v],
                    Addresses(pixel + channel, self.used & (channel < walked)),
                    (offset + beside) * pitch,
                    element=self.element)

    def add(self, f: int, r: int, lanes: Bools, alone: int | None = None) -> None:
        """Products of the row of x at hand with the gradient's row *r*, for filter row *f*; of the
        columns at hand for that filter column *alone*."""
        t, axis = self.t, self.columns
        for c in range(t.thread_w):
            mask = lanes & (c < self.right)
            for g in range(axis.kernel) if alone is None else (alone,):
                held = self.offsets.index(
                    c * axis.stride + (g * axis.dilation if alone is None else 0))
                for v in range(self.vector):
                    self.blocks.fma(self.sums[(f * axis.kernel + g) * self.vector + v],
                                    self.row[held * self.vector + v], self.slot(r, c, v),
                                    self.product, mask, True)

    def reduced(self) -> Floats:
        """The sums of the threads of each channel added."""
        t, products, count = self.t, self.problem.spec.products, self.blocks.count
        # By tap, channel of a lane, block, sharer, place over the channels and its lane.
        shared = self.sums.reshape(products, self.vector, count, -1)[..., :self.used_threads]
        shared = shared.reshape(products, self.vector, count, -1, t.lanes_c, self.lanes)
        sums: Floats = shared[..., 0, :, :].copy()
        for sharer in range(1, shared.shape[3]):
            sums += shared[..., sharer, :, :]
        if self.lanes > 1:
            return np.moveaxis(sums[:, 0, ..., :t.vector], -1, 1)
        return sums[..., 0]

    def store(self, sums: Floats) -> None:
        """Store *sums*, by tap, channel of the vector, block and lane over the channels."""
        t, spec = self.t, self.problem.spec
        first, part = (one[:, 0] * size for one, size in (
            (self.first_channel, 1), (self.slice, self.parts.shape[1])))
        for tap, v in np.ndindex(spec.products, t.vector):
            channel = first + lane_ids(1, t.lanes_c) * t.vector + v
            self.blocks.store(self.parts.reshape(-1), Addresses(
                part + channel * spec.products + tap, channel < spec.out_channels),
                sums[tap, v])
