"""Operators of PyTorch's dispatcher, for what traces or transforms programs.

torch.ops.dscore.conv2d, .input_gradient and .weight_gradient serve torch.compile, torch.export,
torch.func, dispatch modes, and gradients of gradients: the derivative of each is made of the other
two. Where there are no further ones, .gradients is both gradients at once. A plain eager call does
without them, because the dispatcher costs a Python operator some microseconds (pytorch#177109).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import define, impl, register_autograd, register_fake, register_vmap
from torch.nn import Parameter

from dscore.torch import backward, batching, gradients
from dscore.torch.backward import Steps
from dscore.torch.convolution import convolution
from dscore.torch.layer import Epilogue, Layer, memory_format, result_shape

_LAYER = ("SymInt[] stride, SymInt[] padding, SymInt[] dilation, SymInt groups, str backend, "
          "str? arithmetic")
_PLAIN = (Tensor, Parameter)
_TAGS = (torch.Tag.pt2_compliant_tag,
         getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order))


def _layer(constants: Sequence[Any]) -> Layer:
    """The layer that *constants* begin with."""
    stride, padding, dilation, *others = constants[:len(Layer._fields)]
    return Layer(tuple(stride), tuple(padding), tuple(dilation), *others)


def _behind(constants: Sequence[Any]) -> Any:
    """What stands behind the layer; None where it is left out, as dispatchers do with defaults."""
    return next(iter(constants[len(Layer._fields):]), None)


def _define(name: str, schema: str, behind: str = "", result: str = "Tensor") -> None:
    define(f"dscore::{name}", f"({schema}, {_LAYER}{behind}) -> {result}", tags=_TAGS)


# The gradient by w is returned by *master*, if there is one, which w was made of, and of its type.
_define("conv2d", "Tensor x, Tensor w, Tensor? bias, Tensor? residual, Tensor? scale, "
        "str? activation, bool residual_after", ", Tensor? master=None")
_define("input_gradient", "Tensor gradient, Tensor w, SymInt[] x_shape")
_define("weight_gradient", "Tensor x, Tensor gradient, SymInt[] w_shape",
        ", ScalarType? dtype=None")
_define("gradients", "Tensor x, Tensor gradient, Tensor w", ", ScalarType? dtype=None",
        "(Tensor, Tensor)")


@impl("dscore::conv2d", "default")
def _conv2d(x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None,
            scale: Tensor | None, activation: Any, after: bool, *layer: Any) -> Tensor:
    return convolution(x, w, bias, residual, scale, _layer(layer), Epilogue(activation, after))


@impl("dscore::input_gradient", "default")
def _input_gradient(gradient: Tensor, w: Tensor, x_shape: Sequence[int], *layer: Any) -> Tensor:
    return gradients.input_gradient(gradient, w, x_shape, _layer(layer))


@impl("dscore::weight_gradient", "default")
def _weight_gradient(x: Tensor, gradient: Tensor, w_shape: Sequence[int], *layer: Any) -> Tensor:
    return gradients.weight_gradient(x, gradient, w_shape, _layer(layer), _behind(layer))


@impl("dscore::gradients", "default")
def _gradients(x: Tensor, gradient: Tensor, w: Tensor, *layer: Any) -> tuple[Tensor, Tensor]:
    return gradients.both(x, gradient, w, _layer(layer), _behind(layer))


def _empty(like: Tensor, shape: Sequence[Any], form: torch.memory_format) -> Tensor:
    return torch.empty(tuple(shape), dtype=like.dtype, device=like.device, memory_format=form)


@register_fake("dscore::conv2d")  # type: ignore[untyped-decorator]
def _conv2d_shape(x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None,
                  scale: Tensor | None, activation: str | None, after: bool,
                  *layer: Any) -> Tensor:
    shape = result_shape(x.shape, w.shape, _layer(layer))
    return _empty(x, shape, memory_format(x, residual))


@register_fake("dscore::input_gradient")  # type: ignore[untyped-decorator]
def _input_gradient_shape(gradient: Tensor, w: Tensor, x_shape: Sequence[int],
                          *layer: Any) -> Tensor:
    return _empty(gradient, x_shape, memory_format(gradient))


@register_fake("dscore::weight_gradient")  # type: ignore[untyped-decorator]
def _weight_gradient_shape(x: Tensor, gradient: Tensor, w_shape: Sequence[int],
                           *layer: Any) -> Tensor:
    return gradient.new_empty(w_shape, dtype=_behind(layer) or gradient.dtype)


@register_fake("dscore::gradients")  # type: ignore[untyped-decorator]
def _gradients_shape(x: Tensor, gradient: Tensor, w: Tensor, *layer: Any
                     ) -> tuple[Tensor, Tensor]:
    return (_empty(gradient, x.shape, memory_format(gradient)),
            gradient.new_empty(w.shape, dtype=_behind(layer) or gradient.dtype))


def conv2d(x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None,
           scale: Tensor | None, layer: Layer, epilogue: Epilogue,
           master: Tensor | None = None) -> Tensor:
    """The convolution by its operator; *master* as in `backward.save`."""
    return _dispatched(torch.ops.dscore.conv2d, Convolution, x, w, bias, residual, scale,
                       *epilogue, *layer, master)


def input_gradient(gradient: Tensor, w: Tensor, x_shape: Sequence[int], layer: Layer) -> Tensor:
    """The gradient by the input by its operator."""
    return _dispatched(torch.ops.dscore.input_gradient, InputGradient, gradient, w, x_shape,
                       *layer)


def weight_gradient(x: Tensor, gradient: Tensor, w_shape: Sequence[int], layer: Layer,
                    dtype: torch.dtype | None = None) -> Tensor:
    """The gradient by the filter by its operator."""
    return _dispatched(torch.ops.dscore.weight_gradient, WeightGradient, x, gradient, w_shape,
                       *layer, dtype)


def both(x: Tensor, gradient: Tensor, w: Tensor, layer: Layer, dtype: torch.dtype | None = None
         ) -> tuple[Tensor, Tensor]:
    """Both gradients by their operator, which has no derivative."""
    return torch.ops.dscore.gradients(x, gradient, w, *layer, dtype)  # type: ignore[no-any-return]


def _dispatched(operator: Any, function: Any, *arguments: Any) -> Tensor:
    """The operator's result, by the dispatcher or by torch.func."""
    call = function.apply if torch._C._are_functorch_transforms_active() else operator
    return call(*arguments)  # type: ignore[no-any-return]


