"""Hypothesis strategies for problems and tilings, with sizes drawn around the tile.

A case is drawn in two steps: a template, which is all that a kernel is compiled for, and a shape
for it, so that a backend which compiles can run many shapes on few kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from .device import Device
from .errors import SpecError
from .plan import Plan
from .solver import make_plan
from .spec import ACTIVATIONS, ConvProblem, ConvSpec, Pair
from .tiling import STAGINGS, DepthwiseTiling, DirectTiling, PointwiseTiling, Tiling
from .verdict import validate

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
    tiling = PointwiseTiling(draw(st.integers(1, 5)), wave_c, repeat_w, repeat_c, group_c)
    rows = draw(st.sampled_from([d for d in range(1, repeat_w + 1) if repeat_w % d == 0]))
    return Template("pointwise", device, tiling, (1, 1), draw(_pair(2)), (1, 1), _epilogue(draw),
                    rows)


@st.composite
def depthwise_templates(draw: Any, device: Device) -> Template:
    """Both stagings, with and without column reuse; strides and dilation."""
    reuse = draw(st.booleans())
    lanes_w = 2 ** draw(st.integers(0, 4)) if reuse else draw(st.integers(1, 9))
    tiling = DepthwiseTiling(
        draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 3)), lanes_w,
        draw(st.integers(1, 4)), draw(st.sampled_from(STAGINGS)), reuse)
    return Template("depthwise", device, tiling, draw(_pair(5)), draw(_pair(3)), draw(_pair(2)),
                    _epilogue(draw))


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
    assert isinstance(t, PointwiseTiling)
    spec = template.spec(draw(_sizes(t.group_c, 70)), draw(_sizes(t.repeat_c * t.wave_c, 140)),
                         1, draw(_sides(1)))
    heights = [rows for rows in range(1, 7) if gcd(rows, t.repeat_w) == template.rows]
    out = draw(st.sampled_from(heights)), draw(_sizes(t.repeat_w * t.wave_w, 13))
    case = _case(draw, template, spec, out)
    assume(gcd(case.plan.problem.out_height, t.repeat_w) == template.rows)
    return case


@st.composite
def depthwise_shapes(draw: Any, template: Template) -> ConformanceCase:
    """Channel multipliers and uneven padding."""
    t, channels = template.tiling, draw(st.integers(1, 5))
    assert isinstance(t, DepthwiseTiling)
    spec = template.spec(channels, channels * draw(st.integers(1, 3)), channels, draw(_sides(3)))
    assume(spec.kind == "depthwise")  # one channel and a 1x1 kernel make a pointwise layer
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
    """The case of a layer whose output is about *out*; draws that make no plan are given up."""
    top, bottom, left, right = spec.padding if spec.padding != "same" else (0, 0, 0, 0)
    height = _input_size(draw, out[0], spec.span[0], spec.stride[0], top + bottom)
    width = _input_size(draw, out[1], spec.span[1], spec.stride[1], left + right)
    try:
        problem = ConvProblem(spec, draw(st.integers(1, 2)), height, width)
    except SpecError:  # a kernel larger than the padded image
        assume(False)
        raise
    assume(problem.macs <= MOST_MACS)
    assume(validate(problem, template.tiling, template.device, masked=True).ok)
    return ConformanceCase(make_plan(problem, template.device, template.tiling),
                           draw(st.integers(0, 2**16)))


def _input_size(draw: Any, out: int, span: int, stride: int, padding: int) -> int:
    """An input size that gives *out* outputs, as far as the padding allows one."""
    return max(1, (out - 1) * stride + span - padding + int(draw(st.integers(0, stride - 1))))


_TEMPLATES: dict[str, Callable[[Device], st.SearchStrategy[Template]]] = {
    "pointwise": pointwise_templates, "depthwise": depthwise_templates,
    "direct": direct_templates}
_SHAPES: dict[str, Callable[[Template], st.SearchStrategy[ConformanceCase]]] = {
    "pointwise": pointwise_shapes, "depthwise": depthwise_shapes, "direct": direct_shapes}


def templates(kind: str, devices: Sequence[Device]) -> st.SearchStrategy[Template]:
    """Templates of one of KINDS on any of *devices*."""
    return st.one_of([_TEMPLATES[kind](device) for device in devices])


def shapes(template: Template) -> st.SearchStrategy[ConformanceCase]:
    """Cases that run on the kernel of *template*."""
    return _SHAPES[template.kind](template)


def cases(kind: str, devices: Sequence[Device],
          pool: Sequence[Template] = ()) -> st.SearchStrategy[ConformanceCase]:
    """Cases of one of KINDS: on the templates of *pool*, else on any for *devices*."""
    chosen = st.sampled_from(list(pool)) if pool else templates(kind, devices)
    return chosen.flatmap(shapes)
