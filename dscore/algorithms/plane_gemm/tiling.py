"""The tiling of the product of filters by planes, and the geometry of its blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.base import BARRIER_BYTES
from dscore.algorithms.columns import Count, ceil_div, floor_div, remainder, remembered
from dscore.algorithms.warpgroup_gemm.tiling import ROW, ROW_BYTES, ROWS, WAVES
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling

# Elements of 16 bits in a vector of 16 bytes, and rows of a tile of LDS.
EIGHT = 8
# Wavefronts that move planes which begin within vectors: usually, others that are tried, at most.
MOVERS, MORE_MOVERS, MOST_MOVERS = 3, 7, 15


@dataclass(frozen=True)
class PlaneGemmTiling(Tiling):
    """Tiling of a product of filters by planes on Hopper's warpgroups.

    A block computes `tile_m` channels, 64 by a warpgroup, of `tile_p` pixels of each of `images`
    planes. The summed channels come `step` at a time through a ring of `stages` LDS buffers, which
    a further wavefront fills by the copy engine. A block takes `repeat` tiles of pixels one after
    the other. `kept`: the filters of all steps stay in LDS meanwhile. `movers` wavefronts move
    planes that begin within vectors.
    """

    tile_m: int
    tile_p: int
    images: int
    step: int
    stages: int
    repeat: int = 1
    kept: bool = False
    movers: int = MOVERS

    algorithm: ClassVar[str] = "plane_gemm"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> PlaneGemmTiling(128, 56, 2, 64, 4, 3, True).name
        'plane_gemm_t128x56_i2_k64x4_r3_kept'
        >>> PlaneGemmTiling(128, 56, 2, 64, 4, 3, True, movers=7).name
        'plane_gemm_t128x56_i2_k64x4_r3_kept_m7'
        """
        return (f"plane_gemm_t{self.tile_m}x{self.tile_p}_i{self.images}_k{self.step}x{self.stages}"
                f"{f'_r{self.repeat}' if self.repeat > 1 else ''}{'_kept' * self.kept}"
                f"{f'_m{self.movers}' if self.movers != MOVERS else ''}")


@dataclass(frozen=True)
class PlaneShape:
    """The geometry of a block."""

    m: int  # channels of results
    k: int  # and summed ones
    area: int  # pixels of a plane
    vector: int  # of elements in a row of a plane
    apart: int  # planes, from one to the next in a box
    along: bool  # the filters lie so
    barriers: int  # of a buffer of the ring
    whole: Count  # tiles that have all pixels of a plane
    boxed: Count  # results that leave by boxes
    groups: Count  # warpgroups
    waves: Count  # with the one that copies, and those that move planes
    boxes: Count  # of planes in a step
    plane_bytes: Count  # of a step in LDS
    filter_bytes: Count
    results: Count  # elements of a warpgroup in LDS
    lds_bytes: Count
    kept: Count  # steps of filters
    steps: Count
    tiles_m: Count
    tiles_p: Count
    blocks_p: Count


def vector_of(area: int) -> int:
    """Elements of 16 bits that lie side by side at a multiple of their bytes in each plane."""
    return math.gcd(area, EIGHT)


def apart_of(area: int) -> int:
    """Planes from one to the next in a box: so many are a multiple of 16 bytes."""
    return 2 if vector_of(area) % 4 == 0 else EIGHT


def result_pixels(tile_p: Count) -> Count:
    """Pixels of a channel in a box of results: a row of LDS, or the most below that divide a tile.

    >>> [int(result_pixels(tile_p)) for tile_p in (192, 112, 96, 88)]
    [64, 56, 48, 8]
    """
    pixels: Count = np.zeros_like(tile_p)
    for most in range(EIGHT, ROW + 1, EIGHT):
        pixels = np.where(remainder(tile_p, most) == 0, most, pixels)
    return pixels


@remembered
def shape_of(problem: ConvProblem, t: Any) -> PlaneShape:
    """Geometry of *t*, a PlaneGemmTiling or columns of many (hip_src/plane_gemm/shape.hpp)."""
    spec, area = problem.spec, problem.out_height * problem.out_width
    along = problem.operation == "conv"
    m, k = ((spec.out_channels, spec.in_channels) if along
            else (spec.in_channels, spec.out_channels))
    vector, apart, whole = vector_of(area), apart_of(area), t.tile_p >= area
    moved = vector < EIGHT
    groups = np.maximum(floor_div(t.tile_m, ROWS), 1)
    columns = ceil_div(t.tile_p + (EIGHT - vector), ROW)
    plane_bytes = columns * t.images * t.step * ROW_BYTES
    filter_bytes = (ceil_div(t.step, ROW) * t.tile_m if along else groups * t.step) * ROW_BYTES
    boxed = np.logical_not(whole) & (vector == EIGHT)
    padded = (remainder(floor_div(t.tile_p, EIGHT), 2) == 0) & np.logical_not(whole | boxed)
    results = t.images * ROWS * (t.tile_p + np.where(padded, EIGHT, 0))
    steps, tiles_m = ceil_div(k, t.step), ceil_div(m, t.tile_m)
    tiles_p = ceil_div(problem.batch, t.images) * ceil_div(area, t.tile_p)
    kept = steps * t.kept
    ring = t.stages * (plane_bytes + np.where(t.kept, 0, filter_bytes)) + kept * filter_bytes
    barriers = 2 + moved
    return PlaneShape(
        m=m, k=k, area=area, vector=vector, apart=apart, along=along, barriers=barriers,
        whole=whole, boxed=boxed, groups=groups,
        waves=WAVES * groups + 1 + t.movers * moved, boxes=columns * apart,
        plane_bytes=plane_bytes, filter_bytes=filter_bytes, results=results,
        lds_bytes=(ring + groups * results * spec.element.bytes
                   + barriers * t.stages * BARRIER_BYTES),
        kept=kept, steps=steps, tiles_m=tiles_m, tiles_p=tiles_p,
        blocks_p=ceil_div(tiles_p, t.repeat))
