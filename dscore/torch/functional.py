"""Function `conv2d`: the way of a call to dscore's kernel, to an operator, or to PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from dscore.api import conv
from dscore.calling.arguments import PaddingLike, PairLike
from dscore.calling.call_cache import CALLS
from dscore.core.errors import SpecError
from dscore.core.spec import Activation
from dscore.torch import backward
from dscore.torch.casting import cast_of
from dscore.torch.convolution import convolution
from dscore.torch.layer import Epilogue, Layer, constants_of, result_shape
from dscore.torch.operators import OPERATORS, by_operators, steps_for
from dscore.torch.recorded import DIRECT, recorded, remember
from dscore.torch.remainder import by_pytorch, note, note_traced, reason_for_pytorch

Operands = tuple[Tensor | None, ...]  # x, w, bias, residual, scale

# Each is looked up once: an eager call is to cost little more than its launch.
_fast_call = CALLS.fast.get
_gradients_on, _autocast_on = torch.is_grad_enabled, torch.is_autocast_enabled
_dispatch_modes = torch._C._len_torch_dispatch_stack
_traced_by_dynamo = torch.compiler.is_dynamo_compiling


def conv2d(x: Tensor, w: Tensor, bias: Tensor | None = None, stride: PairLike = 1,
           padding: PaddingLike = 0, dilation: PairLike = 1, groups: int = 1, *,
           activation: Activation | None = None, residual: Tensor | None = None,
           residual_after: bool = False, scale: Tensor | None = None, backend: str = "auto",
           arithmetic: str | None = None) -> Tensor:
    """Convolution of tensors, differentiable: ``activation(conv2d(x * scale, w) + bias)``.

    The positional arguments are those of ``torch.nn.functional.conv2d``, in its order; shapes,
    paddings and activations are those of `dscore.conv`.

    - *residual*: of the result's shape, added before the activation, or with *residual_after*
      after it.
    - *scale*: of shape (N, C) or (N, C, 1, 1), without N for one image: x is multiplied by it.
    - *backend*: "auto" computes by dscore's kernels what they take (CUDA tensors of float32,
      float16 or bfloat16), and leaves all else to PyTorch's convolution (`left_to_pytorch` lists
      it). A backend by its name computes in any case or raises: "hip" on GPUs, "reference" and
      "emulated" on the CPU.
    - *arithmetic*: that of `dscore.conv`.

    Under autocast, operands are cast to its type, as PyTorch's convolution does. Channels_last
    tensors are taken as they lie, and give such results.

    It can be used under torch.compile, torch.export, in CUDA graphs, in torch.func's transforms,
    and differentiated any number of times. Raises SpecError for what is no convolution,
    CompileError and LaunchError as `dscore.conv` does, UnavailableError without a compiler.

    >>> x, w = torch.ones(1, 2, 3, 3), torch.ones(2, 1, 3, 3, requires_grad=True)
    >>> y = conv2d(x, w, padding="same", groups=2, activation="relu")
    >>> y.sum().backward()
    >>> w.grad[0, 0, 1].tolist()
    [6.0, 9.0, 6.0]
    """
    master = w  # by whose identity a call is remembered, though autocast makes another each time
    if not (_traced_by_dynamo() or _dispatch_modes()):
        if _autocast_on():
            x, w, bias, residual, scale = cast(
                Any, _under_autocast((x, w, bias, residual, scale)))
        try:
            if residual is None and scale is None:
                key = (id(master), bias is None, stride, padding, dilation, groups, activation,
                       backend, arithmetic)
                if _gradients_on():
                    y = recorded(key, x, w, bias, _master_of(w, master))
                else:
                    call = _fast_call(key)
                    y = None if call is None else call(x, w, bias, None)
            elif _gradients_on():
                y = None
            else:
                side = None if residual is None else "after" if residual_after else "before"
                call = _fast_call((id(master), bias is None, stride, padding, dilation, groups,
                                   activation, backend, arithmetic, side, scale is not None))
                y = None if call is None else call(
                    x, w, bias, *[one for one in (residual, scale) if one is not None], None)
        except TypeError:  # an option that cannot be hashed
            y = None
        if y is not None:
            return y
    return _conv2d(x, w, bias, stride, padding, dilation, groups, activation, residual,
                   residual_after, scale, backend, arithmetic, master)


def _conv2d(x: Tensor, w: Tensor, bias: Tensor | None, stride: PairLike, padding: PaddingLike,
            dilation: PairLike, groups: int, activation: Activation | None,
            residual: Tensor | None, residual_after: bool, scale: Tensor | None, backend: str,
            arithmetic: str | None, master: Tensor) -> Tensor:
    """The same for a call that is not a remembered one."""
    _require_operands(x, w, bias, residual, scale)
    if x.dim() == 3:
        one = _conv2d(x.unsqueeze(0), w, bias, stride, padding, dilation, groups, activation,
                      None if residual is None else residual.unsqueeze(0), residual_after,
                      None if scale is None else scale.unsqueeze(0), backend, arithmetic, master)
        return one.squeeze(0)
    layer, epilogue = constants_of(x, w, stride, padding, dilation, groups, backend, arithmetic,
                                   activation, residual_after)
    y_shape = result_shape(x.shape, w.shape, layer)
    _require_shapes(x, w, bias, residual, scale, y_shape)
    factor = scale if scale is None or scale.dim() == 2 else scale.flatten(1)
    tensors = x, w, bias, residual, factor
    operands: Any = _under_autocast(tensors)
    unchanged = all(one is other for one, other in zip(operands, tensors, strict=True))
    reason = reason_for_pytorch(operands[0], operands[1], y_shape, layer, operands[3])
    if reason:
        if torch.compiler.is_compiling():
            note_traced("conv", tuple(w.shape), tuple(layer), reason)
        else:
            note("conv", w.shape, layer, reason)
        return by_pytorch(*tensors, layer, epilogue)
    wide = _master_of(operands[1], master)
    if by_operators(operands):
        # Outside of compiled programs a transform may batch the filter, or record its gradient.
        return OPERATORS.convolution(*operands, layer, epilogue,
                                     wide if torch.compiler.is_compiling() else None)
    if _gradients_on() and any(one is not None and one.requires_grad for one in operands):
        y: Tensor = _recorded(*operands, wide, layer, epilogue)
        if unchanged and residual is None and scale is None:
            remember((id(master), bias is None, stride, padding, dilation, groups, activation,
                      backend, arithmetic), x, w, bias, y, layer, epilogue, wide)
        return y
    if not unchanged or not (scale is None or layer.is_pointwise(w.shape)):
        return convolution(*operands, layer, epilogue)  # type: ignore[call-arg]
    # By the caller's own options, by which the next call finds it.
    return conv(x, w, bias, stride, padding, dilation, groups, activation=activation,
                backend=backend, arithmetic=cast(Any, arithmetic), residual=residual,
                residual_after=residual_after, scale=scale)


def _under_autocast(operands: Operands) -> Operands:
    """Operands as autocast has them, where it is on; else those given."""
    x = operands[0]
    if not isinstance(x, Tensor):  # which the call refuses
        return operands
    if x.device.type not in ("cpu", "cuda") or not _autocast_on(x.device.type):
        return operands
    dtype = torch.get_autocast_dtype(x.device.type)
    x, w, *others = operands
    if (cast := cast_of(w, dtype)) is None:
        # A channels_last model has filters in another order; they are written as kernels take them.
        cast = _cast_to(dtype, w, torch.contiguous_format)
    return _cast_to(dtype, x), cast, *(_cast_to(dtype, one) for one in others)


def _cast_to(dtype: torch.dtype, one: Any, form: torch.memory_format = torch.preserve_format
             ) -> Any:
    """An operand as autocast to *dtype* has it."""
    if (not isinstance(one, Tensor) or not one.is_floating_point()
            or one.dtype in (torch.float64, dtype)):
        return one
    return one.to(dtype, memory_format=form)


def _master_of(w: Tensor, given: Tensor) -> Tensor | None:
    """The float32 filter *given*, where autocast has made *w* of it and it wants a gradient; else
    None. Its gradient is of its own type: sums are of float32, and need not be rounded and cast.
    """
    if w is given or given.dtype is not torch.float32 or not given.requires_grad:
        return None
    return given if w.dtype in (torch.float16, torch.bfloat16) else None


class _Convolution(torch.autograd.Function):
    """Eager convolution that records its gradient; *master* as in `backward.save`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None,
                scale: Tensor | None, master: Tensor | None, layer: Layer,
                epilogue: Epilogue) -> Tensor:
        y = convolution(x, w, bias, residual, scale, layer, epilogue)
        backward.save(ctx, (x, w, bias, residual, scale), y, layer, epilogue, master)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        steps = steps_for(gradient, DIRECT)
        results = backward.gradients(ctx, ctx.saved_tensors, gradient, steps)
        return *backward.to_master(results, ctx.kept), None, None


