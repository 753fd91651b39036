"""The tilings of the product of matrices in any order of axes that are tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from dscore.algorithms.columns import (
    Count,
    ceil_div,
    concatenate,
    grid,
    powers_of_two,
    select,
    select_or_all,
)
from dscore.algorithms.gemm_universal.tiling import (
    direct,
    fragment_of,
    single,
    sizes_of,
    streams,
)
from dscore.core.device import MATRIX_WAVEFRONT, Device
from dscore.core.numerics import ACCUMULATOR, ARITHMETICS, Element
from dscore.core.problem import ConvProblem

_MOST_WAVES = 16
_LEAST_FULL = 0.5
# Of a lane, in registers: beyond it too few wavefronts are resident to hide anything.
_MOST_SUMS = 128
# Summed elements of a step.
_MOST_STEP = 256
_MOST_STEP_BYTES = 512  # of int8
# Blocks for each compute unit beyond which shares of the summed elements only add up.
_MOST_SHARES = 2
_PARTS = (1, 4, 8, 16, 32, 64, 128)
_WAVES_M, _WAVES_N = (16, 32, 64), (8, 16, 24, 32, 40, 48, 64, 96, 128)


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of up to 16 wavefronts, none of which lies wholly past the result.

    Blocks share a tile's summed elements only where tiles alone leave compute units idle, and take
    several tiles of rows only where there are more than these have.
    """
    sizes, element = sizes_of(problem), problem.spec.element
    sums_pixels = problem.operation == "weight_gradient"
    parts = [_tiles(device, element, sums_pixels)]
    if not sums_pixels:
        parts.append(_whole(device, element, sizes.k, streams(problem)))
    c = concatenate(*parts)
    c = select(c, (c.tile_m - sizes.m < c.wave_m) & (c.tile_n - sizes.n < c.wave_n)
               & (c.step * c.cluster * c.parts < np.maximum(2 * sizes.k,
                                                            2 * fragment_of(element, c))))
    tiles = ceil_div(sizes.m, c.tile_m) * ceil_div(sizes.n, c.tile_n)
    steps = ceil_div(ceil_div(sizes.k, c.step), c.cluster * c.parts)
    keep = (c.stages <= np.maximum(3, steps * c.repeat + 1)) & ((c.stages != 1) | (steps == 1))
    # Clusters that copy single halves: 30 us, where the model expects 6 (n8c1152h7w7_o192k1).
    keep &= (c.cluster == 1) | ((tiles * c.cluster <= 2 * device.compute_units)
                                & (not single(problem)))
    keep &= (c.parts == 1) | (tiles * c.cluster * c.parts <= _MOST_SHARES * device.compute_units)
    keep &= (c.repeat == 1) | (tiles >= c.repeat * device.compute_units)
    if element != ACCUMULATOR and sizes.along_b:
        # Lanes that store single pairs of halves, which took up to twice the time; or of int8 rows
        # by halves of sectors, which kept the L2 cache busy for 17 us (P4 at batch 32).
        keep &= (c.wave_n % _stored_together(device, element) == 0) | np.logical_not(direct(c)) | (
            c.arithmetic == "plain")
    columns = SimpleNamespace(**{name: column for name, column in vars(c).items()
                                 if name != "waves"})
    # Of tiles that are mostly empty, or wavefronts too few for a compute unit, others do the same.
    full = tiles * c.tile_m * c.tile_n * _LEAST_FULL <= sizes.m * sizes.n
    return select_or_all(columns, full & (c.waves > 1), keep)


def _stored_together(device: Device, element: Element) -> int:
    """Columns of a wavefront whose results four lanes of NVIDIA's store as whole sectors of a row.
    """
    return 32 if element.exact and device.wavefront == MATRIX_WAVEFRONT else 16


@lru_cache(maxsize=16)
def _tiles(device: Device, element: Element, sums_pixels: bool) -> SimpleNamespace:
    """The tilings of the axes that suit the device whatever the problem."""
    axes: dict[str, Any] = {
            "slices": (1, 2, 4) if sums_pixels else (1, 2, 4, 8),
            "slice_k": (32, 64, 128) if element.exact else (16, 32, 64),
            "stages": (3, 4, 6) if device.asynchronous_copies else (2,),
            "cluster": powers_of_two(device.cluster_blocks), "repeat": (1,), "staged": (0,),
            "parts": _PARTS if sums_pixels else (1,)}
    alone = {**axes, "slices": (1,), "cluster": (1,), "staged": (1,)}
    return concatenate(_laid_out(device, element, axes), _laid_out(device, element, alone))


