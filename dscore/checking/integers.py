"""Random operands of layers of int8 that reach what their arithmetic can go wrong in."""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.core.problem import ConvProblem
from dscore.core.spec import ConvSpec
from dscore.ops import Operand, operands_of
from dscore.ops.quantised import FLOATS_OF_X, TABLE, beside_of, points_of, short_ratio

_LEAST, _MOST = -128, 127
# Standard deviation of x - zero point and of w, each about, where both are of the whole range.
_SPREAD = 90.0
# Filters of a few powers of two make results of halves: ties between two integers.
_TIE_TAPS = 8
# Share of the layers without padding whose x has the zero point 0, for which kernels sum nothing.
_OF_NO_ZERO_POINT = 1 / 4
# Share of infinities among floats that a layer quantises.
_OF_INFINITIES = 1 / 64
Generator = np.random.Generator


def draw(problem: ConvProblem, rng: Generator) -> list[Any]:
    """The inputs of a layer of int8, None for a bias that it lacks.

    x, w and the bias have the whole range, the zero points are not 0 (but that of x for a quarter
    of the layers without padding, as where a bias has it), and the multipliers spread the results
    over the range of int8 and past it. About one channel in three has ties alone between two
    integers for every second result. Three points of a layer whose result is a float have no
    meaning there, and are large.
    """
    spec = problem.spec
    if problem.operation != "conv":
        return _of_means(problem, rng)
    w = rng.integers(_LEAST, _MOST + 1, spec.w_shape, np.int8)
    ties = rng.random(spec.out_channels) < 1 / 3
    exponents = rng.integers(0, 7, spec.out_channels)
    w[ties] = _few_powers(rng, w[ties], exponents[ties])
    size = _SPREAD * _SPREAD * max(spec.products, 1)**0.5
    spread = 4 if spec.table else 1 if spec.out_element.exact else 1 / 16
    results = rng.uniform(25, 100, spec.out_channels) * spread
    multiplier = (results / size).astype(np.float32)
    multiplier[ties] = 0.5**(exponents[ties] + 1)
    bias = rng.integers(-int(size), int(size) + 1, spec.out_channels)
    bias[ties] = bias[ties] >> exponents[ties] << exponents[ties]
    drawn = {"w": w, "bias": bias.astype(np.int32), "points": _points(spec, rng),
             "multiplier": multiplier, "ratios": _ratios(spec, rng),
             "scale": _scales((problem.batch, spec.in_channels), rng)}
    if spec.in_dtype:
        drawn["x"] = _floats(problem, drawn["ratios"][-1], drawn["points"][0], rng)
    inputs = [drawn.get(one.name, _whole(one.shape, rng)) if one.present else None
              for one in operands_of(problem) if one.role == "input"]
    if not any(problem.padding) and rng.random() < _OF_NO_ZERO_POINT:
        drawn["points"][0] = 0
    return inputs


def _of_means(problem: ConvProblem, rng: Generator) -> list[Any]:
    """x, a multiplier and a zero point of means, and the floats that a gate has. About one channel
    in three has the least number alone, or the greatest, whose sums are the longest."""
    x, operand = _whole(problem.x_shape, rng), operands_of(problem)[0]
    channels = np.moveaxis(x, 1, -1) if operand.layout == "nchw" else x
    ends = rng.choice(np.array([_LEAST, _MOST]), channels.shape[-1])
    long = rng.random(channels.shape[-1]) < 1 / 3
    channels[..., long] = ends[long]
    multiplier = rng.uniform(0.01, 0.2) / (problem.height * problem.width)
    zero_point = rng.choice([_LEAST, _MOST, int(rng.integers(_LEAST, _MOST + 1))])
    drawn = {"x": x, "multiplier": np.array([multiplier], np.float32),
             "zero_point": np.array([zero_point], np.int32)}

    def floats(one: Operand) -> Any:
        return rng.standard_normal(one.shape, np.float32).astype(one.element.numpy)

    return [(drawn[one.name] if one.name in drawn else floats(one)) if one.present else None
            for one in operands_of(problem) if one.role == "input"]


def _whole(shape: tuple[int, ...], rng: Generator) -> Any:
    return rng.integers(_LEAST, _MOST + 1, shape, np.int8)


def _ratios(spec: ConvSpec, rng: Generator) -> Any:
    """Those of the residual, of what is scaled, and of x's floats; by each second one a tie stays a
    tie."""
    drawn = {"residual": short_ratio(rng.uniform(0.1, 4 if spec.table else 1)),
             "input": rng.uniform(0.1, 1.2), FLOATS_OF_X: rng.uniform(20, 60)}
    even = {"residual": 0.5, "input": 0.5, FLOATS_OF_X: 32.0}
    return np.array([rng.choice([even[name], drawn[name]]) for name in beside_of(spec)],
                    np.float32)


def _floats(problem: ConvProblem, steps: Any, zero: Any, rng: Generator) -> Any:
    """An x of floats that becomes integers of the whole range and past it; one in three is a tie,
    as far as its type has it, and some are infinite."""
    halves = np.where(rng.random(problem.x_shape) < 1 / 3, 0.5, rng.random(problem.x_shape))
    integers = rng.integers(_LEAST - 8, _MOST + 9, problem.x_shape)
    x = ((integers + halves - zero) / steps).astype(np.float32)
    ends = rng.random(problem.x_shape) < _OF_INFINITIES
    return np.where(ends, np.copysign(np.float32(np.inf), x), x).astype(
        problem.spec.in_element.numpy)


def _scales(shape: tuple[int, ...], rng: Generator) -> Any:
    """Factors by image and channel, of which some are 1, 0, less than 0, far out of range, or the
    least that float16 has."""
    few = rng.choice(np.array([1.0, 1.0, 0.0, -0.7, 1e4, 2.0**-24]), shape)
    return np.where(rng.random(shape) < 0.5, few, rng.random(shape)).astype(np.float16)


def _few_powers(rng: Generator, w: Any, exponents: Any) -> Any:
    """Filters like *w* of zeros and a few ``±2**exponent``, an exponent for each."""
    share = min(1.0, _TIE_TAPS / max(w[:1].size, 1))
    signs = rng.choice(np.array([-1, 1]), w.shape) * (rng.random(w.shape) < share)
    return signs << exponents[:, None, None, None]


def _points(spec: ConvSpec, rng: Generator) -> Any:
    """Zero points that are not 0, and bounds: of the whole range, of relu, or of relu6; of a table
    the numbers of all its entries."""
    count = 5 if spec.scaled else 4  # zero points, of which a layer may have fewer
    most = rng.choice([16, _MOST], count)
    x_zero, y_zero, *others = (rng.choice([-1, 1], count) * rng.integers(1, most + 1)).tolist()
    low = rng.choice([_LEAST, y_zero])
    high = rng.choice([_MOST, int(rng.integers(max(low, y_zero), _MOST + 1))])
    bounds = (y_zero, low, high) if spec.out_element.exact else (10**6,) * 3
    if spec.table:
        bounds = (int(rng.integers(TABLE)), 0, TABLE - 1)
    beside = others[:len(points_of(spec)) - len(bounds) - 1]
    return np.array([x_zero, *bounds, *beside], np.int32)
