"""The tiling of channel vectors, and the geometry of its threads and blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.columns import Count, ceil_div, once_for_each, remembered
from dscore.algorithms.row_reuse.view import Axis, view_of
from dscore.core.device import Device
from dscore.core.numerics import Arithmetic
from dscore.core.problem import ConvProblem
from dscore.core.spec import ConvSpec
from dscore.core.tiling import Tiling, choice

# Channels that a lane may take, of 16 bytes at most; of int8 whole words, of four columns each.
VECTORS, WORD = (1, 2, 4, 8, 16), 4
# Columns, and channels, of a fragment of matrix units; channels that a wavefront may take there.
FRAGMENT, UNIT_VECTORS = 8, (8, 16)
ARITHMETICS = ("plain", "matrix16")


@dataclass(frozen=True)
class ChannelVectorsTiling(Tiling):
    """Tiling of depthwise layers on images whose channels lie side by side (NHWC).

    A thread takes `vector` channels and writes `thread_h` rows of `thread_w` columns of them.
    `lanes_c` threads stand side by side over the channels, `lanes_w` such groups over the columns
    and `lanes_h` over the rows. Thread order: channels fastest, then columns, then rows. All pixels
    under a block come to its LDS once, zeros for those outside the image, and its filters behind
    them. The rows come in `bands`: a thread walks over the first ones while others are under way.
    The rows and columns that a thread writes of an input gradient are multiples of the stride.
    With the `arithmetic` "matrix16" (NVIDIA's matrix units, elements of 16 bits) the pixels under a
    tap are multiplied by the diagonal matrix of its weights. A thread's place is then a
    wavefront's: it takes `vector` channels, 8 or 16, and of the places over columns and rows two,
    each of 8 columns (of an input gradient 8 strides).
    A block takes `repeat` tiles, one below the other or of the next image; while it works on one,
    the next one comes to a second buffer of its LDS.
    With `ahead` (devices with an early start) a kernel overlaps with its neighbours, as that of
    row_reuse does: a block that starts while the previous kernel still runs fetches its pixels to
    the L2 cache.
    `banked`: a table of int8's results lies in each bank of LDS, where lanes look up without
    conflicts.
    """

    vector: int
    lanes_c: int
    thread_h: int
    thread_w: int
    lanes_h: int
    lanes_w: int
    bands: int = 1
    ahead: bool = False
    arithmetic: str = choice(*ARITHMETICS, default="plain")
    repeat: int = 1
    banked: bool = False

    algorithm: ClassVar[str] = "channel_vectors"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> ChannelVectorsTiling(2, 16, 7, 4, 2, 7, 3, ahead=True).name
        'channel_vectors_v2_c16_t7x4_l2x7_b3_ahead'
        """
        return (f"channel_vectors_v{self.vector}_c{self.lanes_c}_t{self.thread_h}x{self.thread_w}"
                f"_l{self.lanes_h}x{self.lanes_w}_b{self.bands}"
                f"{f'_r{self.repeat}' if self.repeat > 1 else ''}"
                f"{'_ahead' if self.ahead else ''}"
                f"{'_banked' * self.banked}"
                f"{'' if self.arithmetic == 'plain' else '_' + self.arithmetic}")

    def computes(self, arithmetic: Arithmetic | None) -> bool:
        return arithmetic in (None, self.arithmetic)


@dataclass(frozen=True)
class ChannelVectorsShape:
    """The geometry of a thread and its block."""

    live_rows: Count  # rows that a thread accumulates at a time
    rows: Count  # rows that a thread walks over
    columns: Count  # columns that a thread holds of one of these
    channels: Count  # written by a block
    walked: Count  # channels under these
    pitch: Count  # elements of LDS from a pixel to the next
    tile_h: Count  # rows and columns under a block
    tile_w: Count
    tile: Count  # elements of LDS for the pixels of one tile, whole vectors
    tiles: Count  # and for all that it has at a time
    filters: Count  # and for the filters


@remembered
def on_units(t: Any) -> Any:
    """Whether matrix units multiply."""
    return np.asarray(t.arithmetic) == "matrix16"


def has_units(problem: ConvProblem, device: Device) -> bool:
    """Whether matrix units can multiply by diagonals: those of NVIDIA alone, as their fragments are
    of a wavefront of 32 (hip_src/channel_vectors/diagonal_walk.hpp)."""
    spec = problem.spec
    return (device.vendor == "nvidia" and spec.dtype in device.matrix_types
            and spec.group_out == 1 and not spec.element.exact)


def threads_of(t: Any, wavefront: int) -> Count:
    """Threads of a block that have work."""
    places = t.lanes_w * t.lanes_h
    return t.lanes_c * np.where(on_units(t), wavefront * ceil_div(places, 2), places)


def vector_elements(problem: ConvProblem) -> int:
    """Elements of 16 bytes."""
    return VECTOR_BYTES // problem.spec.element.bytes


def column_offsets(axis: Axis, thread_w: int) -> tuple[int, ...]:
    """Columns, counted from a thread's first, that taps connect with those it writes."""
    positions = (axis.position(c, f) for c in range(thread_w) for f in range(axis.kernel))
    return tuple(sorted({position for position in positions if position is not None}))


def held_columns(axis: Axis, thread_w: Count) -> Count:
    """How many these are, of one tiling or of each in columns."""
    if isinstance(thread_w, int):
        return len(column_offsets(axis, thread_w))
    return once_for_each(lambda widths: np.array(
        [len(column_offsets(axis, int(w))) for w in widths], dtype=np.int64), thread_w)


def vectors_of(problem: ConvProblem) -> list[int]:
    """Channels that a lane may take of a problem."""
    least = WORD if problem.spec.element.exact else 1
    return [vector for vector in VECTORS if least <= vector <= vector_elements(problem)]


def row_words(spec: ConvSpec, thread_w: Count) -> tuple[int, Count]:
    """Words of four taps that a written column of int8 takes of a filter row; and in how many
    phases these are held: odd columns share the words of even ones where that costs none
    (hip_src/channel_vectors/integer_walk.hpp)."""
    (_, kernel), (_, stride), (_, dilation) = spec.kernel, spec.stride, spec.dilation
    words = ceil_div(kernel, WORD)
    shared = dilation == 1 and ceil_div(kernel + 1, WORD) == words and stride % 2 == 1
    return words, 1 + shared * (np.asarray(thread_w) > 1)


def tap_words(spec: ConvSpec) -> int:
    """Words that hold a filter's taps in one phase: those of its rows, whose last ones two rows
    share where each has one tap left for it (hip_src/channel_vectors/row_words.hpp)."""
    (kernel_h, kernel_w), dilated = spec.kernel, spec.dilation != (1, 1)
    words: int = ceil_div(kernel_w, WORD)
    paired = words > 1 and kernel_w % WORD == 1 and not dilated
    return kernel_h * words - (kernel_h // 2 if paired else 0)


def channels_under(channels: Count, multiplier: int) -> Count:
    """Channels of x under some of the output that begin at a multiple of these."""
    return (channels - 1 + multiplier - np.gcd(channels, multiplier)) // multiplier + 1


def whole_vectors(problem: ConvProblem, elements: Count) -> Count:
    """Elements of as many vectors of 16 bytes as hold *elements*."""
    vector = vector_elements(problem)
    return ceil_div(elements, vector) * vector


@remembered
def shape_of(problem: ConvProblem, t: Any) -> ChannelVectorsShape:
    """Geometry of *t*, a ChannelVectorsTiling or columns of many."""
    view = view_of(problem)
    rows, columns, channels = view.rows, view.columns, t.vector * t.lanes_c
    walked = channels_under(channels, view.multiplier)
    # For matrix units an odd number of vectors: eight pixels then lie in banks of their own.
    pitch = walked + np.where(on_units(t) & (walked // FRAGMENT % 2 == 0), FRAGMENT, 0)
    tile_h, tile_w = rows.under(t.lanes_h * t.thread_h), columns.under(t.lanes_w * t.thread_w)
    tile = whole_vectors(problem, tile_h * tile_w * pitch)
    return ChannelVectorsShape(
        live_rows=rows.live(t.thread_h), rows=rows.under(t.thread_h),
        columns=held_columns(columns, t.thread_w), channels=channels, walked=walked,
        pitch=pitch,
        tile_h=tile_h, tile_w=tile_w, tile=tile, tiles=tile * (1 + (t.repeat > 1)),
        filters=whole_vectors(problem, channels * problem.spec.products))


@remembered
def copies(problem: ConvProblem, t: Any) -> tuple[Count, Count, Count]:
    """Elements that move as one: of the image and of the filters to LDS, and of the results.

    They begin at multiples of their size, as those of every pixel, block and lane do.
    """
    spec, channels, vector = problem.spec, t.vector * t.lanes_c, vector_elements(problem)
    taps = spec.products
    image = (np.gcd(np.gcd(spec.in_channels, vector), channels) if spec.group_out == 1
             else channels // channels)
    filters = np.gcd(np.gcd(channels * taps, spec.out_channels * taps), vector)
    # Of two groups of channels on matrix units neighbours exchange what they have.
    lane = np.minimum(t.vector, VECTOR_BYTES // spec.out_element.bytes)
    most = np.where(on_units(t), np.where(t.vector // FRAGMENT % 2 == 0, 4, 2), lane)
    results = np.gcd(spec.out_channels, most)
    return image, filters, np.where(on_units(t) & (results < most), np.minimum(results, 2), results)


def grid_of(problem: ConvProblem, t: Any) -> tuple[Count, Count, Count, int]:
    """Tiles over channels, columns, rows and images."""
    view = view_of(problem)
    return (ceil_div(problem.spec.out_channels, t.vector * t.lanes_c),
            ceil_div(view.columns.written_size, t.lanes_w * t.thread_w),
            ceil_div(view.rows.written_size, t.lanes_h * t.thread_h), problem.batch)


def grid_size(problem: ConvProblem, t: Any) -> Count:
    """Blocks of the grid, which share the tiles of rows of all images."""
    channels, columns, rows, images = grid_of(problem, t)
    return channels * columns * ceil_div(rows * images, t.repeat)
