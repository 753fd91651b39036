"""Convolution: operands, and the exact result by the direct definition in float64.

Those of layers of int8 are in `dscore.ops.quantised`.

*xp* is the library: NumPy, or PyTorch, whose tensors stay on their device.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from dscore.core.problem import ConvProblem
from dscore.core.spec import Activation
from dscore.core.winograd import tile_of
from dscore.ops import Exact, Operand, Operation, quantised
from dscore.ops.tiles import of_tiles, tile_padding, unpacked

# max |f'| of each activation: an error of its argument grows by no more than this.
LIPSCHITZ: dict[Activation | None, float] = {
    None: 1.0, "relu": 1.0, "relu6": 1.0, "silu": 1.1, "hardswish": 1.5, "sigmoid": 0.25,
    "hardsigmoid": 1 / 6}


class Convolution(Operation):
    """``activation(conv(x * scale, w) + bias)`` in the cross-correlation sense of deep learning.

    The residual, if there is one, is added before or after the activation.
    """

    name = "conv"
    of_integers = True

    def operands(self, problem: ConvProblem) -> tuple[Operand, ...]:
        spec = problem.spec
        if spec.element.exact:
            return quantised.operands(problem)
        further = (Operand("residual", problem.y_shape, "input", spec.element, spec.layout,
                           present=spec.residual is not None),
                   Operand("scale", (problem.batch, spec.in_channels), "input", spec.element, "nc",
                           present=spec.scaled))
        return (Operand("x", problem.x_shape, "input", spec.element, spec.layout),
                Operand("w", spec.w_shape, "input", spec.element),
                Operand("bias", (spec.out_channels,), "input", spec.element, present=spec.bias),
                *(operand for operand in further if operand.present),
                Operand("out", problem.y_shape, "output", spec.element, spec.layout))

    def exact(self, xp: Any, problem: ConvProblem, *inputs: Any) -> Exact:
        """*inputs* are the operands (NCHW, of any number of images); a bias that is not there may
        be left out. w has the form that the layer states.

        Equation 2 of Jia et al. 2020 with groups.
        """
        spec, names = problem.spec, [operand.name for operand in self.operands(problem)]
        given = {name: float64(xp, array) for name, array in zip(names, inputs, strict=False)
                 if array is not None}
        if spec.element.exact:
            return quantised.exact(xp, spec, partial(summed, xp, problem), given)
        x, w, k = given["x"], given["w"], spec.products
        m = tile_of(spec.filter)
        sums = partial(_of_transformed, xp, problem, m) if m else partial(summed, xp, problem)
        if spec.scaled:
            x, k = x * given["scale"][:, :, None, None], k + 1  # whose rounding is one more
        residual = given.get("residual")
        bias = given["bias"][None, :, None, None] if "bias" in given else None
        addends = [addend for addend in (bias, residual if spec.residual == "before" else None)
                   if addend is not None]
        return Exact(sum(addends, start=sums(x, w)), sums(xp.abs(x), xp.abs(w), absolute=True), k,
                     tuple(xp.abs(addend) for addend in addends),
                     residual if spec.residual == "after" else None)


    def activation(self, problem: ConvProblem) -> Activation | None:
        """That of the layer; the result of one of int8 has it already."""
        return None if problem.spec.element.exact else problem.spec.activation


def activated(xp: Any, y: Any, activation: Activation | None) -> Any:
    """Activation of *y*, in float64."""
    if activation in ("relu", "relu6"):
        return xp.clip(y, 0.0, np.inf if activation == "relu" else 6.0)
    if activation in ("silu", "sigmoid"):
        with np.errstate(over="ignore"):
            return (y if activation == "silu" else 1) / (1 + xp.exp(-y))
    if activation in ("hardswish", "hardsigmoid"):
        return (y if activation == "hardswish" else 1) * xp.clip(y + 3, 0, 6) / 6
    return y


def float64(xp: Any, values: Any) -> Any:
    """Values in float64, on their own device."""
    return xp.asarray(values, dtype=xp.float64)


def _of_transformed(xp: Any, problem: ConvProblem, m: int, x: Any, w: Any,
                    absolute: bool = False) -> Any:
    """The convolution by a filter that was transformed beforehand; its terms' by *absolute* ones.
    """
    return of_tiles(xp, problem, m, pad(xp, x, tile_padding(problem, m)),
                    unpacked(xp, problem.spec, w), absolute)


def summed(xp: Any, problem: ConvProblem, x: Any, w: Any, absolute: bool = False) -> Any:
    """Sum over the filter's taps: of products of matrices, a matrix per image and group, or of
    products of elements where a group has one channel.
    """
    spec, multiply = problem.spec, product(xp, problem)
    padded = pad(xp, x, problem.padding)
    y: Any = 0
    for tap, rows, columns in taps(problem):
        y += multiply(by_tap(w, problem)[..., tap],
                      by_group(padded[:, :, rows, columns], problem))
    return y.reshape(x.shape[0], spec.out_channels, problem.out_height, problem.out_width)


def product(xp: Any, problem: ConvProblem) -> Any:
    """Product of filters and pixels: of elements where a group has one channel, else of matrices.
    """
    return xp.multiply if problem.spec.group_in == 1 else xp.matmul


def by_tap(w: Any, problem: ConvProblem) -> Any:
    """Filters of shape (1, groups, out channels, in channels of a group, taps)."""
    spec = problem.spec
    return w.reshape(1, spec.groups, spec.group_out, spec.group_in, -1)


def by_group(images: Any, problem: ConvProblem) -> Any:
    """Images of shape (N, groups, channels of a group, pixels)."""
    count, channels, height, width = images.shape
    groups = problem.spec.groups
    return images.reshape(count, groups, channels // groups, height * width)


def taps(problem: ConvProblem) -> Iterator[tuple[int, slice, slice]]:
    """Taps of the filter by number, with the rows and columns of the padded input under each."""
    spec = problem.spec
    for tap_h in range(spec.kernel[0]):
        rows = _under(tap_h * spec.dilation[0], problem.out_height, spec.stride[0])
        for tap_w in range(spec.kernel[1]):
            columns = _under(tap_w * spec.dilation[1], problem.out_width, spec.stride[1])
            yield tap_h * spec.kernel[1] + tap_w, rows, columns


def _under(first: int, outputs: int, stride: int) -> slice:
    """Rows (or columns) of the padded input that one tap of the filter meets, output by output."""
    return slice(first, first + (outputs - 1) * stride + 1, stride)


def pad(xp: Any, x: Any, padding: tuple[int, int, int, int]) -> Any:
    """Images with zeros around them."""
    top, bottom, left, right = padding
    if xp is np:
        return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    return xp.nn.functional.pad(x, (left, right, top, bottom))
