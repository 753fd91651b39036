"""Gate of squeeze-and-excitation: a factor for each image and channel, made of the image itself.

``sigmoid(W2 activation(W1 mean(x) + b1) + b2)`` of the means over an image's pixels (Hu et al.,
Squeeze-and-Excitation Networks, CVPR 2018, Eq. 2 and 3; here with any activation that leaves 0).
The layer is the first of the two, pointwise: as many input channels as x has, and as many output
channels as stand between. The second one leads back. Of int8 images the filters, the biases and
the result are floats of the result's type (docs/int8.md).
"""

from __future__ import annotations

from typing import Any, ClassVar

from dscore.core.errors import SpecError
from dscore.core.numerics import ELEMENTS
from dscore.core.problem import ConvProblem
from dscore.core.spec import Activation, ConvSpec
from dscore.ops import Exact, Operand, Operation
from dscore.ops.conv import LIPSCHITZ, activated, float64
from dscore.ops.mean import means_of_integers

# Activations between the layers: those whose result is no further from 0 than their argument.
BETWEEN: tuple[Activation | None, ...] = (None, "relu", "relu6", "silu", "hardswish")
# Roundings of these, of the argument's size at most, and what stands for results that are flushed
# (docs/bounds.md).
_OWN_ROUNDINGS, _FLUSHED = 22, 2.0**-100


class Gate(Operation):
    """The second layer's activation is sigmoid."""

    name = "gate"
    of_integers = True
    last: ClassVar[Activation] = "sigmoid"

    def operands(self, problem: ConvProblem) -> tuple[Operand, ...]:
        spec = _require_gate(problem)
        channels, between, floats = spec.in_channels, spec.out_channels, spec.out_element
        of_integers = (Operand("multiplier", (1,), "input", ELEMENTS["float32"]),
                       Operand("zero_point", (1,), "input", ELEMENTS["int32"]))
        return (Operand("x", problem.x_shape, "input", spec.element, spec.layout),
                Operand("w", (between, channels, 1, 1), "input", floats),
                Operand("bias", (between,), "input", floats, present=spec.bias),
                Operand("second_w", (channels, between, 1, 1), "input", floats),
                Operand("second_bias", (channels,), "input", floats, present=spec.bias),
                *(of_integers if spec.element.exact else ()),
                Operand("out", (problem.batch, channels), "output", floats, "nc"))

    def exact(self, xp: Any, problem: ConvProblem, *inputs: Any) -> Exact:
        """Before sigmoid. What the first layer and its activation err by counts as further
        roundings of the products that the second one sums, of a magnitude with the constant of
        Lipschitz (docs/bounds.md)."""
        spec, pixels = problem.spec, problem.height * problem.width
        x, w, bias, second_w, second_bias, *of_integers = inputs
        x, w, second_w = (float64(xp, one) for one in (x, w, second_w))
        w, second_w = w[:, :, 0, 0], second_w[:, :, 0, 0]
        if spec.element.exact:
            means = float64(xp, means_of_integers(xp, problem, x.sum((2, 3)), *of_integers))
            sizes, roundings = xp.abs(means), 0
        else:
            means, sizes = x.sum((2, 3)) / pixels, xp.abs(x).sum((2, 3)) / pixels
            roundings = pixels
        sums, terms = means @ w.T, (sizes + _FLUSHED) @ xp.abs(w).T + _FLUSHED
        if bias is not None:
            sums, terms = sums + float64(xp, bias), terms + xp.abs(float64(xp, bias))
        between = activated(xp, sums, spec.activation)
        y = between @ second_w.T
        magnitude = LIPSCHITZ[spec.activation] * (terms @ xp.abs(second_w).T)
        roundings += spec.in_channels + 1 + _OWN_ROUNDINGS + spec.out_channels
        if second_bias is None:
            return Exact(y, magnitude, roundings)
        addend = float64(xp, second_bias)
        return Exact(y + addend, magnitude, roundings, (xp.abs(addend),))

    def macs(self, problem: ConvProblem) -> int:
        spec = problem.spec
        pixels = problem.height * problem.width
        return problem.batch * spec.in_channels * (pixels + 2 * spec.out_channels)

    def activation(self, problem: ConvProblem) -> Activation | None:
        return self.last


class HardGate(Gate):
    """The second layer's activation is hardsigmoid (Howard et al., Searching for MobileNetV3,
    ICCV 2019, section 5.2)."""

    name = "hard_gate"
    last = "hardsigmoid"


def gate_operation(last: Activation | None) -> str | None:
    """The operation whose second layer has an activation; None where there is none.

    >>> gate_operation("hardsigmoid"), gate_operation("relu")
    ('hard_gate', None)
    """
    return next((one.name for one in (Gate, HardGate) if one.last == last), None)


def _require_gate(problem: ConvProblem) -> ConvSpec:
    """The layer of a gate's *problem*; SpecError where it is none."""
    spec = problem.spec
    wrong = {f"a {spec.kind} layer": spec.kind != "pointwise",
             f"the activation {spec.activation} between": spec.activation not in BETWEEN,
             f"the stride {spec.stride}": spec.stride != (1, 1),
             f"the padding {problem.padding}": any(problem.padding),
             "a residual": spec.residual, "a scale": spec.scaled, "a table": spec.table,
             "a result of int8": spec.out_element.exact,
             f"a filter of the form {spec.filter}": spec.filter != "plain"}
    there = [name for name, one in wrong.items() if one]
    if there:
        able = ", ".join(str(one) for one in BETWEEN if one)
        raise SpecError(f"a gate is of a pointwise layer without stride and padding, with or "
                        f"without a bias, with the activation {able} or none, and a result of "
                        f"floats; this one has {', '.join(there)}")
    return spec
