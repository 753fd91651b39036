"""The oracle of layers of int8: docs/int8.md with Python's integers, term by term."""

import itertools
from fractions import Fraction

import numpy as np


def direct(problem, x, w, bias, multiplier, points):
    """The result of each output, of its operand's type; taps in the padding are left out."""
    spec = problem.spec
    if spec.layout == "nhwc":
        x = x.transpose(0, 3, 1, 2)
    images, height, width = problem.batch, problem.out_height, problem.out_width
    y = np.empty((images, spec.out_channels, height, width), spec.out_element.numpy)
    for at in itertools.product(*map(range, y.shape)):
        total = 0 if bias is None else int(bias[at[1]])
        y[at] = of_sum(total + _sum(problem, x, w, at, int(points[0])), multiplier[at[1]],
                       [int(point) for point in points[1:]], spec)
    return y.transpose(0, 2, 3, 1) if spec.layout == "nhwc" else y


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


def of_sum(total, multiplier, points, spec):
    """The result of one sum: every rounding is that of an exact fraction."""
    total = (total + 2**31) % 2**32 - 2**31
    product = nearest_float32(nearest_float32(Fraction(total)) * Fraction(float(multiplier)))
    if spec.out_element.exact:
        zero, low, high = points
        return min(max(round(product) + zero, low), high)  # Python's round takes ties to even
    value = max(product, 0) if spec.activation else product
    value = min(value, 6) if spec.activation == "relu6" else value
    return np.float32(float(value))


def nearest_float32(value):
    """The float32 nearest to a fraction, of two the even one; of normal numbers."""
    if not value:
        return Fraction(0)
    exponent = 0
    while abs(value) / Fraction(2)**exponent >= 2**24:
        exponent += 1
    while abs(value) / Fraction(2)**exponent < 2**23:
        exponent -= 1
    return round(value / Fraction(2)**exponent) * Fraction(2)**exponent
