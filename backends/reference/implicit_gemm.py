"""Dense and grouped convolution as an implicit product of matrices (hip_src/implicit_gemm).

Order of additions, for one output: slice ``s`` of the wavefronts sums the channels
``[s · slice, (s + 1) · slice)`` of every step, ascending, and within these the taps, row by row,
beginning with +0; the slices are added to the first, ascending; then the blocks of a cluster, each
of which has had some of the steps; then bias, then activation. Products are rounded before they are
added. Channels past the last are +0 · +0, taps outside of the image +0 · w. With "tf32x3" products
come in eights (`implicit_gemm_lanes.py`), which are gone through three times: small parts of the
image by big ones of the filter, big by small, big by big.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.implicit_gemm.tiling import (
    filter_row,
    pixels_of,
    place_of,
    rows_of,
    shape_of,
    table_bytes,
    taps_of,
    under_tile,
)
from dscore.backends.reference.implicit_gemm_lanes import lanes_of
from dscore.backends.reference.lockstep import require_launch
from dscore.backends.reference.machine import (
    Addresses,
    Blocks,
    Ints,
    Operands,
    inside,
    lane_ids,
    split,
)
from dscore.backends.reference.ring import RingKernel, run_tiles
from dscore.core.errors import LaunchError
from dscore.core.numerics import WORD_BYTES
from dscore.core.plan import Plan
from dscore.core.trace import Trace


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the convolution of *plan* to the operand out."""
    shape = shape_of(plan.problem, plan.tiling, plan.device.wavefront)
    run_tiles(plan, ImplicitKernel(plan, operands, lanes_of(plan), shape), trace)


class ImplicitKernel(RingKernel):
    """The geometry of a block, its two tiles, and the blocks that run at present.

    *lanes* are those of a block, *shape* is its geometry. Grid order: block of the cluster fastest,
    then channel tile, group, pixel tile. Blocks of the same rank in their clusters run together,
    because these have the same steps.
    """

    through_registers: ClassVar[bool] = True  # a ring of two buffers is filled

    def __init__(self, plan: Plan, operands: Operands, lanes: Any, shape: Any) -> None:
        super().__init__(plan, operands)
        self.lanes, self.shape = lanes, shape
        self.fetches = self.t.stages == 2 and self.through_registers
        needed = under_tile(self.problem, self.t.tile_p)
        if needed > self.t.patch:
            raise LaunchError(f"{plan.name}: {needed} elements of a channel lie under a tile, and "
                              f"patch has {self.t.patch}")
        self.threads = int(self.shape.waves) * self.wavefront
        self.buffer, self.steps = int(self.shape.buffer), int(self.shape.all_steps)
        self.tiles = int(self.shape.channel_tiles * self.shape.pixel_tiles) * (
            self.problem.spec.groups)
        require_launch(plan, self.tiles * self.t.cluster, self.threads)
        self.row = self.t.step_c * taps_of(self.problem)
        self.f_out, self.f_column = np.divmod(lane_ids(self.t.tile_c * self.row), self.row)
        self.filter_words = self.f_out * int(filter_row(self.problem, self.t)) + self.f_column
        self.i_channel, self.i_element = np.divmod(lane_ids(self.t.step_c * self.t.patch),
                                                   self.t.patch)
        self.image_words = int(self.shape.filters) + lane_ids(self.i_channel.size)

    def allocate(self, blocks: Blocks) -> None:
        """Registers, and LDS, which holds the ring and the table, and then the slices' sums."""
        self.blocks, elements = blocks, self.f_out.size + self.i_element.size
        self.lanes.allocate(blocks)
        if self.fetches:
            # Thread e % threads takes element e of the two tiles, one laid after the other.
            way = blocks.registers("tiles on their way", int(self.shape.fetched),
                                   (blocks.count, self.threads)).reshape(blocks.count, -1)
        else:
            way = np.empty((blocks.count, elements), dtype=np.float32)
        self.filter_temp = way[:, :self.f_out.size]
        self.image_temp = way[:, self.f_out.size:elements]
        words = self.t.stages * self.buffer + int(table_bytes(self.t)) // WORD_BYTES
        self.ring = self.take_lds(blocks, words)

    def take_lds(self, blocks: Blocks, words: int) -> int:
        """The first word of the ring and the table, which have *words*."""
        return blocks.lds_tile("the ring of buffers", max(words, int(self.shape.joined)))

    def place(self, tile: Ints) -> None:
        """Global addresses of both tiles for the outputs numbered *tile*, for the first step."""
        spec = self.problem.spec
        channel_tile, self.group, pixel_tile = split(tile, int(self.shape.channel_tiles),
                                                     spec.groups)
        self.first_channel = channel_tile * self.t.tile_c
        self.first_pixel = pixel_tile * self.t.tile_p
        out = self.first_channel + self.f_out
        filters = (self.group * spec.group_out + out) * spec.products + self.f_column
        images, held = self._elements()
        wanted = out < spec.group_out
        # Channels past the last are masked in the last step only.
        rest = spec.group_in - (self.steps - 1) * self.t.step_c
        self.held = (
            (Addresses(filters, wanted), Addresses(images, held)),
            (Addresses(filters, wanted & (self.f_column < rest * taps_of(self.problem))),
             Addresses(images, held & (self.i_channel < rest))))
        pixel = self.first_pixel[..., None, None] + self.lanes.pixel
        apart = place_of(self.problem, pixel) - place_of(
            self.problem, self.first_pixel)[..., None, None]
        self.lanes.place(np.where(pixel < pixels_of(self.problem), apart, 0))

    def _elements(self) -> tuple[Ints, np.ndarray]:
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
        channel = self.group * spec.group_in + self.i_channel
        plane = (image * spec.in_channels + channel) * problem.height
        return (plane + row) * problem.width + column, held

    def fetch(self, step: int) -> None:
        """Global memory to where the tiles are on their way."""
        filters, images = self.held[step == self.steps - 1]
        self.blocks.load(self.filter_temp, self.operands["w"], filters, "filters",
                         advance=step * self.row)
        self.blocks.load(self.image_temp, self.operands["x"], images, "inputs",
                         advance=step * self.t.step_c * self.problem.height * self.problem.width)

    def put(self, step: int) -> None:
        """The tiles on their way to the step's buffer."""
        self.blocks.lds_write(self.at(step), self.filter_temp, self.filter_words)
        self.blocks.lds_write(self.at(step), self.image_temp, self.image_words)

    def finish(self) -> None:
        """Bias, activation and the stores of the first slice."""
        spec, slice_waves = self.problem.spec, int(self.shape.slice_waves)
        area = self.problem.out_height * self.problem.out_width
        shape = (*self.lanes.registers, *self.blocks.shape[1:])
        channel, pixel = (
            first[..., None] + np.broadcast_to(of, shape)[..., :slice_waves, :].reshape(
                self.joined.shape[1:])
            for first, of in ((self.first_channel, self.lanes.channel),
                              (self.first_pixel, self.lanes.sum_pixel)))
        mask = (channel < spec.group_out) & (pixel < pixels_of(self.problem))
        channel = self.group[..., None] * spec.group_out + channel
        at = Addresses((pixel // area * spec.out_channels + channel) * area + pixel % area, mask)
        self.blocks.store(self.out, at, self.epilogue(self.blocks, self.joined, channel, at))
