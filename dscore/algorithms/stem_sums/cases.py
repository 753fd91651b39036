"""Cases of the weight gradient of first layers: one to four input channels, any filter of up to
eight rows and columns, odd strides and even ones, and rows that are more and less aligned."""

from __future__ import annotations

from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.stem import MOST_TAPS
from dscore.algorithms.stem.cases import StemTemplate, layers
from dscore.algorithms.stem.tiling import FOUR, PIECE
from dscore.algorithms.stem_sums import StemSums
from dscore.algorithms.stem_sums.tiling import FRAGMENT, StemSumsTiling, shape_of
from dscore.algorithms.templates import Template, options, pairs
from dscore.core.device import Device
from dscore.core.problem import ConvProblem


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """Tiles of a few pieces, wavefronts over channels and pixels, slices, and all copies."""
    drawn = draw(options(StemSums))
    kernel = draw(st.one_of(st.just((3, 3)), pairs(MOST_TAPS)))
    assume(kernel != (1, 1))
    wave_m = FRAGMENT * draw(st.integers(1, 2))
    tiling = StemSumsTiling(
        tile_h=draw(st.integers(1, 3)), tile_w=PIECE * draw(st.integers(1, 3)),
        tile_m=wave_m * draw(st.integers(1, 2)), wave_m=wave_m, waves_p=draw(st.integers(1, 3)),
        slices=draw(st.integers(1, 4)))
    dilation = draw(st.integers(1, 2)), 1
    copy = draw(st.sampled_from((1, 2, 4, 8)))
    return StemTemplate(device, tiling, kernel, draw(pairs(3)), dilation, drawn,
                        draw(st.integers(1, FOUR)), copy)


@st.composite
def problems(draw: Any, template: StemTemplate) -> ConvProblem:
    """Channels, rows and columns around the tile, of rows that are as aligned as the template's."""
    t = template.tiling
    assert isinstance(t, StemSumsTiling)
    problem: ConvProblem = draw(layers(template, t.tile_m, t.tile_h, t.tile_w))
    assume(t.slices <= shape_of(problem, t).units)
    return problem
