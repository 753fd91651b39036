"""Additions and products that are folded by the shapes of an example, for inputs of other shapes.

With one image, a parameter has the shape of an image; with one pixel, a mean has it.
"""

import copy

import pytest
from profiles import deep, mostly_deep

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from quantized_models import quantized_gpu  # noqa: E402
from torch import nn  # noqa: E402
from torch_gpu import NAME, torch_gpu  # noqa: E402

import dscore.torch  # noqa: E402
from dscore.core.errors import SpecError  # noqa: E402

X = torch.randn(4, 6, 5, 5, generator=torch.Generator().manual_seed(0))


class Made(nn.Module):
    """Two convolutions with batch norms, and something with two parameters around them."""

    def __init__(self, compute):
        super().__init__()
        self.one, self.two = (nn.Sequential(nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6))
                              for _ in range(2))
        self.place, self.gain = nn.Parameter(torch.randn(6, 5, 5)[None]), nn.Parameter(
            torch.randn(1, 6, 1, 1))
        self.compute = compute

    def forward(self, x):
        return self.compute(self, x)


WAYS = {
    "addition": lambda model, x: (model.one(x) + model.place).relu(),
    "after": lambda model, x: model.one(x).relu() + model.place,
    "product": lambda model, x: model.two((x + 1) * model.gain),
    "both": lambda model, x: (model.two((x + 1) * model.gain) + model.place).relu(),
    "context": lambda model, x: model.one(x) + model.two(x.mean((2, 3), keepdim=True))}


@pytest.fixture
def launches(monkeypatch):
    with torch_gpu(monkeypatch) as launches:
        yield launches


@torch.no_grad()
@pytest.mark.parametrize("way", mostly_deep(WAYS, "addition", "product"))
@pytest.mark.parametrize("backend", [deep("auto"), NAME])
def test_what_was_folded_by_an_example_is_broadcast(way, backend, launches):
    torch.manual_seed(0)
    plain = Made(WAYS[way]).eval()
    model, example = copy.deepcopy(plain), X[:1, :, :1, :1] if way == "context" else X[:1]
    report = dscore.torch.accelerate(model, example, backend=backend)
    assert any(part == "scale" or "residual" in part
               for layer in report.layers for part in layer.folded)
    for x in (*[example] * 3, *[X] * 3, example):
        torch.testing.assert_close(model(x), plain(x), rtol=1e-4, atol=1e-4)
    compiled = torch.compile(model, backend="aot_eager", dynamic=True)
    torch.testing.assert_close(compiled(X), plain(X), rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("way", WAYS)
def test_quantised_layers_broadcast(way, monkeypatch):
    with quantized_gpu(monkeypatch):
        torch.manual_seed(0)
        plain = Made(WAYS[way]).eval()
        example = X[:1, :, :1, :1] if way == "context" else X[:1]
        model = dscore.torch.quantize(plain, [example], backend=NAME, error_limit=10,
                                      kinds=("pointwise",))
        x = X.clamp(example.min(), example.max())
        for given in (*[example] * 3, *[x] * 3):
            y, expected = model(given), plain(given)
            assert y.shape == expected.shape
            torch.testing.assert_close(y, torch.cat([model(one[None]) for one in given])
                                       if way != "context" else y)
        assert way == "context" or (y - expected).norm() <= 0.3 * expected.norm()


class Pooled(nn.Module):
    """A network that takes a batch or one image."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.ReLU(),
                                    nn.Conv2d(6, 4, 1), nn.AdaptiveAvgPool2d(1))

    def forward(self, x):
        return self.layers(x)


@torch.no_grad()
@pytest.mark.parametrize("example", [X, X[0]], ids=["batch", "image"])
@pytest.mark.parametrize("backend", ["auto", NAME])
def test_one_image_is_a_batch_without_its_axis(example, backend, launches):
    plain = Pooled().eval()
    model = copy.deepcopy(plain)
    report = dscore.torch.accelerate(model, example, backend=backend)
    assert len(report.replaced) == 2
    for x in (X, X[0], X, X[1], X[1]):
        torch.testing.assert_close(model(x), plain(x), rtol=1e-4, atol=1e-4)


def test_what_cannot_be_broadcast_is_refused():
    layer = dscore.torch.Conv2d(6, 6, 1)
    with pytest.raises(SpecError, match="residual must have shape"):
        layer(X, X[:1])
