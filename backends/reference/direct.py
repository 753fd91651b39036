"""The direct definition, a thread per pixel and a few output channels, lane by lane.

Order of additions, for one output: input channels of the group, within these kernel rows, within
these kernel columns, all ascending, beginning with +0; then bias, then activation. Products are
rounded before they are added. Taps that lie in the padding are +0 · w. Of int8, sums are of int32,
and x counts from its zero point.
"""

from __future__ import annotations

import numpy as np

from dscore.algorithms.columns import ceil_div
from dscore.backends.reference.direct_gradients import run_input_gradient, run_weight_gradient
from dscore.backends.reference.direct_mean import run_mean
from dscore.backends.reference.direct_quantise import run_quantise
from dscore.backends.reference.lockstep import LockstepKernel, require_launch
from dscore.backends.reference.machine import (
    Addresses,
    Blocks,
    Ints,
    Operands,
    chunks,
    inside,
    lane_ids,
)
from dscore.core.plan import Plan
from dscore.core.trace import Trace

__all__ = ["run", "run_input_gradient", "run_mean", "run_quantise", "run_weight_gradient"]
# Of the blocks that run together: pixels side by side, and sums (2 MiB).
PIXEL_LANES = 4096
BLOCK_SUMS = 1 << 19


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the convolution of *plan* to the operand out."""
    kernel = _Direct(plan, operands)
    t, spec = kernel.t, plan.problem.spec
    planes, tiles = plan.problem.batch * spec.groups, kernel.pixel_tiles
    # A chunk is a box of the grid: pixel tiles x channel tiles x (image, group) pairs.
    pixel_step = min(tiles, max(1, PIXEL_LANES // t.threads))
    sums = pixel_step * t.threads * t.thread_c
    channel_step = min(kernel.channel_tiles, max(1, BLOCK_SUMS // sums))
    plane_step = max(1, BLOCK_SUMS // (sums * channel_step))
    for first_plane, planes_now in chunks(planes, plane_step):
        for first_tile, tiles_now in chunks(tiles, pixel_step):
            plane, pixel = kernel.place(first_plane + lane_ids(planes_now),
                                        first_tile * t.threads + lane_ids(tiles_now * t.threads))
            for first, count in chunks(kernel.channel_tiles, channel_step):
                blocks = Blocks(plan, planes_now * tiles_now * count, trace)
                kernel.sum_channels(blocks, plane, pixel, first + lane_ids(1, count, 1))


class _Direct(LockstepKernel):
    """Blocks in the order: pixel tile fastest, then channel tile, group, image.

    Lanes are an array (image and group, channel tile, pixel). The pixels of a channel tile share
    their filter elements, and the channel tiles of a pixel its input element, in axes of 1.
    """

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands)
        self.w = operands["w"]
        spec, self.pixels = self.problem.spec, self.problem.out_height * self.problem.out_width
        self.pixel_tiles = ceil_div(self.pixels, self.t.threads)
        self.channel_tiles = ceil_div(spec.group_out, self.t.thread_c)
        require_launch(plan, self.pixel_tiles * self.channel_tiles * spec.groups
                       * self.problem.batch, self.t.threads)

    def place(self, plane: Ints, pixel: Ints) -> tuple[Ints, Ints]:
        """Addresses of the first channel's elements under every tap, for these lanes' pixels."""
        problem, spec = self.problem, self.problem.spec
        plane, pixel = plane[:, None, None], pixel[None, None, :]
        base = self.layout.of_group(plane, spec.groups, spec.group_in,
                                    problem.height * problem.width)
        row = pixel // problem.out_width * spec.stride[0] - problem.padding[0]
        column = pixel % problem.out_width * spec.stride[1] - problem.padding[2]
        self.taps = []
        for f in range(spec.kernel[0]):
            in_row = row + f * spec.dilation[0]
            rows = (pixel < self.pixels) & inside(in_row, problem.height)
            for g in range(spec.kernel[1]):
                in_column = column + g * spec.dilation[1]
                in_pixel = (in_row * problem.width + in_column) * self.layout.pixel_step(
                    spec.in_channels)
                self.taps.append(Addresses(base + in_pixel,
                                           rows & inside(in_column, problem.width)))
        return plane, pixel

    def sum_channels(self, blocks: Blocks, plane: Ints, pixel: Ints, tile: Ints) -> None:
        """All products of the channel tiles *tile*, then the stores."""
        problem, spec, t = self.problem, self.problem.spec, self.t
        lanes = (plane.size, tile.size, pixel.size)
        sums = blocks.registers("sums", t.thread_c, lanes)
        weights = blocks.registers("filter elements", t.thread_c, (plane.size, tile.size, 1))
        [value] = blocks.registers("the input element", 1, (plane.size, 1, pixel.size))
        blocks.begin()
        product = np.empty(lanes, dtype=sums.dtype)
        live = int(np.count_nonzero(pixel < self.pixels))
        k = tile * t.thread_c + lane_ids(t.thread_c, 1, 1, 1)
        channel, held = plane % spec.groups * spec.group_out + k, k < spec.group_out
        filters = Addresses(channel * spec.products, held)
        scales = [Addresses(plane * spec.in_channels, inputs.live)  # of one group
                  for inputs in self.taps if spec.scaled]
        channel_step = self.layout.channel_step(problem.height * problem.width)
        sums.fill(0)
        for c in range(spec.group_in):
            for tap, inputs in enumerate(self.taps):
                self.load_x(blocks, value, inputs, c * channel_step, operand=True,
                            lanes=tile.size)
                if spec.scaled:
                    self.scaled(blocks, value, scales[tap], c)
                self.distances(value, inputs.live)
                blocks.load(weights, self.w, filters, "filters", c * len(self.taps) + tap,
                            operand=True, lanes=live)
                for j in range(t.thread_c):
                    blocks.fma(sums[j], value, weights[j], product, pixel < self.pixels)
        for j in range(t.thread_c):
            index = self.layout.at(plane // spec.groups, channel[j], pixel, spec.out_channels,
                                   self.pixels)
            at = Addresses(index, held[j] & (pixel < self.pixels))
            blocks.store(self.out, at,
                         self.epilogue(blocks, sums[j], channel[j] + 0 * pixel, at))
