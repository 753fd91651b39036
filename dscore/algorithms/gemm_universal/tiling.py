"""The tiling of the product of matrices in any order of axes, and the geometry of its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.columns import Count, ceil_div, floor_div, remembered
from dscore.core.numerics import ACCUMULATOR, ARITHMETICS, WORD_BYTES, Arithmetic, Element
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling, choice

# Summed elements that one instruction of each arithmetic takes, plain of floats; and of int8 those
# that a lane reads as one.
FRAGMENTS = {"plain": 4, "tf32x3": 8, "matrix16": 16, "matrix8": 32}
DOT_VECTOR = 16
# Neighbouring columns that a lane of an operand of int8 across the sum has.
TURNED = 4


@dataclass(frozen=True)
class GemmUniversalTiling(Tiling):
    """Tiling of a product of matrices whose result has rows of elements side by side in memory.

    A block computes `tile_m` rows by `tile_n` columns of the result; a wavefront `wave_m` x
    `wave_n` of these, with plain arithmetic by `lanes_m` rows of lanes. The summed elements come
    `step` at a time through a ring of `stages` LDS buffers: two are filled through registers, one,
    three or more by asynchronous copies. `slices` groups of wavefronts share the elements of a
    step; `cluster` blocks (Hopper's clusters) share the steps, and so do `parts`, whose results a
    further kernel adds (of a weight gradient). Where a step holds all summed elements, a block may
    take `repeat` tiles of rows one after the other, through the ring, while the columns' operand
    stays in LDS. `staged`: results pass LDS, so that neighbouring lanes store neighbouring vectors,
    as they do with slices and clusters.

    `arithmetic`: "plain" multiplies and adds in float32; "tf32x3" makes each product of three TF32
    ones on matrix units (NVIDIA), "matrix16" multiplies elements of 16 bits there (and on AMD's, by
    wavefronts of 64), "matrix8" those of int8; there `lanes_m` is 8. "plain" sums dot products of
    four of int8, in int32.
    """

    tile_m: int
    tile_n: int
    wave_m: int
    wave_n: int
    lanes_m: int
    slices: int
    step: int
    stages: int
    cluster: int = 1
    parts: int = 1
    repeat: int = 1
    staged: bool = False
    arithmetic: Arithmetic = choice(*ARITHMETICS, default="plain")

    algorithm: ClassVar[str] = "gemm_universal"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> GemmUniversalTiling(64, 64, 32, 32, 8, 1, 64, 4, 1, 1, 3, True, "matrix16").name
        'gemm_universal_t64x64_w32x32_l8_s1_k64x4_r3_staged_matrix16'
        """
        return (f"gemm_universal_t{self.tile_m}x{self.tile_n}_w{self.wave_m}x{self.wave_n}"
                f"_l{self.lanes_m}_s{self.slices}_k{self.step}x{self.stages}"
                f"{f'_x{self.cluster}' if self.cluster > 1 else ''}"
                f"{f'_p{self.parts}' if self.parts > 1 else ''}"
                f"{f'_r{self.repeat}' if self.repeat > 1 else ''}{'_staged' * self.staged}"
                f"{'' if self.arithmetic == 'plain' else '_' + self.arithmetic}")

    def computes(self, arithmetic: Arithmetic | None) -> bool:
        return arithmetic in (None, self.arithmetic)


@dataclass(frozen=True)
class GemmSizes:
    """The product that an operation is: m rows by n columns, of k summed elements each.

    An operand lies along the sum where its rows hold summed elements, else across it.
    """

    m: int
    n: int
    k: int
    along_a: bool
    along_b: bool


def sizes_of(problem: ConvProblem) -> GemmSizes:
    """The sizes of a problem's product: pixels by channels, or, in planes, channels by pixels."""
    spec, batch = problem.spec, problem.batch
    last, ins, outs = channels_last(problem), spec.in_channels, spec.out_channels
    pixels, of_input = (batch * problem.out_height * problem.out_width,
                        batch * problem.height * problem.width)
    if problem.operation == "weight_gradient":
        return GemmSizes(outs, ins, pixels, not last, not last)
    if problem.operation == "input_gradient":
        return (GemmSizes(of_input, ins, outs, True, False) if last
                else GemmSizes(ins, of_input, outs, False, False))
    return (GemmSizes(pixels, outs, ins, True, True) if last
            else GemmSizes(outs, pixels, ins, True, False))


def channels_last(problem: ConvProblem) -> bool:
    """Whether the channels of a pixel lie side by side: in images of one pixel they do as well."""
    area = (problem.height, problem.width, problem.out_height, problem.out_width)
    return problem.spec.layout == "nhwc" or area == (1, 1, 1, 1)


def streams(problem: ConvProblem) -> bool:
    """Whether the rows of results are pixels, of which a block may take many."""
    return channels_last(problem) and problem.operation != "weight_gradient"


def gathered(problem: ConvProblem) -> bool:
    """Whether a stride or padding makes rows of pixels others than all in their order."""
    return problem.spec.stride != (1, 1) or any(problem.padding)


def vectors_of(problem: ConvProblem) -> tuple[int, int, int]:
    """Elements that lie side by side at multiples of 16 bytes: of both operands and the result."""
    spec, last = problem.spec, channels_last(problem)
    most = VECTOR_BYTES // spec.element.bytes
    ins, outs = spec.in_channels, spec.out_channels
    if not last:
        # Pixels of a plane, each with an address of its own where some are left out.
        area = problem.height * problem.width
        plane, out_plane = (1, problem.out_height * problem.out_width) if gathered(problem) else (
            area, area)
    in_rows = ins if last else plane
    out_rows = outs if last else out_plane
    rows = {"conv": (in_rows, ins, out_rows) if last else (ins, in_rows, out_rows),
            "input_gradient": ((out_rows, ins, in_rows) if last else
                               (ins, 1 if gathered(problem) else out_rows,
                                problem.height * problem.width)),
            "weight_gradient": (out_rows, in_rows, ins)}[problem.operation]
    a, b, out = (min(row & -row, most) for row in rows)
    return a, b, min(out, VECTOR_BYTES // spec.out_element.bytes)


def single(problem: ConvProblem) -> bool:
    """Whether elements of an operand move one by one, each less than the 4 bytes of an asynchronous
    copy: through registers, so that every step waits for memory."""
    return min(vectors_of(problem)[:2]) * problem.spec.element.bytes < WORD_BYTES


def fragment_of(element: Element, t: Any) -> Count:
    """Summed elements of an instruction."""
    if element.exact:
        return np.where(on_units(t), FRAGMENTS["matrix8"], DOT_VECTOR)
    return np.where(splits(t), FRAGMENTS["tf32x3"], np.where(
        on_units(t), FRAGMENTS["matrix16"], FRAGMENTS["plain"]))


def turned(problem: ConvProblem) -> bool:
    """Whether bytes of the second operand, which lies across the sum, are turned when read."""
    return problem.spec.element.exact and not sizes_of(problem).along_b


def filter_sums(problem: ConvProblem, t: Any, waves: Count, wavefront: int) -> Count:
    """Words of LDS for sums of filters of int8: one for each thread that shares a filter."""
    if not problem.spec.element.exact:
        return 0
    filters = t.tile_n if channels_last(problem) else t.tile_m
    most = np.minimum(floor_div(t.step, DOT_VECTOR), floor_div(waves * wavefront, filters))
    return filters * 2 ** np.log2(np.maximum(most, 1)).astype(np.int64)


@remembered
def splits(t: Any) -> Any:
    """Whether products are made of three TF32 ones."""
    return np.asarray(t.arithmetic) == "tf32x3"


@remembered
def on_units(t: Any) -> Any:
    """Whether products are made on matrix units."""
    return np.asarray(t.arithmetic) != "plain"


def pitches_of(problem: ConvProblem, t: Any) -> tuple[Count, Count]:
    """Elements from a row of a tile in LDS to the next, of both operands
    (hip_src/gemm_universal/shape.hpp)."""
    sizes, most = sizes_of(problem), VECTOR_BYTES // problem.spec.element.bytes

    def pitch(row: Count, along: bool) -> Count:
        odd = (ceil_div(row, most) | 1) * most
        return np.where(splits(t), np.where(row % 16 == 8, row, row + 8), odd) if along else odd

    return (pitch(t.step if sizes.along_a else t.tile_m, sizes.along_a),
            pitch(t.step if sizes.along_b else t.tile_n, sizes.along_b))


def copies_of(problem: ConvProblem, t: Any, threads: Count) -> tuple[Count, Count]:
    """Vectors of a step that a thread brings, of both operands: each keeps to its column of a tile
    (hip_src/gemm_universal/operands.hpp)."""
    sizes, vectors, own = sizes_of(problem), vectors_of(problem), direct(t)

    def copies(extent: Count, along: bool, vector: int, paired: Count) -> Count:
        rows, long = (extent, t.step) if along else (t.step, extent)
        columns = np.maximum(floor_div(long, vector), 1)
        apart = np.maximum(floor_div(threads, columns), 1)
        apart = np.where(paired, 2 ** np.log2(apart).astype(np.int64), apart)
        return np.where(columns <= threads, ceil_div(rows, apart),
                        ceil_div(rows * columns, threads))

    return (copies(t.tile_m, sizes.along_a, vectors[0], False),
            copies(t.tile_n, sizes.along_b, vectors[1],
                   sizes.along_b & own & on_units(t) & (t.wave_n % 16 == 0)))


def direct(t: Any) -> Any:
    """Whether each lane stores its own sums."""
    return (t.slices == 1) & (t.cluster == 1) & np.logical_not(t.staged)


@dataclass(frozen=True)
class GemmShape:
    """The geometry of a block of the product."""

    slice_waves: Count  # wavefronts of one slice
    waves: Count
    sums: Count  # of a lane
    operands_a: Count  # elements that a lane holds for one instruction of its multiplication
    operands_b: Count
    fetched: Count  # elements that a thread takes of one step's tiles
    a_elements: Count  # of a tile in LDS
    b_elements: Count
    buffer: Count  # elements of one LDS buffer
    sum_row: Count
    joined: Count  # sums in LDS
    filter_sums: Count  # words there
    steps: Count  # of one block
    all_steps: Count
    tiles_m: Count
    blocks_m: Count
    tiles_n: Count


def beside(along: bool, count: Count) -> Count:
    """Neighbouring rows that a lane of plain arithmetic reads as one, of *count*."""
    return 1 if along else np.where(count % 4 == 0, 4, np.where(count % 2 == 0, 2, 1))


@remembered
def shape_of(problem: ConvProblem, t: Any, wavefront: int) -> GemmShape:
    """Geometry of *t*, a GemmUniversalTiling or columns of many."""
    sizes = sizes_of(problem)
    # What no tiling may be has at least one of each, so that its rules can be judged.
    slice_waves = np.maximum(floor_div(t.tile_m, t.wave_m) * floor_div(t.tile_n, t.wave_n), 1)
    waves = slice_waves * t.slices
    threads, lanes_n = waves * wavefront, np.maximum(floor_div(wavefront, t.lanes_m), 1)
    vector_a, vector_b, _ = vectors_of(problem)
    pitch_a, pitch_b = pitches_of(problem, t)
    a_elements = (t.tile_m if sizes.along_a else t.step) * pitch_a
    b_elements = (t.tile_n if sizes.along_b else t.step) * pitch_b
    # Plain arithmetic reads some summed elements of an operand along the sum, one of another.
    exact = problem.spec.element.exact
    along, across, read = (DOT_VECTOR, TURNED, 32) if exact else (4, 1, 16)
    plain_a = (along if sizes.along_a else across) * floor_div(t.wave_m, t.lanes_m)
    plain_b = (along if sizes.along_b else across) * floor_div(t.wave_n, lanes_n)
    sum_row = t.tile_n + np.where(t.tile_n % 16 == 0, 8, 0)
    all_steps, tiles_m = ceil_div(sizes.k, t.step), ceil_div(sizes.m, t.tile_m)
    return GemmShape(
        slice_waves=slice_waves, waves=waves,
        sums=np.maximum(floor_div(t.wave_m * t.wave_n, wavefront), 1),
        # Sixteen summed elements by a wavefront, or eight of two parts, or 32 bytes.
        operands_a=np.where(on_units(t), t.wave_m * read // wavefront, plain_a),
        operands_b=np.where(on_units(t), t.wave_n * read // wavefront, plain_b),
        fetched=sum(vector * count for vector, count in zip(
            (vector_a, vector_b), copies_of(problem, t, threads), strict=True)),
        a_elements=a_elements, b_elements=b_elements, buffer=a_elements + b_elements,
        sum_row=sum_row, filter_sums=filter_sums(problem, t, waves, wavefront),
        joined=np.where(direct(t), 0, t.slices * t.tile_m * sum_row),
        steps=ceil_div(all_steps, t.parts * t.cluster), all_steps=all_steps,
        tiles_m=tiles_m, blocks_m=ceil_div(tiles_m, t.repeat), tiles_n=ceil_div(sizes.n, t.tile_n))


def lds_bytes(problem: ConvProblem, t: Any, shape: GemmShape) -> Count:
    """LDS of a block: the ring holds elements, then sums that pass it lie in its place; behind it,
    where further tiles are under way."""
    element: Element = problem.spec.element
    joined = ACCUMULATOR.bytes * shape.joined
    kept = element.bytes * (shape.b_elements + t.stages * shape.a_elements)
    return WORD_BYTES * shape.filter_sums + np.where(
        t.repeat > 1, kept + joined,
        np.maximum(element.bytes * t.stages * shape.buffer, joined))
