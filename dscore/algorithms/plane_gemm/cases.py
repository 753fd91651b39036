"""Cases of the product of filters by planes: rings, tiles that follow one another, all planes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from dscore.algorithms.plane_gemm import PlaneGemm
from dscore.algorithms.plane_gemm.tiling import EIGHT, PlaneGemmTiling, vector_of
from dscore.algorithms.templates import Template, options, problem_on
from dscore.algorithms.warpgroup_gemm.tiling import ROWS
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

_MOST_PIXELS = 300


@dataclass(frozen=True)
class PlaneTemplate(Template):
    """Template with the steps that are kept, the vectors of planes, and whether these are whole."""

    kept: int
    vector: int
    whole: bool


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """Both operations; kept steps as well as none, rows of planes of all vectors."""
    drawn, vector = draw(options(PlaneGemm)), draw(st.sampled_from((1, 2, 4, 8)))
    whole = draw(st.booleans())
    images = draw(st.integers(1, 3)) if whole else 1
    tiling = PlaneGemmTiling(
        tile_m=ROWS * draw(st.integers(1, 2)), tile_p=EIGHT * draw(st.integers(1, 10)),
        images=images, step=(16 * draw(st.integers(1, 5)) if vector % 4 == 0
                             else 64 * draw(st.integers(1, 2))),
        stages=draw(st.integers(1, 4)), repeat=draw(st.integers(1, 3)), kept=draw(st.booleans()),
        movers=draw(st.integers(1, 7)))
    return PlaneTemplate(device, tiling, (1, 1), (1, 1), (1, 1), drawn,
                         draw(st.integers(1, 2)) * tiling.kept, vector, whole)


@st.composite
def problems(draw: Any, template: PlaneTemplate) -> ConvProblem:
    """Channels around the tiles, planes of the template's vectors; of steps that are kept, as many
    as there are."""
    t: Any = template.tiling
    rows = EIGHT * draw(st.integers(1, 2 * t.tile_m // EIGHT + 1))
    summed = EIGHT * draw(st.integers(1, 2 * t.step // EIGHT + 1))
    if template.kept:
        first, last = t.step * (template.kept - 1), t.step * template.kept
        summed = EIGHT * draw(st.integers(first // EIGHT + 1, last // EIGHT))
    least, most = (2, t.tile_p) if template.whole else (t.tile_p + 1, 3 * t.tile_p + 9)
    areas = [area for area in range(least, min(max(most, least + 8), _MOST_PIXELS) + 1)
             if vector_of(area) == template.vector and (area <= t.tile_p) == template.whole]
    area = draw(st.sampled_from(areas))
    ins, outs = (summed, rows) if template.operation == "conv" else (rows, summed)
    height = draw(st.sampled_from([side for side in (1, 2, 3, 4, 8) if area % side == 0]))
    problem = problem_on(draw, template.spec(ins, outs, 1, (0, 0, 0, 0)), (height, area // height))
    return replace(problem, operation=template.operation)
