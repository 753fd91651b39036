"""Lanes of the product of matrices in any order of axes: how they hold and multiply its operands.

What differs between the arithmetics (hip_src/gemm_universal/lanes.hpp); gemm_universal.py has the
order of additions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.gemm_universal.tiling import (
    DOT_VECTOR,
    TURNED,
    GemmUniversalTiling,
    beside,
    direct,
    fragment_of,
    pitches_of,
    shape_of,
    sizes_of,
    turned,
)
from dscore.backends.reference.gemm_lanes import halves, multiply_fragments
from dscore.backends.reference.machine import Addresses, Blocks, Floats, Ints, lane_ids
from dscore.core.device import MATRIX_WAVEFRONT
from dscore.core.errors import LaunchError
from dscore.core.numerics import ACCUMULATOR, WORD_BYTES
from dscore.core.plan import Plan


def group_of(plan: Plan) -> int:
    """Fragments whose columns lie so that a lane's are neighbours."""
    t = plan.tiling
    assert isinstance(t, GemmUniversalTiling)
    mfma = plan.device.wavefront != MATRIX_WAVEFRONT
    if t.arithmetic == "plain" or mfma or not sizes_of(plan.problem).along_b or not direct(t):
        return 1
    element = plan.problem.spec.element
    most = VECTOR_BYTES // element.bytes // 2
    groups = [most, *[most // 2] * element.exact, 2]
    return next((group for group in groups if t.wave_n % (8 * group) == 0), 1)


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


class _Fragments(Lanes):
    """Fragments of 16 rows by 8 columns: lane 4 g + i holds columns 2 i and 2 i + 1 of rows g and
    g + 8. The columns of a group of fragments lie so that a lane's are neighbours; of int8 that lies
    across the sum, they are read so, by two fragments."""

    def _map(self) -> None:
        m, n = self.t.wave_m // 16, self.t.wave_n // 8
        self.registers = (m, n, 2, 2)
        g, pair, group = self.lane // 4, self.lane % 4, group_of(self.plan)
        eight = lane_ids(m, 1, 2, 1, 1, 1)
        self.row = self.wave_m + eight * 8 + g
        at, half = lane_ids(1, n, 1, 1, 1, 1), lane_ids(1, 1, 1, 2, 1, 1)
        self.column = self.wave_n + (
            _turned(at, pair * 2 + half, 2, 8) if turned(self.plan.problem) else
            at // group * 8 * group + pair * 2 * group + at % group * 2 + half)
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


class _Matrix(_Fragments):
    """Products of elements of 16 bits or of int8, a fragment's summed elements at a time,
    ascending."""

    def _map_operands(self, g: Ints, eight: Ints, fragment: Ints) -> None:
        # Halves of a fragment's summed elements, and the word of each that a lane holds.
        self.word = WORD_BYTES // self.element.bytes
        k = self.lane % 4 * self.word + (
            lane_ids(2, 1) * 4 * self.word + lane_ids(self.word))[..., None, None]
        self.a_at = self.a_words(eight * 8 + g, k[:, :, None])
        column = (_turned(fragment, g, 2, 8) if turned(self.plan.problem) else fragment * 8 + g)
        self.b_at = self.b_words(column[:, None], k)

    def allocate(self, blocks: Blocks) -> None:
        super().allocate(blocks)
        m, n, *_ = self.registers
        self.a = self._file("first operands", 2, self.word, 2 * m, of_elements=True)
        self.b = self._file("second operands", n, 2, self.word, of_elements=True)

    def multiply(self, a: int, b: int) -> None:
        for k in range(0, self.summed, 8 * self.word):
            self.read(self.a, self.a_at, a, self.sizes.along_a, self.pitch_a, k)
            self.read(self.b, self.b_at, b, self.sizes.along_b, self.pitch_b, k)
            self._multiply_fragments()

    def _multiply_fragments(self) -> None:
        count, m, n, _, _, *lanes = self.sums.shape
        row, column = self.lane // 4, self.lane % 4 * 2 + lane_ids(2, 1)
        for k in range(8 * self.word):
            half, at, lane = k // (4 * self.word), k % self.word, k // self.word % 4
            rows = np.take(self.a[:, half, at], row * 4 + lane, axis=-1)
            columns = np.take(self.b[:, :, half, at], column * 4 + lane, axis=-1).swapaxes(2, 3)
            self.blocks.fma(self.sums, rows.reshape(count, m, 1, 2, 1, *lanes),
                            columns.reshape(count, 1, n, 1, 2, *lanes), self.product)


class _Mfma(Lanes):
    """Fragments of 16 rows by 16 columns of AMD's matrix units: lane 16 q + r brings four summed
    elements, from 4 q on, or eight of int8, from 8 q on, of row r and of column r, and holds rows
    4 q to 4 q + 3 of column r. The columns of int8 across the sum are a lane's by four fragments.
    """

    def _map(self) -> None:
        m, n = self.t.wave_m // 16, self.t.wave_n // 16
        self.registers = (m, n, 4)
        r, q = self.lane % 16, self.lane // 16
        self.row = self.wave_m + lane_ids(m, 1, 1, 1, 1) * 16 + q * 4 + lane_ids(4, 1, 1)
        fragment = lane_ids(n, 1, 1, 1)
        column = (_turned(fragment, r, TURNED, 16) if turned(self.plan.problem) else
                  fragment * 16 + r)
        self.column = self.wave_n + column
        self.each = 8 if self.element.exact else 4
        k = q * self.each + lane_ids(self.each, 1, 1)
        self.a_at = self.a_words(lane_ids(m, 1, 1, 1) * 16 + r, k)
        self.b_at = self.b_words(column, k)

    def allocate(self, blocks: Blocks) -> None:
        super().allocate(blocks)
        m, n, _ = self.registers
        self.a = self._file("first operands", m, self.each, of_elements=True)
        self.b = self._file("second operands", n, self.each, of_elements=True)

    def multiply(self, a: int, b: int) -> None:
        row = self.lane // 16 * 4 + lane_ids(4, 1)
        each = self.each
        for k in range(0, self.summed, 4 * each):
            self.read(self.a, self.a_at, a, self.sizes.along_a, self.pitch_a, k)
            self.read(self.b, self.b_at, b, self.sizes.along_b, self.pitch_b, k)
            for at in range(4 * each):
                q, place = divmod(at, each)
                rows = np.take(self.a[:, :, place], q * 16 + row, axis=-1).swapaxes(2, 3)
                columns = np.take(self.b[:, :, place], q * 16 + self.lane % 16, axis=-1)
                self.blocks.fma(self.sums, rows[:, :, None], columns[:, None, :, None],
                                self.product)


def _turned(fragment: Ints, column: Ints, together: int, columns: int) -> Ints:
    """Columns of fragments of which *together* have neighbouring ones."""
    place: Ints = (fragment // together * columns + column) * together + fragment % together
    return place


def lanes_of(plan: Plan) -> Lanes:
    """The lanes of a plan; LaunchError where its kernel does not exist."""
    assert isinstance(plan.tiling, GemmUniversalTiling)
    _require_lanes(plan, plan.tiling, plan.device.wavefront)
    nvidia = plan.device.wavefront == MATRIX_WAVEFRONT
    kinds: dict[str, type[Lanes]] = {"plain": _Plain, "tf32x3": _Tf32,
                                     "matrix16": _Matrix if nvidia else _Mfma,
                                     "matrix8": _Matrix if nvidia else _Mfma}
    return kinds[plan.tiling.arithmetic](plan)


def _require_lanes(plan: Plan, t: GemmUniversalTiling, wavefront: int) -> None:
    """LaunchError where the kernel does not exist, by the assertions of
    hip_src/gemm_universal/product.hpp."""
    element = plan.problem.spec.element
    summed, fragment = t.step / t.slices, int(fragment_of(element, t))
    units, whole = t.arithmetic != "plain", VECTOR_BYTES // element.bytes
    unit_m, unit_n = t.lanes_m, max(wavefront // t.lanes_m, 1)
    if units:
        unit_m, unit_n = 16, 8 if wavefront == MATRIX_WAVEFRONT else 16
    if turned(plan.problem):
        unit_n *= 2 if unit_n == 8 and units else TURNED
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
