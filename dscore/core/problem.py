"""A layer on an input (ConvProblem): its shapes, padding and work, and what kernels can index."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from dscore.core.errors import SpecError, require_int, shown
from dscore.core.numerics import Permission
from dscore.core.sizes import Pair, Sides
from dscore.core.spec import ConvSpec, Layout

# Kernels index a tensor with 32-bit signed integers; lanes past its end, up to a block's elements
# further.
MAX_ELEMENTS = 2**31 - 2**20
# They count rows and columns in the same way, with the padding and where a block reaches past it.
MAX_PADDED = 2**30
# Words without digits, so that a problem's token shows where they end.
OPERATION = "[a-z]+(?:_[a-z]+)*"


def _same_padding(size: int, span: int, stride: int) -> Pair:
    """TensorFlow's SAME: ceil(size / stride) outputs, the odd row or column at the end."""
    total = max((-(-size // stride) - 1) * stride + span - size, 0)
    return total // 2, total - total // 2


@dataclass(frozen=True)
class ConvProblem:
    """A layer on an input size: here shapes are judged, and nowhere else.

    Raises SpecError where no output remains, or a tensor or its padding is too large for kernels
    to index.

    >>> ConvProblem(ConvSpec.make(3, 8, 3, stride=2, padding="same"), 1, 6, 6).padding
    (0, 1, 0, 1)
    """

    spec: ConvSpec
    batch: int
    height: int
    width: int
    operation: str = "conv"  # by its name in dscore.ops

    def __post_init__(self) -> None:
        if not isinstance(self.spec, ConvSpec):
            raise SpecError(f"spec must be a ConvSpec, got {shown(self.spec)}")
        if not isinstance(self.operation, str) or not re.fullmatch(OPERATION, self.operation):
            raise SpecError("operation must be lower-case words with _ between them, got "
                            f"{shown(self.operation)}")
        for name in ("batch", "height", "width"):
            object.__setattr__(self, name, require_int(getattr(self, name), name))
        for axis, size, out in (("height", self.height, self.out_height),
                                ("width", self.width, self.out_width)):
            if out < 1:
                at = 0 if axis == "height" else 1
                before, after = self.padding[2 * at:2 * at + 2]
                raise SpecError(
                    f"no output rows or columns: input {axis} {size} + padding {before}+{after} = "
                    f"{size + before + after} is less than the kernel's {self.spec.span[at]}"
                    f" (kernel {self.spec.kernel[at]}, dilation {self.spec.dilation[at]})")
        self._require_countable()

    def _require_countable(self) -> None:
        """Raise SpecError for more than kernels can count, in memory or of padding alone."""
        top, bottom, left, right = self.padding
        for axis, padded in (("height", self.height + top + bottom),
                             ("width", self.width + left + right)):
            if padded > MAX_PADDED:
                raise SpecError(f"the {axis} with its padding is {padded}, more than the "
                                f"{MAX_PADDED} that kernels can count; pad less")
        for name, shape in (("input", self.x_shape), ("filter", self.spec.w_shape),
                            ("output", self.y_shape)):
            elements = math.prod(shape)
            if elements > MAX_ELEMENTS:
                raise SpecError(f"the {name} of shape {shape} has {elements} elements, more than "
                                f"the {MAX_ELEMENTS} that kernels can index; split the batch")
        for rows, where, end in ((top, "above", top * self.width),
                                 (bottom, "below", math.prod(self.x_shape) + bottom * self.width)):
            if end > MAX_ELEMENTS:
                raise SpecError(f"{rows} rows of padding {where} an input of shape {self.x_shape} "
                                f"end {end} elements from its beginning, more than the "
                                f"{MAX_ELEMENTS} that kernels can index; pad less")

    @property
    def padding(self) -> Sides:
        """(top, bottom, left, right), with "same" resolved on this input."""
        if self.spec.padding != "same":
            return self.spec.padding
        (span_h, span_w), (stride_h, stride_w) = self.spec.span, self.spec.stride
        return (*_same_padding(self.height, span_h, stride_h),
                *_same_padding(self.width, span_w, stride_w))

    @property
    def out_height(self) -> int:
        """Output rows."""
        top, bottom, _, _ = self.padding
        return (self.height + top + bottom - self.spec.span[0]) // self.spec.stride[0] + 1

    @property
    def out_width(self) -> int:
        """Output columns."""
        _, _, left, right = self.padding
        return (self.width + left + right - self.spec.span[1]) // self.spec.stride[1] + 1

    @property
    def x_shape(self) -> tuple[int, int, int, int]:
        """Shape of the input in the spec's layout."""
        return self._image_shape(self.spec.in_channels, self.height, self.width)

    @property
    def y_shape(self) -> tuple[int, int, int, int]:
        """Shape of the output in the spec's layout."""
        return self._image_shape(self.spec.out_channels, self.out_height, self.out_width)

    def _image_shape(self, channels: int, height: int, width: int) -> tuple[int, int, int, int]:
        if self.spec.layout == "nchw":
            return self.batch, channels, height, width
        return self.batch, height, width, channels

    @property
    def prefix(self) -> str:
        """What names of the problem begin with, before its sizes; empty for a convolution."""
        return "" if self.operation == "conv" else f"{self.operation}_"

    @property
    def macs(self) -> int:
        """Multiply-adds of the convolution's direct definition, padding counted."""
        outputs = self.batch * self.spec.out_channels * self.out_height * self.out_width
        return outputs * self.spec.products

    def with_batch(self, batch: int) -> ConvProblem:
        """The same layer and image size for another batch."""
        return replace(self, batch=batch)

    def laid_out(self, layout: Layout) -> ConvProblem:
        """The same for images of another layout."""
        return replace(self, spec=replace(self.spec, layout=layout))

    def permitting(self, arithmetic: Permission) -> ConvProblem:
        """The same convolution with that permission; a gradient, which has no use for it, as it is.
        """
        if self.operation != "conv":
            return self
        return replace(self, spec=replace(self.spec, arithmetic=arithmetic))

    def __str__(self) -> str:
        spec, (kh, kw) = self.spec, self.spec.kernel
        text = self.operation + " " if self.prefix else ""
        text += f"{spec.kind} {spec.in_channels}x{self.height}x{self.width}->{spec.out_channels}"
        if spec.kernel != (1, 1):
            text += f" {kh}x{kw}"
        if spec.stride != (1, 1):
            text += f" stride {spec.stride[0]}x{spec.stride[1]}"
        if spec.kind == "grouped":
            text += f" groups {spec.groups}"
        return text if self.batch == 1 else f"{text} batch {self.batch}"
