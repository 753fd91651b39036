"""A depthwise separable block on PyTorch tensors, on a GPU where there is one.

A tensor stays where it is, and the kernels are launched on PyTorch's current stream.

    python examples/pytorch_tensors.py
"""

import torch

import dscore

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
x = torch.randn(2, 32, 28, 28, device=device)
depthwise = torch.randn(32, 1, 3, 3, device=device)
pointwise = torch.randn(64, 32, 1, 1, device=device)
bias = torch.randn(64, device=device)

with torch.no_grad():  # dscore computes no gradients
    y = dscore.conv(x, depthwise, stride=2, padding=1, groups=32)
    z = dscore.conv(y, pointwise, bias, activation="relu6")

# The same by PyTorch, in float64.
conv2d = torch.nn.functional.conv2d
expected = conv2d(x.double(), depthwise.double(), stride=2, padding=1, groups=32)
expected = conv2d(expected, pointwise.double(), bias.double()).clamp(0, 6)

error = (z - expected).abs().max().item()
assert error < 1e-4, error
print(f"{type(z).__name__} {tuple(z.shape)} on {z.device}, off by {error:.1e} at the most: right")
