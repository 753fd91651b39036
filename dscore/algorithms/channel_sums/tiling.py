"""The tiling of channel sums, and the geometry of its threads and blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.channel_vectors.tiling import (
    ARITHMETICS,
    FRAGMENT,
    channels_under,
    has_units,
    held_columns,
    on_units,
    vector_elements,
    whole_vectors,
)
from dscore.algorithms.clusters import shared_sums_bytes
from dscore.algorithms.columns import Count, ceil_div, remembered
from dscore.algorithms.row_reuse.view import axes_of
from dscore.core.device import Device
from dscore.core.numerics import WORD_BYTES, Arithmetic
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling, choice


@dataclass(frozen=True)
class ChannelSumsTiling(Tiling):
    """Tiling of the weight gradient of depthwise layers on images whose channels lie side by side,
    alone or with the input's.

    A thread takes `vector` channels of `thread_h` rows of `thread_w` columns of the output's
    gradient, and sums for each tap the products with x under it; of both gradients so many rows and
    columns of x, of which it makes the gradient from the output's that it walks over. `lanes_c`
    threads stand side by side over the channels, `lanes_w` such groups over the columns and
    `lanes_h` over the rows. Thread order: channels fastest, then columns, then rows. A block takes
    such tiles of the images one after the other; they come to its LDS, `stages` of them ahead, each
    in `bands` of rows: a thread walks over the first rows while others are under way. All tiles are
    divided among `slices`, whose sums are added by a second launch, and those of a slice among the
    blocks of a `cluster` (Hopper's), which add their sums themselves.
    With the `arithmetic` "matrix16" (NVIDIA's matrix units, elements of 16 bits) a thread's place
    is a wavefront's: it takes `vector` channels, 8 or 16, of `thread_h` rows of 8 columns, and
    sums products of fragments whose diagonals are the taps' sums.
    With `ahead` (devices with an early start) a kernel overlaps with its neighbours, as that of
    row_reuse does: a block that starts while the previous kernel still runs fetches its first tile
    to the L2 cache.
    """

    vector: int
    lanes_c: int
    thread_h: int
    thread_w: int
    lanes_h: int
    lanes_w: int
    slices: int
    stages: int = 1
    ahead: bool = False
    bands: int = 1
    cluster: int = 1
    arithmetic: str = choice(*ARITHMETICS, default="plain")

    algorithm: ClassVar[str] = "channel_sums"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> ChannelSumsTiling(2, 16, 7, 4, 2, 7, 30, 2, True, 3, 4).name
        'channel_sums_v2_c16_t7x4_l2x7_s30_x4_a2_b3_ahead'
        """
        return (f"channel_sums_v{self.vector}_c{self.lanes_c}_t{self.thread_h}x{self.thread_w}"
                f"_l{self.lanes_h}x{self.lanes_w}_s{self.slices}"
                f"{f'_x{self.cluster}' if self.cluster > 1 else ''}_a{self.stages}_b{self.bands}"
                f"{'_ahead' if self.ahead else ''}"
                f"{'' if self.arithmetic == 'plain' else '_' + self.arithmetic}")

    def computes(self, arithmetic: Arithmetic | None) -> bool:
        return arithmetic in (None, self.arithmetic)


@dataclass(frozen=True)
class ChannelSumsShape:
    """The geometry of a thread and its block."""

    rows: Count  # that a thread walks over: of x, of both gradients of the output's
    columns: Count  # that a thread holds of one of these
    live_rows: Count  # of the other image, the thread's own, that it holds at a time
    channels: Count  # of that, of a block
    walked: Count  # channels of the walked image under these
    walked_pitch: Count  # elements of LDS from a pixel of the walked image to the next
    own_pitch: Count  # and of the own
    tile_h: Count  # rows and columns of the walked image under a block's
    tile_w: Count
    walked_tile: Count  # elements of LDS for a tile of that, whole vectors
    own_tile: Count  # and for one of the own image
    units: Count  # tiles of all images
    unit_slices: Count  # tiles of a block, at most
    band_rows: Count  # walked rows of a band
    rows_at_once: Count  # filter rows whose sums are added at a time
    lds_bytes: Count


@remembered
def shape_of(problem: ConvProblem, t: Any) -> ChannelSumsShape:
    """Geometry of *t*, a ChannelSumsTiling or columns of many."""
    (rows, columns), channels = axes_of(problem), t.vector * t.lanes_c
    block_h, block_w = t.lanes_h * t.thread_h, t.lanes_w * t.thread_w
    walked = channels_under(channels, problem.spec.group_out)
    tile_h, tile_w = rows.under(block_h), columns.under(block_w)
    # For matrix units an odd number of vectors, as those of channel_vectors.
    apart = np.where(on_units(t) & (channels // FRAGMENT % 2 == 0), FRAGMENT, 0)
    walked_pitch, own_pitch = walked + apart, channels + apart
    walked_tile = whole_vectors(problem, tile_h * tile_w * walked_pitch)
    own_tile = whole_vectors(problem, block_h * block_w * own_pitch)
    sharers, products = t.lanes_h * t.lanes_w, problem.spec.products
    units = (problem.batch * ceil_div(rows.written_size, block_h)
             * ceil_div(columns.written_size, block_w))
    tiles = problem.spec.element.bytes * t.stages * (walked_tile + own_tile)
    # At the end: the threads' sums of some filter rows.
    row = WORD_BYTES * sharers * columns.kernel * channels
    at_once = np.clip(tiles // row, 1, rows.kernel)
    parts = np.where(sharers > 1, at_once * row, 0)
    walked_rows = rows.under(t.thread_h)
    return ChannelSumsShape(
        rows=walked_rows, columns=held_columns(columns, t.thread_w),
        live_rows=rows.live(t.thread_h), channels=channels, walked=walked,
        walked_pitch=walked_pitch, own_pitch=own_pitch, tile_h=tile_h, tile_w=tile_w,
        walked_tile=walked_tile, own_tile=own_tile, units=units,
        unit_slices=ceil_div(units, t.slices * t.cluster),
        band_rows=ceil_div(walked_rows, t.bands), rows_at_once=at_once,
        lds_bytes=ceil_div(np.maximum(tiles, parts), VECTOR_BYTES) * VECTOR_BYTES
        + shared_sums_bytes(t.cluster, products * channels))


@remembered
def copies(problem: ConvProblem, t: Any) -> tuple[Count, Count]:
    """Elements that come to LDS as one, of the walked image and of the threads' own."""
    spec, channels, vector = problem.spec, t.vector * t.lanes_c, vector_elements(problem)
    own = np.gcd(np.gcd(spec.out_channels, vector), channels)
    return (own if spec.group_out == 1 else channels // channels), own


def sums_on_units(problem: ConvProblem, device: Device) -> bool:
    """Whether matrix units can sum: the weight gradient alone."""
    return has_units(problem, device) and not makes_both(problem)


def makes_both(problem: ConvProblem) -> bool:
    """Whether the input's gradient is made, too."""
    return problem.operation == "gradients"


def channel_tiles(problem: ConvProblem, t: Any) -> Count:
    """Blocks side by side over the channels."""
    return ceil_div(problem.spec.out_channels, t.vector * t.lanes_c)


def threads_of(t: Any, wavefront: int) -> Count:
    """Threads of a block that have work."""
    return t.lanes_c * t.lanes_w * t.lanes_h * np.where(on_units(t), wavefront, 1)
