"""Cases of the split sum over pixels: both arithmetics, rings, parts, planes, vectors."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.columns import ceil_div
from dscore.algorithms.split_k import SplitK
from dscore.algorithms.split_k.tiling import SplitKTiling, vectors_of
from dscore.algorithms.templates import (
    MOST_MACS,
    Template,
    options,
    pairs,
    problem_around,
    sides,
    sizes,
)
from dscore.core.device import Device
from dscore.core.numerics import ACCUMULATOR, ELEMENTS
from dscore.core.problem import ConvProblem


@dataclass(frozen=True)
class SplitKTemplate(Template):
    """Template with the elements of the gradient, the input and the result that move as one."""

    vectors: tuple[int, int, int]


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """Both arithmetics, two buffers and a ring of them, parts, planes, vectors, single elements."""
    drawn = draw(options(SplitK))
    element = ELEMENTS[dict(drawn)["dtype"]]
    split = ("tf32" in device.matrix_types and element == ACCUMULATOR and draw(st.booleans()))
    lanes_o = 8 if split else draw(st.sampled_from((4, 8, 16)))
    wave_o = (16 if split else lanes_o) * draw(st.integers(1, 3))
    wave_i = (8 if split else device.wavefront // lanes_o) * draw(st.integers(1, 3))
    slices, planes = draw(st.integers(1, 3)), draw(st.booleans())
    slice_pixels = (draw(st.integers(1, 30)) if planes
                    else (8 if split else 4) * draw(st.integers(1, 3)))
    tiling = SplitKTiling(
        tile_o=draw(st.integers(1, 2)) * wave_o, tile_i=draw(st.integers(1, 2)) * wave_i,
        wave_o=wave_o, wave_i=wave_i, lanes_o=lanes_o, slices=slices,
        step=slices * slice_pixels,
        stages=draw(st.integers(2, 4)) if device.asynchronous_copies else 2,
        parts=draw(st.sampled_from((1, 2, 3, 9, 20))), planes=planes,
        arithmetic="tf32x3" if split else "plain",
        cluster=draw(st.integers(1, min(3, device.cluster_blocks))))
    whole = VECTOR_BYTES // element.bytes
    assume(not planes or (whole > 1 and tiling.tile_i % whole == 0))
    vectors = ((whole,) * 3 if planes
               else tuple(draw(st.sampled_from((1, whole))) for _ in range(3)))
    # Where the input moves as vectors, so does the gradient, whose pixels are the same.
    stride = (1, 1) if vectors[1] > 1 else draw(st.one_of(st.just((1, 1)), pairs(2)))
    assume(vectors[0] >= vectors[1])
    return SplitKTemplate(device, tiling, (1, 1), stride, (1, 1), drawn, vectors)


@st.composite
def problems(draw: Any, template: SplitKTemplate) -> ConvProblem:
    """Pixels around the steps and the shares of them, channels around the tile."""
    t, (width_g, width_x, width_w) = template.tiling, template.vectors
    most = VECTOR_BYTES // template.element.bytes
    assert isinstance(t, SplitKTiling)
    if t.planes:
        of_planes: ConvProblem = draw(_problems_of_planes(template, most))
        return of_planes
    outs = draw(sizes(t.tile_o, 140))
    channels = draw(st.sampled_from(sorted(
        size for k in (1, 2) for off in (-4, -1, 0, 1, 4)
        if 1 <= (size := k * t.tile_i + off) <= 140 and (size % most == 0) == (width_w > 1)
    ) or [most * width_w]))
    pixels = min(draw(sizes(t.step, 600)) * draw(st.integers(1, 6)),
                 max(MOST_MACS // (2 * channels * outs), 16))
    height = draw(st.integers(1, 6))
    whole = most // gcd(height, most) if width_g > 1 else 1
    width = max(pixels // height // whole, 1) * whole
    padding = (st.just((0, 0, 0, 0)) if width_x > 1 else st.one_of(
        st.just((0, 0, 0, 0)), sides(1)))
    problem = problem_around(draw, template.spec(channels, outs, 1, draw(padding)),
                             (height, width))
    assume(vectors_of(problem) == template.vectors)
    return problem


@st.composite
def _problems_of_planes(draw: Any, template: SplitKTemplate, vector: int) -> ConvProblem:
    """Images of the plane that a slice takes, channels around the tile by vectors."""
    t: Any = template.tiling
    outs, channels = (vector * (draw(sizes(ceil_div(tile, vector), 140 // vector)))
                      for tile in (t.tile_o, t.tile_i))
    area = t.step // t.slices
    height = draw(st.sampled_from([rows for rows in range(1, area + 1) if area % rows == 0]))
    return problem_around(draw, template.spec(channels, outs, 1, (0, 0, 0, 0)),
                          (height, area // height))
