"""Gradients of a convolution: by its input, by its filter, and by both at once; in float64 and as
operands.

A gradient's problem is that of the forward layer, which then has neither bias nor activation,
residual or scale: their gradients are sums and products of elements.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from dscore.core.errors import SpecError
from dscore.core.problem import ConvProblem
from dscore.core.spec import ConvSpec
from dscore.ops import Exact, Operand, Operation, Part
from dscore.ops.bare import require_bare
from dscore.ops.conv import by_group, by_tap, float64, pad, taps


class InputGradient(Operation):
    """Gradient of a loss by the input: the adjoint of ``conv(·, w)`` applied to the output's.

    An input that no output depends on has a gradient of zero.
    """

    name = "input_gradient"

    def operands(self, problem: ConvProblem) -> tuple[Operand, ...]:
        spec = _require_linear(problem)
        return (Operand("gradient", problem.y_shape, "input", spec.element, spec.layout),
                Operand("w", spec.w_shape, "input", spec.element),
                Operand("out", problem.x_shape, "output", spec.element, spec.layout))

    def exact(self, xp: Any, problem: ConvProblem, *inputs: Any) -> Exact:
        """*inputs* are the output's gradient (NCHW, of any number of images) and w."""
        gradient, w = (float64(xp, array) for array in inputs)
        return Exact(_spread(xp, problem, gradient, w),
                     _spread(xp, problem, xp.abs(gradient), xp.abs(w)), products(problem))


class Gradients(Operation):
    """Both gradients of a loss, by the input and by the filter, from that by the output.

    Kernels that make both read the output's gradient once.
    """

    name = "gradients"
    widens = True  # the filter's

    def operands(self, problem: ConvProblem) -> tuple[Operand, ...]:
        spec = _require_linear(problem)
        return (Operand("x", problem.x_shape, "input", spec.element, spec.layout),
                Operand("gradient", problem.y_shape, "input", spec.element, spec.layout),
                Operand("w", spec.w_shape, "input", spec.element),
                Operand("x_gradient", problem.x_shape, "output", spec.element, spec.layout),
                Operand("out", spec.w_shape, "output", spec.out_element))

    def parts(self, problem: ConvProblem) -> tuple[Part, ...]:
        return tuple(Part(replace(problem, operation=name, spec=spec), inputs)
                     for name, spec, inputs in (
                         ("input_gradient", problem.spec.with_own_result(), (1, 2)),
                         ("weight_gradient", problem.spec, (0, 1))))

    def exact(self, xp: Any, problem: ConvProblem, *inputs: Any) -> Exact:
        raise SpecError("both gradients have no one exact result; their parts have "
                        "(dscore.ops.parts_of)")

    def macs(self, problem: ConvProblem) -> int:
        return 2 * problem.macs


class WeightGradient(Operation):
    """Gradient of a loss by the filter: for each tap, sums over all images and outputs."""

    name = "weight_gradient"
    widens = True  # sums of float32, which mixed precision need not round

    def operands(self, problem: ConvProblem) -> tuple[Operand, ...]:
        spec = _require_linear(problem)
        return (Operand("x", problem.x_shape, "input", spec.element, spec.layout),
                Operand("gradient", problem.y_shape, "input", spec.element, spec.layout),
                Operand("out", spec.w_shape, "output", spec.out_element))

    def exact(self, xp: Any, problem: ConvProblem, *inputs: Any) -> Exact:
        """*inputs* are x and the output's gradient (NCHW, of all images)."""
        x, gradient = (float64(xp, array) for array in inputs)
        return Exact(_correlated(xp, problem, x, gradient),
                     _correlated(xp, problem, xp.abs(x), xp.abs(gradient)),
                     problem.batch * problem.out_height * problem.out_width)


def products(problem: ConvProblem) -> int:
    """Products summed into one element of the input's gradient, at most.

    Of the taps of an axis, an element meets those whose distance is a multiple of the stride.

    >>> from dscore.core.token import parse_problem
    >>> products(parse_problem("n1c8h9w9_o8k3s2p1g8"))
    4
    """
    spec = problem.spec
    met = (-(-kernel // (stride // math.gcd(stride, dilation))) for kernel, stride, dilation
           in zip(spec.kernel, spec.stride, spec.dilation, strict=True))
    return spec.group_out * math.prod(met)


def _require_linear(problem: ConvProblem) -> ConvSpec:
    """The layer of *problem*; SpecError where it is more than a convolution of floats."""
    exact = (f"the element type {problem.spec.dtype}",) * problem.spec.element.exact
    return require_bare(problem, "a convolution", *exact)


def _spread(xp: Any, problem: ConvProblem, gradient: Any, w: Any) -> Any:
    """Gradient of the input: each output's goes to the elements under its taps."""
    top, _, left, _ = problem.padding
    image = np.zeros((len(gradient), *problem.x_shape[1:]))
    padded = pad(xp, image if xp is np else gradient.new_zeros(image.shape), problem.padding)
    filters = xp.swapaxes(by_tap(w, problem), 2, 3)
    grouped = by_group(gradient, problem)
    for tap, rows, columns in taps(problem):
        part = padded[:, :, rows, columns]
        part += xp.matmul(filters[..., tap], grouped).reshape(part.shape)
    return padded[:, :, top:top + problem.height, left:left + problem.width]


def _correlated(xp: Any, problem: ConvProblem, x: Any, gradient: Any) -> Any:
    """Gradient of the filter: for each tap, the outputs' gradients by the inputs under it."""
    padded, grouped = pad(xp, x, problem.padding), by_group(gradient, problem)
    sums = [xp.matmul(grouped, xp.swapaxes(by_group(padded[:, :, rows, columns], problem), 2, 3)
                      ).sum(0) for _, rows, columns in taps(problem)]
    return xp.stack(sums, -1).reshape(problem.spec.w_shape)