_recorded: Any = _Convolution.apply


def _require_operands(x: Any, w: Any, bias: Any, residual: Any, scale: Any) -> None:
    for name, operand in (("x", x), ("w", w), ("bias", bias), ("residual", residual),
                          ("scale", scale)):
        if not isinstance(operand, Tensor) and (operand is not None or name in "xw"):
            raise SpecError(f"{name} must be a tensor, got {type(operand).__name__}; "
                            "dscore.conv takes arrays of other libraries")
    if x.dim() not in (3, 4) or w.dim() != 4:
        raise SpecError("x must have 4 axes (N, C, H, W), or 3 for one image, and w 4 (out "
                        f"channels, C / groups, kernel height, width), got shapes "
                        f"{tuple(x.shape)} and {tuple(w.shape)}")


def _require_shapes(x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None,
                    scale: Tensor | None, y_shape: tuple[int, ...]) -> None:
    if bias is not None:
        _require_shape("bias", bias, w.shape[:1])
    if residual is not None:
        _require_shape("residual", residual, y_shape)
    if scale is not None:
        _require_shape("scale", scale, (*x.shape[:2], 1, 1)[:2 if scale.dim() < 4 else 4])


def _require_shape(name: str, operand: Tensor, shape: Sequence[int]) -> None:
    if tuple(operand.shape) != tuple(shape):
        raise SpecError(f"{name} must have shape {tuple(shape)}, got {tuple(operand.shape)}")
