"""Cases of the product of matrices by warpgroups: rings, tiles that follow one another, parts,
clusters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.templates import Template, options, problem_on
from dscore.algorithms.warpgroup_gemm import WarpgroupGemm
from dscore.algorithms.warpgroup_gemm.tiling import (
    ROW,
    ROW_BYTES,
    ROWS,
    WarpgroupGemmTiling,
    shape_of,
)
from dscore.core.device import Device
from dscore.core.numerics import ELEMENTS
from dscore.core.problem import ConvProblem

_MOST_PIXELS = 420


@dataclass(frozen=True)
class KeptTemplate(Template):
    """Template with the steps that are kept, and the vectors of a row that comes as a span; 0 for
    any."""

    kept: int
    span: int


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """All operations; kept steps as well as none."""
    drawn = draw(options(WarpgroupGemm, scaled=True))
    weights = dict(drawn)["operation"] == "weight_gradient"
    element = ELEMENTS[dict(drawn)["dtype"]]
    step = ROW_BYTES // element.bytes * draw(st.integers(1, 2))
    tile_n = 16 * draw(st.integers(1, 6)) if element.exact else 8 * draw(st.integers(1, 12))
    parts = draw(st.sampled_from((1, 2, 3))) if weights else 1
    cluster = draw(st.sampled_from((1, 1, 2, 3, 4) if device.cluster_blocks >= 4
                                   and not element.exact else (1,)))
    alone = parts * cluster == 1
    spans = (alone and not weights and draw(st.booleans())
             and (element.exact or not dict(drawn).get("scaled")))
    repeat, kept = draw(st.integers(1, 3)) if alone else 1, alone and draw(st.booleans())
    tiling = WarpgroupGemmTiling(
        tile_m=ROWS * draw(st.integers(1, 3)), tile_n=tile_n, step=step,
        stages=draw(st.integers(2, 4)), repeat=repeat, kept=kept or (spans and repeat > 1),
        parts=parts, cluster=cluster, spans=spans,
        banked=bool(dict(drawn).get("table")) and draw(st.booleans()))
    vectors = draw(st.integers(1, step * element.bytes // VECTOR_BYTES)) if spans else 0
    return KeptTemplate(device, tiling, (1, 1), (1, 1), (1, 1), drawn,
                        1 if spans else draw(st.integers(1, 2)) * tiling.kept, vectors)


@st.composite
def problems(draw: Any, template: KeptTemplate) -> ConvProblem:
    """Channels and pixels around the tiles; of steps that are kept, as many as there are."""
    t: Any = template.tiling
    unit = 8 if t.spans else VECTOR_BYTES // template.element.bytes
    columns = draw(_columns(template))
    rows = 8 * draw(st.integers(1, 2 * t.tile_m // 8 + 1))
    summed = draw(st.integers(1, (t.cluster + 1) * t.step // unit + 1)) * unit
    kept = template.kept
    if template.span:
        vector = VECTOR_BYTES // template.element.bytes
        summed = template.span * vector - unit * draw(st.integers(0, vector // unit - 1))
    elif kept:
        summed = unit * draw(st.integers(t.step * (kept - 1) // unit + 1, t.step * kept // unit))
    weights = template.operation == "weight_gradient"
    ins, outs = {"conv": (summed, columns), "input_gradient": (columns, summed),
                 "weight_gradient": (columns, rows)}[template.operation]
    near = (t.step if weights else t.tile_m) * draw(st.integers(1, 3 + t.cluster))
    pixels = max(1, min(near + draw(st.sampled_from((-9, -1, 0, 1, 5))), _MOST_PIXELS))
    if weights and kept:
        pixels = draw(st.integers(t.step * (kept - 1) + 1, t.step * kept))
    spec = template.spec(ins, outs, 1, (0, 0, 0, 0))
    height = 1 if weights and kept else draw(st.integers(1, 3))
    problem = problem_on(draw, spec, (height, max(pixels // height, 1)))
    if weights and kept:
        problem = replace(problem, batch=1)
    if template.element.exact:
        assume(not WarpgroupGemm().runs(problem))
    problem = replace(problem, operation=template.operation)
    assume(t.cluster <= shape_of(problem, t).all_steps)
    return problem


def _columns(template: KeptTemplate) -> st.SearchStrategy[int]:
    """Columns of a tile, of part of one, of several, or of two and a part where boxes or vectors of
    results are whole."""
    t: Any = template.tiling
    if not template.element.exact:
        most = t.tile_n if t.tile_n % ROW else 2 * t.tile_n + 8
        some = st.integers(1, most // 8).map(lambda eights: eights * 8)
        return st.one_of(some, st.integers(2, 3).map(lambda tiles: tiles * t.tile_n))
    return st.one_of(st.integers(1, t.tile_n // 8).map(lambda eights: eights * 8),
                     st.integers(1, 2 * t.tile_n // 16 + 1).map(lambda vectors: vectors * 16))
