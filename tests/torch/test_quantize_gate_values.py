"""Gates of float16 in quantised models: how far their scales are from exact ones, and what that
makes of integers; and gates that float16 has no numbers for."""

import copy
from types import SimpleNamespace

import integer_oracle
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from gated_models import (  # noqa: E402
    BATCHES,
    GATE,
    SCALED,
    exact_scales,
    model_of,
    relative,
    taken_by,
)
from torch import nn  # noqa: E402

from dscore.torch import Conv2d, quantize  # noqa: E402
from dscore.torch.quantize_gates import GateConv2d, GateMean, greatest  # noqa: E402
from dscore.torch.quantize_pooling import MeanOfPixels  # noqa: E402


@pytest.fixture(scope="module")
def quantized():
    return quantize(model_of(), BATCHES)


def mean_of(model):
    """The mean of which a model's gate is made."""
    return next(one for one in model.modules() if isinstance(one, GateMean))


def test_scales_are_within_their_bound(quantized):
    for batch in BATCHES:
        images, scales = taken_by(quantized, batch)
        exact, bound = exact_scales(mean_of(quantized), images)
        error = (scales.double() - exact).abs() / exact
        assert (error <= 1.01 * bound).all()
        assert 2.0**-13 < error.max() < 2.0**-9  # about as much as a factor is rounded by
        assert bound.max() < 2.0**-6


@pytest.mark.deep
def test_integers_are_a_step_apart_at_most(quantized):
    """Those that scales of float16 make, and those that exact scales would: the factors differ by
    less than a 255th, so that a product differs by less than a step, and few pass a tie."""
    q = quantized.get_submodule(SCALED).quantization
    images, scales = taken_by(quantized, torch.cat(BATCHES))
    exact, _ = exact_scales(mean_of(quantized), images)
    ratios = q.ratios["input"], q.input_zero_point, q.x_zero_point
    short, wide = (integer_oracle.scaled(images.numpy(), one.flatten(1).numpy(), *ratios)
                   for one in (scales, exact))
    apart = np.abs(short.astype(int) - wide)
    assert apart.max() == 1
    assert np.count_nonzero(apart) < 0.01 * apart.size


def in_float32(model):
    """The same with its gate in float32, the weights as they were."""
    wide = copy.deepcopy(model)
    for name in GATE:
        layer, before = copy.deepcopy(model.get_submodule(name)), model_of().get_submodule(name)
        layer.__class__ = Conv2d
        layer.weight, layer.bias = before.weight, before.bias
        wide.set_submodule(name, layer)
    for one in wide.modules():
        if isinstance(one, GateMean):
            one.__class__ = MeanOfPixels
            one.float()
    return wide


def test_results_hardly_differ_from_those_of_gates_of_float32(quantized):
    wide = in_float32(quantized)
    with torch.no_grad():
        for batch in BATCHES:
            assert taken_by(wide, batch)[1].dtype is torch.float32
            y, of_floats = quantized(batch), model_of()(batch)
            assert relative(y, wide(batch)) < 0.3 * relative(wide(batch), of_floats)


@pytest.mark.parametrize("name", GATE)
@pytest.mark.parametrize("convert", [nn.Module.float, nn.Module.bfloat16])
def test_a_gate_past_the_range_of_float16_is_none(name, convert):
    """A weight, or what a layer may make: then nothing is lost but the time of a conversion."""
    model = model_of()
    with torch.no_grad():
        model.get_submodule(name).weight.mul_(1e6)
        model.get_submodule(SCALED).weight.mul_(8)  # so that the gate counts
    wide = convert(quantize(model, BATCHES))
    assert not [one for one in wide.modules() if isinstance(one, GateConv2d | GateMean)]
    assert wide.get_submodule(name).weight.dtype is wide.head.weight.dtype
    with torch.no_grad():
        y = wide(BATCHES[0].to(wide.head.weight.dtype))
        assert relative(y, model(BATCHES[0])) < 0.05


def test_what_a_layer_may_have():
    conv = nn.Conv2d(2, 2, 1).requires_grad_(False)
    conv.weight[:] = torch.tensor([[3.0, -4.0], [0.5, -9.0]])[:, :, None, None]
    conv.bias[:] = torch.tensor([-6.0, 0.25])
    one = SimpleNamespace(layer=conv, activation="silu")
    assert greatest(one, 2.0) == 20.0  # (3 + 4) * 2 + 6
    assert greatest(one, 0.125) == 9.0  # a weight
    one.activation = "relu6"
    assert greatest(one, 2.0) == 9.0
    conv.bias = None
    assert greatest(one, 0.5) == 9.0
