"""Quantisation of images: integers of int8 for floats, by one scale and zero point.

docs/int8.md states the arithmetic. The layer is a pointwise one of as many channels, without a
filter.
"""

from __future__ import annotations

from typing import Any

from dscore.core.numerics import ELEMENTS
from dscore.core.problem import ConvProblem
from dscore.core.spec import Activation
from dscore.ops import Exact, Operand, Operation
from dscore.ops.bare import require_bare
from dscore.ops.quantised import integers_of


class Quantise(Operation):
    """``clamp(rint(float32(x) * multiplier) + zero_point, -128, 127)``, as int8."""

    name = "quantise"

    def operands(self, problem: ConvProblem) -> tuple[Operand, ...]:
        spec = require_bare(problem, "images")
        return (Operand("x", problem.x_shape, "input", spec.element, spec.layout),
                Operand("multiplier", (1,), "input", ELEMENTS["float32"]),
                Operand("zero_point", (1,), "input", ELEMENTS["int32"]),
                Operand("out", problem.x_shape, "output", ELEMENTS["int8"], spec.layout))

    def exact(self, xp: Any, problem: ConvProblem, *inputs: Any) -> Exact:
        return Exact(integers_of(xp, *inputs), None, 1)

    def macs(self, problem: ConvProblem) -> int:
        return problem.batch * problem.spec.in_channels * problem.height * problem.width

    def activation(self, problem: ConvProblem) -> Activation | None:
        return None
