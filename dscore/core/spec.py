"""A convolution layer without the size of its input (ConvSpec), and its short forms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from dscore.core.errors import SpecError, require_int, require_one_of
from dscore.core.numerics import (
    ACCUMULATOR,
    ELEMENTS,
    FILTER_FORMS,
    FLOAT_RESULTS,
    FLOATS,
    MOST_INTEGER_PRODUCTS,
    PERMISSIONS,
    Element,
    FilterForm,
    Permission,
    layer_types,
)
from dscore.core.sizes import Pair, Sides, pair_of, sides_of
from dscore.core.winograd import filter_shape, has_tiles, tile_of

Layout = Literal["nchw", "nhwc"]
Activation = Literal["relu", "relu6", "silu", "hardswish", "sigmoid", "hardsigmoid"]
Kind = Literal["pointwise", "depthwise", "grouped", "dense"]
Residual = Literal["before", "after"]  # the activation, to whose side it is added

# Activations that a bound on either side computes.
CLAMPS: tuple[Activation, ...] = ("relu", "relu6")
LAYOUTS: tuple[str, ...] = get_args(Layout)
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
# Those by which results of floats take long, by exponentials or a handful of instructions more:
# tiles of more wavefronts hide that.
COSTLY_ACTIVATIONS: tuple[Activation, ...] = ("silu", "sigmoid", "hardswish", "hardsigmoid")
# Those that an int8 result is looked up in a table for.
TABLED: tuple[str, ...] = tuple(name for name in ACTIVATIONS if name not in CLAMPS)
RESIDUALS: tuple[str, ...] = get_args(Residual)

# Kernels count rows and columns as 32-bit signed integers.
MAX_STRIDE = 2**15


@dataclass(frozen=True)
class ConvSpec:
    """One convolution layer, without the size of its input.

    ``y = activation(conv(x, w) + bias)`` in the cross-correlation sense of deep learning, with
    ``x`` of shape (N, in_channels, H, W) and ``w`` of shape
    (out_channels, in_channels / groups, kernel height, kernel width).
    *residual*: an array of the output's shape is added before the activation, or after it.
    *scaled*: x is multiplied by an array of shape (N, in_channels) beforehand; of pointwise layers.
    *arithmetic*: "winograd" permits Winograd's algorithm; of a layer that it has no tiles for
    (all but 3x3 without stride, dilation and groups) that is "sum" all the same.
    *filter*: the form of w; "winograd4", as `dscore.pack` makes it, permits that arithmetic.
    *dtype*: "int8" is of a quantised layer (docs/int8.md); *out_dtype* is then the result's type,
    float32 or float16, where it is not int8, too; of other layers it is *dtype* itself, or of the
    weight gradient of one of 16 bits float32.
    *in_dtype*: of int8 layers the type of x where that is of floats, which the layer quantises.
    *table*: an int8 result is looked up in a table, which computes any activation.
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
    dtype: str = "float32"  # of dscore.core.numerics.ELEMENTS
    layout: Layout = "nchw"
    bias: bool = False
    activation: Activation | None = None
    residual: Residual | None = None
    scaled: bool = False
    arithmetic: Permission = "sum"
    filter: FilterForm = "plain"
    out_dtype: str | None = None  # None: dtype
    table: bool = False
    in_dtype: str | None = None  # None: dtype

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
        require_one_of(self.dtype, "dtype", layer_types())
        require_one_of(self.layout, "layout", LAYOUTS)
        require_one_of(self.bias, "bias", (True, False))
        require_one_of(self.activation, "activation", (None, *ACTIVATIONS))
        require_one_of(self.residual, "residual", (None, *RESIDUALS))
        require_one_of(self.scaled, "scaled", (True, False))
        require_one_of(self.arithmetic, "arithmetic", PERMISSIONS)
        require_one_of(self.filter, "filter", FILTER_FORMS)
        require_one_of(self.table, "table", (True, False))
        self._settle_arithmetic()
        if self.residual and not self.activation:  # both sides of no activation are one
            object.__setattr__(self, "residual", "before")
        for name in ("in_channels", "out_channels"):
            channels = getattr(self, name)
            if channels % self.groups:
                raise SpecError(f"{name} must be a multiple of groups: {channels} % "
                                f"{self.groups} = {channels % self.groups}")
        if self.scaled and self.kind != "pointwise":
            raise SpecError("a scale of the input is for pointwise layers (kernel 1x1, groups 1), "
                            f"and this one is {self.kind}; multiply x beforehand")
        self._settle_result()
        self._settle_input()
        if self.element.exact:
            self._require_integers()
        elif self.table:
            raise SpecError(f"a table is for int8 results, and this layer is of {self.dtype}; "
                            "leave it out, and take an activation")

    def _settle_result(self) -> None:
        """Leave the type of the result out where it is the input's; SpecError where it must be."""
        if self.out_dtype == self.dtype:
            object.__setattr__(self, "out_dtype", None)
        if self.out_dtype is None:
            return
        if self.element.exact:
            require_one_of(self.out_dtype, "out_dtype", ("int8", *FLOAT_RESULTS))
        elif self.out_dtype != ACCUMULATOR.name or self.element.bytes > ACCUMULATOR.bytes:
            raise SpecError(f"out_dtype is {self.out_dtype} for a layer of {self.dtype}, whose "
                            f"result is {self.dtype}; leave it out (int8 layers have others, and "
                            "weight gradients of 16 bits float32)")

    def _settle_input(self) -> None:
        """Leave the type of x out where it is the layer's; SpecError where it must be."""
        if self.in_dtype == self.dtype:
            object.__setattr__(self, "in_dtype", None)
        if self.in_dtype is None:
            return
        if not self.element.exact:
            raise SpecError(f"in_dtype is {self.in_dtype} for a layer of {self.dtype}, whose x is "
                            f"{self.dtype}; leave it out (layers of int8 may take floats)")
        require_one_of(self.in_dtype, "in_dtype", ("int8", *FLOATS))
        beside = ["a residual"] * (self.residual is not None) + ["a scale of x"] * self.scaled
        if beside:
            raise SpecError(f"a layer of int8 that quantises its x, of {self.in_dtype}, takes no "
                            f"residual and no scale, and this one has {' and '.join(beside)}; "
                            "quantise x beforehand")

    def _require_integers(self) -> None:
        """Raise SpecError for what a layer of int8 has no arithmetic for (docs/int8.md)."""
        if self.out_dtype is None and self.activation in CLAMPS:
            raise SpecError(f"{self.activation} of an int8 result is a bound of its points, which "
                            "the kernel clamps to: leave the activation out of the layer, and pass "
                            "it to dscore.conv with quantization=")
        # Of a float result the operation says which ones it computes.
        taken = ACTIVATIONS if self.out_dtype else ()
        parts = {f"the activation {self.activation}": self.activation not in (None, *taken),
                 "a residual of a float result": self.residual and self.out_dtype,
                 "a table of a float result": self.table and self.out_dtype,
                 "Winograd's algorithm": self.arithmetic != "sum"}
        extra = [name for name, there in parts.items() if there]
        if extra:
            raise SpecError("a layer of int8 takes a bias and a scale, with an int8 result a "
                            "residual and a table, with a float one relu and relu6, and this one "
                            f"has {', '.join(extra)}; leave that out, or take float32 or float16")
        if self.products > MOST_INTEGER_PRODUCTS:
            largest = self.products * 255 * 128
            raise SpecError(f"an output sums {self.products:,} products of int8, which may come to "
                            f"{largest:,}, more than an int32 holds (limit "
                            f"{MOST_INTEGER_PRODUCTS:,} products); split the channels, or take "
                            "float32 or float16")

    def _settle_arithmetic(self) -> None:
        """Let a transformed filter permit what it is for; raise SpecError where it is for others.
        """
        tiles = has_tiles(self.kernel, self.stride, self.dilation, self.groups)
        transformed = self.filter
        if tile_of(transformed) and not tiles:
            raise SpecError(f"a filter of the form {transformed} is for 3x3 layers without "
                            "stride, dilation and groups; pass the plain filter")
        if tile_of(transformed) or not tiles:
            object.__setattr__(self, "arithmetic", "winograd" if tiles else "sum")

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

    def in_form(self, **form: Any) -> ConvSpec:
        """The layer of other types and another layout; of an int8 result, relu is a bound of its
        points.
        """
        clamped = form.get("dtype") == "int8" and not form.get("out_dtype")
        if clamped and self.activation in CLAMPS:
            form["activation"] = None
        if form.get("dtype", self.dtype) != self.dtype:  # of which x is, too
            form = {"in_dtype": None, **form}
        return replace(self, **form)

    @property
    def kind(self) -> Kind:
        """Family of layers that it belongs to."""
        if self.kernel == (1, 1) and self.groups == 1:
            return "pointwise"
        if self.groups == self.in_channels:
            return "depthwise"
        return "dense" if self.groups == 1 else "grouped"

    @property
    def element(self) -> Element:
        """The element type of its tensors."""
        return ELEMENTS[self.dtype]

    @property
    def in_element(self) -> Element:
        """The element type of its x."""
        return ELEMENTS[self.in_dtype or self.dtype]

    @property
    def out_element(self) -> Element:
        """The element type of its result."""
        return ELEMENTS[self.out_dtype or self.dtype]

    @property
    def widened(self) -> bool:
        """Whether results of floats are of a wider type, as weight gradients of 16 bits may be."""
        return self.out_dtype is not None and not self.element.exact

    def with_own_result(self) -> ConvSpec:
        """The layer with results of its own type in place of wider ones, which change no tiling."""
        return replace(self, out_dtype=None) if self.widened else self

    @property
    def costly_results(self) -> bool:
        """Whether a result takes long after its sum: by its activation, or a look into a table."""
        return self.table or self.activation in COSTLY_ACTIVATIONS

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
        """Shape of the filter, in its form."""
        if tile_of(self.filter):
            return filter_shape(tile_of(self.filter), self.out_channels, self.group_in)
        return self.out_channels, self.group_in, *self.kernel
