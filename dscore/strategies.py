"""Hypothesis strategies for problems and tilings, with sizes drawn around the tile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from .device import Device
from .errors import SpecError
from .plan import Plan
from .solver import make_plan
from .spec import ACTIVATIONS, ConvProblem, ConvSpec
from .tiling import STAGINGS, DepthwiseTiling, DirectTiling, PointwiseTiling, Tiling
from .verdict import validate

KINDS = ("pointwise", "depthwise", "direct")
# A case must stay small enough for thousands of them: products of the whole problem.
MOST_MACS = 400_000


@dataclass(frozen=True)
class ConformanceCase:
    """A plan and the seed of its data."""

    plan: Plan
    seed: int


def _sizes(tile: int, most: int) -> st.SearchStrategy[int]:
    """Sizes around multiples of a tile, k·tile + {−1, 0, 1}, and small ones."""
    around = {k * tile + off for k in (1, 2, 3) for off in (-1, 0, 1)}
    return st.sampled_from(sorted({size for size in around if 1 <= size <= most} | {1, 2, 3}))


def _input_size(draw: Any, out: int, span: int, stride: int, before: int, after: int) -> int:
    """An input size that gives *out* outputs, as far as the padding allows one."""
    least = (out - 1) * stride + span - before - after
    return max(1, least + int(draw(st.integers(0, stride - 1))))


def _case(draw: Any, spec: ConvSpec, batch: int, out: tuple[int, int], tiling: Tiling,
          device: Device) -> ConformanceCase:
    """The case of a layer whose output is about *out*; draws that make no plan are given up."""
    top, bottom, left, right = spec.padding if spec.padding != "same" else (0, 0, 0, 0)
    height = _input_size(draw, out[0], spec.span[0], spec.stride[0], top, bottom)
    width = _input_size(draw, out[1], spec.span[1], spec.stride[1], left, right)
    try:
        problem = ConvProblem(spec, batch, height, width)
    except SpecError:  # a kernel larger than the padded image
        assume(False)
        raise
    assume(problem.macs <= MOST_MACS)
    assume(validate(problem, tiling, device, masked=True).ok)
    return ConformanceCase(make_plan(problem, device, tiling), draw(st.integers(0, 2**16)))


def _epilogue(draw: Any) -> dict[str, Any]:
    return {"bias": draw(st.booleans()), "activation": draw(st.sampled_from((None, *ACTIVATIONS)))}


def _sides(most: int) -> st.SearchStrategy[Any]:
    side = st.integers(0, most)
    return st.tuples(side, side, side, side)


def _pair(most: int) -> st.SearchStrategy[Any]:
    return st.tuples(st.integers(1, most), st.integers(1, most))


@st.composite
def pointwise_cases(draw: Any, device: Device) -> ConformanceCase:
    """1x1 convolutions of any stride and padding, tiles that divide and tiles that do not."""
    group_c = 2 ** draw(st.integers(0, device.wavefront.bit_length() - 1))
    wave_c = device.wavefront // group_c * draw(st.integers(1, 4))
    repeat_w = draw(st.integers(1, 4))
    repeat_c = draw(st.integers(1, min(3, device.waves_per_block // repeat_w)))
    tiling = PointwiseTiling(draw(st.integers(1, 5)), wave_c, repeat_w, repeat_c, group_c)
    spec = ConvSpec.make(
        draw(_sizes(group_c, 70)), draw(_sizes(repeat_c * wave_c, 140)), 1,
        stride=draw(_pair(2)), padding=draw(_sides(1)), **_epilogue(draw))
    out = draw(_sizes(repeat_w, 6)), draw(_sizes(repeat_w * tiling.wave_w, 13))
    return _case(draw, spec, draw(st.integers(1, 2)), out, tiling, device)


@st.composite
def depthwise_cases(draw: Any, device: Device) -> ConformanceCase:
    """Depthwise convolutions: strides, dilation, multipliers, uneven padding, both stagings."""
    reuse = draw(st.booleans())
    lanes_w = 2 ** draw(st.integers(0, 4)) if reuse else draw(st.integers(1, 9))
    tiling = DepthwiseTiling(
        draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 3)), lanes_w,
        draw(st.integers(1, 4)), draw(st.sampled_from(STAGINGS)), reuse)
    channels = draw(st.integers(1, 5))
    spec = ConvSpec.make(
        channels, channels * draw(st.integers(1, 3)), draw(_pair(5)), stride=draw(_pair(3)),
        padding=draw(_sides(3)), dilation=draw(_pair(2)), groups=channels, **_epilogue(draw))
    assume(spec.kind == "depthwise")  # one channel and a 1x1 kernel make a pointwise layer
    out = (draw(_sizes(tiling.lanes_h * tiling.thread_h, 16)),
           draw(_sizes(lanes_w * tiling.thread_w, 33)))
    return _case(draw, spec, draw(st.integers(1, 2)), out, tiling, device)


@st.composite
def direct_cases(draw: Any, device: Device) -> ConformanceCase:
    """Dense and grouped convolutions."""
    tiling = DirectTiling(device.wavefront * draw(st.integers(1, 2)), draw(st.integers(1, 4)))
    groups = draw(st.integers(1, 3))
    spec = ConvSpec.make(
        groups * draw(st.integers(1, 4)), groups * draw(_sizes(tiling.thread_c, 9)),
        draw(_pair(4)), stride=draw(_pair(3)), padding=draw(_sides(3)), dilation=draw(_pair(2)),
        groups=groups, **_epilogue(draw))
    out = draw(st.integers(1, 9)), draw(_sizes(8, 17))
    return _case(draw, spec, draw(st.integers(1, 2)), out, tiling, device)


def cases(kind: str, devices: tuple[Device, ...]) -> st.SearchStrategy[ConformanceCase]:
    """Cases of one of KINDS on any of *devices*."""
    made = {"pointwise": pointwise_cases, "depthwise": depthwise_cases, "direct": direct_cases}
    return st.one_of([made[kind](device) for device in devices])
