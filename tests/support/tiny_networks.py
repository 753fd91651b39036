"""Tiny networks with the structures of torchvision's, to be accelerated in tests."""

import functools

import torch
from torch import nn

CHANNELS = 8


def conv_norm(inputs, outputs, kernel=1, stride=1, groups=1, activation=nn.ReLU6):
    """A convolution, a batch norm, and an activation in place."""
    layers = [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
              nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([activation(inplace=True)] if activation else []))


class InvertedResidual(nn.Module):
    """MobileNetV2's block."""

    def __init__(self, channels=CHANNELS):
        super().__init__()
        self.conv = nn.Sequential(
            conv_norm(channels, 2 * channels), conv_norm(2 * channels, 2 * channels, 3, 1,
                                                         2 * channels),
            nn.Conv2d(2 * channels, channels, 1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        return x + self.conv(x)


class SqueezeExcitation(nn.Module):
    """EfficientNet's gate."""

    def __init__(self, channels):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.down, self.up = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)
        self.inner, self.gate = nn.SiLU(inplace=True), nn.Sigmoid()

    def forward(self, x):
        return self.gate(self.up(self.inner(self.down(self.pool(x))))) * x


class GatedResidual(nn.Module):
    """EfficientNet's block, with the dropout of its sum."""

    def __init__(self, channels=CHANNELS):
        super().__init__()
        wide = 2 * channels
        self.block = nn.Sequential(
            conv_norm(channels, wide, activation=nn.SiLU),
            conv_norm(wide, wide, 5, 1, wide, nn.SiLU), SqueezeExcitation(wide),
            conv_norm(wide, channels, activation=None))
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        result = self.drop(self.block(x))
        result += x
        return result


class ShuffleUnit(nn.Module):
    """ShuffleNetV2's unit: split, one half convolved, joined, shuffled."""

    def __init__(self, channels=CHANNELS):
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            conv_norm(half, half, activation=nn.ReLU), conv_norm(half, half, 3, 1, half, None),
            conv_norm(half, half, activation=nn.ReLU))

    def forward(self, x):
        left, right = x.chunk(2, dim=1)
        joined = torch.cat((left, self.branch(right)), dim=1)
        batch, channels, height, width = joined.size()
        joined = joined.view(batch, 2, channels // 2, height, width)
        return torch.transpose(joined, 1, 2).contiguous().view(batch, channels, height, width)


class BasicBlock(nn.Module):
    """ResNet's block with a projection: the sum of two convolutions, then an activation."""

    def __init__(self, channels=CHANNELS):
        super().__init__()
        self.first = conv_norm(channels, channels, 3, activation=nn.ReLU)
        self.second = conv_norm(channels, channels, 3, activation=None)
        self.projection = conv_norm(channels, channels, activation=None)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.second(self.first(x))
        out += self.projection(x)
        return self.relu(out)


class Network(nn.Module):
    """A stem, a *block*, a head: a network for classification."""

    def __init__(self, block=InvertedResidual, classes=5):
        super().__init__()
        self.stem = conv_norm(3, CHANNELS, 3, 2)
        self.body = nn.Sequential(block(), conv_norm(CHANNELS, 2 * CHANNELS))
        self.dropout, self.head = nn.Dropout(0.2), nn.Linear(2 * CHANNELS, classes)

    def forward(self, x):
        return self.head(self.dropout(self.body(self.stem(x)).mean((2, 3))))


class Branching(nn.Module):
    """A network that PyTorch cannot trace, with a body that it can."""

    def __init__(self):
        super().__init__()
        self.body = Network(InvertedResidual)
        self.aside = nn.Conv2d(3, 3, 3, padding=1, groups=3)

    def forward(self, x):
        if x.sum() > 1e6:
            return self.body(x)
        return self.body(x + self.aside(x))


def with_statistics(model, seed=0):
    """The model, its batch norms with statistics and weights as after a training."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor, low, high in ((module.running_mean, -1, 1), (module.running_var, 0.5, 2),
                                      (module.weight, 0.5, 2), (module.bias, -1, 1)):
                if tensor is not None:
                    tensor.data.uniform_(low, high, generator=generator)
    return model


BLOCKS = (InvertedResidual, GatedResidual, ShuffleUnit, BasicBlock)
mobile, gated, shuffled, basic = (functools.partial(Network, block) for block in BLOCKS)
