"""Backward pass of a convolution with its epilogue, the same for eager calls and for operators.

What is kept from the forward pass is never more than PyTorch keeps. The gradient of most
activations is read off their result. That of silu and hardswish needs what they were applied to,
which one more convolution computes anew: a pass that the forward one has saved, and no memory. The
same serves the others where a residual was added after them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dscore.torch.layer import Epilogue, Layer, memory_format

# Activations whose gradient needs what they were applied to.
_BY_ARGUMENT = ("silu", "hardswish")


class Steps(NamedTuple):
    """The operations that the gradients of all orders are made of.

    convolution(x, w, bias, residual, scale, layer, epilogue), input_gradient(gradient, w, x_shape,
    layer), weight_gradient(x, gradient, w_shape, layer, dtype); and both gradients at once, which
    are not differentiated further: both(x, gradient, w, layer, dtype).
    """

    convolution: Callable[..., Tensor]
    input_gradient: Callable[..., Tensor]
    weight_gradient: Callable[..., Tensor]
    both: Callable[..., tuple[Tensor, Tensor]]


class Kept(NamedTuple):
    """Constants that the gradients need of a call.

    *again*: what the activation was applied to must be computed again. *form*: the memory format of
    the result, in which its gradient is taken. *w_dtype*: the type of the filter's gradient, if it
    is not that of the images.
    """

    layer: Layer
    epilogue: Epilogue
    x_shape: tuple[int, ...]
    w_shape: tuple[int, ...]
    again: bool
    form: torch.memory_format
    w_dtype: torch.dtype | None = None


def kept_of(x: Tensor, w: Tensor, y: Tensor, layer: Layer, epilogue: Epilogue,
            residual: bool, master: Tensor | None = None) -> Kept:
    """The constants of a call with the result *y*, with or without a *residual*; *master* as in
    `save`."""
    activation, after = epilogue.activation, epilogue.residual_after and residual
    again = activation in _BY_ARGUMENT or (activation is not None and after)
    form = torch.contiguous_format if _batched(y) else memory_format(y)
    return Kept(layer, epilogue, x.shape, w.shape, again, form,
                None if master is None else master.dtype)


def laid_as_result(gradient: Tensor, kept: Kept) -> Tensor:
    """The gradient by a result, in the memory format of that result.

    Some of PyTorch's backward passes give another one, as a mean's do for channels_last. Both
    gradients would follow it, and so would those of all layers before, by kernels of two layouts.
    """
    return gradient if _batched(gradient) else gradient.contiguous(memory_format=kept.form)


def _batched(tensor: Tensor) -> bool:
    """Whether a vmap may batch a tensor, which then has no memory format."""
    functorch = torch._C._functorch
    return (torch._C._are_functorch_transforms_active()
            or functorch.is_legacy_batchedtensor(tensor))


def save(ctx: Any, inputs: Sequence[Tensor | None], y: Tensor, layer: Layer,
         epilogue: Epilogue, master: Tensor | None = None) -> None:
    """Keep in *ctx* what the gradients need of *inputs* (x, w, bias, residual, scale) and of *y*.

    *master*: the filter that autocast has made w of, if the gradient is to be of its type.
    """
    x, w, _, residual, _ = inputs
    assert x is not None
    assert w is not None
    ctx.kept = kept_of(x, w, y, layer, epilogue, residual is not None, master)
    keep(ctx, inputs, y, ctx.kept)


def keep(ctx: Any, inputs: Sequence[Tensor | None], y: Tensor, kept: Kept) -> None:
    """Keep in *ctx* the tensors that the gradients need."""
    (x, w, bias, residual, scale), again, needed = inputs, kept.again, ctx.needs_input_grad
    by_x, by_w, by_scale = needed[0], by_filter(ctx, kept), scale is not None and needed[4]
    ctx.save_for_backward(
        x if by_w or by_scale or again else None, w if by_x or by_scale or again else None,
        bias if again else None,
        residual if again and not kept.epilogue.residual_after else None, scale,
        y if kept.epilogue.activation is not None and not again else None)


def gradients(ctx: Any, saved: Sequence[Any], gradient: Tensor,
              steps: Steps) -> tuple[Tensor | None, ...]:
    """Gradients by x, w, bias, residual and scale; None for those that are not asked for.

    *saved*: ``ctx.saved_tensors``, which a checkpoint lets a backward pass read only once.
    """
    x, w, bias, residual, scale, y = saved
    by_x, _, by_bias, by_residual, by_scale = (*ctx.needs_input_grad, False, False)[:5]
    kept: Kept = ctx.kept
    by_w = by_filter(ctx, kept)
    activation, after = kept.epilogue
    gradient = laid_as_result(gradient, kept)
    of_residual = gradient if by_residual and after else None
    if activation is not None:
        if kept.again:
            y = steps.convolution(x, w, bias, residual, scale, kept.layer, Epilogue(
                None if activation in _BY_ARGUMENT else activation))
        gradient = activation_gradient(activation, gradient, y)
    if by_residual and not after:
        of_residual = gradient
    of_bias = gradient.sum((0, 2, 3)) if by_bias else None
    of_x = of_w = of_scale = None
    factor = None if scale is None else scale[:, :, None, None]
    if by_x and by_w and scale is None and may_take_both(kept, gradient):
        of_x, of_w = steps.both(x, gradient, w, kept.layer, kept.w_dtype)
        return of_x, of_w, of_bias, of_residual, None
    if by_x or by_scale:
        of_x = steps.input_gradient(gradient, w, kept.x_shape, kept.layer)
        of_scale = (of_x * x).sum((2, 3)) if by_scale else None
        of_x = None if not by_x else of_x if factor is None else of_x * factor
    if by_w:
        scaled = x if factor is None else x * factor
        of_w = steps.weight_gradient(scaled, gradient, kept.w_shape, kept.layer, kept.w_dtype)
    return of_x, of_w, of_bias, of_residual, of_scale


def may_take_both(kept: Kept, gradient: Tensor) -> bool:
    """Whether one kernel may make both gradients: of layers with a filter for each channel, on
    images with the channels last, where nothing is to be known but the values."""
    outs, group_in = kept.w_shape[:2]
    return (outs == kept.layer.groups > 1 == group_in and kept.form is torch.channels_last
            and not torch.is_grad_enabled() and not _batched(gradient))


def by_filter(ctx: Any, kept: Kept) -> bool:
    """Whether the filter's gradient is wanted, by the filter itself or by its master."""
    return ctx.needs_input_grad[1] or kept.w_dtype is not None


