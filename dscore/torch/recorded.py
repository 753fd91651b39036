"""Calls that record gradients, remembered with all that is the same at each of them.

What the forward pass has checked is not checked again; the backward pass checks the gradient that
comes in, and the tensors that autograd has kept. Calls of other tensors take the general way.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from dscore.calling.call_cache import CALLS, MOST_CALLS, MOST_VARIANTS, FastCall
from dscore.calling.gpu_arrays import tensor_guard
from dscore.torch import backward, gradients
from dscore.torch.backward import Kept, Steps, activation_gradient
from dscore.torch.convolution import convolution
from dscore.torch.layer import Epilogue, Layer
from dscore.torch.operators import steps_for

DIRECT = Steps(convolution, gradients.input_gradient, gradients.weight_gradient, gradients.both)
_gradients_on = torch.is_grad_enabled
_dispatch_modes = torch._C._len_torch_dispatch_stack


class RecordedCall:
    """Call of a layer on GPU tensors, without residual and scale, whose gradients are recorded.

    `takes` tells whether it is for tensors (x, w, and bias if there is one).
    """

    __slots__ = ("_both", "_by_input", "_by_weight", "_learned", "_like", "kept", "start", "takes")

    def __init__(self, takes: Callable[..., bool], start: FastCall, kept: Kept) -> None:
        self.takes, self.start, self.kept = takes, start, kept
        self._like: Callable[..., bool] = _never
        self._learned = 0
        self._by_input: FastCall = _never
        self._by_weight: FastCall = _never
        self._both: FastCall | None = None

    def gradients(self, ctx: Any, saved: Sequence[Any], gradient: Tensor) -> tuple[Any, ...] | None:
        """The gradients by x, w and bias; None for what takes the general way."""
        x, w, _, _, _, y = saved
        if _gradients_on() or not self._like(*[one for one in (gradient, x, w) if one is not None]):
            return None
        activation = self.kept.epilogue.activation
        if activation is not None:
            gradient = activation_gradient(activation, gradient, y)
        by_x, _, by_bias, *_ = ctx.needs_input_grad
        by_w = backward.by_filter(ctx, self.kept)
        if self._both is not None and by_x and by_w:
            of_x, of_w = self._both(x, gradient, w) or (None, None)
        else:
            of_x = self._by_input(gradient, w, None) if by_x else None
            of_w = self._by_weight(x, gradient, None) if by_w else None
        if (by_x and of_x is None) or (by_w and of_w is None):  # one begins amid a vector
            return None
        return of_x, of_w, gradient.sum((0, 2, 3)) if by_bias else None

    def learn(self, ctx: Any, saved: Sequence[Any], gradient: Tensor) -> None:
        """Remember the calls that have computed the gradients of a *gradient* like this one."""
        kept, by_x = self.kept, ctx.needs_input_grad[0]
        by_w = backward.by_filter(ctx, kept)
        if kept.again or self._learned == MOST_VARIANTS:
            return
        self._learned += 1  # of layers whose gradients PyTorch computes there is nothing to learn
        x, w, *_ = saved
        by_input, by_weight, both = gradients.remembered(
            gradient, x if by_w else None, w if by_x else None, kept.x_shape, kept.w_shape,
            kept.layer, kept.w_dtype)
        like = tensor_guard(tuple(one for one in (gradient, x, w) if one is not None))
        apart = (by_input or not by_x) and (by_weight or not by_w)
        if like and (apart or both):
            self._by_input, self._by_weight = by_input or _never, by_weight or _never
            self._both, self._like = both, like


def _never(*tensors: Any) -> Any:
    """The guard that takes nothing, and the call that computes nothing."""


class _Recorded(torch.autograd.Function):
    """Eager convolution by a remembered call, which records its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, master: Tensor | None,
                call: RecordedCall) -> Tensor:
        kept, y = call.kept, call.start(x, w, bias, None)
        if y is None:  # x begins amid a vector
            y = convolution(x, w, bias, None, None, kept.layer, kept.epilogue)
        ctx.call, ctx.kept = call, kept
        backward.keep(ctx, (x, w, bias, None, None), y, kept)
        return y  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        call: RecordedCall = ctx.call
        saved = ctx.saved_tensors  # which a checkpoint lets be read only once
        gradient = backward.laid_as_result(gradient, call.kept)
        result = call.gradients(ctx, saved, gradient)
        if result is None:
            steps = steps_for(gradient, DIRECT)
            result = backward.gradients(ctx, saved, gradient, steps)[:3]
            if steps is DIRECT:
                call.learn(ctx, saved, gradient)
        return *backward.to_master(result, call.kept), None


# Function.apply looks for wrappers of torch.func, which no guard takes, and for defaults.
_apply: Any = super(torch.autograd.Function, _Recorded).apply
_calls: dict[Hashable, tuple[RecordedCall, ...]] = {}
_calls_of = _calls.get


def recorded(key: Hashable, x: Tensor, w: Tensor, bias: Tensor | None, master: Tensor | None
             ) -> Tensor | None:
    """The result of the remembered call of that *key* for such tensors; None where there is none.

    *master* as in `backward.save`.
    """
    for call in _calls_of(key, ()):
        if (call.kept.w_dtype == (None if master is None else master.dtype)
                and (call.takes(x, w) if bias is None else call.takes(x, w, bias))
                and not _dispatch_modes() and forward_ad._current_level < 0):
            return _apply(x, w, bias, master, call)  # type: ignore[no-any-return]
    return None


def remember(key: Hashable, x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, layer: Layer,
             epilogue: Epilogue, master: Tensor | None) -> None:
    """Keep the call that has just computed *y* of such tensors, by *key* for the next time."""
    tensors = (x, w) if bias is None else (x, w, bias)
    calls, takes = _calls.get(key, ()), tensor_guard(tensors)
    if takes is None or len(calls) == MOST_VARIANTS or any(one.takes(*tensors) for one in calls):
        return
    with torch.no_grad():
        stride, padding, dilation, groups, backend, arithmetic = layer
        start = CALLS.unguarded((x, w, bias), (stride, padding, dilation, groups,
                                               epilogue.activation, backend, arithmetic))
    if start is None:  # of host arrays
        return
    if len(_calls) >= MOST_CALLS:
        _calls.clear()
    _calls[key] = (*calls, RecordedCall(takes, start, backward.kept_of(
        x, w, y, layer, epilogue, False, master)))
