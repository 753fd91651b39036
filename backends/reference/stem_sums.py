"""The weight gradient of the first layer of a network on matrix units (hip_src/stem_sums).

Order of additions, for one output of a wavefront: tiles, within these its pieces of 16 pixels of a
row, within these pixels, all ascending, beginning with +0; then the wavefronts of a channel,
ascending; then the slices as tap_sums has it. Products are rounded before they are added. What lies
outside x is +0 · gradient; what the gradient does not have is left out.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from dscore.algorithms.stem import MOST_TAPS
from dscore.algorithms.stem.tiling import EIGHT, FOUR, PIECE, unit_of
from dscore.algorithms.stem_sums.tiling import (
    FRAGMENT,
    StemSumsTiling,
    fragments_of,
    shape_of,
    twos_of,
)
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
from dscore.backends.reference.tap_sums import added
from dscore.core.device import MATRIX_WAVEFRONT
from dscore.core.errors import LaunchError
from dscore.core.numerics import ACCUMULATOR
from dscore.core.plan import Plan
from dscore.core.trace import Trace


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the weight gradient of *plan* to the operand out."""
    kernel = _StemSums(plan, operands)
    for blocks, first in batches(plan, kernel.grid, trace, kernel.allocate):
        blocks.begin()
        kernel.place(first + lane_ids(blocks.count, 1, 1))
        kernel.accumulate()
        kernel.store(kernel.reduced())
    if kernel.t.slices > 1:
        operands["out"][:] = added(kernel.parts)