def to_master(gradients: Sequence[Tensor | None], kept: Kept) -> tuple[Tensor | None, ...]:
    """*gradients*, with one more by the filter that autocast has made w of, in place of that by w.
    """
    of_x, of_w, *others = gradients
    if kept.w_dtype is None:
        return of_x, of_w, *others, None
    return of_x, None, *others, of_w


def activation_gradient(activation: str, gradient: Tensor, y: Tensor) -> Tensor:
    """The gradient by what an activation was applied to.

    *y* is what it was applied to for silu and hardswish, else its result. relu, relu6 and
    hardsigmoid are not differentiable twice.
    """
    aten = torch.ops.aten
    if activation == "relu":
        return aten.threshold_backward(gradient, y.detach(), 0)  # type: ignore[no-any-return]
    if activation == "relu6":
        return aten.hardtanh_backward(gradient, y.detach(), 0, 6)  # type: ignore[no-any-return]
    if activation in ("sigmoid", "hardsigmoid"):
        return gradient * (y * (1 - y) if activation == "sigmoid" else ((y > 0) & (y < 1)) / 6)
    if activation == "silu" and torch.is_grad_enabled():  # silu_backward has no derivative
        gate = torch.sigmoid(y)
        return gradient * gate * (1 + y * (1 - gate))
    if activation == "silu":
        return aten.silu_backward(gradient, y)  # type: ignore[no-any-return]
    return aten.hardswish_backward(gradient, y)  # type: ignore[no-any-return]
