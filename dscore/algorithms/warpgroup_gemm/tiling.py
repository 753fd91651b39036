"""The tiling of the product of matrices by warpgroups, and the geometry of its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.base import BARRIER_BYTES, VECTOR_BYTES
from dscore.algorithms.columns import Count, ceil_div, floor_div, remainder, remembered
from dscore.algorithms.gemm_universal.tiling import GemmSizes, sizes_of
from dscore.algorithms.table_copies import table_bytes
from dscore.core.numerics import ACCUMULATOR, ELEMENTS, INTEGER_SUMS
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling

# Rows of results of a warpgroup, and its wavefronts.
ROWS, WAVES = 64, 4
# A row of LDS, of which eight are a tile: its vectors are exchanged. Its elements of 16 bits.
ROW_BYTES, TILE_BYTES = 128, 1024
ROW = ROW_BYTES // 2
SECTOR_BYTES = 32  # of memory
# Columns of results that a block of a cluster adds together.
RUN = 8
# Elements of which rows of results are a multiple where boxes of them begin with sectors.
_EVEN_ROW = 32
# Elements that a box may have in one dimension.
MOST_BOX = 256
# Of a factor of int8's scales.
FACTOR_BYTES = ELEMENTS["float16"].bytes


@dataclass(frozen=True)
class WarpgroupGemmTiling(Tiling):
    """Tiling of a product of matrices by Hopper's warpgroups.

    A block computes `tile_m` rows, 64 by a warpgroup, by `tile_n` columns of the result. The summed
    elements come `step` at a time through a ring of `stages` LDS buffers, which a further wavefront
    fills by the copy engine. A block takes `repeat` tiles of rows one after the other. `kept`: all
    steps of the columns' operand stay in LDS meanwhile. The blocks of a `cluster` share the steps
    of a tile, and add their sums themselves. `parts` blocks, or clusters, share the summed pixels
    of a weight gradient, whose parts a further kernel adds. `spans`: a tile's rows, of which a step
    has all elements, come as one span of memory, and reach the matrix units by registers. `banked`:
    a table of results lies in each bank of LDS, where lanes look up without conflicts.
    """

    tile_m: int
    tile_n: int
    step: int
    stages: int
    repeat: int = 1
    kept: bool = False
    parts: int = 1
    cluster: int = 1
    spans: bool = False
    banked: bool = False

    algorithm: ClassVar[str] = "warpgroup_gemm"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> WarpgroupGemmTiling(128, 96, 64, 4, 3, True).name
        'warpgroup_gemm_t128x96_k64x4_r3_kept'
        >>> WarpgroupGemmTiling(64, 96, 64, 4, parts=2, cluster=4).name
        'warpgroup_gemm_t64x96_k64x4_p2_c4'
        >>> WarpgroupGemmTiling(64, 96, 64, 4, 3, True, spans=True).name
        'warpgroup_gemm_t64x96_k64x4_r3_kept_spans'
        """
        return (f"warpgroup_gemm_t{self.tile_m}x{self.tile_n}_k{self.step}x{self.stages}"
                f"{f'_r{self.repeat}' if self.repeat > 1 else ''}"
                f"{'_kept' * self.kept}"
                f"{f'_p{self.parts}' if self.parts > 1 else ''}"
                f"{f'_c{self.cluster}' if self.cluster > 1 else ''}"
                f"{'_spans' * self.spans}"
                f"{'_banked' * self.banked}")


@dataclass(frozen=True)
class WarpgroupShape:
    """The geometry of a block."""

    sizes: GemmSizes
    groups: Count  # warpgroups
    waves: Count  # with the one that copies
    span: Count  # bytes of a row that comes with others as a span, in whole vectors, or 0
    bytes_a: Count  # of a step's rows in LDS
    bytes_b: Count
    results_bytes: Count
    handed_bytes: Count  # of the sums of a cluster's blocks
    lds_bytes: Count
    kept: Count  # steps of columns
    images: Count  # whose scales a tile of rows has, or, in int8, a warpgroup's
    factors: Count  # of each of these images, in LDS
    all_steps: Count
    steps: Count  # of a block
    tiles_m: Count
    blocks_m: Count
    tiles_n: Count


def row_of(problem: ConvProblem) -> int:
    """Elements of *problem* in a row of LDS."""
    return ROW_BYTES // problem.spec.element.bytes


def _group_results(problem: ConvProblem, t: Any) -> Count:
    """Bytes of LDS for a warpgroup's results: of boxes; of int8 of rows, and what these need of
    each column: a bias and a multiplier."""
    spec = problem.spec
    if not spec.element.exact:
        return ceil_div(t.tile_n, ROW) * ROWS * ROW_BYTES
    side_by_side = _side_by_side(problem, t)
    pitch = (ceil_div(t.tile_n * spec.out_element.bytes, side_by_side) | 1) * side_by_side
    return ROWS * pitch + (INTEGER_SUMS.bytes + ACCUMULATOR.bytes) * t.tile_n


