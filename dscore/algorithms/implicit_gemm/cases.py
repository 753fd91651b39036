"""Cases of the implicit product of matrices: dense and grouped layers, any kernel, stride and
dilation, both arithmetics, rings, clusters, vectors and single elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.implicit_gemm import LEAST_SPLIT_PRODUCTS, ImplicitGemm
from dscore.algorithms.implicit_gemm.tiling import ImplicitGemmTiling, under_tile, vectors_of
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

# Kernels of depthwise layers, of as many columns as two paddings of five make up for.
LARGE = ((12, 11), (14, 11))


@dataclass(frozen=True)
class ImplicitGemmTemplate(Template):
    """Template with the elements that images of the output and filters move as one."""

    vectors: Pair


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """Both arithmetics, one buffer, two and a ring, clusters, vectors and single elements."""
    drawn = draw(options(ImplicitGemm))
    element = ELEMENTS[dict(drawn)["dtype"]]
    kernel = draw(st.one_of(st.just((3, 3)), pairs(4), st.sampled_from(LARGE)))
    large = kernel in LARGE
    taps, whole = kernel[0] * kernel[1], VECTOR_BYTES // element.bytes
    split = ("tf32" in device.matrix_types and element == ACCUMULATOR and not large
             and draw(st.booleans()))
    lanes_c = 8 if split else 1 if large else draw(st.sampled_from((1, 4, 8, 16)))
    wave_c = 1 if large else lanes_c * draw(st.integers(1, 3))
    wave_p = (16 if split else device.wavefront // lanes_c) * draw(st.integers(1, 2))
    slices = 1 if large else draw(st.integers(1, 3))
    step_c = 1 if large else slices * (4 if split else 1) * draw(st.integers(1, 4))
    tile_p = draw(st.integers(1, 3)) * wave_p
    vectors = (draw(st.sampled_from((1, whole))),
               draw(st.sampled_from((1, whole))) if step_c * taps % whole == 0 else 1)
    tiling = ImplicitGemmTiling(
        tile_c=wave_c if large else draw(st.integers(1, 2)) * wave_c, tile_p=tile_p,
        wave_c=wave_c, wave_p=wave_p, lanes_c=lanes_c, slices=slices, step_c=step_c,
        stages=draw(st.integers(1, 4 if device.asynchronous_copies else 2)),
        # Enough for small images and narrow ones.
        patch=(tile_p + 8) * draw(st.integers(4, 9)),
        cluster=draw(st.integers(1, min(3, device.cluster_blocks))),
        arithmetic="tf32x3" if split else "plain")
    stride, dilation = ((1, 1), (1, 1)) if large else (draw(pairs(3)), draw(pairs(2)))
    return ImplicitGemmTemplate(device, tiling, kernel, stride, dilation, drawn, vectors)


@st.composite
def problems(draw: Any, template: ImplicitGemmTemplate) -> ConvProblem:
    """Channels and pixels around the tile; images that the patch has room for."""
    t, (taps_h, taps_w) = template.tiling, template.kernel
    assert isinstance(t, ImplicitGemmTiling)
    if template.kernel in LARGE:
        depthwise: ConvProblem = draw(_depthwise(template))
        return depthwise
    groups, outs = draw(st.integers(1, 3)), draw(sizes(t.tile_c, 40))
    least = -(-LEAST_SPLIT_PRODUCTS // (taps_h * taps_w)) if t.arithmetic == "tf32x3" else 1
    channels = max(draw(sizes(t.step_c, 40)), least)
    pixels = min(draw(sizes(t.tile_p, 200)),
                 max(MOST_MACS // (2 * channels * outs * groups * taps_h * taps_w), 4))
    width = draw(st.integers(1, max(min(pixels, 17), 1)))
    problem = problem_around(draw, template.spec(groups * channels, groups * outs, groups,
                                                 draw(sides(2))), (-(-pixels // width), width))
    assume(problem.spec.kind in ("dense", "grouped"))
    assume(vectors_of(problem) == template.vectors and under_tile(problem, t.tile_p) <= t.patch)
    return problem


@st.composite
def _depthwise(draw: Any, template: ImplicitGemmTemplate) -> ConvProblem:
    """Rows of the output that a lane's pixels divide, and others."""
    t, groups = template.tiling, draw(st.integers(2, 3))
    assert isinstance(t, ImplicitGemmTiling)
    width = t.wave_p // template.device.wavefront * draw(st.integers(1, 3)) + draw(
        st.sampled_from((0, 0, 1)))
    pad = st.tuples(st.integers(3, 6), st.integers(3, 6), st.just(5), st.just(5))
    problem = problem_around(draw, template.spec(groups, groups, groups, draw(pad)),
                             (draw(st.integers(4, 7)), width))
    assume(vectors_of(problem) == template.vectors and under_tile(problem, t.tile_p) <= t.patch)
    return problem
