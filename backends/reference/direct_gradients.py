"""Gradients by the direct definition, lane by lane (hip_src/direct/*_gradient.hpp).

Order of additions, for an element of x: output channels of the group, within these filter rows,
within these filter columns, all ascending, beginning with +0; taps that no output has are left out.
For an element of the filter: outputs that lie a block's threads apart, ascending through all
images; then the lanes of a wavefront, of which each half is added to the other; then the
wavefronts. Products are rounded before they are added.
"""

from __future__ import annotations

import numpy as np

from dscore.algorithms.columns import ceil_div
from dscore.backends.reference.lockstep import LockstepKernel, batches, require_launch
from dscore.backends.reference.machine import (
    Addresses,
    Blocks,
    Bools,
    Ints,
    Operands,
    inside,
    lane_ids,
    split,
)
from dscore.core.plan import Plan
from dscore.core.trace import Trace


def run_input_gradient(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the gradient of the input to the operand out."""
    kernel = _InputGradient(plan, operands)
    for blocks, first in batches(plan, plan.launch.blocks, trace, kernel.allocate):
        blocks.begin()
        kernel.gather(first + lane_ids(blocks.count, 1, 1))


def run_weight_gradient(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the gradient of the filter to the operand out."""
    kernel = _WeightGradient(plan, operands)
    for blocks, first in batches(plan, plan.launch.blocks, trace, kernel.allocate):
        blocks.begin()
        kernel.accumulate(first + lane_ids(blocks.count, 1, 1))


class _InputGradient(LockstepKernel):
    """Blocks in the order: pixel tile of x fastest, then channel tile, group, image."""

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands)
        problem, spec = self.problem, self.problem.spec
        self.pixels = problem.height * problem.width
        self.tiles = ceil_div(self.pixels, self.t.threads), ceil_div(spec.group_in, self.t.thread_c)
        require_launch(plan, int(np.prod(self.tiles)) * spec.groups * problem.batch, self.t.threads)
        self.thread = lane_ids(1, self.t.threads // self.wavefront, self.wavefront)

    def allocate(self, blocks: Blocks) -> None:
        """Registers: sums, filter elements, the gradient's element."""
        self.blocks = blocks
        self.sums = blocks.registers("sums", self.t.thread_c)
        self.weights = blocks.registers("filter elements", self.t.thread_c)
        [self.value] = blocks.registers("the gradient's element", 1)
        self.product = np.empty_like(self.value)

    def gather(self, block: Ints) -> None:
        """All products of these blocks' elements of x, then the stores."""
        problem, spec = self.problem, self.problem.spec
        tile, channel_tile, group, image = split(block, *self.tiles, spec.groups)
        pixel = tile * self.t.threads + self.thread
        row, column = np.divmod(pixel, problem.width)
        row, column = row + problem.padding[0], column + problem.padding[2]
        k = channel_tile * self.t.thread_c + lane_ids(self.t.thread_c, 1, 1, 1)
        held, area = (k < spec.group_in) & (pixel < self.pixels), problem.out_height * (
            problem.out_width)
        self.sums.fill(0)
        for o in range(spec.group_out):
            channel = group * spec.group_out + o
            for tap in np.ndindex(*spec.kernel):
                r, c, met = self._outputs(row, column, tap)
                met &= pixel < self.pixels
                at = self.layout.at(image, channel, r * problem.out_width + c, spec.out_channels,
                                    area)
                self.blocks.load(self.value, self.operands["gradient"], Addresses(at, met),
                                 "inputs", operand=True)
                filters = ((channel * spec.group_in + k) * spec.kernel[0] + tap[0]) * (
                    spec.kernel[1]) + tap[1]
                for j in range(self.t.thread_c):
                    lanes = met & held[j]
                    self.blocks.load(self.weights[j], self.operands["w"],
                                     Addresses(filters[j], lanes), "filters", operand=True)
                    self.blocks.fma(self.sums[j], self.value, self.weights[j], self.product,
                                    lanes, predicated=True)
        for j in range(self.t.thread_c):
            at = self.layout.at(image, group * spec.group_in + k[j], pixel, spec.in_channels,
                                self.pixels)
            self.blocks.store(self.out, Addresses(at, held[j]), self.sums[j])

    def _outputs(self, row: Ints, column: Ints, tap: tuple[int, ...]) -> tuple[Ints, Ints, Bools]:
        """Row and column of the output whose *tap* lies on an element, and whether there is one."""
        problem, spec = self.problem, self.problem.spec
        (r, above), (c, beside) = (
            np.divmod(place - at * dilation, stride) for place, at, dilation, stride
            in zip((row, column), tap, spec.dilation, spec.stride, strict=True))
        return r, c, ((above == 0) & (beside == 0) & inside(r, problem.out_height)
                      & inside(c, problem.out_width))


class _WeightGradient(LockstepKernel):
    """Blocks in the order: tap fastest, then input channel of the group, channel tile, group."""

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands)
        problem, spec = self.problem, self.problem.spec
        self.area = problem.out_height * problem.out_width
        self.channel_tiles = ceil_div(spec.group_out, self.t.thread_c)
        require_launch(plan, spec.products * self.channel_tiles * spec.groups, self.t.threads)
        self.waves = self.t.threads // self.wavefront
        self.thread = lane_ids(1, self.waves, self.wavefront)

    def allocate(self, blocks: Blocks) -> None:
        """Registers: sums, gradients, the input's element; LDS: the wavefronts' sums."""
        self.blocks = blocks
        self.sums = blocks.registers("sums", self.t.thread_c)
        self.gradients = blocks.registers("gradients", self.t.thread_c)
        [self.value] = blocks.registers("the input's element", 1)
        self.product = np.empty_like(self.value)
        self.parts = blocks.lds_tile("the wavefronts' sums", self.waves * self.t.thread_c)

    def accumulate(self, block: Ints) -> None:
        """The sums of these blocks' taps, then the stores."""
        problem, spec = self.problem, self.problem.spec
        tap, c, channel_tile, group = split(block, *[spec.kernel[0] * spec.kernel[1],
                                                     spec.group_in, self.channel_tiles])
        f, g = np.divmod(tap, spec.kernel[1])
        first = channel_tile * self.t.thread_c
        self.sums.fill(0)
        for start in range(0, problem.batch * self.area, self.t.threads):
            at = start + self.thread
            image, pixel = np.divmod(at, self.area)
            row, column = np.divmod(pixel, problem.out_width)
            i = row * spec.stride[0] + f * spec.dilation[0] - problem.padding[0]
            j = column * spec.stride[1] + g * spec.dilation[1] - problem.padding[2]
            met = ((at < problem.batch * self.area) & inside(i, problem.height)
                   & inside(j, problem.width))
            inputs = self.layout.at(image, group * spec.group_in + c, i * problem.width + j,
                                    spec.in_channels, problem.height * problem.width)
            self.blocks.load(self.value, self.operands["x"], Addresses(inputs, met), "inputs",
                             operand=True)
            for k in range(self.t.thread_c):
                lanes = met & (first + k < spec.group_out)
                outputs = self.layout.at(image, group * spec.group_out + first + k, pixel,
                                         spec.out_channels, self.area)
                self.blocks.load(self.gradients[k], self.operands["gradient"],
                                 Addresses(outputs, lanes), "inputs", operand=True)
                self.blocks.fma(self.sums[k], self.value, self.gradients[k], self.product, lanes,
                                predicated=True)
        filters = (group * spec.group_out + first) * spec.group_in + c
        self._finish(filters[:, 0, 0], tap[:, 0, 0], first[:, 0, 0])

    def _finish(self, filters: Ints, tap: Ints, first: Ints) -> None:
        """Add the lanes and the wavefronts of each block, and store its elements."""
        spec, by, count = self.problem.spec, self.wavefront // 2, self.t.thread_c
        while by:
            np.add(self.sums, self.blocks.shfl_down(self.sums, by, self.wavefront), out=self.sums)
            by //= 2
        self.blocks.lds_write(self.parts, np.moveaxis(self.sums[..., 0], 0, -1).reshape(
            self.blocks.count, -1))
        total, part = (np.empty((self.blocks.count, count), dtype=np.float32) for _ in range(2))
        for wave in range(self.waves):
            of_wave = Addresses(wave * count + lane_ids(count))
            self.blocks.lds_read(part if wave else total, of_wave, self.parts, operand=False)
            if wave:
                np.add(total, part, out=total)
        k = lane_ids(1, count)
        at = (filters[:, None] + k * spec.group_in) * (spec.kernel[0] * spec.kernel[1]) + (
            tap[:, None])
        self.blocks.store(self.out, Addresses(at, first[:, None] + k < spec.group_out), total)
