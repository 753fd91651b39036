"""Weight gradient of a pointwise convolution, its sums split over blocks (hip_src/split_k).

Order of additions, for one element: slice ``s`` of the wavefronts sums the pixels ``[s · slice, (s
+ 1) · slice)`` of every step of its block, ascending, beginning with +0; then the slices are added,
ascending, beginning with +0; then the blocks of a cluster; then the parts: row ``r`` of the threads
adds parts ``r``, ``r + rows``, …, and the rows are added to the first. Products are rounded before
they are added. Pixels past the last are +0 · +0. With "tf32x3" the pixels of a slice come in
eights, as the channels of gemm do; the last eight of a plane end with +0 · +0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.split_k.tiling import (
    SplitKTiling,
    pixels_of,
    rows_of,
    shape_of,
    sum_rows,
)
from dscore.backends.reference.gemm_lanes import halves, multiply_fragments
from dscore.backends.reference.lockstep import LockstepKernel, batches, require_launch
from dscore.backends.reference.machine import (
    Addresses,
    Blocks,
    Floats,
    Ints,
    Operands,
    inside,
    lane_ids,
    split,
)
from dscore.backends.reference.tap_sums import ascending
from dscore.core.errors import LaunchError
from dscore.core.plan import Plan
from dscore.core.trace import Trace


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the weight gradient of *plan* to the operand out."""
    kernel = _SplitK(plan, operands)
    for blocks, first in batches(plan, kernel.tiles, trace, kernel.allocate):
        tile = first + lane_ids(blocks.count, 1)
        for part in range(kernel.t.parts):
            of_blocks = []
            for rank in range(kernel.t.cluster):
                blocks.begin()
                kernel.accumulate(tile, part * kernel.t.cluster + rank)
                of_blocks.append(kernel.slices())
            kernel.store(tile, part, ascending(of_blocks))
    kernel.add_parts()


