"""Gradients of a convolution's arrays: checked, planned, and run where the arrays lie."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dscore.calling import arguments, choice
from dscore.calling.arguments import PaddingLike, PairLike
from dscore.calling.arrays import Adapter, Array, ArrayT, GpuAdapter
from dscore.calling.call_cache import CALLS
from dscore.calling.convolve import Call, run, target
from dscore.core.backend import require_name
from dscore.core.errors import SpecError, require_int, require_one_of, shown
from dscore.core.numerics import ARITHMETICS, Arithmetic
from dscore.core.problem import ConvProblem
from dscore.core.sizes import pair_of
from dscore.core.spec import LAYOUTS, ConvSpec, Layout
from dscore.ops import operands_of

_AXES = 4


class GradientOptions(NamedTuple):
    """The options of a gradient; a call is remembered by these and its arrays."""

    operation: str
    size: Any  # of what the gradient is by: the image, or the kernel
    stride: Any
    padding: Any
    dilation: Any
    groups: int
    backend: str
    arithmetic: Arithmetic | None
    layout: Layout = "nchw"  # of the axes
    out_dtype: str | None = None  # of the result; None: the arrays'


def input_gradient(gradient: ArrayT, w: Array, size: PairLike, stride: PairLike = 1,
                   padding: PaddingLike = 0, dilation: PairLike = 1, groups: int = 1, *,
                   backend: str = "auto", plan: choice.PlanLike | None = None,
                   out: Array | None = None, arithmetic: Arithmetic | None = None,
                   layout: Layout | None = None) -> ArrayT:
    """Gradient of a loss by the input of ``conv(x, w)``, from that by its output.

    - *gradient*: by the output, of shape (N, M, H', W').
    - *w*: the filters, (M, C / groups, kernel height, kernel width).
    - *size*: height and width of the input, which strides leave open.

    The other options are those of `conv`, and so are the errors. Returns an array of shape
    (N, C, height, width), or (N, height, width, C) for images of the *layout* "nhwc". Two runs give
    the same bits.

    >>> y_gradient, w = np.ones((1, 1, 2, 2), np.float32), np.ones((1, 1, 2, 2), np.float32)
    >>> input_gradient(y_gradient, w, 3)[0, 0]
    array([[1., 2., 1.],
           [2., 4., 2.],
           [1., 2., 1.]], dtype=float32)
    """
    return _gradient_of(  # type: ignore[no-any-return]
        (gradient, w), out, ("input_gradient", size, stride, padding, dilation, groups, backend,
                             arithmetic, *[layout] * (layout is not None)), plan)


def weight_gradient(x: ArrayT, gradient: Array, kernel: PairLike, stride: PairLike = 1,
                    padding: PaddingLike = 0, dilation: PairLike = 1, groups: int = 1, *,
                    backend: str = "auto", plan: choice.PlanLike | None = None,
                    out: Array | None = None, arithmetic: Arithmetic | None = None,
                    layout: Layout | None = None, out_dtype: str | None = None) -> ArrayT:
    """Gradient of a loss by the filters of ``conv(x, w)``, from that by its output.

    - *x*: the input, of shape (N, C, H, W).
    - *gradient*: by the output, of shape (N, M, H', W').
    - *kernel*: height and width of the filters, which strides leave open.
    - *out_dtype*: "float32" returns the sums of float16 or bfloat16 arrays as they are, for filters
      that are kept in float32, as mixed precision keeps them.

    The other options are those of `conv`, and so are the errors. Returns an array of shape
    (M, C / groups, kernel height, kernel width). Two runs give the same bits: what several blocks
    sum is added in a fixed order. Sums are of float32, whatever the arrays' type, which they are
    rounded to at the end.

    >>> x, y_gradient = np.ones((5, 1, 3, 3), np.float32), np.ones((5, 1, 2, 2), np.float32)
    >>> weight_gradient(x, y_gradient, 2)[0, 0]
    array([[20., 20.],
           [20., 20.]], dtype=float32)
    """
    return _gradient_of(  # type: ignore[no-any-return]
        (x, gradient), out, ("weight_gradient", kernel, stride, padding, dilation, groups,
                             backend, arithmetic, *stated(layout, out_dtype)), plan)


def stated(layout: Layout | None, out_dtype: str | None) -> tuple[Any, ...]:
    """The options after the arithmetic, as many as a caller states."""
    if out_dtype is not None:
        return layout or "nchw", out_dtype
    return (layout,) * (layout is not None)


def _gradient_of(inputs: tuple[Any, Any], out: Any, options: tuple[Any, ...],
                plan: choice.PlanLike | None) -> Any:
    """The result of a gradient's operation on its two inputs."""
    y = None if plan is not None else CALLS.call(inputs, out, options)
    if y is not None:
        return y
    named = GradientOptions(*options)
    require_known(named)
    names = ("gradient", "w") if named.operation == "input_gradient" else ("x", "gradient")
    arrays = dict(zip((*names, "out"), (*inputs, out), strict=True))
    given = {name: array for name, array in arrays.items()
             if array is not None or name != "out"}
    adapter, dtype = arguments.library_with_result(given, named.out_dtype)
    problem = problem_of(inputs, dtype, named)
    *_, output = operands_of(problem)
    shape = output.shape
    gpu = arguments.common_gpu(adapter, given)
    images = inputs[:1] if named.operation == "input_gradient" else inputs
    problem = problem.laid_out(arguments.memory_layout(adapter, named.layout, images))
    if not inputs[0].shape[0]:
        return _of_none(adapter, gpu, shape, problem, arrays)
    return run(Call(problem, adapter, gpu, arrays, shape, options, named.backend,
                    named.arithmetic, plan, named.layout))


