"""The tilings of channel distribution that are tried: exact, and where tiles need not divide."""

from __future__ import annotations

from math import gcd
from types import SimpleNamespace

import numpy as np

from dscore.algorithms.columns import divisors, grid, powers_of_two
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

# Masked tiles: a wavefront of more columns than this needs more registers than it saves.
_MASKED_WAVE_W = 16
_MASKED_WAVE_C = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128,
                  192, 256)


def exact_columns(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Every block whose tile divides the output, with every group_c of R4.

    The width and channel halves of a tiling are enumerated apart, which keeps the grid small.
    """
    height, width, spec = problem.out_height, problem.out_width, problem.spec
    halves_w = [(n, w) for n in range(1, device.waves_per_block + 1)
                if width % (n // gcd(height, n)) == 0
                for w in divisors(width // (n // gcd(height, n)))]
    halves_c = [(n, c) for n in range(1, device.waves_per_block + 1) if spec.out_channels % n == 0
                for c in divisors(spec.out_channels // n)]
    groups = [g for g in powers_of_two(device.wavefront) if spec.in_channels % g == 0]
    return _joined(halves_w, halves_c, groups)


def masked_columns(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Tiles that need not divide: up to 16 columns of a wave and 16 channels of a thread (R5).

    A tile of which half lies past the output is left out: a smaller one does the same.
    """
    height, width, spec = problem.out_height, problem.out_width, problem.spec
    repeats = range(1, device.waves_per_block + 1)
    most_c = max(2 * spec.out_channels, device.wavefront + 1)
    halves_w = [(n, w) for n in repeats for w in range(1, min(width, _MASKED_WAVE_W) + 1)
                if n // gcd(height, n) * w < 2 * width]
    halves_c = [(n, c) for n in repeats for c in _MASKED_WAVE_C if n * c < most_c]
    groups = [g for g in powers_of_two(device.wavefront) if g < 2 * spec.in_channels]
    return _joined(halves_w, halves_c, groups)


def _joined(halves_w: list[tuple[int, int]], halves_c: list[tuple[int, int]],
            groups: list[int]) -> SimpleNamespace:
    columns = grid(w=range(len(halves_w)), c=range(len(halves_c)), group_c=groups)
    (repeat_w, wave_w), (repeat_c, wave_c) = np.array(halves_w).T, np.array(halves_c).T
    return SimpleNamespace(wave_w=wave_w[columns.w], wave_c=wave_c[columns.c],
                           repeat_w=repeat_w[columns.w], repeat_c=repeat_c[columns.c],
                           group_c=columns.group_c)
