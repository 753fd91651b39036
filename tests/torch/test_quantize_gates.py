"""Gates of squeeze-and-excitation in quantised models: of float16, with no conversion on the way.
"""

import copy
import io

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tiny_networks  # noqa: E402
from gated_models import (  # noqa: E402
    BATCHES,
    GATE,
    SCALED,
    TYPES,
    model_of,
    relative,
    taken_by,
)
from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from dscore.torch import QuantizedConv2d, quantize  # noqa: E402
from dscore.torch.quantize_gates import GateConv2d, GateMean  # noqa: E402
from dscore.torch.quantize_pooling import MeanOfPixels  # noqa: E402
from dscore.torch.setting import Setting  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def quantized():
    return quantize(model_of(), BATCHES)


class Launches(TorchDispatchMode):
    """The operators that a call runs, each with the type of its result."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.seen.append((str(func), getattr(result, "dtype", None)))
        return result


def on_the_way(seen):
    """What runs from the first mean on up to the next layer of int8."""
    mean, *_ = [at for at, (name, _) in enumerate(seen) if "quantized_mean" in name]
    layer = next(at for at, (name, _) in enumerate(seen)
                 if at > mean and "quantized_conv2d" in name)
    return seen[mean:layer]


def runs(model, x):
    with torch.no_grad(), Launches() as launches:
        model(x)
    return launches.seen


@pytest.mark.parametrize("dtype", TYPES)
def test_nothing_is_converted_between_mean_and_scale(quantized, dtype):
    model = copy.deepcopy(quantized).to(dtype)
    seen = runs(model, BATCHES[0].to(dtype))
    between = on_the_way(seen)
    assert sum("conv" in name for name, _ in between) == 2  # the gate's two layers
    assert {one for _, one in between} == {torch.float16}
    assert not [name for name, _ in between if "_to_copy" in name]


@pytest.mark.parametrize("dtype", TYPES)
def test_scales_are_the_same_in_every_model(quantized, dtype):
    model, x = copy.deepcopy(quantized).to(dtype), BATCHES[0].half()
    scales = taken_by(model, x.to(dtype))[1]
    assert scales.dtype is torch.float16
    if dtype is not torch.bfloat16:  # which has other images
        assert torch.equal(scales, taken_by(quantized, x.float())[1])


@pytest.mark.parametrize("dtype", TYPES)
def test_only_gates_are_of_float16(quantized, dtype):
    model = copy.deepcopy(quantized).to(dtype)
    gate = {f"{gate}.{name}" for gate in GATE for name in ("weight", "bias")}
    types = {name: one.dtype for name, one in model.named_parameters()}
    assert types == {name: torch.float16 if name in gate else dtype for name in types}
    assert gate < types.keys()
    with torch.no_grad():
        y = model(BATCHES[0].to(dtype))
        assert y.dtype is dtype
        assert relative(y, model_of()(BATCHES[0])) < 0.03


def test_conversions_do_not_round_gates(quantized):
    moved, before = copy.deepcopy(quantized), quantized.state_dict()
    for convert in (nn.Module.half, nn.Module.bfloat16, nn.Module.double, nn.Module.float):
        convert(moved)
        for name in GATE:
            weight = moved.get_submodule(name).weight
            assert weight.dtype is torch.float16
            assert torch.equal(weight, before[f"{name}.weight"])
            assert torch.equal(weight, folded(name).half())
    assert moved.to("meta", torch.float32).get_submodule(GATE[0]).weight.is_meta


def folded(name):
    return model_of().get_submodule(name).weight


def test_gates_of_models_of_float16_are_of_float16():
    half = quantize(model_of().half(), [batch.half() for batch in BATCHES])
    assert [half.get_submodule(name).weight.dtype for name in GATE] == [torch.float16] * 2
    assert [one for one in half.modules() if isinstance(one, GateMean)]
    with torch.no_grad():
        assert relative(half(BATCHES[0].half()), model_of()(BATCHES[0])) < 0.03


def test_kernels_are_prepared_for_the_types_that_run(monkeypatch):
    prepared = []
    monkeypatch.setattr(Setting, "prepare", lambda self, problems: prepared.extend(problems))
    quantize(model_of(), BATCHES)
    assert [one.spec.dtype for one in prepared if one.spec.dtype != "int8"] == ["float16"] * 2
    means = [one.spec for one in prepared if one.operation == "mean"]
    assert [(one.out_dtype, one.layout) for one in means] == [("float16", "nhwc"),
                                                             ("float32", "nhwc")]


def test_a_half_model_is_copied_saved_and_loaded(quantized):
    half, x = copy.deepcopy(quantized).half(), BATCHES[0].half()
    with torch.no_grad():
        y = half(x)
        other = quantize(model_of(), [2 * batch for batch in BATCHES]).half()
        assert not torch.equal(other(x), y)
        other.load_state_dict(stored(half.state_dict(), weights_only=True))
        for twin in (other, copy.deepcopy(half), stored(half), copy.deepcopy(half).half()):
            assert torch.equal(twin(x), y)
            assert twin.get_submodule(GATE[0]).weight.dtype is torch.float16
    plain = copy.deepcopy(quantized)
    plain.load_state_dict({name: one.float() if name.startswith(GATE[0]) and hasattr(one, "half")
                           else one for name, one in quantized.state_dict().items()})
    assert plain.get_submodule(GATE[0]).weight.dtype is torch.float16


def stored(value, weights_only=False):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=weights_only)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.deep
def test_a_model_is_compiled_and_exported(dtype, quantized):
    half, x = copy.deepcopy(quantized).to(dtype), BATCHES[0].to(dtype)
    with torch.no_grad():
        y = half(x)
        compiled = torch.compile(half, fullgraph=True, backend="eager")
        assert torch.equal(compiled(x), y)
        program = torch.export.export(half, (x,)).run_decompositions({})
        assert torch.equal(program.module()(x), y)
    seen = [(str(node.target), getattr(node.meta.get("val"), "dtype", None))
            for node in program.graph.nodes if node.op == "call_function"]
    assert {one for _, one in on_the_way(seen)} - {None} == {torch.float16}
    assert not [name for name, _ in on_the_way(seen) if "_to_copy" in name]


class Classifier(nn.Module):
    """A mean whose taker is a layer in floats that makes the result, as MobileNetV3's has it."""

    def __init__(self):
        super().__init__()
        self.features = tiny_networks.conv_norm(3, 8)
        self.pool, self.aside = nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 5, 1)

    def forward(self, x):
        return self.aside(self.pool(self.features(x)))


