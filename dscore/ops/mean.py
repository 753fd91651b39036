"""Mean over the pixels of images: global average pooling.

The layer is a pointwise one of as many channels, without a filter; the result has an element for
each image and channel. That of int8 images is of floats (docs/int8.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.core.numerics import ELEMENTS
from dscore.core.problem import ConvProblem
from dscore.core.spec import Activation
from dscore.ops import Exact, Operand, Operation
from dscore.ops.bare import require_bare
from dscore.ops.conv import float64

# Pixels of int8 less a zero point whose sum an int32 holds: 255 is the largest.
MOST_PIXELS = (2**31 - 1) // 255


class Mean(Operation):
    """The sum of an image's pixels, by channel, over their count; of int8
    ``float32(sum(x - zero_point)) * multiplier``."""

    name = "mean"
    of_integers = True

    def operands(self, problem: ConvProblem) -> tuple[Operand, ...]:
        spec = require_bare(problem, "images")
        of_integers = (Operand("multiplier", (1,), "input", ELEMENTS["float32"]),
                       Operand("zero_point", (1,), "input", ELEMENTS["int32"]))
        return (Operand("x", problem.x_shape, "input", spec.element, spec.layout),
                *(of_integers if spec.element.exact else ()),
                Operand("out", (problem.batch, spec.in_channels), "output", spec.out_element, "nc"))

    def exact(self, xp: Any, problem: ConvProblem, *inputs: Any) -> Exact:
        """Of k pixels there are k - 1 additions and a division: k roundings. Of int8 there is one
        of the sum, of the product, and of the result to float16."""
        x, pixels = float64(xp, inputs[0]), problem.height * problem.width
        if problem.spec.element.exact:
            means = means_of_integers(xp, problem, x.sum((2, 3)), *inputs[1:])
            with np.errstate(over="ignore"):  # to an infinity
                means = xp.asarray(means, dtype=getattr(xp, problem.spec.out_element.name))
            return Exact(float64(xp, means), None, pixels)
        return Exact(x.sum((2, 3)) / pixels, xp.abs(x).sum((2, 3)) / pixels, pixels)

    def macs(self, problem: ConvProblem) -> int:
        return problem.batch * problem.spec.in_channels * problem.height * problem.width

    def activation(self, problem: ConvProblem) -> Activation | None:
        return None


def means_of_integers(xp: Any, problem: ConvProblem, sums: Any, multiplier: Any,
                      zero_point: Any) -> Any:
    """Means by the sums of bytes, in float32."""
    differences = sums - problem.height * problem.width * float64(xp, zero_point)
    return xp.asarray(differences, dtype=xp.float32) * xp.asarray(multiplier, dtype=xp.float32)
