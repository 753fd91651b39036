"""Both gradients of depthwise layers on images whose channels lie side by side (NHWC).

As channel_sums with the images turned: a thread walks over rows of the output's gradient, each of
which it reads once, with its own rows of x, and adds each also into rows of x's gradient.
Order of additions: of x's gradient that of channel_vectors; of one tap of a thread: tiles, within
these rows of the output's gradient, within these its own columns, all ascending; then as
channel_sums has it. What lies outside the output's gradient is +0 · w, and left out of the filter's
sums.
"""

from __future__ import annotations

import numpy as np

from dscore.backends.reference.channel_lanes import ImageOf
from dscore.backends.reference.channel_sums_lanes import ChannelSumsKernel
from dscore.backends.reference.machine import Addresses, Blocks, Bools, Floats, inside


class BothKernel(ChannelSumsKernel):
    """The walk over the rows of the output's gradient."""

    def images(self) -> tuple[ImageOf, ImageOf]:
        x, gradient = super().images()
        return gradient, x

    def allocate(self, some: Blocks) -> None:
        """The same, the taps, and live rows of x's gradient."""
        super().allocate(some)
        self.taps = some.registers("the filter", self.problem.spec.products * self.vector)
        self.made = some.registers("the live rows", len(self.given))

    def accumulate(self, rank: int) -> None:
        """All tiles of the blocks of that rank, by each lane's taps."""
        spec = self.problem.spec
        for tap, v in np.ndindex(spec.products, self.vector):
            channel = self.channel + v
            self.blocks.load(self.taps[tap * self.vector + v], self.operands["w"], Addresses(
                channel * spec.products + tap, self.live & (channel < spec.out_channels)),
                "filters")
        super().accumulate(rank)

    def walk(self, at: tuple[int, int], there: Bools) -> None:
        """Every row once, into the rows of x's gradient that taps connect it with, and by those of
        x into the sums."""
        axis, lanes, read = self.rows, self.live & there, 0
        self.made.fill(0)
        for i in range(int(self.shape.rows)):
            met = [(f, r) for f in range(axis.kernel) for r in range(self.t.thread_h)
                   if axis.position(r, f) == i]
            for r in range(read, max((r + 1 for _, r in met), default=read)):
                self.read_own(at[1], r)
                read = r + 1
            self.read_row(at[0], i)
            row_there = inside(axis.step(self.row_at) + axis.first + i, axis.walked_size)
            for f, r in met:
                self.add_made(f, r, lanes)
                self.add(f, r, lanes & row_there & (r < self.down))
            for r in range(axis.complete(i), min(axis.complete(i + 1), self.t.thread_h)):
                self.finish(r, lanes)

    def products(self, c: int) -> list[tuple[int, int]]:
        """Filter columns of own column *c*, with the number of the held column that each meets."""
        positions = ((g, self.columns.position(c, g)) for g in range(self.columns.kernel))
        return [(g, self.offsets.index(at)) for g, at in positions if at is not None]

    def add_made(self, f: int, r: int, lanes: Bools) -> None:
        """The row at hand times filter row *f*, added to local row *r* of x's gradient."""
        for c in range(self.t.thread_w):
            for g, held in self.products(c):
                tap = f * self.columns.kernel + g
                for v in range(self.vector):
                    self.blocks.fma(self.made_at(r, c, v), self.row[held * self.vector + v],
                                    self.taps[tap * self.vector + v], self.product, lanes)

    def add(self, f: int, r: int, lanes: Bools, alone: int | None = None) -> None:
        """Products of the row at hand with own row *r*, for filter row *f*."""
        axis = self.columns
        first = axis.step(self.column_at) + axis.first
        for c in range(self.t.thread_w):
            for g, held in self.products(c):
                mask = lanes & (c < self.right) & inside(first + self.offsets[held],
                                                         axis.walked_size)
                for v in range(self.vector):
                    self.blocks.fma(self.sums[(f * axis.kernel + g) * self.vector + v],
                                    self.row[held * self.vector + v], self.slot(r, c, v),
                                    self.product, mask, True)

    def made_at(self, r: int, c: int, v: int) -> Floats:
        """The register of channel *v* of column *c* of local row *r* of x's gradient."""
        register: Floats = self.made[
            (r % self.live_rows * self.t.thread_w + c) * self.vector + v]
        return register

    def finish(self, r: int, lanes: Bools) -> None:
        """Store local row *r* of x's gradient, which is complete, and clear its registers."""
        (height, width), channels = ((self.rows.written_size, self.columns.written_size),
                                     self.problem.spec.out_channels)
        for c in range(self.t.thread_w):
            pixel = (self.image * height + self.row_at + r) * width + self.column_at + c
            for v in range(self.vector):
                channel, sums = self.channel + v, self.made_at(r, c, v)
                mask = lanes & (r < self.down) & (c < self.right) & (channel < channels)
                self.blocks.store(self.operands["x_gradient"],
                                  Addresses(pixel * channels + channel, mask), sums)
                sums.fill(0)
