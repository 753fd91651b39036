"""Lanes of the product of matrices in any order of axes: how they hold and multiply its operands.

What differs between the arithmetics (hip_src/gemm_universal/lanes.hpp); gemm_universal.py has the
order of additions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.gemm_universal.tiling import (
    FRAGMENTS,
    GemmUniversalTiling,
    beside,
    direct,
    pitches_of,
    shape_of,
    sizes_of,
)
from dscore.backends.reference.gemm_lanes import halves, multiply_fragments
from dscore.backends.reference.machine import Addresses, Blocks, Floats, Ints, lane_ids
from dscore.core.device import MATRIX_WAVEFRONT
from dscore.core.errors import LaunchError
from dscore.core.numerics import ACCUMULATOR
from dscore.core.plan import Plan


def group_of(plan: Plan) -> int:
    """Fragments whose columns lie so that a lane's are neighbours."""
    t = plan.tiling
    assert isinstance(t, GemmUniversalTiling)
    mfma = t.arithmetic == "matrix16" and plan.device.wavefront != MATRIX_WAVEFRONT
    if t.arithmetic == "plain" or mfma or not sizes_of(plan.problem).along_b or not direct(t):
        return 1
    most = VECTOR_BYTES // plan.problem.spec.element.bytes // 2
    return most if t.wave_n % (8 * most) == 0 else 2 if t.wave_n % 16 == 0 else 1


class Lanes(ABC):
    """Lanes of a block: the row and the column of the tile that each sum is for.

    A register is an array (block, register, …, wavefront, lane).
    """

    registers: tuple[int, ...]  # the sums of a lane
    row: Ints  # of each sum, in the block's tile
    column: Ints

    def __init__(self, plan: Plan) -> None:
        assert isinstance(plan.tiling, GemmUniversalTiling)
        t = self.t = plan.tiling
        self.plan, self.element = plan, plan.problem.spec.element
        self.sizes, self.wavefront = sizes_of(plan.problem), plan.device.wavefront
        self.summed = t.step // t.slices
        shape = shape_of(plan.problem, t, self.wavefront)
        self.pitch_a, self.pitch_b = (int(pitch) for pitch in pitches_of(plan.problem, t))
        self.lane, wave = lane_ids(self.wavefront), lane_ids(int(shape.waves), 1)
        waves_m, waves_n = t.tile_m // t.wave_m, t.tile_n // t.wave_n
        self.slice = wave // (waves_m * waves_n)
        self.wave_m = wave // waves_n % waves_m * t.wave_m
        self.wave_n = wave % waves_n * t.wave_n
        self._map()

    @abstractmethod
    def _map(self) -> None:
        """Set `registers`, `row`, `column` and addresses."""

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

    def a_words(self, row: Ints, k: Ints) -> Addresses:
        """Elements of a buffer, of rows of the wavefront by summed elements of its slice."""
        return Addresses(_place(self.sizes.along_a, self.wave_m + row,
                                self.slice * self.summed + k, self.pitch_a))

    def b_words(self, column: Ints, k: Ints) -> Addresses:
        """The same of the second operand, by places of columns."""
        return Addresses(_place(self.sizes.along_b, self.wave_n + column,
                                self.slice * self.summed + k, self.pitch_b))

    def read(self, out: Floats, at: Addresses, buffer: int, along: bool, pitch: int, k: int
             ) -> None:
        """An operand's elements from summed element *k* on."""
        self.blocks.lds_read(out, at, buffer + k * (1 if along else pitch), element=self.element)

    @abstractmethod
    def multiply(self, a: int, b: int) -> None:
        """One step from the tiles of operands that begin at these elements of LDS."""


def _place(along: bool, extent: Ints, summed: Ints, pitch: int) -> Ints:
    return extent * pitch + summed if along else summed * pitch + extent


