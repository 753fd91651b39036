"""The tiling of the product of matrices, and the geometry of its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.columns import Count, ceil_div, floor_div, remembered
from dscore.core.numerics import FLOAT32_ARITHMETICS, Arithmetic
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling, choice


@dataclass(frozen=True)
class GemmTiling(Tiling):
    """Tiling of a pointwise convolution, or its input gradient, as a product of matrices, filters
    by pixels.

    A block computes `tile_c` output channels of `tile_p` pixels, counted through all images; a
    wavefront `wave_c` x `wave_p` of these, by `lanes_c` rows of lanes. The input channels come
    `step_c` at a time through a ring of `stages` LDS buffers: two are filled through registers,
    three or more by asynchronous copies. `slices` groups of wavefronts share the channels of a
    step, and `cluster` blocks (Hopper's clusters) the steps; their sums are added at the end.
    In an input gradient the output's channels are those that come in steps, and the results are the
    input's.

    `arithmetic`: "plain" multiplies and adds in float32; "tf32x3" makes each product of three TF32
    ones on matrix units (NVIDIA), which errs by about 2**-22 of it; there `lanes_c` is 8.
    """

    tile_c: int
    tile_p: int
    wave_c: int
    wave_p: int
    lanes_c: int
    slices: int
    step_c: int
    stages: int
    cluster: int = 1
    arithmetic: Arithmetic = choice(*FLOAT32_ARITHMETICS, default="plain")

    algorithm: ClassVar[str] = "gemm"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> GemmTiling(64, 64, 32, 32, 8, 1, 16, 3, 2, "tf32x3").name
        'gemm_t64x64_w32x32_l8_s1_k16x3_x2_tf32x3'
        """
        return (f"gemm_t{self.tile_c}x{self.tile_p}_w{self.wave_c}x{self.wave_p}_l{self.lanes_c}"
                f"_s{self.slices}_k{self.step_c}x{self.stages}"
                f"{f'_x{self.cluster}' if self.cluster > 1 else ''}"
                f"{'' if self.arithmetic == 'plain' else '_' + self.arithmetic}")

    def computes(self, arithmetic: Arithmetic | None) -> bool:
        return arithmetic in (None, self.arithmetic)


@remembered
def splits(t: Any) -> Any:
    """Whether products are made of three TF32 ones."""
    return np.asarray(t.arithmetic) == "tf32x3"


@dataclass(frozen=True)
class GemmShape:
    """The geometry of a block of the product of matrices."""

    slice_waves: Count  # wavefronts of one slice
    waves: Count
    sums: Count  # outputs of a lane
    step_sums: Count  # of a lane, of a step that is summed apart: on matrix units, one of several
    operands: Count  # elements that a lane holds for one step of its multiplication
    fetched: Count  # elements that a thread takes of one step's tiles
    filters: Count  # elements of the filters in one LDS buffer
    buffer: Count  # elements of one LDS buffer
    joined: Count  # elements of LDS for the slices' sums
    steps: Count  # of one block
    channel_tiles: Count
    pixel_tiles: Count


def turned(problem: ConvProblem) -> bool:
    """Whether filters lie [channel summed][channel of the results]: in an input gradient."""
    return problem.operation == "input_gradient"


@dataclass(frozen=True)
class GemmSizes:
    """The sizes of a product of matrices."""

    depth: int  # channels summed
    channels: int  # of the results
    pixels: int  # of the results of all images
    width: int  # of a result
    area: int
    area_read: int  # of an image that is multiplied


def sizes_of(problem: ConvProblem) -> GemmSizes:
    """The sizes of a problem's product."""
    spec, area = problem.spec, problem.height * problem.width
    out_area = problem.out_height * problem.out_width
    if turned(problem):
        return GemmSizes(spec.out_channels, spec.in_channels, problem.batch * area, problem.width,
                         area, out_area)
    return GemmSizes(spec.in_channels, spec.out_channels, problem.batch * out_area,
                     problem.out_width, out_area, area)


def vectors_of(problem: ConvProblem) -> tuple[int, int]:
    """Elements that lie side by side at multiples of 16 bytes, of an image and of a filter."""
    most = VECTOR_BYTES // problem.spec.element.bytes
    area = problem.height * problem.width
    whole = problem.spec.stride == (1, 1) and not any(problem.padding) and area % most == 0
    return most if whole else 1, most if problem.spec.in_channels % most == 0 else 1


def rows_of(problem: ConvProblem, t: Any) -> tuple[Count, Count]:
    """Words of a row of filters and of images in a buffer: they begin some banks apart."""
    image_row = t.tile_p + np.where(t.tile_p % 8 == 0, 4, 0)
    if turned(problem):
        return t.tile_c + np.where(t.tile_c % 8 == 0, 4, 0), image_row
    return t.step_c + np.where(t.step_c % 16 == 8, 0, 8), image_row


@remembered
def shape_of(problem: ConvProblem, t: Any, wavefront: int) -> GemmShape:
    """Geometry of *t*, a GemmTiling or columns of many."""
    sizes, split = sizes_of(problem), splits(t)
    # What no tiling may be has at least one of each, so that its rules can be judged.
    slice_waves = np.maximum(floor_div(t.tile_c, t.wave_c) * floor_div(t.tile_p, t.wave_p), 1)
    waves, sums = slice_waves * t.slices, np.maximum(t.wave_c * t.wave_p // wavefront, 1)
    lanes_p, threads = np.maximum(floor_div(wavefront, t.lanes_c), 1), waves * wavefront
    vector_p, vector_c = vectors_of(problem)
    filter_row, image_row = rows_of(problem, t)
    filters = filter_row * (t.step_c if turned(problem) else t.tile_c)
    thread_c = floor_div(t.wave_c, t.lanes_c)
    steps = ceil_div(ceil_div(sizes.depth, t.step_c), t.cluster)
    return GemmShape(
        slice_waves=slice_waves, waves=waves, sums=sums,
        step_sums=np.where(split & (steps > 1), sums, 0),
        # Four channels of the filters at a time, where they lie together; on matrix units eight of
        # both, in two parts.
        operands=np.where(split, t.wave_c // 2 + t.wave_p // 2,
                          (1 if turned(problem) else 4) * thread_c + floor_div(t.wave_p, lanes_p)),
        fetched=vector_c * ceil_div(t.tile_c * t.step_c, vector_c * threads)
        + vector_p * ceil_div(t.tile_p * t.step_c, vector_p * threads),
        filters=filters, buffer=filters + t.step_c * image_row,
        joined=np.maximum(t.slices - 1, t.cluster > 1) * slice_waves * wavefront * sums,
        steps=steps,
        channel_tiles=ceil_div(sizes.channels, t.tile_c),
        pixel_tiles=ceil_div(sizes.pixels, t.tile_p))
