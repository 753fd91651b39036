"""The tiling of the implicit product of matrices of both layouts, and its blocks' geometry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.columns import Count, ceil_div, floor_div, remainder, remembered
from dscore.algorithms.gemm_universal.tiling import fragment_of, on_units, splits
from dscore.algorithms.implicit_gemm.tiling import pixels_of, taps_of
from dscore.core.device import MATRIX_WAVEFRONT
from dscore.core.numerics import ACCUMULATOR, ARITHMETICS, WORD_BYTES, Arithmetic
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling, choice

# Channels that a lane multiplies at least, of a tap: those that it reads as one.
FOUR = 4
# Pieces that a thread reads at once and writes to LDS then, where they do not pass by themselves.
TOGETHER = 4
# Taps of a filter's piece that a thread takes as one, at most.
_MOST_TAKEN = 9


@dataclass(frozen=True)
class ImplicitGemmUniversalTiling(Tiling):
    """Tiling of a dense or grouped convolution as a product of matrices, of images in either layout
    whose pixels have their channels side by side in LDS.

    A block computes `tile_c` output channels of one group for `tile_p` pixels, counted through all
    images; a wavefront `wave_c` x `wave_p` of these, with plain arithmetic by `lanes_c` rows of
    lanes. The input channels come `step_c` at a time through a ring of `stages` LDS buffers: one is
    waited for in every step, two are filled through registers, three or more by asynchronous
    copies. Of a channel a buffer holds all taps of the filters, and the part of the images under
    the block's pixels, in up to `patch` elements.
    `slices` groups of wavefronts share the channels of a step, and `cluster` blocks (Hopper's
    clusters) the steps; their sums are added at the end.

    `arithmetic`: "plain" multiplies and adds in float32; "tf32x3" makes each product of three TF32
    ones on matrix units (NVIDIA), "matrix16" multiplies elements of 16 bits there (and on AMD's, by
    wavefronts of 64), "matrix8" those of int8; there `lanes_c` is 8. "plain" sums dot products of
    four of int8, in int32.
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
    arithmetic: Arithmetic = choice(*ARITHMETICS, default="plain")

    algorithm: ClassVar[str] = "implicit_gemm_universal"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> ImplicitGemmUniversalTiling(64, 64, 32, 32, 8, 1, 16, 3, 257, 2, "matrix16").name
        'implicit_gemm_universal_t64x64_w32x32_l8_s1_k16x3_e257_x2_matrix16'
        """
        return (f"{self.algorithm}_t{self.tile_c}x{self.tile_p}_w{self.wave_c}x{self.wave_p}"
                f"_l{self.lanes_c}_s{self.slices}_k{self.step_c}x{self.stages}_e{self.patch}"
                f"{f'_x{self.cluster}' if self.cluster > 1 else ''}"
                f"{'' if self.arithmetic == 'plain' else '_' + self.arithmetic}")

    def computes(self, arithmetic: Arithmetic | None) -> bool:
        return arithmetic in (None, self.arithmetic)


def most_of(problem: ConvProblem) -> int:
    """Elements of a vector of 16 bytes."""
    return VECTOR_BYTES // problem.spec.element.bytes


def vectors_of(problem: ConvProblem) -> tuple[int, int]:
    """Elements that lie side by side at multiples of 16 bytes or less: of the input channels of a
    group, and of the output, where that has channels or pixels side by side, whose results may be
    larger.

    >>> from dscore.core.token import parse_problem
    >>> vectors_of(parse_problem("n1c12h8w8_o8k3p1_float16_nhwc"))
    (4, 8)
    """
    spec, most = problem.spec, most_of(problem)
    out = (spec.group_out if spec.layout == "nhwc" else problem.out_height * problem.out_width)
    return (min(spec.group_in & -spec.group_in, most),
            min(out & -out, VECTOR_BYTES // spec.out_element.bytes))


def piece_of(problem: ConvProblem, t: Any) -> Count:
    """Channels that a thread brings as one."""
    rest: Count = FOUR
    if problem.spec.element.exact:
        rest = np.where(remainder(t.step_c, 2 * FOUR) == 0, 2 * FOUR, FOUR)
    return np.where(remainder(t.step_c, most_of(problem)) == 0, most_of(problem), rest)


def takes_whole(problem: ConvProblem, t: Any) -> Any:
    """Whether a thread takes all taps of a piece of a filter, which lie side by side."""
    return (vectors_of(problem)[0] >= piece_of(problem, t)) & (taps_of(problem) <= _MOST_TAKEN)


def reads_single(problem: ConvProblem) -> bool:
    """Whether a thread reads the channels of an image's piece one by one."""
    return problem.spec.layout == "nchw" or vectors_of(problem)[0] == 1


