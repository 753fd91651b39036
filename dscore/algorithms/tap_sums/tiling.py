"""The tiling of tap sums, and the geometry of its threads and blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.base import BARRIER_BYTES, LDS_ALIGNMENT_BYTES, VECTOR_BYTES
from dscore.algorithms.clusters import shared_sums_bytes
from dscore.algorithms.columns import Count, ceil_div, once_for_each, remembered
from dscore.core.numerics import WORD_BYTES
from dscore.core.plan import Launch
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling

# Sums side by side in a block that adds the slices, and its threads for each, at most
# (hip_src/tap_sums/parts.hpp).
PART_LANES, MOST_PART_GROUPS = 32, 16


@dataclass(frozen=True)
class TapSumsTiling(Tiling):
    """Tiling of the weight gradient of depthwise layers.

    A thread takes `thread_h` rows of `thread_w` columns of the gradient, and sums for each tap the
    products with x under it; `lanes_w` threads stand side by side and cover whole rows, `lanes_h`
    such rows of threads one above the other. A block holds `planes` of these (a plane is one output
    channel) for `images` images at a time. Thread order: image, plane, lanes_h, then lanes_w
    fastest. All of an image's rows of a block come to LDS in one piece, `stages` of them ahead.
    The images and rows are divided among `slices`, whose sums are added by a second launch, and
    those of a slice among the blocks of a `cluster` (Hopper's), which add their sums themselves.
    A block sums `taps_h` x `taps_w` taps of the filter; large filters take several tiles of these.
    With `ahead` (devices with an early start) a kernel overlaps with its neighbours, as that of
    row_reuse does: a block that starts while the previous kernel still runs fetches its first rows
    to the L2 cache.
    """

    thread_h: int
    thread_w: int
    lanes_h: int
    lanes_w: int
    planes: int
    images: int
    slices: int
    stages: int
    taps_h: int
    taps_w: int
    ahead: bool = False
    cluster: int = 1

    algorithm: ClassVar[str] = "tap_sums"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> TapSumsTiling(4, 2, 7, 14, 1, 2, 8, 2, 3, 3, ahead=True).name
        'tap_sums_t4x2_l7x14_p1_i2_s8_a2_k3x3_ahead'
        """
        cluster = f"_x{self.cluster}" * (self.cluster > 1)
        return (f"tap_sums_t{self.thread_h}x{self.thread_w}_l{self.lanes_h}x{self.lanes_w}"
                f"_p{self.planes}_i{self.images}_s{self.slices}{cluster}_a{self.stages}"
                f"_k{self.taps_h}x{self.taps_w}{'_ahead' if self.ahead else ''}")


@dataclass(frozen=True)
class TapSumsShape:
    """The geometry of a thread and its block."""

    threads: Count  # that have work
    rows: Count  # of x that a thread walks over
    held: Count  # columns of x that a thread holds of one row
    live_rows: Count  # of the gradient that a thread holds at a time
    tile_h: Count  # rows of x under a block's
    span_x: Count  # elements of LDS for the rows of x of one image, which lie in one piece
    span_g: Count  # and for the gradient's
    row_tiles: Count
    units: Count  # what a block takes at a time: rows of some images
    unit_slices: Count  # units of a block, at most
    tap_tiles: Count
    lds_bytes: Count


@remembered
def shape_of(problem: ConvProblem, t: Any) -> TapSumsShape:
    """Geometry of *t*, a TapSumsTiling or columns of many."""
    spec, element = problem.spec, problem.spec.element.bytes
    (stride_h, _), (dilation_h, _) = spec.stride, spec.dilation
    span_h = (t.taps_h - 1) * dilation_h + 1
    block_rows = t.lanes_h * t.thread_h
    tile_h = (block_rows - 1) * stride_h + span_h
    # Of planes that share their inputs, some may share them with those of the block before.
    multiplier = spec.group_out
    shared = np.gcd(t.planes, multiplier)
    planes_in = (t.planes - 1 + multiplier - shared) // multiplier + 1
    span_x = _span(element, t.images, planes_in, problem.height,
                   np.minimum(tile_h, problem.height), problem.width)
    span_g = _span(element, t.images, t.planes, problem.out_height,
                   np.minimum(block_rows, problem.out_height), problem.out_width)
    row_tiles = ceil_div(problem.out_height, block_rows)
    units = ceil_div(problem.batch, t.images) * row_tiles
    data = element * t.stages * t.images * (span_x + span_g)
    sums = WORD_BYTES * t.taps_h * t.taps_w * t.planes
    parts = np.where(_sharers(t) > 1, sums * t.images * (t.lanes_h * t.lanes_w | 1), 0)
    return TapSumsShape(
        threads=t.images * t.planes * t.lanes_h * t.lanes_w,
        rows=(t.thread_h - 1) * stride_h + span_h, held=_held(problem, t),
        live_rows=np.minimum(t.thread_h, (span_h - 1) // stride_h + 1), tile_h=tile_h,
        span_x=span_x, span_g=span_g, row_tiles=row_tiles, units=units,
        unit_slices=ceil_div(units, t.slices * t.cluster),
        tap_tiles=ceil_div(spec.kernel[0], t.taps_h) * ceil_div(spec.kernel[1], t.taps_w),
        lds_bytes=ceil_div(np.maximum(data, parts), VECTOR_BYTES) * VECTOR_BYTES
        + t.stages * BARRIER_BYTES
        + shared_sums_bytes(t.cluster, t.taps_h * t.taps_w * t.planes))


def _sharers(t: Any) -> Count:
    """Threads of a block that hold parts of the same sums."""
    return t.images * t.lanes_h * t.lanes_w


def reducers_of(t: Any, threads: int, wavefront: int) -> int:
    """Threads that add up one sum of a block of *threads*: a power of two."""
    most = min(wavefront, int(_sharers(t)), threads // int(t.planes * t.taps_h * t.taps_w))
    return 1 << max(most, 1).bit_length() - 1


def column_offsets(problem: ConvProblem, thread_w: int, taps_w: int) -> tuple[int, ...]:
    """Columns of x, counted from the thread's first, under its columns of the gradient.

    A stride or dilation may leave gaps, which are not read.
    """
    (_, stride_w), (_, dilation_w) = problem.spec.stride, problem.spec.dilation
    return tuple(sorted({c * stride_w + g * dilation_w
                         for c in range(thread_w) for g in range(taps_w)}))


@lru_cache(maxsize=1024)
def _offsets(problem: ConvProblem, thread_w: int, taps_w: int) -> int:
    return len(column_offsets(problem, thread_w, taps_w))


def _held(problem: ConvProblem, t: Any) -> Count:
    """Columns that a thread holds of a row, of one tiling or of each in columns."""
    if isinstance(t.thread_w, int):
        return _offsets(problem, t.thread_w, t.taps_w)
    return once_for_each(lambda widths, taps: np.array([
        _offsets(problem, int(w), int(g)) for w, g in zip(widths, taps, strict=True)],
        dtype=np.int64), t.thread_w, t.taps_w)


def _span(element: int, images: Count, planes: Count, height: int, rows: Count,
          width: int) -> Count:
    """Elements of LDS for some rows of the last of *planes* planes and all of the others.

    LDS is filled by vectors, the first of which may begin before the block's first row. Of several
    images an odd number of vectors, so that eight neighbours begin in banks of their own.
    """
    vector, aligned = VECTOR_BYTES // element, LDS_ALIGNMENT_BYTES // element
    most = ((planes - 1) * height + rows) * width + vector - 1
    return np.where(images > 1, (ceil_div(most, vector) | 1) * vector,
                    ceil_div(most, aligned) * aligned)


@remembered
def row_vectors(problem: ConvProblem, t: Any) -> tuple[Count, Count]:
    """Columns that a lane moves as one: of a row of x, and of the gradient.

    They begin at multiples of their size in every row, which the image's width is one of.
    """
    spec, vector = problem.spec, VECTOR_BYTES // problem.spec.element.bytes
    loaded = np.gcd(np.gcd(problem.width, vector), t.thread_w * spec.stride[1])
    # The first column of a tile of taps lies so far behind that of the tile before.
    loaded = np.where(t.taps_w < spec.kernel[1], np.gcd(loaded, t.taps_w * spec.dilation[1]),
                      loaded)
    return loaded, np.gcd(np.gcd(problem.out_width, vector), t.thread_w)


def blocks(problem: ConvProblem, t: Any) -> Count:
    """Blocks of the first launch."""
    return (ceil_div(problem.spec.out_channels, t.planes) * t.slices * t.cluster
            * shape_of(problem, t).tap_tiles)


def sums_of(problem: ConvProblem) -> int:
    """Sums of a weight gradient, one for each of a filter's elements."""
    return problem.spec.out_channels * problem.spec.products


def parts_bytes(problem: ConvProblem, slices: int) -> int:
    """Bytes of the workspace that holds the sums of each slice."""
    return WORD_BYTES * slices * sums_of(problem) if slices > 1 else 0


def part_groups(slices: int) -> int:
    """Threads that add the slices of one sum: a power of two."""
    return 1 << min(slices, MOST_PART_GROUPS).bit_length() - 1


def parts_launches(problem: ConvProblem, slices: int) -> tuple[Launch, ...]:
    """The launch that adds the slices (hip_src/tap_sums/parts.hpp), where there are several."""
    if slices == 1:
        return ()
    threads = PART_LANES * part_groups(slices)
    return (Launch(-(-sums_of(problem) // PART_LANES), threads, WORD_BYTES * threads),)
