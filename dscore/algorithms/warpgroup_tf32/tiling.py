"""The tiling of the product of matrices by warpgroups, and the geometry of its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.columns import Count, ceil_div, floor_div, remembered
from dscore.algorithms.gemm.tiling import sizes_of
from dscore.core.numerics import Arithmetic
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling

GROUP_THREADS = 128
GROUP_WAVES = 4
# Rows of an instruction of a warpgroup, and the most columns that kernels ask of one.
INSTRUCTION_ROWS, MOST_COLUMNS = 64, 160


@dataclass(frozen=True)
class WarpgroupTf32Tiling(Tiling):
    """Tiling of a pointwise convolution, or its input gradient, by the instructions of Hopper's
    warpgroups.

    A block computes `tile_c` output channels of `tile_p` pixels, counted through all images; a
    warpgroup of 128 threads `group_c` x `group_p` of these. The input channels come `step_c` at a
    time: images through a ring of `stages` LDS buffers, filters through registers. `slices` groups
    of warpgroups share the channels of a step, and `cluster` blocks the steps; their sums are added
    at the end. Each product is made of three TF32 ones. In an input gradient the output's channels
    are those that come in steps, and the results are the input's.
    """

    tile_c: int
    tile_p: int
    group_c: int
    group_p: int
    slices: int
    step_c: int
    stages: int
    cluster: int = 1

    algorithm: ClassVar[str] = "warpgroup_tf32"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> WarpgroupTf32Tiling(96, 128, 48, 64, 1, 32, 4, 2).name
        'warpgroup_tf32_t96x128_g48x64_s1_k32x4_x2'
        """
        return (f"warpgroup_tf32_t{self.tile_c}x{self.tile_p}_g{self.group_c}x{self.group_p}"
                f"_s{self.slices}_k{self.step_c}x{self.stages}"
                f"{f'_x{self.cluster}' if self.cluster > 1 else ''}")

    def computes(self, arithmetic: Arithmetic | None) -> bool:
        return arithmetic in (None, "tf32x3")


@dataclass(frozen=True)
class WarpgroupTf32Shape:
    """The geometry of a block."""

    groups_p: Count  # warpgroups side by side along the pixels
    slice_waves: Count  # wavefronts of one slice
    waves: Count
    sums: Count  # outputs of a lane
    rows: Count  # instructions along a warpgroup's pixels
    eights: Count  # of summed channels, of a slice's step
    fetched: Count  # elements of filters that a thread brings of one step
    part: Count  # elements of one part of a step's filters
    buffers: Count  # of a step's filters in LDS
    buffer: Count  # elements of images in one buffer of the ring
    joined: Count  # elements of LDS for the slices' sums
    steps: Count  # of one block
    channel_tiles: Count
    pixel_tiles: Count

    @property
    def ring(self) -> Count:
        """Elements of LDS before the ring: both parts of the filters of a step or two."""
        return 2 * self.part * self.buffers


def image_row_of(t: Any) -> Count:
    """Words of a row of images in a buffer: rows begin 8 banks apart."""
    return t.tile_p + 8


@remembered
def shape_of(problem: ConvProblem, t: Any) -> WarpgroupTf32Shape:
    """Geometry of *t*, a WarpgroupTf32Tiling or columns of many."""
    sizes = sizes_of(problem)
    # What no tiling may be has at least one of each, so that its rules can be judged.
    groups_p = np.maximum(floor_div(t.tile_p, t.group_p), 1)
    slice_waves = GROUP_WAVES * groups_p * np.maximum(floor_div(t.tile_c, t.group_c), 1)
    waves = slice_waves * t.slices
    threads, sums = 32 * waves, np.maximum(floor_div(t.group_c * t.group_p, GROUP_THREADS), 1)
    part, steps = t.tile_c * t.step_c, ceil_div(ceil_div(sizes.depth, t.step_c), t.cluster)
    return WarpgroupTf32Shape(
        groups_p=groups_p, slice_waves=slice_waves, waves=waves, sums=sums,
        rows=np.maximum(floor_div(t.group_p, INSTRUCTION_ROWS), 1),
        eights=np.maximum(floor_div(t.step_c, 8 * t.slices), 1),
        fetched=4 * ceil_div(part, 4 * threads), part=part, buffers=np.minimum(steps, 2),
        buffer=t.step_c * image_row_of(t),
        joined=np.maximum(t.slices - 1, t.cluster > 1) * slice_waves * 32 * sums, steps=steps,
        channel_tiles=ceil_div(sizes.channels, t.tile_c),
        pixel_tiles=ceil_div(sizes.pixels, t.tile_p))
