"""Properties that every backend keeps, whatever its algorithm: linearity, shifts and the like.

Where kernels are compiled, layers have few sizes, which few kernels serve; all sizes in the deep
profile (HYPOTHESIS_PROFILE=deep).
"""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from profiles import DEEP, deep, examples

import dscore
from dscore.algorithms.registry import algorithm_of, case_of
from dscore.building.codegen import KernelSource
from dscore.checking.rounding import gamma
from dscore.core import catalog
from dscore.core.backend import backend as backend_named
from dscore.core.backend import backend_names
from dscore.solving.rules import keeps_all
from dscore.solving.solver import make_plan

# Of the kernels that are compiled, those that take sizes as arguments serve all the layers.
# Compilers, which take long for them, do so in the deep profile.
PRESENT = [deep({"gfx906": "gfx906_any"}.get(name, name)) if backend_named(name).compiles else name
           for name in backend_names() if backend_named(name).missing() is None]
FILTERS = [((1, 1), 1), ((1, 1), 2), ((3, 3), 1), ((3, 3), 2), ((3, 3), 3), ((5, 1), 1),
           ((2, 4), 1), ((2, 4), 2)]  # with strides
SIDES, CHANNELS = (1, 9), (1, 4, 5)
DEVICE = catalog.device("z100sm")
ONE_FOR_ALL = dscore.tiling(algorithm="direct", threads=64, thread_c=1)
pytestmark = pytest.mark.parametrize("name", PRESENT)


def layers(name):
    """Layers for a backend."""
    few = backend_named(name).compiles and not DEEP
    side = st.sampled_from(SIDES) if few else st.integers(1, 12)
    return st.fixed_dictionaries(dict(
        channels=st.sampled_from(CHANNELS) if few else st.integers(1, 6), height=side, width=side,
        filter=st.sampled_from(FILTERS), seed=st.integers(0, 999), depthwise=st.booleans()))


