"""The view of a depthwise layer that its kernel has: an image walked over, and an image written.

A convolution walks over the rows of x and writes the output. The input gradient walks over the rows
of the output's gradient and writes that of x. Everything about a tile follows from which tap lies
between two rows, or columns (hip_src/row_reuse/view.hpp).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dscore.algorithms.columns import Count
from dscore.core.problem import ConvProblem


@dataclass(frozen=True)
class Axis:
    """Rows, or columns, of both images; positions are counted from a tile's first.

    A convolution has ``position = written * stride + tap * dilation``, an input gradient
    ``position * stride + tap * dilation = written + lead``.
    """

    kernel: int
    stride: int
    dilation: int
    walked_size: int
    written_size: int
    pad: int  # before the first
    gradient: bool

    @property
    def span(self) -> int:
        """Elements of x under one output."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def unit(self) -> int:
        """Written ones of a thread are a multiple of this."""
        return self.stride if self.gradient else 1

    @property
    def lead(self) -> int:
        """The padding less a multiple of the stride: the least with which no tap of a position
        before a tile's first lies in the tile; 0 for a convolution.
        """
        least = max(0, self.span - self.stride)
        return least + (self.pad - least) % self.stride if self.gradient else 0

    @property
    def first(self) -> int:
        """The first position of the tile that begins the image; below 0 in the padding."""
        return (self.pad - self.lead) // self.stride if self.gradient else -self.pad

    @property
    def end(self) -> int:
        """One past the last position that a tap connects with what is written; 0 or less if none.
        """
        return min(self.walked_size, self.first + int(self.under(self.written_size)))

    def step(self, written: Count) -> Count:
        """Positions from the first of a tile to that of one which begins *written* further on."""
        return written // self.stride if self.gradient else written * self.stride

    def under(self, written: Count) -> Count:
        """Positions that a tile of *written* walks over."""
        if self.gradient:
            return (written - 1 + self.lead) // self.stride + 1
        return (written - 1) * self.stride + self.span

    def live(self, written: Count) -> Count:
        """Of a tile of *written*, the most that are accumulated at a time.

        For a convolution of dilation 1: ceil(F_H / stride).
        """
        most = max(self.span, self.stride) if self.gradient else (self.span - 1) // self.stride + 1
        return np.minimum(written, most)

    def position(self, written: int, tap: int) -> int | None:
        """The position that *tap* connects with a written one."""
        if not self.gradient:
            return written * self.stride + tap * self.dilation
        first, rest = divmod(written + self.lead - tap * self.dilation, self.stride)
        return first if rest == 0 and first >= 0 else None

    def complete(self, position: int) -> int:
        """Written ones that are complete before a position, those that no tap reaches included."""
        if self.gradient:
            return max(0, position * self.stride - self.lead)
        return max(0, (position - self.span) // self.stride + 1)

    @property
    def positions(self) -> int:
        """Positions between the first and the last that a written one's taps lie on."""
        return (self.span - 1) // self.stride + 1 if self.gradient else self.span

    def products(self, written: Count) -> Count:
        """Taps of a tile of *written*, a multiple of the unit, that lie on positions."""
        return written // self.unit * self.kernel


@dataclass(frozen=True)
class View:
    """Both axes, and the planes."""

    rows: Axis
    columns: Axis
    planes: int  # written ones, of all images
    multiplier: int  # written planes for each that is walked over


def view_of(problem: ConvProblem) -> View:
    """The view that the kernel of a problem has.

    >>> from dscore.core.token import parse_problem
    >>> axis = view_of(parse_problem("input_gradient_n1c8h9w9_o8k3s2p1g8")).rows
    >>> axis.walked_size, axis.written_size, [axis.position(1, tap) for tap in range(3)]
    (5, 9, [1, None, 0])
    """
    rows, columns = axes_of(problem)
    return View(rows, columns, problem.batch * problem.spec.out_channels, problem.spec.group_out)


def axes_of(problem: ConvProblem) -> tuple[Axis, Axis]:
    """Rows and columns of both images; of a weight gradient x and the output's, as forward, and of
    both gradients at once those of the input's."""
    spec, gradient = problem.spec, problem.operation in ("input_gradient", "gradients")
    sizes = (problem.height, problem.out_height), (problem.width, problem.out_width)
    rows, columns = (
        Axis(kernel, stride, dilation, *(size[::-1] if gradient else size), pad, gradient)
        for kernel, stride, dilation, size, pad in zip(
            spec.kernel, spec.stride, spec.dilation, sizes, problem.padding[::2], strict=True))
    return rows, columns
