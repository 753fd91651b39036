"""Whether a result is right: the direct definition in float64 and the error bound γ_k.

For every order of summation a float32 result y of k products keeps
``|y − ref| ≤ γ_k · conv(|x|, |w|)`` with ``γ_k = k·u / (1 − k·u)`` and ``u = 2⁻²⁴`` (Higham,
Accuracy and Stability of Numerical Algorithms, §3.1). So no tolerance is tuned here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscore.core.errors import SpecError
from dscore.core.problem import ConvProblem
from dscore.core.spec import Activation

UNIT_ROUNDOFF = 2.0**-24
# A product or sum below the normal range may be flushed to zero.
UNDERFLOW = 2.0**-126
# max |f'|: an error before the activation grows by no more than this.
_LIPSCHITZ: dict[Activation | None, float] = {
    None: 1.0, "relu": 1.0, "relu6": 1.0, "silu": 1.1, "hardswish": 1.5}
# Roundings of the activation itself, relative to its result, in units of u: an exponential, a sum
# and a quotient for silu (whose argument is exact here), three for hardswish, each doubled.
_OWN_ROUNDINGS: dict[Activation | None, int] = {
    None: 0, "relu": 0, "relu6": 0, "silu": 16, "hardswish": 8}


def gamma(products: int) -> float:
    """γ_k of the error bound for k = *products*; SpecError where k·u reaches 1.

    >>> gamma(9) / 2**-24
    9.000004827978817
    """
    k_u = products * UNIT_ROUNDOFF
    if k_u >= 1:
        raise SpecError(f"no float32 error bound exists for {products} products (limit 2**24)")
    return k_u / (1 - k_u)


def activate(y: NDArray[np.float64], activation: Activation | None) -> NDArray[np.float64]:
    """The activation, in float64."""
    if activation in ("relu", "relu6"):
        most = np.inf if activation == "relu" else 6.0
        return np.asarray(np.clip(y, 0.0, most))
    if activation == "silu":
        with np.errstate(over="ignore"):
            return np.asarray(y / (1 + np.exp(-y)))
    if activation == "hardswish":
        return np.asarray(y * np.clip(y + 3, 0, 6) / 6)
    return y


@dataclass(frozen=True)
class Expected:
    """What a result is held to: the exact result rounded to float64, and how far off it may be."""

    y: NDArray[np.float64]
    bound: NDArray[np.float64]


def expected(problem: ConvProblem, x: NDArray[Any], w: NDArray[Any],
             bias: NDArray[Any] | None = None) -> Expected:
    """The direct definition of *problem* in float64, and the bound of each output.

    *x*, *w*, *bias* have the problem's shapes, in NCHW. Equation 2 of Jia et al. 2020 with groups.
    """
    y = _convolve(problem, x.astype(np.float64), w.astype(np.float64))
    size = _convolve(problem, np.abs(x.astype(np.float64)), np.abs(w.astype(np.float64)))
    k = problem.spec.products
    if bias is not None:
        column = bias.astype(np.float64)[None, :, None, None]
        y, size, k = y + column, size + np.abs(column), k + 1
    activation = problem.spec.activation
    bound = _LIPSCHITZ[activation] * (gamma(k) * size + k * UNDERFLOW)
    y = activate(y, activation)
    return Expected(y, bound + _OWN_ROUNDINGS[activation] * (UNIT_ROUNDOFF * np.abs(y) + UNDERFLOW))


def _convolve(problem: ConvProblem, x: NDArray[np.float64],
              w: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum over the taps of one matrix product per image and group."""
    spec, (top, bottom, left, right) = problem.spec, problem.padding
    (stride_h, stride_w), (dilation_h, dilation_w) = spec.stride, spec.dilation
    height, width = problem.out_height, problem.out_width
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    taps = w.reshape(spec.groups, spec.group_out, spec.group_in, *spec.kernel)
    y = np.zeros((problem.batch, spec.groups, spec.group_out, height * width))
    for tap_h in range(spec.kernel[0]):
        for tap_w in range(spec.kernel[1]):
            row, column = tap_h * dilation_h, tap_w * dilation_w
            under = padded[:, :, row:row + (height - 1) * stride_h + 1:stride_h,
                           column:column + (width - 1) * stride_w + 1:stride_w]
            y += taps[..., tap_h, tap_w] @ under.reshape(
                problem.batch, spec.groups, spec.group_in, height * width)
    return y.reshape(problem.batch, spec.out_channels, height, width)


@dataclass(frozen=True)
class Accuracy:
    """How a result compares: the worst error as a share of its bound, and where it stands."""

    ok: bool
    share: float  # inf where a value is not finite though the exact one is
    where: tuple[int, ...]  # n, channel, row, column of the worst output
    got: float
    wanted: float
    bound: float

    def __str__(self) -> str:
        if self.ok:
            return f"right: worst error is {self.share:.1%} of the bound"
        return (f"WRONG at output {self.where}: got {self.got!r}, expected {self.wanted!r} "
                f"± {self.bound:.3g} (the error is {self.share:.3g} times the bound)")


def compare(y: NDArray[Any], wanted: Expected) -> Accuracy:
    """Hold *y* to *wanted*; a value that is not finite never passes.

    Raises SpecError where the shapes differ.
    """
    if y.shape != wanted.y.shape:
        raise SpecError(f"a result of shape {y.shape} is held to one of {wanted.y.shape}")
    error = np.abs(y.astype(np.float64) - wanted.y)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(error == 0, 0.0, error / wanted.bound)
    share = np.where(np.isfinite(y) & np.isfinite(share), share, np.inf)
    if not share.size:
        return Accuracy(True, 0.0, (), 0.0, 0.0, 0.0)
    flat = int(share.argmax())
    where = tuple(int(i) for i in np.unravel_index(flat, share.shape))
    worst = float(share.flat[flat])
    return Accuracy(worst <= 1, worst, where, float(y[where]), float(wanted.y[where]),
                    float(wanted.bound[where]))


def sample(problem: ConvProblem, seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32],
                                                     NDArray[np.float32] | None]:
    """Random (x, w, bias) for *problem*: normal, never zero, the same for the same seed."""
    rng = np.random.default_rng(seed)

    def drawn(shape: tuple[int, ...]) -> NDArray[np.float32]:
        return rng.standard_normal(shape, dtype=np.float32)

    spec = problem.spec
    return (drawn(problem.x_shape), drawn(spec.w_shape),
            drawn((spec.out_channels,)) if spec.bias else None)
