"""Zero points that lie in biases: the same integers, and layers that need the zero point itself."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from profiles import deep

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from quantized_layers import LAYERS, RESULTS, layer_of, x_of  # noqa: E402
from torch import nn  # noqa: E402

from dscore import Quantization  # noqa: E402
from dscore.core.errors import SpecError  # noqa: E402
from dscore.torch import QuantizedConv2d, quantize  # noqa: E402

UNPADDED = ("pointwise", "strided")


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(("y_scale", "activation"), RESULTS)
@pytest.mark.parametrize("bias", [True, deep(False)])
def test_a_layer_keeps_its_integers(name, y_scale, activation, bias):
    layer, x = layer_of(name, y_scale, activation, bias), x_of(name)
    before, expected = copy.deepcopy(layer), layer(x)
    assert layer.move_zero_point_to_bias() is layer
    assert layer.zero_point_in_bias == (name in UNPADDED)
    assert layer.quantization == before.quantization
    if name in UNPADDED:
        sums = layer.weight.numpy().astype(np.int64).sum((1, 2, 3))
        of_bias = before.bias.numpy() if bias else 0
        assert np.array_equal(layer.bias.numpy(), of_bias - 17 * sums)
    for backend in ("auto", "reference"):
        layer.backend = backend
        assert torch.equal(layer(x), expected)
        assert torch.equal(copy.deepcopy(layer).half()(x), copy.deepcopy(before).half()(x))
    moved = copy.deepcopy(layer)
    assert torch.equal(moved.move_zero_point_to_bias()(x), expected), "moved a second time"


@pytest.mark.parametrize(("padding", "moved"), [
    (0, True), ((0, 0), True), ("valid", True), (1, False), ((0, 1), False), ("same", False)])
def test_a_padded_layer_needs_its_zero_point(padding, moved):
    layer, x = layer_of("depthwise"), x_of("depthwise")
    layer.padding, layer.stride = padding, 1
    expected = layer(x)
    assert layer.move_zero_point_to_bias().zero_point_in_bias == moved
    assert torch.equal(layer(x), expected)


def test_a_bias_wraps_as_sums_do():
    x, w = (torch.full((1, 1000, *size), -128, dtype=torch.int8) for size in ((2, 2), (1, 1)))
    for bias, zero in ((2**31 - 1, 127), (-2**31, -128)):
        layer = QuantizedConv2d(w, torch.tensor([bias], dtype=torch.int32),
                                Quantization(1.0, 2.0**-22, x_zero_point=zero))
        expected = layer(x)
        assert torch.equal(layer.move_zero_point_to_bias()(x), expected)


@pytest.mark.parametrize("stated", [None, -23])
def test_a_layer_with_a_scale_keeps_its_integers(stated):
    layer, x = layer_of("pointwise"), x_of("pointwise")
    layer.quantization = replace(layer.quantization, input_scale=0.9, input_zero_point=-3,
                                 scaled_zero_point=stated)
    scale = torch.rand(x.shape[0], x.shape[1], 1, 1,
                       generator=torch.Generator().manual_seed(1)).half()
    expected = layer(x, scale=scale)
    assert layer.move_zero_point_to_bias().zero_point_in_bias
    for backend in ("auto", "reference"):
        layer.backend = backend
        assert torch.equal(layer(x, scale=scale), expected)
        assert torch.equal(pickle.loads(pickle.dumps(layer))(x, scale=scale), expected)
    layer.quantization = replace(layer.quantization, scaled_zero_point=20)
    assert not torch.equal(layer(x, scale=scale), expected)


def test_another_zero_point_is_refused_once_the_bias_has_one():
    layer, x = layer_of("pointwise").move_zero_point_to_bias(), x_of("pointwise")
    before, given = layer(x), layer.quantization
    with pytest.raises(SpecError, match="the bias has x's zero point 17 taken off"):
        layer.quantization = replace(given, x_zero_point=18)
    assert torch.equal(layer(x), before)
    layer.quantization = replace(given, y_zero_point=3)
    assert not torch.equal(layer(x), before)


def test_a_state_says_where_the_zero_point_is():
    layer, x = layer_of("pointwise").move_zero_point_to_bias(), x_of("pointwise")
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other.zero_point_in_bias
        assert torch.equal(other(x), layer(x))
    loaded = layer_of("pointwise", seed=3)
    loaded.load_state_dict(layer.state_dict())
    assert torch.equal(loaded(x), layer(x))
    plain = layer_of("pointwise", seed=4)
    earlier = plain.state_dict()
    del earlier["_extra_state"]["zero_point_in_bias"]  # as versions before wrote it
    loaded.load_state_dict(earlier)
    assert torch.equal(loaded(x), plain(x))


def test_quantize_moves_those_of_layers_without_padding():
    model = nn.Sequential(nn.Conv2d(4, 8, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=8),
                          nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    batch = torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(0))
    layers = [one for one in quantize(model, [batch]).modules()
              if isinstance(one, QuantizedConv2d)]
    assert [one.zero_point_in_bias for one in layers] == [True, False, True]
    assert all(one.quantization.x_zero_point for one in layers)


@pytest.mark.deep
def test_programs_of_a_layer_with_a_scale_keep_its_integers():
    """Exported ones, and those from before scaled_zero_point came, which state no last argument."""
    layer, x = layer_of("pointwise"), x_of("pointwise")
    layer.quantization = replace(layer.quantization, input_scale=0.9, input_zero_point=-3)
    scale = torch.linspace(0.1, 1.4, x.shape[0] * x.shape[1]).reshape(*x.shape[:2], 1, 1).half()
    expected = layer(x, None, scale)

    def nodes_of(program):
        return [node for node in program.graph.nodes if "quantized_conv2d" in str(node.target)]

    exported = torch.export.export(layer, (x, None, scale))
    (before,) = nodes_of(exported)
    assert len(before.args) == 23, "one that is none is left out"
    assert torch.equal(exported.module()(x, None, scale), expected)
    moved = torch.export.export(layer.move_zero_point_to_bias(), (x, None, scale))
    (since,) = nodes_of(moved)
    assert since.args[-1] == layer.quantization.x_zero_point
    assert torch.equal(moved.module()(x, None, scale), expected)
