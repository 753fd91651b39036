"""Cases of the implicit product of matrices by warpgroups: dense layers, any kernel, stride and
dilation, turns of rows, slices, clusters, vectors and single elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.implicit_gemm.tiling import under_tile, vectors_of
from dscore.algorithms.implicit_warpgroup import LEAST_CHANNELS, MOST_BATCHES, ImplicitWarpgroup
from dscore.algorithms.implicit_warpgroup.tiling import ImplicitWarpgroupTiling, shape_of
from dscore.algorithms.templates import (
    MOST_MACS,
    Template,
    options,
    pairs,
    problem_around,
    sides,
    sizes,
)
from dscore.core.device import Device
from dscore.core.problem import ConvProblem
from dscore.core.sizes import Pair

_WHOLE = VECTOR_BYTES // 4
_MOST_LDS = 160_000  # bytes of parts and filters, which leave room for images


@dataclass(frozen=True)
class ImplicitWarpgroupTemplate(Template):
    """Template with the elements that images of the output and filters move as one."""

    vectors: Pair


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """One and two rows of instructions, turns, slices, clusters, vectors and single elements."""
    drawn = draw(options(ImplicitWarpgroup))
    kernel = draw(st.one_of(st.just((3, 3)), pairs(4)))
    rows = draw(st.sampled_from([rows for rows in range(1, kernel[0] + 1)
                                 if kernel[0] % rows == 0]))
    group_c, group_p = 8 * draw(st.integers(1, 3)), draw(st.sampled_from((64, 128)))
    slices, cluster = draw(st.integers(1, 2)), draw(st.integers(1, min(3, device.cluster_blocks)))
    tile_p, eights = draw(st.integers(1, 2)) * group_p, draw(st.integers(1, 2))
    assume(eights * rows * kernel[1] <= MOST_BATCHES)
    tiling = ImplicitWarpgroupTiling(
        tile_c=draw(st.integers(1, 2)) * group_c, tile_p=tile_p, group_c=group_c, group_p=group_p,
        slices=slices, step_c=slices * 8 * eights, rows=rows, stages=draw(st.integers(3, 4)),
        # Enough for small images and narrow ones.
        patch=(tile_p + 8) * draw(st.integers(3, 6)), cluster=cluster)
    filters = tiling.tile_c * tiling.step_c * kernel[1]
    assume(4 * filters * (4 * rows + tiling.stages * kernel[0])
           + 4 * tiling.stages * tiling.step_c * tiling.patch <= _MOST_LDS)
    vectors = draw(st.sampled_from((1, _WHOLE))), draw(st.sampled_from((1, _WHOLE)))
    return ImplicitWarpgroupTemplate(device, tiling, kernel, draw(pairs(3)), draw(pairs(2)), drawn,
                                     vectors)


@st.composite
def problems(draw: Any, template: ImplicitWarpgroupTemplate) -> ConvProblem:
    """Channels and pixels around the tile; images that the patch has room for."""
    t, (taps_h, taps_w) = template.tiling, template.kernel
    assert isinstance(t, ImplicitWarpgroupTiling)
    outs = draw(sizes(t.tile_c, 50))
    channels = max(draw(sizes(t.step_c * t.cluster, 70)), LEAST_CHANNELS)
    pixels = min(draw(sizes(t.tile_p, 260)),
                 max(MOST_MACS // (2 * channels * outs * taps_h * taps_w), 4))
    width = draw(st.integers(1, max(min(pixels, 17), 1)))
    problem = problem_around(draw, template.spec(channels, outs, 1, draw(sides(2))),
                             (-(-pixels // width), width))
    shape = shape_of(problem, t)
    assume(problem.spec.kind == "dense" and vectors_of(problem) == template.vectors)
    assume(under_tile(problem, t.tile_p) <= t.patch)
    assume((t.cluster - 1) * shape.steps < shape.all_steps)
    return problem