class _SplitK(LockstepKernel):
    """The geometry of a block, its two tiles, and the blocks that run at present.

    Grid order: tile of output channels fastest, then of input channels, part. Blocks that have the
    same share of the steps run together.
    """

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands)
        _require_lanes(plan, self.t, self.wavefront)
        self.shape = shape_of(self.problem, self.t, self.wavefront)
        self.row, self.sum_row = (int(words) for words in rows_of(self.t))
        self.threads, self.tiles = int(self.shape.waves) * self.wavefront, int(self.shape.tiles)
        self.weights = self.problem.spec.out_channels * self.problem.spec.in_channels
        self.workspace = np.full((self.t.parts, self.weights), np.nan, np.float32)
        require_launch(plan, self.tiles * self.t.parts * self.t.cluster, self.threads)
        lane, wave = lane_ids(self.wavefront), lane_ids(int(self.shape.waves), 1)
        waves_o, waves_i = self.t.tile_o // self.t.wave_o, self.t.tile_i // self.t.wave_i
        self.slice = wave // (waves_o * waves_i)
        first_o = wave // waves_i % waves_o * self.t.wave_o
        first_i = wave % waves_i * self.t.wave_i
        self.lanes: Any = (_Plain if self.t.arithmetic == "plain" else _Split)(
            self, lane, first_o, first_i)

    def words(self, slices: Ints, o: Ints, i: Ints, k: Ints) -> tuple[Ints, Ints]:
        """Words of the gradient and of the input in a buffer, by slice, channel and pixel."""
        t, pixels = self.t, self.t.step // self.t.slices
        if t.planes:
            return ((slices * t.tile_o + o) * pixels + k,
                    ((t.slices * t.tile_o + slices * t.tile_i) + i) * pixels + k)
        return o * self.row + slices * pixels + k, (t.tile_o + i) * self.row + slices * pixels + k

    def operand_words(self, o: Ints, i: Ints, k: Ints) -> tuple[Addresses, Addresses]:
        """The same, of the slice of each wavefront."""
        gradients, images = self.words(self.slice, o, i, k)
        return Addresses(gradients), Addresses(images)

    def allocate(self, blocks: Blocks) -> None:
        """Registers, and LDS, which holds the ring and then the slices' sums."""
        self.blocks = blocks
        self.lanes.allocate(blocks)
        channels = self.t.tile_o + self.t.tile_i
        if self.t.stages == 2:
            # Thread e % threads takes element e of the two tiles, one laid after the other.
            way = blocks.registers("tiles on their way", int(self.shape.fetched),
                                   (blocks.count, self.threads)).reshape(blocks.count, -1)
        else:
            way = np.empty((blocks.count, channels * self.t.step), dtype=np.float32)
        self.gradient_temp = way[:, :self.t.tile_o * self.t.step]
        self.image_temp = way[:, self.t.tile_o * self.t.step:channels * self.t.step]
        self.ring = blocks.lds_tile("the ring of buffers", max(
            self.t.stages * int(self.shape.buffer), int(self.shape.joined)))

    def _first_channels(self, tile: Ints) -> tuple[Ints, Ints]:
        tile_o, tile_i = split(tile, -(-self.problem.spec.out_channels // self.t.tile_o))
        return tile_o * self.t.tile_o, tile_i * self.t.tile_i

    def accumulate(self, tile: Ints, share: int) -> None:
        """The steps of a share; a barrier parts each from the next."""
        self.lanes.sums.fill(0)
        each, more = divmod(int(self.shape.all_steps), self.t.parts * self.t.cluster)
        first = share * each + min(share, more)
        for at, step in enumerate(range(first, first + each + (share < more))):
            buffer = self.ring + at % self.t.stages * int(self.shape.buffer)
            self._copy(buffer, tile, step)
            self.lanes.multiply(buffer)

    def _copy(self, buffer: int, tile: Ints, step: int) -> None:
        """A step's tiles to the LDS buffer at word *buffer*."""
        problem, spec = self.problem, self.problem.spec
        first_o, first_i = self._first_channels(tile)
        pixel = step * self.t.step + lane_ids(self.t.step)
        column, row, image = split(pixel, problem.out_width, problem.out_height)
        area, held = problem.out_height * problem.out_width, pixel < pixels_of(problem)
        o, i = lane_ids(self.t.tile_o, 1), lane_ids(self.t.tile_i, 1)
        k, slices = split(lane_ids(self.t.step), self.t.step // self.t.slices)
        gradients, images = self.words(slices, o, i, k)
        channel = first_o[..., None] + o
        at = (image * spec.out_channels + channel) * area + row * problem.out_width + column
        self._bring(buffer + gradients, self.operands["gradient"], self.gradient_temp, at,
                    held & (channel < spec.out_channels))
        row, column = (row * spec.stride[0] - problem.padding[0],
                       column * spec.stride[1] - problem.padding[2])
        held = held & inside(row, problem.height) & inside(column, problem.width)
        channel = first_i[..., None] + i
        at = ((image * spec.in_channels + channel) * problem.height + row) * problem.width + column
        self._bring(buffer + images, self.operands["x"], self.image_temp, at,
                    held & (channel < spec.in_channels))

    def _bring(self, words: Ints, memory: Floats, temp: Floats, at: Ints, held: Any) -> None:
        flat = at.shape[0], -1
        self.blocks.load(temp, memory, Addresses(at.reshape(flat), held.reshape(flat)), "inputs")
        self.blocks.lds_write(0, temp, words.ravel())

    def slices(self) -> Floats:
        """The sums of all slices (block, output channel, input channel), through LDS."""
        t, count = self.t, self.blocks.count
        shape = (*self.lanes.registers, *self.blocks.shape[1:])
        words = self.slice * t.tile_o * self.sum_row + (
            self.lanes.o * self.sum_row + self.lanes.i)
        self.blocks.lds_write(self.ring, self.lanes.sums.reshape(count, -1),
                              np.broadcast_to(words, shape).ravel())
        slices, o, i = np.ogrid[:t.slices, :t.tile_o, :t.tile_i]
        sums = np.empty((count, t.slices, t.tile_o, t.tile_i), np.float32)
        self.blocks.lds_read(sums, Addresses((slices * t.tile_o + o) * self.sum_row + i),
                             self.ring, operand=False)
        return ascending([np.zeros_like(sums[:, 0]), *sums.swapaxes(0, 1)])

    def store(self, tile: Ints, part: int, total: Floats) -> None:
        """Store the sums."""
        spec = self.problem.spec
        first_o, first_i = (first[..., None] for first in self._first_channels(tile))
        o, i = first_o + lane_ids(self.t.tile_o, 1), first_i + lane_ids(self.t.tile_i)
        mask = (o < spec.out_channels) & (i < spec.in_channels)
        self.blocks.store(self.workspace[part] if self.t.parts > 1 else self.out,
                          Addresses(o * spec.in_channels + i, mask), total)

    def add_parts(self) -> None:
        """Add the parts of the workspace."""
        if self.t.parts > 1:
            self.out[...] = sum_of_parts(self.workspace)


def sum_of_parts(workspace: Floats) -> Floats:
    """The sum of parts (part, element), by rows of threads (hip_src/split_k/sum.hpp)."""
    rows = sum_rows(len(workspace))
    sums = np.zeros((rows, workspace.shape[1]), np.float32)
    for part, values in enumerate(workspace):
        np.add(sums[part % rows], values, out=sums[part % rows])
    return ascending([*sums])


class _Lanes:
    """Lanes of a block: the sums of each, and the channels that each sum is for."""

    def __init__(self, registers: tuple[int, ...], slice_pixels: int) -> None:
        self.registers, self.slice_pixels = registers, slice_pixels

    def allocate(self, blocks: Blocks) -> None:
        """The registers of sums."""
        self.blocks = blocks
        self.sums = self.file("sums", *self.registers)
        self.product = np.empty_like(self.sums)

    def file(self, name: str, *registers: int) -> Floats:
        """A file of *registers* of every lane."""
        count, *lanes = self.blocks.shape
        return self.blocks.registers(name, int(np.prod(registers))).reshape(
            count, *registers, *lanes)


class _Plain(_Lanes):
    """A lane's channels of the output lie lanes_o apart, those of the input lanes_i."""

    def __init__(self, kernel: _SplitK, lane: Ints, first_o: Ints, first_i: Ints) -> None:
        t, lanes_i = kernel.t, kernel.wavefront // kernel.t.lanes_o
        super().__init__((t.wave_o // t.lanes_o, t.wave_i // lanes_i), t.step // t.slices)
        o, i = (lane_ids(size, 1, 1, 1) for size in self.registers)
        self.o = first_o + lane // lanes_i + o * t.lanes_o
        self.i = (first_i + lane % lanes_i + i * lanes_i)[None, :, 0]
        self.together = 1 if self.slice_pixels % 4 else 4
        self.a_at, self.b_at = kernel.operand_words(self.o, self.i.swapaxes(0, 1),
                                                    lane_ids(self.together, 1, 1))

    def allocate(self, blocks: Blocks) -> None:
        """The registers of sums and of the pixels that are read as one."""
        super().allocate(blocks)
        self.a = self.file("gradient operands", self.registers[0], self.together)
        self.b = self.file("image operands", self.registers[1], self.together)

    def multiply(self, buffer: int) -> None:
        """One step from the LDS buffer that begins at word *buffer*."""
        for k in range(0, self.slice_pixels, self.together):
            self.blocks.lds_read(self.a, self.a_at, buffer + k)
            self.blocks.lds_read(self.b, self.b_at, buffer + k)
            for part in range(self.together):
                self.blocks.fma(self.sums, self.a[:, :, None, part], self.b[:, None, :, part],
                                self.product)


class _Split(_Lanes):
    """Fragments of 16 channels of the output by 8 of the input, of eight pixels each.

    Lane ``4 g + i`` brings pixels ``2 i`` and ``2 i + 1`` of row g, of planes ``i`` and ``i + 4``,
    +0 past the last.
    """

    def __init__(self, kernel: _SplitK, lane: Ints, first_o: Ints, first_i: Ints) -> None:
        t = kernel.t
        super().__init__((t.wave_o // 16, t.wave_i // 8, 2, 2), t.step // t.slices)
        row, pair, e = lane // 4, lane % 4 * 2, lane_ids(t.wave_o // 8, 1, 1)
        n, half = lane_ids(t.wave_i // 8, 1, 1, 1), lane_ids(2, 1, 1)
        self.o = (first_o + e * 8 + row).reshape(-1, 1, 2, 1, *(first_o + row).shape)
        self.i = (first_i + n * 8 + pair + half)[:, None]
        self.k = lane % 4 + 4 * half if t.planes else pair + half
        self.a_at, _ = kernel.operand_words(first_o + e * 8 + row, self.i[0], self.k[:, None])
        _, self.b_at = kernel.operand_words(self.o, first_i + n * 8 + row, self.k)
        self.lane, self.several = lane, int(kernel.shape.steps) > 1

    def allocate(self, blocks: Blocks) -> None:
        """The registers of sums and of two parts of eight pixels."""
        super().allocate(blocks)
        m, n, *_ = self.registers
        self.a = self.file("gradient operands", 2, 2, 2 * m)
        self.b = self.file("image operands", 2, n, 2)
        self.a_read, self.b_read = self.a[:, 0].copy(), self.b[:, 0].copy()
        self.step = self.file("step", *self.registers) if self.several else self.sums.copy()

    def multiply(self, buffer: int) -> None:
        """One step from the LDS buffer that begins at word *buffer*."""
        self.step.fill(0)
        for k in range(0, self.slice_pixels, 8):
            self.blocks.lds_read(self.a_read, self.a_at, buffer + k)
            self.blocks.lds_read(self.b_read, self.b_at, buffer + k)
            if k + 8 > self.slice_pixels:
                held = k + self.k < self.slice_pixels
                np.copyto(self.a_read, 0, where=~held[:, None])
                np.copyto(self.b_read, 0, where=~held)
            self.a[:, 0], self.a[:, 1] = halves(self.a_read)
            self.b[:, 0], self.b[:, 1] = halves(self.b_read)
            for small_a, small_b in ((1, 0), (0, 1), (0, 0)):
                multiply_fragments(self.blocks, self.lane, self.step, self.a[:, small_a],
                                   self.b[:, small_b], self.product)
        np.add(self.sums, self.step, out=self.sums)


def _require_lanes(plan: Plan, t: SplitKTiling, wavefront: int) -> None:
    """LaunchError where the kernel does not exist, by the assertions of
    hip_src/split_k/kernel.hpp."""
    pixels, tf32 = t.step / t.slices, t.arithmetic == "tf32x3"
    unit_o, unit_i = (16, 8) if tf32 else (t.lanes_o, max(wavefront // t.lanes_o, 1))
    for wrong, what in (
            (t.tile_o % t.wave_o or t.tile_i % t.wave_i, "a tile is not of whole wavefronts"),
            (t.stages < 2, "the ring has one buffer, which needs two at least"),
            (not t.planes and pixels % (8 if tf32 else 4), f"a slice has {pixels:g} pixels of a "
             f"step, which must be a multiple of {8 if tf32 else 4}"),
            (tf32 and (wavefront != 32 or t.lanes_o != 8), "tf32x3 has 8 rows of lanes of a "
             f"wavefront of 32; here are {t.lanes_o} of {wavefront}"),
            (wavefront % t.lanes_o, f"lanes_o must divide the wavefront {wavefront}"),
            (t.wave_o % unit_o or t.wave_i % unit_i, "a wavefront's tile must be of whole "
             f"fragments of {unit_o} x {unit_i} channels")):
        if wrong:
            raise LaunchError(f"{plan.name}: {what}")
