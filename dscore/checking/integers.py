"""Random operands of layers of int8 that reach what their arithmetic can go wrong in."""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.core.problem import ConvProblem
from dscore.ops import operands_of

_LEAST, _MOST = -128, 127
# Standard deviation of x - zero point and of w, each about, where both are of the whole range.
_SPREAD = 90.0
# Filters of a few powers of two make results of halves: ties between two integers.
_TIE_TAPS = 8
Generator = np.random.Generator


def draw(problem: ConvProblem, rng: Generator) -> list[Any]:
    """The inputs of a layer of int8, None for a bias that it lacks.

    x, w and the bias have the whole range, the zero points are not 0, and the multipliers spread
    the results over the range of int8 and past it. About one channel in three has ties alone
    between two integers for every second result. The last three points of a layer whose result is
    a float have no meaning there, and are large.
    """
    spec = problem.spec
    w = rng.integers(_LEAST, _MOST + 1, spec.w_shape, np.int8)
    ties = rng.random(spec.out_channels) < 1 / 3
    exponents = rng.integers(0, 7, spec.out_channels)
    w[ties] = _few_powers(rng, w[ties], exponents[ties])
    size = _SPREAD * _SPREAD * max(spec.products, 1)**0.5
    results = rng.uniform(25, 100, spec.out_channels) * (1 if spec.out_element.exact else 1 / 16)
    multiplier = (results / size).astype(np.float32)
    multiplier[ties] = 0.5**(exponents[ties] + 1)
    bias = rng.integers(-int(size), int(size) + 1, spec.out_channels)
    bias[ties] = bias[ties] >> exponents[ties] << exponents[ties]
    drawn = {"x": rng.integers(_LEAST, _MOST + 1, problem.x_shape, np.int8), "w": w,
             "bias": bias.astype(np.int32), "multiplier": multiplier,
             "points": _points(problem, rng)}
    return [drawn[one.name] if one.present else None
            for one in operands_of(problem) if one.role == "input"]


def _few_powers(rng: Generator, w: Any, exponents: Any) -> Any:
    """Filters like *w* of zeros and a few ``±2**exponent``, an exponent for each."""
    share = min(1.0, _TIE_TAPS / max(w[:1].size, 1))
    signs = rng.choice(np.array([-1, 1]), w.shape) * (rng.random(w.shape) < share)
    return signs << exponents[:, None, None, None]


def _points(problem: ConvProblem, rng: Generator) -> Any:
    """Zero points that are not 0, and bounds: of the whole range, of relu, or of relu6."""
    most = rng.choice([16, _MOST], 2)
    x_zero, y_zero = (rng.choice([-1, 1], 2) * rng.integers(1, most + 1)).tolist()
    low = rng.choice([_LEAST, y_zero])
    high = rng.choice([_MOST, int(rng.integers(max(low, y_zero), _MOST + 1))])
    if not problem.spec.out_element.exact:
        return np.array([x_zero, 10**6, 10**6, 10**6], np.int32)
    return np.array([x_zero, y_zero, low, high], np.int32)
