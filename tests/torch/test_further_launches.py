"""Means over pixels and linear layers of folded graphs: by dscore's kernels, and by PyTorch's."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from accelerated_models import exact  # noqa: E402
from torch import nn  # noqa: E402
from torch_gpu import NAME, torch_gpu  # noqa: E402

import dscore.torch  # noqa: E402


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
