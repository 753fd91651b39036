"""Cases of gates: any number of channels before and between, clusters, shared pixels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.gate import Gate
from dscore.algorithms.gate.tiling import GateTiling, vector_of
from dscore.algorithms.templates import Template, options, problem_on
from dscore.core.device import Device
from dscore.core.problem import ConvProblem
from dscore.ops.gate import BETWEEN


@dataclass(frozen=True)
class GateTemplate(Template):
    """Template with what a kernel of any image size is compiled for."""

    channels: int
    between: int
    vector: int


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """Vectors of all widths, of channels or of a plane's pixels."""
    sharers = draw(st.integers(1, min(3, device.cluster_blocks)))
    cluster = sharers * draw(st.integers(1, max(device.cluster_blocks // sharers, 1)))
    tiling = GateTiling(device.wavefront * draw(st.integers(1, 4)), cluster, sharers)
    drawn = (*draw(options(Gate)), ("bias", draw(st.booleans())),
             ("activation", draw(st.sampled_from(BETWEEN))))
    channels = draw(st.integers(1, 40) | st.sampled_from((32, 48, 64, 96, 144)))
    template = GateTemplate(device, tiling, (1, 1), (1, 1), (1, 1), drawn, channels,
                            draw(st.integers(1, 20) | st.sampled_from((8, 16, 24))), 1)
    wide = vector_of(ConvProblem(_layer(template), 1, 4, 4))
    narrow = [wide // 2**k for k in range(wide.bit_length())]
    vector = wide if dict(drawn)["layout"] == "nhwc" else draw(st.sampled_from(narrow))
    return replace(template, vector=vector)


@st.composite
def problems(draw: Any, template: GateTemplate) -> ConvProblem:
    """Images of a few pixels, of as wide vectors as the template's."""
    image = draw(st.integers(1, 9)), draw(st.integers(1, 17))
    problem: ConvProblem = problem_on(draw, _layer(template), image)
    problem = replace(problem, operation=template.operation)
    assume(vector_of(problem) == template.vector)
    return problem


def _layer(template: GateTemplate) -> Any:
    return template.spec(template.channels, template.between, 1, 0)
