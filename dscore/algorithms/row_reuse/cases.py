"""Cases of row reuse: rows from registers and through LDS, strides, dilation, multipliers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.columns import ceil_div
from dscore.algorithms.row_reuse import RowReuse
from dscore.algorithms.row_reuse.patches import PATCH, PATCH_WIDTHS, WINDOW
from dscore.algorithms.row_reuse.tiling import STAGINGS, RowReuseTiling
from dscore.algorithms.templates import (
    Template,
    halves,
    input_size,
    options,
    pairs,
    problem_around,
    problem_on,
    sides,
    sizes,
)
from dscore.core.device import Device
from dscore.core.numerics import ELEMENTS
from dscore.core.problem import ConvProblem
from dscore.core.sizes import Pair


@dataclass(frozen=True)
class StagedTemplate(Template):
    """Template of a block through LDS, whose piece of memory is of the size that these make."""

    image: Pair
    margin: Pair  # rows and columns of padding, those of both sides together
    multiplier: int


def _runs(drawn: Any) -> bool:
    """Whether options are of layers that the algorithm takes: of int8 without a residual."""
    of_layer = dict(drawn)
    return not (ELEMENTS[of_layer["dtype"]].exact and of_layer.get("residual"))


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """Rows from registers, with and without column reuse, and through LDS; strides and dilation;
    both operations.
    """
    layer = draw(pairs(5)), draw(pairs(3)), draw(pairs(2)), draw(options(RowReuse).filter(_runs))
    unit = unit_of(layer)
    of_layer = dict(layer[3])
    exact = ELEMENTS[of_layer["dtype"]].exact
    staging = draw(st.sampled_from([staging for staging in STAGINGS if staging != "both"]
                                   if of_layer.get("out_dtype") else STAGINGS))
    ahead = device.early_start and draw(st.booleans())
    if staging != "registers":
        return _through_lds(draw, device, layer, unit, staging, ahead)
    reuse = not exact and draw(st.booleans())
    lanes_w = 2 ** draw(st.integers(0, 4)) if reuse else draw(st.integers(1, 9))
    return Template(device, RowReuseTiling(
        unit[0] * draw(st.integers(1, 5)), unit[1] * draw(st.integers(1, 9 if exact else 4)),
        draw(st.integers(1, 3)), lanes_w,
        draw(st.integers(1, 4)), staging, reuse, ahead), *layer)


def unit_of(layer: Any) -> Pair:
    """What the rows and columns of a thread are multiples of."""
    _, stride, _, spec_options = layer
    unit: Pair = (1, 1) if dict(spec_options)["operation"] == "conv" else stride
    return unit


def _has_units(device: Device, spec_options: Any) -> bool:
    """Whether matrix units of a device multiply elements of these options of a layer."""
    of_layer = dict(spec_options)
    element = of_layer["dtype"]
    return (device.vendor == "nvidia" and element in device.matrix_types
            and not ELEMENTS[element].exact and not of_layer.get("out_dtype"))


def _patch_widths(layer: Any) -> list[int]:
    """Columns of patches over whole pairs of rows, whose window holds what lies under them."""
    kernel, stride, dilation, spec_options = layer
    forward = dict(spec_options)["operation"] == "conv"
    span = (kernel[1] - 1) * dilation[1] + 1
    if forward:
        return [w for w in PATCH_WIDTHS if (w - 1) * stride[1] + span <= WINDOW]
    lead = max(0, span - stride[1]) + stride[1] - 1
    return [w for w in PATCH_WIDTHS
            if (w - 1 + lead) // stride[1] + 1 <= WINDOW and w % stride[1] == 0
            and PATCH // w % (2 * stride[0]) == 0]


def _through_lds(draw: Any, device: Device, layer: Any, unit: Pair, staging: Any,
                 ahead: bool) -> Template:
    """Blocks of several whole planes, or of some rows of one, which begin anywhere in a vector."""
    kernel, stride, dilation, spec_options = layer
    span = [(kernel[n] - 1) * dilation[n] + 1 for n in (0, 1)]
    margin = draw(st.tuples(st.integers(0, 6), st.integers(0, 6)))
    height, width = (input_size(draw, draw(st.integers(1, 13)), *axis)
                     for axis in zip(span, stride, margin, strict=True))
    image = height, width
    forward = dict(spec_options)["operation"] == "conv"
    rows, columns = ((image[n] + margin[n] - span[n]) // stride[n] + 1 if forward else image[n]
                     for n in (0, 1))
    assume(rows > 0 and columns > 0)
    thread_h, thread_w = (n * factor for n, factor in zip(unit, draw(pairs(5)), strict=True))
    widths = _patch_widths(layer) if _has_units(device, spec_options) else []
    repeat, arithmetic = 1, "plain"
    if widths and draw(st.booleans()):
        thread_w, repeat, arithmetic = draw(st.sampled_from(widths)), draw(st.integers(1, 3)), (
            "matrix16")
        thread_h = PATCH // thread_w * draw(st.integers(1, 2))
    whole, lanes_w = draw(st.booleans()), ceil_div(columns, thread_w) + draw(st.integers(0, 1))
    planes = repeat * draw(st.integers(1, 6 // repeat)) if whole else 1
    lanes_h = ceil_div(rows, thread_h) if whole else draw(st.integers(1, 3))
    tiling = RowReuseTiling(thread_h, thread_w, lanes_h, lanes_w, planes, staging, ahead=ahead,
                            arithmetic=arithmetic, repeat=repeat if whole else 1)
    return StagedTemplate(device, tiling, kernel, stride, dilation, spec_options, image, margin,
                          draw(st.integers(1, 3)) if forward else 1)


@st.composite
def problems(draw: Any, template: Template) -> ConvProblem:
    """Channel multipliers and uneven padding."""
    t, channels = template.tiling, draw(st.integers(1, 5))
    assert isinstance(t, RowReuseTiling)
    if isinstance(template, StagedTemplate):
        return problem_on(draw, _depthwise(template, channels, template.multiplier,
                                           halves(draw, template.margin)), template.image)
    multiplier = draw(st.integers(1, 3)) if template.operation == "conv" else 1
    spec = _depthwise(template, channels, multiplier, draw(sides(3)))
    out = draw(sizes(t.lanes_h * t.thread_h, 16)), draw(sizes(t.lanes_w * t.thread_w, 33))
    return problem_around(draw, spec, out)


def _depthwise(template: Template, channels: int, multiplier: int, padding: Any) -> Any:
    spec = template.spec(channels, channels * multiplier, channels, padding)
    assume(spec.kind == "depthwise")  # one channel and a 1x1 kernel make a pointwise layer
    return spec
