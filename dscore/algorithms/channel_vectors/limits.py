"""What the kernels of channel vectors refuse of tilings: the shares of lanes, and what compilers
leave rolled."""

from __future__ import annotations

import numpy as np

from dscore.algorithms.base import Case, Limit
from dscore.algorithms.channel_vectors.tiling import (
    FRAGMENT,
    UNIT_VECTORS,
    WORD,
    grid_of,
    has_units,
    on_units,
    shape_of,
    tap_words,
    vector_elements,
)
from dscore.algorithms.columns import Count, ceil_div, power_of_two_within
from dscore.algorithms.early_start import AHEAD_LIMIT
from dscore.algorithms.row_reuse.view import view_of
from dscore.algorithms.table_copies import BANKED_LIMIT

# A thread's rows are unrolled (row_reuse has these numbers' reasons).
MOST_UNROLLED_ROWS = 32
MOST_UNROLLED_COLUMNS = 256
# hipcc counts what it would unroll before it finds that most rows meet few taps; beyond this it
# leaves the loop rolled, and what is indexed by it in scratch memory.
_MOST_UNROLLED, _HIPCC_MOST_UNROLLED = 12_000, 3_500
# Of int8 a band's rows count, too, and for each result six instructions beside its products: of 260
# kernels for gfx906 hipcc left the loop rolled in 15, none of which has fewer than this.
_OF_RESULT, _HIPCC_MOST_OF_BAND = 6, 2_300


def _beside_units(case: Case) -> Count:
    """Rows and columns of a thread that are no multiple of the axis' unit."""
    t, view = case.tiling, view_of(case.problem)
    return t.thread_h % view.rows.unit + t.thread_w % view.columns.unit


def _units_of(case: Case) -> Count:
    """Tiles of rows of all images."""
    _, _, rows, images = grid_of(case.problem, case.tiling)
    return rows * images


def _unrolled(case: Case) -> Count:
    """FMAs of a thread as if every row met every tap."""
    t, spec = case.tiling, case.problem.spec
    rows = shape_of(case.problem, t).rows
    taps = tap_words(spec) if spec.element.exact else spec.products
    return rows * taps * t.thread_w * t.vector // np.where(
        on_units(t), case.device.wavefront // 2, 1)


def _unrolled_of_band(case: Case) -> Count:
    """Instructions of a thread for the rows of a band, by hipcc's count, of int8; else 0."""
    t, spec = case.tiling, case.problem.spec
    if case.device.vendor == "nvidia" or not spec.element.exact:
        return 0 * t.bands
    rows = ceil_div(shape_of(case.problem, t).rows, t.bands)
    return rows * (tap_words(spec) + _OF_RESULT) * t.thread_w * t.vector


def _most_channels(case: Case) -> Count:
    """Channels that a lane takes at most, or on matrix units a wavefront."""
    return np.where(on_units(case.tiling), UNIT_VECTORS[-1], vector_elements(case.problem))


def _beside_fragments(case: Case) -> Count:
    """What differs of a wavefront's columns and channels on matrix units from whole fragments."""
    t, unit = case.tiling, view_of(case.problem).columns.unit
    beside = np.abs(t.thread_w - FRAGMENT * unit) + t.vector % FRAGMENT
    return np.where(on_units(t), beside, 0)


def _units(case: Case) -> str:
    view = view_of(case.problem)
    return f"a thread has {view.rows.unit}n rows x {view.columns.unit}n columns"


UNIT_LIMIT = Limit("E-UNIT", "rows and columns left", "", "",
                   lambda c: (_beside_units(c), 0), _units)


LIMITS = (
    Limit("E-VECTOR", "vector", "", "",
          lambda c: (c.tiling.vector,
                     power_of_two_within(c.tiling.vector, _most_channels(c))),
          lambda c: f"a power of two up to {_most_channels(c)}"),
    Limit("E-WORD", "channels of a lane left", "", "",
          lambda c: (c.tiling.vector % WORD * c.problem.spec.element.exact, 0),
          lambda c: f"of int8 in words of {WORD}"),
    Limit("E-MATRIX", "matrix units", "", "",
          lambda c: (1 * on_units(c.tiling), int(has_units(c.problem, c.device))),
          lambda c: "of NVIDIA, elements of 16 bits, a filter for each channel"),
    Limit("E-FRAGMENT", "columns and channels of a wavefront", "", "",
          lambda c: (_beside_fragments(c), 0),
          lambda c: f"{FRAGMENT * view_of(c.problem).columns.unit} columns, of "
                    f"{' or '.join(map(str, UNIT_VECTORS))} channels"),
    Limit("E-BANDS", "bands", "", "",
          lambda c: (c.tiling.bands, shape_of(c.problem, c.tiling).rows),
          lambda c: "of a row at least"),
    AHEAD_LIMIT,
    BANKED_LIMIT,
    Limit("E-REPEAT", "repeat", "", "",
          lambda c: (c.tiling.repeat, np.where(on_units(c.tiling), 1, _units_of(c))),
          lambda c: "no more than tiles of rows of all images; on matrix units one"),
    UNIT_LIMIT,
    Limit("E-ROWS", "unrolled rows", "", "",
          lambda c: (shape_of(c.problem, c.tiling).rows, MOST_UNROLLED_ROWS),
          legality=False, hardware=True),
    Limit("E-COLUMNS", "unrolled columns", "", "",
          lambda c: (view_of(c.problem).columns.under(c.tiling.thread_w),
                     MOST_UNROLLED_COLUMNS),
          legality=False, hardware=True),
    Limit("E-CODE", "unrolled FMAs", "", "",
          lambda c: (_unrolled(c), _HIPCC_MOST_UNROLLED if c.device.vendor != "nvidia"
                     else _MOST_UNROLLED), legality=False, hardware=True),
    Limit("E-BAND", "unrolled instructions of a band", "", "",
          lambda c: (_unrolled_of_band(c), _HIPCC_MOST_OF_BAND), legality=False, hardware=True),
)
