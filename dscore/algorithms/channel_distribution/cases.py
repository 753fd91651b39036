"""Cases of channel distribution: lanes and wavefronts in every layout of a block."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.channel_distribution import ChannelDistribution
from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling
from dscore.algorithms.templates import Template, options, pairs, problem_around, sides, sizes
from dscore.core.device import Device
from dscore.core.problem import ConvProblem


@dataclass(frozen=True)
class ChannelDistributionTemplate(Template):
    """Template with the rows of a block, which gcd(output height, repeat_w) must be."""

    rows: int


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """Lanes and wavefronts in every layout of a block."""
    group_c = 2 ** draw(st.integers(0, device.wavefront.bit_length() - 1))
    wave_c = device.wavefront // group_c * draw(st.integers(1, 4))
    repeat_w = draw(st.integers(1, 4))
    repeat_c = draw(st.integers(1, min(3, device.waves_per_block // repeat_w)))
    tiling = ChannelDistributionTiling(draw(st.integers(1, 5)), wave_c, repeat_w, repeat_c,
                                       group_c)
    rows = draw(st.sampled_from([d for d in range(1, repeat_w + 1) if repeat_w % d == 0]))
    return ChannelDistributionTemplate(device, tiling, (1, 1), draw(pairs(2)), (1, 1),
                                       draw(options(ChannelDistribution)), rows)


@st.composite
def problems(draw: Any, template: ChannelDistributionTemplate) -> ConvProblem:
    """Images and channels around the tile, tiles that divide and tiles that do not."""
    t = template.tiling
    assert isinstance(t, ChannelDistributionTiling)
    spec = template.spec(draw(sizes(t.group_c, 70)), draw(sizes(t.repeat_c * t.wave_c, 140)),
                         1, draw(sides(1)))
    heights = [rows for rows in range(1, 7) if gcd(rows, t.repeat_w) == template.rows]
    out = draw(st.sampled_from(heights)), draw(sizes(t.repeat_w * t.wave_w, 13))
    problem = problem_around(draw, spec, out)
    assume(gcd(problem.out_height, t.repeat_w) == template.rows)
    return problem
