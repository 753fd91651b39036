"""A convolution of arrays: checked, planned, and run on the host or on the GPU they lie on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dscore.calling import arguments, choice, quantise
from dscore.calling.arguments import Options
from dscore.calling.arrays import Adapter, GpuAdapter, HostArray, overlaps_itself
from dscore.calling.call_cache import CALLS
from dscore.calling.kernels import compiled, prepared, solved_kernel
from dscore.calling.pack import PackedFilter
from dscore.core.backend import Kernel
from dscore.core.errors import SpecError
from dscore.core.numerics import Arithmetic, products_of
from dscore.core.problem import ConvProblem
from dscore.core.spec import Layout
from dscore.ops import Operand, operands_of

_NOTHING: Mapping[str, Any] = {}


class Call(NamedTuple):
    """The arrays of a call, checked, and what it wants of them."""

    problem: ConvProblem
    adapter: Adapter
    gpu: tuple[GpuAdapter, int] | None
    arrays: dict[str, Any]  # by their operands' names, None for what is missing; and out
    shape: tuple[int, ...]  # of the result
    options: tuple[Any, ...]  # by which it is remembered, with its arrays
    backend: str
    arithmetic: Arithmetic | None
    plan: choice.PlanLike | None = None
    axes: Layout = "nchw"  # of the arrays; the problem is in the layout of their memory

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The operands but the result."""
        return tuple(array for name, array in self.arrays.items() if name != "out")

    @property
    def plain(self) -> bool:
        """Whether it can be remembered: dscore decides its plan, and the options are constants."""
        return self.plan is None and all(map(arguments.constant, self.options))


def convolve(x: Any, w: Any, bias: Any, out: Any, options: tuple[Any, ...],
             plan: choice.PlanLike | None = None, further: Mapping[str, Any] = _NOTHING) -> Any:
    """The convolution of `dscore.conv` with *options*, for a call that is not a fast one.

    *further*: the operands after the bias that there are, by their names.
    """
    shaped = w  # of the filter's shape, in whatever form it is
    if isinstance(w, PackedFilter):
        options, w = tuple(Options(*options)._replace(filter=w.form)), w.array
    inputs = (x, w, bias, *further.values())
    y = None if plan is not None else CALLS.call(inputs, out, options)
    if y is not None:
        return y
    arrays = {"x": x, "w": w, "bias": bias, **further, "out": out}
    given = {name: array for name, array in arrays.items()
             if array is not None or name in ("x", "w")}
    named = Options(*options)
    named.require_known()
    if named.out_dtype is None:
        adapter, dtype = arguments.common_library(given)
    else:
        adapter = arguments.quantised_library(given, named.out_dtype, named.in_dtype)
        dtype = "int8"
    problem = arguments.problem_of(x, shaped, bias, dtype, named)
    shape = arguments.result_shape(x, problem)
    arguments.require_further(given, x, shape, named.layout)
    gpu = arguments.common_gpu(adapter, given)
    problem = problem.laid_out(arguments.memory_layout(
        adapter, named.layout, (x, further.get("residual"))))
    call = Call(problem, adapter, gpu, _of_operands(problem, arrays), shape, options,
                named.backend, products_of(named.arithmetic), plan, named.layout)
    if (gpu is None or plan is not None or 0 in shape
            or not quantise.is_step(problem, named.backend, gpu[1])):
        return run(call)
    integers = quantise.quantised_images(problem, *gpu, call.arrays, named.backend, named.layout)
    return convolve(integers, w, bias, out, tuple(named._replace(in_dtype=None)), None,
                    {name: one for name, one in further.items() if name != "ratios"})


def _of_operands(problem: ConvProblem, arrays: dict[str, Any]) -> dict[str, Any]:
    """Those of *arrays* that are operands of the problem, in their order."""
    return {operand.name: arrays.get(operand.name) for operand in operands_of(problem)}


def run(call: Call) -> Any:
    """The result of a call, on the GPU its arrays lie on or on the host."""
    if call.gpu is not None:
        return _on_gpu(*call.gpu, call)
    return _on_host(call, kernel_of(call))


