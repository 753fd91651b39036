"""Gates of squeeze-and-excitation as one launch: which are, what they compute, what stays."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import quantized_models  # noqa: E402
import tiny_networks  # noqa: E402
from accelerated_models import exact  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_gpu import NAME, TorchGpu, torch_gpu  # noqa: E402

import dscore.torch  # noqa: E402
from dscore.calling import gates  # noqa: E402
from dscore.core import catalog  # noqa: E402
from dscore.torch.setting import Setting  # noqa: E402

APART = ["conv", "mean", "conv", "conv", "conv"]
X = torch.randn(2, 3, 6, 5, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def launches(monkeypatch):
    with torch_gpu(monkeypatch, "h200") as launches:
        yield launches


class Gated(nn.Module):
    """A layer, the gate of its result, and a layer of the product of both."""

    def __init__(self, inner=functional.silu, last=torch.sigmoid, between=6, channels=16,
                 bias=True, second_bias=True, use_twice=False):
        super().__init__()
        self.first, self.pool = nn.Conv2d(3, channels, 1), nn.AdaptiveAvgPool2d(1)
        self.down = nn.Conv2d(channels, between, 1, bias=bias)
        self.up = nn.Conv2d(between, channels, 1, bias=second_bias)
        self.head = nn.Conv2d(channels, 4, 1)
        self.inner, self.last, self.use_twice = inner, last, use_twice

    def forward(self, x):
        x = self.first(x)
        squeezed = self.pool(x)
        gate = self.last(self.up(self.inner(self.down(squeezed))))
        y = self.head(x * gate)
        return y + squeezed.mean() if self.use_twice else y


def accelerated(*, like=X, **options):
    torch.manual_seed(0)
    model = Gated(**options).to(like.dtype).eval()
    dscore.torch.accelerate(model, like, backend=NAME)
    return model


def agrees(model, x, most=1e-5):
    with torch.no_grad():
        assert (model(x).double() - exact(model, x)).abs().max() < most


@torch.no_grad()
@pytest.mark.parametrize(("options", "operation"), [
    ({}, "gate"), (dict(inner=functional.relu), "gate"),
    (dict(inner=functional.hardswish, last=functional.hardsigmoid), "hard_gate"),
    (dict(inner=functional.relu, last=functional.hardsigmoid, bias=False, second_bias=False),
     "hard_gate")])
def test_a_gate_is_one_launch(options, operation, launches):
    model = accelerated(**options)
    for _ in range(4):  # the third by a linked program, if there is one
        launches.clear()
        agrees(model, X)
        assert launches == ["conv", operation, "conv"]


@torch.no_grad()
@pytest.mark.parametrize("options", [
    dict(last=functional.silu), dict(inner=torch.sigmoid), dict(second_bias=False),
    dict(use_twice=True)])
def test_what_is_no_gate_is_launched_apart(options, launches):
    model = accelerated(**options)
    launches.clear()
    agrees(model, X)
    assert not {"gate", "hard_gate"} & {*launches}


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_types_and_layouts(dtype, launches):
    x = X.to(dtype).contiguous(memory_format=torch.channels_last)
    model = accelerated(like=x)
    launches.clear()
    agrees(model, x, 0.05)
    assert "gate" in launches


@torch.no_grad()
def test_other_inputs_and_changed_parameters(launches):
    model = accelerated()
    for x in (torch.randn(3, 3, 9, 4), X.contiguous(memory_format=torch.channels_last), X[:1],
              torch.randn(0, 3, 6, 5)):
        agrees(model, x) if len(x) else model(x)
    model.down.weight.mul_(2)
    model.up.bias.data = torch.ones(16)
    agrees(model, X)


def test_gradients_and_traced_programs_have_pytorch_s(launches):
    model = accelerated()
    launches.clear()
    x = X.clone().requires_grad_()
    model(x).sum().backward()
    assert x.grad is not None
    assert "gate" not in launches
    with torch.no_grad():
        exported = torch.export.export(model, (X,)).module()
        assert torch.allclose(exported(X).double(), exact(model, X), atol=1e-5)
    assert "gate" not in launches


@torch.no_grad()
def test_a_call_that_is_remembered_is_not_prepared_anew(launches, monkeypatch):
    """By one fast call for all gates of a form, whose operands it looks at."""
    model, prepared = accelerated(), []
    agrees(model, X)
    agrees(model, X)
    make = dscore.torch.gates.gate_call
    monkeypatch.setattr(dscore.torch.gates, "gate_call", lambda *given: (
        prepared.append(1) or make(*given)))
    agrees(model, X)
    assert not prepared
    assert len(gates._FAST) == 1
    agrees(model, X.flip(-1)[:, :, 1:])
    assert prepared


@torch.no_grad()
@pytest.mark.parametrize("name", ["down", "up"])
def test_filters_that_do_not_fit_are_refused(name, launches):
    """As PyTorch refuses them, and never read past their end."""
    model = accelerated()
    layer = getattr(model, name)
    for _ in range(3):
        agrees(model, X)
    layer.weight.data = layer.weight.data[:, :4].clone()
    with pytest.raises((RuntimeError, dscore.SpecError)):
        model(X)
    layer.weight.data = torch.randn(layer.out_channels, layer.in_channels, 1, 1)
    agrees(model, X, 1e-4)


@torch.no_grad()
@pytest.mark.deep
def test_compiled_models_have_the_same_results(launches):
    model = accelerated()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert torch.allclose(compiled(X).double(), exact(model, X), atol=1e-5)


@torch.no_grad()
def test_devices_without_clusters_launch_apart(monkeypatch):
    with torch_gpu(monkeypatch) as launches:
        model = accelerated()
        launches.clear()
        agrees(model, X)
        assert launches == APART


def test_large_filters_are_products_of_matrices():
    h200, z100sm = map(catalog.device, ("h200", "z100sm"))

    def problem(images, channels, between):
        return gates.gate_problem((images, channels, 7, 7), between, "float16", "nhwc", True,
                                  ("silu", "sigmoid"))

    assert gates.gains(problem(1, 1152, 48), h200)
    assert gates.gains(problem(32, 672, 28), h200)
    assert not gates.gains(problem(32, 1152, 48), h200)
    assert not gates.gains(problem(1, 960, 240), h200)
    assert not gates.gains(problem(1, 1152, 48), z100sm)


@torch.no_grad()
def test_quantised_gates_are_linked(monkeypatch):
    with quantized_models.quantized_gpu(monkeypatch) as launches:
        monkeypatch.setattr(TorchGpu, "device_name", "h200")
        model = quantized_models.model_of()
        for seed in range(4):
            x = quantized_models.images(seed=seed)
            launches.clear()
            y = model(x)
        assert launches == [*["conv"] * 3, "gate", "conv", "conv", "mean", "conv"]
        assert quantized_models.linked_of(model)
        apart = quantized_models.by_modules(model, x)
        assert (y - apart).norm() <= 0.02 * apart.norm()
        gate = next(one for one in model.modules() if isinstance(one, dscore.torch.Conv2d))
        gate.weight.mul_(0.5)  # which the next call reads
        assert (model(x) - quantized_models.by_modules(model, x)).norm() <= 0.02 * apart.norm()


@torch.no_grad()
@pytest.mark.parametrize(("dtype", "launched"), [
    (torch.float32, ["gate"]), (torch.float16, ["gate"]),
    (torch.bfloat16, ["mean", "conv", "conv"])])  # of which no kernel makes results of int8
def test_quantised_gates_of_the_models_own_type(dtype, launched, monkeypatch):
    """As those are whose numbers float16 may not hold."""
    for module in ("quantize_emission", "quantize_choice"):
        monkeypatch.setattr(f"dscore.torch.{module}.gates_of", lambda part, quantised: set())
    with quantized_models.quantized_gpu(monkeypatch) as launches:
        monkeypatch.setattr(TorchGpu, "device_name", "h200")
        model = quantized_models.model_of().to(dtype)
        x = quantized_models.images().to(dtype)
        for _ in range(4):
            launches.clear()
            y = model(x)
        apart = quantized_models.by_modules(model, x)
        assert (y - apart).norm() <= 0.03 * apart.norm()
    at = launches.index(launched[0])
    assert launches[at:at + len(launched)] == launched


@torch.no_grad()
@pytest.mark.parametrize("device", ["h200", "z100sm"])
def test_kernels_are_prepared_for_gates_that_gain(device, monkeypatch):
    prepared = []
    prepare = Setting.prepare
    monkeypatch.setattr(Setting, "prepare", lambda self, problems: prepare(
        self, prepared.extend(problems := list(problems)) or problems))
    with quantized_models.quantized_gpu(monkeypatch):
        monkeypatch.setattr(TorchGpu, "device_name", device)
        accelerated()
        quantized_models.model_of(tiny_networks.GatedResidual)
    made = [one.spec.dtype for one in prepared if one.operation == "gate"]
    assert made == ["float32", "int8"] * (device == "h200")
