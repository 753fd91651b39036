"""The tilings of Winograd's convolution that are tried."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace

import numpy as np

from dscore.algorithms.columns import (
    ceil_div,
    concatenate,
    distinct,
    grid,
    select,
    select_or_all,
)
from dscore.algorithms.winograd.tiling import CHUNK, PERMUTED, WinogradTiling, shape_of
from dscore.core.device import Device
from dscore.core.numerics import ARITHMETICS
from dscore.core.problem import ConvProblem
from dscore.core.winograd import tile_of

_MOST_WAVES = 8
_LEAST_FULL = 0.6
# Halves of the blocks that tasks are apart: products, which most wait for, last the longest.
_WINDOW = 3
# Of a lane, in registers.
_MOST_SUMS = 64


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Blocks of 2 to 8 wavefronts, none of which lies wholly past the products; of one where that
    has all of them.

    The distances between rounds follow from the blocks that are resident: as many tasks lie
    between a task and the last of its parents as run at a time, so that none waits (Eq. 10). One
    round more than these are, for the last parents of a round stand just before the next.
    """
    c = _axes(device)
    wave_k, wave_t = c.rows * c.unit_k, c.columns * c.unit_t
    c.outputs, c.tile_k, c.tile_t = c.outputs, wave_k * c.waves_k, wave_t * c.waves_t
    tiles = problem.batch * ceil_div(problem.out_height, c.outputs) * ceil_div(
        problem.out_width, c.outputs)
    keep = (wave_k * wave_t <= _MOST_SUMS * device.wavefront)
    keep &= c.waves_k * c.waves_t <= _MOST_WAVES
    keep &= (c.tile_k % PERMUTED == 0) & (c.tile_t % PERMUTED == 0)
    keep &= (c.tile_k - problem.spec.out_channels < wave_k) & (c.tile_t - tiles < wave_t)
    keep &= (c.outputs + 2) ** 2 % c.planes == 0
    c.wave_k, c.wave_t = wave_k, wave_t
    if packed := tile_of(problem.spec.filter):
        keep &= c.outputs == packed
    c = select(c, keep)
    c = select_or_all(c, c.waves_k * c.waves_t > 1)
    full = ceil_div(problem.spec.out_channels, c.tile_k) * c.tile_k * _LEAST_FULL <= (
        problem.spec.out_channels)
    return _mapped(problem, device, select_or_all(c, full))


def _mapped(problem: ConvProblem, device: Device, c: SimpleNamespace) -> SimpleNamespace:
    """The columns with tasks of `turns` tiles and channels a thread, and their mapping."""
    threads = c.waves_k * c.waves_t * device.wavefront
    channels = np.maximum(c.turns * threads // c.tile_t // CHUNK, 1) * CHUNK
    fused = c.groups > 0
    c.input_channels = np.minimum(channels, ceil_div(problem.spec.in_channels, c.step) * c.step)
    c.output_channels = np.minimum(channels, problem.spec.out_channels)
    c.groups, c.blocks = np.maximum(c.groups, 1), np.where(fused, c.resident, 1)
    c.blocks = np.where(fused, c.blocks * device.compute_units, 1)
    c.lead = c.lag = c.spare = np.ones_like(c.groups)
    c.fused, numbers = fused, c.arithmetic
    c.arithmetic = np.asarray(ARITHMETICS)[numbers]
    shape = shape_of(problem, c)
    round_tasks = c.groups * (shape.input_tasks + shape.product_tasks + shape.output_tasks)
    apart = np.clip(1 + ceil_div(_WINDOW * c.blocks, 2 * round_tasks * c.sooner), 1, shape.rounds)
    c.lead = c.lag = c.spare = np.where(fused, apart, 1)
    # What comes to the same is tried once: of few task groups one round has all.
    keep = (c.groups == 1) | (c.groups < 2 * shape.task_groups)
    c.arithmetic = numbers
    columns = distinct(select(SimpleNamespace(**{
        one.name: np.asarray(getattr(c, one.name), np.int64) for one in fields(WinogradTiling)}),
        keep))
    columns.fused = columns.fused > 0
    columns.arithmetic = np.asarray(ARITHMETICS)[columns.arithmetic]
    return columns


def _axes(device: Device) -> SimpleNamespace:
    """Wavefronts by `rows` of unit_k output channels and `columns` of unit_t tiles; groups 0: a
    kernel for each kind of tasks."""
    axes = {"outputs": (2, 4), "waves_k": (1, 2, 4), "waves_t": (1, 2, 4),
            "stages": (3,) if device.asynchronous_copies else (2,),
            "planes": (1, 2, 3, 4, 6)}
    # Half of the distance holds half as much in the L2 cache, and some tasks wait a little.
    mapped = {"groups": (1, 2), "resident": (1, 2, 3, 4, 6), "sooner": (1, 2), "turns": (2, 4)}
    unfused = {"groups": (0,), "resident": (1,), "sooner": (1,), "turns": (1, 2, 4, 8)}
    plain = concatenate(*(grid(
        arithmetic=[0], lanes_k=[8], rows=(2, 4, 8), columns=(2, 4, 8), step=(8, 16), **axes,
        **form) for form in (mapped, unfused)))
    plain.lanes_t = 0 * plain.rows + device.wavefront // 8
    plain.unit_k, plain.unit_t = plain.lanes_k, plain.lanes_t
    if "tf32" not in device.matrix_types:
        return plain
    split = concatenate(*(grid(arithmetic=[1], lanes_k=[8], lanes_t=[4], rows=(1, 2, 4),
                               columns=(1, 2, 4), step=[16], unit_k=[16], unit_t=[16], **axes,
                               **form) for form in (mapped, unfused)))
    # Of plain arithmetic a few, for those who ask for it.
    plain = select(plain, (plain.turns == 4) & (plain.step == 16) & (plain.groups < 2)
                   & (plain.resident < 3))
    return concatenate(plain, split)
