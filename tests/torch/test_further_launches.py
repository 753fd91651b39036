"""Means over pixels and linear layers of folded graphs: by dscore's kernels, and by PyTorch's."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from accelerated_models import exact, program_of  # noqa: E402
from torch import nn  # noqa: E402
from torch_gpu import NAME, torch_gpu  # noqa: E402

import dscore.torch  # noqa: E402
from dscore.torch import linear  # noqa: E402


@pytest.fixture
def launches(monkeypatch):
    with torch_gpu(monkeypatch) as launches:
        yield launches


class Pooled(nn.Module):
    def __init__(self, pool):
        super().__init__()
        self.conv, self.pool, self.head = nn.Conv2d(3, 6, 1), pool, nn.Linear(6, 4)

    def forward(self, x):
        return self.head(self.pool(self.conv(x)).flatten(1))


class Axes(nn.Module):
    def __init__(self, *axes, **options):
        super().__init__()
        self.axes, self.options = axes, options

    def forward(self, x):
        return x.mean(*self.axes, **self.options)


POOLS = {"module": nn.AdaptiveAvgPool2d(1), "axes": Axes([2, 3]),
         "kept": Axes((-2, -1), keepdim=True)}
OTHERS = {"rows alone": nn.Sequential(Axes(3), nn.Flatten(1), nn.LazyLinear(6)),
          "two by two": nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(1), nn.LazyLinear(6)),
          "by name": nn.Sequential(Axes((1, 2)), nn.Flatten(1), nn.LazyLinear(6))}
X = torch.randn(2, 3, 6, 5, generator=torch.Generator().manual_seed(0))


def accelerated(pool):
    torch.manual_seed(0)
    model = Pooled(pool).eval()
    model(X)
    dscore.torch.accelerate(model, X, backend=NAME)
    return model


@torch.no_grad()
@pytest.mark.parametrize("name", POOLS)
def test_means_and_linear_layers_are_launched(name, launches):
    model = accelerated(POOLS[name])
    for _ in range(3):
        launches.clear()
        y = model(X)
        assert sorted(launches) == ["conv", "conv", "mean"]
        assert (y - exact(model, X)).abs().max() < 1e-5
    with torch.no_grad():
        model.head.weight.mul_(2)  # which the next call reads
        model.head.bias = nn.Parameter(torch.ones(4))
    assert (model(X) - exact(model, X)).abs().max() < 1e-5
    model.head.weight.data = torch.randn(4, 6)
    assert (model(X) - exact(model, X)).abs().max() < 1e-5


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_linear_layers_of_16_bits_are_launched_for_some_rows(dtype, launches):
    torch.manual_seed(0)
    model, x = Pooled(POOLS["module"]).eval().to(dtype), X.to(dtype)
    dscore.torch.accelerate(model, x, backend=NAME)
    for images, expected in ((2, ["conv", "conv", "mean"]), (128, ["conv", "conv", "mean"]),
                             (129, ["conv", "mean"])):
        many = x[:1].expand(images, -1, -1, -1).contiguous()
        model(many)
        launches.clear()
        y = model(many)
        assert sorted(launches) == expected
        assert y.dtype is dtype
        assert (y - exact(model, many)).abs().max() < 0.05


@torch.no_grad()
@pytest.mark.parametrize("activation", [nn.Hardswish(inplace=True), nn.SiLU(), nn.GELU()])
def test_an_activation_becomes_part_of_the_linear_layer_before_it(activation, launches):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 6, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(1),
                          nn.Linear(6, 8), activation, nn.Dropout(), nn.Linear(8, 4)).eval()
    plain = copy.deepcopy(model)
    dscore.torch.accelerate(model, X, backend=NAME)
    called = [str(node.target) for node in program_of(model).graph.nodes]
    assert ("4" in called) == isinstance(activation, nn.GELU)  # which no kernel has
    for images in (2, 5):
        x = torch.randn(images, 3, 6, 5)
        launches.clear()
        torch.testing.assert_close(model(x), plain(x), rtol=1e-4, atol=1e-5)
        assert sorted(launches) == ["conv"] * 3 + ["mean"]
    with torch.enable_grad():  # where the layers are called one by one
        torch.testing.assert_close(model(X), plain(X), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_linear_layers_that_nobody_has_measured_are_left():
    for features, dtype, taken in ((2048, torch.float16, True), (2049, torch.float16, False),
                                   (4096, torch.float32, True), (4097, torch.float32, False),
                                   (8, torch.float64, False)):
        assert linear.gains(2, torch.empty(1024, features, dtype=dtype, device="meta")) is taken
    assert not linear.gains(0, torch.empty(4, 4))


@torch.no_grad()
def test_a_layer_of_a_quantised_model_is_pytorch_s_on_the_cpu_and_dscore_s_on_a_gpu(launches):
    torch.manual_seed(0)
    plain = nn.Linear(6, 4)
    layer = linear.Linear.of(plain, NAME)
    assert dict(layer.named_parameters()).keys() == dict(plain.named_parameters()).keys()
    x = torch.randn(3, 6)
    y = layer(x)
    assert launches == ["conv"]
    assert (y - plain(x)).abs().max() < 1e-6
    launches.clear()
    assert torch.equal(layer(x[0]), plain(x[0]))  # of one axis
    with torch.enable_grad():
        layer(x).sum().backward()
    layer.backend = "auto"
    assert torch.equal(layer(x), plain(x))
    assert launches == []


@torch.no_grad()
@pytest.mark.parametrize("name", OTHERS)
def test_others_are_left(name, launches):
    model = accelerated(OTHERS[name])
    launches.clear()
    assert (model(X) - exact(model, X)).abs().max() < 1e-5
    assert "mean" not in launches


@torch.no_grad()
def test_other_shapes_layouts_and_types(launches):
    model = accelerated(POOLS["module"])
    for x in (torch.randn(3, 3, 9, 4), X.contiguous(memory_format=torch.channels_last), X[:1],
              torch.randn(0, 3, 6, 5)):
        assert torch.allclose(model(x).double(), exact(model, x), atol=1e-5)


def test_hooks_gradients_and_traced_programs_have_pytorch_s(launches):
    model = accelerated(POOLS["module"])
    launches.clear()
    x = X.clone().requires_grad_()
    model(x).sum().backward()
    assert x.grad is not None
    assert "mean" not in launches
    with torch.no_grad():
        seen = []
        model.head.register_forward_hook(lambda *given: seen.append(1))
        model(X)
        assert seen
