"""Cases of the implicit product of matrices of both layouts: dense and grouped layers, any kernel,
stride and dilation, all arithmetics, rings, clusters, vectors and single elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.implicit_gemm.tiling import under_tile
from dscore.algorithms.implicit_gemm_universal import LEAST_SPLIT_PRODUCTS, ImplicitGemmUniversal
from dscore.algorithms.implicit_gemm_universal.tiling import (
    FOUR,
    ImplicitGemmUniversalTiling,
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
from dscore.core.device import MATRIX_WAVEFRONT, Device
from dscore.core.numerics import ACCUMULATOR, ELEMENTS, Arithmetic, Element
from dscore.core.problem import ConvProblem
from dscore.core.sizes import Pair
from dscore.core.tiling import Tiling


@dataclass(frozen=True)
class ImplicitGemmUniversalTemplate(Template):
    """Template with the elements of input channels and of the output that move as one."""

    vectors: Pair


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """All arithmetics, one buffer, two and a ring, clusters, vectors and single elements."""
    drawn = draw(options(ImplicitGemmUniversal))
    of_layer = dict(drawn)
    element = ELEMENTS[of_layer["dtype"]]
    nhwc = element == ACCUMULATOR or of_layer["layout"] == "nhwc"
    drawn = tuple((name, "nhwc" if name == "layout" and nhwc else value) for name, value in drawn)
    widths = [2**k for k in range((VECTOR_BYTES // element.bytes).bit_length())]
    result = ELEMENTS[of_layer.get("out_dtype") or element.name]
    vectors = draw(st.sampled_from(widths)), draw(st.sampled_from(
        [width for width in widths if width * result.bytes <= VECTOR_BYTES]))
    tiling = draw(_tilings(device, element, vectors[1], nhwc))
    kernel = draw(st.one_of(st.just((3, 3)), pairs(4)))
    return ImplicitGemmUniversalTemplate(device, tiling, kernel, draw(pairs(3)), draw(pairs(2)),
                                         drawn, vectors)


@st.composite
def _tilings(draw: Any, device: Device, element: Element, vector_out: int, nhwc: bool) -> Tiling:
    on_units = "tf32" if element == ACCUMULATOR else element.name
    units = on_units in device.matrix_types and draw(st.integers(0, 3)) > 0
    of_units: Arithmetic = ("tf32x3" if element == ACCUMULATOR else
                            "matrix8" if element.exact else "matrix16")
    lanes_c = 8 if units else draw(st.sampled_from((4, 8, 16)))
    columns = (8 if device.wavefront == MATRIX_WAVEFRONT else 16) if units else lanes_c
    wave_c = columns * draw(st.integers(1, 4 if units else 2))
    wave_p = (16 if units else device.wavefront // lanes_c) * draw(st.integers(1, 2))
    slices = draw(st.integers(1, 3))
    tile_c, tile_p = wave_c * draw(st.integers(1, 2)), wave_p * draw(st.integers(1, 3))
    assume((tile_c if nhwc else tile_p) % vector_out == 0)
    return ImplicitGemmUniversalTiling(
        tile_c=tile_c, tile_p=tile_p, wave_c=wave_c, wave_p=wave_p, lanes_c=lanes_c, slices=slices,
        step_c=slices * FOUR * draw(st.sampled_from((1, 2, 3, 4, *[8, 12] * element.exact))),
        stages=draw(st.integers(1, 4 if device.asynchronous_copies else 2)),
        # Enough for small images and narrow ones.
        patch=(tile_p + 8) * draw(st.integers(4, 9)),
        cluster=draw(st.integers(1, min(3, device.cluster_blocks))),
        arithmetic=cast(Any, of_units if units else "plain"))


@st.composite
def problems(draw: Any, template: ImplicitGemmUniversalTemplate) -> ConvProblem:
    """Channels and pixels around the tile, of rows that are as aligned as the template's; images
    that the patch has room for."""
    t, (taps_h, taps_w) = template.tiling, template.kernel
    assert isinstance(t, ImplicitGemmUniversalTiling)
    of_layer, most = dict(template.options), VECTOR_BYTES // template.element.bytes
    nhwc = of_layer["layout"] == "nhwc"
    vector_in, vector_out = template.vectors
    most_out = VECTOR_BYTES // ELEMENTS[of_layer.get("out_dtype") or template.element.name].bytes
    groups = draw(st.integers(1, 3))
    outs = _aligned(draw(sizes(t.tile_c, 40)), vector_out if nhwc else 1, most_out if nhwc else 1)
    channels = _aligned(draw(sizes(t.step_c, 40)), vector_in, most)
    if t.arithmetic == "tf32x3":
        least = -(-LEAST_SPLIT_PRODUCTS // (taps_h * taps_w))
        channels = _aligned(max(channels, least), vector_in, most)
    pixels = min(draw(sizes(t.tile_p, 200)),
                 max(MOST_MACS // (2 * channels * outs * groups * taps_h * taps_w), 4))
    width = draw(st.integers(1, max(min(pixels, 17), 1)))
    if not nhwc:
        width = _aligned(width, vector_out, most_out)
    problem = problem_around(draw, template.spec(groups * channels, groups * outs, groups,
                                                 draw(sides(2))), (-(-pixels // width), width))
    assume(problem.spec.kind in ("dense", "grouped"))
    assume(vectors_of(problem) == template.vectors and under_tile(problem, t.tile_p) <= t.patch)
    return problem


def _aligned(size: int, vector: int, most: int) -> int:
    """The least size from *size* on of which rows move by *vector*, of at most *most*."""
    while min(size & -size, most) != vector:
        size += 1
    return size
