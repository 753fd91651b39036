"""Hypothesis strategies for problems and tilings, with sizes drawn around the tile.

A case is drawn in two steps: a template, which is all that a kernel is compiled for, and a shape
for it, so that a backend which compiles can run many shapes on few kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.case import case_of
from dscore.algorithms.geometry import ceil_div, vectors
from dscore.core.device import Device
from dscore.core.errors import SpecError
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.core.spec import ACTIVATIONS, ConvSpec, Pair
from dscore.core.tiling import (
    STAGINGS,
    ChannelDistributionTiling,
    DirectTiling,
    GemmTiling,
    RowReuseTiling,
    Tiling,
)
from dscore.solving.rules import LEAST_SPLIT_CHANNELS, keeps_all
from dscore.solving.solver import make_plan

KINDS = ("pointwise", "depthwise", "direct")
# A case must stay small enough for thousands of them: products of the whole problem.
MOST_MACS = 400_000


@dataclass(frozen=True)
class Template:
    """What a kernel is compiled for, whatever the sizes it then runs on."""

    kind: str
    device: Device
    tiling: Tiling
    kernel: Pair
    stride: Pair
    dilation: Pair
    epilogue: tuple[tuple[str, Any], ...]
    rows: int = 1  # of a pointwise block, which gcd(output height, repeat_w) must be
    vectors: Pair = (1, 1)  # of a product of matrices: elements that images and filters move as one
    # Of a depthwise block through LDS, which holds a piece of memory of the size that these make.
    image: Pair = (0, 0)
    margin: Pair = (0, 0)  # rows and columns of padding, those of both sides together
    multiplier: int = 1

    def spec(self, channels: int, out: int, groups: int, padding: Any) -> ConvSpec:
        """A layer that the template's kernel runs."""
        return ConvSpec.make(channels, out, self.kernel, stride=self.stride, padding=padding,
                             dilation=self.dilation, groups=groups, **dict(self.epilogue))


@dataclass(frozen=True)
class ConformanceCase:
    """A plan and the seed of its data."""

    plan: Plan
    seed: int


def _sizes(tile: int, most: int) -> st.SearchStrategy[int]:
    """Sizes around multiples of a tile, k·tile + {−1, 0, 1}, and small ones."""
    around = {k * tile + off for k in (1, 2, 3) for off in (-1, 0, 1)}
    return st.sampled_from(sorted({size for size in around if 1 <= size <= most} | {1, 2, 3}))


def _sides(most: int) -> st.SearchStrategy[Any]:
    side = st.integers(0, most)
    return st.tuples(side, side, side, side)


def _halves(draw: Any, margin: Pair) -> list[Pair]:
    """Padding that comes to *margin* on both sides together."""
    first = [draw(st.integers(0, most)) for most in margin]
    return [(before, most - before) for before, most in zip(first, margin, strict=True)]


def _pair(most: int) -> st.SearchStrategy[Any]:
    return st.tuples(st.integers(1, most), st.integers(1, most))


def _epilogue(draw: Any) -> tuple[tuple[str, Any], ...]:
    return (("bias", draw(st.booleans())),
            ("activation", draw(st.sampled_from((None, *ACTIVATIONS)))))


