"""Fragments of channel vectors in lockstep: products with diagonal matrices on matrix units."""

from __future__ import annotations

import numpy as np

from dscore.algorithms.channel_vectors.tiling import FRAGMENT
from dscore.backends.reference.channel_lanes import LanesKernel
from dscore.backends.reference.machine import Addresses, Blocks, Floats, Ints, Operands, split
from dscore.core.plan import Plan


class UnitsKernel(LanesKernel):
    """The same by products of fragments: lane 4 g + i of a wavefront has channels 2 i and 2 i + 1
    of column g in two segments of eight columns.

    Zeros of a diagonal matrix are left out here. The kernel's make a NaN of what is not finite; it
    makes such a sum anew, of its own products, which are these.
    """

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands)
        t, segments = self.t, self.t.lanes_w * self.t.lanes_h
        self.groups, self.phases = t.vector // FRAGMENT, self.columns.unit
        self.lane, wave = split(self.thread, self.wavefront)
        self.wave_c, pair = split(wave, t.lanes_c)
        self.segments = [2 * pair + half for half in range(2)]
        self.has_segment = [segment < segments for segment in self.segments]

    def allocate(self, blocks: Blocks) -> None:
        self.blocks = blocks
        # A word of a diagonal matrix has two elements, one of which is 0.
        self.taps = blocks.registers("the filter", 2 * self.groups * self._products,
                                     packed=self.element)
        self.sums = blocks.registers("the live rows",
                                     4 * self.live_rows * self.phases * self.groups)
        self.fragment = blocks.registers("a fragment", 4)
        self.product = np.empty_like(self.fragment[0])
        self.buffers = blocks.lds_tile("the pixels", int(self.shape.tiles), self.element)
        self.filters_at = blocks.lds_tile("the filters", int(self.shape.filters), self.element)

    def place(self, block: Ints, turn: int = 0) -> None:
        super().place(block, turn)
        t = self.t
        of_block = self.wave_c * t.vector + self.lane % 4 * 2
        self.of_block, self.channel = of_block, self.first_channel + of_block
        self.out_rows = [self.top + s // t.lanes_w * t.thread_h for s in self.segments]
        self.out_columns = [self.left + s % t.lanes_w * t.thread_w + self.lane // 4 * self.phases
                            for s in self.segments]

    def stage(self, turn: int = 0) -> None:
        self._copy_pixels()
        self._copy_filters()
        for q, tap, v in np.ndindex(self.groups, self._products, 2):
            channel = self.of_block + q * FRAGMENT + v
            self.blocks.lds_read(self.taps[(q * self._products + tap) * 2 + v],
                                 Addresses(self.filters_at + channel * self._products + tap), 0,
                                 element=self.element)

    def read_row(self, i: int) -> None:
        """Remember local row *i*, of which `accumulate` reads what a tap needs."""
        self.at = i

    def accumulate(self, f: int, r: int) -> None:
        axis = self.columns
        for phase, q, g in np.ndindex(self.phases, self.groups, axis.kernel):
            offset = axis.position(phase, g)
            if offset is None:
                continue
            for half, v in np.ndindex(2, 2):
                self.read(self.fragment[half * 2 + v], half, offset, q * FRAGMENT + v)
                self.blocks.fma(self.sum_of(r, phase, q, half, v), self.fragment[half * 2 + v],
                                self.taps[(q * self._products + f * axis.kernel + g) * 2 + v],
                                self.product, self.has_segment[half])

    def read(self, out: Floats, half: int, offset: int, channel: int) -> None:
        """A channel of the pixel *offset* columns on in the row at hand."""
        t, step = self.t, int(self.columns.step(self.phases))
        segment = np.where(self.has_segment[half], self.segments[half], 0)
        row = segment // t.lanes_w * int(self.rows.step(t.thread_h)) + self.at
        column = (segment % t.lanes_w * FRAGMENT + self.lane // 4) * step + offset
        pixel = (row * int(self.shape.tile_w) + column) * int(self.shape.pitch)
        self.blocks.lds_read(out, Addresses(self.tile_at + pixel + self.of_block), channel,
                             element=self.element)

    def sum_of(self, r: int, phase: int, q: int, half: int, v: int) -> Floats:
        """The register of a sum of local written row *r*."""
        group = (r % self.live_rows * self.phases + phase) * self.groups + q
        held: Floats = self.sums[group * 4 + half * 2 + v]
        return held

    def finish(self, r: int) -> None:
        height, width = self.rows.written_size, self.columns.written_size
        channels = self.problem.spec.out_channels
        for phase, q, half, v in np.ndindex(self.phases, self.groups, 2, 2):
            sums, channel = self.sum_of(r, phase, q, half, v), self.channel + q * FRAGMENT + v
            row, column = self.out_rows[half] + r, self.out_columns[half] + phase
            mask = (self.has_segment[half] & (row < height) & (column < width)
                    & (channel < channels))
            at = Addresses(((self.image * height + row) * width + column) * channels + channel,
                           mask)
            self.blocks.store(self.out, at, self.epilogue(self.blocks, sums, channel, at))
            sums.fill(0)