def tensors(layer, outputs=4):
    rng = np.random.default_rng(layer["seed"])
    groups = layer["channels"] if layer["depthwise"] else 1
    x = rng.standard_normal((2, layer["channels"], layer["height"], layer["width"]), np.float32)
    kernel, stride = layer["filter"]
    w = rng.standard_normal((outputs * groups, layer["channels"] // groups, *kernel), np.float32)
    return x, w, dict(stride=stride, padding="same", groups=groups)


def conv(x, w, backend, **options):
    """dscore.conv; where kernels are compiled, by those of `kernels`, which serve all layers."""
    plan = None
    if backend_named(backend).compiles:
        spec = dscore.ConvSpec.make(x.shape[1], w.shape[0], w.shape[2:], **options)
        plans = plans_of(dscore.ConvProblem(spec, x.shape[0], *x.shape[2:]))
        plan = next(plan for plan in plans if DEEP or name_of(plan) in kernels(backend)).tiling
    return dscore.conv(x, w, **options, backend=backend, plan=plan)


def name_of(plan):
    return KernelSource(plan, "any").name


@functools.cache
def tilings(kernel, stride):
    """Tilings for a filter: the solver's first for usual layers, and one that runs any layer."""
    usual = [dscore.ConvSpec.make(4, 4, kernel, stride=stride, padding="same", groups=groups)
             for groups in (1, 4)]
    plans = [dscore.plan_for(dscore.ConvProblem(spec, 2, 9, 9), DEVICE) for spec in usual]
    return [*(plan.tiling for plan in plans), ONE_FOR_ALL]


def plans_of(problem):
    """Plans of those of `tilings` that run the problem."""
    spec = problem.spec
    for tiling in tilings(spec.kernel, spec.stride[0]):
        if not algorithm_of(tiling).runs(problem) and keeps_all(
                case_of(problem, DEVICE, tiling), "hardware", masked=True):
            yield make_plan(problem, DEVICE, tiling)


@functools.cache
def usual_plans():
    """Plans whose kernels serve most layers of few sizes, and one for each filter that serves all.
    """
    plans = {}
    for (kernel, stride), channels, padding, *image in itertools.product(
            FILTERS, CHANNELS, ("same", 0), SIDES, SIDES):
        if padding == "same" or (image[0] >= kernel[0] and image[1] >= kernel[1]):
            for groups in {1, channels}:
                spec = dscore.ConvSpec.make(channels, 4 * groups, kernel, stride=stride,
                                            padding=padding, groups=groups)
                running = [*plans_of(dscore.ConvProblem(spec, 2, *image))]
                plans |= {name_of(plan): plan for plan in (running[0], running[-1])}
    return plans


@functools.cache
def kernels(backend):
    """Names of the kernels of `usual_plans`, which are compiled at once."""
    backend_named(backend).prepare([*usual_plans().values()])
    return usual_plans().keys()


def slack(x, w, options, factor=4):
    """How far two right answers may lie apart: a few bounds of conv(|x|, |w|)."""
    size = dscore.conv(np.abs(x), np.abs(w), **{**options, "backend": "reference"})
    return factor * gamma(w[0].size + 2) * size + 1e-30


@settings(max_examples=examples(25))
@given(data=st.data())
def test_linear_in_the_input(name, data):
    layer = data.draw(layers(name))
    x, w, options = tensors(layer)
    z = np.roll(x, 1, axis=-1) * np.float32(0.5)
    options["backend"] = name
    both = conv(x + z, w, **options)
    apart = conv(x, w, **options) + conv(z, w, **options)
    assert np.all(np.abs(both - apart) <= slack(np.abs(x) + np.abs(z), w, options))


@settings(max_examples=examples(25))
@given(data=st.data())
def test_a_delta_filter_copies_its_tap(name, data):
    layer = data.draw(layers(name))
    x, w, options = tensors(layer, outputs=1)
    w[...] = 0
    rows, columns = layer["filter"][0]
    w[:, 0, (rows - 1) // 2, (columns - 1) // 2] = 1  # SAME puts the odd row last
    y = conv(x, w, padding="same", groups=options["groups"], backend=name)
    passed = x if layer["depthwise"] else x[:, :1]
    assert np.array_equal(y, passed)


@settings(max_examples=examples(25))
@given(data=st.data())
def test_filters_in_another_order_give_channels_in_that_order(name, data):
    layer = data.draw(layers(name))
    assume(not layer["depthwise"])
    x, w, options = tensors(layer, outputs=7)
    order = np.random.default_rng(1).permutation(7)
    y = conv(x, w, **options, backend=name)
    assert np.array_equal(conv(x, w[order], **options, backend=name), y[:, order])


@settings(max_examples=examples(25))
@given(data=st.data())
def test_a_shift_by_the_stride_shifts_the_output(name, data):
    layer = data.draw(layers(name))
    x, w, options = tensors(layer)
    stride = layer["filter"][1]
    options = {**options, "padding": 0, "backend": name}
    assume(x.shape[2] >= w.shape[2] + stride and x.shape[3] >= w.shape[3])
    whole = conv(x, w, **options)
    below = conv(x[:, :, stride:], w, **options)
    rows = min(whole.shape[2] - 1, below.shape[2])
    difference = np.abs(whole[:, :, 1:1 + rows] - below[:, :, :rows])
    assert np.all(difference <= slack(x, w, options)[:, :, 1:1 + rows])


@settings(max_examples=examples(25))
@given(data=st.data(), groups=st.integers(1, 3))
def test_groups_are_a_concatenation(name, data, groups):
    layer = data.draw(layers(name))
    layer = {**layer, "channels": layer["channels"] * groups, "depthwise": False}
    x, w, options = tensors(layer, outputs=2 * groups)
    part = layer["channels"] // groups
    w = np.ascontiguousarray(w[:, :part])
    y = conv(x, w, **{**options, "groups": groups}, backend=name)
    apart = [conv(x[:, g * part:(g + 1) * part], w[2 * g:2 * g + 2], **options, backend=name)
             for g in range(groups)]
    size = dscore.conv(np.abs(x), np.abs(w), **{**options, "groups": groups}, backend="reference")
    allowed = 4 * gamma(w[0].size + 2) * size + 1e-30
    assert np.all(np.abs(y - np.concatenate(apart, axis=1)) <= allowed)


@settings(max_examples=examples(15))
@given(data=st.data())
def test_images_of_a_batch_do_not_mix(name, data):
    layer = data.draw(layers(name))
    x, w, options = tensors(layer)
    y = conv(x, w, **options, backend=name)
    alone = np.concatenate([conv(image[None], w, **options, backend=name) for image in x])
    assert np.all(np.abs(y - alone) <= slack(x, w, options))
