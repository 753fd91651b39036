"""The tilings of channel sums that are tried: tiles of a thread, or of a wavefront on matrix units,
of a block, and slices of the work."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from dscore.algorithms.channel_sums.tiling import (
    channel_tiles,
    shape_of,
    sums_on_units,
    threads_of,
)
from dscore.algorithms.channel_vectors.space import SEGMENTS, WAVES_C, beside, tiles, usual_tiles
from dscore.algorithms.channel_vectors.tiling import FRAGMENT, UNIT_VECTORS
from dscore.algorithms.columns import ceil_div, concatenate, distinct, grid, powers_of_two, select
from dscore.algorithms.early_start import with_ahead
from dscore.algorithms.row_reuse.view import axes_of
from dscore.algorithms.tap_sums import MOST_SLICES
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

# Blocks for each compute unit that share the tiles; stages, and bands of each.
_BLOCKS_PER_CU = (1, 2, 4)
_STAGES_BANDS = ((1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (3, 1))
# Reads of LDS for an output, over the least of any tile, at most.
_MOST_READS = 1.8
# Of matrix units: rows of a wavefront, wavefronts over them, and what all blocks could sum, over
# what there is, at most; threads of a block.
_UNIT_ROWS, _UNIT_LANES_H, _MOST_BESIDE, _UNIT_THREADS = (4, 7, 8, 14), (1, 2, 4), 1.5, (64, 512)


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Tiles of a thread and of a block, none of them twice what they lie on in a direction."""
    columns = _reusing(tiles(problem, axes_of(problem), device), problem)
    shape = shape_of(problem, _alone(columns))
    columns = _shared(usual_tiles(problem, axes_of(problem), device, columns, shape.lds_bytes),
                      "plain", problem, device)
    if sums_on_units(problem, device):
        units = _shared(_on_units(problem, device), "matrix16", problem, device)
        columns = concatenate(columns, units)
    columns = _staged(columns, problem, device)
    blocks = channel_tiles(problem, columns) * columns.slices * columns.cluster
    return with_ahead(columns, blocks, device)


def _on_units(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Tiles of matrix units."""
    rows, width = problem.out_height, problem.out_width
    columns = grid(vector=UNIT_VECTORS, lanes_c=WAVES_C, thread_w=[FRAGMENT],
                   thread_h=sorted({min(n, rows) for n in _UNIT_ROWS}), lanes_h=_UNIT_LANES_H,
                   lanes_w=SEGMENTS)
    keep = (columns.lanes_h == 1) | (columns.thread_h * (columns.lanes_h - 1) < rows)
    keep &= (columns.lanes_w == 1) | (FRAGMENT * (columns.lanes_w - 1) < width)
    keep &= beside(problem, axes_of(problem), columns) <= _MOST_BESIDE
    threads = threads_of(_alone(columns, "matrix16"), device.wavefront)
    keep &= (threads >= _UNIT_THREADS[0]) & (threads <= _UNIT_THREADS[1])
    columns = select(columns, keep)
    lds_bytes = shape_of(problem, _alone(columns, "matrix16")).lds_bytes
    return select(columns, lds_bytes <= device.lds_bytes_per_block // 2)


def _alone(columns: SimpleNamespace, arithmetic: str = "plain") -> SimpleNamespace:
    """The tiles as one block takes them all."""
    one = 0 * columns.vector + 1
    return SimpleNamespace(**vars(columns), slices=one, cluster=one, stages=one, bands=one,
                           arithmetic=np.full(len(one), arithmetic))


def _reusing(columns: SimpleNamespace, problem: ConvProblem) -> SimpleNamespace:
    """Those whose threads read LDS about as seldom as any."""
    shape, outputs = shape_of(problem, _alone(columns)), columns.thread_h * columns.thread_w
    reads = 1 + shape.rows * shape.columns / outputs
    # Channels that are read one by one cost instructions of their own.
    alone = columns.vector == np.minimum(columns.vector.max(), 2)
    least = reads[alone].min() if alone.any() else reads.min()
    return select(columns, reads <= _MOST_READS * least)


def _shared(columns: SimpleNamespace, arithmetic: str, problem: ConvProblem, device: Device
            ) -> SimpleNamespace:
    """The tiles, on that *arithmetic*, shared by as many blocks as give each compute unit some, in
    slices of one block or of a cluster."""
    units, alone = shape_of(problem, _alone(columns)).units, channel_tiles(problem, columns)
    parts = []
    for count in _BLOCKS_PER_CU:
        wanted = np.clip(ceil_div(count * device.compute_units, alone), 1, units)
        # As many as are needed for shares of that size, so that none is short of work.
        shares = ceil_div(units, ceil_div(units, wanted))
        for cluster in powers_of_two(device.cluster_blocks):
            slices = np.clip(shares // cluster, 1, MOST_SLICES)
            # Of several slices another launch adds the sums in any case.
            useful = (slices == 1) | (cluster in (1, device.cluster_blocks))
            useful &= (slices * cluster - 1) * ceil_div(units, slices * cluster) < units
            parts.append(select(SimpleNamespace(**vars(columns), slices=slices,
                                                cluster=0 * slices + cluster), useful))
    columns = distinct(concatenate(*parts))
    columns.arithmetic = np.full(len(columns.vector), arithmetic)
    return columns


def _staged(columns: SimpleNamespace, problem: ConvProblem, device: Device) -> SimpleNamespace:
    """The columns with some stages and bands, these where copies are not waited for."""
    shape = shape_of(problem, SimpleNamespace(**vars(columns), stages=1, bands=1))
    parts = []
    for stages, bands in _STAGES_BANDS:
        useful = (stages <= shape.unit_slices) & (bands <= shape.rows)
        if (stages <= 2 and bands == 1) or device.asynchronous_copies:
            parts.append(select(SimpleNamespace(
                **vars(columns), stages=0 * shape.rows + stages,
                bands=0 * shape.rows + bands), useful))
    return concatenate(*parts)
