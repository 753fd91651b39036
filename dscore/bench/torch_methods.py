"""PyTorch's ways to convolve the same data, each as a subject to be measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dscore.checking.rounding import Rounding
from dscore.core.errors import require_one_of
from dscore.core.numerics import ACCUMULATOR, ELEMENTS
from dscore.core.problem import ConvProblem
from dscore.ops import as_laid_out, channels_first, operands_of, outputs_of

# F.conv2d on NCHW tensors; on channels_last ones; with cuDNN off; a product of matrices, in the
# problem's own layout.
WAYS = ("default", "channels_last", "native", "matmul")
# Those of dscore.ops that PyTorch computes as well.
OPERATIONS = ("conv", "input_gradient", "weight_gradient", "gradients")
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
    if spec.filter != "plain":  # which PyTorch has not
        return []
    plain = (spec.kind == "pointwise" and spec.stride == (1, 1)
             and problem.padding == (0, 0, 0, 0) and problem.operation != "gradients")
    ways = [way for way in named if way != "matmul" or plain]
    # The ways without cuDNN and cuBLAS know no TF32, nor do elements of 16 bits.
    tf32 = tf32 and spec.element == ACCUMULATOR
    return ways + [way + TF32 for way in ways if tf32 and way != "native"]


class TorchSubject:
    """One way of PyTorch on sets of data.

    Results are kept until the next one of the same set is wanted, so that as many outputs are
    written to as there are sets; with *keep* False they are dropped, as a caller might.
    """

    def __init__(self, torch: Any, way: str, problem: ConvProblem,
                 sets: Sequence[Sequence[Any]], keep: bool = True) -> None:
        self.name, self._torch, self._keep = way, torch, keep
        self._way, self.tf32 = way.removesuffix(TF32), way.endswith(TF32)
        self._operands, self._element = operands_of(problem), problem.spec.element
        self._outputs = outputs_of(problem)
        # In NCHW, as PyTorch's functions state axes: of NHWC data a channels_last view.
        self._tensors = [tuple(
            None if array is None else self._laid_out(
                channels_first(torch, operand, tensor_of(torch, array)))
            for array, operand in zip(arrays, self._operands, strict=False)) for arrays in sets]
        example: Any = self._tensors[0][0]
        call: Any = _call_of(torch, problem, self._way,
                             lambda shape: self._laid_out(example.new_empty(shape)))
        # A wider result than PyTorch's is cast, as that of a filter under autocast.
        self._call = (lambda *inputs: _widened(call(*inputs))) if problem.spec.widened else call
        self.results: list[Any] = [None] * len(sets)

    def _laid_out(self, tensor: Any) -> Any:
        if tensor.dim() != 4 or self._way == "matmul":
            return tensor
        return tensor.contiguous(memory_format=self._torch.channels_last
                                 if self._way == "channels_last" else self._torch.contiguous_format)

    @property
    def rounding(self) -> Rounding:
        """What PyTorch's libraries may do: of 16 bits round what lies between their steps, too."""
        if self.tf32:
            return Rounding("tf32")
        short = self._element.bytes < ACCUMULATOR.bytes
        return Rounding("steps16" if short else "sum")

    def outputs(self, index: int) -> list[Any]:
        """The results of a set, in the problem's own layout; of types that NumPy has."""
        made = self.results[index] if len(self._outputs) > 1 else [self.results[index]]
        results = [as_laid_out(self._torch, output, y)
                   for output, y in zip(self._outputs, made, strict=True)]
        return [y.float() if y.dtype is self._torch.bfloat16 and not y.is_cuda else y
                for y in results]

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


def _widened(result: Any) -> Any:
    """A result with sums of float32, the filter's alone of both gradients."""
    return (result[0], result[1].float()) if isinstance(result, tuple) else result.float()


def _call_of(torch: Any, problem: ConvProblem, way: str,
             blank: Callable[[tuple[int, ...]], Any]) -> Callable[..., Any]:
    """The function of a problem's inputs; *blank* makes a tensor as the way lays it out."""
    if problem.operation != "conv":
        return (_gradient_product(torch, problem) if way == "matmul"
                else _gradient(torch, problem, blank))
    spec = problem.spec
    convolve = (_product if way == "matmul" else _convolution)(torch, problem)
    act = _activation(torch, problem)
    if not (spec.residual or spec.scaled):
        return convolve if act is None else lambda *inputs: act(convolve(*inputs))

    def call(x: Any, w: Any, bias: Any, *further: Any) -> Any:
        if spec.scaled:
            x = x * further[-1][:, :, None, None]
        y = convolve(x, w, bias)
        if spec.residual == "before":
            y.add_(further[0])
        y = act(y) if act else y
        return y.add_(further[0]) if spec.residual == "after" else y

    return call


def _padding(problem: ConvProblem) -> tuple[tuple[int, int], tuple[int, ...]]:
    """Padding that PyTorch's convolutions take, and what `pad` must do before them; () for none."""
    top, bottom, left, right = problem.padding
    even = (top, left) == (bottom, right)
    return ((top, left), ()) if even else ((0, 0), (left, right, top, bottom))


