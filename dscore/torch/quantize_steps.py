"""Steps at the borders of a quantised model: from floats to integers of int8, and back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dscore.calling.quantise import flat_call, quantised_flat
from dscore.core.spec import Layout
from dscore.torch.launches import Launch
from dscore.torch.operators import by_operators
from dscore.torch.quantize_values import integers_of

KERNEL_TYPES = (torch.float32, torch.float16, torch.bfloat16)


class OfFloats(nn.Module):
    """Module whose results are floats of the type that the model is converted to."""

    _float: Tensor

    def __init__(self) -> None:
        super().__init__()
        # What ``half()`` converts; it has no elements, and is in no state_dict.
        self.register_buffer("_float", torch.zeros(0), persistent=False)


class Quantize(nn.Module):
    """Quantisation of a float tensor: ``clamp(rint(x / scale) + zero_point, -128, 127)``, as int8.

    x is multiplied by the reciprocal of the scale in float32, as quantize_per_tensor of
    torch.ops.quantized_decomposed does it. *layout*: "nhwc" lays images out with their channels
    last. On a GPU it is one kernel of dscore's.

    >>> Quantize(0.5, 10)(torch.tensor([0.0, 0.25, 0.75, -100.0]))
    tensor([  10,   10,   12, -128], dtype=torch.int8)
    """

    def __init__(self, scale: float, zero_point: int, layout: Layout = "nchw") -> None:
        super().__init__()
        self.scale, self.zero_point, self.layout = scale, zero_point, layout
        self._constants: dict[Any, tuple[Tensor, Tensor]] = {}

    def forward(self, x: Tensor) -> Tensor:
        """The integers of *x*, of any float type."""
        x = self.laid(x)
        if _is_launched(x):
            return self._by_kernel(x)
        return integers_of(x, self.scale, self.zero_point)

    def launch_of(self, x: Tensor) -> Launch | None:
        """The launch that it has just made; None where PyTorch has computed."""
        if not _is_launched(x):
            return None
        dense = self._dense(x)
        operands = self._operands(dense)
        call = flat_call(*operands)
        new = call.adapter.allocator(tuple(x.shape), dense, not dense.is_contiguous(), "int8")
        lays = None if dense is x else self._dense
        direct = call.takes_directly(operands)
        return Launch(call, (0, *operands[1:]), new, lays) if direct else None

    def laid(self, x: Tensor) -> Tensor:
        """*x* in the layout that its integers are to have."""
        if self.layout == "nhwc" and x.dim() == len(self.layout):
            return x.contiguous(memory_format=torch.channels_last)
        return x

    def _dense(self, x: Tensor) -> Tensor:
        """The same in one piece, in any order of axes, as the kernel takes it."""
        x = self.laid(x)
        last = x.dim() == len("nchw") and x.is_contiguous(memory_format=torch.channels_last)
        return x if last else x.contiguous()

    def _by_kernel(self, x: Tensor) -> Tensor:
        """The integers by dscore's kernel."""
        x = self._dense(x)
        made: Tensor = quantised_flat(*self._operands(x))
        return made.as_strided(x.shape, x.stride())

    def _operands(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Those of the kernel for floats that lie in one piece."""
        key = x.device, self.scale, self.zero_point
        if key not in self._constants:
            self._constants[key] = (torch.tensor([1.0 / self.scale], device=x.device),
                                    torch.tensor([self.zero_point], dtype=torch.int32,
                                                 device=x.device))
        return x.detach().as_strided((x.numel(),), (1,)), *self._constants[key]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_constants": {}}

    def get_extra_state(self) -> dict[str, Any]:
        return {"scale": self.scale, "zero_point": self.zero_point}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.scale, self.zero_point = state["scale"], state["zero_point"]

    def extra_repr(self) -> str:
        return f"scale={self.scale:.6g}, zero_point={self.zero_point}"


class Dequantize(OfFloats):
    """Numbers that integers of int8 stand for: ``(q - zero_point) * scale``.

    >>> Dequantize(0.5, 10)(torch.tensor([10, 12, -128], dtype=torch.int8))
    tensor([  0.,   1., -69.])
    """

    def __init__(self, scale: float, zero_point: int) -> None:
        super().__init__()
        self.scale, self.zero_point = scale, zero_point

    def forward(self, q: Tensor) -> Tensor:
        """Floats of the type that the model is of."""
        numbers = q.to(self._float.dtype)
        if self.zero_point:
            numbers.sub_(self.zero_point)
        return numbers.mul_(self.scale)

    get_extra_state, set_extra_state = Quantize.get_extra_state, Quantize.set_extra_state
    extra_repr = Quantize.extra_repr


def _is_launched(x: Tensor) -> bool:
    """Whether dscore's kernel quantises *x*."""
    return bool(x.is_cuda and x.numel() and x.dtype in KERNEL_TYPES and not by_operators((x,)))
