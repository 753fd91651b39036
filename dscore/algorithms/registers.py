"""How many registers a compiler takes at most for a tiling: fitted to what compilers report.

Eq. 6 of Liu et al. 2024 counts results, operands and the double buffer, and leaves 30 registers to
the compiler. Compilers take more: an address beside every register of the buffer, more taps than a
row. The bounds here are ``results + operands + k · rest + c``, per vendor and family, with the
least k and c that no kernel without spills exceeded among those of docs/registers.md; but nvcc's
for "matrix" and "registers", which 86 and 92 in 100 keep: what it takes beyond, it takes because
it is there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.geometry import Count, depthwise_shape, matrix_shape, pointwise_shape
from dscore.core.device import Device
from dscore.core.problem import ConvProblem
from dscore.core.tiling import (
    ChannelDistributionTiling,
    DirectTiling,
    GemmTiling,
    RowReuseTiling,
    Tiling,
)

# Words of a lane; nvcc trades a few outside of loops for more wavefronts, which time judges better.
MOST_SPILLS = 8

# (k, c) by family, for hipcc (AMD, DCU) and for nvcc.
_HIPCC = {"pointwise": (3, 14), "matrix": (1, 56), "registers": (2, 15), "lds": (3, 25),
          "direct": (0, 28)}
_NVCC = {"pointwise": (4, 50), "matrix": (1, 60), "registers": (1, 33), "lds": (1, 42),
         "direct": (0, 31)}


def compiled_registers(problem: ConvProblem, device: Device, kind: type[Tiling], t: Any) -> Count:
    """The bound for one tiling of class *kind*, or for columns of many."""
    fitted = _NVCC if device.vendor == "nvidia" else _HIPCC
    if kind is ChannelDistributionTiling:
        return _pointwise(problem, t, device.wavefront, *fitted["pointwise"])
    if kind is GemmTiling:
        matrix, (factor, constant) = matrix_shape(problem, t, device.wavefront), fitted["matrix"]
        fetched = np.where(t.stages == 2, matrix.fetched, 0)
        return matrix.sums + matrix.operands + factor * fetched + constant
    if kind is RowReuseTiling:
        shape, taps = depthwise_shape(problem, t), problem.spec.products
        bounds = [factor * taps + constant for factor, constant in (fitted["registers"],
                                                                    fitted["lds"])]
        rest = np.where(np.asarray(t.staging) == "registers", bounds[0], bounds[1])
        return shape.live_rows * t.thread_w + shape.columns + rest
    assert kind is DirectTiling
    return 2 * t.thread_c + fitted["direct"][1]


def _pointwise(problem: ConvProblem, t: Any, wavefront: int, factor: int, constant: int) -> Count:
    shape = pointwise_shape(problem, t, wavefront)
    threads = shape.wave_n * wavefront
    buffered = -(-shape.input_tile // threads) - (-shape.filter_tile // threads)
    return (t.wave_w * shape.thread_c + t.wave_w + shape.thread_c
            + factor * buffered + constant)
