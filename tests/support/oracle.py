"""The oracle: the definition of a convolution in float64, and the error bound of a float32 one."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np

UNIT = 2.0**-24  # unit roundoff of float32
TINY = 2.0**-126  # the least normal float32: what one underflowing operation can lose
FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)  # where the axes of channels come
LIPSCHITZ = {None: 1.0, "relu": 1.0, "relu6": 1.0, "silu": 1.1, "hardswish": 1.5,
             "sigmoid": 0.25, "hardsigmoid": 1 / 6}


def direct(problem: Any, x: Any, w: Any, bias: Any = None, *further: Any) -> tuple[Any, Any]:
    """(y, magnitude) of the definition, term by term; magnitude is the sum of |x||w|, and |bias|.

    *further* are a residual and a scale, as the layer has them; the scale multiplies x, and a
    residual before the activation counts to the magnitude. Sums are correctly rounded. Terms in the
    padding are left out.
    """
    spec, further = problem.spec, list(further)
    residual = further.pop(0) if spec.residual else None
    if spec.layout == "nhwc":
        residual = () if residual is None else (residual.transpose(FIRST),)
        results = direct(_first(problem), x.transpose(FIRST), w, bias, *residual, *further)
        return tuple(one.transpose(LAST) for one in results)
    if spec.scaled:
        x = x.astype(np.float64) * further.pop(0)[:, :, None, None]
    y, magnitude = np.empty(problem.y_shape), np.empty(problem.y_shape)
    for at in itertools.product(*(range(size) for size in problem.y_shape)):
        products = list(_products(problem, x, w, at))
        if spec.bias:
            products.append(float(bias[at[1]]))
        if spec.residual == "before":
            products.append(float(residual[at]))
        magnitude[at] = math.fsum(abs(product) for product in products)
        y[at] = activate(math.fsum(products), spec.activation)
    return (y + residual if spec.residual == "after" else y), magnitude


def mean(problem: Any, x: Any) -> tuple[Any, Any]:
    """(result, magnitude) of the means over pixels, by image and channel."""
    if problem.spec.layout == "nhwc":
        x = x.transpose(FIRST)
    pixels = x.astype(np.float64).reshape(*x.shape[:2], -1)
    count = pixels.shape[2]
    return tuple(np.apply_along_axis(math.fsum, 2, one) / count for one in (pixels, abs(pixels)))


def gate(problem: Any, x: Any, w: Any, bias: Any, second_w: Any, second_bias: Any,
         *of_integers: Any) -> tuple[Any, Any]:
    """(result, magnitude) of the gates of squeeze-and-excitation, sum by sum.

    The magnitude is of the second layer's sums, where the first one's results count as what these
    are sums of, times the constant of Lipschitz of the activation between.
    """
    spec, operation = problem.spec, problem.operation
    if of_integers:
        images = x.transpose(FIRST) if spec.layout == "nhwc" else x
        less = images.astype(np.int64) - int(of_integers[1][0])
        means = np.float64(less.sum((2, 3)).astype(np.float32) * of_integers[0])
        sizes = abs(means)
    else:
        means, sizes = mean(problem, x)
    first = [_layer(image, size, w, bias) for image, size in zip(means, sizes, strict=True)]
    results = [(_each_activated(sums, spec.activation), LIPSCHITZ[spec.activation] * terms)
               for sums, terms in first]
    second = [_layer(sums, terms, second_w, second_bias) for sums, terms in results]
    last = "hardsigmoid" if operation == "hard_gate" else "sigmoid"
    y, magnitude = (np.array(one) for one in zip(*second, strict=True))
    return _each_activated(y, last), magnitude


def _each_activated(values: Any, activation: str | None) -> Any:
    return np.vectorize(lambda one: activate(one, activation), otypes=[float])(values)


def _layer(values: Any, sizes: Any, w: Any, bias: Any) -> tuple[Any, Any]:
    """A layer of one pixel: its sums, each correctly rounded, and those of absolute values."""
    rows, biases = w[:, :, 0, 0].astype(np.float64), np.zeros(len(w)) if bias is None else bias
    return (np.array([math.fsum([*row * values, float(b)])
                      for row, b in zip(rows, biases, strict=True)]),
            np.array([math.fsum([*abs(row) * sizes, abs(float(b))])
                      for row, b in zip(rows, biases, strict=True)]))


def gradient(problem: Any, first: Any, second: Any) -> tuple[Any, Any]:
    """(result, magnitude) of a gradient's operation, each product of the forward layer by itself.

    *first* and *second* are the operation's inputs: the output's gradient and w, or x and that.
    """
    spec, (top, _, left, _) = problem.spec, problem.padding
    by_input = problem.operation == "input_gradient"
    if spec.layout == "nhwc":
        results = gradient(_first(problem), first.transpose(FIRST),
                           second if by_input else second.transpose(FIRST))
        return tuple(one.transpose(LAST) if by_input else one for one in results)
    shape = problem.x_shape if by_input else spec.w_shape
    terms = {at: [] for at in itertools.product(*map(range, shape))}
    for image, out, row, column in itertools.product(*map(range, problem.y_shape)):
        group = out // spec.group_out * spec.group_in
        for c, f, g in itertools.product(*map(range, spec.w_shape[1:])):
            i = row * spec.stride[0] - top + f * spec.dilation[0]
            j = column * spec.stride[1] - left + g * spec.dilation[1]
            if not (0 <= i < problem.height and 0 <= j < problem.width):
                continue
            x_at, w_at, y_at = (image, group + c, i, j), (out, c, f, g), (image, out, row, column)
            if by_input:
                terms[x_at].append(float(first[y_at]) * float(second[w_at]))
            else:
                terms[w_at].append(float(first[x_at]) * float(second[y_at]))
    sums = [math.fsum(products) for products in terms.values()]
    sizes = [math.fsum(map(abs, products)) for products in terms.values()]
    return np.reshape(sums, shape), np.reshape(sizes, shape)


def _first(problem: Any) -> Any:
    """The problem in NCHW."""
    return replace(problem, spec=replace(problem.spec, layout="nchw"))


def _products(problem: Any, x: Any, w: Any, at: tuple[int, ...]) -> Any:
    spec, (top, _, left, _) = problem.spec, problem.padding
    image, out, row, column = at
    first = out // spec.group_out * spec.group_in
    for c, f, g in itertools.product(range(spec.group_in), range(spec.kernel[0]),
                                     range(spec.kernel[1])):
        i = row * spec.stride[0] - top + f * spec.dilation[0]
        j = column * spec.stride[1] - left + g * spec.dilation[1]
        if 0 <= i < problem.height and 0 <= j < problem.width:
            # The product of two float32 or shorter ones is exact in float64.
            yield float(x[image, first + c, i, j]) * float(w[out, c, f, g])


def activate(value: float, activation: str | None) -> float:
    """The activation in float64; a NaN stays one."""
    if activation is None or math.isnan(value):
        return value
    if activation == "silu":
        return value / (1 + math.exp(-value)) if value > -700 else 0.0
    if activation == "sigmoid":
        return 1 / (1 + math.exp(-value)) if value > -700 else 0.0
    if activation in ("hardswish", "hardsigmoid"):
        return (value if activation == "hardswish" else 1) * min(max(value + 3, 0.0), 6.0) / 6
    return min(max(value, 0.0), 6.0 if activation == "relu6" else math.inf)


def gamma(k: int) -> float:
    """γ_k = k·u / (1 − k·u): the relative error of k roundings, in any order of summation."""
    return k * UNIT / (1 - k * UNIT)


def bound(problem: Any, y: Any, magnitude: Any) -> Any:
    """What a float32 result may differ by from *y*: a theorem, not a tolerance."""
    spec = problem.spec
    k = spec.products + spec.bias + (spec.residual == "before") + spec.scaled
    allowed = LIPSCHITZ[spec.activation] * gamma(k) * np.asarray(magnitude) + k * TINY
    if spec.activation is not None:
        # Up to eight roundings of the activation's own.
        allowed = allowed + 8 * UNIT * np.abs(y)
    if spec.residual == "after":
        allowed = allowed + UNIT * (np.abs(y) + allowed)
    return allowed


def worst_share(problem: Any, result: Any, y: Any, magnitude: Any) -> float:
    """The largest error of *result* as a share of its bound; inf where it is not finite."""
    if result.shape != np.shape(y) or not np.isfinite(result).all():
        return math.inf
    error = np.abs(np.asarray(result, dtype=np.float64) - y)
    return float(np.max(error / bound(problem, y, magnitude)))


def within_bound(problem: Any, result: Any, x: Any, w: Any, *further: Any) -> float:
    """The worst share of the bound that *result* uses; AssertionError where that exceeds 1."""
    y, magnitude = direct(problem, x, w, *further)
    share = worst_share(problem, result, y, magnitude)
    assert share <= 1, f"{problem}: {share:.3g} times the error bound"
    return share