def kernel_of(call: Call) -> Kernel:
    """The kernel of a call of host arrays."""
    kernel_for = solved_kernel if call.plan is None else partial(compiled, plan=call.plan)
    return kernel_for(call.problem, call.backend, call.arithmetic)


def _on_gpu(adapter: GpuAdapter, index: int, call: Call) -> Any:
    """The result for arrays on GPU *index*; without a plan of the caller's it is remembered."""
    out, shape = call.arrays["out"], call.shape
    ready = prepared(call.problem, adapter, index, call.inputs, call.backend, call.arithmetic,
                     call.plan, shape, call.axes)
    if 0 in shape:  # nothing is launched, which a remembered call does
        return ready.new() if out is None else ready.checked(out, *call.inputs)
    if call.plain:
        CALLS.remember(call.inputs, call.options, ready)
    return ready(*call.inputs, out)


def _on_host(call: Call, kernel: Kernel) -> Any:
    """The result of *kernel* on host arrays; they are copied where it cannot take them as is."""
    adapter, shape, out = call.adapter, call.shape, call.arrays["out"]
    written = None if out is None else target(adapter, out, shape)
    *operands, output = operands_of(kernel.plan.problem)  # which counts a single image as a batch
    # A batch of none has nothing to read.
    views = host_views(call, operands) if 0 not in shape else []
    into = None if written is None else _laid_out(output, written, call.axes)
    size = (shape[0], *output.shape[1:]) if _is_last(output, call.axes) else shape
    result = (into if into is not None and _direct(into, views)
              else np.full(size, output.element.poison, output.element.numpy))
    if views:
        kernel(*native(views, operands), result.reshape(output.shape))
    if into is None:
        return adapter.like(unlaid(output, result, call.axes), call.inputs[0])
    if result is not into:
        into[...] = result
    return out


def host_views(call: Call, operands: Sequence[Operand]) -> list[HostArray | None]:
    """Views of a call's inputs, laid out as its kernel's *operands*."""
    return [None if array is None else _laid_out(
        operand, call.adapter.view(array, operand.name), call.axes)
            for operand, array in zip(operands, call.inputs, strict=True)]


def native(views: Sequence[HostArray | None], operands: Sequence[Operand]
           ) -> list[HostArray | None]:
    """Views as arrays that a kernel takes, which are copied where they must be."""
    return [None if view is None else _native(view).reshape(operand.shape)
            for operand, view in zip(operands, views, strict=True)]


def _laid_out(operand: Operand, view: HostArray, axes: Layout) -> HostArray:
    return np.moveaxis(view, 1, -1) if _is_last(operand, axes) else view


def unlaid(operand: Operand, result: HostArray, axes: Layout) -> HostArray:
    """A kernel's result with the *axes* of the caller's arrays."""
    return np.moveaxis(result, -1, 1) if _is_last(operand, axes) else result


def _is_last(operand: Operand, axes: Layout) -> bool:
    """Whether an operand's channels lie last in memory, though its axes state them first."""
    return operand.layout == "nhwc" and axes == "nchw"


def target(adapter: Adapter, out: Any, shape: tuple[int, ...]) -> HostArray:
    """The view of *out* to write to.

    Raises SpecError where *out* is of another shape, is read-only, or overlaps itself.
    """
    arguments.require_shape(out, shape)
    view = adapter.view(out, "out", written=True)
    if not view.flags.writeable:
        raise SpecError("out is read-only; pass a writable array")
    if overlaps_itself(view):
        raise SpecError(f"out overlaps itself: of its {view.size} elements of shape {shape} some "
                        "lie in the same memory (it is expanded, or strided by hand); pass an "
                        "array of its own")
    return view


def _direct(written: HostArray, inputs: list[HostArray | None]) -> bool:
    """Whether a kernel may write to *written* itself."""
    return (written.flags.c_contiguous and written.dtype.isnative and not any(
        array is not None and np.may_share_memory(written, array) for array in inputs))


def _native(array: HostArray) -> HostArray:
    """A C-contiguous array of native byte order."""
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
