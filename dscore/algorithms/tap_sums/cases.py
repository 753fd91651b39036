"""Cases of tap sums: strides, dilation, multipliers, tiles of the filter, slices and stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.columns import ceil_div
from dscore.algorithms.tap_sums import TapSums
from dscore.algorithms.tap_sums.tiling import TapSumsTiling
from dscore.algorithms.templates import Template, halves, input_size, options, pairs, problem_on
from dscore.core.device import Device
from dscore.core.problem import ConvProblem
from dscore.core.sizes import Pair


@dataclass(frozen=True)
class TapSumsTemplate(Template):
    """Template of a block whose pieces of memory are of the size that these make."""

    image: Pair
    margin: Pair  # rows and columns of padding, those of both sides together
    multiplier: int


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """Blocks of several whole planes and images, or of some rows of one plane."""
    kernel, stride, dilation = draw(pairs(5)), draw(pairs(3)), draw(pairs(2))
    span = [(kernel[n] - 1) * dilation[n] + 1 for n in (0, 1)]
    margin = draw(st.tuples(st.integers(0, 6), st.integers(0, 6)))
    height, width = (input_size(draw, draw(st.integers(1, 13)), *axis)
                     for axis in zip(span, stride, margin, strict=True))
    image = height, width
    rows, columns = ((image[n] + margin[n] - span[n]) // stride[n] + 1 for n in (0, 1))
    assume(rows > 0 and columns > 0)
    thread_h, thread_w = draw(pairs(5))
    whole, lanes_w = draw(st.booleans()), ceil_div(columns, thread_w) + draw(st.integers(0, 1))
    lanes_h = ceil_div(rows, thread_h) if whole else draw(st.integers(1, 3))
    taps_h, taps_w = (draw(st.one_of(st.just(size), st.integers(1, size))) for size in kernel)
    tiling = TapSumsTiling(
        thread_h, thread_w, lanes_h, lanes_w, draw(st.integers(1, 5)) if whole else 1,
        draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 3)), taps_h,
        taps_w, device.early_start and draw(st.booleans()),
        draw(st.integers(1, min(3, device.cluster_blocks))))
    return TapSumsTemplate(device, tiling, kernel, stride, dilation,
                           draw(options(TapSums)), image, margin,
                           draw(st.integers(1, 3)))


@st.composite
def problems(draw: Any, template: Template) -> ConvProblem:
    """Channel multipliers and uneven padding."""
    assert isinstance(template, TapSumsTemplate)
    channels = draw(st.integers(1, 5))
    spec = template.spec(channels, channels * template.multiplier, channels,
                         halves(draw, template.margin))
    assume(spec.kind == "depthwise")  # one channel and a 1x1 kernel make a pointwise layer
    return problem_on(draw, spec, template.image)
