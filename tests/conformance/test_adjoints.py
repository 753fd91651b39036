"""Adjoint identity: ⟨conv(x, w), g⟩ = ⟨x, input gradient(g, w)⟩ = ⟨w, weight gradient(x, g)⟩.

In small integers all of it is exact, in every order of summation.
"""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

import dscore
from dscore.core.backend import backend

GROUPS = st.sampled_from(["dense", "depthwise", "grouped", "pointwise"])


@st.composite
def layers(draw):
    """Shapes of x and w, and options; the output has a pixel at least."""
    kind, inside, outside = draw(GROUPS), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    groups = {"dense": 1, "pointwise": 1, "depthwise": inside, "grouped": 2}[kind]
    group_in = {"depthwise": 1, "grouped": 2}.get(kind, inside)
    kernel = (1, 1) if kind == "pointwise" else draw(st.tuples(*[st.integers(1, 5)] * 2))
    stride, dilation = draw(st.tuples(*[st.integers(1, 3)] * 2)), draw(
        st.tuples(*[st.integers(1, 2)] * 2))
    sides = draw(st.tuples(*[st.integers(0, 4)] * 4))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    size = [max(1, span - before - after) + draw(st.integers(0, 9)) for span, before, after
            in zip(spans, sides[::2], sides[1::2], strict=True)]
    x = draw(st.integers(1, 3)), groups * group_in, *size
    options = dict(stride=stride, padding=sides, dilation=dilation, groups=groups)
    return x, (groups * outside, group_in, *kernel), options


def integers(shape, seed):
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


def products(a, b):
    return (a.astype(np.float64) * b).sum()


def hold(layer, seed, **chosen):
    """The identity for a layer, whose tensors' sums of products are integers below 2**24."""
    x_shape, w_shape, options = layer
    x, w = integers(x_shape, seed), integers(w_shape, seed + 1)
    y = dscore.conv(x, w, **options, **chosen)
    gradient = integers(y.shape, seed + 2)
    by_input = dscore.input_gradient(gradient, w, x_shape[2:], **options, **chosen)
    by_filter = dscore.weight_gradient(x, gradient, w_shape[2:], **options, **chosen)
    assert products(y, gradient) == products(x, by_input) == products(w, by_filter)
    again = dscore.weight_gradient(x, gradient, w_shape[2:], **options, **chosen)
    assert again.tobytes() == by_filter.tobytes()


@settings(max_examples=examples(30))
@given(layers(), st.integers(0, 99))
def test_gradients_are_the_adjoints_on_the_reference_backend(layer, seed):
    hold(layer, seed, backend="reference")


LAYERS = {
    "depthwise": ((2, 6, 9, 8), (6, 1, 3, 3), dict(stride=2, padding=1, groups=6)),
    "pointwise": ((3, 20, 7, 7), (12, 20, 1, 1), {}),
    "dense": ((2, 3, 11, 9), (5, 3, 3, 2),
              dict(stride=(2, 1), padding=((1, 0), (2, 1)), dilation=(1, 2))),
    "multiplier": ((1, 4, 8, 8), (8, 1, 5, 5), dict(stride=3, padding=4, groups=4)),
}


@functools.cache
def prepared(name):
    """The backend, with the kernels of all LAYERS and their gradients built at once."""
    specs = [(x, dscore.ConvSpec.make(x[1], w[0], w[2:], **options))
             for x, w, options in LAYERS.values()]
    problems = [dscore.ConvProblem(spec, x[0], *x[2:], operation) for x, spec in specs
                for operation in ("conv", "input_gradient", "weight_gradient")]
    backend(name).prepare([dscore.plan_for(problem, backend=name) for problem in problems])
    return name


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", ["emulated", "gfx906_any"])
@pytest.mark.deep
def test_gradients_of_kernels_are_the_adjoints(name, layer):
    if backend(name).missing() is not None:
        pytest.skip(str(backend(name).missing()))
    hold(LAYERS[layer], 3, backend=prepared(name))


def test_a_wrong_gradient_breaks_the_identity():
    """The adjoint of a filter that is not turned, or shifted by a padding, is another one."""
    x, w = integers((1, 1, 6, 6), 0), integers((1, 1, 3, 3), 1)
    y = dscore.conv(x, w, padding=1, backend="reference")
    gradient = integers(y.shape, 2)
    for wrong, padding in ((w[:, :, ::-1, ::-1], 1), (w, 0)):
        given_gradient = gradient if padding else gradient[:, :, :4, :4]
        by_input = dscore.input_gradient(given_gradient, np.ascontiguousarray(wrong), 6,
                                         padding=padding, backend="reference")
        assert products(y, gradient) != products(x, by_input)
