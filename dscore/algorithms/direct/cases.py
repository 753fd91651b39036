"""Cases of the direct definition: any kernel, stride and dilation, dense and grouped layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from dscore.algorithms.direct import Direct, DirectTiling
from dscore.algorithms.templates import Template, options, pairs, problem_around, sides, sizes
from dscore.core.device import Device
from dscore.core.problem import ConvProblem


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """Any kernel, stride and dilation, and every operation."""
    tiling = DirectTiling(device.wavefront * draw(st.integers(1, 2)), draw(st.integers(1, 4)))
    scaled = draw(st.booleans())  # which pointwise layers alone can be
    drawn = draw(options(Direct, scaled, ("conv",) * scaled))
    if dict(drawn)["operation"] == "mean":
        last = dict(drawn).get("layout") == "nhwc"  # whose pixels blocks of a cluster share
        few = replace(tiling, thread_c=draw(st.sampled_from((1, 2, 4, 8))), cluster=draw(
            st.integers(1, min(3, device.cluster_blocks) if last else 1)))
        return Template(device, few, (1, 1), (1, 1), (1, 1), drawn)
    if dict(drawn)["operation"] == "quantise":
        many = replace(tiling, thread_c=draw(st.sampled_from((1, 3, 8, 16))))
        return Template(device, many, (1, 1), (1, 1), (1, 1), drawn)
    kernel = (1, 1) if scaled else draw(pairs(4))
    return Template(device, tiling, kernel, draw(pairs(3)), draw(pairs(2)), drawn)


@st.composite
def problems(draw: Any, template: Template) -> ConvProblem:
    """Dense and grouped layers."""
    t = template.tiling
    if dict(template.options)["operation"] in ("quantise", "mean"):
        # Of vectors of 16, 8 and 4 elements, and of none.
        channels = draw(st.integers(1, 40) | st.sampled_from((16, 24, 32, 36, 48)))
        return problem_around(draw, template.spec(channels, channels, 1, 0),
                              (draw(st.integers(1, 9)), draw(sizes(8, 17))))
    groups = 1 if dict(template.options).get("scaled") else draw(st.integers(1, 3))
    assert isinstance(t, DirectTiling)
    spec = template.spec(groups * draw(st.integers(1, 4)), groups * draw(sizes(t.thread_c, 9)),
                         groups, draw(sides(3)))
    return problem_around(draw, spec, (draw(st.integers(1, 9)), draw(sizes(8, 17))))
