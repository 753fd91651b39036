"""Modules of quantised models: equal integers on every way, and what PyTorch's users expect."""

import copy
import io
from dataclasses import replace

import integer_oracle
import numpy as np
import pytest

from dscore.backends.emulated import EmulatedBackend
from dscore.core.errors import SpecError
from dscore.core.token import parse_problem

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from quantized_layers import LAYERS, RESULTS, layer_of, x_of  # noqa: E402
from torch import nn  # noqa: E402

import dscore.torch  # noqa: E402
from dscore import Quantization  # noqa: E402
from dscore.torch import Dequantize, Quantize, QuantizedConv2d  # noqa: E402
from dscore.torch.quantize_values import Range, quantised_filter, range_of  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(("y_scale", "activation"), RESULTS)
def test_integers_equal_those_of_the_reference(name, y_scale, activation):
    for form, bias in ((torch.channels_last, True), (torch.contiguous_format, False)):
        layer, x = layer_of(name, y_scale, activation, bias), x_of(name, form=form)
        expected = dscore.conv(
            x, layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation,
            layer.groups, activation=activation, backend="reference",
            quantization=layer.quantization)
        y = layer(x)
        assert y.dtype is expected.dtype is (torch.float32 if y_scale is None else torch.int8)
        assert torch.equal(y, expected)
        assert y.is_contiguous(memory_format=form)
        assert len(y.unique()) > (20 if activation != "relu6" else 3)
        named = copy.copy(layer)
        named.backend = "reference"
        assert torch.equal(named(x), y)
        assert torch.equal(layer(x[0]), y[0])


@pytest.mark.parametrize("form", [torch.channels_last, torch.contiguous_format])
@pytest.mark.deep
def test_integers_of_a_scale_equal_those_of_every_backend(form):
    layer, x = layer_of("pointwise"), x_of("pointwise", form=form)
    layer.quantization = replace(layer.quantization, input_scale=0.9, input_zero_point=-3)
    scale = torch.rand(*x.shape[:2], 1, 1, generator=torch.Generator().manual_seed(5)) * 1.5
    y, half = layer(x, None, scale), scale.half()
    assert not torch.equal(half.float(), scale)
    for other in (half, half.float(), half.double(), half[:, :, 0, 0]):
        assert torch.equal(layer(x, None, other), y)
    further = layer.quantization.operands(x, layer.weight, None, ("input",)).values()
    problem = parse_problem("n2c20h9w8_o7k1_int8_bias_scaled")
    of_oracle = integer_oracle.direct(problem, *(one.numpy() for one in (
        x.contiguous(), layer.weight, layer.bias, *further, half[:, :, 0, 0])))
    assert np.array_equal(y.numpy(), of_oracle)
    for backend in ("reference", *["emulated"] * (EmulatedBackend().missing() is None)):
        layer.backend = backend
        assert torch.equal(layer(x, None, scale), y)
        compiled = torch.compile(layer, fullgraph=True, backend="eager")
        assert torch.equal(compiled(x, None, scale), y)


def test_the_largest_sums_are_exact():
    """Sums of 1,000 products of -255 * -128, more than float32 holds, with the largest bias."""
    x, w = (torch.full((1, 1000, *size), -128, dtype=torch.int8) for size in ((2, 2), (1, 1)))
    bias = torch.tensor([2**31 - 1], dtype=torch.int32)
    layer = QuantizedConv2d(w, bias, Quantization(1.0, 2.0**-22, x_zero_point=127))
    total = 1000 * 255 * 128 + 2**31 - 1 - 2**32  # which wraps
    assert layer(x).flatten().tolist() == [float(torch.tensor(total).float()) * 2.0**-22] * 4
    assert torch.equal(layer(x), dscore.conv(x, w, bias, backend="reference",
                                             quantization=layer.quantization))


def test_ties_go_to_the_even():
    q = Quantization(1.0, 0.5, y_scale=1.0)
    layer = QuantizedConv2d(torch.ones(1, 1, 1, 1, dtype=torch.int8), None, q)
    x = torch.tensor([[[[-5, -3, -1, 1, 3, 5]]]], dtype=torch.int8)
    assert layer(x).flatten().tolist() == [-2, -2, 0, 0, 2, 2]


def test_steps_are_those_of_quantize_per_tensor():
    decomposed = pytest.importorskip("torch.ao.quantization.fx._decomposed",
                                     reason="this PyTorch has no quantized_decomposed operators")
    assert decomposed is not None
    ops = torch.ops.quantized_decomposed
    x = torch.randn(4, 3, 5, 5) * 3
    for scale, zero in ((0.02, 0), (0.031, -128), (0.7, 100)):
        q = Quantize(scale, zero)(x)
        assert torch.equal(q, ops.quantize_per_tensor(x, scale, zero, -128, 127, torch.int8))
        assert torch.equal(Dequantize(scale, zero)(q), ops.dequantize_per_tensor(
            q, scale, zero, -128, 127, torch.int8))


@pytest.mark.parametrize(("low", "high"), [(0.0, 6.0), (-3.0, 1.0), (2.0, 5.0), (-7.0, -6.5),
                                       (-1e-12, 1e-12), (0.0, 0.0), (-3e38, 3e38)])
