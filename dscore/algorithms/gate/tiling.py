"""The tiling of gates, and the geometry of its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.columns import Count, ceil_div, floor_div, powers_of_two, remembered
from dscore.core.numerics import WORD_BYTES
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling

# Vectors of a cache line.
_LINE_VECTORS = 8
# Numbers of LDS at whose multiples its parts begin.
_ALIGNED = 8
# Numbers in whose place barriers lie, of what sharers send and of what blocks do.
_MAILBOXES = 2 * 4


@dataclass(frozen=True)
class GateTiling(Tiling):
    """Tiling of the gate of squeeze-and-excitation.

    The `cluster` blocks of `threads` that have an image share its channels; `sharers` of them have
    the same channels, and share the pixels of these until they are summed.
    """

    threads: int
    cluster: int = 1
    sharers: int = 1

    algorithm: ClassVar[str] = "gate"

    @property
    def name(self) -> str:
        """Part of a plan's canonical name.

        >>> GateTiling(256, 4).name, GateTiling(512, 8, 2).name
        ('gate_t256_x4', 'gate_t512_x8_p2')
        """
        return (f"gate_t{self.threads}_x{self.cluster}"
                f"{f'_p{self.sharers}' if self.sharers > 1 else ''}")


def vector_of(problem: ConvProblem) -> int:
    """Elements of x that a load has: neighbouring channels of a pixel in NHWC, else pixels.

    >>> from dscore.core.token import parse_problem
    >>> vector_of(parse_problem("gate_n1c40h7w7_o10k1_float16_nhwc"))
    8
    >>> vector_of(parse_problem("gate_n1c6h7w7_o10k1_int8_outfloat16_nhwc"))
    1
    """
    spec = problem.spec
    side = spec.in_channels if spec.layout == "nhwc" else problem.height * problem.width
    widest = VECTOR_BYTES // spec.element.bytes
    vector = min(side & -side, widest)
    return 1 if spec.element.exact and vector < WORD_BYTES else vector


@dataclass(frozen=True)
class RowProducts:
    """Products of a filter's rows by numbers in LDS (hip_src/gate/rows.hpp)."""

    vector: Count  # elements of a load
    lanes: Count  # of a wavefront that share a row
    at_once: Count  # rows
    rounds: Count
    loads: Count  # of a lane, of a row

    @classmethod
    def of(cls, threads: Count, wavefront: int, rows: Count, length: Count, vector: Count
           ) -> RowProducts:
        """Those that take the fewest turns of loads, and additions between lanes."""
        vectors = ceil_div(length, vector)
        lanes, least = 1 + 0 * vectors, None
        for step, many in enumerate(powers_of_two(wavefront)):
            turns = max(wavefront // many, wavefront // _LINE_VECTORS)
            cost = ceil_div(rows, floor_div(threads, many)) * ceil_div(vectors, many) * turns + step
            better = 0 * cost + True if least is None else cost < least
            lanes = np.where(better, many, lanes)
            least = cost if least is None else np.where(better, cost, least)
        at_once = floor_div(threads, lanes)
        return cls(vector, lanes, at_once, ceil_div(rows, at_once), ceil_div(vectors, lanes))


@dataclass(frozen=True)
class GateShape:
    """The geometry of a block (hip_src/gate/shape.hpp)."""

    vector: int
    unit: int  # channels of a thread's sums
    slices: Count  # of the channels
    slice_units: Count
    slice: Count  # channels
    share: Count  # of these, with which one sharer goes on
    columns: Count  # units at once
    parts: Count  # threads that share the pixels of a unit
    runs: Count  # of parts that are added first
    of_run: Count
    first: RowProducts
    second: RowProducts
    lds: dict[str, Count]  # numbers
    lds_bytes: Count


@remembered
def shape_of(problem: ConvProblem, t: Any, wavefront: int) -> GateShape:
    """Geometry of *t*, a GateTiling or columns of many."""
    spec, vector = problem.spec, vector_of(problem)
    channels, between = spec.in_channels, spec.out_channels
    unit = vector if spec.layout == "nhwc" else 1
    # What no tiling may be has a slice at least, so that its rules can be judged.
    slices = np.maximum(floor_div(t.cluster, t.sharers), 1)
    slice_units = ceil_div(channels // unit, slices)
    share_units = ceil_div(slice_units, t.sharers)
    columns = np.minimum(slice_units, t.threads)
    parts, slice_ = floor_div(t.threads, columns), slice_units * unit
    runs = np.minimum(np.maximum(floor_div(t.threads, slice_), 1), parts)
    widest = VECTOR_BYTES // spec.out_element.bytes
    share = share_units * unit
    # The greatest power of two that divides all: a slice's last sharer may have less than a share.
    divided = channels | slice_ | share
    first_vector = np.minimum(divided & -divided, widest)
    second_vector = np.minimum(between & -between, widest)
    lds = {"sums": _aligned(parts * slice_),
           "sums of sharers": (t.sharers > 1) * _aligned(t.sharers * share),
           "means": _aligned(share), "sums of blocks": _aligned(t.cluster * between),
           "results": _aligned(between), "mailboxes": (t.cluster > 1) * _MAILBOXES}
    return GateShape(
        vector, unit, slices, slice_units, slice_, share, columns, parts, runs,
        ceil_div(parts, runs),
        RowProducts.of(t.threads, wavefront, between, share, first_vector),
        RowProducts.of(t.threads, wavefront, share, between, second_vector),
        lds, WORD_BYTES * sum(lds.values()))


def _aligned(numbers: Count) -> Count:
    return ceil_div(numbers, _ALIGNED) * _ALIGNED
