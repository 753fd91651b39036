"""Lanes of the product of matrices in any order of axes on matrix units, and the choice of lanes.

What differs between the arithmetics (hip_src/gemm_universal/lanes.hpp and byte_lanes.hpp).
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.gemm_universal.tiling import (
    TURNED,
    GemmUniversalTiling,
    direct,
    fragment_of,
    sizes_of,
    turned,
)
from dscore.backends.reference.gemm_lanes import halves, multiply_fragments
from dscore.backends.reference.gemm_universal_lanes import Lanes, Plain
from dscore.backends.reference.machine import Blocks, Ints, lane_ids
from dscore.core.device import MATRIX_WAVEFRONT
from dscore.core.errors import LaunchError
from dscore.core.numerics import WORD_BYTES
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


class _Fragments(Lanes):
    """Fragments of 16 rows by 8 columns: lane 4 g + i holds columns 2 i and 2 i + 1 of rows g and
    g + 8. The columns of a group of fragments lie so that a lane's are neighbours; of int8 across
    the sum they are read so, by two fragments."""

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
    kinds: dict[str, type[Lanes]] = {"plain": Plain, "tf32x3": _Tf32,
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
