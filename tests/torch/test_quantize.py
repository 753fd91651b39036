"""Quantisation of whole models: what becomes int8, what stays, the report, and what is refused."""

import copy
import io
import re

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tiny_networks  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import dscore.torch  # noqa: E402
from dscore.torch import Dequantize, Quantize, QuantizedConv2d, quantize  # noqa: E402
from dscore.torch.quantize_graph import Observed, Part  # noqa: E402
from dscore.torch.quantize_pooling import MeanOfPixels  # noqa: E402

GENERATOR = torch.Generator().manual_seed(3)
BATCHES = [torch.randn(4, 3, 12, 10, generator=GENERATOR) for _ in range(3)]
# Of each network: the types of its layers' results, in order.
RESULTS = {
    tiny_networks.InvertedResidual: ["int8"] * 5,
    tiny_networks.GatedResidual: ["int8", "int8", "int8", "", "", "int8", "int8"],
    tiny_networks.ShuffleUnit: ["int8"] * 5,
    tiny_networks.BasicBlock: ["int8"] * 5,
}

@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def model_of(block=tiny_networks.InvertedResidual):
    torch.manual_seed(0)
    return tiny_networks.with_statistics(tiny_networks.Network(block)).eval()


def relative(result, expected):
    return float((result - expected).detach().norm() / expected.detach().norm())


@pytest.mark.parametrize("block", tiny_networks.BLOCKS)
def test_depthwise_and_pointwise_layers_become_int8(block):
    model = model_of(block)
    before = copy.deepcopy(model.state_dict())
    quantized = quantize(model, BATCHES)
    report = quantized.report
    assert [layer.result for layer in report.layers] == RESULTS[block]
    assert [layer.name for layer in report.layers] == [
        name for name, one in model.named_modules() if isinstance(one, nn.Conv2d)]
    for layer in report.layers:
        assert isinstance(quantized.get_submodule(layer.name), QuantizedConv2d) == (
            not layer.reason)
    assert all(0 < layer.error < 0.03 for layer in report.quantized)
    x = torch.randn(6, 3, 12, 10, generator=GENERATOR)
    with torch.no_grad():
        assert relative(quantized(x), model(x)) < 0.03
        assert relative(quantized(BATCHES[0]), model(BATCHES[0])) < 2 * report.error + 1e-3
    assert 0 < report.error < 0.02
    assert report.agreement > 0.9
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


def test_tensors_between_layers_of_int8_stay_int8():
    quantized = quantize(model_of(), BATCHES)
    block = quantized.get_submodule("body.0.conv")
    seen = {}
    for name, module in quantized.named_modules():
        module.register_forward_hook(
            lambda _, args, y, name=name: seen.__setitem__(name, (args[0], y)))
    quantized(BATCHES[0])
    expand, depthwise, project = (f"body.0.conv.{one}" for one in ("0.0", "1.0", "2"))
    assert seen[expand][1] is seen[depthwise][0]
    assert seen[depthwise][1] is seen[project][0]
    assert seen[depthwise][1].is_contiguous(memory_format=torch.channels_last)
    first, second, third = (block.get_submodule(one).quantization for one in ("0.0", "1.0", "2"))
    assert (first.y_scale, first.y_zero_point) == (second.x_scale, second.x_zero_point)
    assert (second.y_scale, second.y_zero_point) == (third.x_scale, third.x_zero_point)
    # relu6, the batch norm and the addition are part of the layers, and the mean takes int8.
    assert quantized.report.layers[2].folded == ("batch norm", "relu6")
    assert quantized.report.layers[3].folded == ("batch norm", "residual")
    assert (third.residual_scale, third.residual_zero_point) == (first.x_scale, first.x_zero_point)
    assert not any(isinstance(one, nn.ReLU6 | nn.BatchNorm2d) for one in quantized.modules())
    assert (quantized.report.quantize_steps, quantized.report.dequantize_steps) == (1, 0)


def test_gates_and_activations_stay_int8():
    quantized = quantize(model_of(tiny_networks.GatedResidual), BATCHES)
    assert (quantized.report.quantize_steps, quantized.report.dequantize_steps) == (1, 0)
    folded = {layer.name: layer.folded for layer in quantized.report.quantized}
    assert folded["body.0.block.1.0"] == ("batch norm", "silu")
    assert folded["body.0.block.3.0"] == ("scale", "batch norm", "residual")
    functions = [node.target for node in quantized.graph.nodes if node.op == "call_function"]
    assert not [one for one in functions if one is not getattr]
    means = [one for one in quantized.modules() if isinstance(one, MeanOfPixels)]
    assert [one.keepdim for one in means] == [True, False]
    gates = [quantized.get_submodule(f"body.0.block.2.{one}") for one in ("down", "up")]
    assert [gate.activation for gate in gates] == ["silu", "sigmoid"]


