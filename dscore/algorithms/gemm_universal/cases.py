"""Cases of the product of matrices in any order of axes: arithmetics, rings, clusters, vectors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.gemm import LEAST_SPLIT_CHANNELS
from dscore.algorithms.gemm_universal import GemmUniversal
from dscore.algorithms.gemm_universal.tiling import (
    FRAGMENTS,
    GemmUniversalTiling,
    gathered,
    sizes_of,
    vectors_of,
)
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
from dscore.core.numerics import ACCUMULATOR, ELEMENTS, Element
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling


@dataclass(frozen=True)
class GemmTemplate(Template):
    """Template with the elements of both operands' rows and of the result's that move as one."""

    vectors: tuple[int, int, int]
    gathered: bool


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """All arithmetics, rings, clusters, parts, vectors and single elements."""
    drawn = draw(options(GemmUniversal, scaled=True))
    of_layer = dict(drawn)
    element = ELEMENTS[of_layer["dtype"]]
    tiling = draw(_tilings(device, element, of_layer["operation"] == "weight_gradient"))
    widths = [2**k for k in range((VECTOR_BYTES // element.bytes).bit_length())]
    ins, outs = draw(st.sampled_from(widths)), draw(st.sampled_from(widths))
    vectors = {"conv": (ins, ins, outs), "input_gradient": (outs, ins, ins),
               "weight_gradient": (outs, ins, ins)}[of_layer["operation"]]
    picked = of_layer["layout"] == "nhwc" and draw(st.booleans())
    stride = draw(pairs(2)) if picked else (1, 1)
    return GemmTemplate(device, tiling, (1, 1), stride, (1, 1), drawn, vectors, picked)


@st.composite
def _tilings(draw: Any, device: Device, element: Element, sums_pixels: bool) -> Tiling:
    on_units = "tf32" if element == ACCUMULATOR else element.name
    units = on_units in device.matrix_types and draw(st.integers(0, 3)) > 0
    arithmetic = ("plain" if not units else "tf32x3" if element == ACCUMULATOR else "matrix16")
    lanes_m = 8 if units else draw(st.sampled_from((4, 8, 16)))
    whole, fragment = VECTOR_BYTES // element.bytes, FRAGMENTS[arithmetic]
    wave_m = (16 if units else lanes_m) * draw(st.integers(1, 2))
    wave_n = (8 if units else device.wavefront // lanes_m) * draw(st.integers(1, 4))
    slices = draw(st.integers(1, 3))
    tiling = GemmUniversalTiling(
        tile_m=draw(st.integers(1, 2)) * wave_m, tile_n=draw(st.integers(1, 2)) * wave_n,
        wave_m=wave_m, wave_n=wave_n, lanes_m=lanes_m, slices=slices,
        step=slices * fragment * draw(st.integers(1, 3)),
        stages=draw(st.integers(1, 4)) if device.asynchronous_copies else draw(st.integers(1, 2)),
        cluster=draw(st.integers(1, min(3, device.cluster_blocks))),
        parts=draw(st.sampled_from((1, 2, 9))) if sums_pixels else 1, arithmetic=arithmetic)
    assume(tiling.step % whole == tiling.tile_m % whole == tiling.tile_n % whole == 0)
    return tiling


@st.composite
def problems(draw: Any, template: GemmTemplate) -> ConvProblem:
    """Channels and pixels around the tile, of rows that are as aligned as the template's."""
    t: Any = template.tiling
    outs_n = template.operation == "conv"
    at_n, at_k = _around(t.tile_n), _around(t.step) | {16, 17}
    by_in, by_out = {"conv": (at_k, at_n), "input_gradient": (at_n, at_k),
                     "weight_gradient": (at_n, _around(t.tile_m))}[template.operation]
    whole = VECTOR_BYTES // template.element.bytes
    width_out = template.vectors[2 if outs_n else 0]
    channels = draw(_aligned(by_in, template.vectors[1], whole))
    outs = draw(_aligned(by_out, width_out, whole))
    most = MOST_MACS // (2 * channels * outs)
    if template.operation == "weight_gradient":
        pixels = min(draw(sizes(t.step, 300)) * draw(st.integers(1, 3)), max(most, 16))
    else:
        pixels = draw(sizes(t.tile_m, min(300, most)))
    padding = draw(sides(1)) if template.gathered else (0, 0, 0, 0)
    spec = template.spec(channels, outs, 1, padding)
    if spec.layout == "nchw":
        problem = ConvProblem(spec, pixels, 1, 1, template.operation)
    else:
        height = draw(st.integers(1, 6))
        problem = problem_around(draw, spec, (height, max(pixels // height, 1)))
    problem = replace(problem, operation=template.operation)
    assume(vectors_of(problem) == template.vectors and gathered(problem) == template.gathered)
    assume(t.arithmetic != "tf32x3" or sizes_of(problem).k >= LEAST_SPLIT_CHANNELS)
    return problem


def _around(tile: int) -> set[int]:
    """Sizes around multiples of *tile*, single elements and vectors away, and small ones."""
    return {size for k in (1, 2, 3) for off in (-8, -4, -2, -1, 0, 1, 2, 4, 8)
            if 1 <= (size := k * tile + off) <= 140} | {1, 2, 3, 4, 8, 16}


def _aligned(sizes_: set[int], vector: int, whole: int) -> st.SearchStrategy[int]:
    """Those of which rows of so many elements move by *vector*, of at most *whole*."""
    return st.sampled_from(sorted(
        size for size in sizes_ if min(size & -size, whole) == vector) or [vector])
