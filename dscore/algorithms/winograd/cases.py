"""Cases of Winograd's convolution: both tiles, both arithmetics, both forms, any mapping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.templates import Template, options, problem_around, sides, sizes
from dscore.algorithms.winograd import Winograd
from dscore.algorithms.winograd.tiling import WinogradTiling, vectors_of
from dscore.core.device import Device
from dscore.core.numerics import ACCUMULATOR, ELEMENTS
from dscore.core.problem import ConvProblem

VECTORS = ((1, 1), (1, 2), (1, 4), (2, 2), (4, 4), (4, 1))


@dataclass(frozen=True)
class WinogradTemplate(Template):
    """Template with the elements of a row of the input and of the output that move as one."""

    vectors: tuple[int, int]


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """Rings of two buffers and of more, distances from 1 on, one block and many, packed filters."""
    drawn = draw(options(Winograd))
    split = ("tf32" in device.matrix_types and ELEMENTS[dict(drawn)["dtype"]] == ACCUMULATOR
             and draw(st.booleans()))
    lanes_k = 8 if split else draw(st.sampled_from((4, 8)))
    lanes_t = device.wavefront // lanes_k
    wave_k, wave_t = ((16, 16) if split else (8, max(lanes_t, 8)))
    wave_k *= draw(st.integers(1, 2))
    outputs = draw(st.sampled_from((2, 4)))
    most = VECTOR_BYTES // ELEMENTS[dict(drawn)["dtype"]].bytes
    tiling = WinogradTiling(
        outputs=outputs, tile_k=wave_k * draw(st.integers(1, 2)),
        tile_t=wave_t * draw(st.integers(1, 2)), wave_k=wave_k, wave_t=wave_t, lanes_k=lanes_k,
        lanes_t=lanes_t, step=16 if split else 4 * draw(st.integers(1, 3)),
        stages=draw(st.integers(2, 4)) if device.asynchronous_copies else 2,
        planes=draw(st.sampled_from((1, 2, 4) if outputs == 2 else (1, 3, 6))),
        input_channels=4 * draw(st.integers(1, 3)), output_channels=draw(st.integers(1, 9)),
        groups=draw(st.integers(1, 3)), lead=draw(st.integers(1, 3)),
        lag=draw(st.integers(1, 3)), spare=draw(st.integers(1, 2)),
        blocks=draw(st.integers(1, 6)), fused=draw(st.sampled_from((True, True, False))),
        arithmetic="tf32x3" if split else "plain")
    if ELEMENTS[dict(drawn)["dtype"]] == ACCUMULATOR and draw(st.booleans()):
        drawn = (*drawn, ("filter", f"winograd{outputs}"))
    return WinogradTemplate(device, tiling, (3, 3), (1, 1), (1, 1), drawn,
                            draw(st.sampled_from([pair for pair in VECTORS if max(pair) <= most])))


@st.composite
def problems(draw: Any, template: WinogradTemplate) -> ConvProblem:
    """Channels around the steps and blocks, images of a few tiles, up to several task groups."""
    t = template.tiling
    assert isinstance(t, WinogradTiling)
    wide_x, wide_y = template.vectors
    # One column of padding on the left, and as many on the right as leave the widths whole.
    sides_ = st.tuples(st.integers(0, 2), st.integers(0, 2), st.just(1),
                       st.just(1) if wide_x == wide_y else st.sampled_from((0, 2)))
    spec = template.spec(draw(sizes(t.step, 36)), draw(sizes(t.tile_k, 70)), 1,
                         draw(sides(2) if wide_x == 1 else sides_))
    width = wide_y * draw(st.integers(1, 4))
    if wide_x > wide_y:
        width = wide_x * draw(st.integers(1, 3)) + spec.padding[3] - 1
    problem = problem_around(draw, spec, (draw(st.integers(1, 17)), width))
    assume(vectors_of(problem) == template.vectors)
    return problem
