"""The tiling of the implicit product of matrices by warpgroups, and the geometry of its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.columns import Count, ceil_div, floor_div, remembered
from dscore.algorithms.implicit_gemm.tiling import (
    across_of,
    filter_row,
    pixels_of,
    taps_of,
    vectors_of,
)
from dscore.algorithms.warpgroup_tf32.tiling import GROUP_THREADS, GROUP_WAVES, INSTRUCTION_ROWS
from dscore.core.numerics import Arithmetic
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling


@dataclass(frozen=True)
class ImplicitWarpgroupTiling(Tiling):
    """Tiling of a dense convolution as a product of matrices by the instructions of Hopper's
    warpgroups, unfolded images by filters.

    A block computes `tile_c` output channels for `tile_p` pixels, counted through all images; a
    warpgroup of 128 threads `group_c` x `group_p` of these. The input channels come `step_c` at a
    time through a ring of `stages` LDS buffers, of a channel all taps of the filters, and the part
    of the images under the block's pixels, in up to `patch` elements. The filters of a step are
    split in two TF32 parts `rows` of their rows at a time. `slices` groups of warpgroups share the
    channels of a step, and `cluster` blocks the steps; their sums are added at the end. Each
    product is made of three TF32 ones.
    """

    tile_c: int
    tile_p: int
    group_c: int
    group_p: int
    slices: int
    step_c: int
    rows: int
    stages: int
    patch: int
    cluster: int = 1

    algorithm: ClassVar[str] = "implicit_warpgroup"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> ImplicitWarpgroupTiling(64, 256, 64, 64, 1, 8, 1, 3, 457, 2).name
        'implicit_warpgroup_t64x256_g64x64_s1_k8x3_r1_e457_x2'
        """
        return (f"implicit_warpgroup_t{self.tile_c}x{self.tile_p}_g{self.group_c}x{self.group_p}"
                f"_s{self.slices}_k{self.step_c}x{self.stages}_r{self.rows}_e{self.patch}"
                f"{f'_x{self.cluster}' if self.cluster > 1 else ''}")

    def computes(self, arithmetic: Arithmetic | None) -> bool:
        return arithmetic in (None, "tf32x3")


def beside_of(problem: ConvProblem, t: Any) -> Count:
    """Pixels of a lane that lie side by side, so that it stores them as one."""
    return np.where(t.group_p == 2 * INSTRUCTION_ROWS, vectors_of(problem)[0], 1)


@dataclass(frozen=True)
class ImplicitWarpgroupShape:
    """The geometry of a block."""

    slice_waves: Count  # wavefronts of one slice
    waves: Count
    sums: Count  # outputs of a lane
    rows: Count  # instructions along a warpgroup's pixels
    turns: Count  # of rows of a step's filters
    batches: Count  # of products in a turn, of eight channels of a tap
    split: Count  # elements of the filters that a thread splits in a turn
    part: Count  # elements of one part of a turn's filters
    across: Count  # threads that copy elements of one channel's patch side by side
    copies: Count  # turns in which threads copy a step's elements of the images
    filter_vectors: Count  # that a thread copies of one step's filters
    filters: Count  # elements of the filters in one buffer of the ring
    buffer: Count  # elements of one buffer of the ring
    joined: Count  # elements of LDS for the slices' sums
    all_steps: Count
    steps: Count  # of one block
    channel_tiles: Count
    pixel_tiles: Count

    @property
    def ring(self) -> Count:
        """Elements of LDS before the ring: both parts of the filters of two turns."""
        return 4 * self.part


@remembered
def shape_of(problem: ConvProblem, t: Any) -> ImplicitWarpgroupShape:
    """Geometry of *t*, an ImplicitWarpgroupTiling or columns of many."""
    spec, (kernel_h, kernel_w) = problem.spec, problem.spec.kernel
    # What no tiling may be has at least one of each, so that its rules can be judged.
    groups = np.maximum(floor_div(t.tile_c, t.group_c) * floor_div(t.tile_p, t.group_p), 1)
    waves = GROUP_WAVES * groups * t.slices
    sums = np.maximum(floor_div(t.group_c * t.group_p, GROUP_THREADS), 1)
    taps = t.rows * kernel_w
    part, filters = t.tile_c * t.step_c * taps, t.tile_c * filter_row(problem, t)
    across, copies = across_of(t.patch, t.step_c, waves, 32)
    all_steps = ceil_div(spec.group_in, t.step_c)
    return ImplicitWarpgroupShape(
        slice_waves=GROUP_WAVES * groups, waves=waves, sums=sums,
        rows=np.maximum(floor_div(t.group_p, INSTRUCTION_ROWS), 1),
        turns=ceil_div(kernel_h, t.rows),
        batches=np.maximum(floor_div(t.step_c, 8 * t.slices), 1) * taps,
        split=4 * ceil_div(part, 4 * 32 * waves), part=part, across=across, copies=copies,
        filter_vectors=ceil_div(t.tile_c * t.step_c * taps_of(problem),
                                vectors_of(problem)[1] * waves * 32),
        filters=filters, buffer=ceil_div(filters + t.step_c * t.patch, 4) * 4,
        joined=np.maximum(t.slices - 1, t.cluster > 1) * GROUP_WAVES * groups * 32 * sums,
        all_steps=all_steps, steps=ceil_div(all_steps, t.cluster),
        channel_tiles=ceil_div(spec.group_out, t.tile_c),
        pixel_tiles=ceil_div(pixels_of(problem), t.tile_p))