@pytest.mark.parametrize("block", tiny_networks.BLOCKS[:2])
def test_models_of_float16_are_quantised(block):
    half, batches = model_of(block).half(), [batch.half() for batch in BATCHES]
    quantized = quantize(half, batches)
    with torch.no_grad():
        y = quantized(batches[0])
        assert y.dtype is torch.float16
        assert relative(y.float(), model_of(block)(BATCHES[0])) < 0.03


class Shared(nn.Module):
    """A result of int8 that a layer takes, a sum, and a second layer; and a layer called twice."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3, padding=1, groups=4)

    def forward(self, x):
        y = self.first(x)
        z = self.second(y) + y
        return self.second(z)


def test_a_tensor_is_quantised_once():
    quantized = quantize(Shared().eval(), [torch.randn(2, 4, 8, 8)])
    assert [layer.name for layer in quantized.report.layers] == ["first", "second", "second_1"]
    assert [layer.result for layer in quantized.report.layers] == ["int8", "int8", "float32"]
    steps = [one for one in quantized.modules() if isinstance(one, Quantize | Dequantize)]
    assert [type(one).__name__ for one in steps] == ["Quantize"]
    x = torch.randn(2, 4, 8, 8)
    assert relative(quantized(x), exact(quantized, x)) < 1e-6


def exact(quantized, x):
    """The result of a `Shared` model's integers, each step by its definition in float64."""
    def layer(conv, q, added=0.0):
        of, scale = conv.quantization, torch.tensor(conv.quantization.w_scale).double()
        zero = 0 if conv.zero_point_in_bias else of.x_zero_point
        y = functional.conv2d(of.x_scale * (q - zero), scale[:, None, None, None]
                              * conv.weight.double(), scale * of.x_scale * conv.bias.double(),
                              padding=conv.padding, groups=conv.groups)
        return y if of.y_scale is None else steps(y + added, of.y_scale, of.y_zero_point)

    def steps(y, scale, zero):
        return (y / scale).round().add(zero).clamp(-128, 127)

    of = quantized.first.quantization
    y = layer(quantized.first, steps(x.double(), of.x_scale, of.x_zero_point))
    z = layer(quantized.second, y, of.y_scale * (y - of.y_zero_point))
    return layer(quantized.second_1, z)


@torch.no_grad()
def test_a_model_that_overwrites_its_input_leaves_the_batches_as_they_are():
    model = nn.Sequential(nn.Hardsigmoid(inplace=True), nn.Conv2d(3, 3, 1, groups=3)).eval()
    batches = copy.deepcopy(BATCHES)
    report = quantize(model, batches).report
    assert len(report.quantized) == 1
    assert 0 < report.error < 0.02
    assert all(map(torch.equal, batches, BATCHES))


def test_an_outlier_makes_a_layer_worse_and_a_percentile_better():
    model = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(4, 4, 1)).eval()
    x = torch.randn(4, 4, 16, 16, generator=torch.Generator().manual_seed(0))
    x[0, 0, 0, 0] = 1000
    whole, part = (quantize(model, [x], error_limit=10, percentile=one) for one in (None, 99.9))
    usual = x.clone()
    usual[0, 0, 0, 0] = 0
    with torch.no_grad():
        assert relative(whole(usual), model(usual)) > 0.5
        assert relative(part(usual), model(usual)) < 0.05
    assert part.report.layers[0].x.high < 5 < whole.report.layers[0].x.high
    assert "0" in [layer.name for layer in quantize(model, [x], error_limit=0.001).report.kept]


def test_the_caller_keeps_layers():
    report = quantize(model_of(), BATCHES, keep=["body.1.0"], kinds=("pointwise",)).report
    reasons = {layer.name: layer.reason for layer in report.kept}
    assert reasons["body.1.0"] == "the caller keeps it"
    assert reasons["body.0.conv.1.0"] == "depthwise: was not asked for"
    assert [layer.name for layer in report.quantized] == ["body.0.conv.0.0", "body.0.conv.2"]


