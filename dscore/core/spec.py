"""What a user asks for: a convolution layer (ConvSpec) and the layer on an input (ConvProblem)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from dscore.core.errors import SpecError, require_int, require_one_of

DType = Literal["float32", "float16", "bfloat16", "int8"]
Layout = Literal["nchw", "nhwc"]
Activation = Literal["relu", "relu6", "silu", "hardswish"]
Kind = Literal["pointwise", "depthwise", "grouped", "dense"]
Pair = tuple[int, int]
Sides = tuple[int, int, int, int]  # top, bottom, left, right

DTYPES: tuple[str, ...] = get_args(DType)
LAYOUTS: tuple[str, ...] = get_args(Layout)
ACTIVATIONS: tuple[str, ...] = get_args(Activation)
ELEMENT_BYTES: dict[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}

# Kernels index a tensor with 32-bit signed integers; lanes past its end, up to a block's elements
# further.
MAX_ELEMENTS = 2**31 - 2**20
# They count rows and columns in the same way, with the padding and where a block reaches past it.
MAX_PADDED = 2**30
MAX_STRIDE = 2**15


def pair_of(value: Any, name: str, at_least: int = 1) -> Pair:
    """An int for both axes, or (height, width).

    >>> pair_of(3, "kernel"), pair_of((1, 5), "kernel")
    ((3, 3), (1, 5))
    """
    if isinstance(value, tuple | list):
        if len(value) != 2:
            raise SpecError(f"{name} must be an int or (height, width), got {value!r}")
        return (require_int(value[0], f"{name} height", at_least),
                require_int(value[1], f"{name} width", at_least))
    both = require_int(value, name, at_least)
    return both, both


def sides_of(padding: Any) -> Sides | Literal["same"]:
    """Any accepted form of padding as (top, bottom, left, right), or "same".

    Accepted: "same", "valid", an int, (vertical, horizontal), ((top, bottom), (left, right)),
    (top, bottom, left, right).

    >>> sides_of(1), sides_of((1, 2)), sides_of(((0, 1), (2, 3)))
    ((1, 1, 1, 1), (1, 1, 2, 2), (0, 1, 2, 3))
    """
    if isinstance(padding, str):
        require_one_of(padding, "padding", ("same", "valid"))
        return "same" if padding == "same" else (0, 0, 0, 0)
    if isinstance(padding, tuple | list) and len(padding) == 4:
        top, bottom, left, right = padding
    elif isinstance(padding, tuple | list) and len(padding) == 2:
        (top, bottom), (left, right) = (
            side if isinstance(side, tuple | list) and len(side) == 2 else (side, side)
            for side in padding)
    elif isinstance(padding, tuple | list):
        raise SpecError("padding must be 'same', 'valid', an int, (vertical, horizontal), "
                        f"((top, bottom), (left, right)) or four ints, got {padding!r}")
    else:
        top = bottom = left = right = padding
    named = zip(("top", "bottom", "left", "right"), (top, bottom, left, right), strict=True)
    t, b, l_, r = (require_int(value, f"padding {side}", 0) for side, value in named)
    return t, b, l_, r


@dataclass(frozen=True)
class ConvSpec:
    """One convolution layer, without the size of its input.

    ``y = activation(conv(x, w) + bias)`` in the cross-correlation sense of deep learning, with
    ``x`` of shape (N, in_channels, H, W) and ``w`` of shape
    (out_channels, in_channels / groups, kernel height, kernel width).
    Build it with :meth:`make`, which takes the usual short forms.

    Raises SpecError where a field is out of range or the channels do not fit the groups.

    >>> ConvSpec.make(32, 32, 3, stride=2, padding=1, groups=32).kind
    'depthwise'
    """

    in_channels: int
    out_channels: int
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Sides | Literal["same"] = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    dtype: DType = "float32"
    layout: Layout = "nchw"
    bias: bool = False
    activation: Activation | None = None

    def __post_init__(self) -> None:
        # Stored as plain ints, so that equal layers are equal bytes in a cache key.
        for name in ("in_channels", "out_channels", "groups"):
            object.__setattr__(self, name, require_int(getattr(self, name), name))
        for name in ("kernel", "stride", "dilation"):
            object.__setattr__(self, name, pair_of(getattr(self, name), name))
        if max(self.stride) > MAX_STRIDE:
            raise SpecError(f"stride is {self.stride[0]}x{self.stride[1]}, more than {MAX_STRIDE}; "
                            "pick the pixels out beforehand")
        object.__setattr__(self, "padding", sides_of(self.padding))
        require_one_of(self.dtype, "dtype", DTYPES)
        require_one_of(self.layout, "layout", LAYOUTS)
        require_one_of(self.bias, "bias", (True, False))
        require_one_of(self.activation, "activation", (None, *ACTIVATIONS))
        for name in ("in_channels", "out_channels"):
            channels = getattr(self, name)
            if channels % self.groups:
                raise SpecError(f"{name} must be a multiple of groups: {channels} % "
                                f"{self.groups} = {channels % self.groups}")

    @classmethod
    def make(cls, in_channels: int, out_channels: int, kernel: Any, *, stride: Any = 1,
             padding: Any = 0, dilation: Any = 1, **rest: Any) -> ConvSpec:
        """A ConvSpec from short forms: an int for a pair, any form of padding of `sides_of`."""
        try:
            return cls(in_channels, out_channels, pair_of(kernel, "kernel"),
                       pair_of(stride, "stride"), sides_of(padding),
                       pair_of(dilation, "dilation"), **rest)
        except TypeError as unknown:
            raise SpecError(f"ConvSpec: {unknown}") from None

    @property
    def kind(self) -> Kind:
        """Which family of algorithms the layer belongs to."""
        if self.kernel == (1, 1) and self.groups == 1:
            return "pointwise"
        if self.groups == self.in_channels:
            return "depthwise"
        return "dense" if self.groups == 1 else "grouped"

    @property
    def group_in(self) -> int:
        """Input channels of one group."""
        return self.in_channels // self.groups

    @property
    def group_out(self) -> int:
        """Output channels of one group (the channel multiplier of a depthwise layer)."""
        return self.out_channels // self.groups

    @property
    def span(self) -> Pair:
        """Rows and columns of input under one output: the dilated kernel."""
        return ((self.kernel[0] - 1) * self.dilation[0] + 1,
                (self.kernel[1] - 1) * self.dilation[1] + 1)

    @property
    def products(self) -> int:
        """Products summed into one output, the k of the error bound γ_k."""
        return self.kernel[0] * self.kernel[1] * self.group_in

    @property
    def w_shape(self) -> tuple[int, int, int, int]:
        """Shape of the filter."""
        return self.out_channels, self.group_in, *self.kernel


def _same_padding(size: int, span: int, stride: int) -> Pair:
    """TensorFlow's SAME: ceil(size / stride) outputs, the odd row or column at the end."""
    total = max((-(-size // stride) - 1) * stride + span - size, 0)
    return total // 2, total - total // 2


@dataclass(frozen=True)
class ConvProblem:
    """A layer on an input size: the one door where shapes are judged.

    Raises SpecError where no output remains, or a tensor or its padding is too large for kernels
    to index.

    >>> ConvProblem(ConvSpec.make(3, 8, 3, stride=2, padding="same"), 1, 6, 6).padding
    (0, 1, 0, 1)
    """

    spec: ConvSpec
    batch: int
    height: int
    width: int

    def __post_init__(self) -> None:
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
        return self._laid_out(self.spec.in_channels, self.height, self.width)

    @property
    def y_shape(self) -> tuple[int, int, int, int]:
        """Shape of the output in the spec's layout."""
        return self._laid_out(self.spec.out_channels, self.out_height, self.out_width)

    def _laid_out(self, channels: int, height: int, width: int) -> tuple[int, int, int, int]:
        if self.spec.layout == "nchw":
            return self.batch, channels, height, width
        return self.batch, height, width, channels

    @property
    def macs(self) -> int:
        """Multiply-adds of the direct definition, padding counted."""
        outputs = self.batch * self.spec.out_channels * self.out_height * self.out_width
        return outputs * self.spec.products

    @property
    def compulsory_bytes(self) -> int:
        """Input, filter, bias and output, each moved once."""
        spec = self.spec
        filters = spec.out_channels * (spec.products + spec.bias)
        elements = self.batch * (spec.in_channels * self.height * self.width
                                 + spec.out_channels * self.out_height * self.out_width)
        return ELEMENT_BYTES[spec.dtype] * (elements + filters)

    def with_batch(self, batch: int) -> ConvProblem:
        """The same layer and image size for another batch."""
        return replace(self, batch=batch)

    def __str__(self) -> str:
        spec, (kh, kw) = self.spec, self.spec.kernel
        text = f"{spec.kind} {spec.in_channels}x{self.height}x{self.width}->{spec.out_channels}"
        if spec.kernel != (1, 1):
            text += f" {kh}x{kw}"
        if spec.stride != (1, 1):
            text += f" stride {spec.stride[0]}x{spec.stride[1]}"
        if spec.kind == "grouped":
            text += f" groups {spec.groups}"
        return text if self.batch == 1 else f"{text} batch {self.batch}"
