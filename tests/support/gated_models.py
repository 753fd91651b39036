"""A network with a gate of squeeze-and-excitation, and what the gate's scales are in float64.

Images are of values that float16 holds, so that a model and its half have the same integers.
"""

import tiny_networks
import torch
from torch.nn import functional

GENERATOR = torch.Generator().manual_seed(3)
BATCHES = [torch.randn(4, 3, 12, 10, generator=GENERATOR).half().float() for _ in range(3)]
TYPES = [torch.float32, torch.float16, torch.bfloat16]
BLOCK = "body.0.block"
GATE, SCALED = [f"{BLOCK}.2.down", f"{BLOCK}.2.up"], f"{BLOCK}.3.0"


def model_of():
    torch.manual_seed(0)
    return tiny_networks.with_statistics(tiny_networks.gated()).eval()


def relative(result, expected):
    return float((result.float() - expected).detach().norm() / expected.detach().norm())


def taken_by(model, x):
    """The images and the scales that the layer behind the gate takes."""
    taken = []
    hook = model.get_submodule(SCALED).register_forward_pre_hook(
        lambda _, args: taken.append((args[0], args[2])))
    with torch.no_grad():
        model(x)
    hook.remove()
    return taken[0]


def exact_scales(mean, images):
    """A gate's scales of *images* in float64, and how far float16 may be from them, relatively.

    *mean* is its module. Means, weights, biases and results are rounded to float16; on the CPU,
    too, what an activation is taken of. silu differs by 1.1 times as much as that does at most,
    and a sigmoid, relative to itself, by as much.
    """
    unit, float_model = 2.0**-11, model_of().double()
    down, up = (float_model.get_submodule(name) for name in GATE)
    pooled = mean.scale * (images.double().mean((2, 3), keepdim=True) - mean.zero_point)
    inner = functional.silu(down(pooled))
    error = 3.3 * unit * terms(down, pooled) + unit * inner.abs()
    error = functional.conv2d(error, up.weight.abs()) + 2 * unit * terms(up, inner)
    return torch.sigmoid(up(inner)).detach(), (error + unit).detach()


def terms(layer, x):
    """The sum of the absolute values of what a result is a sum of."""
    return functional.conv2d(x.abs(), layer.weight.abs(), layer.bias.abs())