class Forked(Classifier):
    """A gate whose scale is a result, too."""

    def __init__(self):
        super().__init__()
        self.aside, self.project = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 5, 1)

    def forward(self, x):
        images = self.features(x)
        scale = torch.sigmoid(self.aside(self.pool(images)))
        return self.project(images * scale).mean((2, 3), keepdim=True) + scale[:, :5]


class Dense(Classifier):
    """A layer in floats behind one of int8, on images of many pixels."""

    def __init__(self):
        super().__init__()
        self.aside = nn.Conv2d(8, 5, 1)

    def forward(self, x):
        return self.pool(self.aside(self.features(x)))


@pytest.mark.parametrize("network", [Classifier, Forked, Dense])
def test_other_layers_in_floats_become_float16(network):
    torch.manual_seed(0)
    model = tiny_networks.with_statistics(network()).eval()
    half = quantize(model, BATCHES, keep=["aside"]).half()
    assert [one for one in half.modules() if isinstance(one, QuantizedConv2d)]
    assert half.aside.weight.dtype is torch.float16
    assert not [one for one in half.modules() if isinstance(one, GateConv2d | GateMean)]
    with torch.no_grad():
        y = half(BATCHES[0].half())
        assert y.dtype is torch.float16
        assert relative(y, model(BATCHES[0])) < 0.03


def test_a_gate_before_a_layer_in_floats_becomes_float16():
    half = quantize(model_of(), BATCHES, keep=[SCALED]).half()
    assert [half.get_submodule(name).weight.dtype for name in GATE] == [torch.float16] * 2
    means = [type(one) for one in half.modules() if isinstance(one, MeanOfPixels)]
    assert means
    assert GateMean not in means
    with torch.no_grad():
        assert half(BATCHES[0].half()).dtype is torch.float16


def test_gates_of_int8_are_no_gates_of_float16():
    quantized = quantize(model_of(), BATCHES, kinds=("dense", "pointwise", "depthwise"))
    assert isinstance(quantized.get_submodule(GATE[0]), QuantizedConv2d)
    assert not [one for one in quantized.modules() if isinstance(one, GateMean)]
