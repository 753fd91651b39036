"""Lanes of the product of matrices: how they hold and multiply its operands.

What differs between the arithmetics (hip_src/gemm/kernel.hpp); gemm.py has the order of additions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from dscore.algorithms.gemm.tiling import GemmTiling, rows_of, shape_of, turned, vectors_of
from dscore.backends.reference.machine import Addresses, Blocks, Floats, Ints, lane_ids
from dscore.core.errors import LaunchError
from dscore.core.plan import Plan

# The bits of a float32 that a TF32 leaves out; the greatest without sign that is no NaN, and the
# one that makes any NaN a quiet one.
_LEFT_OUT, _INFINITY, _QUIET = np.uint32(0x1FFF), np.uint32(0x7F800000), np.uint32(0x400000)


def halves(values: Floats) -> tuple[Floats, Floats]:
    """The two TF32 (big, small) whose sum stands for each of *values*.

    >>> big, small = halves(np.float32([1 / 3]))
    >>> [float(part[0]).hex() for part in (big, small)]
    ['0x1.5540000000000p-2', '0x1.5580000000000p-14']
    """
    big = _nearest(values)
    return big, _nearest(values - big)


def _nearest(values: Floats) -> Floats:
    """The nearest TF32, of two the even one; a NaN stays one."""
    bits = values.view(np.uint32)
    rounded = bits + (_LEFT_OUT >> np.uint32(1)) + (bits >> np.uint32(13) & np.uint32(1))
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > _INFINITY
    return (np.where(is_nan, bits | _QUIET, rounded) & ~_LEFT_OUT).view(np.float32)


class Lanes(ABC):
    """Lanes of a block: where each stands, and the channel and pixel that each sum is for.

    A register is an array (block, register, …, wavefront, lane), so that the registers of a file
    are read and multiplied by one NumPy operation.
    """

    registers: tuple[int, ...]  # the sums of a lane
    channel: Ints  # of each sum, in the block's tile
    pixel: Ints

    def __init__(self, plan: Plan) -> None:
        assert isinstance(plan.tiling, GemmTiling)
        t = self.t = plan.tiling
        self.wavefront, self.slice = plan.device.wavefront, t.step_c // t.slices
        shape = shape_of(plan.problem, t, self.wavefront)
        self.steps = int(shape.steps)
        self.filter_row, self.image_row = rows_of(plan.problem, t)
        self.turned = turned(plan.problem)
        self.lane, wave = lane_ids(self.wavefront), lane_ids(int(shape.waves), 1)
        waves_p = t.tile_p // t.wave_p
        self.wave_p = wave % waves_p * t.wave_p
        self.wave_c = wave // waves_p % (t.tile_c // t.wave_c) * t.wave_c
        # Where the operands of a wavefront's slice begin in a buffer.
        first = wave // int(shape.slice_waves) * self.slice
        self.apart = self.filter_row if self.turned else 1  # words between channels summed
        self.filters = first * self.apart
        self.images = int(shape.filters) + first * self.image_row
        self._map(vectors_of(plan.problem)[0])

    @abstractmethod
    def _map(self, width: int) -> None:
        """Set `registers`, `channel`, `pixel` and addresses, for image vectors of *width*."""

    def allocate(self, blocks: Blocks) -> None:
        """The registers of sums and operands."""
        self.blocks = blocks
        self.sums = self._file("sums", *self.registers)
        self.product = np.empty_like(self.sums)

    def _file(self, name: str, *registers: int) -> Floats:
        file = self.blocks.registers(name, int(np.prod(registers)))
        count, *lanes = self.blocks.shape
        return file.reshape(count, *registers, *lanes)

    def filter_words(self, channel: Ints, summed: Ints) -> Ints:
        """Words of filters in a buffer, of channels of the results by channels summed."""
        words: Ints = self.filters + summed * self.apart + channel * (
            1 if self.turned else self.filter_row)
        return words

    def together(self, count: int) -> int:
        """Of *count* channels that a lane reads of filters, those that lie side by side."""
        return 1 if not self.turned or count % 2 else 2 if count % 4 else 4

    @abstractmethod
    def multiply(self, buffer: int) -> None:
        """One step from the LDS buffer that begins at word *buffer*."""


class _Plain(Lanes):
    """A lane's channels lie lanes_c apart, or in vectors of filters turned; its pixels in fours."""

    def _map(self, width: int) -> None:
        t, lanes_p = self.t, self.wavefront // self.t.lanes_c
        self.registers = (t.wave_c // t.lanes_c, t.wave_p // lanes_p)
        # Four channels summed of the filters are read as one, where they lie side by side.
        self.read = 1 if self.turned else 4
        i, p, k = (lane_ids(size, 1, 1) for size in (*self.registers, self.read))
        beside = self.together(t.wave_c // t.lanes_c)
        self.channel = (self.wave_c + i % beside + (
            i // beside * t.lanes_c + self.lane // lanes_p) * beside)[:, None]
        self.pixel = self.wave_p + (p // 4 * lanes_p + self.lane % lanes_p) * 4 + p % 4
        self.a_at = Addresses(self.filter_words(self.channel, k))
        self.b_at = Addresses(self.images + self.pixel)

    def allocate(self, blocks: Blocks) -> None:
        super().allocate(blocks)
        self.a = self._file("filter operands", self.registers[0], self.read)
        self.b = self._file("image operands", self.registers[1])

    def multiply(self, buffer: int) -> None:
        for k in range(0, self.slice, self.read):
            self.blocks.lds_read(self.a, self.a_at, buffer + k * self.apart)
            for part in range(self.read):
                self.blocks.lds_read(self.b, self.b_at, buffer + (k + part) * self.image_row)
                self.blocks.fma(self.sums, self.a[:, :, None, part], self.b[:, None],
                                self.product)


class _Split(Lanes):
    """Fragments of 16 pixels x 8 channels of the matrix units, of eight summed channels each.

    Lane ``4 g + i`` brings channels ``2 i`` and ``2 i + 1`` of row g; where pixels lie aligned,
    `group` of its pixels lie side by side, and so do its channels of filters turned.
    """

    def _map(self, width: int) -> None:
        t, fragments = self.t, (self.t.wave_p // 16, self.t.wave_c // 8)
        group = 1 if width == 1 else 4 if t.wave_p % 32 == 0 else 2
        self.registers = (*fragments, 2, 2)
        row, pair, e = self.lane // 4, self.lane % 4 * 2, lane_ids(2 * fragments[0], 1, 1)
        n, half = lane_ids(fragments[1], 1, 1, 1), lane_ids(2, 1, 1)
        pixel = self.wave_p + e // group * group * 8 + row * group + e % group
        self.pixel = pixel.reshape(-1, 1, 2, 1, *pixel.shape[1:])
        beside = self.together(fragments[1])
        column = self.wave_c + n // beside * beside * 8 + n % beside
        self.channel = (column + (pair + half) * beside)[:, None]
        self.a_at = Addresses(self.images + (pair + half[:, None]) * self.image_row + pixel)
        self.b_at = Addresses(self.filter_words(column + row * beside, pair + half))

    def allocate(self, blocks: Blocks) -> None:
        super().allocate(blocks)
        m, n, *_ = self.registers
        self.a = self._file("image operands", 2, 2, 2 * m)
        self.b = self._file("filter operands", 2, n, 2)
        self.a_read, self.b_read = self.a[:, 0].copy(), self.b[:, 0].copy()
        self.step = (self._file("sums of a step", *self.registers) if self.steps > 1
                     else np.empty_like(self.sums))

    def multiply(self, buffer: int) -> None:
        self.step.fill(0)
        for k in range(0, self.slice, 8):
            self.blocks.lds_read(self.a_read, self.a_at, buffer + k * self.image_row)
            self.blocks.lds_read(self.b_read, self.b_at, buffer + k * self.apart)
            self.a[:, 0], self.a[:, 1] = halves(self.a_read)
            self.b[:, 0], self.b[:, 1] = halves(self.b_read)
            for small_a, small_b in ((1, 0), (0, 1), (0, 0)):
                multiply_fragments(self.blocks, self.lane, self.step, self.a[:, small_a],
                                   self.b[:, small_b], self.product)
        np.add(self.sums, self.step, out=self.sums)


def multiply_fragments(blocks: Blocks, lane: Ints, sums: Floats, a: Floats, b: Floats,
                       product: Floats) -> None:
    """Add the products of fragments, 16 rows of *a* by 8 columns of *b*, to *sums*.

    Shapes: a (block, 2, 2 m, …), b (block, n, 2, …), sums (block, m, n, 2, 2, wavefront, lane).
    """
    count, m, n, _, _, *lanes = sums.shape
    # The lanes that hold operand k of a lane's rows, and of its two columns.
    row, pair, side = lane // 4, lane % 4 * 2, lane_ids(2, 1)
    for k in range(8):
        rows = np.take(a[:, k // 4], row * 4 + k % 4, axis=-1)
        columns = np.take(b[:, :, k // 4], 4 * (pair + side) + k % 4, axis=-1).swapaxes(2, 3)
        blocks.fma(sums, rows.reshape(count, m, 1, 2, 1, *lanes),
                   columns.reshape(count, 1, n, 1, 2, *lanes), product)


def lanes_of(plan: Plan) -> Lanes:
    """The lanes of a plan with a GemmTiling; LaunchError where its kernel does not exist."""
    assert isinstance(plan.tiling, GemmTiling)
    _require_lanes(plan, plan.tiling, plan.device.wavefront)
    return _Plain(plan) if plan.tiling.arithmetic == "plain" else _Split(plan)


def _require_lanes(plan: Plan, t: GemmTiling, wavefront: int) -> None:
    """LaunchError where the kernel does not exist, by the assertions of hip_src/gemm/kernel.hpp."""
    slice_c, tf32 = t.step_c / t.slices, t.arithmetic == "tf32x3"
    unit_c, unit_p = (8, 16) if tf32 else (t.lanes_c, 4 * max(wavefront // t.lanes_c, 1))
    for wrong, what in (
            (t.tile_c % t.wave_c or t.tile_p % t.wave_p, "a tile is not of whole wavefronts"),
            (t.stages < 2, "the ring has one buffer, which needs two at least"),
            (slice_c % (8 if tf32 else 4), f"a slice has {slice_c:g} channels of a step, which "
             f"must be a multiple of {8 if tf32 else 4}"),
            (tf32 and (wavefront != 32 or t.lanes_c != 8), "tf32x3 has 8 rows of lanes of a "
             f"wavefront of 32; here are {t.lanes_c} of {wavefront}"),
            (wavefront % t.lanes_c, f"lanes_c must divide the wavefront {wavefront}"),
            (t.wave_c % unit_c or t.wave_p % unit_p, "a wavefront's tile must be of whole "
             f"fragments of {unit_c} channels x {unit_p} pixels")):
        if wrong:
            raise LaunchError(f"{plan.name}: {what}")