def test_a_range_holds_zero_and_its_ends(low, high):
    one = Range(low, high)
    step, back = Quantize(one.scale, one.zero_point), Dequantize(one.scale, one.zero_point)
    values = torch.tensor([0.0, low, high])
    result = back(step(values))
    assert result[0] == 0
    assert (result.double() - values.double()).abs().max() <= one.scale * 0.502


def test_filters_are_symmetric_by_channel():
    torch.manual_seed(0)
    weight, bias = torch.randn(5, 4, 3, 3) * torch.logspace(-3, 2, 5)[:, None, None, None], \
        torch.randn(5)
    q, q_bias, scales = quantised_filter(weight, bias, 0.03)
    scales = torch.tensor(scales, dtype=torch.float64)
    assert (q.dtype, q_bias.dtype) == (torch.int8, torch.int32)
    assert q.flatten(1).abs().amax(1).tolist() == [127] * 5
    assert ((q * scales[:, None, None, None] - weight).abs()
            <= scales[:, None, None, None] * 0.5001).all()
    assert ((q_bias * scales * 0.03 - bias).abs() <= scales * 0.03 * 0.5001).all()


def test_an_emptied_channel_keeps_its_bias():
    weight = torch.tensor([0.0, 1e-30, 1.0]).view(3, 1, 1, 1)
    bias = torch.tensor([2.5, -1e6, 0.0])
    q, q_bias, scales = quantised_filter(weight, bias, 0.05)
    assert q.flatten().tolist() == [0, 0, 127]
    assert torch.allclose(q_bias.double() * torch.tensor(scales).double() * 0.05, bias.double())
    layer = QuantizedConv2d(q, q_bias, Quantization(0.05, scales), groups=3)
    assert torch.allclose(layer(torch.zeros(1, 3, 1, 1, dtype=torch.int8)).flatten(), bias)


def test_percentiles_leave_the_ends_out():
    x = torch.arange(1001.0)[torch.randperm(1001)]
    assert range_of(x, 99) == Range(10.0, 990.0)
    assert range_of(x, 100) == range_of(x) == Range(0.0, 1000.0)
    assert not range_of(torch.tensor([1.0, float("nan")]), 99).finite
    assert not range_of(torch.tensor([1.0, float("inf")])).finite


def test_a_layer_is_saved_copied_and_moved():
    layer, other = layer_of("depthwise"), layer_of("depthwise", seed=2)
    x = x_of("depthwise")
    y = layer(x)
    assert sorted(layer.state_dict()) == ["_extra_state", "bias", "weight"]
    assert [tensor.dtype for tensor in layer.buffers() if tensor.numel()] == [torch.int8,
                                                                              torch.int32]
    for twin in (copy.deepcopy(layer), stored(layer, weights_only=False), layer.to("cpu")):
        assert torch.equal(twin(x), y)
        assert twin.quantization == layer.quantization
        assert repr(twin) == repr(layer)
    other.load_state_dict(stored(layer.state_dict()))
    assert torch.equal(other(x), y)
    meta = copy.deepcopy(layer).to("meta")
    assert meta.weight.is_meta
    assert meta.weight.dtype is torch.int8


def stored(value, weights_only=True):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=weights_only)


def test_floats_are_of_the_models_type():
    layer, x = layer_of("pointwise", None), x_of("pointwise")
    exact = layer(x)
    half = copy.deepcopy(layer).half()
    assert half.weight.dtype is torch.int8
    assert torch.equal(half(x), exact.half())
    half.backend = "reference"
    assert torch.equal(half(x), exact.half())
    assert copy.deepcopy(layer).bfloat16()(x).dtype is torch.bfloat16
    steps = nn.Sequential(Quantize(0.1, 3), Dequantize(0.1, 3)).half()
    assert steps(torch.ones(2, dtype=torch.float16)).dtype is torch.float16


def test_its_text_names_the_layer():
    text = "QuantizedConv2d(6, 6, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), groups=6, " \
           "activation=relu, result=int8)"
    assert repr(layer_of("depthwise", activation="relu")) == text


@pytest.mark.parametrize(("change", "named"), [
    ({"weight": torch.zeros(1, 1, 1, 1)}, "weight of a QuantizedConv2d must be a tensor of"),
    ({"bias": torch.zeros(1)}, "bias of a QuantizedConv2d must be a tensor of torch.int32"),
    ({"activation": "tanh"}, "activation must be one of none, relu, relu6, silu"),
    ({"activation": "silu"}, "activation is silu, and table_scale of the quantization None"),
    ({"backend": 3}, "a backend is named by a text")])
def test_what_a_layer_cannot_be_is_named(change, named):
    given = {"weight": torch.zeros(1, 1, 1, 1, dtype=torch.int8), "bias": None,
             "quantization": Quantization(1.0, 1.0), **change}
    with pytest.raises(SpecError, match=named):
        QuantizedConv2d(**given)


def test_floats_are_refused_by_name():
    with pytest.raises(SpecError, match=r"x of a QuantizedConv2d must .* got torch.float32;"):
        layer_of("depthwise")(torch.zeros(1, 6, 4, 4))


def test_a_filter_stays_as_kernels_take_it():
    layer = QuantizedConv2d(torch.ones(4, 3, 3, 3, dtype=torch.int8), None,
                            Quantization(x_scale=0.5, w_scale=0.25, y_scale=1.0))
    moved = layer.to(memory_format=torch.channels_last)
    assert moved is layer
    assert layer.weight.is_contiguous()
