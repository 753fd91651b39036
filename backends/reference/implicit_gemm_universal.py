"""Dense and grouped convolution as an implicit product of matrices, of both layouts
(hip_src/implicit_gemm_universal).

Order of additions, for one output: slice ``s`` of the wavefronts sums the channels
``[s · slice, (s + 1) · slice)`` of every step, beginning with +0: so many of them, ascending, as a
fragment of products has of a tap, of each tap, row by row, then the next ones; the slices are
added, ascending, to +0; then the blocks of a cluster, each of which has had some of the steps; then
bias, then activation. Products are rounded before they are added. Channels past the last are
+0 · +0, taps outside of the image +0 · w. With "tf32x3" a fragment is gone through three times:
small parts of the image by big ones of the filter, big by small, big by big. Of int8, sums are of
int32, a tap outside of the image is x's zero point, and the filters' sums times it are taken off.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.implicit_gemm.tiling import (
    pixels_of,
    place_of,
    rows_of,
    taps_of,
    under_tile,
)
from dscore.algorithms.implicit_gemm_universal.tiling import (
    direct,
    element_of,
    filter_row,
    filter_sums_at,
    shape_of,
    zeros_at,
)
from dscore.backends.reference.implicit_gemm_universal_lanes import lanes_of
from dscore.backends.reference.lockstep import batches, require_launch
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
from dscore.backends.reference.ring import RingKernel
from dscore.core.errors import LaunchError
from dscore.core.plan import Plan
from dscore.core.trace import Trace


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the convolution of *plan* to the operand out."""
    kernel = _ImplicitGemmUniversal(plan, operands)
    for blocks, first in batches(plan, kernel.tiles, trace, kernel.allocate):
        kernel.place(first + lane_ids(blocks.count, 1))
        total: Any = None
        for rank in range(kernel.t.cluster):
            blocks.begin()
            kernel.put_zeros()
            kernel.accumulate(rank)
            own = kernel.own_sums()
            total = own if total is None else np.add(total, own, out=total)
        kernel.finish(total)


