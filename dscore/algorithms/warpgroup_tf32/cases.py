"""Cases of the product of matrices by warpgroups: rings, slices, clusters, vectors."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.base import VECTOR_BYTES
from dscore.algorithms.gemm import LEAST_SPLIT_CHANNELS
from dscore.algorithms.gemm.tiling import sizes_of, vectors_of
from dscore.algorithms.templates import (
    MOST_MACS,
    Template,
    options,
    pairs,
    problem_around,
    sides,
    sizes,
)
from dscore.algorithms.warpgroup_tf32 import WarpgroupTf32
from dscore.algorithms.warpgroup_tf32.tiling import WarpgroupTf32Tiling, shape_of
from dscore.core.device import Device
from dscore.core.problem import ConvProblem
from dscore.core.sizes import Pair

_WHOLE = VECTOR_BYTES // 4


@dataclass(frozen=True)
class WarpgroupTf32Template(Template):
    """Template with the elements that images and filters move as one, and buffers of filters."""

    vectors: Pair
    buffers: int


@st.composite
def templates(draw: Any, device: Device) -> Template:
    """One and two rows of instructions, slices, clusters, vectors and single elements."""
    drawn = draw(options(WarpgroupTf32, scaled=True))
    group_c, group_p = 8 * draw(st.integers(1, 4)), draw(st.sampled_from((64, 128)))
    slices, cluster = draw(st.integers(1, 2)), draw(st.integers(1, min(3, device.cluster_blocks)))
    tiling = WarpgroupTf32Tiling(
        tile_c=draw(st.integers(1, 2)) * group_c, tile_p=draw(st.integers(1, 2)) * group_p,
        group_c=group_c, group_p=group_p, slices=slices,
        step_c=slices * 8 * draw(st.integers(1, 3)), stages=draw(st.integers(3, 4)),
        cluster=cluster)
    widths = draw(st.sampled_from(((1, 1), (_WHOLE, 1), (1, _WHOLE), (_WHOLE, _WHOLE))))
    stride = (1, 1) if widths[0] > 1 else draw(st.one_of(st.just((1, 1)), pairs(2)))
    return WarpgroupTf32Template(device, tiling, (1, 1), stride, (1, 1), drawn, widths,
                                 draw(st.integers(1, 2)))


@st.composite
def problems(draw: Any, template: WarpgroupTf32Template) -> ConvProblem:
    """Channels and pixels around the tile; pixels that end with a tile, an image or neither."""
    t, (width_p, width_c) = template.tiling, template.vectors
    assert isinstance(t, WarpgroupTf32Tiling)
    alone = t.step_c * t.cluster
    depths = {size for size in _around(t.step_c) | _around(alone) | {16, 17, 20}
              if size >= LEAST_SPLIT_CHANNELS and (size <= alone) == (template.buffers == 1)}
    by_input, outputs = depths, _around(t.tile_c)
    if template.operation != "conv":
        by_input, outputs = outputs, depths
    inputs = {size for size in by_input if (size % _WHOLE == 0) == (width_c > 1)}
    assume(inputs and outputs)
    channels, outs = draw(st.sampled_from(sorted(inputs))), draw(st.sampled_from(sorted(outputs)))
    height, pixels = draw(st.integers(1, 6)), draw(sizes(
        t.tile_p, min(300, MOST_MACS // (2 * channels * outs))))
    whole = _WHOLE // gcd(height, _WHOLE) if width_p > 1 else 1
    width = max(pixels // height // whole, 1) * whole
    padding = st.just((0, 0, 0, 0)) if width_p > 1 else st.one_of(
        st.just((0, 0, 0, 0)), sides(1))
    problem = problem_around(draw, template.spec(channels, outs, 1, draw(padding)),
                             (height, width))
    assume(vectors_of(problem) == template.vectors)
    steps = shape_of(problem, t).steps
    assume(min(steps, 2) == template.buffers)
    assume((t.cluster - 1) * steps < -(-sizes_of(problem).depth // t.step_c))
    return problem


def _around(tile: int) -> set[int]:
    """Sizes around multiples of *tile*, single elements and vectors away, and small ones."""
    return {size for k in (1, 2, 3) for off in (-4, -1, 0, 1, 4)
            if 1 <= (size := k * tile + off) <= 140} | {1, 2, 3, 4}
