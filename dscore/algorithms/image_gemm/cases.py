"""Cases of the product of whole images by filters: rings, slices, planes of odd and even sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.image_gemm import ImageGemm
from dscore.algorithms.image_gemm.space import MOST_GROUPS, MOST_ROWS, MOST_SUMS
from dscore.algorithms.image_gemm.tiling import DEPTH, ImageGemmTiling
from dscore.algorithms.templates import Template, options, problem_on
from dscore.core.device import Device
from dscore.core.problem import ConvProblem

_EIGHT, _PAIRS = 8, 32
_MOST_AREA, _MOST_IMAGES = 200, 3


@dataclass(frozen=True)
class ImageTemplate(Template):
    """Template with the size of a plane."""

    image: tuple[int, int]


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """Both operations; planes of odd and even sizes, tiles of one image and of several."""
    drawn = draw(options(ImageGemm))
    height, width = draw(st.integers(1, 14)), draw(st.integers(2, 14))
    assume(height * width <= _MOST_AREA)
    parts = draw(st.integers(1, 4 if height * width % _EIGHT == _EIGHT // 2 else 1))
    part = height * width if parts == 1 else _EIGHT * -(-height * width // (parts * _EIGHT))
    assume((parts - 1) * part < height * width)
    images = draw(st.integers(1, _MOST_IMAGES)) if parts == 1 else 1
    slices, cluster = draw(st.integers(1, 3)), draw(st.sampled_from((1, 1, 2, 3)))
    instructions = -(-images * -(-part // 2) // _PAIRS)
    few, many = -(-instructions // MOST_ROWS), min(MOST_GROUPS // slices, instructions)
    assume(few <= many)
    groups = draw(st.integers(few, many))
    rows = -(-instructions // groups)
    tile_n = _EIGHT * draw(st.integers(1, min(10, MOST_SUMS * 2 // rows // _EIGHT)))
    step = DEPTH * draw(st.integers(1, 5))
    tiling = ImageGemmTiling(tile_n=tile_n, images=images, groups=groups, slices=slices, step=step,
                             stages=slices * draw(st.integers(2, 4 if slices < 3 else 2)),
                             cluster=cluster, parts=parts,
                             repeat=draw(st.integers(1, 3)) if slices * cluster * parts == 1 else 1)
    return ImageTemplate(device, tiling, (1, 1), (1, 1), (1, 1), drawn, (height, width))


@st.composite
def problems(draw: Any, template: ImageTemplate) -> ConvProblem:
    """Channels around the tiles, at least a step for each slice; batches around the images."""
    t: Any = template.tiling
    columns = _EIGHT * draw(st.integers(1, 2 * t.tile_n // _EIGHT + 1))
    least = t.step * (t.slices * t.cluster - 1) // _EIGHT + 1
    summed = _EIGHT * draw(st.integers(least, least + 2 * t.step // _EIGHT))
    ins, outs = (summed, columns) if template.operation == "conv" else (columns, summed)
    problem = problem_on(draw, template.spec(ins, outs, 1, (0, 0, 0, 0)), template.image)
    return replace(problem, batch=draw(st.integers(1, t.images * t.repeat + 1)),
                   operation=template.operation)
