"""Cases of the product of pixels by filters: rings, tiles that follow one another, all channels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from dscore.algorithms.pixel_gemm import PixelGemm
from dscore.algorithms.pixel_gemm.tiling import DEPTH, EIGHT, PixelGemmTiling
from dscore.algorithms.templates import Template, options, problem_on
from dscore.algorithms.warpgroup_gemm.tiling import ROWS
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

_MOST_PIXELS = 300


@dataclass(frozen=True)
class PixelTemplate(Template):
    """Template with the steps that are kept."""

    kept: int


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """Both operations; kept steps as well as none, channels of odd and even eights."""
    drawn = draw(options(PixelGemm))
    tiling = PixelGemmTiling(
        tile_p=ROWS * draw(st.integers(1, 3)), tile_n=EIGHT * draw(st.integers(1, 12)),
        step=DEPTH * draw(st.integers(1, 6)), stages=draw(st.integers(1, 4)),
        repeat=draw(st.integers(1, 3)), kept=draw(st.booleans()))
    return PixelTemplate(device, tiling, (1, 1), (1, 1), (1, 1), drawn,
                         draw(st.integers(1, 2)) * tiling.kept)


@st.composite
def problems(draw: Any, template: PixelTemplate) -> ConvProblem:
    """Channels around the tiles; of steps that are kept, as many as there are."""
    t: Any = template.tiling
    columns = EIGHT * draw(st.integers(1, 2 * t.tile_n // EIGHT + 1))
    summed = EIGHT * draw(st.integers(1, 2 * t.step // EIGHT + 1))
    if template.kept:
        first, last = t.step * (template.kept - 1), t.step * template.kept
        summed = EIGHT * draw(st.integers(first // EIGHT + 1, last // EIGHT))
    area = EIGHT * draw(st.integers(1, _MOST_PIXELS // EIGHT))
    ins, outs = (summed, columns) if template.operation == "conv" else (columns, summed)
    height = draw(st.sampled_from([side for side in (1, 2, 3, 4, 8) if area % side == 0]))
    problem = problem_on(draw, template.spec(ins, outs, 1, (0, 0, 0, 0)), (height, area // height))
    return replace(problem, operation=template.operation)
