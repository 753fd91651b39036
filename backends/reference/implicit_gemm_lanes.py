"""Lanes of the implicit product of matrices: how they hold and multiply its operands.

What differs between the arithmetics (hip_src/implicit_gemm/kernel.hpp); implicit_gemm.py has the
order of additions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from dscore.algorithms.implicit_gemm.tiling import (
    ImplicitGemmTiling,
    beside_of,
    filter_row,
    rows_of,
    shape_of,
    slides,
    taps_of,
)
from dscore.backends.reference.gemm_lanes import halves, multiply_fragments
from dscore.backends.reference.machine import Addresses, Blocks, Floats, Ints, lane_ids
from dscore.core.errors import LaunchError
from dscore.core.plan import Plan


class Lanes(ABC):
    """Lanes of a block: where each stands, and the channel and pixel that each sum is for.

    A register is an array (block, register, …, wavefront, lane).
    """

    registers: tuple[int, ...]  # the sums of a lane
    channel: Ints  # of each sum, in the block's tile
    pixel: Ints  # that a lane reads, (pixel, wavefront, lane)
    sum_pixel: Ints  # of each sum

    def __init__(self, plan: Plan) -> None:
        assert isinstance(plan.tiling, ImplicitGemmTiling)
        t = self.t = plan.tiling
        self.plan, self.wavefront, self.slice = plan, plan.device.wavefront, t.step_c // t.slices
        shape = shape_of(plan.problem, t, self.wavefront)
        self.steps, self.taps = int(shape.steps), taps_of(plan.problem)
        self.filter_row = int(filter_row(plan.problem, t))
        self.lane, wave = lane_ids(self.wavefront), lane_ids(int(shape.waves), 1)
        waves_p = t.tile_p // t.wave_p
        self.wave_p = wave % waves_p * t.wave_p
        self.wave_c = wave // waves_p % (t.tile_c // t.wave_c) * t.wave_c
        # Where the operands of a wavefront's slice begin in a buffer.
        first = wave // int(shape.slice_waves) * self.slice
        self.filters, self.images = first * self.taps, int(shape.filters) + first * t.patch
        self._map()

    @abstractmethod
    def _map(self) -> None:
        """Set `registers`, `channel`, `pixel`, `sum_pixel` and the addresses of filters."""

    @abstractmethod
    def place(self, places: Ints) -> None:
        """Set the addresses of images: where the pixels of each block lie in its patch."""

    def allocate(self, blocks: Blocks) -> None:
        """The registers of sums and operands."""
        self.blocks = blocks
        self.sums = self._file("sums", *self.registers)
        self.product = np.empty_like(self.sums)

    def _file(self, name: str, *registers: int) -> Floats:
        file = self.blocks.registers(name, int(np.prod(registers)))
        count, *lanes = self.blocks.shape
        return file.reshape(count, *registers, *lanes)

    def tap_place(self, tap: int) -> int:
        """How much further on than the first tap of a pixel another one lies in a patch."""
        row, column = divmod(tap, self.plan.problem.spec.kernel[1])
        dilation_h, dilation_w = self.plan.problem.spec.dilation
        return row * dilation_h * rows_of(self.plan.problem).width + column * dilation_w

    @abstractmethod
    def multiply(self, buffer: int) -> None:
        """One step from the LDS buffer that begins at word *buffer*."""


class _Plain(Lanes):
    """A lane's channels lie lanes_c apart, its pixels lanes_p or, where lanes slide, side by side.
    """

    def _map(self) -> None:
        t, lanes_p = self.t, self.wavefront // self.t.lanes_c
        self.registers = (t.wave_c // t.lanes_c, t.wave_p // lanes_p)
        i, p = (lane_ids(size, 1, 1) for size in self.registers)
        channel = self.wave_c + i * t.lanes_c + self.lane // lanes_p
        self.channel = channel[:, None]
        apart = ((1, self.registers[1]) if slides(self.plan.problem, t, self.wavefront)
                 else (lanes_p, 1))
        self.pixel = self.sum_pixel = (self.wave_p + p * apart[0]
                                       + self.lane % lanes_p * apart[1])
        self.a_at = Addresses(self.filters + channel * self.filter_row)

    def place(self, places: Ints) -> None:
        self.b_at = Addresses(self.images + places)

    def allocate(self, blocks: Blocks) -> None:
        super().allocate(blocks)
        self.a = self._file("filter operands", self.registers[0])
        self.b = self._file("image operands", self.registers[1])

    def multiply(self, buffer: int) -> None:
        for channel in range(self.slice):
            for tap in range(self.taps):
                self.blocks.lds_read(self.a, self.a_at, buffer + channel * self.taps + tap)
                self.blocks.lds_read_apart(
                    self.b, self.b_at, buffer + channel * self.t.patch + self.tap_place(tap))
                self.blocks.fma(self.sums, self.a[:, :, None], self.b[:, None], self.product)


class _Split(Lanes):
    """Fragments of 16 pixels x 8 channels of the matrix units, of eight products each: a tap of
    eight channels or, of slices of an odd number of fours, two taps of four.

    Lane ``4 g + i`` brings the i-th of each four of row g; where the output's pixels lie aligned,
    4 of its pixels lie side by side.
    """

    def _map(self) -> None:
        t, fragments = self.t, (self.t.wave_p // 16, self.t.wave_c // 8)
        beside = 1 if beside_of(self.plan.problem, t) == 1 else 4
        self.registers = (*fragments, 2, 2)
        row, self.four, e = self.lane // 4, self.lane % 4, lane_ids(2 * fragments[0], 1, 1)
        n, side = lane_ids(fragments[1], 1, 1, 1), lane_ids(2, 1, 1)
        self.pixel = self.wave_p + e // beside * beside * 8 + row * beside + e % beside
        self.sum_pixel = self.pixel.reshape(-1, 1, 2, 1, *self.pixel.shape[1:])
        self.channel = (self.wave_c + n * 8 + self.four * 2 + side)[:, None]
        self.b_at = Addresses(self.filters + self.four * self.taps
                              + (self.wave_c + n[:, 0] * 8 + row) * self.filter_row)

    def place(self, places: Ints) -> None:
        self.a_at = Addresses(self.images + self.four * self.t.patch + places)

    def allocate(self, blocks: Blocks) -> None:
        super().allocate(blocks)
        m, n, *_ = self.registers
        self.a = self._file("image operands", 2, 2, 2 * m)
        self.b = self._file("filter operands", 2, n, 2)
        self.a_read, self.b_read = self.a[:, 0, 0].copy(), self.b[:, 0, :, 0].copy()
        self.step = (self._file("sums of a step", *self.registers) if self.steps > 1
                     else np.empty_like(self.sums))

    def multiply(self, buffer: int) -> None:
        self.step.fill(0)
        fours, taps = self.slice // 4, self.taps
        if fours % 2 == 0:
            for channel in range(0, self.slice, 8):
                for tap in range(taps):
                    self._multiply_eight(buffer, (channel, tap), (channel + 4, tap))
        else:
            for channel in range(0, self.slice, 4):
                for tap in range(0, taps, 2):
                    self._multiply_eight(buffer, (channel, tap),
                                         (channel, tap + 1) if tap + 1 < taps else None)
        np.add(self.sums, self.step, out=self.sums)

    def _multiply_eight(self, buffer: int, *both: tuple[int, int] | None) -> None:
        """Fragments of two fours of channels, each from a channel on by one tap; None are zeros."""
        for half, products in enumerate(both):
            if products is None:
                self.a_read.fill(0)
                self.b_read.fill(0)
            else:
                channel, tap = products
                self.blocks.lds_read_apart(
                    self.a_read, self.a_at,
                    buffer + channel * self.t.patch + self.tap_place(tap))
                self.blocks.lds_read(self.b_read, self.b_at, buffer + channel * self.taps + tap)
            self.a[:, 0, half], self.a[:, 1, half] = halves(self.a_read)
            self.b[:, 0, :, half], self.b[:, 1, :, half] = halves(self.b_read)
        for small_a, small_b in ((1, 0), (0, 1), (0, 0)):
            multiply_fragments(self.blocks, self.lane, self.step, self.a[:, small_a],
                               self.b[:, small_b], self.product)


def lanes_of(plan: Plan) -> Lanes:
    """The lanes of a plan; LaunchError where its kernel does not exist."""
    assert isinstance(plan.tiling, ImplicitGemmTiling)
    _require_lanes(plan, plan.tiling, plan.device.wavefront)
    return _Plain(plan) if plan.tiling.arithmetic == "plain" else _Split(plan)


def _require_lanes(plan: Plan, t: ImplicitGemmTiling, wavefront: int) -> None:
    """LaunchError where the kernel does not exist, by the assertions of
    hip_src/implicit_gemm/kernel.hpp."""
    slice_c, tf32 = t.step_c / t.slices, t.arithmetic == "tf32x3"
    unit_c, unit_p = (8, 16) if tf32 else (t.lanes_c, max(wavefront // t.lanes_c, 1))
    for wrong, what in (
            (t.tile_c % t.wave_c or t.tile_p % t.wave_p, "a tile is not of whole wavefronts"),
            (slice_c % (4 if tf32 else 1), f"a slice has {slice_c:g} channels of a step, which "
             f"must be a multiple of {4 if tf32 else 1}"),
            (tf32 and (wavefront != 32 or t.lanes_c != 8), "tf32x3 has 8 rows of lanes of a "
             f"wavefront of 32; here are {t.lanes_c} of {wavefront}"),
            (wavefront % t.lanes_c, f"lanes_c must divide the wavefront {wavefront}"),
            (t.wave_c % unit_c or t.wave_p % unit_p, "a wavefront's tile must be of whole "
             f"fragments of {unit_c} channels x {unit_p} pixels")):
        if wrong:
            raise LaunchError(f"{plan.name}: {what}")
