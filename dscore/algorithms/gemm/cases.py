"""Cases of the product of matrices: both arithmetics, rings, clusters, vectors, single elements."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.gemm import LEAST_SPLIT_CHANNELS, Gemm
from dscore.algorithms.gemm.tiling import GemmTiling, vectors_of
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
from dscore.core.sizes import Pair


@dataclass(frozen=True)
class GemmTemplate(Template):
    """Template with the elements that images and filters move as one."""

    vectors: Pair


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """Both arithmetics, two buffers and a ring of them, clusters, vectors and single elements."""
    drawn = draw(options(Gemm, scaled=True))
    element = ELEMENTS[dict(drawn)["dtype"]]
    split = ("tf32" in device.matrix_types and element == ACCUMULATOR and draw(st.booleans()))
    lanes_c = 8 if split else draw(st.sampled_from((4, 8, 16)))
    wave_c = (8 if split else lanes_c) * draw(st.integers(1, 3))
    wave_p = (16 if split else 4 * device.wavefront // lanes_c) * draw(st.integers(1, 2))
    slices = draw(st.integers(1, 3))
    tiling = GemmTiling(
        tile_c=draw(st.integers(1, 3)) * wave_c, tile_p=draw(st.integers(1, 2)) * wave_p,
        wave_c=wave_c, wave_p=wave_p, lanes_c=lanes_c, slices=slices,
        step_c=slices * (8 if split else 4) * draw(st.integers(1, 3)),
        stages=draw(st.integers(2, 4)) if device.asynchronous_copies else 2,
        cluster=draw(st.integers(1, min(3, device.cluster_blocks))),
        arithmetic="tf32x3" if split else "plain")
    whole = VECTOR_BYTES // element.bytes
    widths = draw(st.sampled_from(((1, 1), (whole, 1), (1, whole), (whole, whole))))
    stride = (1, 1) if widths[0] > 1 else draw(st.one_of(st.just((1, 1)), pairs(2)))
    return GemmTemplate(device, tiling, (1, 1), stride, (1, 1), drawn, widths)


@st.composite
def problems(draw: Any, template: GemmTemplate) -> ConvProblem:
    """Channels and pixels around the tile; pixels that end with a tile, an image or neither."""
    t, (width_p, width_c) = template.tiling, template.vectors
    most = VECTOR_BYTES // template.element.bytes
    assert isinstance(t, GemmTiling)
    least = 1 if t.arithmetic == "plain" else LEAST_SPLIT_CHANNELS
    depths, results = (_around(t.step_c) | {16, 17}, _around(t.tile_c))
    by_input, by_output = ((depths, results) if template.operation == "conv"
                           else (results, depths))
    channels = draw(st.sampled_from(sorted(
        size for size in by_input if (size % most == 0) == (width_c > 1)
        and (size >= least or by_input is results))))
    outs = draw(st.sampled_from(sorted(
        size for size in by_output if size >= least or by_output is results)))
    height, pixels = draw(st.integers(1, 6)), draw(sizes(
        t.tile_p, min(300, MOST_MACS // (2 * channels * outs))))
    whole = most // gcd(height, most) if width_p > 1 else 1
    width = max(pixels // height // whole, 1) * whole
    padding = st.just((0, 0, 0, 0)) if width_p > 1 else st.one_of(
        st.just((0, 0, 0, 0)), sides(1))
    problem = problem_around(draw, template.spec(channels, outs, 1, draw(padding)),
                             (height, width))
    assume(vectors_of(problem) == template.vectors)
    return problem


def _around(tile: int) -> set[int]:
    """Sizes around multiples of *tile*, single elements and vectors away, and small ones."""
    return {size for k in (1, 2, 3) for off in (-4, -1, 0, 1, 4)
            if 1 <= (size := k * tile + off) <= 140} | {1, 2, 3, 4}
