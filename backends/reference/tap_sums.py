"""Weight gradient of depthwise layers: for each tap, sums over all images and outputs.

A thread keeps the sums of its taps in registers and walks over rows of x, each of which it reads
once, with the rows of the gradient over it. All rows of a block come through LDS, in one piece of
each image as they lie in memory.
Order of additions, for one tap of a thread: units (rows of some images), within these rows of x,
within these columns of the gradient, all ascending, beginning with +0. The threads of a channel's
sums (image, strip, lane) are added by some lanes: lane k adds those of threads k, k + lanes, …,
then each half of the lanes is added to the other; then the blocks of a cluster, ascending. The
slices are added by groups in the same way, then the groups, ascending. Products are rounded before
they are added. A row outside x is left out; a column outside it is +0 · gradient.
"""

from __future__ import annotations

import numpy as np

from dscore.algorithms.base import BARRIER_BYTES
from dscore.algorithms.columns import ceil_div
from dscore.algorithms.tap_sums.tiling import (
    TapSumsTiling,
    blocks,
    column_offsets,
    part_groups,
    reducers_of,
    shape_of,
)
from dscore.backends.reference.lockstep import LockstepKernel, batches, require_launch
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
from dscore.backends.reference.vectors import Piece
from dscore.core.errors import LaunchError
from dscore.core.numerics import WORD_BYTES
from dscore.core.plan import Plan
from dscore.core.trace import Trace


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the weight gradient of *plan* to the operand out."""
    kernel = _TapSums(plan, operands)
    for some, first in batches(plan, kernel.clusters, trace, kernel.allocate):
        kernel.place(first + lane_ids(some.count, 1, 1))
        of_blocks = []
        for rank in range(kernel.t.cluster):
            some.begin()
            kernel.accumulate(rank)
            of_blocks.append(kernel.reduced())
        kernel.store(ascending(of_blocks))
    if kernel.slices > 1:
        operands["out"][:] = added(kernel.parts)


def ascending(values: list[Floats]) -> Floats:
    """Their sum, one after the other."""
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def added(parts: Floats) -> Floats:
    """The sum of slices, a row each: of the launch that follows."""
    groups = part_groups(len(parts))
    sums = np.zeros((groups, parts.shape[1]), dtype=np.float32)
    for part, values in enumerate(parts):
        sums[part % groups] += values
    for other in sums[1:]:
        sums[0] += other
    first: Floats = sums[0]
    return first


class _TapSums(LockstepKernel):
    """The walk over the rows of x, and the reduction.

    Grid order: block of the cluster fastest, then channel tile, slice, tile of taps. Blocks of the
    same rank in their clusters run together.
    """

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands)
        self.x, self.gradient = operands["x"], operands["gradient"]
        problem, t, S = self.problem, self.t, self.wavefront
        _require_rows(plan, t)
        self.shape = shape_of(problem, t)
        self.slices, self.used_threads = t.slices, int(self.shape.threads)
        waves = int(ceil_div(self.used_threads, S))
        self.threads = waves * S
        self.channel_tiles = ceil_div(problem.spec.out_channels, t.planes)
        self.tap_rows = ceil_div(problem.spec.kernel[0], t.taps_h)
        self.clusters = int(blocks(problem, t)) // t.cluster
        require_launch(plan, self.clusters * t.cluster, self.threads)
        self.offsets = column_offsets(problem, t.thread_w, t.taps_w)
        self.register_of = {offset: number for number, offset in enumerate(self.offsets)}
        # The result, or that of each slice.
        sums = problem.spec.out_channels * problem.spec.products
        self.parts = (np.full((t.slices, sums), np.nan, dtype=np.float32) if t.slices > 1
                      else self.out.reshape(1, sums))
        self.thread = lane_ids(waves, S)
        self.lane, self.strip, self.plane, self.image = split(
            self.thread, t.lanes_w, t.lanes_h, t.planes)

    def allocate(self, some: Blocks) -> None:
        """Registers: the sums, the live rows of the gradient, a row of x; LDS: the stages."""
        t, self.blocks = self.t, some
        self.sums = some.registers("the sums", t.taps_h * t.taps_w)
        self.given = some.registers("rows of the gradient",
                                    int(self.shape.live_rows) * t.thread_w)
        self.row = some.registers("a row of x", len(self.offsets))
        self.product = np.empty_like(self.row[0])
        self.stages = [[(Piece(some, "the rows of x", int(self.shape.span_x)),
                         Piece(some, "the gradient's rows", int(self.shape.span_g)))
                        for _ in range(t.images)] for _ in range(t.stages)]
        some.lds_tile("the count of bytes that have come", t.stages * BARRIER_BYTES // WORD_BYTES)

    def place(self, block: Ints) -> None:
        """Channels, slices and taps of the clusters numbered *block*."""
        problem, spec, t = self.problem, self.problem.spec, self.t
        channel_tile, self.slice, tap_row, tap_column = split(
            block, self.channel_tiles, t.slices, self.tap_rows)
        self.first_channel = channel_tile * t.planes
        self.first_tap = tap_row * t.taps_h, tap_column * t.taps_w
        self.pad = tuple(pad - tap * dilation for pad, tap, dilation in zip(
            problem.padding[::2], self.first_tap, spec.dilation, strict=True))
        # Rows and columns past the last tap of the last output are not read.
        self.end = tuple(
            np.clip((outputs - 1) * stride + (taps - 1) * dilation + 1 - pad, 0, size)
            for outputs, stride, taps, dilation, pad, size in zip(
                (problem.out_height, problem.out_width), spec.stride, (t.taps_h, t.taps_w),
                spec.dilation, self.pad, (problem.height, problem.width), strict=True))

    def accumulate(self, rank: int) -> None:
        """All units of the blocks of that rank, one after the other."""
        self.sums.fill(0)
        size, row_tiles = int(self.shape.unit_slices), int(self.shape.row_tiles)
        for step in range(size):
            unit = (self.slice * self.t.cluster + rank) * size + step
            there = unit < self.shape.units
            stage = self.stages[step % self.t.stages]
            self.stage(stage, unit // row_tiles * self.t.images, unit % row_tiles, there)
            self.walk(stage, unit // row_tiles * self.t.images, unit % row_tiles, there)

    def stage(self, stage: list[tuple[Piece, Piece]], image: Ints, row_tile: Ints,
              there: Bools) -> None:
        """Copies of the rows of each image."""
        problem, spec, t = self.problem, self.problem.spec, self.t
        last = np.minimum(self.first_channel + t.planes, spec.out_channels) - 1
        top = row_tile * t.lanes_h * t.thread_h
        x_top = top * spec.stride[0] - self.pad[0]
        x_end = np.minimum(x_top + int(self.shape.tile_h), self.end[0])
        end = np.minimum(top + t.lanes_h * t.thread_h, problem.out_height)
        for m, (x_piece, gradient_piece) in enumerate(stage):
            n, held = image + m, there & (image + m < problem.batch)
            for piece, memory, first, past in (
                    (x_piece, self.x,
                     self.x_plane(n, self.first_channel) + np.maximum(x_top, 0) * problem.width,
                     self.x_plane(n, last) + x_end * problem.width),
                    (gradient_piece, self.gradient,
                     self.gradient_plane(n, self.first_channel) + top * problem.out_width,
                     self.gradient_plane(n, last) + end * problem.out_width)):
                piece.place(np.where(held, first, 0), np.where(held, past, 0))
                piece.copy(memory, "inputs")

    def x_plane(self, n: Ints, channel: Ints) -> Ints:
        """First element of x under a channel of the gradient."""
        plane: Ints = n * self.problem.spec.in_channels + channel // self.problem.spec.group_out
        return plane * (self.problem.height * self.problem.width)

    def gradient_plane(self, n: Ints, channel: Ints) -> Ints:
        """First element of a plane of the gradient."""
        plane: Ints = n * self.problem.spec.out_channels + channel
        return plane * (self.problem.out_height * self.problem.out_width)

    def walk(self, stage: list[tuple[Piece, Piece]], image: Ints, row_tile: Ints,
             there: Bools) -> None:
        """Every row of x once, with all rows of the gradient that it lies under."""
        problem, spec, t = self.problem, self.problem.spec, self.t
        n, channel = image + self.image, self.first_channel + self.plane
        row = (row_tile * t.lanes_h + self.strip) * t.thread_h
        column = self.lane * t.thread_w
        live = (there & (self.thread < self.used_threads) & (channel < spec.out_channels)
                & (n < problem.batch) & (row < problem.out_height))
        x_row, x_column = row * spec.stride[0] - self.pad[0], column * spec.stride[1] - self.pad[1]
        x_at = self.x_plane(n, channel) + x_column
        at = self.gradient_plane(n, channel) + row * problem.out_width + column
        for i in range(int(self.shape.rows)):
            r, rest = divmod(i, spec.stride[0])
            if rest == 0 and r < t.thread_h:
                for c in range(t.thread_w):
                    self.read(stage, 1, self.slot(r, c), at + r * problem.out_width + c,
                              live & (row + r < problem.out_height)
                              & (column + c < problem.out_width))
            lanes = live & inside(x_row + i, self.end[0])
            if not lanes.any():
                continue
            for offset in self.offsets:
                self.read(stage, 0, self.row[self.register_of[offset]],
                          x_at + (x_row + i) * problem.width + offset,
                          lanes & inside(x_column + offset, self.end[1]))
            self.add_row(i, lanes, problem.out_height - row, problem.out_width - column)

    def slot(self, r: int, c: int) -> Floats:
        """The register of column *c* of the gradient's local row *r*."""
        held: Floats = self.given[r % int(self.shape.live_rows) * self.t.thread_w + c]
        return held

    def read(self, stage: list[tuple[Piece, Piece]], of: int, out: Floats, index: Ints,
             lanes: Bools) -> None:
        """Fill a register with elements of each lane's image; zero where not in *lanes*."""
        value = np.empty_like(out)
        out.fill(0)
        for m, pieces in enumerate(stage):
            mine = np.broadcast_to(lanes & (self.image == m), out.shape)
            if mine.any():
                pieces[of].read(value, index, mine, operand=True)
                np.copyto(out, value, where=mine)

    def add_row(self, i: int, lanes: Bools, rows: Ints, columns: Ints) -> None:
        """Products of local row *i* of x with the gradient's, of which *rows* x *columns* exist."""
        spec, t = self.problem.spec, self.t
        for f in range(t.taps_h):
            r, rest = divmod(i - f * spec.dilation[0], spec.stride[0])
            if rest or not 0 <= r < t.thread_h:
                continue
            for c in range(t.thread_w):
                mask = lanes & (r < rows) & (c < columns)
                for g in range(t.taps_w):
                    value = self.row[self.register_of[c * spec.stride[1] + g * spec.dilation[1]]]
                    self.blocks.fma(self.sums[f * t.taps_w + g], value, self.slot(r, c),
                                    self.product, mask, True)

    def reduced(self) -> Floats:
        """The sums of the threads of each plane added, by tap, block and plane."""
        t, taps = self.t, self.t.taps_h * self.t.taps_w
        lanes_of_plane, count = t.lanes_h * t.lanes_w, self.blocks.count
        # By tap, block, plane and sharer, which are an image's threads, then the next one's.
        shared = self.sums.reshape(taps, count, -1)[..., :self.used_threads].reshape(
            taps, count, t.images, t.planes, lanes_of_plane).swapaxes(2, 3).reshape(
            taps, count, t.planes, -1)
        lanes = reducers_of(t, self.threads, self.wavefront)
        sums = np.zeros((taps, count, t.planes, lanes), dtype=np.float32)
        for k in range(shared.shape[-1]):
            sums[..., k % lanes] += shared[..., k]
        while lanes > 1:
            lanes //= 2
            sums = sums[..., :lanes] + sums[..., lanes:2 * lanes]
        total: Floats = sums[..., 0]
        return total

    def store(self, sums: Floats) -> None:
        """Store *sums*, by tap, block and plane: to the result, or to the slice's part."""
        spec, t, (kernel_h, kernel_w) = self.problem.spec, self.t, self.problem.spec.kernel
        block = np.arange(self.blocks.count)[:, None]
        channel = self.first_channel[block, 0, 0] + lane_ids(t.planes)
        for tap, values in enumerate(sums):
            f, g = (first[block, 0, 0] + offset for first, offset in zip(
                self.first_tap, divmod(tap, t.taps_w), strict=True))
            index = self.slice[block, 0, 0] * self.parts.shape[1] + (
                channel * spec.products + f * kernel_w + g)
            mask = (channel < spec.out_channels) & (f < kernel_h) & (g < kernel_w)
            self.blocks.store(self.parts.reshape(-1), Addresses(index, mask), values)


def _require_rows(plan: Plan, t: TapSumsTiling) -> None:
    """LaunchError where a block's rows lie in several pieces."""
    problem = plan.problem
    for wrong, what in (
            (t.lanes_w * t.thread_w < problem.out_width, "a block takes whole rows; it has "
             f"{t.lanes_w * t.thread_w} of {problem.out_width} columns"),
            (t.planes > 1 and t.lanes_h * t.thread_h < problem.out_height,
             f"a block takes several planes whole; it has {t.lanes_h * t.thread_h} of "
             f"{problem.out_height} rows")):
        if wrong:
            raise LaunchError(f"{plan.name}: {what}")