def _whole(device: Device, element: Element, k: int, streamed: bool) -> SimpleNamespace:
    """Tilings whose steps hold all *k* summed elements; *streamed*: of several tiles of rows, too.
    """
    common = {"slices": (1,), "cluster": (1,), "parts": (1,), "staged": (0, 1)}
    once = {**common, "stages": (1, 2), "repeat": (1,)}
    kinds = [once] + [{**common, "stages": (2, 3, 4) if device.asynchronous_copies else (2,),
                       "repeat": (2, 4, 8, 16)}] * streamed
    shared = {**once, "stages": (1,), "slices": (2, 4), "staged": (0,)}
    # The least multiple of a fragment, and a power of two, by which addresses are simpler.
    unit = 32 if element.exact and element.name in device.matrix_types else 16
    least = -(-k // unit) * unit
    whole = tuple({least, 1 << (least - 1).bit_length()})
    divided = tuple({-(-k // (unit * slices)) * unit for slices in shared["slices"]})
    return concatenate(*(_laid_out(device, element, {**axes, "slice_k": whole}) for axes in kinds),
                       _laid_out(device, element, {**shared, "slice_k": divided}))


def _laid_out(device: Device, element: Element, axes: Mapping[str, Sequence[int]]
              ) -> SimpleNamespace:
    """Wavefronts by fragments of matrix units, and by lanes of plain arithmetic, on *axes*."""
    name = "tf32" if element == ACCUMULATOR else element.name
    if name not in device.matrix_types:
        return _tilings(device, element,
                        _plain(device, axes, (4, 8, 16), (1, 2, 4, 8), (1, 2, 4, 8)))
    at = ARITHMETICS.index("tf32x3" if element == ACCUMULATOR else
                           "matrix8" if element.exact else "matrix16")
    of_fragments = _WAVES_N if device.wavefront == MATRIX_WAVEFRONT else (16, 32, 48, 64, 96, 128)
    units = grid(arithmetic=[at], lanes_m=[8], wave_m=_WAVES_M, wave_n=of_fragments,
                 waves_m=(1, 2, 4, 8), waves_n=(1, 2, 3, 4), **axes)
    # Plain arithmetic for those who ask for it.
    few = {**axes, "cluster": (1,), "slices": (1,), "stages": axes["stages"][:1]}
    return _tilings(device, element, concatenate(units, _plain(device, few, (8,), (4,), (4,))))


def _plain(device: Device, axes: Mapping[str, Sequence[int]], lanes_m: tuple[int, ...],
           rows: tuple[int, ...], columns: tuple[int, ...]) -> SimpleNamespace:
    c = grid(arithmetic=[0], lanes_m=lanes_m, rows=rows, columns=columns, waves_m=(1, 2, 4, 8),
             waves_n=(1, 2, 4), **axes)
    c.wave_m, c.wave_n = c.lanes_m * c.rows, device.wavefront // c.lanes_m * c.columns
    del c.rows, c.columns
    return c


def _tilings(device: Device, element: Element, c: SimpleNamespace) -> SimpleNamespace:
    """The fields of tilings, and their wavefronts, of axes."""
    waves: Count = c.waves_m * c.waves_n * c.slices
    return select(SimpleNamespace(
        tile_m=c.wave_m * c.waves_m, tile_n=c.wave_n * c.waves_n, wave_m=c.wave_m,
        wave_n=c.wave_n, lanes_m=c.lanes_m, slices=c.slices, step=c.slice_k * c.slices,
        stages=c.stages, cluster=c.cluster, parts=c.parts, repeat=c.repeat, staged=c.staged == 1,
        arithmetic=np.asarray(ARITHMETICS)[c.arithmetic], waves=waves),
        (c.wave_m * c.wave_n <= _MOST_SUMS * device.wavefront) & (waves <= _MOST_WAVES)
        & (c.slice_k * c.slices <= (_MOST_STEP_BYTES if element.exact else _MOST_STEP)))
