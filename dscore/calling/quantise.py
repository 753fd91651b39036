"""Quantisation of floats that lie on a GPU: integers of int8, by one kernel, or by the layer that
takes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from dscore.algorithms.direct import Direct, DirectTiling
from dscore.algorithms.registry import running
from dscore.calling.arguments import adapter_of, common_gpu
from dscore.calling.arrays import GpuAdapter, dtype_name, library_of
from dscore.calling.call_cache import MOST_CALLS, PreparedCall
from dscore.calling.kernels import prepared
from dscore.core.backend import gpu_device
from dscore.core.device import Device
from dscore.core.errors import SpecError
from dscore.core.problem import ConvProblem
from dscore.core.spec import ConvSpec, Layout

# Elements of a thread, which lie side by side; of a row of an image that stands for an array.
_VECTOR, _ROW = 16, 4096
_THREADS = 256
_PREPARED: dict[Any, PreparedCall] = {}


def flat_problem(elements: int, dtype: str) -> ConvProblem:
    """The problem of so many floats that lie in one piece: an image of vectors.

    >>> flat_problem(96, "float16").x_shape, flat_problem(6, "float16").x_shape
    ((1, 1, 6, 16), (1, 1, 3, 2))
    """
    channels = math.gcd(elements, _VECTOR)
    pixels = elements // channels
    width = next(one for one in range(min(pixels, _ROW), 0, -1) if pixels % one == 0)
    spec = ConvSpec.make(channels, channels, 1, dtype=dtype, layout="nhwc")
    return ConvProblem(spec, 1, pixels // width, width, "quantise")


def quantised_flat(x: Any, multiplier: Any, zero_point: Any, backend: str = "auto") -> Any:
    """Integers of int8 for the floats of *x*, of one axis, by arrays of one element there:
    ``clamp(rint(x * multiplier) + zero_point, -128, 127)``.
    """
    return flat_call(x, multiplier, zero_point, backend)(x, multiplier, zero_point, None)


def flat_call(x: Any, multiplier: Any, zero_point: Any, backend: str = "auto") -> PreparedCall:
    """The call of `quantised_flat` for arrays like these."""
    adapter = adapter_of(library_of(x, "x"))
    gpu = common_gpu(adapter, {"x": x})
    if gpu is None:
        raise SpecError("x lies on the host; quantised_flat takes arrays on a GPU")
    key = adapter.library, gpu[1], x.shape[0], dtype_name(x), backend
    if key not in _PREPARED:
        if len(_PREPARED) >= MOST_CALLS:
            _PREPARED.clear()
        problem = flat_problem(x.shape[0], dtype_name(x))
        operands = x, multiplier, zero_point
        tiling = DirectTiling(_THREADS, problem.spec.in_channels)
        _PREPARED[key] = prepared(problem, *gpu, operands, backend, plan=tiling)
    return _PREPARED[key]


@lru_cache(maxsize=MOST_CALLS)  # calls with a step of its own ask each time
def is_fused(problem: ConvProblem, device: Device) -> bool:
    """Whether some kernel of a *device* beyond the definition computes a layer of int8, with its x
    as it is: of integers, or of floats that the kernel quantises."""
    return any(one.name != Direct.name for one in running(problem, device=device))


def is_step(problem: ConvProblem, backend: str, index: int) -> bool:
    """Whether GPU *index* quantises x of a layer faster by a step of its own: where x is of floats,
    and kernels beyond the definition take integers alone."""
    device = None if problem.spec.in_dtype is None else gpu_device(backend, index)
    if device is None:
        return False
    integers = replace(problem, spec=replace(problem.spec, in_dtype=None))
    return is_fused(integers, device) and not is_fused(problem, device)


def quantised_images(problem: ConvProblem, adapter: GpuAdapter, index: int,
                     arrays: Mapping[str, Any], backend: str, axes: Layout) -> Any:
    """The integers of x for a layer on GPU *index* that takes one of floats, which lie as x does.

    *arrays*: its operands by their names; *axes*: the layout of their axes.
    """
    x, spec = arrays["x"], problem.spec
    operands = x, arrays["ratios"], arrays["points"]  # of which the kernel reads the first
    key = (adapter.library, index, tuple(x.shape), spec.in_dtype, spec.layout, axes, backend)
    if key not in _PREPARED:
        if len(_PREPARED) >= MOST_CALLS:
            _PREPARED.clear()
        bare = ConvSpec.make(spec.in_channels, spec.in_channels, 1, dtype=spec.in_dtype,
                             layout=spec.layout)
        images = replace(problem, spec=bare, operation="quantise")
        _PREPARED[key] = prepared(images, adapter, index, operands, backend, shape=tuple(x.shape),
                                  axes=axes)
    return _PREPARED[key](*operands, None)
