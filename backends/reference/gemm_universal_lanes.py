"""Lanes of the product of matrices in any order of axes: how they hold its operands, and those of
plain arithmetic.

gemm_universal.py has the order of additions, gemm_universal_units.py the lanes of matrix units.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from dscore.algorithms.gemm_universal.tiling import (
    DOT_VECTOR,
    TURNED,
    GemmUniversalTiling,
    beside,
    pitches_of,
    shape_of,
    sizes_of,
)
from dscore.backends.reference.machine import Addresses, Blocks, Floats, Ints, lane_ids
from dscore.core.numerics import ACCUMULATOR
from dscore.core.plan import Plan


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


class Plain(Lanes):
    """A lane's rows lie lanes_m apart, of an operand across the sum in neighbours read as one."""

    def _map(self) -> None:
        t, lanes_n = self.t, self.wavefront // self.t.lanes_m
        self.registers = (t.wave_m // t.lanes_m, t.wave_n // lanes_n)
        # Summed elements that are read as one, where they lie side by side; of int8 four rows are
        # turned together where they do not.
        beside_, across = (DOT_VECTOR, TURNED) if self.element.exact else (4, 1)
        self.read_a, self.read_b = (beside_ if along else across
                                    for along in (self.sizes.along_a, self.sizes.along_b))
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
