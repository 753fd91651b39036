"""Both gradients of a convolution's arrays: by one kernel that reads the output's once, or by two.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np

from dscore.algorithms.registry import running
from dscore.calling import arguments, choice
from dscore.calling.arguments import PaddingLike, PairLike
from dscore.calling.arrays import Array, ArrayT, GpuAdapter
from dscore.calling.call_cache import CALLS, MOST_CALLS, FastCall
from dscore.calling.convolve import Call, host_views, kernel_of, native, unlaid
from dscore.calling.gradients import (
    GradientOptions,
    input_gradient,
    problem_of,
    require_known,
    weight_gradient,
)
from dscore.calling.kernels import accepted_plan, prepared
from dscore.core.backend import GpuBackend, choose_backend
from dscore.core.errors import InfeasibleError, SpecError, UnavailableError
from dscore.core.numerics import Arithmetic
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.core.spec import Layout
from dscore.ops import operands_of, parts_of

_AXES = 4
Both = tuple[Any, Any]
# Of the bytes of GPU arrays and the options: what makes the input's gradient for the remembered
# call (`CALLS`), or "two" where a kernel for each is expected to be faster.
_known: dict[Any, Callable[[], Any] | Literal["two"]] = {}


def gradients(x: ArrayT, gradient: Array, w: Array, stride: PairLike = 1,
              padding: PaddingLike = 0, dilation: PairLike = 1, groups: int = 1, *,
              backend: str = "auto", plan: choice.PlanLike | None = None,
              arithmetic: Arithmetic | None = None, layout: Layout | None = None,
              out_dtype: str | None = None) -> tuple[ArrayT, ArrayT]:
    """Gradients of a loss by the input and by the filters of ``conv(x, w)``, from that by its
    output.

    - *x*: the input, of shape (N, C, H, W); *w*: the filters, (M, C / groups, kernel height,
      kernel width).
    - *gradient*: by the output, of shape (N, M, H', W').
    - *plan*: of the operation "gradients", which one kernel computes.
    - *out_dtype*: of the gradient by the filters, as in `weight_gradient`.

    The results are those of `input_gradient` and `weight_gradient`, in this order, and so are the
    other options and the errors. Of depthwise layers in NHWC one kernel makes both, where the cost
    model expects that to be faster: it reads the output's gradient once. Else there is one for
    each. What a border of x would multiply is left out of the filters' sums by the one kernel, and
    multiplied by 0 by the two, which differs for infinities alone.

    >>> x, y_gradient = np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 2, 2), np.float32)
    >>> of_x, of_w = gradients(x, y_gradient, np.ones((1, 1, 2, 2), np.float32))
    >>> of_x[0, 0, 1], of_w[0, 0]
    (array([2., 4., 2.], dtype=float32), array([[4., 4.],
           [4., 4.]], dtype=float32))
    """
    options = GradientOptions("gradients", None, stride, padding, dilation, groups, backend,
                              arithmetic, layout or "nchw", out_dtype)
    inputs = x, gradient, w
    return ((_remembered(inputs, options) if plan is None else None)
            or _general(inputs, options, plan))


def _key(inputs: tuple[Any, ...], options: GradientOptions) -> Any:
    return (*[array.nbytes for array in inputs], *options)


def _remembered(inputs: tuple[Any, ...], options: GradientOptions) -> Both | None:
    """The results by what is known of such arrays; None where nothing is."""
    try:
        allocate = _known.get(_key(inputs, options))
    except (AttributeError, RuntimeError, TypeError, ValueError):  # as in CallCache.call
        return None
    if allocate is None or allocate == "two":
        return None if allocate is None else by_two(inputs, options)
    of_x = allocate()
    of_w = CALLS.call((*inputs, of_x), None, options)
    return None if of_w is None else (of_x, of_w)


def unguarded(inputs: tuple[Any, ...], options: GradientOptions) -> FastCall | None:
    """The remembered call of (x, gradient, w) for such GPU arrays, without checks; None where one
    kernel has not yet made both gradients of them."""
    allocate = _known.get(_key(inputs, options))
    if allocate is None or allocate == "two":
        return None
    start = CALLS.unguarded((*inputs, allocate()), options)
    if start is None:
        return None

    def both(x: Any, gradient: Any, w: Any) -> Both | None:
        of_x = allocate()
        of_w = start(x, gradient, w, of_x, None)
        return None if of_w is None else (of_x, of_w)

    return both


def _general(inputs: tuple[Any, ...], options: GradientOptions,
             plan: choice.PlanLike | None) -> Both:
    """The results for a call that is not remembered."""
    require_known(options)
    arrays = dict(zip(("x", "gradient", "w"), inputs, strict=True))
    adapter, dtype = arguments.library_with_result(arrays, options.out_dtype)
    problem = _problem_of(inputs, dtype, options)
    gpu = arguments.common_gpu(adapter, arrays)
    problem = problem.laid_out(arguments.memory_layout(adapter, options.layout, inputs[:2]))
    call = Call(problem, adapter, gpu, arrays, problem.spec.w_shape, options, options.backend,
                options.arithmetic, plan, options.layout)
    joined = plan is not None or takes_both(problem, partial(_plan_of, call))
    if not joined or not inputs[0].shape[0]:
        _keep(call, "two")
        return by_two(inputs, options)
    return _on_host(call) if gpu is None else _on_gpu(*gpu, call)


def _problem_of(inputs: tuple[Any, ...], dtype: str, options: GradientOptions) -> ConvProblem:
    """The problem of three arrays; SpecError where they do not fit a layer of the options."""
    x, gradient, w = inputs
    if len(w.shape) != _AXES:
        raise SpecError("w must have 4 axes (out channels, channels / groups, kernel height, "
                        f"width), got shape {tuple(w.shape)}")
    problem = problem_of((x, gradient), dtype, options._replace(size=tuple(w.shape[2:])))
    if tuple(w.shape) != problem.spec.w_shape:
        raise SpecError(f"w has shape {tuple(w.shape)}, and the filters of this layer "
                        f"{problem.spec.w_shape}: (out channels, channels / groups, height, width)")
    return problem


def takes_both(problem: ConvProblem, plan_of: Callable[[ConvProblem], Plan]) -> bool:
    """Whether one kernel is expected to make both gradients faster than one for each.

    *problem* is of the operation "gradients"; *plan_of* gives the plans that calls take, and raises
    InfeasibleError or UnavailableError where there is none.
    """
    if not running(problem):
        return False
    try:
        return plan_of(problem).cost.seconds < sum(
            plan_of(part.problem).cost.seconds for part in parts_of(problem))
    except (InfeasibleError, UnavailableError):
        return False


def _plan_of(call: Call, problem: ConvProblem) -> Plan:
    """The plan that a call like *call* takes for *problem*."""
    name = "hip" if call.gpu and call.backend == "auto" else call.backend
    backend = choose_backend(name)
    on_gpu = call.gpu is not None and isinstance(backend, GpuBackend)
    device = backend.device_at(call.gpu[1]) if on_gpu else backend.device()  # type: ignore
    return accepted_plan(problem, device, backend, name, call.arithmetic, None)


def by_two(inputs: tuple[Any, ...], options: GradientOptions) -> Both:
    """The results by a kernel for each."""
    x, gradient, w = inputs
    *constants, arithmetic, layout, out_dtype = options[2:]
    _, (_, *size) = arguments.parts_of(x.shape, layout)
    return (input_gradient(gradient, w, tuple(size), *constants[:-1], backend=constants[-1],
                           arithmetic=arithmetic, layout=layout),
            weight_gradient(x, gradient, tuple(w.shape[2:]), *constants[:-1],
                            backend=constants[-1], arithmetic=arithmetic, layout=layout,
                            out_dtype=out_dtype))


def _keep(call: Call, allocate: Callable[[], Any] | Literal["two"]) -> None:
    """Know what is to be done with such arrays the next time."""
    if call.gpu is None or not call.plain:
        return
    if len(_known) >= MOST_CALLS:
        _known.clear()
    _known[_key(call.inputs, call.options)] = allocate  # type: ignore[arg-type]


def _on_gpu(adapter: GpuAdapter, index: int, call: Call) -> Both:
    """The results for arrays on GPU *index*, by one kernel."""
    x = call.inputs[0]
    last = call.problem.spec.layout == "nhwc" and call.axes == "nchw"
    allocate = adapter.allocator(tuple(x.shape), x, last)
    of_x = allocate()
    inputs = (*call.inputs, of_x)
    ready = prepared(call.problem, adapter, index, inputs, call.backend, call.arithmetic,
                     call.plan, call.shape, call.axes)
    if not ready.takes_directly((None, None, None, of_x)):  # a copy would be written to
        return by_two(call.inputs, call.options)  # type: ignore[arg-type]
    if call.plain:
        CALLS.remember(inputs, call.options, ready)
        _keep(call, allocate)
    return of_x, ready(*inputs, None)


def _on_host(call: Call) -> Both:
    """The results for arrays of the host, by one kernel."""
    kernel = kernel_of(call)
    *operands, of_x, of_w = operands_of(kernel.plan.problem)
    results = [np.full(one.shape, one.element.poison, one.element.numpy) for one in (of_x, of_w)]
    kernel(*native(host_views(call, operands), operands), *results)
    return tuple(call.adapter.like(unlaid(one, result, call.axes), call.inputs[0])
                 for one, result in zip((of_x, of_w), results, strict=True))
