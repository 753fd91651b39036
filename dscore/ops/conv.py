"""Convolution: operands, and the exact result by the direct definition in float64.

*xp* is the library: NumPy, or PyTorch, whose tensors stay on their device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.core.problem import ConvProblem
from dscore.core.spec import Activation
from dscore.ops import Exact, Operand, Operation


class Convolution(Operation):
    """``activation(conv(x, w) + bias)`` in the cross-correlation sense of deep learning."""

    name = "conv"

    def operands(self, problem: ConvProblem) -> tuple[Operand, ...]:
        spec = problem.spec
        return (Operand("x", problem.x_shape, "input", spec.element, spec.layout),
                Operand("w", spec.w_shape, "input", spec.element),
                Operand("bias", (spec.out_channels,), "input", spec.element, present=spec.bias),
                Operand("out", problem.y_shape, "output", spec.element, spec.layout))

    def exact(self, xp: Any, problem: ConvProblem, *inputs: Any) -> Exact:
        """*inputs* are x (NCHW, of any number of images), w and, if there is one, bias.

        Equation 2 of Jia et al. 2020 with groups.
        """
        x, w = (float64(xp, array) for array in inputs[:2])
        bias = inputs[2] if len(inputs) > 2 else None
        y = _summed(xp, problem, x, w)
        magnitude = _summed(xp, problem, xp.abs(x), xp.abs(w))
        if bias is None:
            return Exact(y, magnitude, problem.spec.products)
        column = float64(xp, bias)[None, :, None, None]
        return Exact(y + column, magnitude, problem.spec.products, xp.abs(column))


def activated(xp: Any, y: Any, activation: Activation | None) -> Any:
    """Activation of *y*, in float64."""
    if activation in ("relu", "relu6"):
        return xp.clip(y, 0.0, np.inf if activation == "relu" else 6.0)
    if activation == "silu":
        with np.errstate(over="ignore"):
            return y / (1 + xp.exp(-y))
    if activation == "hardswish":
        return y * xp.clip(y + 3, 0, 6) / 6
    return y


def float64(xp: Any, values: Any) -> Any:
    """Values in float64, on their own device."""
    return xp.asarray(values, dtype=xp.float64)


def _summed(xp: Any, problem: ConvProblem, x: Any, w: Any) -> Any:
    """Sum over the filter's taps: of products of matrices, a matrix per image and group, or of
    products of elements where a group has one channel.
    """
    spec, images, pixels = problem.spec, x.shape[0], problem.out_height * problem.out_width
    padded = _padded(xp, x, problem.padding)
    taps = w.reshape(1, spec.groups, spec.group_out, spec.group_in, *spec.kernel)
    multiply = xp.multiply if spec.group_in == 1 else xp.matmul
    y: Any = 0
    for tap_h in range(spec.kernel[0]):
        rows = _under(tap_h * spec.dilation[0], problem.out_height, spec.stride[0])
        for tap_w in range(spec.kernel[1]):
            columns = _under(tap_w * spec.dilation[1], problem.out_width, spec.stride[1])
            y += multiply(taps[..., tap_h, tap_w], padded[:, :, rows, columns].reshape(
                images, spec.groups, spec.group_in, pixels))
    return y.reshape(images, spec.out_channels, problem.out_height, problem.out_width)


def _under(first: int, outputs: int, stride: int) -> slice:
    """Rows (or columns) of the padded input that one tap of the filter meets, output by output."""
    return slice(first, first + (outputs - 1) * stride + 1, stride)


def _padded(xp: Any, x: Any, padding: tuple[int, int, int, int]) -> Any:
    top, bottom, left, right = padding
    if xp is np:
        return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    return xp.nn.functional.pad(x, (left, right, top, bottom))
