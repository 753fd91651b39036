"""Layers of int8 with random integers, and images for them."""

import itertools

import torch

from dscore import Quantization
from dscore.torch import QuantizedConv2d

# in, out, kernel, groups, stride, padding, dilation
LAYERS = {"depthwise": (6, 6, (3, 3), 6, 2, 1, 1), "multiplier": (3, 6, (5, 3), 3, 1, (2, 0), 1),
          "pointwise": (20, 7, (1, 1), 1, 1, 0, 1), "strided": (9, 5, (1, 1), 1, 2, 0, 1),
          "dense": (4, 5, (3, 3), 1, (2, 1), 1, 2), "same": (4, 4, (4, 4), 4, 1, "same", 1)}
RESULTS = list(itertools.product((0.7, None), (None, "relu", "relu6")))


def integers(shape, generator, low=-128, high=128, dtype=torch.int8):
    return torch.randint(low, high, shape, generator=generator, dtype=dtype)


def layer_of(name, y_scale=0.7, activation=None, bias=True, seed=0, **options):
    """A layer of *LAYERS* with random integers, whose sums use the range of int8 well."""
    ins, outs, kernel, groups, stride, padding, dilation = LAYERS[name]
    generator = torch.Generator().manual_seed(seed)
    products = ins // groups * kernel[0] * kernel[1]
    scales = (0.5 + torch.rand(outs, generator=generator)) * 0.01 / products ** 0.5
    q = Quantization(1.3, scales, y_scale, 17, -5 if y_scale else 0)
    return QuantizedConv2d(
        integers((outs, ins // groups, *kernel), generator),
        integers((outs,), generator, -5000, 5000, torch.int32) if bias else None, q, stride,
        padding, dilation, groups, activation=activation, **options)


def x_of(name, shape=(2, 9, 8), seed=1, form=torch.channels_last):
    generator = torch.Generator().manual_seed(seed)
    batch, *image = shape
    return integers((batch, LAYERS[name][0], *image), generator).contiguous(memory_format=form)
