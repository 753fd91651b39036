"""The tiling of the product of pixels by filters, and the geometry of its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.base import BARRIER_BYTES
from dscore.algorithms.columns import Count, ceil_div, floor_div, remembered
from dscore.algorithms.warpgroup_gemm.tiling import ROW, ROW_BYTES, ROWS, WAVES
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling

# Pixels of a vector of 16 bytes, and columns of products; summed channels of an instruction.
EIGHT, DEPTH = 8, 16


@dataclass(frozen=True)
class PixelGemmTiling(Tiling):
    """Tiling of a product of pixels by filters on Hopper's warpgroups.

    A block computes `tile_p` pixels, 64 by a warpgroup, of `tile_n` channels. The summed channels
    come `step` at a time through a ring of `stages` LDS buffers, which a further wavefront fills by
    the copy engine. A block takes `repeat` tiles of pixels one after the other. `kept`: the filters
    of all steps stay in LDS meanwhile.
    """

    tile_p: int
    tile_n: int
    step: int
    stages: int
    repeat: int = 1
    kept: bool = False

    algorithm: ClassVar[str] = "pixel_gemm"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> PixelGemmTiling(128, 40, 64, 4, 3, True).name
        'pixel_gemm_t128x40_k64x4_r3_kept'
        """
        return (f"pixel_gemm_t{self.tile_p}x{self.tile_n}_k{self.step}x{self.stages}"
                f"{f'_r{self.repeat}' if self.repeat > 1 else ''}{'_kept' * self.kept}")


@dataclass(frozen=True)
class PixelShape:
    """The geometry of a block."""

    m: int  # channels of results
    k: int  # and summed ones
    area: int  # pixels of a plane
    along: bool  # the filters lie so
    groups: Count  # warpgroups
    waves: Count  # with the one that copies
    plane_bytes: Count  # of a step in LDS
    filter_bytes: Count
    result_bytes: Count
    lds_bytes: Count
    kept: Count  # steps of filters
    steps: Count
    tiles_n: Count
    tiles_p: Count
    blocks_p: Count


@remembered
def shape_of(problem: ConvProblem, t: Any) -> PixelShape:
    """Geometry of *t*, a PixelGemmTiling or columns of many (hip_src/pixel_gemm/shape.hpp)."""
    spec, area = problem.spec, problem.out_height * problem.out_width
    along = problem.operation == "conv"
    m, k = ((spec.out_channels, spec.in_channels) if along
            else (spec.in_channels, spec.out_channels))
    groups = np.maximum(floor_div(t.tile_p, ROWS), 1)
    plane_bytes = groups * t.step * ROW_BYTES
    filter_bytes = (ceil_div(t.step, ROW) * t.tile_n if along
                    else ceil_div(t.tile_n, ROW) * t.step) * ROW_BYTES
    result_bytes = groups * t.tile_n * ROW_BYTES
    steps, tiles_n = ceil_div(k, t.step), ceil_div(m, t.tile_n)
    tiles_p = ceil_div(problem.batch * ceil_div(area, ROWS), groups)
    kept = steps * t.kept
    ring = t.stages * (plane_bytes + np.where(t.kept, 0, filter_bytes)) + kept * filter_bytes
    return PixelShape(
        m=m, k=k, area=area, along=along, groups=groups, waves=WAVES * groups + 1,
        plane_bytes=plane_bytes, filter_bytes=filter_bytes, result_bytes=result_bytes,
        lds_bytes=ring + result_bytes + 2 * t.stages * BARRIER_BYTES, kept=kept, steps=steps,
        tiles_n=tiles_n, tiles_p=tiles_p, blocks_p=ceil_div(tiles_p, t.repeat))
