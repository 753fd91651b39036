"""The oracle of layers of int8: docs/int8.md with Python's integers, term by term."""

import itertools
import math
from fractions import Fraction

import numpy as np


def direct(problem, x, w, bias, multiplier, points, *further):
    """The result of each output, of its operand's type; taps in the padding are left out.

    *further*: the ratios, the residual, the scale and the table, of those that the layer has.
    """
    spec, further = problem.spec, list(further)
    ratios = further.pop(0) if spec.residual or spec.scaled or spec.in_dtype else ()
    residual = further.pop(0) if spec.residual else None
    scale = further.pop(0) if spec.scaled else None
    table = further.pop(0) if spec.table else None
    assert not further
    if spec.layout == "nhwc":
        x = x.transpose(0, 3, 1, 2)
        residual = None if residual is None else residual.transpose(0, 3, 1, 2)
    if spec.scaled:
        *_, input_zero, scaled_zero = map(int, points)
        x = scaled(x, scale, ratios[-1], input_zero, scaled_zero)
    if spec.in_dtype:
        x = integers(x, ratios[-1], int(points[0]))
    images, height, width = problem.batch, problem.out_height, problem.out_width
    y = np.empty((images, spec.out_channels, height, width), spec.out_element.numpy)
    for at in itertools.product(*map(range, y.shape)):
        total = 0 if bias is None else int(bias[at[1]])
        added = 0
        if residual is not None:  # by a ratio of few bits, so that this is a float32
            added = (int(residual[at]) - int(points[4])) * Fraction(float(ratios[0]))
            assert added == nearest_float32(added)
        y[at] = of_sum(total + _sum(problem, x, w, at, int(points[0])), multiplier[at[1]],
                       [int(point) for point in points[1:4]], spec, added, table)
    return y.transpose(0, 2, 3, 1) if spec.layout == "nhwc" else y


def means(problem, x, multiplier, zero_point):
    """The mean of each image and channel, of its operand's type."""
    x = x.transpose(0, 3, 1, 2) if problem.spec.layout == "nhwc" else x
    y = np.empty(x.shape[:2], problem.spec.out_element.numpy)
    for at in itertools.product(*map(range, y.shape)):
        total = sum(int(one) - int(zero_point[0]) for one in x[at].ravel())
        y[at] = of_sum(total, multiplier[0], (), problem.spec)
    return y


def _sum(problem, x, w, at, zero):
    spec, (top, _, left, _), total = problem.spec, problem.padding, 0
    image, out, row, column = at
    first = out // spec.group_out * spec.group_in
    for c, f, g in itertools.product(range(spec.group_in), *map(range, spec.kernel)):
        i = row * spec.stride[0] - top + f * spec.dilation[0]
        j = column * spec.stride[1] - left + g * spec.dilation[1]
        if 0 <= i < problem.height and 0 <= j < problem.width:
            total += (int(x[image, first + c, i, j]) - zero) * int(w[out, c, f, g])
    return total


def integers(x, ratio, zero):
    """What floats become: their products with a ratio to the nearest integer, of two the even one.
    """
    y = np.empty(x.shape, np.int8)
    for at in itertools.product(*map(range, x.shape)):
        value = float(x[at])
        if math.isinf(value):
            y[at] = 127 if value > 0 else -128
        else:
            steps = round(nearest_float32(Fraction(value) * Fraction(float(ratio))))
            y[at] = min(max(steps + zero, -128), 127)
    return y


def scaled(x, scale, ratio, x_from, x_to):
    """What a scale by image and channel makes of the integers of x."""
    y = np.empty_like(x)
    for at in itertools.product(*map(range, x.shape)):
        factor = nearest_float16(
            nearest_float32(Fraction(float(scale[at[:2]])) * Fraction(float(ratio))))
        y[at] = min(max(round((int(x[at]) - x_from) * factor) + x_to, -128), 127)
    return y


def nearest_float16(value):
    """The float16 nearest to a fraction, of two the even one, and its ends past its range."""
    exponent = max(places(value) - 12, -24)
    while abs(value) / Fraction(2)**exponent >= 2**11:
        exponent += 1
    rounded = round(value / Fraction(2)**exponent) * Fraction(2)**exponent
    return min(max(rounded, -65504), 65504)


def of_sum(total, multiplier, points, spec, added=0, table=None):
    """The result of one sum: every rounding is that of an exact fraction."""
    total = (total + 2**31) % 2**32 - 2**31
    product = nearest_float32(nearest_float32(Fraction(total)) * Fraction(float(multiplier)))
    if spec.out_element.exact:
        zero, low, high = points
        rounded = round(nearest_float32(product + added))  # Python's round takes ties to even
        result = min(max(rounded + zero, low), high)
        return result if table is None else table[result]
    value = max(product, 0) if spec.activation else product
    value = min(value, 6) if spec.activation == "relu6" else value
    return np.float32(float(value))


def nearest_float32(value):
    """The float32 nearest to a fraction, of two the even one; of normal numbers."""
    if not value:
        return Fraction(0)
    exponent = places(value) - 24
    while abs(value) / Fraction(2)**exponent >= 2**24:
        exponent += 1
    while abs(value) / Fraction(2)**exponent < 2**23:
        exponent -= 1
    return round(value / Fraction(2)**exponent) * Fraction(2)**exponent


def places(value):
    """Binary places of a fraction before the point, or less by one; those after it below 0."""
    return value.numerator.bit_length() - value.denominator.bit_length()
