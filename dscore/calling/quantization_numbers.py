"""Scales and zero points of a quantization: numbers of what callers pass, or errors that say what
is wrong with that."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscore.core.errors import SpecError, shown

BYTE = LEAST, MOST = -128, 127


def _number(value: Any) -> float:
    """A number of any kind as a float; NaN for anything else, and for texts and truth values."""
    if isinstance(value, bool) or not hasattr(value, "__float__") | hasattr(value, "__index__"):
        return math.nan
    try:
        return float(value)
    except Exception:  # an object's own
        return math.nan


def scale_of(value: Any, name: str) -> float:
    """A positive, finite number; SpecError for anything else."""
    number = _number(value)
    if not (math.isfinite(number) and number > 0):
        raise SpecError(f"{name} must be a positive, finite number, got {shown(value)}")
    return number


def scales_of(value: Any) -> float | tuple[float, ...]:
    """Scales of w from a number, a list, or an array of one axis of any library."""
    # Of an image, given by mistake, no list is made: it would take more memory than the image.
    flat = len(getattr(value, "shape", ())) < 2
    plain = value.tolist() if flat and hasattr(value, "tolist") else value
    if flat and not isinstance(plain, list | tuple):
        return scale_of(plain, "w_scale")
    if not flat or not plain or any(isinstance(one, list | tuple) for one in plain):
        raise SpecError("w_scale must be a number, or have one axis, with a scale for each output "
                        f"channel; got {shown(value)}")
    return tuple(scale_of(one, f"w_scale[{at}]") for at, one in enumerate(plain))


def normal(values: NDArray[np.float32]) -> Any:
    """Which numbers are positive, finite and not subnormal."""
    return np.isfinite(values) & (values >= np.finfo(np.float32).tiny)


def zero_point_of(value: Any, name: str, limits: tuple[int, int] = BYTE) -> int:
    """An integer within the limits; SpecError for anything else."""
    (least, most), number = limits, _number(value)
    if not (least <= number <= most and number == int(number)):
        raise SpecError(f"{name} must be an integer from {least} to {most}"
                        + ", as int8 has them" * (limits == BYTE) + f"; got {shown(value)}"
                        + "; of uint8 data subtract 128 from it and from the data" * (
                            limits == BYTE and MOST < number < 256))
    return int(number)
