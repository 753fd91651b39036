"""The arrays of one call together: their library, the problem that they make, their device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dscore.calling.arrays import Adapter, Dlpack, GpuAdapter, Numpy, dtype_name, library_of
from dscore.calling.gpu_arrays import Cupy, Torch
from dscore.core.backend import require_name
from dscore.core.errors import SpecError, UnavailableError, require_int, require_one_of
from dscore.core.numerics import (
    ARITHMETIC_OPTIONS,
    FLOATS,
    ArithmeticOption,
    FilterForm,
    layer_types,
    permission_of,
)
from dscore.core.once import once
from dscore.core.problem import ConvProblem
from dscore.core.spec import LAYOUTS, Activation, ConvSpec, Layout, Residual

PairLike = int | Sequence[int]
PaddingLike = int | str | Sequence[int | Sequence[int]]
_GPU_LIBRARIES: dict[str, Callable[[], Adapter]] = {"torch": Torch, "cupy": Cupy}
# Axes of an image, and of a batch of these.
_IMAGE, _BATCH = 3, 4


class Options(NamedTuple):
    """The options of `dscore.conv`; a call is remembered by these and its arrays."""

    stride: Any
    padding: Any
    dilation: Any
    groups: int
    activation: Activation | None
    backend: str
    arithmetic: ArithmeticOption | None
    residual: Residual | None = None
    scaled: bool = False
    layout: Layout = "nchw"  # of the axes
    filter: FilterForm = "plain"
    out_dtype: str | None = None  # of the result of int8 arrays
    table: bool = False  # that an int8 result is looked up in
    in_dtype: str | None = None  # of x, where a layer of int8 quantises it

    def require_known(self) -> None:
        """Raise SpecError for what no layer states, and values of another type."""
        require_name(self.backend)
        require_int(self.groups, "groups")
        require_one_of(self.arithmetic, "arithmetic", (None, *ARITHMETIC_OPTIONS))
        require_one_of(self.layout, "layout", LAYOUTS)


def constant(option: Any) -> bool:
    """Whether a call can be remembered by *option*, which stays as it is: it is no tensor of one
    element, say, which counts as an int, too."""
    if isinstance(option, tuple):
        return all(map(constant, option))
    return option is None or isinstance(option, int | str | np.integer)


@once
def adapter_of(library: str) -> Adapter:
    """The adapter of a library; any that has none of its own is known by DLPack alone."""
    if library == "numpy":
        return Numpy()
    return _GPU_LIBRARIES[library]() if library in _GPU_LIBRARIES else Dlpack(library)


def common_library(arrays: dict[str, Any]) -> tuple[Adapter, Any]:
    """The adapter and the element type that all of *arrays* share.

    Raises SpecError for what is no array, for two libraries or types, and an unknown type.
    """
    adapter = _plain_library(arrays)
    cast = ".float()" if adapter.library == "torch" else '.astype("float32")'
    name, first = next(iter(arrays.items()))
    if dtype_name(first) == "int8":
        raise SpecError(f"{name} is int8, whose integers stand for numbers by their scales: "
                        "pass dscore.conv quantization=dscore.Quantization(x_scale, w_scale, "
                        f"y_scale), or {name}{cast} and so the others")
    dtype = _common("dtype", arrays, lambda array, name: dtype_name(array))
    if dtype not in layer_types():
        raise SpecError(f"dtype must be one of {', '.join(layer_types())}; {name} is {dtype}: pass "
                        f"{name}{cast}, and so the others")
    return adapter, dtype


def library_with_result(arrays: dict[str, Any], out_dtype: str | None) -> tuple[Adapter, Any]:
    """The adapter and the element type that all of *arrays* share, but for "out", which is of the
    type *out_dtype*; None for theirs. Raises SpecError as `common_library` does."""
    if out_dtype is None:
        return common_library(arrays)
    _plain_library(arrays)
    given = dtype_name(arrays["out"]) if "out" in arrays else out_dtype
    if given != out_dtype:
        raise SpecError(f"with out_dtype={out_dtype!r} out must be {out_dtype}, got {given}")
    return common_library({name: one for name, one in arrays.items() if name != "out"})


def quantised_library(arrays: dict[str, Any], out_dtype: str, in_dtype: str | None) -> Adapter:
    """The adapter that all of *arrays*, of a convolution of int8 whose x is of *in_dtype*, share.

    Raises SpecError for two libraries, and an array of another type than its operand's.
    """
    adapter = _plain_library(arrays)
    wanted = {"x": in_dtype or "int8", "w": "int8", "bias": "int32", "residual": "int8",
              "scale": "float16", "out": out_dtype}
    for name, element in wanted.items():
        given = dtype_name(arrays[name]) if name in arrays else element
        if given != element:
            reason = {"x": f", or {', '.join(FLOATS)}, which the layer quantises",
                      "bias": ", of the scale x_scale * w_scale", "out": ", as the result is",
                      "scale": ", by image and channel, as kernels read it"}.get(
                name, "; without quantization=, float arrays are convolved")
            raise SpecError(f"with quantization= {name} must be {element}, got {given}{reason}")
    return adapter


def _plain_library(arrays: dict[str, Any]) -> Adapter:
    """The adapter of the one library of *arrays*, which have plain memory."""
    adapter = adapter_of(_common("library", arrays, library_of))
    for name, array in arrays.items():
        adapter.require_plain(array, name)
    return adapter


def _common(what: str, arrays: dict[str, Any], property_of: Callable[[Any, str], str]) -> str:
    """The property that all of *arrays* share; SpecError where they differ."""
    properties = {name: property_of(array, name) for name, array in arrays.items()}
    if len(set(properties.values())) > 1:
        listed = ", ".join(f"{name} {value}" for name, value in properties.items())
        raise SpecError(f"all arrays must be of one {what}, got {listed}")
    return next(iter(properties.values()))


def problem_of(x: Any, w: Any, bias: Any, dtype: Any, options: Options) -> ConvProblem:
    """The problem that arrays and options make, in the layout of the arrays' axes; a batch of none
    and a single image count as one.

    Raises SpecError for shapes and options that make no convolution.
    """
    _require_shapes(x, w, bias, options)
    batch, (channels, height, width) = parts_of(x.shape, options.layout)
    spec = ConvSpec.make(channels, int(w.shape[0]), tuple(int(size) for size in w.shape[2:]),
                         stride=options.stride, padding=options.padding,
                         dilation=options.dilation, groups=options.groups, dtype=dtype,
                         bias=bias is not None, out_dtype=options.out_dtype,
                         # Of an int8 result it is among the points.
                         activation=None if options.out_dtype == "int8" else options.activation,
                         residual=options.residual, scaled=options.scaled,
                         arithmetic=permission_of(options.arithmetic), filter=options.filter,
                         layout=options.layout, table=options.table, in_dtype=options.in_dtype)
    return ConvProblem(spec, max((*batch, 1)), height, width)


def parts_of(shape: Sequence[Any], layout: Layout
             ) -> tuple[tuple[int, ...], tuple[int, int, int]]:
    """The sizes of images' axes: of the batch, and an image's channels, height and width.

    >>> parts_of((8, 5, 6, 32), "nhwc")
    ((8,), (32, 5, 6))
    """
    *batch, first, second, third = (int(size) for size in shape)
    image = (third, first, second) if layout == "nhwc" else (first, second, third)
    return tuple(batch), image


def memory_layout(adapter: Adapter, layout: Layout, images: Iterable[Any]) -> Layout:
    """The layout that kernels run in, for *images* whose axes are of a *layout*.

    PyTorch's channels_last tensors are taken as they lie. The first of *images* that does not lie
    in both ways decides; where all do, it is NCHW.
    """
    if layout == "nhwc":
        return "nhwc"
    stated = (adapter.memory(image) for image in images if image is not None)
    return next((one for one in stated if one), "nchw")


def side_of(after: Any) -> Residual:
    """The side of the activation that a residual is added to; SpecError for what is no bool."""
    if after is not False and after is not True:
        require_one_of(after, "residual_after", (True, False))
    return "after" if after else "before"


def require_further(arrays: dict[str, Any], x: Any, shape: tuple[int, ...],
                    layout: Layout = "nchw") -> None:
    """Raise SpecError where a residual or a scale among *arrays* is not of its shape."""
    residual, scale = arrays.get("residual"), arrays.get("scale")
    batch, (channels, *_) = parts_of(x.shape, layout)
    factors = (*batch, channels)
    single = (*factors, 1, 1) if layout == "nchw" else (*batch, 1, 1, channels)
    if residual is not None and tuple(residual.shape) != shape:
        raise SpecError(f"residual must have the result's shape {shape}, got "
                        f"{tuple(residual.shape)}")
    if scale is not None and tuple(scale.shape) not in (factors, single):
        raise SpecError(f"scale must have shape {factors}, a factor for each image and channel of "
                        f"x, or {single}; got {tuple(scale.shape)}")


def result_shape(x: Any, problem: ConvProblem) -> tuple[int, ...]:
    """The shape of the result: of one image where *x* is one, else of as many as *x* has."""
    _, *image = problem.y_shape
    return tuple(image) if len(x.shape) == _IMAGE else (int(x.shape[0]), *image)


def _require_shapes(x: Any, w: Any, bias: Any, options: Options) -> None:
    if len(x.shape) not in (_IMAGE, _BATCH):
        axes = "C, H, W" if options.layout == "nchw" else "H, W, C"
        raise SpecError(f"x must have 4 axes (N, {axes}), or 3 ({axes}) for one image, got shape "
                        f"{tuple(x.shape)}")
    if len(w.shape) != _BATCH:
        raise SpecError("w must have 4 axes (out channels, C / groups, kernel height, width), got "
                        f"shape {tuple(w.shape)}")
    (_, (channels, *_)), groups = parts_of(x.shape, options.layout), int(options.groups)
    if channels != w.shape[1] * groups:
        raise SpecError(f"x has {channels} channels, but w of shape {tuple(w.shape)} with "
                        f"groups={groups} takes {w.shape[1]} * {groups} = {w.shape[1] * groups}"
                        + _channels_fix(tuple(x.shape), tuple(w.shape), groups, options.layout))
    if bias is not None and tuple(bias.shape) != (w.shape[0],):
        raise SpecError(f"bias must have shape ({w.shape[0]},), one per output channel, "
                        f"got {tuple(bias.shape)}")


def _channels_fix(x: tuple[int, ...], w: tuple[int, ...], groups: int, layout: Layout) -> str:
    """What the caller of shapes whose channels differ may have meant; empty where that is open."""
    other: Layout = "nchw" if layout == "nhwc" else "nhwc"
    (_, (channels, *_)), (_, (others, *_)), taken = parts_of(x, layout), parts_of(x, other), w[1]
    if others == taken * groups:
        where = "last axis of x" if other == "nhwc" else "first axis of an image of x"
        return (f"; the {where} has {others}: if these are its channels, pass "
                f'layout="{other}"')
    meant = channels // max(taken, 1)
    fits = meant and taken * meant == channels and w[0] % meant == 0
    return f"; groups={meant} takes {channels}" if fits else ""


def common_gpu(adapter: Adapter, arrays: dict[str, Any]) -> tuple[GpuAdapter, int] | None:
    """The GPU that all of *arrays* lie on, after the adapter; None for arrays of the host.

    Raises SpecError where they lie apart, UnavailableError for GPU arrays of a library that
    kernels cannot take them from.
    """
    indices = {name: adapter.index(array) for name, array in arrays.items()}
    index = next((index for index in indices.values() if index is not None), None)
    if index is None:
        return None
    if not isinstance(adapter, GpuAdapter):
        raise UnavailableError(f"{adapter.library} arrays on a GPU are not supported; there are "
                               f"{', '.join(_GPU_LIBRARIES)}: pass torch.from_dlpack(x)")
    if len(set(indices.values())) > 1:
        listed = ", ".join(f"{name} on {'the host' if at is None else f'GPU {at}'}"
                           for name, at in indices.items())
        raise SpecError(f"all arrays must lie on one device, got {listed}")
    return adapter, index


def require_shape(out: Any, shape: tuple[int, ...]) -> None:
    """Raise SpecError where *out* is not of the result's shape."""
    if tuple(out.shape) != shape:
        raise SpecError(f"out has shape {tuple(out.shape)}, the result has {shape}")


