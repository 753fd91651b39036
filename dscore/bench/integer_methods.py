"""Peers of layers of int8: PyTorch's product of int8 matrices, and dscore's own float16.

PyTorch has no convolution of int8 for GPUs. Its `_int_mm` multiplies matrices, so it serves
pointwise layers of NHWC images, and gives the bare sums of x * w as int32: dscore's result beside
it is corrected for the zero points, scaled, rounded and clamped to int8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from dscore.bench.summary import FLOAT16
from dscore.calling.quantization import Quantization
from dscore.checking.bound import Accuracy, compare
from dscore.checking.oracle import Expected
from dscore.core.errors import SpecError
from dscore.core.problem import ConvProblem
from dscore.core.token import problem_token
from dscore.ops import output_of

PRODUCT = "int_mm"
PADDED = "int_mm_padded"  # of as many rows as are whole tiles, which PyTorch is given beforehand
_LEAST_ROWS, _MULTIPLE = 17, 8  # that `_int_mm` takes, and of which channels are multiples
_TILE_ROWS = 32
_MULTIPLIER, _POINTS, _PLAIN = 3, 4, 6  # places among the operands, and how many there are


def integer_ways(problem: ConvProblem) -> list[str]:
    """The peers of a layer of int8, those included that do not take its shape.

    >>> from dscore.core.token import parse_problem
    >>> integer_ways(parse_problem("n1c8h5w5_o8k1_int8_nhwc"))
    ['int_mm', 'int_mm_padded', 'dscore_float16']
    >>> integer_ways(parse_problem("n1c8h5w5_o8k3p1g8_int8_nhwc"))
    ['dscore_float16']
    """
    spec = problem.spec
    plain = (spec.kind == "pointwise" and spec.stride == (1, 1)
             and problem.padding == (0, 0, 0, 0))
    products = [PRODUCT, *[PADDED] * bool(_rows(problem) % _TILE_ROWS)]
    return [*products * plain, FLOAT16]


def not_offered(problem: ConvProblem, way: str) -> str:
    """Why PyTorch's product of matrices does not take a layer; empty where it does."""
    spec, rows = problem.spec, _rows(problem)
    odd = [n for n in (spec.in_channels, spec.out_channels) if n % _MULTIPLE]
    if spec.layout != "nhwc":
        return "_int_mm takes a matrix of pixels by channels, which images in NCHW are not"
    if odd:
        return f"_int_mm takes multiples of {_MULTIPLE} channels, not {odd[0]}"
    if rows < _LEAST_ROWS and way == PRODUCT:
        return f"_int_mm takes {_LEAST_ROWS} pixels or more, not {rows}"
    return ""


def in_float16(problem: ConvProblem) -> ConvProblem:
    """The same layer in float16, which dscore's own peer computes."""
    return replace(problem, spec=problem.spec.in_form(dtype="float16", out_dtype=None))


def _rows(problem: ConvProblem) -> int:
    return problem.batch * problem.height * problem.width


class ProductSubject:
    """PyTorch's product of int8 matrices on sets of data: pixels by filters, in int32."""

    def __init__(self, torch: Any, way: str, problem: ConvProblem,
                 sets: Sequence[Sequence[Any]]) -> None:
        self.name, self._torch, self._problem = way, torch, problem
        self._rows = _rows(problem)
        room = -(-self._rows // _TILE_ROWS) * _TILE_ROWS if way == PADDED else self._rows
        self._sets = [self._matrices(one[0], one[1], room) for one in sets]

    def _matrices(self, x: Any, w: Any, room: int) -> tuple[Any, Any, Any]:
        """Pixels by channels with further rows of zeros, the filter turned, and room for sums."""
        torch, spec = self._torch, self._problem.spec
        x, w = torch.as_tensor(x), torch.as_tensor(w)
        pixels = x.reshape(self._rows, spec.in_channels)
        if room > self._rows:
            pixels = torch.nn.functional.pad(pixels, (0, 0, 0, room - self._rows))
        out = torch.empty((room, spec.out_channels), dtype=torch.int32, device=x.device)
        return pixels, w.reshape(spec.out_channels, spec.in_channels).t(), out

    def launch(self, index: int, stream: int) -> Any:
        """Call it on a set, on PyTorch's current stream; its sums."""
        x, w, out = self._sets[index]
        return self._torch._int_mm(x, w, out=out)

    @contextmanager
    def settings(self) -> Iterator[None]:
        """No gradients."""
        with self._torch.no_grad():
            yield

    def accuracy(self, index: int) -> Accuracy:
        """Whether the sums of a set are those of float64, in which they are exact."""
        x, w, out = self._sets[index]
        shape = output_of(self._problem).shape
        wanted = (x.double() @ w.double() + 0.0)[:self._rows].reshape(shape)
        return compare(out[:self._rows].reshape(shape).double(),
                       Expected(wanted, self._torch.zeros_like(wanted), "exact"), self._torch)


def give_whole_range(arrays: Sequence[Any]) -> None:
    """Let results of a layer of int8 have the whole range, as those of a `Quantization` have.

    A layer with more operands than x, w, bias, multiplier and points stays as it is.
    """
    if len(arrays) != _PLAIN:
        return
    points = arrays[_POINTS]
    points[2], points[3] = -128, 127


def quantization_of(problem: ConvProblem, arrays: Sequence[Any]) -> Quantization:
    """The value by which `dscore.conv` computes what kernels compute of *arrays*.

    Raises SpecError for a layer with further operands.
    """
    if len(arrays) != _PLAIN:
        raise SpecError(f"calls of {problem_token(problem)} are not compared: it has operands "
                        "beside x, w and bias; leave eager out: --cache cold,hot")
    multiplier, (x_zero, y_zero, *_) = arrays[_MULTIPLIER].tolist(), arrays[_POINTS].tolist()
    if problem.spec.out_element.exact:
        return Quantization(x_scale=1.0, x_zero_point=x_zero, w_scale=multiplier, y_scale=1.0,
                            y_zero_point=y_zero)
    return Quantization(x_scale=1.0, x_zero_point=x_zero, w_scale=multiplier,
                        out_dtype=problem.spec.out_dtype)
