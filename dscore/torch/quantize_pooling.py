"""Mean over the pixels of images of int8, as floats."""

from __future__ import annotations

import torch
from torch import Tensor

from dscore.core.problem import ConvProblem
from dscore.core.spec import ConvSpec
from dscore.torch.launches import Launch
from dscore.torch.layer import Layer
from dscore.torch.operators import by_operators
from dscore.torch.quantize_modules import OfFloats
from dscore.torch.quantize_operator import convolved, launch_of, quantization_of

# Of a pointwise layer: stride, padding, dilation, groups.
_PLAIN = ((1, 1), (0, 0, 0, 0), (1, 1), 1)


class MeanOfPixels(OfFloats):
    """Mean over all pixels of images of int8: ``(mean(q) - zero_point) * scale``, of floats.

    The sum is exact. Images whose channels lie last are those of another pointwise layer: its
    channels are their pixels, its pixels their channels, and its filter has ones. *keepdim*: the
    axes of pixels stay, of size 1.

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

    def forward(self, q: Tensor) -> Tensor:
        """The means of images (N, C, H, W)."""
        planes, ones, share = self._operands(q)
        if by_operators((q,)):
            mean: Tensor = torch.ops.dscore.quantized_conv2d(
                planes, ones, None, None, None, self.scale, [share], None, self.zero_point, 0, None,
                None, 0, None, 0, None, 0, None, *_PLAIN, self.backend)
        else:
            of = quantization_of(self.scale, share, None, self.zero_point)
            mean = convolved(planes, ones, None, Layer(*_PLAIN, self.backend), of, None)
        return mean.to(self._float.dtype).view(self._shape(q))

    def launch_of(self, q: Tensor) -> Launch | None:
        """The launch that it has just made; None where it has copied or converted besides."""
        planes, ones, share = self._operands(q)
        if self._float.dtype is not torch.float32 or planes.data_ptr() != q.data_ptr():
            return None
        of = quantization_of(self.scale, share, None, self.zero_point)
        launch = launch_of(planes, ones, None, Layer(*_PLAIN, self.backend), of, None)
        return launch and launch._replace(
            new=launch.call.adapter.allocator(self._shape(q), q, False, "float32"))

    def _operands(self, q: Tensor) -> tuple[Tensor, Tensor, float]:
        """The images of the pointwise layer, its filter, and a pixel's share of the mean."""
        images, channels, height, width = q.shape
        pixels = height * width
        planes = q.permute(0, 2, 3, 1).reshape(images, pixels, 1, channels)
        return planes, self._ones(pixels, q.device), 1.0 / pixels

    def _shape(self, q: Tensor) -> tuple[int, ...]:
        return *q.shape[:2], *(1, 1) * self.keepdim

    def _ones(self, pixels: int, device: torch.device) -> Tensor:
        if torch.compiler.is_compiling():
            return torch.ones((1, pixels, 1, 1), dtype=torch.int8, device=device)
        if (pixels, device) not in self._filters:
            self._filters[pixels, device] = torch.ones(
                (1, pixels, 1, 1), dtype=torch.int8, device=device)
        return self._filters[pixels, device]

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_filters": {}}

    def get_extra_state(self) -> dict[str, float]:
        return {"scale": self.scale, "zero_point": self.zero_point}

    def set_extra_state(self, state: dict[str, float]) -> None:
        self.scale, self.zero_point = state["scale"], int(state["zero_point"])

    def extra_repr(self) -> str:
        return f"scale={self.scale:.6g}, zero_point={self.zero_point}, keepdim={self.keepdim}"


def mean_problem(shape: tuple[int, ...]) -> ConvProblem:
    """The problem that a mean over the pixels of images (N, C, H, W) is to dscore."""
    images, channels, height, width = shape
    spec = ConvSpec.make(height * width, 1, 1, dtype="int8", out_dtype="float32")
    return ConvProblem(spec, images, 1, channels)
