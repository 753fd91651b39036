"""Cases of the product of matrices in any order of axes: arithmetics, rings, clusters, vectors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import Any, cast

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.gemm import LEAST_SPLIT_CHANNELS
from dscore.algorithms.gemm_universal import GemmUniversal
from dscore.algorithms.gemm_universal.tiling import (
    DOT_VECTOR,
    FRAGMENTS,
    TURNED,
    GemmUniversalTiling,
    channels_last,
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
from dscore.core.device import MATRIX_WAVEFRONT, Device
from dscore.core.numerics import ACCUMULATOR, ELEMENTS, Arithmetic, Element
from dscore.core.problem import ConvProblem
from dscore.core.tiling import Tiling


@dataclass(frozen=True)
class GemmTemplate(Template):
    """Template with the elements of both operands' rows and of the result's that move as one,
    whether pixels are picked from among others, and whether channels come last."""

    vectors: tuple[int, int, int]
    gathered: bool
    last: bool


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """All arithmetics, rings, clusters, parts, vectors and single elements."""
    drawn = draw(options(GemmUniversal, scaled=True))
    of_layer = dict(drawn)
    element = ELEMENTS[of_layer["dtype"]]
    operation, nhwc = of_layer["operation"], of_layer["layout"] == "nhwc"
    last = nhwc or element == ACCUMULATOR or draw(st.booleans())
    tiling = draw(_tilings(device, element, operation, last))
    widths = [2**k for k in range((VECTOR_BYTES // element.bytes).bit_length())]
    ins, outs, plane = (draw(st.sampled_from(widths)) for _ in "iop")
    if of_layer.get("out_dtype"):  # whose results are larger than what they are made of
        most = VECTOR_BYTES // ELEMENTS[of_layer["out_dtype"]].bytes
        outs, plane = min(outs, most), min(plane, most)
    picked = (nhwc or not last) and draw(st.booleans())
    if last:
        vectors = {"conv": (ins, ins, outs), "input_gradient": (outs, ins, ins),
                   "weight_gradient": (outs, ins, ins)}[operation]
    else:
        read = 1 if picked else plane
        vectors = {"conv": (ins, read, plane), "input_gradient": (ins, read, plane),
                   "weight_gradient": (plane, read, ins)}[operation]
    stride = draw(pairs(3)) if picked else (1, 1)
    return GemmTemplate(device, tiling, (1, 1), stride, (1, 1), drawn, vectors, picked, last)


@st.composite
def _tilings(draw: Any, device: Device, element: Element, operation: str, last: bool) -> Tiling:
    on_units = "tf32" if element == ACCUMULATOR else element.name
    units = on_units in device.matrix_types and draw(st.integers(0, 3)) > 0
    of_units: Arithmetic = ("tf32x3" if element == ACCUMULATOR else
                            "matrix8" if element.exact else "matrix16")
    arithmetic: Arithmetic = of_units if units else "plain"
    lanes_m = 8 if units else draw(st.sampled_from((4, 8, 16)))
    whole = VECTOR_BYTES // element.bytes
    fragment = DOT_VECTOR if element.exact and not units else FRAGMENTS[arithmetic]
    wave_m = (16 if units else lanes_m) * draw(st.integers(1, 2))
    columns = 8 if device.wavefront == MATRIX_WAVEFRONT else 16
    columns = columns if units else device.wavefront // lanes_m
    if element.exact and not last:  # columns that are turned together
        wave_n = columns * (2 if units and columns == 8 else TURNED) * draw(st.integers(1, 2))
    else:
        wave_n = columns * draw(st.integers(1, 4))
    slices = draw(st.integers(1, 3))
    tiling = GemmUniversalTiling(
        tile_m=draw(st.integers(1, 2)) * wave_m, tile_n=draw(st.integers(1, 2)) * wave_n,
        wave_m=wave_m, wave_n=wave_n, lanes_m=lanes_m, slices=slices,
        step=slices * fragment * draw(st.integers(1, 3)),
        stages=draw(st.integers(1, 4)) if device.asynchronous_copies else draw(st.integers(1, 2)),
        cluster=draw(st.integers(1, min(3, device.cluster_blocks))),
        parts=draw(st.sampled_from((1, 2, 9))) if operation == "weight_gradient" else 1,
        staged=draw(st.booleans()), arithmetic=cast(Any, arithmetic))
    if last and operation != "weight_gradient" and tiling.stages > 1 and draw(st.booleans()):
        tiling = replace(tiling, cluster=1, slices=1, repeat=draw(st.integers(2, 3)))
    assume(tiling.step % whole == tiling.tile_m % whole == tiling.tile_n % whole == 0)
    return tiling


@st.composite
def problems(draw: Any, template: GemmTemplate) -> ConvProblem:
    """Channels and pixels around the tile, of rows that are as aligned as the template's."""
    t: Any = template.tiling
    (at_in, at_out), whole = _channels(t, template), VECTOR_BYTES // template.element.bytes
    width_in, width_out, plane = _widths(template)
    channels, outs = draw(_aligned(at_in, width_in, whole)), draw(
        _aligned(at_out, width_out, whole))
    most = max(MOST_MACS // (2 * channels * outs), 1)
    tile_p = t.tile_m if template.last else t.tile_n
    if template.operation == "weight_gradient":
        pixels = min(draw(sizes(t.step, 300)) * draw(st.integers(1, 3)), max(most, 16))
    else:
        pixels = draw(sizes(tile_p, min(300, most)))
    padding = draw(sides(1)) if template.gathered else (0, 0, 0, 0)
    spec = template.spec(channels, outs, 1, padding)
    if template.last and spec.layout == "nchw":
        problem = ConvProblem(spec, pixels, 1, 1, template.operation)
    else:
        height = draw(st.integers(1, 6))
        across = 1 if template.last else plane // gcd(height, plane)
        problem = problem_around(draw, spec, (height, max(pixels // height // across, 1) * across))
    problem = replace(problem, operation=template.operation)
    assume(vectors_of(problem) == template.vectors and gathered(problem) == template.gathered)
    assume(channels_last(problem) == template.last)
    assume(t.arithmetic != "tf32x3" or sizes_of(problem).k >= LEAST_SPLIT_CHANNELS)
    assume(t.repeat == 1 or sizes_of(problem).k <= t.step)
    return problem


def _channels(t: Any, template: GemmTemplate) -> tuple[set[int], set[int]]:
    """Sizes to draw the channels from, of the input and of the output."""
    k = _around(t.step) | {16, 17}
    if t.repeat > 1:
        k = {size for size in k if size <= t.step}
    across, along = _around(t.tile_n), _around(t.tile_m)
    results = across if template.last else along
    return {"conv": (k, results), "input_gradient": (results, k),
            "weight_gradient": (across, along)}[template.operation]


def _widths(template: GemmTemplate) -> tuple[int, int, int]:
    """Vectors of rows of input channels, of output channels, and of a plane's pixels."""
    a, b, out = template.vectors
    if template.last:
        return b, out if template.operation == "conv" else a, 1
    if template.operation == "weight_gradient":
        return out, 1, a
    return a, 1, out


def _around(tile: int) -> set[int]:
    """Sizes around multiples of *tile*, single elements and vectors away, and small ones."""
    return {size for k in (1, 2, 3) for off in (-8, -4, -2, -1, 0, 1, 2, 4, 8)
            if 1 <= (size := k * tile + off) <= 140} | {1, 2, 3, 4, 8, 16}


def _aligned(sizes_: set[int], vector: int, whole: int) -> st.SearchStrategy[int]:
    """Those of which rows of so many elements move by *vector*, of at most *whole*."""
    return st.sampled_from(sorted(
        size for size in sizes_ if vector == 1 or min(size & -size, whole) == vector) or [vector])
