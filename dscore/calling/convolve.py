"""A convolution of arrays: checked, planned, and run on the host or on the GPU they lie on."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np

from dscore.calling import arguments, choice
from dscore.calling.arguments import Options
from dscore.calling.arrays import Adapter, GpuAdapter, HostArray, overlaps_itself
from dscore.calling.call_cache import CALLS, PreparedCall
from dscore.calling.gpu_arrays import capturing
from dscore.core.backend import (
    Backend,
    GpuBackend,
    Kernel,
    Launchable,
    choose_backend,
    require_accepted,
)
from dscore.core.device import Device
from dscore.core.errors import SpecError, UnavailableError
from dscore.core.numerics import Arithmetic
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem

_K = TypeVar("_K", bound=Kernel | Launchable)


def convolve(x: Any, w: Any, bias: Any, out: Any, options: tuple[Any, ...],
             plan: choice.PlanLike | None = None) -> Any:
    """The convolution of `dscore.conv` with *options*, for a call that is not a fast one."""
    y = None if plan is not None else CALLS.call(x, w, bias, out, options)
    if y is not None:
        return y
    arrays = {"x": x, "w": w, "bias": bias, "out": out}
    for name in ("bias", "out"):
        if arrays[name] is None:
            del arrays[name]
    named = Options(*options)
    named.require_known()
    adapter, dtype = arguments.common_library(arrays)
    problem = arguments.problem_of(x, w, bias, dtype, named)
    shape = arguments.result_shape(x, problem)
    gpu = arguments.common_gpu(adapter, arrays)
    if gpu is not None:
        return _on_gpu(*gpu, problem, arrays, shape, named, plan)
    kernel_for = solved_kernel if plan is None else partial(_compiled, plan=plan)
    kernel = kernel_for(problem, named.backend, named.arithmetic)
    return _on_host(adapter, kernel, arrays, shape, dtype)


def _on_gpu(adapter: GpuAdapter, index: int, problem: ConvProblem, arrays: dict[str, Any],
            shape: tuple[int, ...], options: Options, plan: choice.PlanLike | None) -> Any:
    """The result for arrays on GPU *index*; without a *plan* the call is remembered."""
    x, w, bias, out = map(arrays.get, ("x", "w", "bias", "out"))
    inputs = (x, w) if bias is None else (x, w, bias)
    call = prepared(problem, adapter, index, inputs, options.backend, options.arithmetic, plan)
    if 0 in shape:  # nothing is launched, which a remembered call does
        if out is None:
            return adapter.allocator(shape, x)()
        arguments.require_gpu_out(adapter, out, shape, (x, w, bias))
        return out
    if plan is None and options.plain():
        CALLS.remember(inputs, options, call)
    return call(x, w, bias, out)


def prepared(problem: ConvProblem, adapter: GpuAdapter, index: int, inputs: tuple[Any, ...],
             name: str = "auto", arithmetic: Arithmetic | None = None,
             plan: choice.PlanLike | None = None) -> PreparedCall:
    """The prepared call of a problem by the backend *name*, for arrays like *inputs* on a GPU.

    *inputs* are x, w, and the bias if there is one; they are not checked against the problem. The
    call takes x, w, bias and out, of which the last two may be None.
    """
    name = "hip" if name == "auto" else name
    backend = choose_backend(name)
    if not isinstance(backend, GpuBackend):
        raise UnavailableError(f"x lies on GPU {index}, and backend {backend.name} runs host "
                               "arrays; copy it to the host, or take backend hip")
    accepted = _accepted_plan(problem, backend.device_at(index), backend, name, arithmetic, plan)
    kernel = _kernel(backend, accepted, partial(backend.kernel_on, index=index), arithmetic,
                     plan is not None)
    return PreparedCall(adapter, index, inputs, arguments.result_shape(inputs[0], problem), kernel)


def _on_host(adapter: Adapter, kernel: Kernel, arrays: dict[str, Any], shape: tuple[int, ...],
             dtype: str) -> Any:
    """The result of *kernel* on host arrays; they are copied where it cannot take them as is."""
    target = _target(adapter, arrays["out"], shape) if "out" in arrays else None
    # A batch of none has nothing to read.
    inputs = [adapter.view(array, name) for name, array in arrays.items()
              if name != "out"] if 0 not in shape else []
    result = (target if target is not None and _direct(target, inputs)
              else np.full(shape, np.nan, dtype))
    if inputs:
        x, w, *bias = map(_native, inputs)
        problem = kernel.plan.problem  # which counts a single image as a batch
        kernel(x.reshape(problem.x_shape), w, bias[0] if bias else None,
               result.reshape(problem.y_shape))
    if target is None:
        return adapter.like(result, arrays["x"])
    if result is not target:
        target[...] = result
    return arrays["out"]


def _target(adapter: Adapter, out: Any, shape: tuple[int, ...]) -> HostArray:
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


def _direct(target: HostArray, inputs: list[HostArray]) -> bool:
    """Whether a kernel may write to *target* itself."""
    return (target.flags.c_contiguous and target.dtype.isnative
            and not any(np.may_share_memory(target, array) for array in inputs))


def _native(array: HostArray) -> HostArray:
    """A C-contiguous array of native byte order."""
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


def _compiled(problem: ConvProblem, name: str, arithmetic: Arithmetic | None = None,
              plan: choice.PlanLike | None = None) -> Kernel:
    """The kernel of the backend *name* for host arrays."""
    backend = choose_backend(name)
    name = backend.name if name == "auto" else name
    accepted = _accepted_plan(problem, backend.device(), backend, name, arithmetic, plan)
    return _kernel(backend, accepted, backend.compile, arithmetic, plan is not None)


def _kernel(backend: Backend, plan: Plan, kernel_of: Callable[[Plan], _K],
            arithmetic: Arithmetic | None, demanded: bool) -> _K:
    """The kernel of *plan*; unless that was *demanded*, of a later one where it spills."""
    with _explained_waits(backend):
        if not demanded:
            return choice.unspilled(plan, kernel_of, _spills, backend, arithmetic)[1]
        kernel = kernel_of(plan)
    if _spills(kernel):
        warnings.warn(f"{choice.PassedOver(plan, _spills(kernel))}: it runs, because this plan was "
                      "asked for; without one, conv takes the next that does not spill",
                      RuntimeWarning, stacklevel=2)
    return kernel


def _spills(kernel: Kernel | Launchable) -> int:
    return kernel.use.spills


def _explained_waits(backend: Backend) -> AbstractContextManager[None]:
    """Context in which a long build tells what the call waits for; not while a graph is captured.
    """
    if not backend.compiles or capturing():
        return nullcontext()
    from dscore.building.kernels import explained_waits  # only for a backend that builds

    return explained_waits()


# Kept for plans that dscore decides; the kernel of a caller's own plan is made at each call.
solved_kernel = lru_cache(maxsize=1024)(_compiled)


def _accepted_plan(problem: ConvProblem, device: Device, backend: Backend, name: str,
                   arithmetic: Arithmetic | None, plan: choice.PlanLike | None) -> Plan:
    """The caller's *plan*, else the one that *problem* gets; the backend must accept it."""
    accepted = (choice.default_plan(problem, device, backend, name, arithmetic) if plan is None
                else choice.callers_plan(problem, device, plan, arithmetic))
    require_accepted(backend, accepted)
    return accepted
