"""Pointwise convolution as a product of matrices by warpgroups (hip_src/warpgroup_tf32/kernel.hpp),
and its input gradient (hip_src/warpgroup_tf32/input_gradient.hpp), where the filters are turned.

Order of additions, for one output: slice ``s`` of the warpgroups sums the channels
``[s · slice, (s + 1) · slice)`` of a step in eights, beginning with +0; each eight is gone through
three times (small parts of the image by big ones of the filter, big by small, big by big). The
step's sums are added to those before; then the slices, ascending; then the blocks of a cluster,
each of which has had some of the steps; then bias, then activation. Channels past the last are
+0 · +0. In an input gradient the channels summed are those of the output.
"""

from __future__ import annotations

from math import gcd
from types import SimpleNamespace

import numpy as np

from dscore.algorithms.columns import ceil_div
from dscore.algorithms.gemm.tiling import sizes_of, turned, vectors_of
from dscore.algorithms.warpgroup_tf32.tiling import (
    GROUP_WAVES,
    WarpgroupTf32Tiling,
    image_row_of,
    shape_of,
)
from dscore.backends.reference.gemm import read_at
from dscore.backends.reference.gemm_lanes import halves, multiply_fragments
from dscore.backends.reference.lockstep import require_launch
from dscore.backends.reference.machine import (
    Addresses,
    Blocks,
    Floats,
    Ints,
    Operands,
    lane_ids,
    split,
)
from dscore.backends.reference.ring import RingKernel, run_tiles
from dscore.core.errors import LaunchError
from dscore.core.plan import Plan
from dscore.core.trace import Trace


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the convolution of *plan* to the operand out."""
    run_tiles(plan, _WarpgroupTf32(plan, operands, operands["x"]), trace)


def run_input_gradient(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the input gradient of *plan* to the operand out."""
    run_tiles(plan, _WarpgroupTf32(plan, operands, operands["gradient"]), trace)


