"""The error bound judged where tensors lie: the direct definition in float64 by PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dscore.checking import bound
from dscore.checking.bound import Accuracy
from dscore.core.errors import SpecError
from dscore.core.problem import ConvProblem

# Elements of float64 that one step may take; an image at least.
_STEP_ELEMENTS = 1 << 27
# What a multiplication in TF32 adds for each of its operands, of which it keeps 10 bits.
TF32_SHARE = 2 * 2.0**-10 + 2.0**-20


def judge(torch: Any, problem: ConvProblem, arrays: tuple[Any, Any, Any], y: Any,
          tf32: bool = False) -> Accuracy:
    """Hold *y* to the bound of `dscore.checking.bound`, image by image; *arrays* are x, w and bias.

    *tf32* widens the bound by the rounding of the operands to TF32.
    Raises SpecError where the shapes differ.
    """
    x, w, bias = arrays
    if tuple(y.shape) != problem.y_shape:
        raise SpecError(f"a result of shape {tuple(y.shape)} is held to one of {problem.y_shape}")
    worst = None
    for first, last in _steps(problem):
        wanted, bound = _expected(torch, problem, x[first:last].double(), w.double(),
                                  None if bias is None else bias.double(), tf32)
        found = _worst(torch, y[first:last].double(), wanted, bound, first)
        if worst is None or not found.share <= worst.share:
            worst = found
    assert worst is not None  # a problem has at least one image
    return worst


def _steps(problem: ConvProblem) -> Iterator[tuple[int, int]]:
    spec = problem.spec
    image = max(spec.in_channels * problem.height * problem.width,
                spec.out_channels * problem.out_height * problem.out_width)
    images = max(1, _STEP_ELEMENTS // image)
    return ((at, min(at + images, problem.batch)) for at in range(0, problem.batch, images))


def _expected(torch: Any, problem: ConvProblem, x: Any, w: Any, bias: Any,
              tf32: bool) -> tuple[Any, Any]:
    """As `bound.expected`."""
    y, size = _convolve(torch, problem, x, w), _convolve(torch, problem, x.abs(), w.abs())
    k = problem.spec.products
    operands = TF32_SHARE * (1 + bound.gamma(k)) * size if tf32 else 0.0
    if bias is not None:
        y, size, k = (y + bias[None, :, None, None], size + bias.abs()[None, :, None, None], k + 1)
    activation = problem.spec.activation
    allowed = bound._LIPSCHITZ[activation] * (
        bound.gamma(k) * size + k * bound.UNDERFLOW + operands)
    y = _activated(torch, y, activation)
    own = bound._OWN_ROUNDINGS[activation]
    return y, allowed + own * (bound.UNIT_ROUNDOFF * y.abs() + bound.UNDERFLOW)


def _activated(torch: Any, y: Any, activation: str | None) -> Any:
    if activation is None:
        return y
    return {"relu": lambda: y.clamp(min=0), "relu6": lambda: y.clamp(0, 6),
            "silu": lambda: y / (1 + torch.exp(-y)),
            "hardswish": lambda: y * (y + 3).clamp(0, 6) / 6}[activation]()


def _convolve(torch: Any, problem: ConvProblem, x: Any, w: Any) -> Any:
    """One product per tap and group, of matrices or, with one channel in a group, of elements."""
    spec, (top, bottom, left, right) = problem.spec, problem.padding
    images, height, width = x.shape[0], problem.out_height, problem.out_width
    padded = torch.nn.functional.pad(x, (left, right, top, bottom))
    taps = w.reshape(1, spec.groups, spec.group_out, spec.group_in, *spec.kernel)
    multiply = torch.mul if spec.group_in == 1 else torch.matmul
    y: Any = 0
    for tap_h in range(spec.kernel[0]):
        for tap_w in range(spec.kernel[1]):
            row, column = tap_h * spec.dilation[0], tap_w * spec.dilation[1]
            under = padded[:, :, row:row + (height - 1) * spec.stride[0] + 1:spec.stride[0],
                           column:column + (width - 1) * spec.stride[1] + 1:spec.stride[1]]
            y = y + multiply(taps[..., tap_h, tap_w], under.reshape(
                images, spec.groups, spec.group_in, height * width))
    return y.reshape(images, spec.out_channels, height, width)


def _worst(torch: Any, y: Any, wanted: Any, bound: Any, first: int) -> Accuracy:
    """As `bound.compare`, of the images from *first* on."""
    error = (y - wanted).abs()
    share = torch.where(error == 0, 0.0, error / bound)
    share = torch.where(torch.isfinite(y) & torch.isfinite(share), share, torch.inf)
    flat = int(share.argmax())
    where: list[int] = []
    for size in reversed(share.shape):
        flat, at = divmod(flat, int(size))
        where.insert(0, at)
    place = tuple(where)
    worst = float(share[place])
    return Accuracy(worst <= 1, worst, (place[0] + first, *place[1:]), float(y[place]),
                    float(wanted[place]), float(bound[place]))
