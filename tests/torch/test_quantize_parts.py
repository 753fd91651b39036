"""Quantised models whose modules have names that steps would have, or several names."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import nn  # noqa: E402

import dscore.torch  # noqa: E402

X = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Named(nn.Module):
    """A layer that is called twice, and activations named as what quantisation adds."""

    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 3, 3, padding=1, groups=3), nn.Conv2d(3, 3, 1)
        self.conv_1, self.conv_quantize, self.conv_2_dequantize, self.x_quantize = (
            nn.Tanh(), nn.Hardtanh(-0.5, 0.5), nn.Softsign(), nn.Tanh())

    def forward(self, x):
        y = self.conv_1(self.conv(self.conv(self.conv_quantize(x))))
        return self.conv_2_dequantize(self.last(self.x_quantize(y))), x


class Several(nn.Module):
    """A model without a graph, one of whose modules is in a list three times."""

    def __init__(self):
        super().__init__()
        block = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1, groups=3), nn.ReLU())
        self.blocks, self.other = nn.ModuleList([block] * 3), nn.Sequential(block, nn.ReLU())

    def forward(self, x):
        if x.sum() > 1e9:
            return x
        y = self.other(x)
        for block in self.blocks:
            y = block(y)
        return y


@torch.no_grad()
@pytest.mark.parametrize("network", [Named, Several])
def test_each_module_is_called_where_it_was(network):
    torch.manual_seed(0)
    plain = network().eval()
    model = dscore.torch.quantize(plain, [X])
    assert model.report.error < 0.05
    assert all(not layer.reason for layer in model.report.layers)
    results, expected = (one if isinstance(one, tuple) else (one,) for one in (model(X), plain(X)))
    for y, target in zip(results, expected, strict=True):
        assert (y - target).norm() <= 0.05 * target.norm()
