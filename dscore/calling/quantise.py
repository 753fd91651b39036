"""Quantisation of floats that lie on a GPU: integers of int8, by one kernel."""

from __future__ import annotations

import math
from typing import Any

from dscore.algorithms.direct import DirectTiling
from dscore.calling.arguments import adapter_of, common_gpu
from dscore.calling.arrays import dtype_name, library_of
from dscore.calling.call_cache import MOST_CALLS, PreparedCall
from dscore.calling.convolve import prepared
from dscore.core.errors import SpecError
from dscore.core.problem import ConvProblem
from dscore.core.spec import ConvSpec

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
