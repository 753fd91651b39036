"""The tilings that are tried for a problem: every combination of each field's values, as columns.

What fits is judged afterwards (dscore.solving.rules); left out here are tilings that another one
betters, such as a tile of which half lies past the output, or that no timing put first.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from types import SimpleNamespace
from typing import Any

import numpy as np

from dscore.algorithms.geometry import ceil_div
from dscore.core.device import Device
from dscore.core.problem import ConvProblem
from dscore.core.tiling import ARITHMETICS, STAGINGS

# Masked pointwise tiles: a wavefront of more columns than this needs more registers than it saves.
_MASKED_WAVE_W = 16
_MASKED_WAVE_C = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128,
                  192, 256)
_DEPTHWISE_THREAD_W = (1, 2, 4)
_DEPTHWISE_THREAD_H = (1, 2, 4, 7, 8, 14, 16, 28)
# Through LDS a thread may take a whole row of a small image, which then has no halo to be tested.
_STAGED_THREAD_W = (1, 2, 4, 7, 8, 14, 16)
_MOST_OUTPUTS, _MOST_REGISTER_ROWS = 64, 16
_LANES_C = (4, 8)
_MOST_WAVES = 8
_LEAST_FULL = 0.6
# Threads of a depthwise block: fewer start too late, where each loads its own; more wait for one
# another. How much of their wavefronts they fill; columns side by side, for whole lines of memory.
_LEAST_THREADS, _MOST_THREADS = 48, 512
_LEAST_LANES = 0.75
_LEAST_RUN = 32
# Of a lane, in registers: beyond it too few wavefronts are resident to hide anything.
_MOST_SUMS = 128
# Blocks for each compute unit up to which working ahead was seen to gain (docs/benchmarks.md).
_MOST_BLOCKS_AHEAD = 32
# Wavefronts of a block that several whole planes are to fill.
_STAGED_WAVES = (1, 2, 3, 4, 6, 8, 12)
_DIRECT_THREAD_C = (1, 2, 4, 8, 16, 32)


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def _powers_of_two(most: int) -> list[int]:
    return [2**k for k in range(most.bit_length()) if 2**k <= most]


def _grid(**axes: Sequence[int]) -> SimpleNamespace:
    """Every combination of the axes, as columns."""
    columns = np.meshgrid(*(np.asarray(axis, dtype=np.int64) for axis in axes.values()),
                          indexing="ij")
    return SimpleNamespace(**{name: column.ravel()
                              for name, column in zip(axes, columns, strict=True)})


def kept(columns: SimpleNamespace, keep: Any) -> SimpleNamespace:
    """The columns where *keep* holds."""
    return SimpleNamespace(**{name: column[keep] for name, column in vars(columns).items()})


def pointwise_exact(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Every block whose tile divides the output, with every group_c of R4.

    The width and channel halves of a tiling are made apart, which keeps the grid small.
    """
    height, width, spec = problem.out_height, problem.out_width, problem.spec
    halves_w = [(n, w) for n in range(1, device.waves_per_block + 1)
                if width % (n // gcd(height, n)) == 0
                for w in _divisors(width // (n // gcd(height, n)))]
    halves_c = [(n, c) for n in range(1, device.waves_per_block + 1) if spec.out_channels % n == 0
                for c in _divisors(spec.out_channels // n)]
    groups = [g for g in _powers_of_two(device.wavefront) if spec.in_channels % g == 0]
    return _joined(halves_w, halves_c, groups)


def pointwise_masked(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Tiles that need not divide: up to 16 columns of a wave and 16 channels of a thread (R5).

    A tile of which half lies past the output is left out: a smaller one does the same.
    """
    height, width, spec = problem.out_height, problem.out_width, problem.spec
    repeats = range(1, device.waves_per_block + 1)
    most_c = max(2 * spec.out_channels, device.wavefront + 1)
    halves_w = [(n, w) for n in repeats for w in range(1, min(width, _MASKED_WAVE_W) + 1)
                if n // gcd(height, n) * w < 2 * width]
    halves_c = [(n, c) for n in repeats for c in _MASKED_WAVE_C if n * c < most_c]
    groups = [g for g in _powers_of_two(device.wavefront) if g < 2 * spec.in_channels]
    return _joined(halves_w, halves_c, groups)


def _joined(halves_w: list[tuple[int, int]], halves_c: list[tuple[int, int]],
            groups: list[int]) -> SimpleNamespace:
    columns = _grid(w=range(len(halves_w)), c=range(len(halves_c)), group_c=groups)
    (repeat_w, wave_w), (repeat_c, wave_c) = np.array(halves_w).T, np.array(halves_c).T
    return SimpleNamespace(wave_w=wave_w[columns.w], wave_c=wave_c[columns.c],
                           repeat_w=repeat_w[columns.w], repeat_c=repeat_c[columns.c],
                           group_c=columns.group_c)


def matrix_columns(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of up to 8 wavefronts, none of which lies wholly past the output.

    Blocks share a tile's input channels only where tiles alone leave compute units idle.
    """
    c = _matrix_grid(device)
    spec, pixels = problem.spec, problem.batch * problem.out_height * problem.out_width
    wave_c, wave_p, step_c = c.rows * c.lanes_c, c.fours * c.pixels, c.slice_c * c.slices
    tile_c, tile_p = wave_c * c.waves_c, wave_p * c.waves_p
    steps = ceil_div(ceil_div(spec.in_channels, step_c), c.cluster)
    tiles = ceil_div(spec.out_channels, tile_c) * ceil_div(pixels, tile_p)
    waves = c.waves_c * c.waves_p * c.slices
    keep = (wave_c * wave_p <= _MOST_SUMS * device.wavefront) & (waves <= _MOST_WAVES)
    keep &= (tile_c - spec.out_channels < wave_c) & (tile_p - pixels < wave_p)
    keep &= step_c * c.cluster < max(2 * spec.in_channels, 16)
    keep &= c.stages <= np.maximum(3, steps + 1)
    keep &= (c.cluster == 1) | (tiles <= device.compute_units)
    columns = SimpleNamespace(
        tile_c=tile_c, tile_p=tile_p, wave_c=wave_c, wave_p=wave_p, lanes_c=c.lanes_c,
        slices=c.slices, step_c=step_c, stages=c.stages, cluster=c.cluster,
        arithmetic=np.asarray(ARITHMETICS)[c.arithmetic])
    # Of tiles that are mostly empty, or wavefronts too few for a compute unit, others do the same.
    full = tiles * tile_c * tile_p * _LEAST_FULL <= spec.out_channels * pixels
    return _kept_or_all(kept(columns, keep), (full & (waves > 1))[keep])


def _matrix_grid(device: Device) -> SimpleNamespace:
    """Wavefronts by `rows` of lanes_c channels and `fours` of `pixels` pixels."""
    axes = {"waves_c": (1, 2, 3, 4), "waves_p": (1, 2, 4), "slices": (1, 2, 4),
            "stages": (2, 3, 4, 6, 8) if device.copies_to_lds else (2,),
            "cluster": _powers_of_two(device.most_cluster_blocks)}
    plain = _grid(arithmetic=[0], lanes_c=_LANES_C, rows=(1, 2, 4, 8), fours=(1, 2),
                  slice_c=(8, 16, 32), **axes)
    plain.pixels = 4 * (device.wavefront // plain.lanes_c)
    if not device.copies_to_lds:
        return plain
    split = _grid(arithmetic=[1], lanes_c=[8], rows=(1, 2, 3, 4, 5, 6, 8, 9, 12),
                  fours=(1, 2, 4, 8), slice_c=(8, 16, 32), **axes)
    split.pixels = 0 * split.lanes_c + 16
    return _together(plain, split)


def _together(*parts: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(**{name: np.concatenate([vars(part)[name] for part in parts])
                              for name in vars(parts[0])})


def _kept_or_all(columns: SimpleNamespace, keep: Any) -> SimpleNamespace:
    """The columns where *keep* holds; all, where it does nowhere."""
    return kept(columns, keep) if keep.any() else columns


def depthwise_columns(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Tiles of a thread and of a block, none of them twice the output in a direction."""
    columns = _together(_from_registers(problem, device), _through_lds(problem, device))
    columns = _with_ahead(columns, problem, device)
    threads = columns.planes * columns.lanes_h * columns.lanes_w
    keep = (columns.lanes_h * columns.thread_h < 2 * problem.out_height)
    keep &= columns.planes < 2 * problem.batch * problem.spec.out_channels
    keep &= threads <= device.threads_per_block
    lanes = ceil_div(threads, device.wavefront) * device.wavefront
    usual = (threads >= _LEAST_LANES * lanes) & (threads <= _MOST_THREADS)
    columns = _kept_or_all(kept(columns, keep), usual[keep])
    columns.staging = np.asarray(STAGINGS)[columns.staging]
    columns.column_reuse, columns.ahead = columns.column_reuse == 1, columns.ahead == 1
    return columns


def _with_ahead(columns: SimpleNamespace, problem: ConvProblem,
                device: Device) -> SimpleNamespace:
    """The columns as they are, and where it may gain anything, working ahead."""
    count = len(columns.planes)
    plain = SimpleNamespace(**vars(columns), ahead=np.zeros(count, dtype=np.int64))
    if not device.begins_early:
        return plain
    ahead = SimpleNamespace(**vars(columns), ahead=np.ones(count, dtype=np.int64))
    blocks = ceil_div(problem.batch * problem.spec.out_channels, columns.planes) * ceil_div(
        problem.out_height, columns.lanes_h * columns.thread_h) * ceil_div(
        problem.out_width, columns.lanes_w * columns.thread_w)
    few = blocks <= _MOST_BLOCKS_AHEAD * device.compute_units
    return _together(plain, kept(ahead, few & (columns.staging != 0)))


def _thread_heights(problem: ConvProblem) -> list[int]:
    return sorted({min(h, problem.out_height) for h in _DEPTHWISE_THREAD_H})


def _from_registers(problem: ConvProblem, device: Device) -> SimpleNamespace:
    width = problem.out_width
    columns = _grid(thread_h=[h for h in _thread_heights(problem) if h <= _MOST_REGISTER_ROWS],
                    thread_w=[w for w in _DEPTHWISE_THREAD_W if w < 2 * width],
                    lanes_h=[1, 2, 4, 8],
                    lanes_w=[w for w in _powers_of_two(device.wavefront) if w < 2 * width],
                    planes=[1, 2, 4, 8, 16, 32], staging=[0], column_reuse=[0, 1])
    run = columns.lanes_w * columns.thread_w
    threads = columns.planes * columns.lanes_h * columns.lanes_w
    keep = (run >= min(width, _LEAST_RUN)) & (threads > _LEAST_THREADS)
    # Small problems may have none of these.
    return _kept_or_all(kept(columns, run < 2 * width), keep[run < 2 * width])


def _through_lds(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of whole rows: some of one plane, or all of as many as fill whole wavefronts."""
    height, width = problem.out_height, problem.out_width
    c = _grid(thread_h=_thread_heights(problem), thread_w=_staged_widths(width),
              strips=[0, 1, 2, 4, 8, 16], waves=(0, *_STAGED_WAVES), even=[0, 1], staging=[1, 2])
    whole = c.strips == 0
    lanes_h, lanes_w = np.where(whole, ceil_div(height, c.thread_h), c.strips), ceil_div(
        width, c.thread_w)
    full = c.waves * device.wavefront // (lanes_h * lanes_w)
    # Planes by fours lie in whole vectors, whatever the image.
    planes = np.where(c.waves == 0, 1, np.where(c.even == 1, full // 4 * 4, full))
    columns = SimpleNamespace(
        thread_h=c.thread_h, thread_w=c.thread_w, lanes_h=lanes_h, lanes_w=lanes_w,
        planes=planes, staging=c.staging, column_reuse=0 * planes)
    alone = (c.waves == 0) & (c.even == 0) & (whole | (lanes_h * c.thread_h < height))
    together = whole & (planes > 1) & ((c.even == 0) | (full % 4 != 0))
    return _distinct(kept(columns, (alone | together) & (c.thread_h * c.thread_w <= _MOST_OUTPUTS)))


def _distinct(columns: SimpleNamespace) -> SimpleNamespace:
    """Each combination once, in the order of the fields."""
    values = np.unique(np.stack(list(vars(columns).values())), axis=1)
    return SimpleNamespace(**dict(zip(vars(columns), values, strict=True)))


def _staged_widths(width: int) -> list[int]:
    """Tiles of a thread that divide the width, and the usual ones."""
    return [w for w in _STAGED_THREAD_W
            if width % w == 0 or (w in _DEPTHWISE_THREAD_W and w < 2 * width)]


def direct_columns(problem: ConvProblem, device: Device) -> SimpleNamespace:
    most = device.waves_per_block
    per_thread = [c for c in _DIRECT_THREAD_C if c < 2 * problem.spec.group_out]
    return _grid(threads=[device.wavefront * waves for waves in range(1, most + 1)],
                 thread_c=per_thread)
