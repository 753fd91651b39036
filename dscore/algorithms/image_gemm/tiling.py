"""The tiling of the product of whole images by filters, and the geometry of its blocks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.base import BARRIER_BYTES, LDS_BANKS
from dscore.algorithms.columns import Count, ceil_div, floor_div, remembered
from dscore.algorithms.warpgroup_gemm.tiling import (
    MOST_BOX,
    ROW,
    ROW_BYTES,
    ROWS,
    RUN,
    WAVES,
)
from dscore.core.device import MATRIX_WAVEFRONT
from dscore.core.numerics import ACCUMULATOR
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling

# Summed channels of an instruction, and pixels that a lane has side by side.
DEPTH, PAIR = 16, 2
# Bytes of which buffers of the ring are a multiple.
_TILE_BYTES = 8 * ROW_BYTES
# Bytes of LDS of a compute unit of sm_90, and those that the driver keeps of each block: a kernel's
# places in LDS follow from them, whatever the device's file says.
UNIT_LDS_BYTES, DRIVER_LDS_BYTES = 228 * 1024, 1024


@dataclass(frozen=True)
class ImageGemmTiling(Tiling):
    """Tiling of a product of whole images by filters on Hopper's warpgroups.

    A block computes `tile_n` channels of all pixels of `images` images, which `groups` warpgroups
    share. The summed channels come `step` at a time through a ring of `stages` LDS buffers, which a
    further wavefront fills by the copy engine. `slices` times as many warpgroups share the steps,
    and so do the blocks of a `cluster`, which add their sums themselves. A block takes `repeat`
    tiles of images one after the other. Where planes are in `parts`, a block has one part of the
    planes of one image.
    """

    tile_n: int
    images: int
    groups: int
    slices: int
    step: int
    stages: int
    repeat: int = 1
    cluster: int = 1
    parts: int = 1

    algorithm: ClassVar[str] = "image_gemm"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> ImageGemmTiling(64, 4, 2, 1, 64, 4, 2).name
        'image_gemm_n64_i4_g2_k64x4_r2'
        >>> ImageGemmTiling(64, 1, 1, 2, 64, 4).name
        'image_gemm_n64_i1_g1_s2_k64x4'
        >>> ImageGemmTiling(96, 1, 4, 1, 48, 3, cluster=4).name
        'image_gemm_n96_i1_g4_k48x3_c4'
        >>> ImageGemmTiling(64, 1, 1, 1, 64, 4, parts=4).name
        'image_gemm_n64_i1_g1_k64x4_p4'
        """
        return (f"image_gemm_n{self.tile_n}_i{self.images}_g{self.groups}"
                f"{f'_s{self.slices}' if self.slices > 1 else ''}_k{self.step}x{self.stages}"
                f"{f'_r{self.repeat}' if self.repeat > 1 else ''}"
                f"{f'_c{self.cluster}' if self.cluster > 1 else ''}"
                f"{f'_p{self.parts}' if self.parts > 1 else ''}")


@dataclass(frozen=True)
class ImageShape:
    """The geometry of a block."""

    m: int  # channels of results
    k: int  # and summed ones
    area: int  # pixels of a plane
    along: bool  # the filters lie so
    part: Count  # pixels of a plane that a block has
    pairs: Count  # of these
    instructions: Count  # whose rows the images fill
    rows: Count  # of these of a warpgroup
    waves: Count  # with the one that copies
    filter_bytes: Count  # of a step in LDS
    plane_bytes: Count
    stage_bytes: Count
    results_bytes: Count
    handed_bytes: Count  # sums of a slice
    sent_bytes: Count  # of the sums of a cluster's blocks
    work_bytes: Count  # of the ring, sums of slices, and results
    lds_bytes: Count
    all_steps: Count
    steps: Count  # of a block, at most
    tiles_n: Count
    tiles_i: Count  # of images, or parts of them
    blocks_i: Count


