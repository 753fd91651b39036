"""Quantization of a convolution of int8: what its integers stand for, and what kernels take of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscore.calling.arguments import Options, adapter_of
from dscore.calling.arrays import library_of
from dscore.calling.pack import PackedFilter
from dscore.core.errors import SpecError, require_one_of, shown
from dscore.core.numerics import FLOAT_RESULTS
from dscore.core.spec import CLAMPS, Activation

_LEAST, _MOST = -128, 127
_SIX = 6.0  # the upper bound of relu6


@dataclass(frozen=True)
class Quantization:
    """Scales and zero points of a convolution's tensors of int8, for `dscore.conv`.

    An integer q of x stands for ``x_scale * (q - x_zero_point)``, one of w for ``w_scale * q``, one
    of the bias, of int32, for ``x_scale * w_scale * q``, and one of y for
    ``y_scale * (q - y_zero_point)``.

    - *x_scale*, *y_scale*: positive numbers. Without a *y_scale* the result is of floats, of the
      type *out_dtype*: "float32" (None) or "float16".
    - *w_scale*: a positive number, or one for each output channel, as a list or an array.
    - *x_zero_point*, *y_zero_point*: from -128 to 127.

    It is a value: it has a copy of the scales, and two of the same fields are equal. It keeps the
    small arrays that kernels take of it, which are made where the first call's x lies.

    Raises SpecError for numbers out of these ranges.

    >>> import dscore
    >>> q = dscore.Quantization(x_scale=0.5, w_scale=[0.25, 0.125], y_scale=1.0, y_zero_point=-10)
    >>> x, w = np.full((1, 1, 2, 2), 40, np.int8), np.array([[[[8]]], [[[-24]]]], np.int8)
    >>> dscore.conv(x, w, quantization=q)[0, :, 0, 0]  # 40 * 8 * 0.125 - 10, 40 * -24 * 0.0625 - 10
    array([ 30, -70], dtype=int8)
    """

    x_scale: float
    w_scale: float | tuple[float, ...]
    y_scale: float | None = None
    x_zero_point: int = 0
    y_zero_point: int = 0
    out_dtype: str | None = None
    _arrays: dict[Any, tuple[Any, Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("x_scale", "y_scale"):
            if name == "x_scale" or self.y_scale is not None:
                object.__setattr__(self, name, _scale(getattr(self, name), name))
        object.__setattr__(self, "w_scale", _scales(self.w_scale))
        for name in ("x_zero_point", "y_zero_point"):
            object.__setattr__(self, name, _zero_point(getattr(self, name), name))
        if self.y_scale is not None:
            require_one_of(self.out_dtype, "out_dtype of a quantization with a y_scale",
                           (None, "int8"))
        else:
            require_one_of(self.out_dtype, "out_dtype of a quantization without a y_scale",
                           (None, *FLOAT_RESULTS))
            if self.y_zero_point:
                raise SpecError(f"y_zero_point is {self.y_zero_point} without a y_scale: a result "
                                "of floats has no zero point; pass a y_scale, or leave it out")
        self.multiplier  # noqa: B018  raises where a float32 cannot hold it

    @property
    def result(self) -> str:
        """The element type of the result."""
        return self.out_dtype or ("float32" if self.y_scale is None else "int8")

    @property
    def multiplier(self) -> NDArray[np.float32]:
        """What sums of products are multiplied by: one number, or one for each output channel.

        ``x_scale * w_scale / y_scale``, made in float64 and rounded once.

        >>> Quantization(0.5, 0.25, y_scale=2.0).multiplier
        array([0.0625], dtype=float32)
        """
        with np.errstate(over="ignore", under="ignore"):
            exact = self.x_scale * np.atleast_1d(self.w_scale) / (self.y_scale or 1.0)
            rounded = exact.astype(np.float32)
        bad = ~(np.isfinite(rounded) & (rounded >= np.finfo(np.float32).tiny))
        if bad.any():
            raise SpecError("x_scale * w_scale / y_scale must be a normal float32, from 1.2e-38 to "
                            f"3.4e+38; of channel {int(bad.argmax())} it is "
                            f"{exact[bad.argmax()]:.3g}")
        return rounded

    def points(self, activation: Activation | None = None) -> NDArray[np.int32]:
        """The zero points of x and y, and the bounds of y, of which relu and relu6 are the tighter.

        Raises SpecError for another activation.

        >>> Quantization(0.5, 0.25, y_scale=0.0625, y_zero_point=-100).points("relu6")
        array([   0, -100, -100,   -4], dtype=int32)
        """
        if self.y_scale is None:
            return np.array([self.x_zero_point, 0, 0, 0], np.int32)
        require_one_of(activation, "activation of an int8 result", (None, *CLAMPS))
        low = _LEAST if activation is None else self.y_zero_point
        high = float(_MOST)
        if activation == "relu6":
            high = min(high, self.y_zero_point + float(np.rint(_SIX / self.y_scale)))
        return np.array([self.x_zero_point, self.y_zero_point, low, high], np.int32)

    def operands(self, x: Any, w: Any, activation: Activation | None) -> tuple[Any, Any]:
        """A multiplier for each output channel of *w* and the points, of *x*'s library and device.

        Raises SpecError where there are not as many scales as channels.
        """
        outs = next(iter(getattr(w, "shape", ())), 1)
        key = (type(x), getattr(x, "device", None), activation, outs)
        try:
            arrays = self._arrays.get(key)
        except TypeError:  # a device that cannot be hashed
            return self._made(x, int(outs), activation)
        if arrays is None:
            arrays = self._arrays[key] = self._made(x, int(outs), activation)
        return arrays

    def _made(self, x: Any, outs: int, activation: Activation | None) -> tuple[Any, Any]:
        scales = len(self.w_scale) if isinstance(self.w_scale, tuple) else outs
        if scales != outs:
            raise SpecError(f"w_scale has {scales} scales, and w has {outs} output channels: pass "
                            "a scale for each, or one number for all")
        adapter = adapter_of(library_of(x, "x"))
        each = np.ascontiguousarray(np.broadcast_to(self.multiplier, (outs,)))
        return adapter.placed(each, x), adapter.placed(self.points(activation), x)


def quantised(x: Any, w: Any, options: tuple[Any, ...], further: Mapping[str, Any],
              quantization: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The options of a call with a quantization, and its operands after the bias.

    Raises SpecError for what is no Quantization, and for what int8 has no arithmetic for.
    """
    if not isinstance(quantization, Quantization):
        raise SpecError("quantization must be a dscore.Quantization, got "
                        f"{shown(quantization)}")
    named = Options(*options)
    extra = [*further, *["a packed filter"] * isinstance(w, PackedFilter),
             *[f"arithmetic={named.arithmetic!r}"] * (named.arithmetic is not None)]
    if extra:
        raise SpecError(f"with quantization= there is no {', no '.join(extra)}; leave that out, or "
                        "convolve float arrays without it")
    operands = quantization.operands(x, w, named.activation)
    return (tuple(named._replace(out_dtype=quantization.result)),
            dict(zip(("multiplier", "points"), operands, strict=True)))


def _scale(value: Any, name: str) -> float:
    """A positive, finite number; SpecError for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise SpecError(f"{name} must be a positive, finite number, got {shown(value)}")
    return number


def _scales(value: Any) -> float | tuple[float, ...]:
    """Scales of w from a number, a list, or an array of one axis of any library."""
    plain = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(plain, list | tuple):
        return _scale(plain, "w_scale")
    if not plain or any(isinstance(one, list | tuple) for one in plain):
        raise SpecError("w_scale must be a number, or have one axis, with a scale for each output "
                        f"channel; got {shown(value)}")
    return tuple(_scale(one, f"w_scale[{at}]") for at, one in enumerate(plain))


def _zero_point(value: Any, name: str) -> int:
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):
        number = math.nan
    if isinstance(value, bool) or not (_LEAST <= number <= _MOST and number == int(number)):
        raise SpecError(f"{name} must be an integer from {_LEAST} to {_MOST}, as int8 has them; "
                        f"got {shown(value)}"
                        + "; of uint8 data subtract 128 from it and from the data" * (
                            _MOST < number < 256))
    return int(number)
