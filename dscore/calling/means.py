"""Means over the pixels of images that lie on a GPU, by one kernel."""

from __future__ import annotations

from typing import Any

from dscore.calling.arguments import adapter_of, common_gpu, memory_layout
from dscore.calling.arrays import dtype_name, library_of
from dscore.calling.call_cache import MOST_CALLS, PreparedCall
from dscore.calling.convolve import prepared
from dscore.core.problem import ConvProblem
from dscore.core.spec import ConvSpec, Layout

_PREPARED: dict[Any, PreparedCall] = {}


def mean_problem(shape: tuple[int, ...], dtype: str, layout: Layout) -> ConvProblem:
    """The problem of a mean over the pixels of images (N, C, H, W) of a memory's *layout*.

    >>> mean_problem((2, 8, 5, 5), "float32", "nchw").operation
    'mean'
    """
    images, channels, height, width = shape
    spec = ConvSpec.make(channels, channels, 1, dtype=dtype, layout=layout)
    return ConvProblem(spec, images, height, width, "mean")


def mean_call(x: Any, keep: bool, backend: str = "auto") -> PreparedCall | None:
    """The call that makes the means of images like *x*, (N, C, H, W): of shape (N, C), or with
    *keep* (N, C, 1, 1). It takes x, and out or None. None for arrays of the host.
    """
    adapter = adapter_of(library_of(x, "x"))
    gpu = common_gpu(adapter, {"x": x})
    if gpu is None:
        return None
    shape, layout = tuple(x.shape), memory_layout(adapter, "nchw", (x,))
    key = adapter.library, gpu[1], shape, dtype_name(x), layout, keep, backend
    call = _PREPARED.get(key)
    if call is None:
        if len(_PREPARED) >= MOST_CALLS:
            _PREPARED.clear()
        problem = mean_problem(shape, dtype_name(x), layout)
        result = (*shape[:2], *(1, 1) * keep)
        call = _PREPARED[key] = prepared(problem, *gpu, (x,), backend, shape=result, axes="nchw")
    return call