class _Plain(Lanes):
    """A lane's rows lie lanes_m apart, of an operand across the sum in neighbours read as one."""

    def _map(self) -> None:
        t, lanes_n = self.t, self.wavefront // self.t.lanes_m
        self.registers = (t.wave_m // t.lanes_m, t.wave_n // lanes_n)
        # Four summed elements are read as one, where they lie side by side.
        self.read_a, self.read_b = (4 if along else 1 for along in (self.sizes.along_a,
                                                                    self.sizes.along_b))
        row = _spread(self.registers[0], t.lanes_m, self.lane // lanes_n, self.sizes.along_a)
        column = _spread(self.registers[1], lanes_n, self.lane % lanes_n, self.sizes.along_b)
        self.row = (self.wave_m + row)[:, None]
        self.column = (self.wave_n + column)[None]
        self.a_at = self.a_words(row[:, None], lane_ids(self.read_a, 1, 1))
        self.b_at = self.b_words(column[:, None], lane_ids(self.read_b, 1, 1))

    def allocate(self, blocks: Blocks) -> None:
        super().allocate(blocks)
        self.a = self._file("first operands", self.registers[0], self.read_a, of_elements=True)
        self.b = self._file("second operands", self.registers[1], self.read_b, of_elements=True)

    def multiply(self, a: int, b: int) -> None:
        for k in range(self.summed):
            if k % self.read_a == 0:
                self.read(self.a, self.a_at, a, self.sizes.along_a, self.pitch_a, k)
            if k % self.read_b == 0:
                self.read(self.b, self.b_at, b, self.sizes.along_b, self.pitch_b, k)
            self.blocks.fma(self.sums, self.a[:, :, None, k % self.read_a],
                            self.b[:, None, :, k % self.read_b], self.product)


def _spread(count: int, lanes: int, lane: Ints, along: bool) -> Ints:
    """Rows (or columns) of a lane, (number, wavefront, lane)."""
    together, i = int(beside(along, count)), lane_ids(count, 1, 1)
    spread: Ints = (i // together * lanes + lane) * together + i % together
    return spread


class _Fragments(Lanes):
    """Fragments of 16 rows by 8 columns: lane 4 g + i holds columns 2 i and 2 i + 1 of rows g and
    g + 8. The columns of a group of fragments lie so that a lane's are neighbours."""

    def _map(self) -> None:
        m, n = self.t.wave_m // 16, self.t.wave_n // 8
        self.registers = (m, n, 2, 2)
        g, pair, group = self.lane // 4, self.lane % 4, group_of(self.plan)
        eight = lane_ids(m, 1, 2, 1, 1, 1)
        self.row = self.wave_m + eight * 8 + g
        at, half = lane_ids(1, n, 1, 1, 1, 1), lane_ids(1, 1, 1, 2, 1, 1)
        self.column = self.wave_n + at // group * 8 * group + pair * 2 * group + (
            at % group * 2 + half)
        self._map_operands(g, lane_ids(2 * m, 1, 1), lane_ids(n, 1, 1, 1))

    @abstractmethod
    def _map_operands(self, g: Ints, eight: Ints, fragment: Ints) -> None:
        """Set the addresses of operands, of eights of rows and of fragments' columns."""


class _Tf32(_Fragments):
    """Each product as three of TF32, the small parts' first; pairs of summed elements. The sums of
    a step are made apart."""

    def _map_operands(self, g: Ints, eight: Ints, fragment: Ints) -> None:
        k = self.lane % 4 * 2 + lane_ids(2, 1, 1)
        self.a_at = self.a_words(eight * 8 + g, k[:, None])
        self.b_at = self.b_words(fragment * 8 + g, k)

    def allocate(self, blocks: Blocks) -> None:
        super().allocate(blocks)
        m, n, *_ = self.registers
        self.a, self.b = self._file("first operands", 2, 2, 2 * m), self._file(
            "second operands", 2, n, 2)
        self.step = self._file("sums of a step", *self.registers)
        self.a_read, self.b_read = self.a[:, 0].copy(), self.b[:, 0].copy()

    def multiply(self, a: int, b: int) -> None:
        self.step.fill(0)
        for k in range(0, self.summed, 8):
            self.read(self.a_read, self.a_at, a, self.sizes.along_a, self.pitch_a, k)
            self.read(self.b_read, self.b_at, b, self.sizes.along_b, self.pitch_b, k)
            self.a[:, 0], self.a[:, 1] = halves(self.a_read)
            self.b[:, 0], self.b[:, 1] = halves(self.b_read)
            for small_a, small_b in ((1, 0), (0, 1), (0, 0)):
                multiply_fragments(self.blocks, self.lane, self.step, self.a[:, small_a],
                                   self.b[:, small_b], self.product)
        np.add(self.sums, self.step, out=self.sums)


class _Matrix16(_Fragments):
    """Products of elements of 16 bits, sixteen summed elements at a time, ascending."""

    def _map_operands(self, g: Ints, eight: Ints, fragment: Ints) -> None:
        # Halves of eight summed elements, and the two of each that a lane holds.
        k = self.lane % 4 * 2 + (lane_ids(2, 1) * 8 + lane_ids(2))[..., None, None]
        self.a_at = self.a_words(eight * 8 + g, k[:, :, None])
        self.b_at = self.b_words(fragment[:, None] * 8 + g, k)

    def allocate(self, blocks: Blocks) -> None:
        super().allocate(blocks)
        m, n, *_ = self.registers
        self.a = self._file("first operands", 2, 2, 2 * m, of_elements=True)
        self.b = self._file("second operands", n, 2, 2, of_elements=True)

    def multiply(self, a: int, b: int) -> None:
        for k in range(0, self.summed, 16):
            self.read(self.a, self.a_at, a, self.sizes.along_a, self.pitch_a, k)
            self.read(self.b, self.b_at, b, self.sizes.along_b, self.pitch_b, k)
            self._multiply_fragments()

    def _multiply_fragments(self) -> None:
        count, m, n, _, _, *lanes = self.sums.shape
        row, column = self.lane // 4, self.lane % 4 * 2 + lane_ids(2, 1)
        for k in range(16):
            rows = np.take(self.a[:, k // 8, k % 2], row * 4 + k % 8 // 2, axis=-1)
            columns = np.take(self.b[:, :, k // 8, k % 2], column * 4 + k % 8 // 2,
                              axis=-1).swapaxes(2, 3)
            self.blocks.fma(self.sums, rows.reshape(count, m, 1, 2, 1, *lanes),
                            columns.reshape(count, 1, n, 1, 2, *lanes), self.product)


class _Mfma(Lanes):
    """Fragments of 16 rows by 16 columns of AMD's matrix units: lane 16 q + r brings four summed
    elements, from 4 q on, of row r and of column r, and holds rows 4 q to 4 q + 3 of column r."""

    def _map(self) -> None:
        m, n = self.t.wave_m // 16, self.t.wave_n // 16
        self.registers = (m, n, 4)
        r, q = self.lane % 16, self.lane // 16
        self.row = self.wave_m + lane_ids(m, 1, 1, 1, 1) * 16 + q * 4 + lane_ids(4, 1, 1)
        self.column = self.wave_n + lane_ids(n, 1, 1, 1) * 16 + r
        k = q * 4 + lane_ids(4, 1, 1)
        self.a_at = self.a_words(lane_ids(m, 1, 1, 1) * 16 + r, k)
        self.b_at = self.b_words(lane_ids(n, 1, 1, 1) * 16 + r, k)

    def allocate(self, blocks: Blocks) -> None:
        super().allocate(blocks)
        m, n, _ = self.registers
        self.a = self._file("first operands", m, 4, of_elements=True)
        self.b = self._file("second operands", n, 4, of_elements=True)

    def multiply(self, a: int, b: int) -> None:
        row = self.lane // 16 * 4 + lane_ids(4, 1)
        for k in range(0, self.summed, 16):
            self.read(self.a, self.a_at, a, self.sizes.along_a, self.pitch_a, k)
            self.read(self.b, self.b_at, b, self.sizes.along_b, self.pitch_b, k)
            for at in range(16):
                rows = np.take(self.a[:, :, at % 4], at // 4 * 16 + row, axis=-1).swapaxes(2, 3)
                columns = np.take(self.b[:, :, at % 4], at // 4 * 16 + self.lane % 16, axis=-1)
                self.blocks.fma(self.sums, rows[:, :, None], columns[:, None, :, None],
                                self.product)


def lanes_of(plan: Plan) -> Lanes:
    """The lanes of a plan; LaunchError where its kernel does not exist."""
    assert isinstance(plan.tiling, GemmUniversalTiling)
    _require_lanes(plan, plan.tiling, plan.device.wavefront)
    nvidia = plan.device.wavefront == MATRIX_WAVEFRONT
    kinds: dict[str, type[Lanes]] = {"plain": _Plain, "tf32x3": _Tf32,
                                     "matrix16": _Matrix16 if nvidia else _Mfma}
    return kinds[plan.tiling.arithmetic](plan)


def _require_lanes(plan: Plan, t: GemmUniversalTiling, wavefront: int) -> None:
    """LaunchError where the kernel does not exist, by the assertions of
    hip_src/gemm_universal/product.hpp."""
    summed, fragment = t.step / t.slices, FRAGMENTS[t.arithmetic]
    units, whole = t.arithmetic != "plain", VECTOR_BYTES // plan.problem.spec.element.bytes
    unit_m, unit_n = t.lanes_m, max(wavefront // t.lanes_m, 1)
    if units:
        unit_m, unit_n = 16, 8 if wavefront == MATRIX_WAVEFRONT else 16
    sizes = sizes_of(plan.problem)
    for wrong, what in (
            (t.tile_m % t.wave_m or t.tile_n % t.wave_n, "a tile is not of whole wavefronts"),
            (summed % fragment, f"a slice has {summed:g} elements of a step, which must be a "
             f"multiple of {fragment}"),
            ((units and t.lanes_m != 8) or (t.arithmetic == "tf32x3" and wavefront != 32),
             f"{t.arithmetic} has 8 rows of lanes, tf32x3 of a wavefront of 32; here are "
             f"{t.lanes_m} of {wavefront}"),
            (wavefront % t.lanes_m, f"lanes_m must divide the wavefront {wavefront}"),
            (t.wave_m % unit_m or t.wave_n % unit_n, "a wavefront's tile must be of whole "
             f"fragments of {unit_m} x {unit_n}"),
            (t.tile_n % whole or t.tile_m % whole * (not sizes.along_a) or t.step % whole * (
                sizes.along_a or sizes.along_b), "rows of tiles must be whole vectors of 16 bytes"),
    ):
        if wrong:
            raise LaunchError(f"{plan.name}: {what}")