class _ImplicitGemmUniversal(RingKernel):
    """The geometry of a block, its two tiles, and the blocks that run at present.

    Grid order: block of the cluster fastest, then channel tile, group, pixel tile. Blocks of the
    same rank in their clusters run together, because these have the same steps.
    """

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands)
        self.lanes, self.element = lanes_of(plan), self.problem.spec.element
        needed = under_tile(self.problem, self.t.tile_p)
        if needed > self.t.patch:
            raise LaunchError(f"{plan.name}: {needed} elements of a channel lie under a tile, and "
                              f"patch has {self.t.patch}")
        self.shape = shape_of(self.problem, self.t, self.wavefront)
        self.threads = int(self.shape.waves) * self.wavefront
        self.buffer, self.steps = int(self.shape.buffer), int(self.shape.all_steps)
        self.tiles = int(self.shape.channel_tiles * self.shape.pixel_tiles) * (
            self.problem.spec.groups)
        require_launch(plan, self.tiles * self.t.cluster, self.threads)
        step, taps = self.t.step_c, taps_of(self.problem)
        self.f_channel, self.f_tap, self.f_out = split(lane_ids(self.t.tile_c * taps * step),
                                                       step, taps)
        self.filter_words = (self.f_out * int(filter_row(self.problem, self.t))
                             + self.lanes.filter_place(self.f_channel, self.f_tap))
        self.i_element, self.i_channel = np.divmod(lane_ids(self.t.patch * step), step)
        self.image_words = (int(self.shape.filters) + self.i_channel
                            + self.i_element * int(element_of(self.problem, self.t)))

    def allocate(self, blocks: Blocks) -> None:
        """Registers, and LDS, which holds the ring, the table and zeros, and then the sums."""
        self.blocks, elements = blocks, self.f_out.size + self.i_element.size
        self.lanes.allocate(blocks)
        if self.t.stages == 2:
            # Thread e % threads takes element e of the two tiles, one laid after the other.
            way = blocks.registers("tiles on their way", int(self.shape.fetched),
                                   (blocks.count, self.threads), self.element).reshape(
                                       blocks.count, -1)
        else:
            way = np.empty((blocks.count, elements), dtype=self.element.sums.numpy)
        self.filter_temp = way[:, :self.f_out.size]
        self.image_temp = way[:, self.f_out.size:elements]
        before = int(zeros_at(self.problem, self.t, self.shape)) // self.element.bytes
        self.lanes.zeros = before
        self.ring = blocks.lds_tile("the ring of buffers", int(filter_sums_at(
            self.problem, self.t, self.shape)) // self.element.bytes, self.element)
        if self.element.exact:
            blocks.lds_tile("the filters' sums", int(self.shape.filter_sums))

    def put_zeros(self) -> None:
        """A vector of zeros to LDS, in place of taps that a fragment has no more."""
        self.blocks.lds_write(self.lanes.zeros, np.zeros(
            (self.blocks.count, self.lanes.zero_elements), np.float32), element=self.element)
        self.filter_sums = np.zeros((self.blocks.count, self.t.tile_c), np.int32)

    def place(self, tile: Ints) -> None:
        """Global addresses of both tiles for the outputs numbered *tile*, for the first step."""
        spec, taps = self.problem.spec, taps_of(self.problem)
        channel_tile, self.group, pixel_tile = split(tile, int(self.shape.channel_tiles),
                                                     spec.groups)
        self.first_channel = channel_tile * self.t.tile_c
        self.first_pixel = pixel_tile * self.t.tile_p
        out = self.first_channel + self.f_out
        filters = ((self.group * spec.group_out + out) * spec.group_in + self.f_channel) * taps + (
            self.f_tap)
        images, held = self._elements()
        wanted = out < spec.group_out
        # Channels past the last are masked in the last step only.
        rest = spec.group_in - (self.steps - 1) * self.t.step_c
        self.held = (
            (Addresses(filters, wanted), Addresses(images, held)),
            (Addresses(filters, wanted & (self.f_channel < rest)),
             Addresses(images, held & (self.i_channel < rest))))
        pixel = self.first_pixel[..., None, None] + self.lanes.pixel
        apart = place_of(self.problem, pixel) - place_of(
            self.problem, self.first_pixel)[..., None, None]
        self.lanes.places = np.where(pixel < pixels_of(self.problem), apart, 0)

    def _elements(self) -> tuple[Ints, Bools]:
        """Where a patch's elements lie in memory, and which of them lie in an image."""
        problem, spec, rows = self.problem, self.problem.spec, rows_of(self.problem)
        column, row, image = split(place_of(problem, self.first_pixel) + self.i_element,
                                   rows.width, rows.rows)
        (top, _, left, _), (step_h, step_w) = problem.padding, rows.steps
        row = row // step_h * spec.stride[0] + row % step_h - top if step_h < spec.stride[0] else (
            row - top)
        column = (column // step_w * spec.stride[1] + column % step_w - left
                  if step_w < spec.stride[1] else column - left)
        held = (image < problem.batch) & inside(row, problem.height) & inside(
            column, problem.width)
        at = self.layout.at(image, self.group * spec.group_in + self.i_channel,
                            row * problem.width + column, spec.in_channels,
                            problem.height * problem.width)
        return at, held

    def fetch(self, step: int) -> None:
        """Global memory to where the tiles are on their way."""
        filters, images = self.held[step == self.steps - 1]
        first = step * self.t.step_c
        self.blocks.load(self.filter_temp, self.operands["w"], filters, "filters",
                         advance=first * taps_of(self.problem))
        area = self.problem.height * self.problem.width
        self.blocks.load(self.image_temp, self.operands["x"], images, "inputs",
                         advance=first * self.layout.channel_step(area))
        if self.element.exact:
            self.filter_sums += self.filter_temp.reshape(*self.filter_sums.shape, -1).sum(
                -1, dtype=np.int32)
            if images.masked is not None:
                np.copyto(self.image_temp, self.operands["points"][0], where=images.masked)

    def put(self, step: int) -> None:
        """The tiles on their way to the step's buffer."""
        for temp, words in ((self.filter_temp, self.filter_words),
                            (self.image_temp, self.image_words)):
            self.blocks.lds_write(self.at(step), temp, words, element=self.element)

    def own_sums(self) -> Floats:
        """The sums of a block, (row, column); of int8, the zero point of x is taken off."""
        pixel, channel, first = (np.broadcast_to(of, self.lanes.sums.shape[1:]) for of in (
            self.lanes.sum_pixel, self.lanes.channel, self.lanes.slice == 0))
        row, column = (pixel, channel) if self.layout.last else (channel, pixel)
        if self.element.exact:
            off = self.operands["points"][0] * self.filter_sums[:, channel]
            self.lanes.sums -= np.where(first, off, 0)
        if not direct(self.problem, self.t, self.wavefront):
            return self.slices(row, column)
        sums = np.empty((self.blocks.count, self.t.tile_p, self.t.tile_c), np.int32)
        sums[:, row, column] = self.lanes.sums
        return sums

    def slices(self, row: Ints, column: Ints) -> Floats:
        """The sums of all slices of a block, through LDS, added in their order."""
        t, count, last = self.t, self.blocks.count, self.layout.last
        shape, sum_row = self.lanes.sums.shape[1:], int(self.shape.sum_row)
        rows, columns = (t.tile_p, t.tile_c) if last else (t.tile_c, t.tile_p)
        words = (self.lanes.slice * rows + row) * sum_row + column
        self.blocks.lds_write(0, self.lanes.sums.reshape(count, -1),
                              np.broadcast_to(words, shape).ravel(), self.element.sums)
        of, at_row, at_column = np.ogrid[:t.slices, :rows, :columns]
        sums = np.empty((count, t.slices, rows, columns), self.element.sums.numpy)
        self.blocks.lds_read(sums, Addresses((of * rows + at_row) * sum_row + at_column), 0,
                             operand=False, element=self.element.sums)
        total = np.zeros_like(sums[:, 0])
        for at in range(t.slices):
            np.add(total, sums[:, at], out=total)
        return total

    def finish(self, sums: Floats) -> None:
        """Bias, activation and the stores of sums (block, row, column)."""
        spec, area = self.problem.spec, self.problem.out_height * self.problem.out_width
        row, column = np.ogrid[:sums.shape[1], :sums.shape[2]]
        pixel, channel = (row, column) if self.layout.last else (column, row)
        pixel, channel = (first[..., None] + of for first, of in (
            (self.first_pixel, pixel), (self.first_channel, channel)))
        mask = (channel < spec.group_out) & (pixel < pixels_of(self.problem))
        channel = self.group[..., None] * spec.group_out + channel
        at = Addresses(self.layout.at(pixel // area, channel, pixel % area, spec.out_channels,
                                      area), mask)
        channel = np.broadcast_to(channel, sums.shape)
        self.blocks.store(self.out, at, self.epilogue(self.blocks, sums, channel, at))
