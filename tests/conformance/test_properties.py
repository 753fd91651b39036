"""Properties that every backend keeps, whatever its algorithm: linearity, shifts and the like."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dscore
from dscore.checking import bound
from dscore.core.backend import backend, backend_names

PRESENT = [name for name in backend_names() if backend(name).missing() is None]
LAYERS = st.fixed_dictionaries(dict(
    channels=st.integers(1, 6), height=st.integers(1, 12), width=st.integers(1, 12),
    kernel=st.sampled_from([(1, 1), (3, 3), (5, 1), (2, 4)]), stride=st.integers(1, 3),
    seed=st.integers(0, 999), depthwise=st.booleans()))

pytestmark = pytest.mark.parametrize("name", PRESENT)


def tensors(layer, outputs=4):
    rng = np.random.default_rng(layer["seed"])
    groups = layer["channels"] if layer["depthwise"] else 1
    x = rng.standard_normal((2, layer["channels"], layer["height"], layer["width"]), np.float32)
    w = rng.standard_normal((outputs * groups, layer["channels"] // groups, *layer["kernel"]),
                            np.float32)
    return x, w, dict(stride=layer["stride"], padding="same", groups=groups)


def slack(x, w, options, factor=4):
    """How far two right answers may lie apart: a few bounds of conv(|x|, |w|)."""
    size = dscore.conv(np.abs(x), np.abs(w), **options)
    return factor * bound.gamma(w[0].size + 2) * size + 1e-30


@settings(max_examples=25)
@given(layer=LAYERS)
def test_linear_in_the_input(name, layer):
    x, w, options = tensors(layer)
    z = np.roll(x, 1, axis=-1) * np.float32(0.5)
    options["backend"] = name
    both = dscore.conv(x + z, w, **options)
    apart = dscore.conv(x, w, **options) + dscore.conv(z, w, **options)
    assert np.all(np.abs(both - apart) <= slack(np.abs(x) + np.abs(z), w, options))


@settings(max_examples=25)
@given(layer=LAYERS)
def test_a_delta_filter_copies_its_tap(name, layer):
    x, w, options = tensors(layer, outputs=1)
    w[...] = 0
    rows, columns = layer["kernel"]
    w[:, 0, (rows - 1) // 2, (columns - 1) // 2] = 1  # SAME puts the odd row last
    y = dscore.conv(x, w, padding="same", groups=options["groups"], backend=name)
    passed = x if layer["depthwise"] else x[:, :1]
    assert np.array_equal(y, passed)


@settings(max_examples=25)
@given(layer=LAYERS)
def test_filters_in_another_order_give_channels_in_that_order(name, layer):
    assume(not layer["depthwise"])
    x, w, options = tensors(layer, outputs=7)
    order = np.random.default_rng(1).permutation(7)
    y = dscore.conv(x, w, **options, backend=name)
    assert np.array_equal(dscore.conv(x, w[order], **options, backend=name), y[:, order])


@settings(max_examples=25)
@given(layer=LAYERS)
def test_a_shift_by_the_stride_shifts_the_output(name, layer):
    x, w, options = tensors(layer)
    stride = layer["stride"]
    options = {**options, "padding": 0, "backend": name}
    assume(x.shape[2] >= w.shape[2] + stride and x.shape[3] >= w.shape[3])
    whole = dscore.conv(x, w, **options)
    below = dscore.conv(x[:, :, stride:], w, **options)
    rows = min(whole.shape[2] - 1, below.shape[2])
    difference = np.abs(whole[:, :, 1:1 + rows] - below[:, :, :rows])
    assert np.all(difference <= slack(x, w, options)[:, :, 1:1 + rows])


@settings(max_examples=25)
@given(layer=LAYERS, groups=st.integers(1, 3))
def test_groups_are_a_concatenation(name, layer, groups):
    layer = {**layer, "channels": layer["channels"] * groups, "depthwise": False}
    x, w, options = tensors(layer, outputs=2 * groups)
    part = layer["channels"] // groups
    w = np.ascontiguousarray(w[:, :part])
    y = dscore.conv(x, w, **{**options, "groups": groups}, backend=name)
    apart = [dscore.conv(x[:, g * part:(g + 1) * part], w[2 * g:2 * g + 2], **options, backend=name)
             for g in range(groups)]
    size = dscore.conv(np.abs(x), np.abs(w), **{**options, "groups": groups})
    allowed = 4 * bound.gamma(w[0].size + 2) * size + 1e-30
    assert np.all(np.abs(y - np.concatenate(apart, axis=1)) <= allowed)


@settings(max_examples=15)
@given(layer=LAYERS)
def test_images_of_a_batch_do_not_mix(name, layer):
    x, w, options = tensors(layer)
    y = dscore.conv(x, w, **options, backend=name)
    alone = np.concatenate([dscore.conv(image[None], w, **options, backend=name) for image in x])
    assert np.all(np.abs(y - alone) <= slack(x, w, options))