def test_dense_layers_become_int8_where_that_is_asked_for():
    quantized = quantize(model_of(tiny_networks.BasicBlock), BATCHES,
                         kinds=("dense", "pointwise"))
    assert not quantized.report.kept
    assert quantized.report.error < 0.02


def test_parts_of_a_model_without_a_graph_are_quantised():
    torch.manual_seed(0)
    model = tiny_networks.with_statistics(tiny_networks.Branching()).eval()
    quantized = quantize(model, BATCHES)
    report = quantized.report
    assert type(quantized) is tiny_networks.Branching
    assert (report.parts, [name for name, _ in report.unfolded]) == (("body",), [""])
    assert [layer.name for layer in report.kept] == ["aside"]
    assert "outside of a graph" in report.kept[-1].reason
    with torch.no_grad():
        assert 0 < relative(quantized(BATCHES[0]), model(BATCHES[0])) < 0.02
    assert report.error < 0.02


class Auxiliary(nn.Module):
    """A network with a layer that no call in eval mode reaches."""

    def __init__(self):
        super().__init__()
        self.conv, self.unused = nn.Conv2d(3, 3, 3, groups=3), nn.Conv2d(3, 3, 1)

    def forward(self, x):
        return self.unused(self.conv(x)) if self.training else self.conv(x)


def test_a_layer_that_no_batch_reaches_is_named():
    report = quantize(Auxiliary().eval(), BATCHES).report
    assert [(layer.name, layer.reason) for layer in report.kept] == [
        ("unused", "no calibration batch comes to it")]


def test_the_report_is_a_table():
    report = quantize(model_of(), BATCHES, keep="stem.0").report
    lines = str(report).splitlines()
    assert lines[0].startswith("4 of 5 convolutions in int8 (plans for ")  # but the stem
    assert lines[0].endswith("1 quantize and 0 dequantize steps")
    assert re.fullmatch(r"on 3 calibration batches: error 0\.\d\d%, top-1 agreement [\d.]+%",
                        lines[1])
    stem, expand = (next(line for line in lines if line.startswith(f"  {name} "))
                    for name in ("stem.0", "body.0.conv.0.0"))
    assert "kept: the caller keeps it" in stem
    assert re.search(r" 0 +3\.\d+ +0 +\d\.\d+ +0\.\d\d% +int8 +\w+$", expand)
    layer = report.layers[1]
    assert layer.problem.startswith("n4c8h6w5_o16k1_int8_nhwc_bias")
    assert layer.y.low == 0


def test_a_quantised_model_is_saved_and_copied():
    model, x = model_of(), BATCHES[0]
    quantized, other = quantize(model, BATCHES), quantize(model, [2 * BATCHES[1]])
    y = quantized(x)
    assert not torch.equal(other(x), y)
    for twin in (copy.deepcopy(quantized), stored(quantized), stored(copy.deepcopy(quantized))):
        assert torch.equal(twin(x), y)
        assert (twin.report, twin.training) == (quantized.report, False)
        assert repr(twin.body) == repr(quantized.body)
    other.load_state_dict(stored(quantized.state_dict(), weights_only=True))
    assert torch.equal(other(x), y)
    half = copy.deepcopy(quantized).half()
    assert half(x.half()).dtype is torch.float16
    assert relative(half(x.half()).float(), y) < 0.01
    assert half.get_submodule("body.0.conv.0.0").weight.dtype is torch.int8


def stored(value, weights_only=False):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=weights_only)


def test_an_accelerated_model_is_quantised_and_stays_accelerated():
    model = model_of()
    plain = quantize(model, BATCHES)(BATCHES[0])
    dscore.torch.accelerate(model, BATCHES[0])
    quantized = quantize(model, BATCHES)
    assert torch.equal(quantized(BATCHES[0]), plain)
    assert isinstance(model.get_submodule("body.1.0"), dscore.torch.Conv2d)


def test_float_parts_are_those_of_the_model():
    """A hand-made check of the observed graph: its values are the model's own."""
    model = model_of(tiny_networks.GatedResidual)
    part, values = Part("", model, (BATCHES[0],)), {}
    observed = Observed(part, lambda node, value, x: values.setdefault(node, value))
    with torch.no_grad():
        assert torch.allclose(observed(BATCHES[0]), model(BATCHES[0]), atol=1e-5)
        stem = model.stem(BATCHES[0])
    assert any(isinstance(one, torch.Tensor) and one.shape == stem.shape
               and torch.allclose(one, stem, atol=1e-5) for one in values.values())