def require_known(options: GradientOptions) -> None:
    """Raise SpecError for an option that is none."""
    require_name(options.backend)
    require_int(options.groups, "groups")
    require_one_of(options.arithmetic, "arithmetic", (None, *ARITHMETICS))
    require_one_of(options.layout, "layout", LAYOUTS)


def problem_of(inputs: tuple[Any, Any], dtype: str, options: GradientOptions) -> ConvProblem:
    """The problem of two arrays: the output's gradient and the filters for the operation
    "input_gradient", else the input and the output's gradient.

    Raises SpecError where they do not fit a layer of the options.
    """
    first, second = (tuple(int(size) for size in array.shape) for array in inputs)
    by_input = options.operation == "input_gradient"
    for name, shape in zip(("gradient", "w") if by_input else ("x", "gradient"), (first, second),
                           strict=True):
        if len(shape) != _AXES:
            raise SpecError(f"{name} must have 4 axes, got shape {shape}")
    height, width = pair_of(options.size, "size" if by_input else "kernel")
    if by_input:
        gradient, (out_channels, group_in, *kernel), image = first, second, (height, width)
        channels = group_in * int(options.groups)  # NumPy's of 8 bits would overflow
    else:
        gradient, kernel = second, [height, width]
        _, (channels, *image_size) = arguments.parts_of(first, options.layout)
        _, (out_channels, *_) = arguments.parts_of(second, options.layout)
        image = image_size[0], image_size[1]
    spec = ConvSpec.make(channels, out_channels, tuple(kernel), stride=options.stride,
                         padding=options.padding, dilation=options.dilation,
                         groups=options.groups, dtype=dtype, layout=options.layout,
                         out_dtype=options.out_dtype)
    problem = ConvProblem(spec, max(first[0], 1), *image, options.operation)
    wanted = (first[0], *problem.y_shape[1:])
    if gradient != wanted:
        raise SpecError(f"gradient has shape {gradient}, and the output of this layer {wanted} "
                        f"({shown(str(problem))})")
    return problem


def _of_none(adapter: Adapter, gpu: tuple[GpuAdapter, int] | None, shape: tuple[int, ...],
             problem: ConvProblem, arrays: dict[str, Any]) -> Any:
    """The gradient of no images: no image's, or a filter's that is zero."""
    by_input = problem.operation == "input_gradient"
    shape = (0, *shape[1:]) if by_input else shape
    example, out = next(iter(arrays.values())), arrays["out"]
    if out is not None:
        arguments.require_shape(out, shape)
        (target(adapter, out, shape) if gpu is None else out)[...] = 0
        return out
    if gpu is None:
        return adapter.like(np.zeros(shape, problem.spec.out_element.numpy), example)
    result = gpu[0].allocator(shape, example, dtype=problem.spec.out_dtype)()
    result[...] = 0
    return result
