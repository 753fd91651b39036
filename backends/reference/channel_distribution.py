"""Pointwise convolution by channel distribution (Liu et al. 2024, §5.1), lane by lane.

Order of additions, for one output: lane ``l`` of a segment of `group_c` lanes sums the channels
``l, l + group_c, l + 2 group_c, …`` in this order, beginning with +0; the segment is then summed
by ``s[l] += s[l + d]`` for ``d = group_c/2, …, 2, 1``; then bias, then activation. Products are
rounded before they are added. Channels past the last are +0 · +0.
"""

from __future__ import annotations

import numpy as np

from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling, shape_of
from dscore.algorithms.columns import ceil_div
from dscore.backends.reference.lockstep import LockstepKernel, batches, require_launch
from dscore.backends.reference.machine import (
    Addresses,
    Blocks,
    Ints,
    Operands,
    inside,
    lane_ids,
    split,
)
from dscore.core.errors import LaunchError
from dscore.core.plan import Plan
from dscore.core.trace import Trace


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the convolution of *plan* to the operand out."""
    kernel = _ChannelDistribution(plan, operands)
    for blocks, first in batches(plan, kernel.grid, trace, kernel.allocate):
        blocks.begin()
        kernel.place(first + lane_ids(blocks.count, 1))
        kernel.accumulate()
        kernel.finish()


class _ChannelDistribution(LockstepKernel):
    """The geometry of a block, its lane maps, and the blocks that run at present.

    Grid order: column tile fastest, then row tile, channel tile, image.
    """

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands)
        self.x, self.w = operands["x"], operands["w"]
        _require_lanes(plan, self.t, self.wavefront)
        shape = shape_of(self.problem, self.t, self.wavefront)
        self.rows, self.columns = int(shape.rows), shape.columns
        self.waves_per_row, self.thread_c = int(shape.waves_per_row), shape.thread_c
        self.channels, self.groups = shape.channels, shape.steps
        self.input_tile, self.filter_tile = shape.input_tile, shape.filter_tile
        self.threads = shape.wave_n * self.wavefront
        self.column_tiles = int(ceil_div(self.problem.out_width, shape.columns))
        self.row_tiles = ceil_div(self.problem.out_height, self.rows)
        self.channel_tiles = ceil_div(self.problem.spec.out_channels, shape.channels)
        self.grid = (self.problem.batch * self.channel_tiles * self.row_tiles
                     * self.column_tiles)
        require_launch(plan, self.grid, self.threads)
        self._map_lanes()
        self._map_tiles()

    def _map_lanes(self) -> None:
        t, G, waves = self.t, self.t.group_c, self.t.repeat_w * self.t.repeat_c
        self.lane = lane_ids(1, self.wavefront)
        wave = lane_ids(waves, 1)
        self.w_part, self.c_part = wave % t.repeat_w, wave // t.repeat_w
        # LDS input tile [repeat_w * wave_w][group_c]: the lanes of a segment read consecutive
        # words, and the segments of a wavefront the same ones, which is a broadcast.
        self.input_at = Addresses(self.w_part * t.wave_w * G + self.lane % G)
        # LDS filter tile [repeat_c * wave_c][group_c]: the S lanes of a wavefront read S
        # consecutive words for every one of their output channels, free of bank conflicts.
        self.filter_at = Addresses(
            self.c_part * t.wave_c * G + (self.lane // G) * G + self.lane % G
            + 0 * self.w_part)

    def _map_tiles(self) -> None:
        """Row, column and channel of each tile element, which thread e % threads loads."""
        t, pixels = self.t, self.t.repeat_w * self.t.wave_w
        self.input_registers = int(ceil_div(self.input_tile, self.threads))
        self.filter_registers = int(ceil_div(self.filter_tile, self.threads))
        e = lane_ids(self.input_registers, 1, self.threads)
        self.in_tile, pixel = e < self.input_tile, e % pixels
        # Neighbouring threads load neighbouring columns, and store them group_c words apart.
        self.input_words = (pixel * t.group_c + e // pixels)[:, 0]
        self.e_channel, wave, i = e // pixels, pixel // t.wave_w, pixel % t.wave_w
        self.e_row, self.e_column = (wave // self.waves_per_row,
                                     wave % self.waves_per_row * t.wave_w + i)
        e = lane_ids(self.filter_registers, 1, self.threads)
        self.in_filter = e < self.filter_tile
        self.f_out, self.f_channel = e // t.group_c, e % t.group_c

    def allocate(self, blocks: Blocks) -> None:
        """Registers and LDS, in the paper's terms resultR, operandR, tempR and two buffers."""
        t = self.t
        self.blocks, flat = blocks, (blocks.count, self.threads)
        self.sums = blocks.registers("results", t.wave_w * self.thread_c)
        self.a = blocks.registers("input operands", t.wave_w)
        self.b = blocks.registers("filter operands", self.thread_c)
        self.input_temp = blocks.registers("input on its way", self.input_registers, flat)
        self.filter_temp = blocks.registers("filter on its way", self.filter_registers, flat)
        self.buffers = [(blocks.lds_tile("an input buffer", self.input_tile),
                         blocks.lds_tile("a filter buffer", self.filter_tile)) for _ in range(2)]
        self.product = np.empty_like(self.b)
        self.sums_of = self.sums.reshape(t.wave_w, *self.b.shape)

    def place(self, block: Ints) -> None:
        """Global addresses of the tiles of the blocks numbered *block*, for their first group."""
        problem, spec, G = self.problem, self.problem.spec, self.t.group_c
        column_tile, row_tile, channel_tile, image = split(
            block, self.column_tiles, self.row_tiles, self.channel_tiles)
        self.first_row, self.first_column = row_tile * self.rows, column_tile * self.columns
        self.first_channel, self.image = channel_tile * self.channels, image
        column = self.first_column + self.e_column
        in_row = (self.first_row + self.e_row) * spec.stride[0] - problem.padding[0]
        in_column = column * spec.stride[1] - problem.padding[2]
        held = (self.in_tile & (column < problem.out_width)
                & inside(in_row, problem.height) & inside(in_column, problem.width))
        plane = image * spec.in_channels + self.e_channel
        index = (plane * problem.height + in_row) * problem.width + in_column
        channel_out = self.first_channel + self.f_out
        f_held = self.in_filter & (channel_out < spec.out_channels)
        f_index = channel_out * spec.in_channels + self.f_channel
        self.input_from, self.filter_from = Addresses(index, held), Addresses(f_index, f_held)
        # Channels past the last are masked in the last group only.
        rest = spec.in_channels - (self.groups - 1) * G
        self.last_input_from, self.last_filter_from = (
            (self.input_from, self.filter_from) if rest == G else
            (Addresses(index, held & (self.e_channel < rest)),
             Addresses(f_index, f_held & (self.f_channel < rest))))

    def accumulate(self) -> None:
        """All channel groups, double-buffered; a barrier follows every `_put`."""
        self.sums.fill(0)
        self._fetch(0)
        self._put(0)
        for step in range((self.groups - 1) // 2):
            self._fetch(2 * step + 1)
            self._multiply(0)
            self._put(1)
            self._fetch(2 * step + 2)
            self._multiply(1)
            self._put(0)
        if self.groups % 2:
            self._multiply(0)
        else:
            self._fetch(self.groups - 1)
            self._multiply(0)
            self._put(1)
            self._multiply(1)

    def _fetch(self, group: int) -> None:
        """Global memory to temporary registers: thread tid takes elements i * threads + tid."""
        last, first = group == self.groups - 1, group * self.t.group_c
        self.blocks.load(
            self.input_temp, self.x, self.last_input_from if last else self.input_from, "inputs",
            advance=first * self.problem.height * self.problem.width)
        self.blocks.load(
            self.filter_temp, self.w, self.last_filter_from if last else self.filter_from,
            "filters", advance=first)

    def _put(self, buffer: int) -> None:
        """Temporary registers to LDS."""
        at_input, at_filter = self.buffers[buffer]
        for i, values in enumerate(self.input_temp):
            held = min(self.threads, self.input_tile - i * self.threads)
            self.blocks.lds_write(at_input, values[:, :held], self.input_words[i, :held])
        for i, values in enumerate(self.filter_temp):
            held = min(self.threads, self.filter_tile - i * self.threads)
            self.blocks.lds_write(at_filter + i * self.threads, values[:, :held])

    def _multiply(self, buffer: int) -> None:
        """One group from LDS: wave_w + thread_c operands, wave_w · thread_c multiply-adds."""
        blocks, (at_input, at_filter) = self.blocks, self.buffers[buffer]
        for i in range(self.t.wave_w):
            blocks.lds_read(self.a[i], self.input_at, at_input + i * self.t.group_c)
        for j in range(self.thread_c):
            blocks.lds_read(self.b[j], self.filter_at, at_filter + j * self.wavefront)
        for i in range(self.t.wave_w):
            blocks.fma(self.sums_of[i], self.a[i], self.b, self.product)

    def finish(self) -> None:
        """Sum each segment to its first lane, which adds bias and activation and stores."""
        problem, spec, t = self.problem, self.problem.spec, self.t
        sums, by = self.sums, t.group_c // 2
        while by:
            sums = sums + self.blocks.shfl_down(sums, by, t.group_c)
            by //= 2
        writers = self.lane[:, ::t.group_c]
        first_lanes = sums[..., ::t.group_c].reshape(
            t.wave_w, self.thread_c, self.blocks.count, *(self.c_part + writers).shape)
        j = lane_ids(self.thread_c, 1, 1, 1)
        channel = (self.first_channel[..., None] + self.c_part * t.wave_c
                   + j * (self.wavefront // t.group_c) + writers // t.group_c)
        row = self.first_row[..., None] + self.w_part // self.waves_per_row
        first = self.first_column[..., None] + self.w_part % self.waves_per_row * t.wave_w
        plane = self.image[..., None] * spec.out_channels + channel
        for i in range(t.wave_w):
            column = first + i
            mask = (column < problem.out_width) & (channel < spec.out_channels)
            at = Addresses((plane * problem.out_height + row) * problem.out_width + column, mask)
            self.blocks.store(self.out, at, self.epilogue(
                self.blocks, np.ascontiguousarray(first_lanes[i]), channel, at))


def _require_lanes(plan: Plan, t: ChannelDistributionTiling, wavefront: int) -> None:
    """LaunchError where the lane map does not exist (R4 and R5)."""
    if t.group_c & (t.group_c - 1) or t.group_c > wavefront:
        raise LaunchError(f"{plan.name}: group_c must be a power of two of at most the wavefront "
                          f"{wavefront}, for segmented shuffles; it is {t.group_c}")
    if t.wave_c * t.group_c % wavefront:
        raise LaunchError(f"{plan.name}: wave_c * group_c must be a multiple of the wavefront "
                          f"{wavefront}; it is {t.wave_c * t.group_c}")
