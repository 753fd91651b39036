"""Cases of channel vectors: vectors and tails of channels, strides, dilation, multipliers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.channel_vectors import ChannelVectors
from dscore.algorithms.channel_vectors.tiling import (
    FRAGMENT,
    UNIT_VECTORS,
    VECTORS,
    WORD,
    ChannelVectorsTiling,
)
from dscore.algorithms.row_reuse.cases import unit_of
from dscore.algorithms.templates import (
    Template,
    options,
    pairs,
    problem_around,
    sides,
    sizes,
)
from dscore.core.device import Device
from dscore.core.numerics import ELEMENTS
from dscore.core.problem import ConvProblem


@dataclass(frozen=True)
class ChannelTemplate(Template):
    """Template of a kernel that depends on what the channels are multiples of."""

    channels: int
    multiplier: int


def vectors(layer: Any) -> st.SearchStrategy[int]:
    """Channels that a lane may take of a layer's element type."""
    element = ELEMENTS[dict(layer[3])["dtype"]]
    least, most = WORD if element.exact else 1, VECTOR_BYTES // element.bytes
    return st.sampled_from([vector for vector in VECTORS if least <= vector <= most])


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """Channels that are whole vectors of a block, and that are not; both operations."""
    layer = draw(pairs(5)), draw(pairs(3)), draw(pairs(2)), draw(options(ChannelVectors))
    drawn, unit = dict(layer[3]), unit_of(layer)
    vector, lanes_c = draw(vectors(layer)), draw(st.integers(1, 9))
    tiling = ChannelVectorsTiling(
        vector, lanes_c, unit[0] * draw(st.integers(1, 4)), unit[1] * draw(st.integers(1, 4)),
        draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 4)),
        ahead=device.early_start and draw(st.booleans()),
        banked=bool(drawn.get("table")) and draw(st.booleans()))
    units = (device.vendor == "nvidia" and drawn["dtype"] in device.matrix_types
             and not ELEMENTS[drawn["dtype"]].exact)
    if units and draw(st.booleans()):
        vector, lanes_c = draw(st.sampled_from(UNIT_VECTORS)), draw(st.integers(1, 3))
        tiling = replace(tiling, vector=vector, lanes_c=lanes_c, thread_w=FRAGMENT * unit[1],
                         arithmetic="matrix16")
        channels = st.one_of(sizes(vector * lanes_c, 40), st.sampled_from([8, 16, 24, 40]))
        return ChannelTemplate(device, tiling, *layer, draw(channels), 1)
    multiplier = draw(st.sampled_from([1, 1, 2, 3])) if drawn["operation"] == "conv" else 1
    tiling = replace(tiling, repeat=draw(st.sampled_from([1, 1, 2, 3])))
    return ChannelTemplate(device, tiling, *layer, draw(sizes(vector * lanes_c, 40)), multiplier)


@st.composite
def problems(draw: Any, template: Template) -> ConvProblem:
    """Images around the tile of a block, and uneven padding."""
    assert isinstance(template, ChannelTemplate)
    t, channels = template.tiling, template.channels
    assert isinstance(t, ChannelVectorsTiling)
    spec = template.spec(channels, channels * template.multiplier, channels, draw(sides(3)))
    assume(spec.kind == "depthwise")  # one channel and a 1x1 kernel make a pointwise layer
    out = draw(sizes(t.lanes_h * t.thread_h, 16)), draw(sizes(t.lanes_w * t.thread_w, 17))
    return problem_around(draw, spec, out)
