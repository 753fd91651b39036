"""Operations: what is computed, one module for each and one line in the registry here.

An operation states its operands, in the order in which kernels, arrays and records have them, and
its exact result. Everything above goes by that list: adding an operation edits no other module.
One with several results is checked by operations with one, its parts.
"""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dscore.core.errors import SpecError
from dscore.core.numerics import Element
from dscore.core.once import once
from dscore.core.problem import ConvProblem
from dscore.core.spec import Activation


@dataclass(frozen=True)
class Operand:
    """One tensor of an operation; *present* is False for one that a layer lacks, as a bias."""

    name: str
    shape: tuple[int, ...]
    role: Literal["input", "output"]
    element: Element
    layout: str = ""  # of images, the batch first: nchw, nhwc; empty for filters and vectors
    present: bool = True

    @property
    def elements(self) -> int:
        """How many there are."""
        return math.prod(self.shape) if self.present else 0


@dataclass(frozen=True)
class Exact:
    """Result in float64 before the activation, and what its error bound is made of."""

    y: Any
    magnitude: Any  # the sum of the products' absolute values; None: y is the result itself
    products: int  # summed into one output, k of γ_k
    addends: tuple[Any, ...] = ()  # absolute values of what is added to the products, as a bias
    after: Any = None  # what is added after the activation


@dataclass(frozen=True)
class Part:
    """One result of an operation: the problem whose result it is, and which of the operation's
    inputs that one takes, by their numbers; None: all."""

    problem: ConvProblem
    inputs: tuple[int, ...] | None = None

    def inputs_of(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Those of the operation's *inputs*."""
        return inputs if self.inputs is None else [inputs[number] for number in self.inputs]


class Operation(ABC):
    """What is computed of a layer on an input; its last operands are the results, nearly always
    one."""

    name: ClassVar[str]
    of_integers: ClassVar[bool] = False  # whether it is one of layers of int8, too
    widens: ClassVar[bool] = False  # whether its result may be float32 where its inputs are not

    @abstractmethod
    def operands(self, problem: ConvProblem) -> tuple[Operand, ...]:
        """Its tensors, in their order."""

    @abstractmethod
    def exact(self, xp: Any, problem: ConvProblem, *inputs: Any) -> Exact:
        """The exact result of *inputs*, arrays of the library *xp* (NumPy or PyTorch), for a
        *problem* whose layout is NCHW."""

    def parts(self, problem: ConvProblem) -> tuple[Part, ...]:
        """Its results by operations with one result."""
        return (Part(problem),)

    def macs(self, problem: ConvProblem) -> int:
        """Its multiply-adds, by the direct definition."""
        return problem.macs

    def activation(self, problem: ConvProblem) -> Activation | None:
        """The activation of its result."""
        return problem.spec.activation


# Text, so that nothing is imported before its use.
_REGISTRY: dict[str, str] = {
    "conv": "dscore.ops.conv:Convolution",
    "input_gradient": "dscore.ops.gradients:InputGradient",
    "weight_gradient": "dscore.ops.gradients:WeightGradient",
    "gradients": "dscore.ops.gradients:Gradients",
    "quantise": "dscore.ops.quantise:Quantise",
    "mean": "dscore.ops.mean:Mean",
    "gate": "dscore.ops.gate:Gate",
    "hard_gate": "dscore.ops.gate:HardGate",
}


def register(name: str, target: str) -> None:
    """Make the operation at *target* ("module:Class") known as *name*."""
    _REGISTRY[name] = target
    operation.cache_clear()


@once
def operation(name: str) -> Operation:
    """The operation of a name; SpecError for an unknown one."""
    if name not in _REGISTRY:
        raise SpecError(f"unknown operation {name!r}; there are {', '.join(_REGISTRY)}")
    module, _, attribute = _REGISTRY[name].partition(":")
    one: Operation = getattr(importlib.import_module(module), attribute)()
    return one


def operands_of(problem: ConvProblem) -> tuple[Operand, ...]:
    """The operands of a problem's operation; SpecError for a result of a type that it has not.

    >>> from dscore.core.token import parse_problem
    >>> [(one.name, one.shape) for one in operands_of(parse_problem("n1c8h5w5_o4k1"))
    ...  if one.present]
    [('x', (1, 8, 5, 5)), ('w', (4, 8, 1, 1)), ('out', (1, 4, 5, 5))]
    """
    one, spec = operation(problem.operation), problem.spec
    if spec.widened and not one.widens:
        raise SpecError(f"out_dtype is {spec.out_dtype} for {problem.operation} of {spec.dtype}, "
                        f"whose result is {spec.dtype}; leave it out (weight gradients alone are "
                        "of float32 where their images have 16 bits)")
    return one.operands(problem)


def channels_first(xp: Any, operand: Operand, array: Any) -> Any:
    """A view in NCHW of an operand's *array*; of one that is no image, that itself."""
    return xp.moveaxis(array, -1, 1) if operand.layout == "nhwc" else array


def as_laid_out(xp: Any, operand: Operand, array: Any) -> Any:
    """A view in an operand's own layout of an *array* in NCHW."""
    return xp.moveaxis(array, 1, -1) if operand.layout == "nhwc" else array


def output_of(problem: ConvProblem) -> Operand:
    """The last result's operand: shape, element type, layout."""
    return operands_of(problem)[-1]


def outputs_of(problem: ConvProblem) -> tuple[Operand, ...]:
    """The operands of all results, in their order.

    >>> from dscore.core.token import parse_problem
    >>> [one.name for one in outputs_of(parse_problem("gradients_n1c8h5w5_o8k3p1g8_nhwc"))]
    ['x_gradient', 'out']
    """
    return tuple(one for one in operands_of(problem) if one.role == "output")


def parts_of(problem: ConvProblem) -> tuple[Part, ...]:
    """The results of a problem by operations with one result, in the order of `outputs_of`."""
    return operation(problem.operation).parts(problem)


def parts_instead(problem: ConvProblem) -> str:
    """What a user may ask for in place of an operation of several results that nothing computes;
    empty for one of one result."""
    names = [part.problem.operation for part in parts_of(problem)]
    return f"; take {' and '.join(names)} one by one" if len(names) > 1 else ""


def split(problem: ConvProblem, arrays: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The inputs and the results of *arrays*, one for each operand."""
    count = len(arrays) - len(outputs_of(problem))
    return tuple(arrays[:count]), tuple(arrays[count:])


def flops(problem: ConvProblem) -> int:
    """Floating-point operations by the direct definition, two for a multiply-add."""
    return 2 * operation(problem.operation).macs(problem)


def compulsory_bytes(problem: ConvProblem) -> int:
    """Bytes of all operands, each moved once."""
    return sum(one.elements * one.element.bytes for one in operands_of(problem))
