"""Quantization of a convolution of int8: what its integers stand for, and what kernels take of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscore.calling.arguments import Options, adapter_of
from dscore.calling.arrays import dtype_name, library_of
from dscore.calling.pack import PackedFilter
from dscore.calling.quantization_numbers import (
    BYTE,
    LEAST,
    MOST,
    normal,
    scale_of,
    scales_of,
    zero_point_of,
)
from dscore.core.errors import SpecError, require_one_of, shown
from dscore.core.numerics import FLOAT_RESULTS, FLOATS
from dscore.core.spec import CLAMPS, TABLED, Activation
from dscore.ops.conv import activated
from dscore.ops.quantised import FLOATS_OF_X, TABLE, short_ratio

# Of one scale by another.
_LEAST_RATIO, _MOST_RATIO = 1e-6, 1e6
# What has a ratio, by the argument that it is of; and the operands after the bias in their order.
_BESIDE = {"residual": "residual", "input": "scale"}
_ORDER = ("multiplier", "points", "ratios", "residual", "scale", "table")
_SIX = 6.0  # the upper bound of relu6


@dataclass(frozen=True)
class Quantization:
    """Scales and zero points of a convolution's tensors of int8, for `dscore.conv`.

    An integer q of x stands for ``x_scale * (q - x_zero_point)``, one of w for ``w_scale * q``, one
    of the bias, of int32, for ``x_scale * w_scale * q``, and one of y for
    ``y_scale * (q - y_zero_point)``. An x of floats becomes
    ``clamp(rint(x * (1 / x_scale)) + x_zero_point, -128, 127)`` within the layer.

    - *x_scale*, *y_scale*: positive numbers. Without a *y_scale* the result is of floats, of the
      type *out_dtype*: "float32" (None) or "float16".
    - *w_scale*: a positive number, or one for each output channel, as a list or an array.
    - *x_zero_point*, *y_zero_point* and the others: from -128 to 127.
    - *residual_scale*, *residual_zero_point*: of a residual, which has an int8 result.
    - *input_scale*, *input_zero_point*: with a scale by image and channel, of float16, those of the
      array that is passed; x is what the scale makes of it, rounded to int8 again.
    - *scaled_zero_point*: what stands for zero in that x, None for *x_zero_point*. With a bias that
      has x's zero point in it, *x_zero_point* is 0, and this is not.
    - *table_scale*, *table_zero_point*: with silu, hardswish, sigmoid or hardsigmoid, of what the
      activation is taken of. It has the integers from 0 to 1023.

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
    residual_scale: float | None = None
    residual_zero_point: int = 0
    input_scale: float | None = None
    input_zero_point: int = 0
    table_scale: float | None = None
    table_zero_point: int = 0
    scaled_zero_point: int | None = None
    _arrays: dict[Any, dict[str, Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("x_scale", "y_scale", "residual_scale", "input_scale", "table_scale"):
            if name == "x_scale" or getattr(self, name) is not None:
                object.__setattr__(self, name, scale_of(getattr(self, name), name))
        object.__setattr__(self, "w_scale", scales_of(self.w_scale))
        for owner in ("x", "y", "residual", "input", "table", "scaled"):
            name, limits = f"{owner}_zero_point", (0, TABLE - 1) if owner == "table" else BYTE
            if name != "scaled_zero_point" or self.scaled_zero_point is not None:
                object.__setattr__(self, name, zero_point_of(getattr(self, name), name, limits))
        if self.scaled_zero_point is not None and self.input_scale is None:
            raise SpecError(f"scaled_zero_point is {self.scaled_zero_point} without an "
                            "input_scale: x is what is passed, and x_zero_point its zero point; "
                            "pass an input_scale, or leave it out")
        if self.y_scale is not None:
            require_one_of(self.out_dtype, "out_dtype of a quantization with a y_scale",
                           (None, "int8"))
        else:
            require_one_of(self.out_dtype, "out_dtype of a quantization without a y_scale",
                           (None, *FLOAT_RESULTS))
            if self.y_zero_point:
                raise SpecError(f"y_zero_point is {self.y_zero_point} without a y_scale: a result "
                                "of floats has no zero point; pass a y_scale, or leave it out")
            for name in ("residual_scale", "table_scale"):
                if getattr(self, name) is not None:
                    raise SpecError(f"there is a {name} without a y_scale: a result of floats has "
                                    "no residual and no table; pass a y_scale, or leave it out")
        self.multiplier, self.ratios  # noqa: B018  raise where a float32 cannot hold them

    @property
    def result(self) -> str:
        """The element type of the result."""
        return self.out_dtype or ("float32" if self.y_scale is None else "int8")

    @property
    def multiplier(self) -> NDArray[np.float32]:
        """What sums of products are multiplied by: one number, or one for each output channel.

        ``x_scale * w_scale / y_scale``, or by the scale of a table where there is one, made in
        float64 and rounded once.

        >>> Quantization(0.5, 0.25, y_scale=2.0).multiplier
        array([0.0625], dtype=float32)
        """
        with np.errstate(over="ignore", under="ignore"):
            exact = self.x_scale * np.atleast_1d(self.w_scale) / (self._inner_scale or 1.0)
            rounded = exact.astype(np.float32)
        bad = ~normal(rounded)
        if bad.any():
            name = "y_scale" if self.table_scale is None else "table_scale"
            raise SpecError(f"x_scale * w_scale / {name} must be a normal float32, from 1.2e-38 to "
                            f"3.4e+38; of channel {int(bad.argmax())} it is "
                            f"{exact[bad.argmax()]:.3g}")
        return rounded

    @property
    def x_multiplier(self) -> float:
        """What an x of floats is multiplied by, the reciprocal of its scale as a float32.

        >>> Quantization(0.5, 0.25).x_multiplier
        2.0
        """
        with np.errstate(over="ignore", under="ignore"):
            rounded = np.array([1.0 / self.x_scale]).astype(np.float32)
        if not normal(rounded).all():
            raise SpecError(f"1 / x_scale is {1.0 / self.x_scale:.3g}, by which an x of floats is "
                            "multiplied; it must be a normal float32, from 1.2e-38 to 3.4e+38")
        return float(rounded[0])

    @property
    def zero_point_when_scaled(self) -> int:
        """The integer that stands for zero in what a scale makes x.

        >>> Quantization(0.5, 0.25, x_zero_point=7, input_scale=1.0).zero_point_when_scaled
        7
        """
        stated = self.scaled_zero_point
        return self.x_zero_point if stated is None else stated

    @property
    def _inner_scale(self) -> float | None:
        """Of the integers that sums become at first."""
        return self.y_scale if self.table_scale is None else self.table_scale

    @property
    def ratios(self) -> dict[str, float]:
        """What differences of a residual, and of an input, are multiplied by.

        ``residual_scale / y_scale``, or by the scale of a table, rounded to 16 bits so that these
        products are exact; ``input_scale / x_scale``, a float32.

        >>> Quantization(0.5, 1.0, y_scale=0.25, residual_scale=0.125, input_scale=2.0).ratios
        {'residual': 0.5, 'input': 4.0}
        """
        exact = {}
        if self.residual_scale is not None and self._inner_scale:
            exact["residual"] = short_ratio(self.residual_scale / self._inner_scale)
        if self.input_scale is not None:
            exact["input"] = self.input_scale / self.x_scale
        for name, ratio in exact.items():
            if not _LEAST_RATIO <= ratio <= _MOST_RATIO:
                raise SpecError(f"{name}_scale by that of what it is added to or becomes must be "
                                f"from {_LEAST_RATIO} to {_MOST_RATIO:,.0f}; it is {ratio:.3g}")
        return {name: float(np.float32(ratio)) for name, ratio in exact.items()}

    def points(self, activation: Activation | None = None) -> NDArray[np.int32]:
        """The zero points of x and y, and the bounds of y, of which relu and relu6 are the tighter.

        With a table the latter three are of its entries' numbers. Raises SpecError for an
        activation that is not its.

        >>> Quantization(0.5, 0.25, y_scale=0.0625, y_zero_point=-100).points("relu6")
        array([   0, -100, -100,   -4], dtype=int32)
        """
        if self.y_scale is None:
            return np.array([self.x_zero_point, 0, 0, 0], np.int32)
        if self.table_scale is not None:
            require_one_of(activation, "activation of a quantization with a table_scale", TABLED)
            return np.array([self.x_zero_point, self.table_zero_point, 0, TABLE - 1], np.int32)
        if activation in TABLED:
            raise SpecError(f"{activation} of an int8 result is looked up in a table: pass the "
                            "quantization a table_scale and a table_zero_point, of what it is "
                            "taken of")
        require_one_of(activation, "activation of an int8 result", (None, *CLAMPS))
        low = LEAST if activation is None else self.y_zero_point
        high = float(MOST)
        if activation == "relu6":
            high = min(high, self.y_zero_point + float(np.rint(_SIX / self.y_scale)))
        return np.array([self.x_zero_point, self.y_zero_point, low, high], np.int32)

    def table(self, activation: Activation | None) -> NDArray[np.int8]:
        """The result of each integer that an activation may be taken of, made in float64.

        >>> Quantization(1, 1, 0.5, table_scale=0.25, table_zero_point=8).table("silu")[[0, 8, 16]]
        array([0, 0, 4], dtype=int8)
        """
        assert self.y_scale is not None
        assert self.table_scale is not None
        taken = self.table_scale * (np.arange(TABLE) - float(self.table_zero_point))
        steps = np.rint(activated(np, taken, activation) / self.y_scale) + self.y_zero_point
        return np.asarray(np.clip(steps, *BYTE), np.int8)

    def operands(self, x: Any, w: Any, activation: Activation | None,
                 beside: tuple[str, ...] = ()) -> dict[str, Any]:
        """A multiplier for each output channel of *w*, the points, the ratios of what there is
        *beside* ("residual", "input"), and a table, of *x*'s library and on its device.

        Raises SpecError where there are not as many scales as channels.
        """
        outs = next(iter(getattr(w, "shape", ())), 1)
        key = (type(x), getattr(x, "device", None), activation, outs, beside)
        try:
            arrays = self._arrays.get(key)
        except TypeError:  # a device that cannot be hashed
            return self._made(x, int(outs), activation, beside)
        if arrays is None:
            arrays = self._arrays[key] = self._made(x, int(outs), activation, beside)
        return arrays

    def _made(self, x: Any, outs: int, activation: Activation | None, beside: tuple[str, ...]
              ) -> dict[str, Any]:
        scales = len(self.w_scale) if isinstance(self.w_scale, tuple) else outs
        if scales != outs:
            raise SpecError(f"w_scale has {scales} scales, and w has {outs} output channels: pass "
                            "a scale for each, or one number for all")
        zeros = [getattr(self, f"{name}_zero_point") for name in beside if name != FLOATS_OF_X]
        zeros += [self.zero_point_when_scaled] * ("input" in beside)
        made: dict[str, Any] = {
            "multiplier": np.ascontiguousarray(np.broadcast_to(self.multiplier, (outs,))),
            "points": np.append(self.points(activation), zeros).astype(np.int32)}
        if beside:
            made["ratios"] = np.array([self._ratio(name) for name in beside], np.float32)
        if self.table_scale is not None:
            made["table"] = self.table(activation)
        adapter = adapter_of(library_of(x, "x"))
        return {name: adapter.placed(array, x) for name, array in made.items()}

    def _ratio(self, name: str) -> float:
        if name == FLOATS_OF_X:
            return self.x_multiplier
        if name not in self.ratios:
            argument = "residual" if name == "residual" else "scale"
            raise SpecError(f"with a {argument}, a quantization needs {name}_scale and "
                            f"{name}_zero_point, by which its integers stand for numbers"
                            + ", and a y_scale" * (name == "residual"))
        return self.ratios[name]


def quantised(x: Any, w: Any, options: tuple[Any, ...], further: Mapping[str, Any],
              quantization: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The options of a call with a quantization, and its operands after the bias.

    Raises SpecError for what is no Quantization, and for what int8 has no arithmetic for.
    """
    if not isinstance(quantization, Quantization):
        raise SpecError("quantization must be a dscore.Quantization, got "
                        f"{shown(quantization)}")
    named = Options(*options)
    after = named.residual == "after" and named.activation is not None
    extra = [*["a residual after the activation"] * after,
             *["a packed filter"] * isinstance(w, PackedFilter),
             *[f"arithmetic={named.arithmetic!r}"] * (named.arithmetic is not None)]
    if extra:
        raise SpecError(f"with quantization= there is no {', no '.join(extra)}; leave that out, or "
                        "convolve float arrays without it")
    beside = tuple(name for name, operand in _BESIDE.items() if operand in further)
    given = dtype_name(x)
    floats = given if given in FLOATS else None
    beside += (FLOATS_OF_X,) * (floats is not None)
    made = {**further, **quantization.operands(x, w, named.activation, beside)}
    return (tuple(named._replace(out_dtype=quantization.result, table="table" in made,
                                 in_dtype=floats)),
            {name: made[name] for name in _ORDER if name in made})
