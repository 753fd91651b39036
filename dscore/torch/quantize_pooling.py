"""Mean over the pixels of images of int8, as floats: a module, and torch.ops.dscore.quantized_mean,
which serves what traces programs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.library import define, impl, register_fake

from dscore.calling import means
from dscore.calling.call_cache import PreparedCall
from dscore.core.errors import SpecError
from dscore.core.numerics import FLOAT_RESULTS
from dscore.core.problem import ConvProblem
from dscore.core.spec import Layout
from dscore.torch.launches import Launch
from dscore.torch.layer import Layer
from dscore.torch.operators import by_operators
from dscore.torch.quantize_operator import convolved, quantization_of
from dscore.torch.quantize_steps import OfFloats

# Of a pointwise layer: stride, padding, dilation, groups.
_PLAIN = ((1, 1), (0, 0, 0, 0), (1, 1), 1)

define("dscore::quantized_mean", "(Tensor q, float scale, int zero_point, bool keepdim, "
       "str out_dtype, str backend) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))


class MeanOfPixels(OfFloats):
    """Mean over all pixels of images of int8: ``(mean(q) - zero_point) * scale``, of floats.

    The sum is exact. On a GPU it is one kernel of dscore's. Elsewhere images whose channels lie
    last are those of a pointwise layer: its channels are their pixels, its pixels their channels,
    and its filter has ones. *keepdim*: the axes of pixels stay, of size 1.

    >>> images = torch.tensor([[[[4, 5], [6, 6]]]], dtype=torch.int8)
    >>> MeanOfPixels(2.0, 1, keepdim=False)(images)
    tensor([[8.5000]])
    """

    def __init__(self, scale: float, zero_point: int, keepdim: bool = True,
                 backend: str = "auto") -> None:
        super().__init__()
        self.scale, self.zero_point, self.keepdim = scale, zero_point, keepdim
        self.backend = backend
        self._filters: dict[tuple[int, torch.device], Tensor] = {}
        self._constants: dict[Any, tuple[Tensor, Tensor]] = {}

    def forward(self, q: Tensor) -> Tensor:
        """The means of images (N, C, H, W)."""
        if by_operators((q,)):
            mean: Tensor = torch.ops.dscore.quantized_mean(
                q, self.scale, self.zero_point, self.keepdim, _name(self._float.dtype),
                self.backend)
            return mean
        return self.computed(q)

    def computed(self, q: Tensor) -> Tensor:
        """The means, by whatever computes them for tensors like *q*."""
        if q.dtype is not torch.int8:
            raise SpecError(f"images of a MeanOfPixels must be of torch.int8, got {q.dtype}; "
                            "dscore.torch.Quantize makes integers of floats")
        kernel = self._kernel_of(q)
        if kernel is not None:
            call, operands = kernel
            mean: Tensor = call(*operands, None)
            return mean.to(self._float.dtype)
        planes, ones, share = self._operands(q)
        of = quantization_of(self.scale, share, None, self.zero_point)
        mean = convolved(planes, ones, None, Layer(*_PLAIN, self.backend), of, None)
        return mean.to(self._float.dtype).view(_shape(q, self.keepdim))

    def launch_of(self, q: Tensor) -> Launch | None:
        """The launch that it has just made; None where it has copied or converted besides."""
        kernel = self._kernel_of(q)
        if kernel is None or _name(self._float.dtype) not in FLOAT_RESULTS:
            return None
        call, operands = kernel
        direct = call.takes_directly(operands)
        return Launch(call, (0, *operands[1:]), call.new) if direct else None

    def _kernel_of(self, q: Tensor) -> tuple[PreparedCall, tuple[Tensor, ...]] | None:
        """The call of dscore's kernel, and its operands; None where another step computes."""
        if not self._launches(q):
            return None
        further = self.further(q)
        call = means.mean_call(q, self.keepdim, self.backend, further,
                               _written(self._float.dtype))
        return None if call is None else (call, (q, *further))

    def takes(self, q: Tensor) -> bool:
        """Whether a kernel may compute for a tensor, as far as that says."""
        return (self._launches(q) and not by_operators((q,))
                and _name(self._float.dtype) in FLOAT_RESULTS)

    def _launches(self, q: Tensor) -> bool:
        """Whether kernels are launched for integers like these."""
        return (q.dtype is torch.int8 and bool(q.numel())
                and (self.backend != "auto" or q.is_cuda))

    def result_type(self, q: Tensor) -> torch.dtype:
        """The type of the means."""
        return self._float.dtype

    def further(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """The operands of the kernel beside images."""
        key = q.device, q.shape[-2:], self.scale, self.zero_point
        if key not in self._constants:
            self._constants[key] = means.integer_operands(q, self.scale, self.zero_point)
        return self._constants[key]

    def _operands(self, q: Tensor) -> tuple[Tensor, Tensor, float]:
        """The images of the pointwise layer, its filter, and a pixel's share of the mean."""
        images, channels, height, width = q.shape
        pixels = height * width
        planes = q.permute(0, 2, 3, 1).reshape(images, pixels, 1, channels)
        return planes, self._ones(pixels, q.device), 1.0 / pixels

    def _ones(self, pixels: int, device: torch.device) -> Tensor:
        if (pixels, device) not in self._filters:
            self._filters[pixels, device] = torch.ones(
                (1, pixels, 1, 1), dtype=torch.int8, device=device)
        return self._filters[pixels, device]

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_filters": {}, "_constants": {}}

    def get_extra_state(self) -> dict[str, float]:
        return {"scale": self.scale, "zero_point": self.zero_point}

    def set_extra_state(self, state: dict[str, float]) -> None:
        self.scale, self.zero_point = state["scale"], int(state["zero_point"])

    def extra_repr(self) -> str:
        return f"scale={self.scale:.6g}, zero_point={self.zero_point}, keepdim={self.keepdim}"


def mean_problem(shape: tuple[int, ...], layout: Layout, dtype: torch.dtype) -> ConvProblem:
    """The problem of a mean over the pixels of int8 images (N, C, H, W) that lie in a *layout*, in
    a model of a float type.

    >>> mean_problem((2, 8, 5, 5), "nhwc", torch.float16).spec.out_dtype
    'float16'
    """
    return means.mean_problem(shape, "int8", layout, _written(dtype))


def _written(dtype: torch.dtype) -> str:
    """The type that the kernel writes for a module of a float type; others are made of float32."""
    return _name(dtype) if _name(dtype) in FLOAT_RESULTS else "float32"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _shape(q: Tensor, keepdim: bool) -> tuple[int, ...]:
    """Of the means of images."""
    return *q.shape[:2], *(1, 1) * keepdim


@lru_cache(maxsize=4096)
def _module_of(scale: float, zero_point: int, keepdim: bool, out_dtype: str, backend: str
               ) -> MeanOfPixels:
    """A module for the operator, which keeps what its kernel takes."""
    return MeanOfPixels(scale, zero_point, keepdim, backend).to(getattr(torch, out_dtype))


@impl("dscore::quantized_mean", "default")
def _quantized_mean(q: Tensor, *constants: Any) -> Tensor:
    return _module_of(*constants).computed(q)


@register_fake("dscore::quantized_mean")  # type: ignore[untyped-decorator]
def _fake_mean(q: Tensor, scale: float, zero_point: int, keepdim: bool, out_dtype: str,
               backend: str) -> Tensor:
    return q.new_empty(_shape(q, keepdim), dtype=getattr(torch, out_dtype))