def across_of(problem: ConvProblem, t: Any) -> Count:
    """Channels of a tap that a fragment of products sums: all of it, or a half, a quarter, …"""
    own = np.maximum(floor_div(t.step_c, t.slices), FOUR)
    return np.minimum(own & -own, fragment_of(problem.spec.element, t))


def taps_together(problem: ConvProblem, t: Any) -> Count:
    """Taps of a fragment. Plain arithmetic of int8 reads as many channels of one as there are."""
    fragment = fragment_of(problem.spec.element, t)
    across = across_of(problem, t)
    return np.where(problem.spec.element.exact & np.logical_not(on_units(t)), 1,
                    floor_div(fragment, across))


def reads_words(problem: ConvProblem, t: Any, wavefront: int) -> Any:
    """Whether lanes of NVIDIA's units read words of a fragment, of which rows of 16 bytes are not
    of one tap."""
    row = floor_div(VECTOR_BYTES, problem.spec.element.bytes)
    return on_units(t) & (wavefront == MATRIX_WAVEFRONT) & (across_of(problem, t) < row)


def direct(problem: ConvProblem, t: Any, wavefront: int) -> Any:
    """Whether each lane stores its own sums, of neighbouring channels."""
    return (problem.spec.element.exact & on_units(t) & (wavefront == MATRIX_WAVEFRONT)
            & (problem.spec.layout == "nhwc") & (t.slices == 1) & (t.cluster == 1))


def pitch(problem: ConvProblem, t: Any, row: Count) -> Count:
    """Elements of LDS from a row of so many to the next, so that lanes of several rows meet no bank
    twice (hip_src/implicit_gemm_universal/tiles.hpp)."""
    most = most_of(problem)
    return np.where(splits(t), row + remainder(24 - remainder(row, 16), 16),
                    (ceil_div(row, most) | 1) * most)


def filter_row(problem: ConvProblem, t: Any) -> Count:
    """Elements of LDS from a channel's filters of a step to the next one's."""
    return pitch(problem, t, t.step_c * taps_of(problem))


def element_of(problem: ConvProblem, t: Any) -> Count:
    """Elements of LDS from the channels of an element of the patch to those of the next."""
    return np.where(t.step_c == FOUR, FOUR, pitch(problem, t, t.step_c))


def sum_row(problem: ConvProblem, t: Any) -> Count:
    """Sums in LDS from a row of what lies side by side in the output to the next."""
    if problem.spec.layout == "nhwc":
        return t.tile_c + np.where(remainder(t.tile_c, 16) == 0, 8, 0)
    return t.tile_p + 4


@dataclass(frozen=True)
class ImplicitGemmUniversalShape:
    """The geometry of a block."""

    slice_waves: Count  # wavefronts of one slice
    waves: Count
    sums: Count  # outputs of a lane
    operands_c: Count  # elements that a lane holds for one fragment, of filters and of images
    operands_p: Count
    places: Count  # pixels of a lane
    filter_turns: Count  # in which threads bring a step's filters, and its images
    image_turns: Count
    fetched: Count  # elements that a thread takes of one step's tiles
    filters: Count  # elements of the filters in one LDS buffer
    buffer: Count  # elements of one LDS buffer
    sum_row: Count
    joined: Count  # sums in LDS
    filter_sums: Count  # words there, of int8
    all_steps: Count
    steps: Count  # of one block
    channel_tiles: Count  # of one group
    pixel_tiles: Count


