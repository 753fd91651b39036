"""Remembered calls that record gradients: the same results, and only for what they are like."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch_gpu import NAME, torch_gpu  # noqa: E402

from dscore.torch import backward, conv2d, recorded  # noqa: E402
from dscore.torch import functional as functional_way  # noqa: E402
from dscore.torch.modules import Conv2d, DepthwiseConv2d  # noqa: E402

STEP = ["conv", "input_gradient", "weight_gradient"]
ACTIVATION = {None: lambda y: y, "relu6": functional.relu6, "silu": functional.silu}


@pytest.fixture
def launches(monkeypatch):
    with torch_gpu(monkeypatch) as launches:
        yield launches


def layer_of(kind="depthwise", **options):
    torch.manual_seed(0)
    if kind == "depthwise":
        return DepthwiseConv2d(4, 3, padding=1, backend=NAME, **options)
    return Conv2d(8, 4, 1 if kind == "pointwise" else 3, backend=NAME, **options)


def gradients(layer, x, gradient, call=None):
    """The result, and the gradients by x and by the parameters."""
    x = x.detach().clone().requires_grad_()
    y = (call or layer)(x)
    return [y.detach(), *torch.autograd.grad(y, (x, *layer.parameters()), gradient)]


def theirs(layer):
    """The layer by PyTorch, in float64."""
    def call(x):
        y = functional.conv2d(x.double(), layer.weight.double(),
                              None if layer.bias is None else layer.bias.double(),
                              layer.stride, layer.padding, layer.dilation, layer.groups)
        return ACTIVATION[layer.activation](y)
    return call


def agrees(layer, x, gradient):
    for one, other in zip(gradients(layer, x, gradient),
                          gradients(layer, x, gradient.double(), theirs(layer)), strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=1e-4, atol=1e-4)


def step(layer, x, gradient):
    """Two steps, after which the calls of a third are remembered."""
    for _ in range(2):
        gradients(layer, x, gradient)


@pytest.mark.parametrize("activation", [None, "relu6", "silu"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["depthwise", "pointwise", "dense"])
def test_a_remembered_step_gives_the_same(kind, bias, activation, launches, monkeypatch):
    layer = layer_of(kind, bias=bias, activation=activation)
    x = torch.randn(2, layer.in_channels, 6, 5)
    y = torch.randn_like(layer(x))
    step(layer, x, y)
    monkeypatch.setattr(recorded, "convolution", refused)
    if activation != "silu":  # which computes the layer anew
        monkeypatch.setattr(backward, "gradients", refused)
    launches.clear()
    agrees(layer, 2 * x, -y)
    assert launches == ["conv", *["conv"] * (activation == "silu"), *STEP[1:]]


@pytest.mark.parametrize("kind", ["depthwise", "pointwise"])
def test_a_remembered_step_under_autocast_gives_sums_of_float32(kind, launches, monkeypatch):
    """By the filter as it is, though the call is of the one that autocast has made of it."""
    monkeypatch.setattr(functional_way, "_autocast_on",
                        lambda device="cpu": torch.is_autocast_enabled(device))
    layer = layer_of(kind, bias=False)
    x = torch.randn(2, layer.in_channels, 6, 5)

    def call(x):
        with torch.autocast("cpu", torch.bfloat16):
            return layer(x)

    y = torch.randn_like(call(x))
    for _ in range(2):
        first = gradients(layer, x, y, call)
    monkeypatch.setattr(recorded, "convolution", refused)
    monkeypatch.setattr(backward, "gradients", refused)
    launches.clear()
    again = gradients(layer, x, y, call)
    assert launches == STEP
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one, other)
    by_filter = again[2]
    assert by_filter.dtype is torch.float32
    assert not torch.equal(by_filter, by_filter.bfloat16().float())


def refused(*arguments, **options):
    raise AssertionError("the general way was taken")


@pytest.mark.parametrize("change", [
    lambda x: x[:1], lambda x: x[..., :4], lambda x: x.flip(-1), lambda x: x[0],
    lambda x: x.transpose(-1, -2), lambda x: x.contiguous(memory_format=torch.channels_last),
    lambda x: torch.cat([x.flatten(), x[0, 0, 0, :1]])[1:].view(x.shape)],
    ids=["batch", "width", "flipped", "image", "transposed", "channels_last", "misplaced"])
def test_other_inputs_take_the_general_way(change, launches):
    layer, x = layer_of(), torch.randn(2, 4, 6, 6)
    y = torch.randn_like(layer(x))
    step(layer, x, y)
    for _ in range(3):
        other = change(x)
        agrees(layer, other, torch.randn_like(layer(other)))
        agrees(layer, x, y)


@pytest.mark.parametrize("change", [
    lambda y: y[:1, :1, :1, :1].expand(y.shape), lambda y: y.flip(-1), lambda y: 0 * y,
    lambda y: y.contiguous(memory_format=torch.channels_last),
    lambda y: torch.cat([y.flatten(), y[0, 0, 0, :1]])[1:].view(y.shape)],
    ids=["expanded", "flipped", "zero", "channels_last", "misplaced"])
def test_other_gradients_take_the_general_way(change, launches):
    layer, x = layer_of(), torch.randn(2, 4, 6, 6)
    y = torch.randn_like(layer(x))
    step(layer, x, y)
    for _ in range(3):
        agrees(layer, x, change(y))
        agrees(layer, x, y)


def test_what_was_changed_in_place_is_noticed(launches):
    layer, x = layer_of(activation="relu6"), torch.randn(2, 4, 6, 6, requires_grad=True)
    for changed in (lambda y: layer.weight.data, lambda y: layer.weight, lambda y: y):
        step(layer, x, torch.ones_like(x))
        y = layer(x)
        with torch.no_grad():
            changed(y).add_(1)
        if changed(y) is layer.weight or changed(y) is y:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()


def test_parameters_of_another_kind_take_the_general_way(launches):
    layer, x = layer_of(), torch.randn(2, 4, 6, 6)
    y = torch.randn_like(layer(x))
    step(layer, x, y)
    layer.weight.requires_grad_(False)
    launches.clear()
    layer(x.clone().requires_grad_()).backward(y)
    assert layer.weight.grad is None
    assert launches == STEP[:2]
    layer.weight.requires_grad_(True)
    layer.weight.data = layer.weight.data.transpose(-1, -2)
    agrees(layer, x, y)


def test_derivatives_of_the_second_order(launches):
    layer, x = layer_of(), torch.randn(2, 4, 6, 6)
    step(layer, x, torch.ones_like(x))
    wide = x.clone().requires_grad_()
    results = []
    for call in (layer, theirs(layer)):
        first, = torch.autograd.grad(call(wide).square().sum(), wide, create_graph=True)
        results.append(torch.autograd.grad(first.square().sum(), layer.weight)[0].double())
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-3)


def test_what_traces_or_transforms_sees_the_operators(launches):
    layer, x = layer_of(bias=False), torch.randn(2, 4, 6, 6)
    step(layer, x, torch.ones_like(x))

    def call(x):
        return conv2d(x, layer.weight, None, layer.stride, layer.padding, layer.dilation,
                      layer.groups, backend=NAME)

    for enabled in (True, False):
        with torch.set_grad_enabled(enabled):
            call(x)
            graph = make_fx(call)(x).graph
        assert any("dscore.conv2d" in str(node.target) for node in graph.nodes), enabled
    several = torch.randn(3, 2, 4, 6, 6)
    torch.testing.assert_close(torch.func.vmap(call)(several),
                               torch.stack([call(one) for one in several]))


def test_activations_may_be_computed_again(launches):
    """A checkpoint lets tensors that were kept be read only once in a backward pass."""
    layer, x = layer_of(activation="relu6"), torch.randn(2, 4, 6, 6)
    expected = gradients(layer, x, torch.ones_like(x))
    for gradient in (torch.ones_like(x), torch.ones(1, 1, 1, 1).expand(x.shape)):
        for _ in range(3):
            results = gradients(layer, x, gradient, lambda x: checkpoint(
                layer, x, use_reentrant=False))
            for one, other in zip(results, expected, strict=True):
                torch.testing.assert_close(one, other)


def test_few_calls_are_remembered_of_one_layer(launches):
    layer = layer_of()
    for size in range(4, 12):
        x = torch.randn(1, 4, size, size)
        agrees(layer, x, torch.randn_like(x))
    assert [len(calls) for calls in recorded._calls.values()] == [recorded.MOST_VARIANTS]