def _convolution(torch: Any, problem: ConvProblem) -> Callable[..., Any]:
    spec, functional = problem.spec, torch.nn.functional
    padding, pad = _padding(problem)
    stride, dilation, groups = spec.stride, spec.dilation, spec.groups
    if not pad:
        return lambda x, w, bias: functional.conv2d(x, w, bias, stride, padding, dilation, groups)
    return lambda x, w, bias: functional.conv2d(functional.pad(x, pad), w, bias, stride, padding,
                                                dilation, groups)


def _product(torch: Any, problem: ConvProblem) -> Callable[..., Any]:
    """A 1x1 convolution as a product of the filter with every image."""
    spec = problem.spec
    if spec.layout == "nhwc":
        return _pixels_product(torch, problem)
    images = (problem.batch, spec.in_channels, problem.height * problem.width)
    filters = (problem.batch, spec.out_channels, spec.in_channels)

    def call(x: Any, w: Any, bias: Any) -> Any:
        w, x = w.view(filters[1:]).expand(filters), x.view(images)
        return (torch.bmm(w, x) if bias is None
                else torch.baddbmm(bias.view(1, -1, 1), w, x)).view(problem.y_shape)

    return call


def _pixels_product(torch: Any, problem: ConvProblem) -> Callable[..., Any]:
    """A 1x1 convolution of channels_last images as one product of all pixels with the filter."""
    spec, (batch, height, width, outs) = problem.spec, problem.y_shape

    def call(x: Any, w: Any, bias: Any) -> Any:
        y = torch.nn.functional.linear(_pixels(x), w.view(outs, spec.in_channels), bias)
        return y.view(batch, height, width, outs).permute(0, 3, 1, 2)

    return call


def _pixels(images: Any) -> Any:
    """A channels_last tensor's matrix of (pixels, channels)."""
    return images.permute(0, 2, 3, 1).reshape(-1, images.shape[1])


def _gradient(torch: Any, problem: ConvProblem,
              blank: Callable[[tuple[int, ...]], Any]) -> Callable[..., Any]:
    """What autograd calls for a convolution, asked for one of the gradients, or for both."""
    spec, functional = problem.spec, torch.nn.functional
    by_input = problem.operation == "input_gradient"
    both = problem.operation == "gradients"
    padding, pad = _padding(problem)
    left, right, top, bottom = pad or (0, 0, 0, 0)
    # Of the operand that the gradient is by, shape and layout are read alone.
    unread = blank((problem.batch, spec.in_channels, problem.height + top + bottom,
                    problem.width + left + right) if by_input else spec.w_shape)
    mask = [by_input or both, not by_input, False]
    backward, rows, columns = (torch.ops.aten.convolution_backward,
                               slice(top, top + problem.height), slice(left, left + problem.width))

    def of(gradient: Any, x: Any, w: Any) -> Any:
        return backward(gradient, x, w, None, spec.stride, padding, spec.dilation, False, [0, 0],
                        spec.groups, mask)[0 if by_input else 1]

    def of_both(x: Any, gradient: Any, w: Any) -> Any:
        of_x, of_w, _ = backward(gradient, functional.pad(x, pad) if pad else x, w, None,
                                 spec.stride, padding, spec.dilation, False, [0, 0], spec.groups,
                                 mask)
        return of_x[:, :, rows, columns] if pad else of_x, of_w

    if both:
        return of_both
    if not by_input:
        return lambda x, gradient: of(gradient, functional.pad(x, pad) if pad else x, unread)
    if not pad:
        return lambda gradient, w: of(gradient, unread, w)
    return lambda gradient, w: of(gradient, unread, w)[:, :, rows, columns]


def _gradient_product(torch: Any, problem: ConvProblem) -> Callable[..., Any]:
    """The gradients of a 1x1 convolution as products of matrices, an image each."""
    spec, area = problem.spec, problem.height * problem.width
    if spec.layout == "nhwc":
        if problem.operation == "weight_gradient":
            return lambda x, gradient: torch.matmul(
                _pixels(gradient).t(), _pixels(x)).view(spec.w_shape)
        return lambda gradient, w: torch.matmul(
            _pixels(gradient), w.view(spec.out_channels, -1)).view(
                problem.x_shape).permute(0, 3, 1, 2)
    x_shape, y_shape = ((problem.batch, channels, area)
                        for channels in (spec.in_channels, spec.out_channels))
    if problem.operation == "input_gradient":
        return lambda gradient, w: torch.matmul(
            w.view(spec.out_channels, -1).t(), gradient.view(y_shape)).view(problem.x_shape)
    return lambda x, gradient: torch.bmm(
        gradient.view(y_shape), x.view(x_shape).transpose(1, 2)).sum(0).view(spec.w_shape)


def _activation(torch: Any, problem: ConvProblem) -> Callable[[Any], Any] | None:
    """In place, which is the fastest that PyTorch has after a convolution."""
    functional, activation = torch.nn.functional, problem.spec.activation
    if activation is None:
        return None
    if activation == "sigmoid":
        return torch.sigmoid_  # type: ignore[no-any-return]
    function = getattr(functional, activation)
    return lambda y: function(y, inplace=True)


def tensor_of(torch: Any, array: Any) -> Any:
    """An array as a tensor that shares its memory; of NumPy's bfloat16, too."""
    if isinstance(array, np.ndarray) and array.dtype == ELEMENTS["bfloat16"].numpy:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.as_tensor(array)
