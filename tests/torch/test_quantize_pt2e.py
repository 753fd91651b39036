"""Models of torchao's pt2e flow: their graphs as layers of int8, with the same integers."""

import copy
import io

import pytest

from dscore.core.errors import SpecError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("torch.ao.quantization.fx._decomposed",
                    reason="this PyTorch has no operators torch.ops.quantized_decomposed")

from torch import fx, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import dscore.torch  # noqa: E402
from dscore.torch import QuantizedConv2d, from_pt2e  # noqa: E402

ATEN, STEPS = torch.ops.aten, torch.ops.quantized_decomposed
RANGES = {torch.int8: (-128, 127, torch.int8), torch.uint8: (0, 255, torch.uint8)}
X = torch.randn(2, 6, 9, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Graph:
    """Graph as convert_pt2e makes it, of images of a *dtype*."""

    def __init__(self, dtype=torch.int8, seed=0):
        self.graph, self.root = fx.Graph(), nn.Module()
        self.generator, self.dtype, self.convs = torch.Generator().manual_seed(seed), dtype, []
        self.x = self.graph.placeholder("x")

    def quantized(self, x, scale, zero, change=0):
        """A quantize_per_tensor and its dequantize_per_tensor."""
        least, most, dtype = RANGES[self.dtype]
        params = scale, zero - (-128 - least), least, most - change, dtype
        q = self.graph.call_function(STEPS.quantize_per_tensor.default, (x, *params))
        return self.graph.call_function(STEPS.dequantize_per_tensor.default, (q, *params))

    def conv(self, x, ins, outs, kernel=1, groups=1, activation=None, bias=True, stride=1,
             zero=0, axis=0):
        """A convolution of a filter that is dequantised, and its activation."""
        number = len(self.convs)
        shape = outs, ins // groups, kernel, kernel
        constants = {
            "w": torch.randint(-127, 128, shape, generator=self.generator, dtype=torch.int8),
            "scale": 0.01 * (0.5 + torch.rand(outs, generator=self.generator)),
            "zero": torch.full((outs,), zero), "bias": torch.randn(outs, generator=self.generator)}
        for name, value in constants.items():
            self.root.register_buffer(f"{name}_{number}", value)
        w, scale, zero, vector = (self.graph.get_attr(f"{name}_{number}") for name in constants)
        w = self.graph.call_function(STEPS.dequantize_per_channel.default,
                                     (w, scale, zero, axis, -127, 127, torch.int8))
        y = self.graph.call_function(ATEN.conv2d.default, (
            x, w, vector if bias else None, [stride] * 2, [kernel // 2] * 2, [1, 1], groups))
        self.convs.append(y)
        if activation == "relu":
            y = self.graph.call_function(ATEN.relu.default, (y,))
        elif activation == "relu6":
            y = self.graph.call_function(ATEN.hardtanh.default, (y, 0.0, 6.0))
        return y

    def model(self, y):
        self.graph.output(y)
        self.graph.lint()
        return fx.GraphModule(self.root, self.graph)


def inverted_residual(dtype=torch.int8):
    """A block of MobileNetV2: its sum is one of floats."""
    made = Graph(dtype)
    x = made.quantized(made.x, 0.03, 5)
    y = made.quantized(made.conv(x, 6, 12, activation="relu6"), 0.02, -128)
    y = made.quantized(made.conv(y, 12, 12, 3, 12, "relu"), 0.05, -100)
    y = made.quantized(made.conv(y, 12, 6, bias=False), 0.06, -7)
    y = made.graph.call_function(ATEN.add.Tensor, (x, y))
    y = made.conv(made.quantized(y, 0.07, 11), 6, 4, stride=2)
    return made.model(y)


class Values(fx.Interpreter):
    """A run of a graph that keeps the values of nodes."""

    def __init__(self, model):
        super().__init__(model, garbage_collect_values=False)

    def of(self, *inputs):
        self.run(*inputs)
        return self.env


@pytest.mark.parametrize("dtype", RANGES)
def test_integers_are_those_of_the_graph(dtype):
    """Each layer has the integers that the graph has, on the graph's own inputs.

    The graph sums floats and rounds them, and its bias is no integer: a result whose exact value
    lies within these errors of a tie may be rounded to the other side.
    """
    model = inverted_residual(dtype)
    taken = from_pt2e(model)
    layers = [one for one in taken.modules() if isinstance(one, QuantizedConv2d)]
    values, shift = Values(model).of(X), 0 if dtype is torch.int8 else -128
    ties = 0
    for number, (conv, layer) in enumerate(zip(
            (one for one in model.graph.nodes if one.target is ATEN.conv2d.default), layers,
            strict=True)):
        q, x = layer.quantization, values[conv.args[0].args[0]].int() + shift
        y = layer(x.to(torch.int8))
        scale, w, bias = (getattr(model, f"{name}_{number}").double()
                          for name in ("scale", "w", "bias"))
        given = conv.args[2] is not None
        exact = functional.conv2d(
            q.x_scale * (x.double() - q.x_zero_point), w * scale[:, None, None, None],
            bias if given else None, *conv.args[3:])
        if q.y_scale is None:
            assert (y - exact).abs().max() <= 0.5 * q.x_scale * scale.max() + 1e-5
            continue
        last = next(iter(conv.users))
        last = last if "quantize" in str(last.target) else next(iter(last.users))
        expected = values[last].int() + shift
        steps = exact / q.y_scale
        slack = (given * 0.5 * q.x_scale * scale[:, None, None] / q.y_scale
                 + 1e-5 * (1 + steps.abs()))
        tie = (steps - steps.floor() - 0.5).abs() <= slack
        assert torch.equal(torch.where(tie, expected, y.int()), expected)
        assert (y.int() - expected).abs().max() <= 1
        assert tie.double().mean() < 0.05
        assert len(y.unique()) > 30
        ties += int((y.int() != expected).sum())
    assert ties < 20
    difference = (taken(X) - model(X)).abs().max()
    assert difference <= 0.07 * 4 * 6 * 127 * 0.015  # of one step of some inputs of the last layer


@pytest.mark.parametrize("dtype", RANGES)
def test_the_graph_becomes_layers_of_int8(dtype):
    taken = from_pt2e(inverted_residual(dtype))
    report = taken.report
    assert [layer.result for layer in report.layers] == ["int8", "int8", "int8", "float32"]
    assert [layer.folded for layer in report.layers] == [("relu6",), ("relu",), (), ()]
    assert (report.quantize_steps, report.dequantize_steps) == (2, 2)
    assert "quantized_decomposed" not in taken.code
    assert not any(name.startswith(("w_", "scale_")) for name, _ in taken.named_buffers())
    first, second = [one.quantization for one in taken.modules()
                     if isinstance(one, QuantizedConv2d)][:2]
    assert (first.x_scale, first.x_zero_point, first.y_scale, first.y_zero_point) == (
        0.03, 5, 0.02, -128)
    assert (second.x_scale, second.y_zero_point) == (0.02, -100)
    assert str(report).splitlines()[0].startswith("4 of 4 convolutions in int8")
    assert report.layers[0].x.low == pytest.approx(-133 * 0.03)


def test_a_taken_model_is_saved_and_copied():
    taken = from_pt2e(inverted_residual())
    file = io.BytesIO()
    torch.save(taken, file)
    file.seek(0)
    for twin in (copy.deepcopy(taken), torch.load(file, weights_only=False)):
        assert torch.equal(twin(X), taken(X))
        assert twin.report == taken.report


def test_a_filter_that_is_not_folded_is_taken():
    made = Graph()
    made.root.register_buffer("floats", torch.randn(4, 6, 1, 1))
    w = made.graph.get_attr("floats")
    for step in (STEPS.quantize_per_tensor, STEPS.dequantize_per_tensor):
        w = made.graph.call_function(step.default, (w, 0.02, 0, -127, 127, torch.int8))
    y = made.graph.call_function(ATEN.conv2d.default, (made.quantized(made.x, 0.03, 5), w))
    model = made.model(y)
    taken = from_pt2e(model)
    assert [layer.result for layer in taken.report.layers] == ["float32"]
    assert torch.allclose(taken(X), model(X), atol=1e-5)


KEPT = {
    "a narrow range": (lambda g: g.conv(g.quantized(g.x, 0.1, 0, 127), 6, 4),
                       "its input is not dequantised from the whole range"),
    "floats": (lambda g: g.conv(g.x, 6, 4), "its input is not dequantised"),
    "zero points": (lambda g: g.conv(g.quantized(g.x, 0.1, 0), 6, 4, zero=3),
                    "its filter is not dequantised from int8 with zero points of zero"),
    "an axis": (lambda g: g.conv(g.quantized(g.x, 0.1, 0), 6, 6, axis=1),
                "its filter is not dequantised"),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_is_not_matched_stays_and_is_named(case):
    make, reason = KEPT[case]
    made = Graph()
    y = make(made)
    aside = made.conv(made.quantized(made.x, 0.04, 3), 6, 4, activation="relu")
    model = made.model((y, aside))
    taken = from_pt2e(model)
    assert [layer.reason[:len(reason)] for layer in taken.report.layers] == [reason, ""]
    assert taken.report.layers[1].result == "float32"
    for result, expected in zip(taken(X), model(X), strict=True):
        assert torch.allclose(result, expected, atol=2e-3)


def test_integers_that_others_read_stay():
    made = Graph(torch.uint8)
    x = made.quantized(made.x, 0.1, 0)
    y = made.conv(x, 6, 4)
    sums = made.graph.call_method("sum", (x.args[0],))
    model = made.model((y, sums))
    taken = from_pt2e(model)
    assert [layer.result for layer in taken.report.layers] == [""]
    assert torch.equal(taken(X)[1], model(X)[1])


def test_what_is_no_converted_model_is_refused():
    with pytest.raises(SpecError, match=r"a model of convert_pt2e is a torch.fx.GraphModule"):
        from_pt2e(nn.Conv2d(3, 3, 1))
    with pytest.raises(SpecError, match="the graph has no dequantize_per_tensor"):
        from_pt2e(fx.symbolic_trace(nn.Conv2d(3, 3, 1)))
    with pytest.raises(SpecError, match="layout must be one of"):
        from_pt2e(inverted_residual(), layout="chwn")


def quantizer_of(dtype):
    """A quantizer for prepare_pt2e of all convolutions, with the activation behind them."""
    from torchao.quantization import pt2e
    from torchao.quantization.pt2e.quantizer import (
        QuantizationAnnotation,
        QuantizationSpec,
        Quantizer,
    )

    per_tensor, by_channel = torch.per_tensor_affine, torch.per_channel_symmetric
    least, most, _ = RANGES[dtype]
    images = QuantizationSpec(dtype, pt2e.MinMaxObserver.with_args(qscheme=per_tensor), least,
                              most, per_tensor)
    filters = QuantizationSpec(
        torch.int8, pt2e.PerChannelMinMaxObserver.with_args(qscheme=by_channel), -127, 127,
        by_channel, ch_axis=0)
    activations = {ATEN.relu.default, ATEN.relu_.default, ATEN.hardtanh.default,
                   ATEN.hardtanh_.default}

    class Convolutions(Quantizer):
        def annotate(self, model):
            for node in model.graph.nodes:
                if node.target is ATEN.conv2d.default:
                    user = next(iter(node.users))
                    last = user if user.target in activations else node
                    marks = {node: QuantizationAnnotation(
                        input_qspec_map={node.args[0]: images, node.args[1]: filters},
                        output_qspec=images if last is node else None, _annotated=True)}
                    marks.setdefault(last, QuantizationAnnotation(output_qspec=images,
                                                                  _annotated=True))
                    for one, mark in marks.items():
                        one.meta["quantization_annotation"] = mark
            return model

        def validate(self, model):
            pass
    return Convolutions()


@pytest.mark.parametrize("dtype", RANGES)
def test_models_of_torchao_are_taken(dtype):
    pytest.importorskip("torchao.quantization.pt2e", reason="torchao is not installed")
    import tiny_networks
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    torch.manual_seed(0)
    model = tiny_networks.with_statistics(tiny_networks.Network()).eval()
    x = torch.randn(4, 3, 12, 10)
    prepared = prepare_pt2e(torch.export.export(model, (x,)).module(), quantizer_of(dtype))
    for _ in range(2):
        prepared(torch.randn(4, 3, 12, 10))
    prepared(x)
    converted = convert_pt2e(prepared)
    taken = from_pt2e(converted)
    report = taken.report
    assert [layer.name for layer in report.layers] == [
        name for name, one in model.named_modules() if isinstance(one, nn.Conv2d)]
    assert [layer.result for layer in report.layers] == ["", "int8", "int8", "int8", "int8"]
    assert report.layers[1].problem.startswith("n4c8h6w5_o16k1_int8_nhwc_bias")
    with torch.no_grad():
        exact, result, expected = model(x), taken(x), converted(x)
    assert (result - expected).norm() <= 0.01 * expected.norm()
    assert (result - exact).norm() <= 0.1 * exact.norm()
    assert dscore.torch.Quantize in map(type, taken.modules())
