"""PyTorch's ways to convolve the same data, each as a subject to be measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dscore.core.errors import require_one_of
from dscore.core.problem import ConvProblem

# F.conv2d as it is; on channels_last tensors; with cuDNN off; a product of matrices.
WAYS = ("default", "channels_last", "native", "matmul")
TF32 = "_tf32"  # ends the names of ways that may round operands to TF32


def ways_for(problem: ConvProblem, named: Sequence[str] = WAYS, tf32: bool = False) -> list[str]:
    """Those of *named* that can do *problem*; *tf32* adds each once more with TF32 allowed.

    >>> from dscore.core.token import parse_problem
    >>> ways_for(parse_problem("n1c8h5w5_o8k3p1g8"))
    ['default', 'channels_last', 'native']
    """
    for way in named:
        require_one_of(way, "a way of PyTorch", WAYS)
    spec = problem.spec
    plain = (spec.kind == "pointwise" and spec.stride == (1, 1)
             and problem.padding == (0, 0, 0, 0))
    ways = [way for way in named if way != "matmul" or plain]
    # The ways without cuDNN and cuBLAS know no TF32.
    return ways + [way + TF32 for way in ways if tf32 and way != "native"]


class TorchSubject:
    """One way of PyTorch on sets of data.

    Results are kept until the next one of the same set is wanted, so that as many outputs are
    written to as there are sets; with *keep* False they are dropped, as a caller might.
    """

    def __init__(self, torch: Any, way: str, problem: ConvProblem,
                 sets: Sequence[tuple[Any, Any, Any]], keep: bool = True) -> None:
        self.name, self._torch, self._keep = way, torch, keep
        self._way, self.tf32 = way.removesuffix(TF32), way.endswith(TF32)
        tensors = [tuple(None if a is None else torch.as_tensor(a) for a in arrays[:3])
                   for arrays in sets]
        if self._way == "channels_last":
            tensors = [(self._channels_last(x), self._channels_last(w), bias)
                       for x, w, bias in tensors]
        self._tensors = tensors
        self._call = (_product if self._way == "matmul" else _convolution)(torch, problem)
        self.results: list[Any] = [None] * len(tensors)

    def _channels_last(self, tensor: Any) -> Any:
        return tensor.contiguous(memory_format=self._torch.channels_last)

    def launch(self, index: int, stream: int) -> None:
        """Call it on a set, on PyTorch's current stream."""
        if not self._keep:  # eager calls, whose time is to hold as little of the bench as dscore's
            self._call(*self._tensors[index])
            return
        self.results[index] = None  # gives its memory to the result, as the allocator works
        self.results[index] = self._call(*self._tensors[index])

    @contextmanager
    def settings(self) -> Iterator[None]:
        """cuDNN on or off, its choice by trial on, and TF32 as the way's name says."""
        cudnn, matmul = self._torch.backends.cudnn, self._torch.backends.cuda.matmul
        before = cudnn.enabled, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
        self._set(self._way != "native", True, self.tf32, self.tf32)
        try:
            with self._torch.no_grad():
                yield
        finally:
            self._set(*before)

    def _set(self, *values: bool) -> None:
        cudnn, matmul = self._torch.backends.cudnn, self._torch.backends.cuda.matmul
        cudnn.enabled, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = values


def _convolution(torch: Any, problem: ConvProblem) -> Callable[..., Any]:
    spec, (top, bottom, left, right) = problem.spec, problem.padding
    functional, act = torch.nn.functional, _activation(torch, problem)
    even = (top, left) == (bottom, right)
    padding = (top, left) if even else (0, 0)
    stride, dilation, groups = spec.stride, spec.dilation, spec.groups

    if even and act is None:
        return lambda x, w, bias: functional.conv2d(x, w, bias, stride, padding, dilation, groups)

    def call(x: Any, w: Any, bias: Any) -> Any:
        if not even:
            x = functional.pad(x, (left, right, top, bottom))
        y = functional.conv2d(x, w, bias, stride, padding, dilation, groups)
        return act(y) if act else y

    return call


def _product(torch: Any, problem: ConvProblem) -> Callable[..., Any]:
    """A 1x1 convolution as a product of the filter with every image."""
    spec, act = problem.spec, _activation(torch, problem)
    images = (problem.batch, spec.in_channels, problem.height * problem.width)
    filters = (problem.batch, spec.out_channels, spec.in_channels)

    def call(x: Any, w: Any, bias: Any) -> Any:
        w, x = w.view(filters[1:]).expand(filters), x.view(images)
        y = (torch.bmm(w, x) if bias is None
             else torch.baddbmm(bias.view(1, -1, 1), w, x)).view(problem.y_shape)
        return act(y) if act else y

    return call


def _activation(torch: Any, problem: ConvProblem) -> Callable[[Any], Any] | None:
    """In place, which is the fastest that PyTorch has after a convolution."""
    functional, activation = torch.nn.functional, problem.spec.activation
    if activation is None:
        return None
    if activation == "relu6":
        return lambda y: functional.relu6(y, inplace=True)
    function = {"relu": functional.relu, "silu": functional.silu,
                "hardswish": functional.hardswish}[activation]
    return lambda y: function(y, inplace=True)