OPERATORS = Steps(conv2d, input_gradient, weight_gradient, both)


def by_operators(tensors: tuple[Tensor | None, ...]) -> bool:
    """Whether something traces or transforms the program, which must see operators."""
    return (torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
            or torch._C._len_torch_dispatch_stack() > 0 or torch._C._get_tracing_state() is not None
            or any(one is not None and type(one) not in _PLAIN for one in tensors))


def steps_for(gradient: Tensor, direct: Steps) -> Steps:
    """*direct* where nothing else is to be known of the gradients than their values.

    Gradients of gradients are recorded by the operators; a batch of gradients (for which autograd
    has a vmap of its own, beside torch.func's) is taken apart by the dispatcher.
    """
    traced = (torch.is_grad_enabled() or by_operators((gradient,))
              or torch._C._functorch.is_legacy_batchedtensor(gradient))
    return OPERATORS if traced else direct


class _Differentiable(torch.autograd.Function):
    """An operator with its derivative and its batching rule, as torch.func takes them."""

    operator: Any
    rule: Any

    @classmethod
    def __init_subclass__(cls) -> None:
        """Give the operator the same derivative and the same rule, for compiled programs."""
        operator, rule = cls.operator, cls.rule

        def forward(*arguments: Any) -> Tensor:
            return operator(*arguments)  # type: ignore[no-any-return]

        def vmap(info: Any, dims: batching.Dims, *arguments: Any) -> tuple[Tensor, int]:
            joined, axis = rule(info.batch_size, dims, *arguments)
            y: Any = _dispatched(operator, cls, *joined)
            return y.unflatten(axis, (info.batch_size, -1)), axis

        function: Any = cls
        function.forward, function.vmap = staticmethod(forward), staticmethod(vmap)
        register_autograd(operator._qualified_op_name, cls.backward,
                          setup_context=cls.setup_context)
        register_vmap(operator._qualified_op_name, vmap)


class Convolution(_Differentiable):
    """torch.ops.dscore.conv2d."""

    operator, rule = torch.ops.dscore.conv2d, batching.conv2d

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        activation, after, *layer = inputs[5:]
        backward.save(ctx, inputs[:5], output, _layer(layer), Epilogue(activation, after),
                      _behind(layer))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        results = backward.gradients(ctx, ctx.saved_tensors, gradient, OPERATORS)
        *of_operands, of_master = backward.to_master(results, ctx.kept)
        return *of_operands, *[None] * 8, of_master


class InputGradient(_Differentiable):
    """torch.ops.dscore.input_gradient, which is linear in both operands."""

    operator, rule = torch.ops.dscore.input_gradient, batching.input_gradient

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        gradient, w, _, *layer = inputs
        ctx.layer = _layer(layer)
        ctx.save_for_backward(gradient, w)

    @staticmethod
    def backward(ctx: Any, by_result: Tensor) -> tuple[Any, ...]:
        gradient, w = ctx.saved_tensors
        of_gradient = of_w = None
        if ctx.needs_input_grad[0]:
            of_gradient = conv2d(by_result, w, None, None, None, ctx.layer, Epilogue())
        if ctx.needs_input_grad[1]:
            of_w = weight_gradient(by_result, gradient, w.shape, ctx.layer)
        return of_gradient, of_w, *[None] * 7


class WeightGradient(_Differentiable):
    """torch.ops.dscore.weight_gradient, which is linear in both operands."""

    operator, rule = torch.ops.dscore.weight_gradient, batching.weight_gradient

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, gradient, _, *layer = inputs
        ctx.layer = _layer(layer)
        ctx.save_for_backward(x, gradient)

    @staticmethod
    def backward(ctx: Any, by_result: Tensor) -> tuple[Any, ...]:
        x, gradient = ctx.saved_tensors
        by_result = by_result.to(x.dtype)  # of which the sums may be wider
        of_x = of_gradient = None
        if ctx.needs_input_grad[0]:
            of_x = input_gradient(gradient, by_result, x.shape, ctx.layer)
        if ctx.needs_input_grad[1]:
            of_gradient = conv2d(x, by_result, None, None, None, ctx.layer, Epilogue())
        return of_x, of_gradient, *[None] * 8
