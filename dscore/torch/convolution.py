"""Convolution of a batch by dscore, from the constants of a layer; records no gradient."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor

from dscore.api import conv
from dscore.torch.backward import Epilogue
from dscore.torch.layer import Layer
from dscore.torch.remainder import ACTIVATIONS


def convolution(x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None,
                scale: Tensor | None, layer: Layer, epilogue: Epilogue) -> Tensor:
    """The result of ``dscore.conv``; PyTorch's gradient mode is to be off."""
    activation, after = epilogue
    if scale is not None:
        x = x * scale[:, :, None, None]
    fused = None if residual is not None and not after else activation
    y = conv(x, w, bias, layer.stride, layer.padding, layer.dilation, layer.groups,
             activation=cast(Any, fused), backend=layer.backend,
             arithmetic=cast(Any, layer.arithmetic))
    if residual is None:
        return y
    y += residual
    return y if fused == activation else ACTIVATIONS[cast(str, activation)](y)