@remembered
def shape_of(problem: ConvProblem, t: Any, wavefront: int) -> ImplicitGemmUniversalShape:
    """Geometry of *t*, an ImplicitGemmUniversalTiling or columns of many."""
    spec, units, taps = problem.spec, on_units(t), taps_of(problem)
    # What no tiling may be has at least one of each, so that its rules can be judged.
    slice_waves = np.maximum(floor_div(t.tile_c, t.wave_c) * floor_div(t.tile_p, t.wave_p), 1)
    waves = slice_waves * t.slices
    threads, lanes_p = waves * wavefront, np.maximum(floor_div(wavefront, t.lanes_c), 1)
    thread_c, thread_p = floor_div(t.wave_c, t.lanes_c), floor_div(t.wave_p, lanes_p)
    piece = piece_of(problem, t)
    pieces = np.maximum(floor_div(t.step_c, piece), 1)
    taps_each = np.where(takes_whole(problem, t), taps, 1)
    filter_turns = ceil_div(t.tile_c * pieces * floor_div(taps, taps_each), threads)
    image_turns = ceil_div(t.patch * pieces, threads)
    filters, most = t.tile_c * filter_row(problem, t), most_of(problem)
    row = sum_row(problem, t)
    rows = t.tile_p if spec.layout == "nhwc" else t.tile_c
    all_steps = ceil_div(spec.group_in, t.step_c)
    # Of a row: elements, or parts of them.
    held = fragment_of(spec.element, t) * np.where(splits(t), 2, 1)
    by_eights = splits(t) | reads_words(problem, t, wavefront)
    read = across_of(problem, t) if spec.element.exact else FOUR
    own_sums = direct(problem, t, wavefront)
    return ImplicitGemmUniversalShape(
        slice_waves=slice_waves, waves=waves,
        sums=np.maximum(floor_div(t.wave_c * t.wave_p, wavefront), 1),
        operands_c=np.where(units, floor_div(t.wave_c * held, wavefront), read * thread_c),
        operands_p=np.where(units, floor_div(t.wave_p * held, wavefront), read * thread_p),
        places=np.where(units, floor_div(t.wave_p, np.where(by_eights, 8, 16)), thread_p),
        filter_turns=filter_turns, image_turns=image_turns,
        fetched=piece * (filter_turns * taps_each + image_turns),
        filters=filters,
        buffer=filters + ceil_div(t.patch * element_of(problem, t), most) * most,
        sum_row=row, joined=np.where(own_sums, 0, t.slices * rows * row),
        filter_sums=_filter_sums(problem, t, threads),
        all_steps=all_steps, steps=ceil_div(all_steps, t.cluster),
        channel_tiles=ceil_div(spec.group_out, t.tile_c),
        pixel_tiles=ceil_div(pixels_of(problem), t.tile_p))


def _filter_sums(problem: ConvProblem, t: Any, threads: Count) -> Count:
    """Words of LDS for sums of filters of int8: one for each thread that shares a filter."""
    if not problem.spec.element.exact:
        return 0
    row = t.step_c * taps_of(problem)
    units = floor_div(row, np.where(remainder(row, VECTOR_BYTES) == 0, VECTOR_BYTES, WORD_BYTES))
    most = np.minimum(units, floor_div(threads, t.tile_c))
    return t.tile_c * 2 ** np.log2(np.maximum(most, 1)).astype(np.int64)


def zeros_at(problem: ConvProblem, t: Any, shape: ImplicitGemmUniversalShape) -> Count:
    """Bytes of LDS before a vector of zeros: those of the ring, and of the table that says where
    the elements of a patch are in memory."""
    return (problem.spec.element.bytes * t.stages * shape.buffer
            + VECTOR_BYTES * ceil_div(WORD_BYTES * t.patch, VECTOR_BYTES))


def lds_bytes(problem: ConvProblem, t: Any, shape: ImplicitGemmUniversalShape) -> Count:
    """LDS of a block: the sums lie in the ring's place afterwards, those of filters behind it."""
    return filter_sums_at(problem, t, shape) + WORD_BYTES * shape.filter_sums


def filter_sums_at(problem: ConvProblem, t: Any, shape: ImplicitGemmUniversalShape) -> Count:
    """Bytes of LDS before the sums of filters."""
    return np.maximum(zeros_at(problem, t, shape) + VECTOR_BYTES,
                      ACCUMULATOR.bytes * shape.joined)

