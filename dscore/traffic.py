"""What the lanes of a depthwise kernel ask of the memory pipeline, instruction by instruction.

A load or store of a wavefront costs what its lanes touch: lines in the load-store unit, sectors in
the L2 cache. Lanes side by side share these; lanes of other rows and planes do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .resources import Count, column_offsets, depthwise_shape, owned_columns
from .spec import ELEMENT_BYTES, ConvProblem

LINE_BYTES = 128
SECTOR_BYTES = 32


@dataclass(frozen=True)
class Traffic:
    """Counts per wavefront: instructions, and the lines and sectors that they touch."""

    loads: Count
    load_lines: Count
    load_sectors: Count
    stores: Count
    store_lines: Count
    store_sectors: Count
    lds_reads: Count  # in clocks of LDS, bank conflicts counted
    shuffles: Count


def _units(run: Count, whole: int, rows: Count, lanes: int, element: int, unit: int) -> Count:
    """Units of *unit* bytes that one instruction touches: *rows* runs of *run* elements side by
    side, which follow one another where a run is a *whole* row of the image.
    """
    run = np.minimum(run, whole)
    apart = rows * np.ceil((run * element + unit / 2) / unit)
    joined = np.maximum(1, np.ceil(rows * run * element / unit))
    return np.minimum(np.where(run < whole, apart, joined), lanes)


def _fetched(problem: ConvProblem, t: Any) -> tuple[Count, Count]:
    """(columns that a lane loads of a row, columns that it takes from its neighbours)."""
    def of(thread_w: int) -> tuple[int, int]:
        own = thread_w * problem.spec.stride[1]
        return (len(owned_columns(problem, thread_w)),
                sum(offset >= own for offset in column_offsets(problem, thread_w)))

    if isinstance(t.thread_w, int):
        return of(t.thread_w)
    distinct, inverse = np.unique(t.thread_w, return_inverse=True)
    found = np.array([of(int(width)) for width in distinct])
    return found[inverse, 0], found[inverse, 1]


def depthwise_traffic(problem: ConvProblem, t: Any, wavefront: int) -> Traffic:
    """The traffic of *t*, a DepthwiseTiling or columns of many."""
    spec, shape, element = problem.spec, depthwise_shape(problem, t), ELEMENT_BYTES[
        problem.spec.dtype]
    taps, stride_w = spec.products, spec.stride[1]
    in_lds, reuse = np.asarray(t.staging) == "lds", np.asarray(t.column_reuse)
    rows_of_lanes = wavefront / np.minimum(t.lanes_w, wavefront)
    owned, halo = _fetched(problem, t)
    own = np.where(reuse, owned, shape.columns)
    past = np.where(reuse, halo, 0)  # loaded by the last lanes of a row, for all of which it waits
    run_in, run_out = t.lanes_w * t.thread_w * stride_w, t.lanes_w * t.thread_w

    def touched(run: Count, whole: int, unit: int, rows: Count = rows_of_lanes) -> Count:
        return _units(run, whole, rows, wavefront, element, unit)

    # Through LDS consecutive threads load consecutive columns of the tile.
    waves = -(-t.planes * t.lanes_h * t.lanes_w // wavefront)
    staged = t.planes * (shape.tile_h * shape.tile_w + taps) / (waves * wavefront)
    tile_rows = np.maximum(1, wavefront / shape.tile_w)
    tile_run = np.minimum(shape.tile_w, wavefront)
    lines = (touched(tile_run, problem.width, LINE_BYTES, tile_rows),
             touched(run_in, problem.width, LINE_BYTES))
    sectors = (touched(tile_run, problem.width, SECTOR_BYTES, tile_rows),
               touched(run_in, problem.width, SECTOR_BYTES))
    stores = t.thread_h * t.thread_w
    # Lanes that read every second word of LDS meet in half of the banks.
    step = t.thread_w * stride_w
    conflicts = np.minimum(np.where(step % 2 == 0, step, 1), 8)
    return Traffic(
        loads=np.where(in_lds, staged, shape.rows * (own + past) + taps),
        load_lines=np.where(in_lds, staged * lines[0], shape.rows * (
            own * lines[1] + past * np.minimum(rows_of_lanes, 8)) + taps),
        load_sectors=np.where(in_lds, staged * sectors[0], shape.rows * sectors[1] + taps),
        stores=stores,
        store_lines=stores * touched(run_out, problem.out_width, LINE_BYTES),
        store_sectors=stores * touched(run_out, problem.out_width, SECTOR_BYTES),
        lds_reads=np.where(in_lds, shape.rows * own * conflicts / 2 + t.thread_h * taps / 2, 0),
        shuffles=shape.rows * past)
