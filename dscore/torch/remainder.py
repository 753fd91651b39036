"""Remainder: what PyTorch computes because dscore does not, counted with the reasons."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from dscore.core import spec
from dscore.core.problem import MAX_ELEMENTS
from dscore.torch.layer import Epilogue, Layer, lacking_kernel, lies_last

_LOG = logging.getLogger("dscore")
# Programs that make ever new layers must not remember all of them.
MOST_RECORDS = 4096
_TYPES = (torch.float32, torch.float16, torch.bfloat16)
ACTIVATIONS = {name: getattr(functional, name) for name in spec.ACTIVATIONS}
# Of a layer and a reason: how often PyTorch computed it. Keys are constants, read when listed.
_calls: dict[tuple[Any, ...], int] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class Left:
    """Record of a layer that PyTorch computed in place of dscore.

    *operation* is "conv", "input_gradient" or "weight_gradient". *calls* counts eager calls, and
    each trace by torch.compile or torch.export as one.
    """

    operation: str
    layer: str
    reason: str
    calls: int

    def __str__(self) -> str:
        return f"{self.calls:6}x {self.operation} {self.layer}: {self.reason}"


def left_to_pytorch(reset: bool = False) -> list[Left]:
    """The layers that PyTorch computed since the start, or since the last *reset*; most first.

    The logger "dscore" says each once (info).

    >>> import torch, dscore.torch
    >>> _ = left_to_pytorch(reset=True)
    >>> y = dscore.torch.conv2d(torch.zeros(1, 8, 5, 5), torch.zeros(8, 1, 3, 3), groups=8)
    >>> for record in left_to_pytorch():
    ...     print(record.layer, "|", record.reason)
    8->8 3x3 groups 8 | device cpu: kernels take CUDA tensors; a backend= by name computes here
    """
    with _lock:
        records = sorted(_calls.items(), key=lambda item: -item[1])
        if reset:
            _calls.clear()
    return [Left(operation, _layer_text(*layer), reason, calls)
            for (operation, *layer, reason), calls in records]


def note(operation: str, w_shape: tuple[int, ...], layer: Layer, reason: str) -> None:
    """Count a call that PyTorch computes."""
    key = (operation, tuple(w_shape), layer, reason)
    with _lock:
        count = _calls.get(key, 0)
        if not count and len(_calls) >= MOST_RECORDS:
            _calls.clear()
        _calls[key] = count + 1
    if not count:
        _LOG.info("dscore: left to PyTorch: %s %s: %s", operation, _layer_text(w_shape, layer),
                  reason)


def note_traced(operation: str, w_shape: tuple[int, ...], layer: tuple[Any, ...],
                reason: str) -> None:
    """The same while a graph is traced, of which counting must not become part."""
    note(operation, w_shape, Layer(*layer), reason)


# As torch.compiler.assume_constant_result marks it, which imports the whole compiler.
note_traced._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _layer_text(w_shape: tuple[int, ...], layer: Layer) -> str:
    """A layer as ``8->16 3x3 stride 2x2 padding 1,1,1,1 groups 8``, defaults left out."""
    text = f"{w_shape[1] * layer.groups}->{w_shape[0]} {w_shape[2]}x{w_shape[3]}"
    for name in ("stride", "dilation"):
        high, wide = getattr(layer, name)
        text += f" {name} {high}x{wide}" if (high, wide) != (1, 1) else ""
    text += f" padding {','.join(map(str, layer.padding))}" if any(layer.padding) else ""
    return text + (f" groups {layer.groups}" if layer.groups > 1 else "")


def reason_for_pytorch(x: Tensor, w: Tensor, y_shape: Sequence[int], layer: Layer,
                       residual: Tensor | None = None) -> str:
    """The reason why PyTorch computes a layer; empty where dscore does.

    A backend that is named computes whatever the caller gives it, or raises.
    """
    if torch.autograd.forward_ad._current_level >= 0:
        return "forward-mode derivative (jvp): dscore has none"
    if torch.compiler.is_dynamo_compiling() and torch._C._are_functorch_transforms_active():
        return "torch.func inside torch.compile: dscore's operators are transformed outside of it"
    if layer.backend != "auto":
        return ""
    device = x.device.type
    if device != "cuda":
        return f"device {device}: kernels take CUDA tensors; a backend= by name computes here"
    return _reason_of_data(x, w, residual, y_shape, layer)


def _reason_of_data(x: Tensor, w: Tensor, residual: Tensor | None, y_shape: Sequence[int],
                    layer: Layer) -> str:
    if x.dtype not in _TYPES:
        return (f"dtype {_name(x.dtype)}: dscore computes "
                f"{', '.join(map(_name, _TYPES))}")
    if w.dtype is not x.dtype:
        return f"x is {_name(x.dtype)}, and w {_name(w.dtype)}: dscore computes in one type"
    if not w.is_contiguous():
        return "w is not contiguous: kernels take filters as .contiguous() lays them out"
    reason = lacking_kernel("conv", tuple(w.shape), tuple(layer), _name(x.dtype),
                            lies_last(x, residual))
    if reason:
        return reason
    images, channels, rows, columns = y_shape
    if max(x.numel(), w.numel(), images * channels * rows * columns) > MAX_ELEMENTS:
        return f"more than {MAX_ELEMENTS} elements: kernels index no more; split the batch"
    return ""


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def by_pytorch(x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None,
               scale: Tensor | None, layer: Layer, epilogue: Epilogue) -> Tensor:
    """The convolution and what goes with it by PyTorch's own functions."""
    activation, residual_after = epilogue
    if scale is not None:
        x = x * scale[:, :, None, None]
    top, bottom, left, right = layer.padding
    padding = (top, left)
    if not layer.padding_is_even:
        x, padding = functional.pad(x, (left, right, top, bottom)), (0, 0)
    y = functional.conv2d(x, w, bias, layer.stride, padding, layer.dilation, layer.groups)
    if residual is not None and not residual_after:
        y = y + residual
    if activation is not None:
        y = ACTIVATIONS[activation](y)
    return y + residual if residual is not None and residual_after else y
