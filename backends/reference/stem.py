"""The first layer of a network on matrix units (hip_src/stem).

Order of additions, for one output: rows of the filter, in these taps, of these four channels, all
ascending, beginning with +0; then bias, then activation. Products are rounded before they are
added. Taps and channels past the last are +0 · +0, taps outside of the image +0 · w. Of int8, sums
are of int32, a tap outside of the image is x's zero point, and the filters' sums times it are taken
off.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from dscore.algorithms.stem import MOST_TAPS
from dscore.algorithms.stem.tiling import (
    EIGHT,
    FOUR,
    PIECE,
    StemTiling,
    group_of,
    half_taps,
    halves_of,
    shape_of,
    steps_of,
    unit_of,
)
from dscore.algorithms.table_copies import table_bytes
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
from dscore.core.device import MATRIX_WAVEFRONT
from dscore.core.errors import LaunchError
from dscore.core.numerics import ACCUMULATOR, WORD_BYTES
from dscore.core.plan import Plan
from dscore.core.trace import Trace


def run(plan: Plan, operands: Operands, trace: Trace | None) -> None:
    """Write the convolution of *plan* to the operand out."""
    kernel = _Stem(plan, operands)
    for blocks, first in batches(plan, kernel.grid, trace, kernel.allocate):
        blocks.begin()
        kernel.place(first + lane_ids(blocks.count, 1, 1))
        kernel.stage_filters()
        for _ in range(kernel.t.repeat):
            kernel.stage_pixels()
            kernel.multiply()
            kernel.next_tile()


class _Stem(LockstepKernel):
    """A block's tile, and its pieces of 16 pixels of a row.

    Grid order: channel tile fastest, then column tile, row tile, image. Lane 4 g + i brings word i
    of both halves of a fragment's summed elements, of pixels g and g + 8 of a piece and of column g
    of filters, and holds columns 2 i and 2 i + 1 of pixels g and g + 8.
    """

    def __init__(self, plan: Plan, operands: Operands) -> None:
        super().__init__(plan, operands)
        _require_kernel(plan)
        t, self.element = self.t, self.problem.spec.element
        shape = self.shape = shape_of(self.problem, t)
        self.tiles = tuple(int(n) for n in (shape.channel_tiles, shape.column_tiles,
                                            shape.row_blocks))
        self.grid = int(np.prod(self.tiles)) * self.problem.batch
        self.waves = int(shape.waves)
        require_launch(plan, self.grid, self.waves * self.wavefront)
        self.unit, size = unit_of(self.problem), self.element.bytes
        self.pitch, self.row = shape.pitch // size, int(shape.row_units) * shape.pitch // size
        self.columns, self.steps = int(shape.columns), steps_of(self.problem)
        self.each = WORD_BYTES // size  # elements of a word
        wave, self.lane = lane_ids(self.waves, 1), lane_ids(1, self.wavefront)
        self.wave_p, self.wave_n = wave % t.waves_p, wave // t.waves_p * t.wave_n
        self.g, self.word = self.lane // 4, self.lane % 4
        self.group = int(group_of(self.problem, t))

    def allocate(self, blocks: Blocks) -> None:
        """The registers of filters, sums and pixels; LDS, which holds pixels and filters."""
        self.blocks = blocks
        self.filters = self._file("filters", self.steps, self.columns, 2 * self.each,
                                  of_elements=True)
        self.sums = self._file("sums", self.columns, 2, 2)
        self.pixels = self._file("pixels", 2, 2 * self.each, of_elements=True)
        self.product = np.empty_like(self.sums)
        size = self.element.bytes
        blocks.lds_tile("the pixels", int(self.shape.filters_at) // size, self.element)
        self.filters_at = int(self.shape.filters_at) // size
        blocks.lds_tile("the filters", self.t.tile_n * self.problem.spec.products, self.element)
        blocks.lds_tile("a table", int(table_bytes(self.problem.spec)) // size, self.element)

    def _file(self, name: str, *registers: int, of_elements: bool = False) -> Floats:
        count, *lanes = self.blocks.shape
        file = self.blocks.registers(name, int(np.prod(registers)),
                                     packed=self.element if of_elements else ACCUMULATOR)
        return file.reshape(count, *registers, *lanes)

    def place(self, block: Ints) -> None:
        """Where the blocks numbered *block* have their tiles."""
        t, spec, (pad_top, _, pad_left, _) = self.t, self.problem.spec, self.problem.padding
        channels, columns, rows, self.image = split(block, *self.tiles)
        self.first_channel = channels * t.tile_n
        self.left, self.top = columns * t.tile_w, rows * t.tile_h * t.repeat
        self.first_row = self.top * spec.stride[0] - pad_top
        first = self.left * spec.stride[1] - pad_left
        self.first_column = first // self.unit * self.unit
        self.before = first - self.first_column

    def next_tile(self) -> None:
        """Go on to the tiles below."""
        self.top = self.top + self.t.tile_h
        self.first_row = self.first_row + self.t.tile_h * self.problem.spec.stride[0]

    def place_of(self, pixel: Ints) -> Ints:
        """Elements of LDS from the beginning of a row to a pixel of it."""
        at: Ints = pixel // self.unit * self.pitch + pixel % self.unit * FOUR
        return at

    def stage_pixels(self) -> None:
        """The pixels under the tiles to LDS, with four channels each."""
        problem, row_pixels = self.problem, int(self.shape.row_units) * self.unit
        channel, pixel, row = split(lane_ids(1, int(self.shape.rows) * row_pixels * FOUR), FOUR,
                                    row_pixels)
        y, x = self.first_row[:, 0] + row, self.first_column[:, 0] + pixel
        there = inside(y, problem.height) & inside(x, problem.width)
        channels = problem.spec.in_channels
        at = ((self.image[:, 0] * problem.height + y) * problem.width + x) * channels + channel
        values = np.empty(at.shape, self.element.sums.numpy)
        self.load_x(self.blocks, values, Addresses(at, there & (channel < channels)))
        if self.element.exact:
            values[~there] = self.operands["points"][0]
        words = row * self.row + self.place_of(pixel) + channel
        self.blocks.lds_write(0, values, words[0], self.element)

    def stage_filters(self) -> None:
        """Filters to LDS in the order of memory, and from there to registers."""
        spec, size = self.problem.spec, self.problem.spec.products
        out = self.first_channel[:, 0] + lane_ids(1, self.t.tile_n * size) // size
        at = self.first_channel[:, 0] * size + lane_ids(1, self.t.tile_n * size)
        values = np.empty(at.shape, self.element.sums.numpy)
        self.blocks.load(values, self.operands["w"], Addresses(at, out < spec.out_channels),
                         "filters")
        self.blocks.lds_write(self.filters_at, values, element=self.element)
        self.filter_sums = values.reshape(self.blocks.count, self.t.tile_n, size).sum(-1)
        for step, n in product(range(self.steps), range(self.columns)):
            self._read_filter(step, n)

    def channel(self, fragment: int, column: Ints) -> Ints:
        """The channel, of the wavefront's, of a fragment's column."""
        at: Ints = (fragment // self.group * self.group * EIGHT + column // 2 * 2 * self.group
                    + fragment % self.group * 2 + column % 2)
        return at

    def summed(self, step: int, at: int) -> tuple[int, Ints, Ints, Bools]:
        """The row of the filter, the lanes' columns and channels, and which taps there are, of a
        lane's element of a step."""
        halves, (kernel_h, kernel_w) = halves_of(self.problem), self.problem.spec.kernel
        half, element = divmod(at, self.each)
        row, part = divmod(step * 2 + half, halves)
        tap, channel = np.divmod(self.word * self.each + element, FOUR)
        column = part * half_taps(self.problem) + tap
        there = (column < kernel_w) & (row < kernel_h)
        return row, np.where(there, column, 0), channel, there

    def _read_filter(self, step: int, n: int) -> None:
        spec, (kernel_h, kernel_w) = self.problem.spec, self.problem.spec.kernel
        own = (self.wave_n + self.channel(n, self.g)) * spec.products
        for at in range(2 * self.each):
            row, column, channel, there = self.summed(step, at)
            there = there & (channel < spec.in_channels)
            word = own + (channel * kernel_h + row) * kernel_w + column
            self._read(self.filters[:, step, n, at], np.where(there, word, 0) + self.filters_at,
                       there)

    def _read(self, out: Floats, words: Ints, there: Bools) -> None:
        """Elements of LDS, zeros for lanes that have none."""
        self.blocks.lds_read_apart(out, Addresses(np.broadcast_to(words, out.shape)), 0,
                                   self.element)
        np.copyto(out, 0, where=~there)

    def multiply(self) -> None:
        """All pieces of the wavefronts, one after the other."""
        pieces, waves_p = int(self.shape.pieces), self.t.waves_p
        for first in range(0, pieces, waves_p):
            piece = first + self.wave_p
            row, column = np.divmod(np.where(piece < pieces, piece, 0), self.t.tile_w // PIECE)
            column = column * PIECE
            active = (piece < pieces) & (self.top + row < self.problem.out_height) & (
                self.left + column < self.problem.out_width)
            self._begin()
            for step in range(self.steps):
                self._read_pixels(step, row, column)
                self._multiply_step(step, active)
            self._store(self.top + row, self.left + column, active)

    def _begin(self) -> None:
        self.sums.fill(0)
        if not self.element.exact:
            return
        for n, side in product(range(self.columns), range(2)):
            channel = np.broadcast_to(
                self.wave_n + self.channel(n, self.word * 2 + side), self.blocks.shape[1:])
            self.sums[:, n, :, side] = -(self.operands["points"][0] * self.filter_sums[
                :, None, channel])

    def _read_pixels(self, step: int, row: Ints, column: Ints) -> None:
        (stride_h, stride_w), (dilation_h, dilation_w) = (self.problem.spec.stride,
                                                          self.problem.spec.dilation)
        for half, at in product(range(2), range(2 * self.each)):
            tap_row, tap, channel, there = self.summed(step, at)
            pixel = self.before + (column + half * 8 + self.g) * stride_w + tap * dilation_w
            word = (row * stride_h + tap_row * dilation_h) * self.row + self.place_of(pixel)
            self._read(self.pixels[:, half, at], np.where(there, word + channel, 0), there)

    def _multiply_step(self, step: int, active: Bools) -> None:
        column = self.word[0] * 2 + lane_ids(2, 1)
        for half, word, at in product(range(2), range(4), range(self.each)):
            element = half * self.each + at
            rows = np.take(self.pixels[:, :, element], self.g[0] * 4 + word, axis=-1)
            columns = np.take(self.filters[:, step, :, element], column * 4 + word,
                              axis=-1).swapaxes(2, 3)
            self.blocks.fma(self.sums, rows[:, None, :, None], columns[:, :, None], self.product,
                            active[:, None, None, None])

    def _store(self, row: Ints, column: Ints, active: Bools) -> None:
        problem = self.problem
        for n, half, side in product(range(self.columns), range(2), range(2)):
            x = column + half * 8 + self.g
            channel = self.first_channel + self.wave_n + self.channel(n, self.word * 2 + side)
            mask = active & (x < problem.out_width) & (channel < problem.spec.out_channels)
            pixel = (self.image * problem.out_height + row) * problem.out_width + x
            at = Addresses(pixel * problem.spec.out_channels + channel, mask)
            channel = np.broadcast_to(channel, at.index.shape)
            sums = self.epilogue(self.blocks, self.sums[:, n, half, side], channel, at)
            self.blocks.store(self.out, at, sums)


def _require_kernel(plan: Plan) -> None:
    """LaunchError where the kernel does not exist, by the assertions of hip_src/stem/shape.hpp."""
    t, spec = plan.tiling, plan.problem.spec
    assert isinstance(t, StemTiling)
    shape = shape_of(plan.problem, t)
    for wrong, what in (
            (t.tile_n % t.wave_n, "a tile is not of whole wavefronts"),
            (t.tile_w % PIECE or t.wave_n % EIGHT,
             f"a wavefront has whole fragments of {EIGHT} channels x {PIECE} pixels of a row"),
            (t.repeat > 1 and shape.together < shape.turns,
             "the pixels of each of several tiles come at once"),
            (spec.in_channels > FOUR or max(spec.kernel) > MOST_TAPS,
             f"a pixel has {FOUR} channels at most, a filter {MOST_TAPS} rows and columns"),
            (plan.device.wavefront != MATRIX_WAVEFRONT,
             f"the matrix units are of wavefronts of {MATRIX_WAVEFRONT}")):
        if wrong:
            raise LaunchError(f"{plan.name}: {what}")