def _side_by_side(problem: ConvProblem, t: Any) -> Count:
    """Bytes that four lanes store side by side to LDS, in int8: rows of an odd number of these
    begin in different banks. Where lanes bring the columns, they have more channels each."""
    size = problem.spec.out_element.bytes
    eight = (remainder(t.tile_n, 32) == 0) & (size <= 2)
    together = np.where(t.spans, np.where(eight, 8, 4), 2)
    return np.maximum(4 * together * size, VECTOR_BYTES)


def whole_rows(problem: ConvProblem, t: Any) -> Count:
    """Whether a tile's results leave as one span: its rows are whole and lie side by side, where
    boxes of them would begin within sectors; in int8 also where they lie in different banks of LDS
    without a gap (hip_src/warpgroup_gemm/product.hpp)."""
    n, spec = sizes_of(problem).n, problem.spec
    whole = np.asarray(t.tile_n >= n)
    if n % _EVEN_ROW or not spec.element.exact:
        return whole & bool(n % _EVEN_ROW)
    side_by_side = _side_by_side(problem, t)
    bytes_ = n * spec.out_element.bytes
    return whole & (remainder(bytes_, side_by_side) == 0) & (bytes_ // side_by_side % 2 == 1)


def _images(problem: ConvProblem, t: Any) -> Count:
    """Images that a tile of rows may be of, or in int8 a warpgroup's, where they have scales."""
    area = problem.out_height * problem.out_width
    rows = ROWS if problem.spec.element.exact else t.tile_m
    return np.minimum(floor_div(rows - 2, area) + 2, problem.batch) * problem.spec.scaled


def _scale_bytes(problem: ConvProblem, t: Any, images: Count) -> Count:
    """LDS of a stage for the scales of its channels, in tiles of eight rows; in int8 none."""
    of_step = floor_div(t.step * problem.spec.element.bytes, ROW_BYTES)
    return (not problem.spec.element.exact) * of_step * ceil_div(images, 8) * TILE_BYTES


def barriers_of(problem: ConvProblem, t: Any) -> Count:
    """Two for each buffer of the ring; one for filters of bytes that come beside rows as spans, or
    for a table."""
    spec = problem.spec
    return 2 * t.stages + ((t.spans * spec.element.exact > 0) | spec.table | (t.cluster > 1))


@remembered
def shape_of(problem: ConvProblem, t: Any) -> WarpgroupShape:
    """Geometry of *t*, a WarpgroupGemmTiling or columns of many
    (hip_src/warpgroup_gemm/shape.hpp)."""
    sizes, row = sizes_of(problem), row_of(problem)
    groups = np.maximum(floor_div(t.tile_m, ROWS), 1)
    boxes_a = (t.tile_m * ceil_div(t.step, row) if sizes.along_a
               else ceil_div(t.tile_m, row) * t.step) * ROW_BYTES
    span = t.spans * VECTOR_BYTES * ceil_div(sizes.k * problem.spec.element.bytes, VECTOR_BYTES)
    bytes_a = np.where(t.spans, ceil_div(t.tile_m * span, TILE_BYTES) * TILE_BYTES, boxes_a)
    bytes_b = (t.tile_n * ceil_div(t.step, row) if sizes.along_b
               else ceil_div(t.tile_n, row) * t.step) * ROW_BYTES
    # Sums that are not rounded go from registers to memory.
    unrounded = (t.parts * t.cluster > 1) | problem.spec.widened
    results = np.where(unrounded, 0, groups * _group_results(problem, t))
    own_columns = ceil_div(floor_div(t.tile_n, RUN), t.cluster) * RUN
    handed = ACCUMULATOR.bytes * t.tile_m * own_columns * (t.cluster - 1)
    all_steps, tiles_m = ceil_div(sizes.k, t.step), ceil_div(sizes.m, t.tile_m)
    kept, images = all_steps * t.kept, _images(problem, t)
    scales = _scale_bytes(problem, t, images)
    ring = t.stages * (bytes_a + scales + np.where(t.kept, 0, bytes_b)) + kept * bytes_b
    factors = all_steps * t.step * (problem.spec.element.exact and problem.spec.scaled)
    of_factors = groups * images * factors * FACTOR_BYTES
    return WarpgroupShape(
        sizes=sizes, groups=groups, waves=WAVES * groups + 1, span=span, bytes_a=bytes_a,
        bytes_b=bytes_b, results_bytes=results, handed_bytes=handed,
        lds_bytes=(ring + results + handed + of_factors + table_bytes(problem.spec, t.banked)
                   + barriers_of(problem, t) * BARRIER_BYTES),
        kept=kept, images=images, factors=factors, all_steps=all_steps,
        steps=ceil_div(all_steps, t.parts * t.cluster),
        tiles_m=tiles_m, blocks_m=ceil_div(tiles_m, t.repeat), tiles_n=ceil_div(sizes.n, t.tile_n))
