"""Steps of quantised graphs that are no launch, or not that of their tensors as they lie."""

import gc
import weakref
from typing import NamedTuple

import pytest
from profiles import deep

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tiny_networks  # noqa: E402
from quantized_models import agrees, copy_of, images, link, quantized_gpu  # noqa: E402
from torch import fx, nn  # noqa: E402
from torch_gpu import NAME  # noqa: E402

from dscore import Quantization  # noqa: E402
from dscore.torch import Conv2d, Quantize, QuantizedConv2d  # noqa: E402
from dscore.torch.quantize_graph import QuantizedModel  # noqa: E402
from dscore.torch.quantize_pooling import MeanOfPixels  # noqa: E402


@pytest.fixture
def launches(monkeypatch):
    with quantized_gpu(monkeypatch) as launches:
        yield launches


def pointwise(ins, outs, y_scale=0.5, seed=0, **scales):
    w = torch.randint(-99, 99, (outs, ins, 1, 1), dtype=torch.int8,
                      generator=torch.Generator().manual_seed(seed))
    return QuantizedConv2d(w, None, Quantization(0.1, 0.01, y_scale, **scales), backend=NAME)


class Leaves(fx.Tracer):
    """A tracer that keeps dscore's modules whole."""

    def is_leaf_module(self, m, module_qualified_name):
        return type(m).__module__.startswith("dscore.") or super().is_leaf_module(
            m, module_qualified_name)


def quantized(network):
    return QuantizedModel(network, Leaves().trace(network), "Made").eval()


class Twice(nn.Module):
    """A layer that is called twice, on images of two sizes."""

    def __init__(self):
        super().__init__()
        self.step, self.layer, self.last = Quantize(0.1, 0), pointwise(3, 3), pointwise(3, 4, None)

    def forward(self, x):
        y = self.layer(self.step(x))
        return self.last(self.layer(y[:, :, :-1]))


class Requantised(nn.Module):
    """A result of floats that is quantised into another layout, and read by a layer, too."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Quantize(0.1, 0), Quantize(0.2, 3, "nhwc")
        self.layer, self.last = pointwise(3, 4, None), pointwise(4, 5, None)

    def forward(self, x):
        return self.last(self.second(self.layer(self.first(x))))


class Scaled(nn.Module):
    """A layer whose scale is of another float type."""

    def __init__(self):
        super().__init__()
        self.step, self.layer = Quantize(0.1, 0), pointwise(3, 4, None, input_scale=0.1)

    def forward(self, x):
        return self.layer(self.step(x), None, x.mean((2, 3)))


class Pair(NamedTuple):
    """Two tensors, as a function takes them."""

    first: torch.Tensor
    second: torch.Tensor


@fx.wrap
def total(pair):
    return pair.first - 2 * pair.second


class Paired(nn.Module):
    """A function of a named tuple of results."""

    def __init__(self):
        super().__init__()
        self.step, self.one, self.other = Quantize(0.1, 0), *(
            pointwise(3, 4, None, seed) for seed in (1, 2))

    def forward(self, x):
        q = self.step(x)
        return total(Pair(self.one(q), self.other(q)))


class Sliced(nn.Module):
    """A mean of what must be copied for it."""

    def __init__(self):
        super().__init__()
        self.step, self.layer = Quantize(0.1, 0), pointwise(3, 4)
        self.mean = MeanOfPixels(0.5, 0, backend=NAME)

    def forward(self, x):
        return self.mean(self.layer(self.step(x))[..., 1:])


class Floats(nn.Module):
    """Layers of floats, the first a launch alone, the others beside it not."""

    def __init__(self):
        super().__init__()
        self.step, self.layer = Quantize(0.1, 0), pointwise(3, 4, None)
        self.plain, self.added, self.named = (
            Conv2d(4, 4, 3, padding=1, backend=NAME) for _ in range(3))
        self.around = Conv2d(4, 4, 3, padding=1, padding_mode="circular", backend=NAME)

    def forward(self, x):
        y = self.plain(self.layer(self.step(x)))
        y = self.added(self.around(y), y)
        return self.named(y, residual=y)


@torch.no_grad()
@pytest.mark.parametrize("network", [Twice, Requantised, Scaled, Paired, Sliced, Floats])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, deep(torch.bfloat16)])
def test_steps_of_many_kinds(network, dtype, launches):
    torch.manual_seed(0)
    model = quantized(network()).to(dtype)
    link(model, images().to(dtype))
    for seed in range(3):
        agrees(model, images(seed=seed).to(dtype))


@torch.no_grad()
@pytest.mark.parametrize("block", [tiny_networks.GatedResidual, tiny_networks.InvertedResidual])
def test_planes(block, launches):
    model = copy_of(block, layout="nchw")
    link(model)
    agrees(model, images(seed=3))


@torch.no_grad()
def test_what_launches_read_stays_in_memory(launches):
    model = copy_of()
    link(model)
    means = [one for one in model.modules() if isinstance(one, MeanOfPixels)]
    constants = [weakref.ref(one) for mean in means for both in mean._constants.values()
                 for one in both]
    for mean in means:
        mean._constants.clear()
    gc.collect()
    assert constants
    assert all(one() is not None for one in constants)
