"""The tiling of first layers, and the geometry of its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.columns import Count, ceil_div, floor_div, remembered
from dscore.algorithms.table_copies import table_bytes
from dscore.core.device import MATRIX_WAVEFRONT, Device
from dscore.core.numerics import WORD_BYTES, Arithmetic
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling

# Pixels and channels of a fragment of matrix units; channels of a pixel in LDS.
PIECE, EIGHT, FOUR = 16, 8, 4
# Registers of a thread for units of pixels on their way to LDS, loads of these, and units.
_MOST_REGISTERS, _MOST_LOADS, _MOST_UNITS = 48, 12, 8
# A unit of so many bytes of LDS is followed by a vector more, by which lanes meet no bank twice.
_CROWDED = 64


@dataclass(frozen=True)
class StemTiling(Tiling):
    """Tiling of the first layer of a network: images of up to four channels in NHWC, on NVIDIA's
    matrix units.

    A block computes `tile_n` output channels of `tile_h` rows of `tile_w` pixels of an image. Its
    wavefronts have `wave_n` of these channels each, and `waves_p` of them share the pixels, 16 of
    a row at a time. The pixels under a tile come to LDS once. A block takes `repeat` tiles, one
    below the other: the next one's pixels are on their way in registers meanwhile.
    """

    tile_h: int
    tile_w: int
    tile_n: int
    wave_n: int
    waves_p: int
    repeat: int = 1

    algorithm: ClassVar[str] = "stem"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> StemTiling(4, 112, 64, 32, 4).name
        'stem_t4x112_n64_w32x4'
        >>> StemTiling(2, 112, 32, 32, 8, 7).name
        'stem_t2x112_n32_w32x8_r7'
        """
        return (f"stem_t{self.tile_h}x{self.tile_w}_n{self.tile_n}_w{self.wave_n}x{self.waves_p}"
                f"{f'_r{self.repeat}' if self.repeat > 1 else ''}")

    def computes(self, arithmetic: Arithmetic | None) -> bool:
        return arithmetic in (None, "matrix16", "matrix8")


def copy_of(problem: ConvProblem) -> int:
    """Elements of a row of the image that lie side by side at multiples of 16 bytes or less, of the
    type that they have in memory.

    >>> from dscore.core.token import parse_problem
    >>> copy_of(parse_problem("n1c3h8w20_o8k3_float16_nhwc"))
    4
    """
    row = problem.width * problem.spec.in_channels
    return min(row & -row, VECTOR_BYTES // problem.spec.in_element.bytes)


def unit_of(problem: ConvProblem) -> int:
    """Pixels that come from memory together: as few as are whole vectors.

    >>> from dscore.core.token import parse_problem
    >>> unit_of(parse_problem("n1c3h8w20_o8k3_float16_nhwc"))
    4
    """
    channels = problem.spec.in_channels
    copy = copy_of(problem)
    return copy // min(copy, channels & -channels)


def group_of(problem: ConvProblem, t: Any) -> Count:
    """Fragments whose columns lie so that a lane's channels are neighbours."""
    whole = np.minimum(t.wave_n & -t.wave_n, FOUR * EIGHT) // EIGHT
    return np.clip(whole, 1, EIGHT // problem.spec.out_element.bytes)


def halves_of(problem: ConvProblem) -> int:
    """Halves of fragments in a row of the filter: of two taps of 16 bits each, of four of bytes.

    >>> from dscore.core.token import parse_problem
    >>> halves_of(parse_problem("n1c3h8w20_o8k3_float16_nhwc"))
    2
    """
    return -(-problem.spec.kernel[1] // half_taps(problem))


def half_taps(problem: ConvProblem) -> int:
    """Taps of half a fragment."""
    return WORD_BYTES // problem.spec.element.bytes


def steps_of(problem: ConvProblem) -> int:
    """Fragments of summed elements."""
    return -(-problem.spec.kernel[0] * halves_of(problem) // 2)


def has_units(device: Device, dtype: str) -> bool:
    """Whether the device has matrix units for elements of a type, of NVIDIA's fragments."""
    return (device.vendor == "nvidia" and device.wavefront == MATRIX_WAVEFRONT
            and dtype in device.matrix_types)


@dataclass(frozen=True)
class StemShape:
    """The geometry of a block (hip_src/stem/shape.hpp)."""

    waves: Count
    columns: Count  # fragments of a wavefront side by side over the channels
    pieces: Count  # of 16 pixels of a row, in a tile
    rows: Count  # of the image under a tile
    row_units: Count
    units: Count
    unit_bytes: int  # in LDS
    pitch: int  # bytes of LDS from a unit to the next
    copies: int  # from memory, of a unit
    turns: Count  # in which threads bring the units
    together: Count  # of these turns, at once
    filters_at: Count  # bytes of LDS before the filters
    lds_bytes: Count
    channel_tiles: Count
    column_tiles: Count
    row_blocks: Count  # of as many row tiles as a block takes


@remembered
def shape_of(problem: ConvProblem, t: Any) -> StemShape:
    """Geometry of *t*, a StemTiling or columns of many."""
    spec, unit, size = problem.spec, unit_of(problem), problem.spec.element.bytes
    # What no tiling may be has a wavefront at least, so that its rules can be judged.
    waves = np.maximum(t.waves_p * floor_div(t.tile_n, t.wave_n), 1)
    rows = (t.tile_h - 1) * spec.stride[0] + spec.span[0]
    under_w = (t.tile_w - 1) * spec.stride[1] + spec.span[1]
    row_units = ceil_div(under_w + unit - 1, unit)
    unit_bytes = unit * FOUR * size
    pitch = unit_bytes + VECTOR_BYTES * (unit_bytes == _CROWDED)
    copies = unit * spec.in_channels // copy_of(problem)
    turns = ceil_div(rows * row_units, waves * MATRIX_WAVEFRONT)
    most = np.minimum(turns, min(_MOST_REGISTERS // unit_registers(problem),
                                 _MOST_LOADS // copies, _MOST_UNITS))
    filters_at = _vectors(rows * row_units * pitch) * np.minimum(t.repeat, 2)
    return StemShape(
        waves=waves, columns=np.maximum(floor_div(t.wave_n, EIGHT), 1),
        pieces=t.tile_h * floor_div(t.tile_w, PIECE), rows=rows, row_units=row_units,
        units=rows * row_units, unit_bytes=unit_bytes, pitch=pitch, copies=copies, turns=turns,
        together=ceil_div(turns, ceil_div(turns, most)), filters_at=filters_at,
        lds_bytes=(filters_at + _vectors(t.tile_n * spec.products * size)
                   + table_bytes(spec)),
        channel_tiles=ceil_div(spec.out_channels, t.tile_n),
        column_tiles=ceil_div(problem.out_width, t.tile_w),
        row_blocks=ceil_div(ceil_div(problem.out_height, t.tile_h), t.repeat))


def unit_registers(problem: ConvProblem) -> int:
    """Registers that a unit of pixels takes on its way."""
    copy, size = copy_of(problem), problem.spec.in_element.bytes
    return unit_of(problem) * problem.spec.in_channels // copy * max(copy * size // 4, 1)


def _vectors(count: Count) -> Count:
    """Bytes of whole vectors."""
    return ceil_div(count, VECTOR_BYTES) * VECTOR_BYTES