@remembered
def shape_of(problem: ConvProblem, t: Any) -> ImageShape:
    """Geometry of *t*, an ImageGemmTiling or columns of many (hip_src/image_gemm/shape.hpp)."""
    spec, area = problem.spec, problem.out_height * problem.out_width
    along = problem.operation == "conv"
    m, k = ((spec.out_channels, spec.in_channels) if along
            else (spec.in_channels, spec.out_channels))
    part = np.where(t.parts > 1, RUN * ceil_div(ceil_div(area, t.parts), RUN), area)
    pairs = ceil_div(part, PAIR)
    instructions = ceil_div(t.images * pairs, ROWS // PAIR)
    rows = ceil_div(instructions, t.groups)
    filter_bytes = ROW_BYTES * (ceil_div(t.step, ROW) * t.tile_n if along
                                else ceil_div(t.tile_n, ROW) * t.step)
    boxes = ROW * ceil_div(part + RUN // 2, ROW)  # pixels of a part that come to LDS
    plane_bytes = t.images * t.step * np.where(t.parts > 1, boxes, area) * spec.element.bytes
    stage_bytes = ceil_div(filter_bytes + plane_bytes, _TILE_BYTES) * _TILE_BYTES
    own_n = RUN * ceil_div(floor_div(t.tile_n, RUN), t.cluster)  # channels of its results
    results_bytes = t.images * own_n * part * spec.element.bytes
    sent_bytes = ACCUMULATOR.bytes * PAIR * pairs * t.images * own_n * (t.cluster - 1)
    handed_bytes = WAVES * MATRIX_WAVEFRONT * t.groups * sums_of(rows, t) * ACCUMULATOR.bytes
    ring_bytes, behind_bytes = t.stages * stage_bytes, (t.slices - 1) * handed_bytes + results_bytes
    beside_bytes = sent_bytes + barriers_of(t) * BARRIER_BYTES
    over_bytes = np.maximum(ring_bytes, behind_bytes)
    apart_blocks = _blocks_of_unit(ring_bytes + behind_bytes + beside_bytes)
    over_ring = ((np.asarray(t.repeat) == 1) & (apart_blocks < 2)
                 & (_blocks_of_unit(over_bytes + beside_bytes) > apart_blocks))
    work_bytes = np.where(over_ring, over_bytes, ring_bytes + behind_bytes)
    tiles_i, all_steps = ceil_div(problem.batch, t.images) * t.parts, ceil_div(k, t.step)
    return ImageShape(
        m=m, k=k, area=area, along=along, part=part, pairs=pairs, instructions=instructions,
        rows=rows, waves=WAVES * t.groups * t.slices + 1, filter_bytes=filter_bytes,
        plane_bytes=plane_bytes, stage_bytes=stage_bytes, results_bytes=results_bytes,
        handed_bytes=handed_bytes, sent_bytes=sent_bytes,
        work_bytes=work_bytes,
        lds_bytes=work_bytes + beside_bytes,
        all_steps=all_steps, steps=ceil_div(all_steps, t.cluster), tiles_n=ceil_div(m, t.tile_n),
        tiles_i=tiles_i, blocks_i=ceil_div(tiles_i, t.repeat))


def _blocks_of_unit(lds_bytes: Count) -> Count:
    """Blocks of so many bytes that a compute unit of sm_90 has room for."""
    return UNIT_LDS_BYTES // (lds_bytes + DRIVER_LDS_BYTES)


def barriers_of(t: Any) -> Count:
    """Two for each buffer of the ring, six for sums and results, one for a cluster's mailbox."""
    return 2 * t.stages + 6 + (np.asarray(t.cluster) > 1)


def sums_of(rows: Count, t: Any) -> Count:
    """Sums of a lane that has so many instructions' rows."""
    return rows * floor_div(t.tile_n, 2)


def run_of(problem: ConvProblem, step: int) -> int:
    """Elements of a row of the boxes that the planes of a step come by, which those of an image are
    a multiple of: whole lines of memory, if there are such."""
    shape = shape_of(problem, SimpleNamespace(tile_n=8, images=1, groups=1, slices=1, step=step,
                                              stages=1, repeat=1, cluster=1, parts=1))
    both = math.gcd(step, shape.k) * shape.area
    runs = [run for run in range(DEPTH // 2, MOST_BOX + 1, DEPTH // 2)
            if both % run == 0 and step * shape.area <= MOST_BOX * run]
    whole = [run for run in runs if run % ROW == 0]
    return max(whole or runs, default=0)


@cache
def conflicts_of(area: int) -> int:
    """Most lanes that read different words of one bank of LDS at once, of planes of so many pixels
    (bank_conflicts in hip_src/image_gemm/pixels.hpp)."""
    def most(place: Callable[[int], int]) -> int:
        banks = Counter((lane % 4 * area + place(lane // 4)) % LDS_BANKS for lane in range(32))
        return max(banks.values())

    return min(most(lambda row: row), most(lambda row: 4 * row),
               most(lambda row: row % 4 + row // 4 * 16))