class _WarpgroupTf32(RingKernel):
    """The geometry of a block, its tiles, its lanes, and the blocks that run at present.

    Grid order: block of the cluster fastest, then channel tile, pixel tile. Blocks of the same
    rank in their clusters run together, because these have the same steps. Registers are arrays
    (block, 64 pixels, 8 channels, half of the pixels, side of a pair of channels, wavefront, lane).
    """

    def __init__(self, plan: Plan, operands: Operands, images: Floats) -> None:
        super().__init__(plan, operands)
        _require_kernel(plan)
        self.x, self.turned = images, turned(plan.problem)
        self.sizes, self.shape = sizes_of(self.problem), shape_of(self.problem, self.t)
        self.threads, self.buffer = int(self.shape.waves) * 32, int(self.shape.buffer)
        self.steps = ceil_div(self.sizes.depth, self.t.step_c)
        self.tiles = int(self.shape.channel_tiles * self.shape.pixel_tiles)
        require_launch(plan, self.tiles * self.t.cluster, self.threads)
        self._map_tiles()
        self._map_lanes()

    def _map_tiles(self) -> None:
        """Row and column of the elements of both tiles, and the words of LDS they go to."""
        t = self.t
        self.filter_row = gcd(32, t.step_c // t.slices)
        self.f_out, self.f_channel = np.divmod(lane_ids(t.tile_c * t.step_c), t.step_c)
        self.filter_words = self._filter_words(self.f_out, self.f_channel)
        self.i_channel, self.i_pixel = np.divmod(lane_ids(t.step_c * t.tile_p), t.tile_p)
        self.image_words = self.i_channel * image_row_of(t) + self.i_pixel

    def _filter_words(self, out: Ints, channel: Ints) -> Ints:
        """Words of a part of the filters: rows of 32, 16 or 8 summed channels of an output channel,
        whose vectors of 4 are exchanged."""
        row = self.filter_row
        at = out * row + channel % row
        words: Ints = channel // row * self.t.tile_c * row + (at ^ (at >> 5 & row // 4 - 1) << 2)
        return words

    def _map_lanes(self) -> None:
        """Where each lane stands, and the channel and pixel that each of its sums is for."""
        t, rows, columns = self.t, int(self.shape.rows), self.t.group_c // 8
        lane, wave = lane_ids(32), lane_ids(int(self.shape.waves), 1)
        group, groups_p = wave // GROUP_WAVES, t.tile_p // t.group_p
        slice_groups = int(self.shape.slice_waves) // GROUP_WAVES
        first_c = group // groups_p % (t.tile_c // t.group_c) * t.group_c
        first_p = group % groups_p * t.group_p + wave % GROUP_WAVES * 16 * rows
        summed = group // slice_groups * (t.step_c // t.slices)
        e, n = lane_ids(2 * rows, 1, 1), lane_ids(columns, 1, 1, 1)
        g, i, side = lane // 4, lane % 4, lane_ids(2, 1, 1)
        place = g * 2 * rows + e if vectors_of(self.problem)[0] > 1 else 8 * e + g
        pixel = first_p + place
        half = lane_ids(2, 1, 1)
        self.registers = (rows, columns, 2, 2)
        self.pixel = pixel.reshape(rows, 1, 2, 1, *pixel.shape[1:])
        self.channel = (first_c + n * 8 + i * 2 + side)[:, None]
        self.a_at = Addresses((summed + i + 4 * half[:, None]) * image_row_of(t) + pixel)
        self.b_at = first_c + n * 8 + g, summed + i + 4 * half
        self.lane = lane

    def allocate(self, blocks: Blocks) -> None:
        """Registers, and LDS: both parts of one or two steps' filters, and the ring."""
        self.blocks, t = blocks, self.t
        count, *lanes = blocks.shape

        def file(name: str, *registers: int) -> Floats:
            return blocks.registers(name, int(np.prod(registers))).reshape(
                count, *registers, *lanes)

        rows, columns, *_ = self.registers
        # join() asks the lanes for their sums.
        self.lanes = SimpleNamespace(sums=file("sums", *self.registers))
        self.step = (file("sums of a step", *self.registers) if self.shape.steps > 1
                     else np.empty_like(self.lanes.sums))
        batches = min(int(self.shape.eights), 2)
        self.a = file("operands of the batches under way", batches, 2, 2, 2 * rows)[:, 0]
        self.a_read = file("images", 2, 2 * rows)
        # Thread e % threads brings vector e of the filters.
        self.filter_temp = blocks.registers(
            "filters of the next step", int(self.shape.fetched),
            (count, self.threads)).reshape(count, -1)[:, :self.f_out.size]
        # What the units read of LDS by themselves.
        self.b = np.empty((count, 2, columns, 2, *lanes), dtype=np.float32)
        self.product = np.empty_like(self.step)
        self.image_temp = np.empty((count, self.i_pixel.size), dtype=np.float32)
        first = int(self.shape.ring)
        self.parts = blocks.lds_tile("filters and the ring of buffers", max(
            first + t.stages * self.buffer, int(self.shape.joined)))
        self.ring = self.parts + first

    def place(self, tile: Ints) -> None:
        """Global addresses of both tiles for the outputs numbered *tile*, for the first step."""
        channel_tile, pixel_tile = split(tile, int(self.shape.channel_tiles))
        self.first_channel = channel_tile * self.t.tile_c
        self.first_pixel = pixel_tile * self.t.tile_p
        out, pixel = self.first_channel + self.f_out, self.first_pixel + self.i_pixel
        image, place, held = read_at(self.problem, pixel)
        plane = image * self.sizes.depth + self.i_channel
        index = plane * self.sizes.area_read + place
        f_held = out < self.sizes.channels
        f_index = (self.f_channel * self.sizes.channels + out if self.turned
                   else out * self.sizes.depth + self.f_channel)
        # Channels past the last are masked in the last step only.
        rest = self.sizes.depth - (self.steps - 1) * self.t.step_c
        last = held & (self.i_channel < rest)
        self.filters = (Addresses(f_index, f_held),
                        Addresses(f_index, f_held & (self.f_channel < rest)))
        self.images = Addresses(index, held), Addresses(index, last)
        self.scales = Addresses(plane, held), Addresses(plane, last)

    def accumulate(self, rank: int) -> None:
        self.lanes.sums.fill(0)
        each = int(self.shape.steps)
        for step in self._copied(range(self.steps)[rank * each:(rank + 1) * each]):
            self.put_filters(step)
            self.multiply(step)

    def fetch(self, step: int) -> None:
        last, first = step == self.steps - 1, step * self.t.step_c
        self.blocks.load(self.image_temp, self.x, self.images[last], "inputs",
                         advance=first * self.sizes.area_read)
        self.scaled(self.blocks, self.image_temp, self.scales[last], first)

    def put(self, step: int) -> None:
        self.blocks.lds_write(self.at(step), self.image_temp, self.image_words)

    def put_filters(self, step: int) -> None:
        """The filters of a step, in two parts, to their buffer."""
        self.blocks.load(self.filter_temp, self.operands["w"],
                         self.filters[step == self.steps - 1], "filters",
                         advance=step * self.t.step_c * (
                             self.sizes.channels if self.turned else 1))
        for part, values in enumerate(halves(self.filter_temp)[::-1]):
            self.blocks.lds_write(self.filters_at(step, 1 - part), values, self.filter_words)

    def filters_at(self, step: int, part: int) -> int:
        """The first word of a part of a step's filters: the big ones, and the small ones."""
        buffer = step % int(self.shape.buffers)
        return self.parts + (2 * buffer + part) * int(self.shape.part)

    def multiply(self, step: int) -> None:
        """Add the sums of a step."""
        self.step.fill(0)
        for k in range(0, self.t.step_c // self.t.slices, 8):
            self.blocks.lds_read(self.a_read, self.a_at,
                                 self.at(step) + k * image_row_of(self.t))
            self.a[:, 0], self.a[:, 1] = halves(self.a_read)
            for part in range(2):
                read = np.empty_like(self.b[:, part])
                self.blocks.lds_read(read, Addresses(self._filter_words(
                    self.b_at[0], self.b_at[1] + k)), self.filters_at(step, part))
                self.b[:, part] = read
            for small_a, small_b in ((1, 0), (0, 1), (0, 0)):
                multiply_fragments(self.blocks, self.lane, self.step, self.a[:, small_a],
                                   self.b[:, small_b], self.product)
        np.add(self.lanes.sums, self.step, out=self.lanes.sums)

    def join(self, rank: int) -> None:
        """As of all rings; the sums that are handed over begin where the filters did."""
        ring, self.ring = self.ring, self.parts
        super().join(rank)
        self.ring = ring

    def finish(self) -> None:
        """Bias, activation and the stores of the first slice."""
        area, slice_waves = self.sizes.area, int(self.shape.slice_waves)
        shape = (*self.registers, *self.blocks.shape[1:])
        channel, pixel = (
            first[..., None] + np.broadcast_to(of, shape)[..., :slice_waves, :].reshape(
                self.joined.shape[1:])
            for first, of in ((self.first_channel, self.channel),
                              (self.first_pixel, self.pixel)))
        mask = (channel < self.sizes.channels) & (pixel < self.sizes.pixels)
        plane = pixel // area * self.sizes.channels + channel
        if self.turned:
            # Of a pixel that no output was made of, zero by an infinite filter is no number.
            np.copyto(self.joined, 0, where=~read_at(self.problem, pixel)[2])
        at = Addresses(plane * area + pixel % area, mask)
        self.blocks.store(self.out, at, self.epilogue(self.blocks, self.joined, channel, at))


def _require_kernel(plan: Plan) -> None:
    """LaunchError where the kernel does not exist, by its assertions."""
    t = plan.tiling
    assert isinstance(t, WarpgroupTf32Tiling)
    for wrong, what in (
            (t.tile_c % t.group_c or t.tile_p % t.group_p, "a tile is not of whole warpgroups"),
            (t.group_c % 8 or t.group_p not in (64, 128), "a warpgroup's tile must be of whole "
             "instructions, 8 channels x 64 or 128 pixels"),
            (t.step_c % (8 * t.slices), "the slices of a step must have eights of channels"),
            (t.stages < 3, "the ring has 3 buffers at least"),
            ((t.cluster - 1) * shape_of(plan.problem, t).steps
             >= ceil_div(sizes_of(plan.problem).depth, t.step_c),
             "a block of the cluster has no step"),
            (plan.device.wavefront != 32, "warpgroups are of 4 wavefronts of 32")):
        if wrong:
            raise LaunchError(f"{plan.name}: {what}")
