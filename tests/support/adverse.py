"""Operands made to round badly, and what rounds them: three TF32 products, Winograd's tiles."""

from fractions import Fraction
from functools import cache

import numpy as np

from dscore.backends.reference.gemm_lanes import halves
from dscore.core.winograd import KERNEL, transforms

ULP = 2.0**-23  # of numbers from 1 to 2
EIGHT = (0, 2, 4, 6, 1, 3, 5, 7)  # the order in which the matrix units are given channels


def rounded(total, product):
    """One addition in float32, to the nearest."""
    return np.float32(total + product)


def truncated(total, product):
    """One addition in float32, towards zero, as matrix units may do it."""
    exact = float(total) + float(product)  # of 24 bits and 22: float64 has it
    near = np.float32(exact)
    return np.nextafter(near, np.float32(0)) if abs(float(near)) > abs(exact) else near


def by_parts(x, w, add):
    """The sum of three TF32 products for each of *x* by *w*, eight at a time; small parts first."""
    parts_x, parts_w, total = halves(x), halves(w), np.float32(0)
    for at in range(0, x.size, 8):
        for small_x, small_w in ((1, 0), (0, 1), (0, 0)):
            for channel in (at + c for c in EIGHT if at + c < x.size):
                total = add(total, float(parts_x[small_x][channel])
                            * float(parts_w[small_w][channel]))
    return total


def adverse_split(channels, lost):
    """Operands of *channels* products whose sum loses *lost* (1/2 or 1) ulp at each addition.

    The first product begins the sum, just above 1, and its parts leave out the most. Of each other
    one both small products are just below *lost* ulp, and the big one that much above a multiple.
    """
    x, w = (np.empty(channels, np.float32) for _ in range(2))
    # 4093 ulp above 1: the big part is 1, the small one 4092 ulp.
    x[0] = w[0] = 1 + 4093 * ULP
    fine = np.arange(1, 2**8) * 2.0**-10
    big_x, big_w = np.meshgrid(lost * 2.0**-12 * (1 + fine), 1 + fine)
    above = big_x * big_w % ULP / ULP
    at = np.where(above < lost, above, 0).argmax()
    big = float(big_x.flat[at]), float(big_w.flat[at])
    near = lost * (1 - 2.0**-9) * ULP
    x[1:], w[1:] = big[0] + near / big[1], big[1] + near / big[0]
    return x, w


def tiled(problem, x, w, m, multiply=np.matmul):
    """Winograd's convolution in float32, a tile after the other, of one image and group."""
    bt, g, at = (np.array(matrix, dtype=np.float32) for matrix in transforms(m))
    height, width = problem.out_height, problem.out_width
    tall, wide, side = -(-height // m), -(-width // m), m + KERNEL - 1
    top, _, left, _ = problem.padding
    padded = np.zeros((x.shape[0], tall * m + 2, wide * m + 2), np.float32)
    padded[:, top:top + problem.height, left:left + problem.width] = x[
        :, :padded.shape[1] - top, :padded.shape[2] - left]
    filters = g @ w @ g.T
    y = np.empty((w.shape[0], tall * m, wide * m), np.float32)
    for row in range(0, tall * m, m):
        for column in range(0, wide * m, m):
            inputs = bt @ padded[:, row:row + side, column:column + side] @ bt.T
            sums = multiply(filters.transpose(2, 3, 0, 1), inputs.transpose(1, 2, 0)[..., None])
            y[:, row:row + m, column:column + m] = at @ sums[..., 0].transpose(2, 0, 1) @ at.T
    return y[:, :height, :width]


def exact_magnitude(problem, x, w, m):
    """Winograd's magnitude in fractions, an output after the other, of one image and group."""
    bt, g, at = ([list(map(abs, row)) for row in matrix] for matrix in transforms(m))
    top, _, left, _ = problem.padding
    side = range(m + KERNEL - 1)

    def pixel(channel, row, column):
        inside = 0 <= row < problem.height and 0 <= column < problem.width
        return abs(Fraction(float(x[channel, row, column]))) if inside else Fraction(0)

    @cache
    def filtered(out, channel, a, b):
        return sum(g[a][i] * g[b][j] * abs(Fraction(float(w[out, channel, i, j])))
                   for i in range(KERNEL) for j in range(KERNEL))

    @cache
    def transformed(channel, first, start, a, b):
        return sum(bt[a][i] * bt[b][j] * pixel(channel, first + i, start + j)
                   for i in side for j in side)

    def of_output(out, row, column):
        first, start = row // m * m - top, column // m * m - left
        total = Fraction(0)
        for a in side:
            for b in side:
                summed = sum(filtered(out, c, a, b) * transformed(c, first, start, a, b)
                             for c in range(x.shape[0]))
                total += at[row % m][a] * at[column % m][b] * summed
        return float(total)

    return np.array([[[of_output(out, row, column) for column in range(problem.out_width)]
                      for row in range(problem.out_height)] for out in range(w.shape[0])])
