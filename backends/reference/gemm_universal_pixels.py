"""Pixels of a pointwise layer: where they lie, and, with strides or padding, those of the one side
by those of the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.gemm_universal.tiling import channels_last, gathered
from dscore.backends.reference.machine import Bools, Ints, inside, split
from dscore.core.problem import ConvProblem


def in_images(problem: ConvProblem, layout: Any, of_x: bool, pixel: Ints, channel: Ints
              ) -> tuple[Ints, Ints, Bools]:
    """Where a pixel's channel lies in x or the gradient, its image, and whether it is there."""
    spec = problem.spec
    channels = spec.in_channels if of_x else spec.out_channels
    area = (problem.height * problem.width if of_x else problem.out_height * problem.out_width)
    held: Bools = np.bool_(True)  # type: ignore[assignment]
    if gathered(problem) and (of_x or problem.operation == "input_gradient"):
        pixel, held = (source_of if of_x else result_of)(problem, pixel)
    place, image = split(pixel, area)
    at = (pixel * channels + channel if channels_last(problem) else
          layout.at(image, channel, place, channels, area))
    return at, image, held


def source_of(problem: ConvProblem, pixel: Ints) -> tuple[Ints, Bools]:
    """The input's pixel that an output's is made of."""
    stride_h, stride_w = problem.spec.stride
    column, row, image = split(pixel, problem.out_width, problem.out_height)
    row = row * stride_h - problem.padding[0]
    column = column * stride_w - problem.padding[2]
    held = inside(row, problem.height) & inside(column, problem.width)
    return (image * problem.height + row) * problem.width + column, held


def result_of(problem: ConvProblem, pixel: Ints) -> tuple[Ints, Bools]:
    """The output's pixel that is made of an input's."""
    stride_h, stride_w = problem.spec.stride
    column, row, image = split(pixel, problem.width, problem.height)
    (row, row_left), (column, column_left) = (
        np.divmod(row + problem.padding[0], stride_h),
        np.divmod(column + problem.padding[2], stride_w))
    held = ((row_left == 0) & (column_left == 0) & (row < problem.out_height)
            & (column < problem.out_width))
    return (image * problem.out_height + row) * problem.out_width + column, held
