"""Depthwise convolution by row reuse (Liu et al. 2024, §4.2) and column reuse (Lu et al. 2021).

A thread walks over its input rows once; a row is added to every output row that it lies under.
Order of additions, for one output: filter rows, within these filter columns, both ascending,
beginning with +0; then bias, then activation. Products are rounded before they are added. A row
outside the image is left out; a column outside it is +0 · w.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from ..errors import LaunchError
from ..plan import Plan
from ..resources import ceil_div, column_offsets, depthwise_shape, owned_columns
from ..tiling import DepthwiseTiling
from .lanes import (
    Addresses,
    Blocks,
    Bools,
    Floats,
    Ints,
    Tensor,
    chunks,
    epilogue,
    inside,
    lane_ids,
    load_bias,
    require_launch,
    split,
)
from .reference_trace import Trace


def run(plan: Plan, x: Floats, w: Floats, bias: Floats | None, out: Floats,
        trace: Trace | None) -> None:
    """Write the convolution of *plan* to *out*; the arrays are flat."""
    assert isinstance(plan.tiling, DepthwiseTiling)
    kind = _ThroughLds if plan.tiling.staging == "lds" else _ThroughRegisters
    kernel = kind(plan, x, w, bias, out)
    blocks = None
    for first, count in chunks(kernel.grid, Blocks.at_a_time(plan)):
        if blocks is None or blocks.count != count:
            blocks = Blocks(plan, count, trace)
            kernel.allocate(blocks)
        blocks.begin()
        kernel.place(first + lane_ids(count, 1, 1))
        kernel.stage()
        kernel.walk()


class _Depthwise(ABC):
    """The walk over the rows; subclasses say where a column and a filter row come from.

    Grid order: column tile fastest, then row tile, then planes.
    """

    def __init__(self, plan: Plan, x: Floats, w: Floats, bias: Floats | None,
                 out: Floats) -> None:
        assert isinstance(plan.tiling, DepthwiseTiling)
        self.plan, self.problem, self.t = plan, plan.problem, plan.tiling
        self.x, self.w, self.bias, self.out = x, w, bias, out
        problem, t, S = self.problem, self.t, plan.device.wavefront
        _require_segments(plan, t, S)
        self.shape = depthwise_shape(problem, t)
        self.live_rows = int(self.shape.live_rows)
        self.used_threads = t.planes * t.lanes_h * t.lanes_w
        waves = int(ceil_div(self.used_threads, S))
        self.threads = waves * S
        self.all_planes = problem.batch * problem.spec.out_channels
        self.column_tiles = ceil_div(problem.out_width, t.lanes_w * t.thread_w)
        self.row_tiles = ceil_div(problem.out_height, t.lanes_h * t.thread_h)
        self.grid = ceil_div(self.all_planes, t.planes) * self.row_tiles * self.column_tiles
        require_launch(plan, self.grid, self.threads)
        # Rows past the last tap of the last output row are not loaded, though they may exist.
        self.row_end, self.column_end = (
            min(size, (outputs - 1) * stride + span - before)
            for size, outputs, stride, span, before in zip(
                (problem.height, problem.width), (problem.out_height, problem.out_width),
                problem.spec.stride, problem.spec.span, problem.padding[::2], strict=True))
        self.offsets = column_offsets(problem, t.thread_w)
        self.own = t.thread_w * problem.spec.stride[1]
        # What every lane brings by itself: with column reuse only the columns that it owns.
        self.fetched = owned_columns(problem, t.thread_w) if t.column_reuse else self.offsets
        held = sorted(set(self.offsets) | set(self.fetched))
        self.register_of = {offset: number for number, offset in enumerate(held)}
        self.thread = lane_ids(waves, S)
        self.lane, self.strip, self.plane_in_block = split(self.thread, t.lanes_w, t.lanes_h)

    def allocate(self, blocks: Blocks) -> None:
        """Registers: the live output rows and one input row; the taps are the subclass's."""
        self.blocks = blocks
        self.sums = blocks.registers("the live output rows", self.live_rows * self.t.thread_w)
        self.row = blocks.registers("an input row", len(self.register_of))
        self.product = np.empty_like(self.row[0])

    def place(self, block: Ints) -> None:
        """Planes and first rows and columns of the lanes of the blocks numbered *block*."""
        problem, spec, t = self.problem, self.problem.spec, self.t
        self.column_tile, self.row_tile, self.plane_tile = split(
            block, self.column_tiles, self.row_tiles)
        self.plane = self.plane_tile * t.planes + self.plane_in_block
        self.out_row = (self.row_tile * t.lanes_h + self.strip) * t.thread_h
        self.out_column = (self.column_tile * t.lanes_w + self.lane) * t.thread_w
        self.in_row = self.out_row * spec.stride[0] - problem.padding[0]
        self.in_column = self.out_column * spec.stride[1] - problem.padding[2]
        # Lanes past the last column stay: their neighbours at the left take columns from them.
        self.live = ((self.thread < self.used_threads) & (self.plane < self.all_planes)
                     & (self.out_row < problem.out_height))

    def input_plane(self, plane: Ints) -> Ints:
        """First element of x under output plane n · out_channels + o: channel o / multiplier."""
        spec = self.problem.spec
        image, channel = np.divmod(plane, spec.out_channels)
        in_plane: Ints = image * spec.in_channels + channel // spec.group_out
        return in_plane * (self.problem.height * self.problem.width)

    @abstractmethod
    def stage(self) -> None:
        """Bring to the block what it holds for the whole walk."""

    @abstractmethod
    def column(self, offset: int, i: int, lanes: Bools) -> Floats:
        """Fill the register of *offset* with that column of local row *i*, in *lanes*."""

    @abstractmethod
    def filter_row(self, f: int) -> Floats:
        """The registers with the taps of filter row *f*."""

    def walk(self) -> None:
        """Every input row once, into all the output rows above it that it belongs to."""
        (kernel_h, _), (stride_h, _), t = self.problem.spec.kernel, self.problem.spec.stride, self.t
        dilation_h, span_h = self.problem.spec.dilation[0], self.problem.spec.span[0]
        self.sums.fill(0)
        for i in range(self.shape.rows):
            uses = [(f, (i - f * dilation_h) // stride_h) for f in range(kernel_h)
                    if (i - f * dilation_h) % stride_h == 0
                    and 0 <= i - f * dilation_h <= (t.thread_h - 1) * stride_h]
            lanes = self.live & inside(self.in_row + i, self.row_end)
            if uses and lanes.any():
                self.fetch_row(i, lanes)
                divided = bool((self.live & ~lanes).any())
                for f, r in uses:
                    self.accumulate(f, r, lanes, divided)
            if i >= span_h - 1 and (i - span_h + 1) % stride_h == 0:
                self.finish((i - span_h + 1) // stride_h)

    def fetch_row(self, i: int, lanes: Bools) -> None:
        """Bring the columns of local row *i*; with column reuse the overlap comes by shuffles."""
        for offset in self.fetched:
            self.column(offset, i, lanes)
        if not self.t.column_reuse:
            return
        for offset in (offset for offset in self.offsets if offset >= self.own):
            neighbour, residue = divmod(offset, self.own)
            past = self.lane + neighbour >= self.t.lanes_w
            loaded = self.column(offset, i, lanes & past)
            if neighbour < self.t.lanes_w:
                passed = self.blocks.shfl_down(self.row[self.register_of[residue]], neighbour,
                                               self.t.lanes_w, lanes)
                np.copyto(loaded, passed, where=~past)

    def accumulate(self, f: int, r: int, lanes: Bools, divided: bool) -> None:
        """Filter row *f* times the row at hand, added to local output row *r*.

        *divided*: some live lane has no such row, and its sum must stay as it is.
        """
        spec, taps = self.problem.spec, self.filter_row(f)
        for c in range(self.t.thread_w):
            sums = self.sums[r % self.live_rows * self.t.thread_w + c]
            for g in range(spec.kernel[1]):
                value = self.row[self.register_of[c * spec.stride[1] + g * spec.dilation[1]]]
                self.blocks.fma(sums, value, taps[g], self.product, lanes, divided)

    def finish(self, r: int) -> None:
        """Store local output row *r*, which is complete, and clear its registers for another."""
        problem, spec = self.problem, self.problem.spec
        row = self.out_row + r
        for c in range(self.t.thread_w):
            sums, column = self.sums[r % self.live_rows * self.t.thread_w + c], self.out_column + c
            mask = self.live & (row < problem.out_height) & (column < problem.out_width)
            index = (self.plane * problem.out_height + row) * problem.out_width + column
            bias = load_bias(self.blocks, self.bias, self.plane % spec.out_channels, mask)
            self.blocks.store(self.out, Addresses(index, mask),
                              epilogue(sums, bias, spec.activation))
            sums.fill(0)

    def count_rows(self, loaded: Bools) -> None:
        """Count the rows of which an element was loaded; the last axis is a row's elements."""
        if self.blocks.trace is not None:
            self.blocks.trace.rows_loaded += int(np.count_nonzero(loaded.any(axis=-1)))


class _ThroughRegisters(_Depthwise):
    """Rows and all taps straight from global memory to registers."""

    def allocate(self, blocks: Blocks) -> None:
        super().allocate(blocks)
        self.taps = blocks.registers("the filter", self.problem.spec.products)

    def place(self, block: Ints) -> None:
        super().place(block)
        self.base = self.input_plane(self.plane) + self.in_column

    def stage(self) -> None:
        taps = self.problem.spec.products
        first = (self.plane % self.problem.spec.out_channels) * taps
        for tap in range(taps):
            self.blocks.load(self.taps[tap], self.w, Addresses(first + tap, self.live), "filters")

    def fetch_row(self, i: int, lanes: Bools) -> None:
        self.loaded = np.zeros_like(lanes)
        super().fetch_row(i, lanes)
        strips = self.loaded.reshape(self.blocks.count, -1)[:, :self.used_threads]
        self.count_rows(strips.reshape(-1, self.t.lanes_w))

    def column(self, offset: int, i: int, lanes: Bools) -> Floats:
        out: Floats = self.row[self.register_of[offset]]
        lanes = lanes & inside(self.in_column + offset, self.column_end)
        index = self.base + (self.in_row + i) * self.problem.width + offset
        self.blocks.load(out, self.x, Addresses(index, lanes), "inputs", operand=True)
        self.loaded |= lanes
        return out

    def filter_row(self, f: int) -> Floats:
        kernel_w = self.problem.spec.kernel[1]
        taps: Floats = self.taps[f * kernel_w:(f + 1) * kernel_w]
        return taps


class _ThroughLds(_Depthwise):
    """The block's input tile and taps through LDS: tile [planes][tile_h][tile_w], then taps."""

    def allocate(self, blocks: Blocks) -> None:
        super().allocate(blocks)
        t, spec = self.t, self.problem.spec
        self.taps = blocks.registers("a filter row", spec.kernel[1])
        self.temp = blocks.registers("an element on its way", 1, (blocks.count, self.threads))
        tile_h, tile_w = self.shape.tile_h, self.shape.tile_w
        self.tile_at = blocks.lds_tile("the input tile", t.planes * tile_h * tile_w)
        self.taps_at = blocks.lds_tile("the filters", t.planes * spec.products)
        used = self.thread < self.used_threads
        top = self.plane_in_block * tile_h + self.strip * t.thread_h * spec.stride[0]
        self.row_from = Addresses(top * tile_w + self.lane * self.own, used)
        self.taps_from = Addresses(self.plane_in_block * spec.products, used)

    def stage(self) -> None:
        """Thread tid brings the elements i * threads + tid; a barrier follows."""
        problem, spec, t, taps = self.problem, self.problem.spec, self.t, self.problem.spec.products
        tile_h, tile_w = self.shape.tile_h, self.shape.tile_w
        first_row = (self.row_tile[:, 0] * t.lanes_h * t.thread_h * spec.stride[0]
                     - problem.padding[0])
        first_column = (self.column_tile[:, 0] * t.lanes_w * t.thread_w * spec.stride[1]
                        - problem.padding[2])
        first_plane = self.plane_tile[:, 0] * t.planes
        e_column, e_row, e_plane = split(lane_ids(1, t.planes * tile_h * tile_w), tile_w, tile_h)
        plane, row, column = first_plane + e_plane, first_row + e_row, first_column + e_column
        mask = ((plane < self.all_planes) & inside(row, self.row_end)
                & inside(column, self.column_end))
        index = self.input_plane(plane) + row * problem.width + column
        self._bring(self.tile_at, self.x, index, mask, "inputs")
        self.count_rows(mask.reshape(-1, tile_w))
        tap, e_plane = split(lane_ids(1, t.planes * taps), taps)
        plane = first_plane + e_plane
        self._bring(self.taps_at, self.w, plane % spec.out_channels * taps + tap,
                    plane < self.all_planes, "filters")

    def _bring(self, first: int, memory: Floats, index: Ints, mask: Bools,
               what: Tensor) -> None:
        for at, held in chunks(index.shape[1], self.threads):
            part = self.temp[0][:, :held]
            self.blocks.load(part, memory, Addresses(index[:, at:at + held], mask[:, at:at + held]),
                             what)
            self.blocks.lds_write(first + at, part)

    def column(self, offset: int, i: int, lanes: Bools) -> Floats:
        out: Floats = self.row[self.register_of[offset]]
        self.blocks.lds_read(out, self.row_from, self.tile_at + i * self.shape.tile_w + offset,
                             lanes)
        return out

    def filter_row(self, f: int) -> Floats:
        kernel_w = self.problem.spec.kernel[1]
        for g in range(kernel_w):
            self.blocks.lds_read(self.taps[g], self.taps_from, self.taps_at + f * kernel_w + g,
                                 self.live)
        return self.taps


def _require_segments(plan: Plan, t: DepthwiseTiling, wavefront: int) -> None:
    """LaunchError where the lanes that pass columns on are no segment of a wavefront."""
    if t.column_reuse and (t.lanes_w & (t.lanes_w - 1) or t.lanes_w > wavefront):
        raise LaunchError(f"{plan.name}: column_reuse needs lanes_w to be a power of two of at "
                          f"most the wavefront {wavefront}; it is {t.lanes_w}")
