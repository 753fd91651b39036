"""Means over the pixels of images that lie on a GPU, by one kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.calling.arguments import adapter_of, common_gpu, memory_layout
from dscore.calling.arrays import dtype_name, library_of
from dscore.calling.call_cache import MOST_CALLS, PreparedCall
from dscore.calling.kernels import prepared
from dscore.calling.quantization import Quantization
from dscore.core.problem import ConvProblem
from dscore.core.spec import ConvSpec, Layout

_PREPARED: dict[Any, PreparedCall] = {}


def mean_problem(shape: tuple[int, ...], dtype: str, layout: Layout,
                 out_dtype: str | None = None) -> ConvProblem:
    """The problem of a mean over the pixels of images (N, C, H, W) of a memory's *layout*.

    *out_dtype*: the type of the result, "float32" or "float16", of int8 images.

    >>> mean_problem((2, 8, 5, 5), "float32", "nchw").operation
    'mean'
    """
    images, channels, height, width = shape
    spec = ConvSpec.make(channels, channels, 1, dtype=dtype, layout=layout, out_dtype=out_dtype)
    return ConvProblem(spec, images, height, width, "mean")


def integer_operands(x: Any, scale: float, zero_point: int) -> tuple[Any, Any]:
    """The operands beside int8 images *x* (N, C, H, W), an integer q of which stands for
    ``scale * (q - zero_point)``: the multiplier of their sums and the zero point, where x lies.

    Raises SpecError for a scale and a zero point that no `dscore.Quantization` takes.

    >>> integer_operands(np.zeros((1, 1, 2, 2), np.int8), 0.5, 3)
    (array([0.125], dtype=float32), array([3], dtype=int32))
    """
    height, width = x.shape[-2:]
    of = Quantization(scale, 1.0 / (height * width), x_zero_point=zero_point)
    adapter = adapter_of(library_of(x, "x"))
    return adapter.placed(of.multiplier, x), adapter.placed(
        np.array([of.x_zero_point], np.int32), x)


def mean_call(x: Any, keep: bool, backend: str = "auto", further: tuple[Any, ...] = (),
              out_dtype: str | None = None) -> PreparedCall | None:
    """The call that makes the means of images like *x*, (N, C, H, W): of shape (N, C), or with
    *keep* (N, C, 1, 1). It takes x, and out or None. None for arrays of the host.

    Of int8 images *further* are their `integer_operands`, which the call takes after x, and
    *out_dtype* is the type of the means, "float32" or "float16".
    """
    adapter = adapter_of(library_of(x, "x"))
    gpu = common_gpu(adapter, {"x": x})
    if gpu is None:
        return None
    shape, layout = tuple(x.shape), memory_layout(adapter, "nchw", (x,))
    key = adapter.library, gpu[1], shape, dtype_name(x), layout, keep, backend, out_dtype
    call = _PREPARED.get(key)
    if call is None:
        if len(_PREPARED) >= MOST_CALLS:
            forget()
        problem = mean_problem(shape, dtype_name(x), layout, out_dtype)
        result = (*shape[:2], *(1, 1) * keep)
        call = _PREPARED[key] = prepared(problem, *gpu, (x, *further), backend, shape=result,
                                         axes="nchw")
    return call


def forget() -> None:
    """Forget all calls."""
    _PREPARED.clear()
