"""Plans of the reference backend that are drawn and run, for tests of its algorithms."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from oracle import within_bound
from plans import plan_of
from profiles import examples

from dscore.algorithms.gemm.tiling import GemmTiling
from dscore.backends.reference.backend import ReferenceBackend
from dscore.checking import bound
from dscore.checking.rounding import rounding_of
from dscore.core.problem import ConvProblem
from dscore.core.spec import ACTIVATIONS, ConvSpec
from dscore.core.trace import Trace

GUARD = 64
CHECKED = settings(deadline=None, derandomize=True, max_examples=examples(150))


def arrays(problem, seed=0):
    """x, w and bias of non-trivial values."""
    rng = np.random.default_rng(seed)
    spec = problem.spec
    operands = [rng.normal(0, 2, shape).astype(np.float32)
                for shape in (problem.x_shape, spec.w_shape, (spec.out_channels,))]
    return operands if spec.bias else [*operands[:2], None]


def run(plan, x, w, bias, trace=None):
    """The output, which was NaN before and lies between guards that must stay as they are."""
    size = math.prod(plan.problem.y_shape)
    memory = np.full(size + 2 * GUARD, np.nan, dtype=np.float32)
    memory[:GUARD] = memory[-GUARD:] = 7
    out = memory[GUARD:-GUARD].reshape(plan.problem.y_shape)
    ReferenceBackend().compile(plan)(x, w, bias, out, trace=trace)
    assert (memory[:GUARD] == 7).all()
    assert (memory[-GUARD:] == 7).all()
    return out


def check(plan, seed=0):
    """Within its bound, and written exactly once: as many stores as elements, none left NaN."""
    x, w, bias = arrays(plan.problem, seed)
    trace = Trace()
    out = run(plan, x, w, bias, trace)
    if rounding_of(plan).arithmetic == "sum":
        within_bound(plan.problem, out, x, w, bias)
    else:
        wanted = bound.expected(plan.problem, x, w, bias, rounding=rounding_of(plan))
        assert bound.compare(out, wanted).ok
    assert trace.elements_stored == out.size
    assert run(plan, x, w, bias).tobytes() == out.tobytes(), "a trace must not change the result"
    return trace


def near(tile, most=20):
    """Sizes around the multiples of *tile*."""
    around = {max(1, k * tile + d) for k in (0, 1, 2) for d in (-1, 0, 1)}
    return st.sampled_from(sorted(size for size in around if size <= most) or [1])


@st.composite
def axes(draw, outputs, kernels, dilations=(1, 2)):
    """Kernel, stride, padding, dilation and input size of one axis with about *outputs*."""
    kernel, stride = draw(st.sampled_from(kernels)), draw(st.integers(1, 3))
    dilation = draw(st.sampled_from(dilations))
    span = (kernel - 1) * dilation + 1
    before, after, slack = draw(st.integers(0, 3)), draw(st.integers(0, 3)), draw(st.integers(0, 2))
    size = max((outputs - 1) * stride + span - before - after + slack % stride, 1,
               span - before - after)
    return kernel, stride, (before, after), dilation, size


@st.composite
def problems(draw, rows, columns, channels, kernels=(1, 2, 3, 4)):
    """A problem of about *rows* x *columns* outputs; *channels*: (in, out, groups)."""
    kh, sh, ph, dh, height = draw(axes(draw(rows), kernels))
    kw, sw, pw, dw, width = draw(axes(draw(columns), kernels))
    spec = ConvSpec.make(*channels[:2], (kh, kw), stride=(sh, sw), padding=(ph, pw),
                         dilation=(dh, dw), groups=channels[2], bias=draw(st.booleans()),
                         activation=draw(st.sampled_from([None, *ACTIVATIONS])))
    return ConvProblem(spec, draw(st.integers(1, 2)), height, width)


@st.composite
def gemm_plans(draw, arithmetics=("plain", "tf32x3")):
    tf32 = draw(st.sampled_from(arithmetics)) == "tf32x3"
    wavefront = 32 if tf32 else draw(st.sampled_from([64, 32]))
    lanes_c = 8 if tf32 else draw(st.sampled_from([4, 8, 16]))
    wave_c = (8 if tf32 else lanes_c) * draw(st.integers(1, 2))
    wave_p = (16 if tf32 else 4 * wavefront // lanes_c) * draw(st.integers(1, 2))
    slices = draw(st.integers(1, 3))
    t = GemmTiling(
        tile_c=wave_c * draw(st.integers(1, 2)), tile_p=wave_p * draw(st.integers(1, 2)),
        wave_c=wave_c, wave_p=wave_p, lanes_c=lanes_c, slices=slices,
        step_c=slices * (8 if tf32 else 4) * draw(st.integers(1, 2)),
        stages=draw(st.integers(2, 4)), cluster=draw(st.integers(1, 3)),
        arithmetic="tf32x3" if tf32 else "plain")
    channels = draw(st.integers(1, 28)), draw(near(t.tile_c, 18)), 1
    if draw(st.booleans()):  # images that are moved by vectors
        problem = ConvProblem(ConvSpec.make(*channels[:2], 1, bias=True), draw(st.integers(1, 3)),
                              draw(st.integers(1, 3)), 4 * draw(st.integers(1, 3)))
    else:
        problem = draw(problems(st.integers(1, 3), st.integers(1, 9), channels, kernels=(1,)))
    return plan_of(problem, t, wavefront)
