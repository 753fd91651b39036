"""The tilings of channel sums that are tried: tiles of a thread, of a block, slices of the work."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from dscore.algorithms.channel_sums.tiling import channel_tiles, shape_of
from dscore.algorithms.channel_vectors.space import tiles, usual_tiles
from dscore.algorithms.columns import Count, ceil_div, concatenate, distinct, select
from dscore.algorithms.row_reuse.view import axes_of
from dscore.algorithms.tap_sums import MOST_SLICES
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

# Blocks for each compute unit that slices are to make.
_BLOCKS_PER_CU = (1, 2, 4)
# Blocks for each compute unit up to which row_reuse was seen to gain by working ahead.
_MOST_BLOCKS_AHEAD = 32


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Tiles of a thread and of a block, none of them twice the output in a direction."""
    columns = tiles(problem, axes_of(problem), device)
    shape = shape_of(problem, SimpleNamespace(**vars(columns), slices=1, stages=1))
    columns = usual_tiles(problem, axes_of(problem), device, columns, shape.lds_bytes)
    return _with_ahead(_sliced(columns, problem, device), problem, device)


def _sliced(columns: SimpleNamespace, problem: ConvProblem, device: Device) -> SimpleNamespace:
    """The tiles with as many slices as give each compute unit some blocks, one or two stages."""
    one = SimpleNamespace(**vars(columns), slices=0 * columns.vector + 1, stages=1)
    shape, alone = shape_of(problem, one), channel_tiles(problem, columns)
    parts = []
    for count in _BLOCKS_PER_CU:
        wanted = np.clip(ceil_div(count * device.compute_units, alone), 1,
                         np.minimum(shape.units, MOST_SLICES))
        # As many as are needed for slices of that size, so that none is short of work.
        parts.append(_with(columns, ceil_div(shape.units, ceil_div(shape.units, wanted)),
                           shape.units))
    return distinct(concatenate(*parts))


def _with(columns: SimpleNamespace, slices: Count, units: Count) -> SimpleNamespace:
    single = SimpleNamespace(**vars(columns), slices=slices, stages=0 * slices + 1)
    double = SimpleNamespace(**vars(columns), slices=slices, stages=0 * slices + 2)
    return concatenate(single, select(double, ceil_div(units, slices) > 1))


def _with_ahead(columns: SimpleNamespace, problem: ConvProblem,
                device: Device) -> SimpleNamespace:
    """The columns as they are, and where it may gain anything, working ahead."""
    plain = SimpleNamespace(**vars(columns), ahead=columns.vector < 0)
    if not device.early_start:
        return plain
    few = channel_tiles(problem, columns) * columns.slices <= (
        _MOST_BLOCKS_AHEAD * device.compute_units)
    return concatenate(plain, select(SimpleNamespace(**vars(columns), ahead=columns.vector > 0),
                                     few))
