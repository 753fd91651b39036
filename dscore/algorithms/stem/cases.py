"""Cases of first layers: one to four input channels, any filter of up to eight rows and columns,
any stride, dilation and padding, and rows of images that are more and less aligned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.stem import MOST_TAPS, Stem
from dscore.algorithms.stem.tiling import EIGHT, FOUR, PIECE, StemTiling, copy_of, shape_of
from dscore.algorithms.templates import (
    MOST_MACS,
    Template,
    input_size,
    options,
    pairs,
    problem_on,
    sides,
    sizes,
)
from dscore.core.device import Device
from dscore.core.numerics import ELEMENTS
from dscore.core.problem import ConvProblem


@dataclass(frozen=True)
class StemTemplate(Template):
    """Template with the channels of images, and the elements of a row that move as one."""

    channels: int
    copy: int


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """Tiles of a few pieces, lanes that store from two channels to eight, and all copies."""
    drawn = draw(options(Stem))
    kernel = draw(st.one_of(st.just((3, 3)), pairs(MOST_TAPS)))
    assume(kernel != (1, 1))
    wave_n = EIGHT * draw(st.integers(1, 4))
    tiling = StemTiling(
        tile_h=draw(st.integers(1, 4)), tile_w=PIECE * draw(st.integers(1, 3)),
        tile_n=wave_n * draw(st.integers(1, 2)), wave_n=wave_n, waves_p=draw(st.integers(1, 3)),
        repeat=draw(st.sampled_from((1, 1, 2, 3))))
    of_layer = dict(drawn)
    most = VECTOR_BYTES // ELEMENTS[of_layer.get("in_dtype") or of_layer["dtype"]].bytes
    copy = draw(st.sampled_from([2**k for k in range(most.bit_length())]))
    return StemTemplate(device, tiling, kernel, draw(pairs(3)), draw(pairs(2)), drawn,
                        draw(st.integers(1, FOUR)), copy)


@st.composite
def problems(draw: Any, template: StemTemplate) -> ConvProblem:
    """Channels, rows and columns around the tile, of rows that are as aligned as the template's."""
    t = template.tiling
    assert isinstance(t, StemTiling)
    problem: ConvProblem = draw(layers(template, t.tile_n, t.tile_h * t.repeat, t.tile_w))
    shape = shape_of(problem, t)
    assume(t.repeat == 1 or shape.together == shape.turns)
    return problem


@st.composite
def layers(draw: Any, template: StemTemplate, tile_n: int, tile_h: int, tile_w: int) -> ConvProblem:
    """First layers around a tile of so many output channels, rows and columns."""
    taps_h, taps_w = template.kernel
    outs = EIGHT * draw(sizes(tile_n // EIGHT, 6))
    spec = template.spec(template.channels, outs, 1, draw(sides(3)))
    pixels = max(MOST_MACS // (2 * template.channels * outs * taps_h * taps_w), 4)
    rows = min(draw(sizes(tile_h, 13)), pixels)
    assert not isinstance(spec.padding, str)
    top, bottom, left, right = spec.padding
    height = input_size(draw, rows, spec.span[0], spec.stride[0], top + bottom)
    width = input_size(draw, min(draw(sizes(tile_w, 70)), max(pixels // rows, 1)), spec.span[1],
                       spec.stride[1], left + right)
    problem = problem_on(draw, spec, (height, _aligned(width, template)))
    assume(copy_of(problem) == template.copy)
    return problem


def _aligned(width: int, template: StemTemplate) -> int:
    """The least width from *width* on whose rows begin at multiples of the template's copies."""
    unit = max(template.copy // (template.channels & -template.channels), 1)
    return -(-width // unit) * unit
