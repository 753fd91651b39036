"""Modules beside torch.nn.Conv2d's: attributes, state, text, copies, results."""

import copy
import io
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dscore.core.errors import SpecError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import nn  # noqa: E402
from torch_layers import ACTIVATIONS  # noqa: E402

import dscore.torch as dt  # noqa: E402

small, pair = st.integers(1, 3), st.tuples(st.integers(1, 3), st.integers(1, 3))


@st.composite
def arguments(draw):
    """Arguments of torch.nn.Conv2d, positional and by name."""
    groups, mode = draw(small), draw(st.sampled_from(["zeros", "reflect", "replicate", "circular"]))
    padding = draw(st.one_of(st.integers(0, 2), st.tuples(st.integers(0, 2), st.integers(0, 2)),
                             st.sampled_from(["same", "valid"])))
    return (groups * draw(small), groups * draw(small), draw(st.one_of(small, pair))), dict(
        stride=1 if padding == "same" else draw(st.one_of(small, pair)), padding=padding,
        dilation=draw(st.one_of(small, pair)), groups=groups, bias=draw(st.booleans()),
        padding_mode=mode)


def result_of(layer, x):
    """The result, and the gradients by the input and the parameters."""
    x = x.clone().requires_grad_()
    y = layer(x)
    y.square().sum().backward()
    return [y.detach(), x.grad, *(one.grad for one in layer.parameters())]


@settings(max_examples=40)
@given(arguments(), st.sampled_from(["auto", "reference"]), st.booleans())
def test_a_layer_is_pytorchs(given, backend, batched):
    sizes, options = given
    torch.manual_seed(0)
    theirs = nn.Conv2d(*sizes, **options)
    ours = dt.Conv2d(*sizes, **options, backend=backend)
    added = f", backend={backend}" if backend != "auto" else ""
    assert repr(ours) == repr(theirs)[:-1] + added + ")"
    public = {name: value for name, value in vars(theirs).items() if not name.startswith("_")}
    assert {name: getattr(ours, name) for name in public} == public
    assert ours.load_state_dict(theirs.state_dict()) == theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, sizes[0], 9, 8) if batched else torch.randn(sizes[0], 9, 8)
    for one, other in zip(result_of(ours, x), result_of(theirs, x), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


def test_parameters_begin_as_pytorchs():
    for seed in (1, 2):
        torch.manual_seed(seed)
        theirs = nn.Conv2d(4, 6, 3)
        torch.manual_seed(seed)
        ours = dt.Conv2d(4, 6, 3)
        assert torch.equal(ours.weight, theirs.weight)
        assert torch.equal(ours.bias, theirs.bias)


def test_device_and_dtype():
    layer = dt.Conv2d(4, 6, 3, device="meta", dtype=torch.float64)
    assert (layer.weight.device.type, layer.bias.dtype) == ("meta", torch.float64)
    assert layer(torch.empty(1, 4, 5, 5, device="meta", dtype=torch.float64)).shape == (1, 6, 3, 3)
    assert dt.DepthwiseSeparableConv2d(4, 6, 3, device="meta").pointwise.weight.is_meta
    assert dt.PointwiseConv2d(4, 6).to(torch.float64).weight.dtype is torch.float64
    assert dt.DepthwiseConv2d(4, 3).half()(torch.zeros(4, 5, 5).half()).dtype is torch.float16


@pytest.mark.parametrize("wrong", [dict(groups=3), dict(padding_mode="wrap"),
                                   dict(padding="same", stride=2), dict(padding="full")])
def test_wrong_arguments_are_refused_as_by_pytorch(wrong):
    with pytest.raises(ValueError) as theirs:  # noqa: PT011  the message is compared
        nn.Conv2d(4, 6, 3, **wrong)
    with pytest.raises(ValueError) as ours:  # noqa: PT011
        dt.Conv2d(4, 6, 3, **wrong)
    assert str(ours.value) == str(theirs.value)


def test_an_unknown_activation_is_refused_when_the_layer_is_made():
    with pytest.raises(SpecError, match="activation must be one of"):
        dt.Conv2d(4, 6, 3, activation="tanh")


def saved(layer):
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, saved,
                                   lambda layer: pickle.loads(pickle.dumps(layer))],
                         ids=["copy", "deepcopy", "torch.save", "pickle"])
@pytest.mark.parametrize("layer", [
    lambda: dt.Conv2d(4, 6, 3, activation="relu", backend="reference", arithmetic="plain"),
    lambda: dt.DepthwiseConv2d(4, (3, 1), 2, "valid", multiplier=2, activation="silu"),
    lambda: dt.PointwiseConv2d(4, 8, 2, bias=False),
    lambda: dt.DepthwiseSeparableConv2d(4, 6, 3, padding=1, inner_activation="relu6")])
def test_copies_are_alike(layer, again):
    one, x = layer(), torch.randn(2, 4, 5, 6)
    other = again(one)
    assert repr(other) == repr(one)
    assert torch.equal(other(x), one(x))


def test_a_layer_of_pytorchs_that_was_given_the_class_computes():
    """As a program does that replaces layers in place, whatever their attributes."""
    theirs, x = nn.Conv2d(4, 6, 3), torch.randn(2, 4, 5, 5)
    expected = theirs(x)
    theirs.__class__ = dt.Conv2d
    torch.testing.assert_close(theirs(x), expected)
    assert repr(theirs) == "Conv2d(4, 6, kernel_size=(3, 3), stride=(1, 1))"


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_the_layers_of_separable_networks(backend, activation):
    torch.manual_seed(0)
    block = dt.DepthwiseSeparableConv2d(4, 6, 3, 2, 1, multiplier=2, inner_activation=activation,
                                        activation="relu", backend=backend)
    theirs = nn.ModuleDict({"depthwise": nn.Conv2d(4, 8, 3, 2, 1, groups=4),
                            "pointwise": nn.Conv2d(8, 6, 1)})
    theirs.load_state_dict(block.state_dict())
    x, residual = torch.randn(2, 4, 6, 7), torch.randn(2, 6, 3, 4)
    inner = ACTIVATIONS[activation](theirs["depthwise"](x))
    y = theirs["pointwise"](inner)
    torch.testing.assert_close(block(x), torch.relu(y), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(block(x, residual), torch.relu(y + residual), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(block(x, residual, residual_after=True), torch.relu(y) + residual,
                               rtol=1e-4, atol=1e-4)
    assert isinstance(block.depthwise, dt.DepthwiseConv2d)
    assert isinstance(block.pointwise, nn.Conv2d)


def test_scale_and_residual_of_a_layer():
    layer, x = dt.PointwiseConv2d(4, 6, activation="relu"), torch.randn(2, 4, 5, 5)
    scale, residual = torch.rand(2, 4), torch.randn(2, 6, 5, 5)
    expected = nn.Conv2d.forward(layer, x * scale[:, :, None, None]) + residual
    torch.testing.assert_close(layer(x, residual, scale=scale), torch.relu(expected),
                               rtol=1e-4, atol=1e-5)


def test_what_wraps_parameters_and_modules_works():
    layer, x = dt.Conv2d(4, 6, 3, backend="reference"), torch.randn(2, 4, 5, 5)
    expected = layer(x)
    torch.nn.utils.parametrizations.weight_norm(layer)
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-4)
    seen = []
    layer.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    layer(x)
    assert seen == [(2, 6, 3, 3)]
    y = torch.func.functional_call(layer, {"bias": layer.bias + 1}, (x,))
    torch.testing.assert_close(y, expected + 1, rtol=1e-4, atol=1e-4)
