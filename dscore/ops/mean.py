"""Mean over the pixels of images: global average pooling.

The layer is a pointwise one of as many channels, without a filter; the result has an element for
each image and channel.
"""

from __future__ import annotations

from typing import Any

from dscore.core.problem import ConvProblem
from dscore.core.spec import Activation
from dscore.ops import Exact, Operand, Operation
from dscore.ops.conv import float64


class Mean(Operation):
    """The sum of an image's pixels, by channel, over their count."""

    name = "mean"

    def operands(self, problem: ConvProblem) -> tuple[Operand, ...]:
        spec = problem.spec
        return (Operand("x", problem.x_shape, "input", spec.element, spec.layout),
                Operand("out", (problem.batch, spec.in_channels), "output", spec.element, "nc"))

    def exact(self, xp: Any, problem: ConvProblem, *inputs: Any) -> Exact:
        """Of k pixels there are k - 1 additions and a division: k roundings."""
        x, pixels = float64(xp, inputs[0]), problem.height * problem.width
        return Exact(x.sum((2, 3)) / pixels, xp.abs(x).sum((2, 3)) / pixels, pixels)

    def macs(self, problem: ConvProblem) -> int:
        return problem.batch * problem.spec.in_channels * problem.height * problem.width

    def activation(self, problem: ConvProblem) -> Activation | None:
        return None
