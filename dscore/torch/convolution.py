"""Convolution of a batch by dscore, from the constants of a layer; records no gradient."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor

from dscore.api import conv
from dscore.torch.layer import Epilogue, Layer


def convolution(x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None,
                scale: Tensor | None, layer: Layer, epilogue: Epilogue) -> Tensor:
    """The result of ``dscore.conv``; PyTorch's gradient mode is to be off."""
    if scale is not None and not layer.is_pointwise(w.shape):
        x, scale = x * scale[:, :, None, None], None
    stride, padding, dilation, groups, backend, arithmetic = layer
    return conv(x, w, bias, stride, padding, dilation, groups, activation=epilogue.activation,
                residual=residual, residual_after=epilogue.residual_after, scale=scale,
                backend=backend, arithmetic=cast(Any, arithmetic))
