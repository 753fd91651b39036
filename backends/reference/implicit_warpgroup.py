"""Dense convolution as an implicit product of matrices by warpgroups
(hip_src/implicit_warpgroup/kernel.hpp).

Order of additions, for one output: slice ``s`` of the warpgroups sums the channels
``[s · slice, (s + 1) · slice)`` of a step, beginning with +0: ``rows`` rows of the filters after
the others, in these the channels in eights, of each the taps, row by row; each eight is gone
through three times (small parts of the image by big ones of the filter, big by small, big by big).
The step's sums are added to those before; then the slices, ascending; then the blocks of a cluster,
each of which has had some of the steps; then bias, then activation. Channels past the last are
+0 · +0, taps outside of the image +0 · w.
"""

from __future__ import annotations

from math import gcd

import numpy as np

from dscore.algorithms.implicit_gemm.tiling import filter_row, rows_of, taps_of
from dscore.algorithms.implicit_warpgroup import MOST_BATCHES
from dscore.algorithms.implicit_warpgroup.tiling import (
    ImplicitWarpgroupTiling,
    beside_of,
    shape_of,
)
from dscore.algorithms.warpgroup_tf32.tiling import GROUP_WAVES
from dscore.backends.reference.gemm_lanes import halves, multiply_fragments
from dscore.backends.reference.implicit_gemm import ImplicitKernel
from dscore.backends.reference.machine import Addresses, Blocks, Floats, Ints, Operands, lane_ids
from dscore.backends.reference.ring import run_tiles
from dscore.core.errors import LaunchError
from dscore.core.plan import Plan
from dscore.core.trace import Trace


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the convolution of *plan* to the operand out."""
    run_tiles(plan, _ImplicitWarpgroup(plan, operands), trace)


class _Lanes:
    """Lanes of a block: where each stands, and the channel and pixel that each sum is for.

    Registers are arrays (block, 64 pixels, 8 channels, half of the pixels, side of a pair of
    channels, wavefront, lane).
    """

    def __init__(self, plan: Plan) -> None:
        t, shape = plan.tiling, shape_of(plan.problem, plan.tiling)
        assert isinstance(t, ImplicitWarpgroupTiling)
        _require_kernel(plan, t)
        self.t, self.plan, self.shape = t, plan, shape
        rows, columns = int(shape.rows), t.group_c // 8
        self.lane, wave = lane_ids(32), lane_ids(int(shape.waves), 1)
        group, groups_p = wave // GROUP_WAVES, t.tile_p // t.group_p
        slice_groups = int(shape.slice_waves) // GROUP_WAVES
        first_c = group // groups_p % (t.tile_c // t.group_c) * t.group_c
        first_p = group % groups_p * t.group_p + wave % GROUP_WAVES * 16 * rows
        self.summed = group // slice_groups * (t.step_c // t.slices)
        e, n = lane_ids(2 * rows, 1, 1), lane_ids(columns, 1, 1, 1)
        g, self.four, side = self.lane // 4, self.lane % 4, lane_ids(2, 1, 1)
        self.pixel = first_p + (g * 2 * rows + e if beside_of(plan.problem, t) > 1 else 8 * e + g)
        self.registers = (rows, columns, 2, 2)
        self.sum_pixel = self.pixel.reshape(rows, 1, 2, 1, *self.pixel.shape[1:])
        self.channel = (first_c + n * 8 + self.four * 2 + side)[:, None]
        self.row = first_c + n * 8 + g  # of filters, that a lane brings

    def place(self, places: Ints) -> None:
        """Set the addresses of images: where the pixels of each block lie in its patch."""
        self.a_at = Addresses(int(self.shape.filters) + places
                              + (self.summed + self.four) * self.t.patch)

    def allocate(self, blocks: Blocks) -> None:
        """The registers of sums, operands, places and of a vector of filters."""
        self.blocks = blocks
        count, *lanes = blocks.shape

        def file(name: str, *registers: int) -> Floats:
            return blocks.registers(name, int(np.prod(registers))).reshape(
                count, *registers, *lanes)

        rows, columns, *_ = self.registers
        self.sums, self.step = file("sums", *self.registers), file("of a step", *self.registers)
        self.a = file("operands of the batches under way", 2, 2, 2, 2 * rows)[:, 0]
        self.a_read = file("images", 2, 2 * rows)[:, 0]
        file("places of pixels", 2 * rows)
        file("a vector of filters, and its parts", 12)
        # What the units read of LDS by themselves.
        self.b = np.empty((count, 2, columns, 2, *lanes), dtype=np.float32)
        self.b_read = np.empty_like(self.b[:, 0])
        self.product = np.empty_like(self.step)

    def tap_place(self, row: int, column: int) -> int:
        """How much further on than the first tap of a pixel another one lies in a patch."""
        dilation_h, dilation_w = self.plan.problem.spec.dilation
        return row * dilation_h * rows_of(self.plan.problem).width + column * dilation_w

    def multiply_turn(self, images: int, filters: int, first_row: int) -> None:
        """Products of some rows of filters, in parts at word *filters*, and a step's images."""
        kernel_w = self.plan.problem.spec.kernel[1]
        for channel in range(0, self.t.step_c // self.t.slices, 8):
            for tap in range(self.t.rows * kernel_w):
                row, column = divmod(tap, kernel_w)
                self._multiply_eight(
                    images + channel * self.t.patch + self.tap_place(first_row + row, column),
                    filters, channel, tap)

    def _multiply_eight(self, images: int, filters: int, channel: int, tap: int) -> None:
        part = int(self.shape.part)
        for half in range(2):
            self.blocks.lds_read_apart(self.a_read, self.a_at, images + 4 * half * self.t.patch)
            self.a[:, 0, half], self.a[:, 1, half] = halves(self.a_read)
        words = filter_words(self.t, tap, self.row,
                             self.summed + channel + self.four + 4 * lane_ids(2, 1, 1))
        for small in range(2):
            self.blocks.lds_read(self.b_read, Addresses(words), filters + small * part)
            self.b[:, small] = self.b_read
        for small_a, small_b in ((1, 0), (0, 1), (0, 0)):
            multiply_fragments(self.blocks, self.lane, self.step, self.a[:, small_a],
                               self.b[:, small_b], self.product)


def filter_words(t: ImplicitWarpgroupTiling, tap: int | Ints, out: Ints, channel: Ints) -> Ints:
    """Words of a part of the filters: of each tap rows of 32, 16 or 8 summed channels of an output
    channel, whose vectors of 4 are exchanged."""
    row = gcd(32, t.step_c // t.slices)
    at = out * row + channel % row
    words: Ints = ((tap * (t.step_c // row) + channel // row) * t.tile_c * row
                   + (at ^ (at >> 5 & row // 4 - 1) << 2))
    return words


class _ImplicitWarpgroup(ImplicitKernel):
    """The implicit product whose filters are split in LDS, before the ring, a turn after the other.
    """

    lanes: _Lanes
    through_registers = False

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands, _Lanes(plan), shape_of(plan.problem, plan.tiling))
        t, kernel_w = self.t, plan.problem.spec.kernel[1]
        taps = taps_of(plan.problem)
        rest, out = np.divmod(lane_ids(t.tile_c * t.step_c * t.rows * kernel_w)[::-1], t.tile_c)
        channel, self.tap = np.divmod(rest, t.rows * kernel_w)
        self.raw = Addresses(out * int(filter_row(plan.problem, t)) + channel * taps + self.tap)
        self.split_words = filter_words(t, self.tap, out, channel)

    def take_lds(self, blocks: Blocks, words: int) -> int:
        self.parts = blocks.lds_tile("filters and the ring of buffers", max(
            int(self.shape.ring) + words, int(self.shape.joined)))
        return self.parts + int(self.shape.ring)

    def accumulate(self, rank: int) -> None:
        self.lanes.sums.fill(0)
        each, turns = int(self.shape.steps), int(self.shape.turns)
        for step in self._copied(range(self.steps)[rank * each:(rank + 1) * each]):
            self.lanes.step.fill(0)
            for turn in range(turns):
                filters = self.parts + (step * turns + turn) % 2 * 2 * int(self.shape.part)
                self.split(step, turn, filters)
                self.lanes.multiply_turn(self.at(step), filters, turn * self.t.rows)
            np.add(self.lanes.sums, self.lanes.step, out=self.lanes.sums)

    def split(self, step: int, turn: int, filters: int) -> None:
        """The filters of a turn, in two parts, to their buffer."""
        values = np.empty((self.blocks.count, self.split_words.size), dtype=np.float32)
        self.blocks.lds_read(values, self.raw, self.at(step) + turn * self.t.rows
                             * self.problem.spec.kernel[1], operand=False)
        for number, part in enumerate(halves(values)):
            self.blocks.lds_write(filters + number * int(self.shape.part), part, self.split_words)

    def join(self, rank: int) -> None:
        """As of all rings; the sums that are handed over begin where the filters did."""
        ring, self.ring = self.ring, self.parts
        super().join(rank)
        self.ring = ring


def _require_kernel(plan: Plan, t: ImplicitWarpgroupTiling) -> None:
    """LaunchError where the kernel does not exist, by its assertions."""
    shape, kernel_h = shape_of(plan.problem, t), plan.problem.spec.kernel[0]
    for wrong, what in (
            (t.tile_c % t.group_c or t.tile_p % t.group_p, "a tile is not of whole warpgroups"),
            (t.group_c % 8 or t.group_p not in (64, 128), "a warpgroup's tile must be of whole "
             "instructions, 8 channels x 64 or 128 pixels"),
            (t.step_c % (8 * t.slices), "the slices of a step must have eights of channels"),
            (kernel_h % t.rows, "the rows of a filter come in whole turns"),
            (shape.batches > MOST_BATCHES, f"a turn has {shape.batches} batches of products"),
            (t.stages < (2 if t.rows < kernel_h else 3), "the ring has 3 buffers at least, 2 of "
             "filters that come in several turns"),
            ((t.cluster - 1) * shape.steps >= shape.all_steps,
             "a block of the cluster has no step"),
            (plan.device.wavefront != 32, "warpgroups are of 4 wavefronts of 32")):
        if wrong:
            raise LaunchError(f"{plan.name}: {what}")