class _StemSums(LockstepKernel):
    """A block's tiles one after the other, and the sums of their pieces.

    Grid order: channel tile fastest, then slice. Lane 4 g + i holds, of a fragment of 16 output
    channels by two taps of four channels, columns 2 i and 2 i + 1 of rows g and g + 8.
    """

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands)
        _require_kernel(plan)
        t, self.element = self.t, self.problem.spec.element
        shape = self.shape = shape_of(self.problem, t)
        self.channel_tiles = int(shape.channel_tiles)
        self.grid = self.channel_tiles * t.slices
        self.tiles = int(shape.column_tiles), int(shape.row_tiles)
        self.waves, self.twos = int(shape.waves), twos_of(self.problem)
        require_launch(plan, self.grid, self.waves * self.wavefront)
        wave, lane = lane_ids(self.waves, 1), lane_ids(1, self.wavefront)
        self.wave_p, self.wave_m = wave % t.waves_p, wave // t.waves_p * t.wave_m
        self.g, self.word = lane // 4, lane % 4
        # Pixels that come before the first tap's: tiles begin at multiples of them.
        self.before = -self.problem.padding[2] % unit_of(self.problem)
        self.copy = int(shape.rows * shape.row_pixels) * FOUR  # elements before the copy
        # The result, or the sums of each slice.
        sums = self.problem.spec.out_channels * self.problem.spec.products
        self.parts = (np.full((t.slices, sums), np.nan, dtype=np.float32) if t.slices > 1
                      else self.out.reshape(1, sums))

    def allocate(self, blocks: Blocks) -> None:
        """The registers of sums and of a pixel's fragments; LDS, which holds two tiles."""
        self.blocks, count = blocks, int(self.shape.fragments_m)
        self.sums = self._file("sums", count, fragments_of(self.problem), 2, 2)
        self.given = self._file("the gradient", count, 2, of_elements=True)
        self.pixels = self._file("pixels", 2, of_elements=True)
        self.product = np.empty_like(self.sums[:, :, 0])
        size = self.element.bytes
        self.stages = [(blocks.lds_tile("pixels", int(self.shape.pixels_bytes) // size,
                                        self.element),
                        blocks.lds_tile("the gradient", int(
                            self.t.tile_h * self.t.tile_w * self.shape.pitch), self.element))
                       for _ in range(2)]

    def _file(self, name: str, *registers: int, of_elements: bool = False) -> Floats:
        count, *lanes = self.blocks.shape
        file = self.blocks.registers(name, int(np.prod(registers)),
                                     packed=self.element if of_elements else ACCUMULATOR)
        return file.reshape(count, *registers, *lanes)

    def place(self, block: Ints) -> None:
        """Channels and slices of the blocks numbered *block*."""
        channels, self.slice = split(block[:, 0], self.channel_tiles)
        self.first_channel = channels * self.t.tile_m

    def accumulate(self) -> None:
        """All tiles of the blocks, one after the other."""
        size = int(self.shape.unit_slices)
        self.sums.fill(0)
        for step in range(size):
            unit = self.slice * size + step
            column, row, self.image = split(unit, *self.tiles)
            self.row, self.column = row * self.t.tile_h, column * self.t.tile_w
            self.there = unit < self.shape.units
            pixels, gradient = self.stages[step % 2]
            self.stage_pixels(pixels)
            self.stage_gradient(gradient)
            for first in range(0, int(self.shape.pieces), self.t.waves_p):
                self.multiply(pixels, gradient, first + self.wave_p)

    def stage_pixels(self, first: int) -> None:
        """The pixels under the tiles to LDS, with four channels each; where columns are walked by
        an odd number, to the copy that begins a pixel later as well."""
        problem, in_row = self.problem, int(self.shape.row_pixels)
        (stride_h, stride_w), (pad_top, _, pad_left, _) = problem.spec.stride, problem.padding
        brought = int(self.shape.row_units) * unit_of(problem)
        channel, pixel, row = split(lane_ids(1, int(self.shape.rows) * brought * FOUR), FOUR,
                                    brought)
        y = self.row * stride_h - pad_top + row
        x = self.column * stride_w - pad_left - self.before + pixel
        channels = problem.spec.in_channels
        at = ((self.image * problem.height + y) * problem.width + x) * channels + channel
        values = np.empty(at.shape, self.element.sums.numpy)
        self.blocks.load(values, self.operands["x"], Addresses(
            at, self.there & inside(y, problem.height) & inside(x, problem.width)
            & (channel < channels)), "inputs")
        words = ((row * in_row + pixel + self.before % 2) * FOUR + channel)[0]
        for copy in range(1 + stride_w % 2):
            self.blocks.lds_write(first + copy * (self.copy + FOUR), values, words, self.element)

    def stage_gradient(self, first: int) -> None:
        """The gradient under the tiles to LDS."""
        problem, t = self.problem, self.t
        channel, column, row = split(lane_ids(1, t.tile_h * t.tile_w * t.tile_m), t.tile_m,
                                     t.tile_w)
        y, x, out = self.row + row, self.column + column, self.first_channel + channel
        at = ((self.image * problem.out_height + y) * problem.out_width
              + x) * problem.spec.out_channels + out
        values = np.empty(at.shape, self.element.sums.numpy)
        self.blocks.load(values, self.operands["gradient"], Addresses(
            at, self.there & (y < problem.out_height) & (x < problem.out_width)
            & (out < problem.spec.out_channels)), "inputs")
        words = (row * t.tile_w + column) * int(self.shape.pitch) + channel
        self.blocks.lds_write(first, values, words[0], self.element)

    def multiply(self, pixels: int, gradient: int, piece: Ints) -> None:
        """A piece of each wavefront, pixel by pixel."""
        row, column = np.divmod(np.where(piece < self.shape.pieces, piece, 0),
                                self.t.tile_w // PIECE)
        column = column * PIECE
        down = self.problem.out_height - self.row[:, :, None]
        right = self.problem.out_width - self.column[:, :, None] - column
        active = self.there[:, :, None] & (piece < self.shape.pieces) & (row < down)
        for k in range(PIECE):
            self._read_gradient(gradient, row * self.t.tile_w + column + k)
            for fragment in range(fragments_of(self.problem)):
                self._read_pixels(pixels, fragment, row, column + k)
                self.blocks.fma(self.sums[:, :, fragment], self.given[:, :, :, None],
                                self.pixels[:, None, None], self.product,
                                (active & (k < right))[:, None, None, None], True)

    def _read_gradient(self, first: int, place: Ints) -> None:
        for m, half in product(range(self.given.shape[1]), range(2)):
            channel = self.wave_m + m * FRAGMENT + half * EIGHT + self.g
            self.blocks.lds_read(self.given[:, m, half], Addresses(
                place * int(self.shape.pitch) + channel), first, element=self.element)

    def _read_pixels(self, first: int, fragment: int, row: Ints, column: Ints) -> None:
        spec, in_row = self.problem.spec, int(self.shape.row_pixels)
        f, two = divmod(fragment, self.twos)
        walked = column * spec.stride[1]
        # Pixels that the first of two taps lies at an odd one of are those of the copy.
        beside = walked % 2
        line = (row * spec.stride[0] + f * spec.dilation[0]) * in_row
        pixel = self.before + self.before % 2 + walked + beside + 2 * two
        for side in range(2):
            number = self.word * 2 + side  # of the fragment's columns
            at = (line + pixel) * FOUR + beside * self.copy + number
            self.blocks.lds_read(self.pixels[:, side], Addresses(at), first,
                                 element=self.element)

    def reduced(self) -> Floats:
        """The sums of the wavefronts of each channel added: by block, channel, fragment, column."""
        t, (count, m, fragments) = self.t, self.sums.shape[:3]
        lanes = self.sums.reshape(count, m, fragments, 2, 2, -1, t.waves_p, 8, 4)
        of_waves = lanes.transpose(6, 0, 5, 1, 3, 7, 2, 8, 4).reshape(
            t.waves_p, count, t.tile_m, fragments, EIGHT)
        sums: Floats = of_waves[0].copy()
        for others in of_waves[1:]:
            sums += others
        return sums

    def store(self, sums: Floats) -> None:
        """The sums of taps and channels that there are to the result, or to the slices' sums."""
        spec, (_, kernel_w) = self.problem.spec, self.problem.spec.kernel
        channel = self.first_channel + lane_ids(1, self.t.tile_m)
        of_slice = self.slice * self.parts.shape[1]
        for of_filter in range(spec.products):
            c, tap = divmod(of_filter, spec.kernel[0] * kernel_w)
            f, g = divmod(tap, kernel_w)
            values = sums[:, :, f * self.twos + g // 2, g % 2 * FOUR + c]
            self.blocks.store(self.parts.reshape(-1), Addresses(
                of_slice + channel * spec.products + of_filter, channel < spec.out_channels),
                values)


def _require_kernel(plan: Plan) -> None:
    """LaunchError where the kernel does not exist, by the assertions of
    hip_src/stem_sums/shape.hpp."""
    t, spec = plan.tiling, plan.problem.spec
    assert isinstance(t, StemSumsTiling)
    for wrong, what in (
            (t.tile_m % t.wave_m, "a tile is not of whole wavefronts"),
            (t.tile_w % PIECE or t.wave_m % FRAGMENT,
             f"a wavefront has whole fragments of {FRAGMENT} channels x {PIECE} pixels of a row"),
            (spec.in_channels > FOUR or max(spec.kernel) > MOST_TAPS or spec.dilation[1] > 1,
             f"a pixel has {FOUR} channels at most, a filter {MOST_TAPS} rows and columns, which "
             "are neighbours"),
            (plan.device.wavefront != MATRIX_WAVEFRONT,
             f"the matrix units are of wavefronts of {MATRIX_WAVEFRONT}")):
        if wrong:
            raise LaunchError(f"{plan.name}: {what}")
