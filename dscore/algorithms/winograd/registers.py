"""Registers of Winograd's kernels as compilers take them, and the blocks that they leave room for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.columns import Count, floor_div
from dscore.algorithms.registers import launchable, roomy
from dscore.algorithms.winograd.tiling import WinogradShape, ring_bytes, shape_of, splits
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

# What hipcc takes beside sums and operands, or a tile that is transformed (docs/registers.md), and
# beyond where there are registers for it.
_HIPCC, _ROOMY = 48, 40
# What nvcc takes beside those of matrix units, for tiles, and in the persistent kernel more than
# for either; and beyond. Of plain operands it holds those of the next four channels, too.
_NVCC_SPLIT, _NVCC_PLAIN, _NVCC_TILE = 48, 24, 16
_NVCC_FUSED_SPLIT, _NVCC_FUSED_PLAIN, _NVCC_FUSED_TILE = 12, 30, 32
_NVCC_MORE = 28


def summed(shape: WinogradShape, t: Any) -> Count:
    """Registers of a thread's sums and operands, and of what it fetches: rings of two are filled by
    itself."""
    return shape.sums + shape.operands + np.where(t.stages == 2, shape.fetched, 0)


def transformed(t: Any) -> Count:
    """Registers of a tile that a thread transforms, and of its row that is being made."""
    return (t.outputs + 2) ** 2 + 2 * (t.outputs + 2)


def _nvcc(problem: ConvProblem, t: Any) -> Count:
    """Registers of the kernel that multiplies."""
    shape = shape_of(problem, t)
    # Matrix units take eight channels of sixteen at a time.
    split = shape.sums + shape.operands // 2 + _NVCC_SPLIT + _NVCC_FUSED_SPLIT * t.fused
    plain = 3 * shape.sums + shape.operands // 4 + _NVCC_PLAIN + _NVCC_FUSED_PLAIN * t.fused
    return np.where(splits(t), split, plain) + np.where(t.stages == 2, shape.fetched, 0)


def wanted(problem: ConvProblem, t: Any, device: Device) -> Count:
    """Registers that a thread of the first kernel is expected to take."""
    if device.vendor != "nvidia":
        products = np.where(t.fused, summed(shape_of(problem, t), t), 0)
        return np.maximum(products, transformed(t)) + _HIPCC
    tiles = transformed(t) + _NVCC_TILE + _NVCC_FUSED_TILE * t.fused
    return np.maximum(np.where(t.fused, multiplying(problem, t, device), 0), tiles)


def most(problem: ConvProblem, t: Any, device: Device) -> Count:
    """Registers that it may take."""
    if device.vendor == "nvidia":
        # Of plain products nvcc takes what is there.
        more = np.where(t.fused & ~splits(t), device.registers_per_thread, _NVCC_MORE)
        return wanted(problem, t, device) + more
    return wanted(problem, t, device) + _ROOMY * roomy(device)


def multiplying(problem: ConvProblem, t: Any, device: Device) -> Count:
    """Registers of a thread that multiplies."""
    if device.vendor != "nvidia":
        return summed(shape_of(problem, t), t) + _HIPCC
    return np.minimum(_nvcc(problem, t), launchable(device, shape_of(problem, t).waves))


def resident(problem: ConvProblem, t: Any, device: Device) -> tuple[Count, Count]:
    """Blocks on a compute unit: of a kernel that transforms, and of one that multiplies."""
    waves = shape_of(problem, t).waves
    tiles = transformed(t) + (_NVCC_TILE if device.vendor == "nvidia" else _HIPCC)
    most_waves = device.waves_per_cu // np.maximum(waves, 1)

    def held(taken: Count) -> Count:
        granules = -(-taken // device.register_granularity) * device.register_granularity
        a_simd = floor_div(device.registers_per_simd_lane, granules)
        return np.maximum(np.minimum(a_simd * device.simds_per_cu // waves, most_waves), 1)

    of_block = ring_bytes(problem, t) + device.lds_reserved_bytes
    lds = np.maximum(floor_div(device.lds_bytes_per_cu, np.maximum(of_block, 1)), 1)
    return held(tiles), np.minimum(held(multiplying(problem, t, device)), lds)
