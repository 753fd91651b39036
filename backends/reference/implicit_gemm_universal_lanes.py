"""Lanes of the implicit product of matrices of both layouts: how they hold and multiply its
operands.

What differs between the arithmetics (hip_src/implicit_gemm_universal/lanes.hpp);
implicit_gemm_universal.py has the order of additions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.implicit_gemm.tiling import rows_of, taps_of
from dscore.algorithms.implicit_gemm_universal.tiling import (
    FOUR,
    ImplicitGemmUniversalTiling,
    across_of,
    element_of,
    filter_row,
    piece_of,
    shape_of,
    taps_together,
    vectors_of,
)
from dscore.backends.reference.gemm_lanes import halves, multiply_fragments
from dscore.backends.reference.machine import Addresses, Blocks, Bools, Floats, Ints, lane_ids
from dscore.core.device import MATRIX_WAVEFRONT
from dscore.core.errors import LaunchError
from dscore.core.numerics import ACCUMULATOR, WORD_BYTES
from dscore.core.plan import Plan


class Lanes(ABC):
    """Lanes of a block: where each stands, and the channel and pixel that each sum is for.

    A register is an array (block, register, …, wavefront, lane).
    """

    registers: tuple[int, ...]  # the sums of a lane
    channel: Ints  # of each sum, in the block's tile
    sum_pixel: Ints  # of each sum
    pixel: Ints  # that a lane reads, (pixel, wavefront, lane)
    places: Ints  # of these in the patch of each block
    zeros: int  # element of LDS where a vector of zeros begins

    def __init__(self, plan: Plan) -> None:
        assert isinstance(plan.tiling, ImplicitGemmUniversalTiling)
        t = self.t = plan.tiling
        self.plan, self.wavefront = plan, plan.device.wavefront
        self.problem, self.element = plan.problem, plan.problem.spec.element
        self.zero_elements = VECTOR_BYTES // self.element.bytes
        shape, self.taps = shape_of(plan.problem, t, self.wavefront), taps_of(plan.problem)
        self.own, self.across = t.step_c // t.slices, int(across_of(plan.problem, t))
        self.taps_together = int(taps_together(plan.problem, t))
        # Of a fragment, the summed elements that a word holds.
        self.word = WORD_BYTES // self.element.bytes
        self.filter_row = int(filter_row(plan.problem, t))
        self.apart = int(element_of(plan.problem, t))
        self.images_at, self.piece = int(shape.filters), int(piece_of(plan.problem, t))
        self.lane, wave = lane_ids(self.wavefront), lane_ids(int(shape.waves), 1)
        waves_p = t.tile_p // t.wave_p
        self.wave_p = wave % waves_p * t.wave_p
        self.wave_c = wave // waves_p % (t.tile_c // t.wave_c) * t.wave_c
        self.slice = wave // int(shape.slice_waves)
        self._map()

    @abstractmethod
    def _map(self) -> None:
        """Set `registers`, `channel`, `pixel`, `sum_pixel` and the rows of filters."""

    def allocate(self, blocks: Blocks) -> None:
        """The registers of sums and operands."""
        self.blocks = blocks
        self.sums = self._file("sums", *self.registers)
        self.product = np.empty_like(self.sums)

    def _file(self, name: str, *registers: int, of_elements: bool = False) -> Floats:
        file = self.blocks.registers(name, int(np.prod(registers)),
                                     packed=self.element if of_elements else ACCUMULATOR)
        count, *lanes = self.blocks.shape
        return file.reshape(count, *registers, *lanes)

    def _summed(self, c: int, tap: int, k: Ints) -> tuple[Ints, Ints, Bools]:
        """Of summed elements *k* of a fragment that begins with a channel and a tap: their tap and
        channel in the step, and whether there is such a tap."""
        own = tap + k // self.across
        return own, self.slice * self.own + c + k % self.across, own < self.taps

    def read_images(self, out: Floats, buffer: int, c: int, tap: int, k: Ints) -> None:
        """Of the lane's pixels, summed elements *k*, (…, pixel, wavefront, lane)."""
        own, channel, there = self._summed(c, tap, k)
        (dilation_h, dilation_w), width = self.problem.spec.dilation, self.problem.spec.kernel[1]
        further = (own // width * dilation_h * rows_of(self.problem).width
                   + own % width * dilation_w)
        # Blocks, then what k has beside the pixels of a lane.
        places = self.places.reshape(len(self.places), *[1] * (k.ndim - 3), *self.places.shape[1:])
        at = buffer + self.images_at + (places + further) * self.apart + channel
        self.blocks.lds_read_apart(out, Addresses(np.where(there, at, self.zeros)), 0,
                                   element=self.element)

    def filter_place(self, channel: Ints, tap: Ints) -> Ints:
        """Where a channel of a tap lies in a row of filters: pieces have all their taps."""
        return (channel // self.piece * self.taps + tap) * self.piece + channel % self.piece

    def read_filters(self, out: Floats, buffer: int, row: Ints, c: int, tap: int, k: Ints) -> None:
        """Of channels *row* of the wavefront, summed elements *k*."""
        own, channel, there = self._summed(c, tap, k)
        at = buffer + (self.wave_c + row) * self.filter_row + self.filter_place(channel, own)
        self.blocks.lds_read(out, Addresses(np.where(there, at, self.zeros)), 0,
                             element=self.element)

    def multiply(self, buffer: int) -> None:
        """One step from the LDS buffer that begins at element *buffer*."""
        for c in range(0, self.own, self.across):
            for tap in range(0, self.taps, self.taps_together):
                self._multiply_fragment(buffer, c, tap)

    @abstractmethod
    def _multiply_fragment(self, buffer: int, c: int, tap: int) -> None:
        """A fragment that begins with channel *c* of the slice and a tap."""


class _Plain(Lanes):
    """A lane's channels lie lanes_c apart, its pixels lanes_p; four channels of a tap are read as
    one, of int8 up to sixteen."""

    def _map(self) -> None:
        t, lanes_p = self.t, self.wavefront // self.t.lanes_c
        self.registers = (t.wave_c // t.lanes_c, t.wave_p // lanes_p)
        i, p = (lane_ids(size, 1, 1) for size in self.registers)
        self.row = i * t.lanes_c + self.lane // lanes_p
        self.channel = (self.wave_c + self.row)[:, None]
        self.pixel = self.sum_pixel = self.wave_p + p * lanes_p + self.lane % lanes_p

    def allocate(self, blocks: Blocks) -> None:
        super().allocate(blocks)
        self.a = self._file("filter operands", self.across, self.registers[0], of_elements=True)
        self.b = self._file("image operands", self.across, self.registers[1], of_elements=True)

    def _multiply_fragment(self, buffer: int, c: int, tap: int) -> None:
        k = lane_ids(self.across, 1, 1, 1)
        self.read_filters(self.a, buffer, self.row, c, tap, k)
        self.read_images(self.b, buffer, c, tap, k)
        for at in range(self.across):
            self.blocks.fma(self.sums, self.a[:, at, :, None], self.b[:, at, None], self.product)


class _Fragments(Lanes):
    """Fragments of 16 pixels by 8 channels: lane 4 g + i holds channels 2 i and 2 i + 1 of pixels g
    and g + 8."""

    def _map(self) -> None:
        m, n = self.t.wave_p // 16, self.t.wave_c // 8
        self.registers = (m, n, 2, 2)
        g, pair = self.lane // 4, self.lane % 4 * 2
        self.pixel = self.wave_p + lane_ids(2 * m, 1, 1) * 8 + g
        self.sum_pixel = self.pixel.reshape(m, 1, 2, 1, *self.pixel.shape[1:])
        self.channel = (self.wave_c + lane_ids(n, 1, 1, 1) * 8 + pair + lane_ids(2, 1, 1))[:, None]
        self.row = lane_ids(n, 1, 1) * 8 + g


class _Tf32(_Fragments):
    """Each product as three of TF32, the small parts' first; pairs of summed elements. The sums of
    a step are made apart."""

    def allocate(self, blocks: Blocks) -> None:
        super().allocate(blocks)
        m, n, *_ = self.registers
        self.a = self._file("image operands", 2, 2, 2 * m)
        self.b = self._file("filter operands", 2, 2, n)
        self.step = self._file("sums of a step", *self.registers)
        self.a_read, self.b_read = self.a[:, 0].copy(), self.b[:, 0].copy()

    def multiply(self, buffer: int) -> None:
        self.step.fill(0)
        super().multiply(buffer)
        np.add(self.sums, self.step, out=self.sums)

    def _multiply_fragment(self, buffer: int, c: int, tap: int) -> None:
        k = self.lane % 4 * 2 + lane_ids(2, 1, 1, 1)
        self.read_images(self.a_read, buffer, c, tap, k)
        self.read_filters(self.b_read, buffer, self.row, c, tap, k)
        self.a[:, 0], self.a[:, 1] = halves(self.a_read)
        self.b[:, 0], self.b[:, 1] = halves(self.b_read)
        for small_a, small_b in ((1, 0), (0, 1), (0, 0)):
            multiply_fragments(self.blocks, self.lane, self.step, self.a[:, small_a],
                               self.b[:, small_b].swapaxes(1, 2), self.product)


class _Matrix(_Fragments):
    """Products of elements of 16 bits or of int8, a fragment's summed elements at a time,
    ascending."""

    def allocate(self, blocks: Blocks) -> None:
        super().allocate(blocks)
        m, n, *_ = self.registers
        self.a = self._file("image operands", 2, self.word, 2 * m, of_elements=True)
        self.b = self._file("filter operands", 2, self.word, n, of_elements=True)

    def _multiply_fragment(self, buffer: int, c: int, tap: int) -> None:
        # Halves of the summed elements, and the word of each that a lane holds.
        word, half = self.word, 4 * self.word
        k = self.lane % 4 * word + lane_ids(2, 1, 1, 1, 1) * half + lane_ids(word, 1, 1, 1)
        self.read_images(self.a, buffer, c, tap, k)
        self.read_filters(self.b, buffer, self.row, c, tap, k)
        count, m, n, _, _, *lanes = self.sums.shape
        row, column = self.lane // 4, self.lane % 4 * 2 + lane_ids(2, 1)
        for at in range(2 * half):
            lane = at % half // word
            rows = np.take(self.a[:, at // half, at % word], row * 4 + lane, axis=-1)
            columns = np.take(self.b[:, at // half, at % word], column * 4 + lane,
                              axis=-1).swapaxes(2, 3)
            self.blocks.fma(self.sums, rows.reshape(count, m, 1, 2, 1, *lanes),
                            columns.reshape(count, 1, n, 1, 2, *lanes), self.product)


class _Mfma(Lanes):
    """Fragments of 16 pixels by 16 channels of AMD's matrix units: lane 16 q + r brings four summed
    elements, from 4 q on, or eight of int8, from 8 q on, of row r and of column r, and holds pixels
    4 q to 4 q + 3 of channel r.
    """

    def _map(self) -> None:
        m, n = self.t.wave_p // 16, self.t.wave_c // 16
        self.registers = (m, n, 4)
        r, q = self.lane % 16, self.lane // 16
        self.pixel = self.wave_p + lane_ids(m, 1, 1) * 16 + r
        self.sum_pixel = (self.wave_p + lane_ids(m, 1, 1, 1, 1) * 16 + q * 4
                          + lane_ids(4, 1, 1))
        self.row = lane_ids(n, 1, 1) * 16 + r
        self.channel = (self.wave_c + self.row)[:, None]

    def allocate(self, blocks: Blocks) -> None:
        super().allocate(blocks)
        m, n, _ = self.registers
        self.each = 8 if self.element.exact else 4
        self.a = self._file("image operands", self.each, m, of_elements=True)
        self.b = self._file("filter operands", self.each, n, of_elements=True)

    def _multiply_fragment(self, buffer: int, c: int, tap: int) -> None:
        k = self.lane // 16 * self.each + lane_ids(self.each, 1, 1, 1)
        self.read_images(self.a, buffer, c, tap, k)
        self.read_filters(self.b, buffer, self.row, c, tap, k)
        row = self.lane // 16 * 4 + lane_ids(4, 1)
        for at in range(4 * self.each):
            q, place = divmod(at, self.each)
            rows = np.take(self.a[:, place], q * 16 + row, axis=-1).swapaxes(2, 3)
            columns = np.take(self.b[:, place], q * 16 + self.lane % 16, axis=-1)
            self.blocks.fma(self.sums, rows[:, :, None], columns[:, None, :, None], self.product)


def lanes_of(plan: Plan) -> Lanes:
    """The lanes of a plan; LaunchError where its kernel does not exist."""
    assert isinstance(plan.tiling, ImplicitGemmUniversalTiling)
    _require_lanes(plan, plan.tiling, plan.device.wavefront)
    nvidia = plan.device.wavefront == MATRIX_WAVEFRONT
    kinds: dict[str, type[Lanes]] = {"plain": _Plain, "tf32x3": _Tf32,
                                     "matrix16": _Matrix if nvidia else _Mfma,
                                     "matrix8": _Matrix if nvidia else _Mfma}
    return kinds[plan.tiling.arithmetic](plan)


def _require_lanes(plan: Plan, t: ImplicitGemmUniversalTiling, wavefront: int) -> None:
    """LaunchError where the kernel does not exist, by the assertions of
    hip_src/implicit_gemm_universal/tiles.hpp."""
    units, vector = t.arithmetic != "plain", vectors_of(plan.problem)[1]
    row = t.tile_c if plan.problem.spec.layout == "nhwc" else t.tile_p
    unit_c, unit_p = t.lanes_c, max(wavefront // t.lanes_c, 1)
    if units:
        unit_c, unit_p = 8 if wavefront == MATRIX_WAVEFRONT else 16, 16
    for wrong, what in (
            (t.tile_c % t.wave_c or t.tile_p % t.wave_p, "a tile is not of whole wavefronts"),
            (t.step_c % (FOUR * t.slices), f"a slice has {t.step_c / t.slices:g} channels of a "
             f"step, which must be a multiple of {FOUR}"),
            ((units and t.lanes_c != 8) or (t.arithmetic == "tf32x3" and wavefront != 32),
             f"{t.arithmetic} has 8 rows of lanes, tf32x3 of a wavefront of 32; here are "
             f"{t.lanes_c} of {wavefront}"),
            (wavefront % t.lanes_c, f"lanes_c must divide the wavefront {wavefront}"),
            (t.wave_c % unit_c or t.wave_p % unit_p, "a wavefront's tile must be of whole "
             f"fragments of {unit_c} channels x {unit_p} pixels"),
            (row % vector, "rows of tiles must be whole vectors of the output")):
        if wrong:
            raise LaunchError(f"{plan.name}: {what}")