@st.composite
def pointwise_templates(draw: Any, device: Device) -> Template:
    """Lanes and wavefronts in every layout of a block."""
    group_c = 2 ** draw(st.integers(0, device.wavefront.bit_length() - 1))
    wave_c = device.wavefront // group_c * draw(st.integers(1, 4))
    repeat_w = draw(st.integers(1, 4))
    repeat_c = draw(st.integers(1, min(3, device.waves_per_block // repeat_w)))
    tiling = ChannelDistributionTiling(draw(st.integers(1, 5)), wave_c, repeat_w, repeat_c, group_c)
    rows = draw(st.sampled_from([d for d in range(1, repeat_w + 1) if repeat_w % d == 0]))
    return Template("pointwise", device, tiling, (1, 1), draw(_pair(2)), (1, 1), _epilogue(draw),
                    rows)


@st.composite
def matrix_templates(draw: Any, device: Device) -> Template:
    """Both arithmetics, two buffers and a ring of them, clusters, vectors and single elements."""
    split = device.copies_to_lds and draw(st.booleans())
    lanes_c = 8 if split else draw(st.sampled_from((4, 8, 16)))
    wave_c = (8 if split else lanes_c) * draw(st.integers(1, 3))
    wave_p = (16 if split else 4 * device.wavefront // lanes_c) * draw(st.integers(1, 2))
    slices = draw(st.integers(1, 3))
    tiling = GemmTiling(
        tile_c=draw(st.integers(1, 3)) * wave_c, tile_p=draw(st.integers(1, 2)) * wave_p,
        wave_c=wave_c, wave_p=wave_p, lanes_c=lanes_c, slices=slices,
        step_c=slices * (8 if split else 4) * draw(st.integers(1, 3)),
        stages=draw(st.integers(2, 4)) if device.copies_to_lds else 2,
        cluster=draw(st.integers(1, min(3, device.most_cluster_blocks))),
        arithmetic="tf32x3" if split else "plain")
    smallest = ConvProblem(ConvSpec.make(LEAST_SPLIT_CHANNELS, 1, 1), 1, 1, 1)
    assume(_fits(smallest, device, tiling))
    widths = draw(st.sampled_from(((1, 1), (4, 1), (1, 4), (4, 4))))
    stride = (1, 1) if widths[0] == 4 else draw(st.one_of(st.just((1, 1)), _pair(2)))
    return Template("pointwise", device, tiling, (1, 1), stride, (1, 1), _epilogue(draw),
                    vectors=widths)


@st.composite
def depthwise_templates(draw: Any, device: Device) -> Template:
    """Rows from registers, with and without column reuse, and through LDS; strides and dilation."""
    template = Template("depthwise", device, RowReuseTiling(1, 1, 1, 1, 1), draw(_pair(5)),
                        draw(_pair(3)), draw(_pair(2)), _epilogue(draw))
    staging = draw(st.sampled_from(STAGINGS))
    ahead = device.begins_early and draw(st.booleans())
    if staging != "registers":
        return _through_lds(draw, template, staging, ahead)
    reuse = draw(st.booleans())
    lanes_w = 2 ** draw(st.integers(0, 4)) if reuse else draw(st.integers(1, 9))
    return replace(template, tiling=RowReuseTiling(
        draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 3)), lanes_w,
        draw(st.integers(1, 4)), staging, reuse, ahead))


def _through_lds(draw: Any, template: Template, staging: Any, ahead: bool) -> Template:
    """Blocks of several whole planes, or of some rows of one, which begin anywhere in a vector."""
    span, stride = template.spec(1, 1, 1, 0).span, template.stride
    margin = draw(st.tuples(st.integers(0, 6), st.integers(0, 6)))
    height, width = (_input_size(draw, draw(st.integers(1, 13)), *axis)
                     for axis in zip(span, stride, margin, strict=True))
    image = height, width
    rows, columns = ((image[n] + margin[n] - span[n]) // stride[n] + 1 for n in (0, 1))
    thread_h, thread_w = draw(_pair(5))
    whole, lanes_w = draw(st.booleans()), ceil_div(columns, thread_w) + draw(st.integers(0, 1))
    lanes_h = ceil_div(rows, thread_h) if whole else draw(st.integers(1, 3))
    tiling = RowReuseTiling(thread_h, thread_w, lanes_h, lanes_w,
                             draw(st.integers(1, 6)) if whole else 1, staging, ahead=ahead)
    return replace(template, tiling=tiling, image=image, margin=margin,
                   multiplier=draw(st.integers(1, 3)))


@st.composite
def direct_templates(draw: Any, device: Device) -> Template:
    """Any kernel, stride and dilation."""
    tiling = DirectTiling(device.wavefront * draw(st.integers(1, 2)), draw(st.integers(1, 4)))
    return Template("direct", device, tiling, draw(_pair(4)), draw(_pair(3)), draw(_pair(2)),
                    _epilogue(draw))


@st.composite
def pointwise_shapes(draw: Any, template: Template) -> ConformanceCase:
    """Images and channels around the tile, tiles that divide and tiles that do not."""
    t = template.tiling
    assert isinstance(t, ChannelDistributionTiling)
    spec = template.spec(draw(_sizes(t.group_c, 70)), draw(_sizes(t.repeat_c * t.wave_c, 140)),
                         1, draw(_sides(1)))
    heights = [rows for rows in range(1, 7) if gcd(rows, t.repeat_w) == template.rows]
    out = draw(st.sampled_from(heights)), draw(_sizes(t.repeat_w * t.wave_w, 13))
    case = _case(draw, template, spec, out)
    assume(gcd(case.plan.problem.out_height, t.repeat_w) == template.rows)
    return case


@st.composite
def matrix_shapes(draw: Any, template: Template) -> ConformanceCase:
    """Channels and pixels around the tile; pixels that end with a tile, an image or neither."""
    t, (width_p, width_c) = template.tiling, template.vectors
    assert isinstance(t, GemmTiling)
    around = {k * t.step_c + off for k in (1, 2, 3) for off in (-4, -1, 0, 1, 4)}
    least = 1 if t.arithmetic == "plain" else LEAST_SPLIT_CHANNELS
    channels = draw(st.sampled_from(sorted(
        size for size in around | {1, 2, 3, 4, 16, 17}
        if size >= least and (size % 4 == 0) == (width_c == 4))))
    outs = draw(_sizes(t.tile_c, 140))
    height, pixels = draw(st.integers(1, 6)), draw(_sizes(
        t.tile_p, min(300, MOST_MACS // (2 * channels * outs))))
    whole = 4 // gcd(height, 4) if width_p == 4 else 1
    width = max(pixels // height // whole, 1) * whole
    sides = st.just((0, 0, 0, 0)) if width_p == 4 else st.one_of(st.just((0, 0, 0, 0)), _sides(1))
    case = _case(draw, template, template.spec(channels, outs, 1, draw(sides)), (height, width))
    assume(vectors(case.plan.problem) == template.vectors)
    return case


@st.composite
def depthwise_shapes(draw: Any, template: Template) -> ConformanceCase:
    """Channel multipliers and uneven padding."""
    t, channels = template.tiling, draw(st.integers(1, 5))
    assert isinstance(t, RowReuseTiling)
    staged = t.staging != "registers"
    multiplier = template.multiplier if staged else draw(st.integers(1, 3))
    spec = template.spec(channels, channels * multiplier, channels,
                         _halves(draw, template.margin) if staged else draw(_sides(3)))
    assume(spec.kind == "depthwise")  # one channel and a 1x1 kernel make a pointwise layer
    if staged:
        return _case_of(draw, template, spec, template.image)
    out = (draw(_sizes(t.lanes_h * t.thread_h, 16)), draw(_sizes(t.lanes_w * t.thread_w, 33)))
    return _case(draw, template, spec, out)


@st.composite
def direct_shapes(draw: Any, template: Template) -> ConformanceCase:
    """Dense and grouped layers."""
    t, groups = template.tiling, draw(st.integers(1, 3))
    assert isinstance(t, DirectTiling)
    spec = template.spec(groups * draw(st.integers(1, 4)), groups * draw(_sizes(t.thread_c, 9)),
                         groups, draw(_sides(3)))
    return _case(draw, template, spec, (draw(st.integers(1, 9)), draw(_sizes(8, 17))))


def _case(draw: Any, template: Template, spec: ConvSpec, out: Pair) -> ConformanceCase:
    """The case of a layer whose output is about *out*."""
    top, bottom, left, right = spec.padding if spec.padding != "same" else (0, 0, 0, 0)
    height = _input_size(draw, out[0], spec.span[0], spec.stride[0], top + bottom)
    width = _input_size(draw, out[1], spec.span[1], spec.stride[1], left + right)
    return _case_of(draw, template, spec, (height, width))


def _case_of(draw: Any, template: Template, spec: ConvSpec, image: Pair) -> ConformanceCase:
    """The case of a layer on images of a size; draws that make no plan are given up."""
    try:
        problem = ConvProblem(spec, draw(st.integers(1, 2)), *image)
    except SpecError:  # a kernel larger than the padded image
        assume(False)
        raise
    assume(problem.macs <= MOST_MACS)
    assume(_fits(problem, template.device, template.tiling))
    return ConformanceCase(make_plan(problem, template.device, template.tiling),
                           draw(st.integers(0, 2**16)))


def _fits(problem: ConvProblem, device: Device, tiling: Tiling) -> bool:
    return bool(keeps_all(case_of(problem, device, type(tiling), tiling), "hardware", masked=True))


def _input_size(draw: Any, out: int, span: int, stride: int, padding: int) -> int:
    """An input size that gives *out* outputs, as far as the padding allows one."""
    return max(1, (out - 1) * stride + span - padding + int(draw(st.integers(0, stride - 1))))


_TEMPLATES: dict[str, tuple[Callable[[Device], st.SearchStrategy[Template]], ...]] = {
    "pointwise": (pointwise_templates, matrix_templates), "depthwise": (depthwise_templates,),
    "direct": (direct_templates,)}
_SHAPES: dict[type[Tiling], Callable[[Template], st.SearchStrategy[ConformanceCase]]] = {
    ChannelDistributionTiling: pointwise_shapes, GemmTiling: matrix_shapes,
    RowReuseTiling: depthwise_shapes, DirectTiling: direct_shapes}


def templates(kind: str, devices: Sequence[Device]) -> st.SearchStrategy[Template]:
    """Templates of one of KINDS on any of *devices*."""
    return st.one_of([made(device) for made in _TEMPLATES[kind] for device in devices])


def shapes(template: Template) -> st.SearchStrategy[ConformanceCase]:
    """Cases that run on the kernel of *template*."""
    return _SHAPES[type(template.tiling)](template)


def cases(kind: str, devices: Sequence[Device],
          pool: Sequence[Template] = ()) -> st.SearchStrategy[ConformanceCase]:
    """Cases of one of KINDS: on the templates of *pool*, else on any for *devices*."""
    chosen = st.sampled_from(list(pool)) if pool else templates(kind, devices)
    return chosen.flatmap(shapes)
