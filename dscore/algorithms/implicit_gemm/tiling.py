"""The tiling of the implicit product of matrices, and the geometry of its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.columns import Count, ceil_div, floor_div, remembered
from dscore.core.numerics import FLOAT32_ARITHMETICS, WORD_BYTES, Arithmetic
from dscore.core.problem import ConvProblem
from dscore.core.sizes import Pair
from dscore.core.tiling import MOST_COUNT, Tiling, choice


@dataclass(frozen=True)
class ImplicitGemmTiling(Tiling):
    """Tiling of a dense or grouped convolution as a product of matrices, filters by unfolded images
    of which no copy is made.

    A block computes `tile_c` output channels of one group for `tile_p` pixels, counted through all
    images; a wavefront `wave_c` x `wave_p` of these, by `lanes_c` rows of lanes. The input channels
    come `step_c` at a time through a ring of `stages` LDS buffers: one is waited for in every step,
    two are filled through registers, three or more by asynchronous copies. Of a channel a buffer
    holds all taps of the filters, and the part of the images under the block's pixels, in up to
    `patch` elements.
    `slices` groups of wavefronts share the channels of a step, and `cluster` blocks (Hopper's
    clusters) the steps; their sums are added at the end.

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
    patch: int
    cluster: int = 1
    arithmetic: Arithmetic = choice(*FLOAT32_ARITHMETICS, default="plain")

    algorithm: ClassVar[str] = "implicit_gemm"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> ImplicitGemmTiling(64, 64, 32, 32, 8, 1, 16, 3, 257, 2, "tf32x3").name
        'implicit_gemm_t64x64_w32x32_l8_s1_k16x3_e257_x2_tf32x3'
        """
        return (f"implicit_gemm_t{self.tile_c}x{self.tile_p}_w{self.wave_c}x{self.wave_p}"
                f"_l{self.lanes_c}_s{self.slices}_k{self.step_c}x{self.stages}_e{self.patch}"
                f"{f'_x{self.cluster}' if self.cluster > 1 else ''}"
                f"{'' if self.arithmetic == 'plain' else '_' + self.arithmetic}")

    def computes(self, arithmetic: Arithmetic | None) -> bool:
        return arithmetic in (None, self.arithmetic)


@dataclass(frozen=True)
class Rows:
    """The images as a block sees them: one below the other, each with the padding that its outputs
    reach, and without the rows and columns that no output reaches.
    """

    steps: Pair  # rows from one output's to the next one's, and columns
    rows: int  # of an image
    width: int
    reach: int  # elements from the first tap of an output to the last one, both counted


def rows_of(problem: ConvProblem) -> Rows:
    """The images of a problem as its blocks see them.

    >>> from dscore.core.token import parse_problem
    >>> rows_of(parse_problem("n1c4h8w8_o4k3p1"))
    Rows(steps=(1, 1), rows=10, width=10, reach=23)
    """
    (span_h, span_w), (stride_h, stride_w) = problem.spec.span, problem.spec.stride
    step_h, step_w = min(stride_h, span_h), min(stride_w, span_w)
    width = (problem.out_width - 1) * step_w + span_w
    return Rows((step_h, step_w), (problem.out_height - 1) * step_h + span_h, width,
                (span_h - 1) * width + span_w)


def place_of(problem: ConvProblem, pixel: Count) -> Count:
    """Where the first tap of a pixel lies, counted through all images as blocks see them."""
    rows = rows_of(problem)
    place, column = np.divmod(pixel, problem.out_width)
    image, row = np.divmod(place, problem.out_height)
    return ((image * rows.rows + row * rows.steps[0]) * rows.width + column * rows.steps[1])


@lru_cache(maxsize=4096)
def _under_tile(problem: ConvProblem, tile_p: int) -> int:
    pixels = pixels_of(problem)
    area = problem.out_height * problem.out_width
    # Where tiles begin in an image repeats itself.
    tiles = min(-(-pixels // tile_p), area // gcd(area, tile_p))
    first = tile_p * np.arange(tiles)
    last = np.minimum(first + tile_p, pixels) - 1
    apart = place_of(problem, last) - place_of(problem, first)
    return int(apart.max()) + rows_of(problem).reach


@remembered
def under_tile(problem: ConvProblem, tile_p: Count) -> Count:
    """Elements of a channel from the first tap of a tile's first pixel to the last of its last one,
    of the tile that has most.

    >>> from dscore.core.token import parse_problem
    >>> under_tile(parse_problem("n1c4h8w8_o4k3p1"), 16)
    40
    """
    values, at = np.unique(tile_p, return_inverse=True)
    needed = np.array([_under_tile(problem, int(value)) for value in values])
    return needed[at].reshape(np.shape(tile_p)) if np.ndim(tile_p) else int(needed[0])


@remembered
def splits(t: Any) -> Any:
    """Whether products are made of three TF32 ones."""
    return np.asarray(t.arithmetic) == "tf32x3"


def pixels_of(problem: ConvProblem) -> int:
    """Pixels of the output, of all images."""
    return problem.batch * problem.out_height * problem.out_width


def taps_of(problem: ConvProblem) -> int:
    """Taps of a filter."""
    return problem.spec.kernel[0] * problem.spec.kernel[1]


def vectors_of(problem: ConvProblem) -> tuple[int, int]:
    """Elements that lie side by side at multiples of 16 bytes, of an image of the output and of a
    filter.
    """
    most = VECTOR_BYTES // problem.spec.element.bytes
    area = problem.out_height * problem.out_width
    return most if area % most == 0 else 1, most if problem.spec.products % most == 0 else 1


def slides(problem: ConvProblem, t: Any, wavefront: int) -> Any:
    """Whether a lane's pixels lie side by side in a row, so that it reads each element under a row
    of taps once: of depthwise layers, for the channels of others share what is read.
    """
    spec, thread_p = problem.spec, np.maximum(floor_div(t.wave_p, wavefront), 1)
    return ((t.lanes_c == 1) & ~splits(t) & (spec.kind == "depthwise")
            & (spec.stride[1] == 1) & (spec.dilation[1] == 1)
            & (problem.out_width % thread_p == 0))


def beside_of(problem: ConvProblem, t: Any) -> Count:
    """Pixels of a lane that lie side by side, so that it stores them as one."""
    return np.where(splits(t) & (t.wave_p % 32 == 0), vectors_of(problem)[0], 1)


def filter_row(problem: ConvProblem, t: Any) -> Count:
    """Words of a row of filters in a buffer: 4 banks apart from the next."""
    row = t.step_c * taps_of(problem)
    return row + (12 - row % 8) % 8


def across_of(patch: Count, channels: Count, waves: Count, wavefront: int) -> tuple[Count, Count]:
    """Threads that take elements of one channel, so that *waves* wavefronts go over the patches of
    all *channels* in the fewest turns; and these turns.

    >>> [tuple(map(int, across_of(patch, 8, 8, 32))) for patch in (104, 513)]
    [(32, 4), (32, 17)]
    """
    choices = np.array([1, *range(2, int(np.max(waves, initial=1)) + 1)])[:, None]
    beside = floor_div(waves, choices)
    turns = np.where(beside * choices == waves, ceil_div(patch, choices * wavefront)
                     * ceil_div(channels, np.maximum(beside, 1)), MOST_COUNT)
    best = turns.argmin(axis=0)
    shape = np.shape(patch)
    return ((choices[best, 0] * wavefront).reshape(shape),
            np.take_along_axis(turns, best[None], axis=0).reshape(shape))


@dataclass(frozen=True)
class ImplicitGemmShape:
    """The geometry of a block."""

    slice_waves: Count  # wavefronts of one slice
    waves: Count
    sums: Count  # outputs of a lane
    step_sums: Count  # of a lane, of a step that is summed apart: on matrix units, one of several
    operands: Count  # elements that a lane holds for one step of its multiplication
    places: Count  # pixels of a lane
    across: Count  # threads that copy elements of one channel's patch side by side
    turns: Count  # in which threads copy a step's elements of the images
    filter_vectors: Count  # that a thread copies of one step's filters
    fetched: Count  # elements that a thread takes of one step's tiles
    filters: Count  # elements of the filters in one LDS buffer
    buffer: Count  # elements of one LDS buffer
    joined: Count  # elements of LDS for the slices' sums
    all_steps: Count
    steps: Count  # of one block
    channel_tiles: Count  # of one group
    pixel_tiles: Count


@remembered
def shape_of(problem: ConvProblem, t: Any, wavefront: int) -> ImplicitGemmShape:
    """Geometry of *t*, an ImplicitGemmTiling or columns of many."""
    spec, split = problem.spec, splits(t)
    # What no tiling may be has at least one of each, so that its rules can be judged.
    slice_waves = np.maximum(floor_div(t.tile_c, t.wave_c) * floor_div(t.tile_p, t.wave_p), 1)
    waves, sums = slice_waves * t.slices, np.maximum(t.wave_c * t.wave_p // wavefront, 1)
    lanes_p = np.maximum(floor_div(wavefront, t.lanes_c), 1)
    thread_c, thread_p = floor_div(t.wave_c, t.lanes_c), floor_div(t.wave_p, lanes_p)
    vector_c = vectors_of(problem)[1]
    filters = t.tile_c * filter_row(problem, t)
    across, turns = across_of(t.patch, t.step_c, waves, wavefront)
    vectors = ceil_div(t.tile_c * t.step_c * taps_of(problem), vector_c * waves * wavefront)
    all_steps = ceil_div(spec.group_in, t.step_c)
    steps = ceil_div(all_steps, t.cluster)
    return ImplicitGemmShape(
        slice_waves=slice_waves, waves=waves, sums=sums,
        step_sums=np.where(split & (steps > 1), sums, 0),
        # On matrix units eight products of both, in two parts.
        operands=np.where(split, t.wave_c // 2 + t.wave_p // 2, thread_c + thread_p),
        places=np.where(split, t.wave_p // 8, thread_p), across=across, turns=turns,
        filter_vectors=vectors, fetched=turns + vector_c * vectors,
        filters=filters, buffer=ceil_div(filters + t.step_c * t.patch, 4) * 4,
        joined=np.maximum(t.slices - 1, t.cluster > 1) * slice_waves * wavefront * sums,
        all_steps=all_steps, steps=steps,
        channel_tiles=ceil_div(spec.group_out, t.tile_c),
        pixel_tiles=ceil_div(pixels_of(problem), t.tile_p))


def table_bytes(t: Any) -> Count:
    """LDS of the table that says where the elements of a patch are in memory."""
    return WORD_BYTES * t.patch