def require_gpu_out(adapter: GpuAdapter, out: Any, shape: tuple[int, ...],
                    inputs: tuple[Any, ...], last: bool = False,
                    dtype: str | None = None) -> None:
    """Raise SpecError where a kernel cannot write its result to *out* straight away.

    *inputs*: x and the others, None for those that are missing. *last*: with the channels last.
    *dtype*: that of the result, where it is not x's.
    """
    x = inputs[0]
    if type(out) is not type(x) or dtype_name(out) != (dtype or dtype_name(x)):
        raise SpecError(f"out must be a {type(x).__name__} of "
                        + (dtype or f"{x.dtype}, as x is"))
    require_shape(out, shape)
    if adapter.index(out) != adapter.index(x):
        common_gpu(adapter, {"x": x, "out": out})
    if adapter.contiguous(out, last) is not out:
        raise SpecError("out on a GPU must be channels_last, as x is" if last else
                        "out on a GPU must be C-contiguous; pass a contiguous array")
    first, end = _extent(adapter, out)
    for array in inputs:
        other, other_end = (0, 0) if array is None else _extent(adapter, array)
        if first < other_end and other < end:
            raise SpecError("out on a GPU must not overlap an input, which other lanes still "
                            "read; pass another array")


def _extent(adapter: GpuAdapter, array: Any) -> tuple[int, int]:
    """The bytes that an array may touch; more than its elements where it is strided."""
    address = adapter.address(array)
    return address, address + int(array.nbytes)
