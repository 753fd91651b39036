"""The tiling of the weight gradient of first layers, and the geometry of its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.columns import Count, ceil_div, floor_div, remembered
from dscore.algorithms.stem.tiling import EIGHT, FOUR, PIECE, copy_of, unit_of
from dscore.core.device import MATRIX_WAVEFRONT
from dscore.core.numerics import ACCUMULATOR, Arithmetic
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling

# Output channels of a fragment.
FRAGMENT = 16


@dataclass(frozen=True)
class StemSumsTiling(Tiling):
    """Tiling of the weight gradient of the first layer of a network: images of up to four channels
    in NHWC, on NVIDIA's matrix units.

    A block takes tiles of `tile_h` rows of `tile_w` pixels, with `tile_m` channels of the gradient.
    Its wavefronts have `wave_m` of these channels each, and `waves_p` of them share the pixels, 16
    of a row at a time. So many `slices` of the images' tiles go to blocks of their own, whose sums
    a further kernel adds.
    """

    tile_h: int
    tile_w: int
    tile_m: int
    wave_m: int
    waves_p: int
    slices: int = 1

    algorithm: ClassVar[str] = "stem_sums"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> StemSumsTiling(4, 112, 32, 32, 4, 132).name
        'stem_sums_t4x112_m32_w32x4_s132'
        """
        return (f"stem_sums_t{self.tile_h}x{self.tile_w}_m{self.tile_m}_w{self.wave_m}"
                f"x{self.waves_p}_s{self.slices}")

    def computes(self, arithmetic: Arithmetic | None) -> bool:
        return arithmetic in (None, "matrix16")


def twos_of(problem: ConvProblem) -> int:
    """Twos of taps in a row of the filter.

    >>> from dscore.core.token import parse_problem
    >>> twos_of(parse_problem("weight_gradient_n1c3h8w20_o8k3_float16_nhwc"))
    2
    """
    return -(-problem.spec.kernel[1] // 2)


def fragments_of(problem: ConvProblem) -> int:
    """Fragments of eight sums: two taps of four channels each."""
    return problem.spec.kernel[0] * twos_of(problem)


@dataclass(frozen=True)
class StemSumsShape:
    """The geometry of a block (hip_src/stem_sums/shape.hpp)."""

    waves: Count
    fragments_m: Count  # of a wavefront, over the channels of the gradient
    pieces: Count  # of 16 pixels of a row, in a tile
    rows: Count  # of x under a tile
    row_units: Count
    turns: Count  # in which threads bring the units of pixels
    row_pixels: Count  # of LDS
    pixels_bytes: Count
    pitch: Count  # elements of LDS from a pixel of the gradient to the next
    stage_bytes: Count
    lds_bytes: Count
    channel_tiles: Count
    row_tiles: Count
    column_tiles: Count
    units: Count  # tiles of all images
    unit_slices: Count  # of a block


@remembered
def shape_of(problem: ConvProblem, t: Any) -> StemSumsShape:
    """Geometry of *t*, a StemSumsTiling or columns of many."""
    spec, unit, size = problem.spec, unit_of(problem), problem.spec.element.bytes
    # What no tiling may be has a wavefront at least, so that its rules can be judged.
    waves = np.maximum(t.waves_p * floor_div(t.tile_m, t.wave_m), 1)
    rows = (t.tile_h - 1) * spec.stride[0] + spec.span[0]
    under_w = (t.tile_w - 1) * spec.stride[1] + spec.span[1]
    row_units = ceil_div(under_w + unit - 1, unit)
    reach = (t.tile_w - 1) * spec.stride[1] + 2 * twos_of(problem) + unit + 1
    row_pixels = ceil_div(np.maximum(row_units * unit + 2, reach), 2) * 2
    pixels_bytes = rows * row_pixels * FOUR * size * (1 + spec.stride[1] % 2)
    pitch = t.tile_m + EIGHT
    stage_bytes = pixels_bytes + t.tile_h * t.tile_w * pitch * size
    sums_bytes = t.waves_p * t.tile_m * fragments_of(problem) * EIGHT * ACCUMULATOR.bytes
    row_tiles, column_tiles = (ceil_div(problem.out_height, t.tile_h),
                               ceil_div(problem.out_width, t.tile_w))
    units = problem.batch * row_tiles * column_tiles
    return StemSumsShape(
        waves=waves, fragments_m=np.maximum(floor_div(t.wave_m, FRAGMENT), 1),
        pieces=t.tile_h * floor_div(t.tile_w, PIECE), rows=rows, row_units=row_units,
        turns=ceil_div(rows * row_units, waves * MATRIX_WAVEFRONT), row_pixels=row_pixels,
        pixels_bytes=pixels_bytes, pitch=pitch, stage_bytes=stage_bytes,
        lds_bytes=np.maximum(2 * stage_bytes, sums_bytes),
        channel_tiles=ceil_div(spec.out_channels, t.tile_m), row_tiles=row_tiles,
        column_tiles=column_tiles, units=units, unit_slices=ceil_div(units, t.slices))


def unit_loads(problem: ConvProblem) -> int:
    """Loads of a unit of pixels."""
    return unit_of(problem) * problem.spec.in_channels // copy_of(problem)
