"""Pointwise convolution as a product of matrices in register tiles (hip_src/gemm/kernel.hpp), and
its input gradient (hip_src/gemm/input_gradient.hpp), where the filters are turned.

Order of additions, for one output: slice ``s`` of the wavefronts sums the channels
``[s · slice, (s + 1) · slice)`` of every step, ascending, beginning with +0; the slices are added
to the first, ascending; then the blocks of a cluster, each of which has had some of the steps;
then bias, then activation. Products are rounded before they are added. Channels past the last are
+0 · +0. With "tf32x3" the channels of a slice come in eights, which are gone through three times
(small parts of the image by big ones of the filter, big by small, big by big), even channels
before odd ones. In an input gradient the channels summed are those of the output.
"""

from __future__ import annotations

import numpy as np

from dscore.algorithms.columns import ceil_div
from dscore.algorithms.gemm.tiling import rows_of, shape_of, sizes_of, turned
from dscore.backends.reference.gemm_lanes import lanes_of
from dscore.backends.reference.lockstep import require_launch
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
from dscore.backends.reference.ring import RingKernel, run_tiles
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.core.trace import Trace


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the convolution of *plan* to the operand out."""
    run_tiles(plan, _Gemm(plan, operands, operands["x"]), trace)


def run_input_gradient(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the input gradient of *plan* to the operand out."""
    run_tiles(plan, _Gemm(plan, operands, operands["gradient"]), trace)


def read_at(problem: ConvProblem, pixel: Ints) -> tuple[Ints, Ints, Bools]:
    """Image and place in it of what each result is made of, and whether there is any."""
    (stride_h, stride_w), (top, _, left, _) = problem.spec.stride, problem.padding
    if turned(problem):
        column, row, image = split(pixel, problem.width, problem.height)
        (row, row_left), (column, column_left) = (
            np.divmod(row + top, stride_h), np.divmod(column + left, stride_w))
        height, width = problem.out_height, problem.out_width
        reached = (row_left == 0) & (column_left == 0)
    else:
        column, row, image = split(pixel, problem.out_width, problem.out_height)
        row, column = row * stride_h - top, column * stride_w - left
        height, width = problem.height, problem.width
        reached = np.bool_(True)
    held = (pixel < sizes_of(problem).pixels) & inside(row, height) & inside(column, width)
    return image, row * width + column, held & reached


class _Gemm(RingKernel):
    """The geometry of a block, its two tiles, and the blocks that run at present.

    Grid order: block of the cluster fastest, then channel tile, pixel tile. Blocks of the same
    rank in their clusters run together, because these have the same steps.
    """

    def __init__(self, plan: Plan, operands: Operands, images: Floats) -> None:
        super().__init__(plan, operands)
        self.x, self.w = images, operands["w"]
        self.sizes, self.turned = sizes_of(self.problem), turned(self.problem)
        self.lanes = lanes_of(plan)
        self.shape = shape_of(self.problem, self.t, self.wavefront)
        self.threads = int(self.shape.waves) * self.wavefront
        self.buffer = int(self.shape.buffer)
        self.steps = ceil_div(self.sizes.depth, self.t.step_c)
        self.tiles = int(self.shape.channel_tiles * self.shape.pixel_tiles)
        require_launch(plan, self.tiles * self.t.cluster, self.threads)
        self._map_tiles()

    def _map_tiles(self) -> None:
        """Row and column of the elements of both tiles, and the words of a buffer they go to."""
        t, (filter_row, image_row) = self.t, rows_of(self.problem, self.t)
        # By their order in memory: the channels of the results and those summed, or turned.
        if self.turned:
            self.f_channel, self.f_out = np.divmod(lane_ids(t.step_c * t.tile_c), t.tile_c)
            self.filter_words = self.f_channel * filter_row + self.f_out
        else:
            self.f_out, self.f_channel = np.divmod(lane_ids(t.tile_c * t.step_c), t.step_c)
            self.filter_words = self.f_out * filter_row + self.f_channel
        self.i_channel, self.i_pixel = np.divmod(lane_ids(t.step_c * t.tile_p), t.tile_p)
        self.image_words = int(self.shape.filters) + self.i_channel * image_row + self.i_pixel

    def allocate(self, blocks: Blocks) -> None:
        """Registers, and LDS, which holds the ring and then the slices' sums."""
        self.blocks, elements = blocks, self.f_out.size + self.i_pixel.size
        self.lanes.allocate(blocks)
        if self.t.stages == 2:
            # Thread e % threads takes element e of the two tiles, one laid after the other.
            way = blocks.registers("tiles on their way", int(self.shape.fetched),
                                   (blocks.count, self.threads)).reshape(blocks.count, -1)
        else:
            way = np.empty((blocks.count, elements), dtype=np.float32)
        self.filter_temp = way[:, :self.f_out.size]
        self.image_temp = way[:, self.f_out.size:elements]
        words = max(self.t.stages * self.buffer, int(self.shape.joined))
        self.ring = blocks.lds_tile("the ring of buffers", words)

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
        whole = Addresses(f_index, f_held), Addresses(index, held)
        last = held & (self.i_channel < rest)
        self.held = (whole, whole if rest == self.t.step_c else (
            Addresses(f_index, f_held & (self.f_channel < rest)), Addresses(index, last)))
        self.scales = Addresses(plane, held), Addresses(plane, last)

    def fetch(self, step: int) -> None:
        """Global memory to where the tiles are on their way."""
        first, (filters, images) = step * self.t.step_c, self.held[step == self.steps - 1]
        self.blocks.load(self.filter_temp, self.w, filters, "filters",
                         advance=first * (self.sizes.channels if self.turned else 1))
        self.blocks.load(self.image_temp, self.x, images, "inputs",
                         advance=first * self.sizes.area_read)
        self.scaled(self.blocks, self.image_temp, self.scales[step == self.steps - 1], first)

    def put(self, step: int) -> None:
        self.blocks.lds_write(self.at(step), self.filter_temp, self.filter_words)
        self.blocks.lds_write(self.at(step), self.image_temp, self.image_words)

    def finish(self) -> None:
        """Bias, activation and the stores of the first slice."""
        area, slice_waves = self.sizes.area, int(self.shape.slice_waves)
        shape = (*self.lanes.registers, *self.blocks.shape[1:])
        channel, pixel = (
            first[..., None] + np.broadcast_to(of, shape)[..., :slice_waves, :].reshape(
                self.joined.shape[1:])
            for first, of in ((self.first_channel, self.lanes.channel),
                              (self.first_pixel, self.lanes.pixel)))
        mask = (channel < self.sizes.channels) & (pixel < self.sizes.pixels)
        plane = pixel // area * self.sizes.channels + channel
        if self.turned:
            # Of a pixel that no output was made of, zero by an infinite filter is no number.
            np.copyto(self.joined, 0, where=~read_at(self.problem, pixel)[2])
        at = Addresses(plane * area + pixel % area, mask)
        self.blocks.store(self.out, at, self.epilogue(self.blocks, self.joined, channel, at))
