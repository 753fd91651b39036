"""Hypothesis strategies that algorithms share: templates of kernels, and sizes around a tile.

A case is drawn in two steps: a template, which is all that a kernel is compiled for, and a problem
for it, so that a backend which compiles can run many problems on few kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hypothesis import assume
from hypothesis import strategies as st

from dscore import ops
from dscore.core.device import Device
from dscore.core.errors import SpecError
from dscore.core.numerics import ACCUMULATOR, ELEMENTS, FLOAT_RESULTS, FLOATS, Element
from dscore.core.problem import ConvProblem
from dscore.core.sizes import Pair
from dscore.core.spec import ACTIVATIONS, CLAMPS, RESIDUALS, ConvSpec
from dscore.core.tiling import Tiling

# A case must stay small enough for thousands of them: products of the whole problem.
MOST_MACS = 400_000


@dataclass(frozen=True)
class Template:
    """Constants of a compiled kernel; an algorithm adds what else its kernel depends on."""

    device: Device
    tiling: Tiling
    kernel: Pair
    stride: Pair
    dilation: Pair
    options: tuple[tuple[str, Any], ...]  # the operation, and those of ConvSpec beside its sizes

    @property
    def element(self) -> Element:
        """The element type of its tensors."""
        return ELEMENTS[dict(self.options)["dtype"]]

    @property
    def operation(self) -> str:
        """The operation of its problems."""
        return str(dict(self.options).get("operation", "conv"))

    def spec(self, channels: int, out: int, groups: int, padding: Any) -> ConvSpec:
        """A layer that the template's kernel runs."""
        of_layer = {name: value for name, value in self.options if name != "operation"}
        return ConvSpec.make(channels, out, self.kernel, stride=self.stride, padding=padding,
                             dilation=self.dilation, groups=groups, **of_layer)


class Cases(Protocol):
    """Strategies that the module `cases` of an algorithm offers."""

    def templates(self, device: Device) -> st.SearchStrategy[Template]:
        """Templates of its kernels for a device."""

    def problems(self, template: Template) -> st.SearchStrategy[ConvProblem]:
        """Problems that the kernel of a template runs."""


def sizes(tile: int, most: int) -> st.SearchStrategy[int]:
    """Sizes around multiples of a tile, k·tile + {−1, 0, 1}, and small ones."""
    around = {k * tile + off for k in (1, 2, 3) for off in (-1, 0, 1)}
    return st.sampled_from(sorted({size for size in around if 1 <= size <= most} | {1, 2, 3}))


def sides(most: int) -> st.SearchStrategy[Any]:
    """Padding of each side up to *most*."""
    side = st.integers(0, most)
    return st.tuples(side, side, side, side)


def halves(draw: Any, margin: Pair) -> list[Pair]:
    """Padding that comes to *margin* on both sides together."""
    first = [draw(st.integers(0, most)) for most in margin]
    return [(before, most - before) for before, most in zip(first, margin, strict=True)]


def pairs(most: int) -> st.SearchStrategy[Any]:
    """(height, width), each from 1 to *most*."""
    return st.tuples(st.integers(1, most), st.integers(1, most))


@st.composite
def options(draw: Any, algorithm: type[Any], scaled: bool = False,
            operations: Sequence[str] = ()) -> Any:
    """An operation that *algorithm* takes (or of *operations*), and options of its layer: element
    type and layout; of a convolution with and without bias, residual and scale, any activation.
    """
    operation = draw(st.sampled_from(operations or algorithm.operations))
    types = [name for name in algorithm.elements
             if ops.operation(operation).of_integers or not ELEMENTS[name].exact]
    dtype = draw(st.sampled_from(types))
    common = (("operation", operation), ("dtype", dtype),
              ("layout", draw(st.sampled_from(algorithm.layouts))))
    if operation != "conv":
        return (*common, ("out_dtype", draw(st.sampled_from(_results(operation, dtype)))))
    if ELEMENTS[dtype].exact:
        return (*common, *draw(of_integers(scaled, algorithm.quantises)))
    return (*common, ("bias", draw(st.booleans())),
            ("activation", draw(st.sampled_from((None, *ACTIVATIONS)))),
            ("residual", draw(st.sampled_from((None, None, *RESIDUALS)))),
            ("scaled", scaled and draw(st.booleans())))


def _results(operation: str, dtype: str) -> tuple[str | None, ...]:
    """Types of the results of another operation than a convolution; None for *dtype*."""
    element = ELEMENTS[dtype]
    if element.exact:
        return FLOAT_RESULTS
    widens = ops.operation(operation).widens and element.bytes < ACCUMULATOR.bytes
    return (None, *[ACCUMULATOR.name] * widens)


@st.composite
def of_integers(draw: Any, scaled: bool = False, quantises: bool = False) -> Any:
    """Options of a layer of int8: with and without bias and scale, any type of result; relu of
    floats; of int8 with and without residual and table; x of floats, where it *quantises* that."""
    out_dtype = draw(st.sampled_from((None, None, *FLOAT_RESULTS)))
    scaled = scaled and draw(st.booleans())
    in_dtype = draw(st.sampled_from((None, *FLOATS))) if quantises and not scaled else None
    common = (("out_dtype", out_dtype), ("bias", draw(st.booleans())), ("scaled", scaled),
              ("in_dtype", in_dtype))
    if out_dtype:
        return (*common, ("activation", draw(st.sampled_from((None, *CLAMPS)))))
    residual = None if in_dtype else draw(st.sampled_from((None, "before")))
    return (*common, ("residual", residual),
            ("table", draw(st.booleans())))


def problem_around(draw: Any, spec: ConvSpec, out: Pair) -> ConvProblem:
    """A problem of a layer whose output is about *out*."""
    top, bottom, left, right = spec.padding if spec.padding != "same" else (0, 0, 0, 0)
    height = input_size(draw, out[0], spec.span[0], spec.stride[0], top + bottom)
    width = input_size(draw, out[1], spec.span[1], spec.stride[1], left + right)
    return problem_on(draw, spec, (height, width))


def problem_on(draw: Any, spec: ConvSpec, image: Pair) -> ConvProblem:
    """A problem of a layer on images of a size; draws that make none are rejected."""
    try:
        problem = ConvProblem(spec, draw(st.integers(1, 2)), *image)
    except SpecError:  # a kernel larger than the padded image
        assume(False)
        raise
    assume(problem.macs <= MOST_MACS)
    return problem


def input_size(draw: Any, out: int, span: int, stride: int, padding: int) -> int:
    """An input size that gives *out* outputs, as far as the padding allows one."""
    return max(1, (out - 1) * stride + span - padding + int(draw(st.integers(0, stride - 1))))
