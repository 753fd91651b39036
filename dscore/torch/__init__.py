"""PyTorch package: convolutions that record gradients, as a function and as modules.

    conv2d(x, w)                  torch.nn.functional.conv2d with activation, residual, scale
    Conv2d(...)                   torch.nn.Conv2d, of the same attributes and state_dict
    DepthwiseConv2d(...)          one that has a group for each channel
    PointwiseConv2d(...)          one of kernel 1x1
    DepthwiseSeparableConv2d(...) the two after one another
    accelerate(model, example)    a model's convolutions by dscore, folded in eval mode
    scan(model, example)          the report of that, without a change
    restore(model)                the model as it was
    refresh(model)                what is folded, computed anew
    quantize(model, batches)      a copy with its convolutions in int8, and a report
    from_pt2e(model)              the same of a model that torchao has quantised
    left_to_pytorch()             the layers that PyTorch computed instead, each with the reason

>>> import torch, dscore.torch
>>> layer = dscore.torch.Conv2d(8, 16, 3, padding=1, activation="relu")
>>> layer(torch.zeros(1, 8, 14, 14)).shape
torch.Size([1, 16, 14, 14])

On CUDA tensors of float32, float16 and bfloat16 dscore's kernels compute, also with the channels
last; on all others PyTorch's own convolution does.
``import dscore`` alone imports no PyTorch.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("torch") is None:
    raise ImportError("dscore.torch needs PyTorch: pip install 'dscore[torch]'")

from dscore.torch.accelerate import accelerate as accelerate
from dscore.torch.accelerate import refresh as refresh
from dscore.torch.accelerate import restore as restore
from dscore.torch.accelerate import scan as scan
from dscore.torch.functional import conv2d as conv2d
from dscore.torch.modules import Conv2d as Conv2d
from dscore.torch.modules import DepthwiseConv2d as DepthwiseConv2d
from dscore.torch.modules import DepthwiseSeparableConv2d as DepthwiseSeparableConv2d
from dscore.torch.modules import PointwiseConv2d as PointwiseConv2d
from dscore.torch.quantize import quantize as quantize
from dscore.torch.quantize_modules import QuantizedConv2d as QuantizedConv2d
from dscore.torch.quantize_pt2e import from_pt2e as from_pt2e
from dscore.torch.quantize_steps import Dequantize as Dequantize
from dscore.torch.quantize_steps import Quantize as Quantize
from dscore.torch.remainder import Left as Left
from dscore.torch.remainder import left_to_pytorch as left_to_pytorch

__all__ = [
    "Conv2d",
    "DepthwiseConv2d",
    "DepthwiseSeparableConv2d",
    "Dequantize",
    "Left",
    "PointwiseConv2d",
    "Quantize",
    "QuantizedConv2d",
    "accelerate",
    "conv2d",
    "left_to_pytorch",
    "quantize",
    "refresh",
    "restore",
    "scan",
]
