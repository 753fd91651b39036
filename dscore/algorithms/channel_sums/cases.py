"""Cases of channel sums: vectors and tails of channels, slices and stages, multipliers, both
operations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.channel_sums import ChannelSums
from dscore.algorithms.channel_sums.tiling import ChannelSumsTiling
from dscore.algorithms.channel_vectors.cases import ChannelTemplate, vectors
from dscore.algorithms.channel_vectors.tiling import FRAGMENT, UNIT_VECTORS
from dscore.algorithms.row_reuse.cases import unit_of
from dscore.algorithms.templates import Template, options, pairs, problem_around, sides, sizes
from dscore.core.device import Device
from dscore.core.numerics import ACCUMULATOR, ELEMENTS
from dscore.core.problem import ConvProblem


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """Channels that are whole vectors of a block, and that are not."""
    layer = draw(pairs(5)), draw(pairs(3)), draw(pairs(2)), draw(options(ChannelSums))
    vector, lanes_c = draw(vectors(layer)), draw(st.integers(1, 9))
    (thread_h, thread_w), (lanes_h, lanes_w) = draw(pairs(4)), draw(pairs(3))
    drawn = dict(layer[3])
    alone = drawn["operation"] == "weight_gradient"
    unit = (1, 1) if alone else unit_of(layer)
    tiling = ChannelSumsTiling(
        vector, lanes_c, unit[0] * thread_h, unit[1] * thread_w, lanes_h, lanes_w,
        draw(st.integers(1, 4)),
        draw(st.integers(1, 3)), device.early_start and draw(st.booleans()),
        draw(st.integers(1, 4)), draw(st.integers(1, min(3, device.cluster_blocks))))
    units = (alone and device.vendor == "nvidia" and drawn["dtype"] in device.matrix_types
             and ELEMENTS[drawn["dtype"]] != ACCUMULATOR)
    if units and draw(st.booleans()):
        vector, lanes_c = draw(st.sampled_from(UNIT_VECTORS)), draw(st.integers(1, 3))
        tiling = replace(tiling, vector=vector, lanes_c=lanes_c, thread_w=FRAGMENT,
                         arithmetic="matrix16")
        channels = st.one_of(sizes(vector * lanes_c, 40), st.sampled_from([8, 16, 24, 40]))
        return ChannelTemplate(device, tiling, *layer, draw(channels), 1)
    return ChannelTemplate(device, tiling, *layer, draw(sizes(vector * lanes_c, 40)),
                           draw(st.sampled_from([1, 1, 2, 3])) if alone else 1)


@st.composite
def problems(draw: Any, template: Template) -> ConvProblem:
    """Images around the tile of a block, and uneven padding."""
    assert isinstance(template, ChannelTemplate)
    t, channels = template.tiling, template.channels
    assert isinstance(t, ChannelSumsTiling)
    spec = template.spec(channels, channels * template.multiplier, channels, draw(sides(3)))
    assume(spec.kind == "depthwise")  # one channel and a 1x1 kernel make a pointwise layer
    out = draw(sizes(t.lanes_h * t.thread_h, 16)), draw(sizes(t.lanes_w * t.thread_w, 17))
    return problem_around(draw, spec, out)
