"""Casts of a model's filters to the type of autocast, all by one launch.

Autocast casts a filter where it is used: a launch for each layer, of which most are shorter than
the start of a kernel. An accelerated model casts all of them before its first layer. What is made
of a filter lives for one forward pass of one thread, and is taken only of a filter that was not
written since.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.library import define, impl, register_fake
from torch.nn import Parameter

_compiling = torch.compiler.is_compiling
_transforming = torch._C._are_functorch_transforms_active
_SHORT = (torch.float16, torch.bfloat16)
# In place of a version, of a cast without gradient, which eager calls are not to take.
_OF_A_PROGRAM = -1

define("dscore::cast_filters", "(Tensor[] filters, ScalarType dtype) -> Tensor[]",
       tags=(torch.Tag.pt2_compliant_tag,))


def _empty_casts(filters: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """C-contiguous tensors, as kernels take filters."""
    return [torch.empty(one.shape, dtype=dtype, device=one.device) for one in filters]


register_fake("dscore::cast_filters")(_empty_casts)


@impl("dscore::cast_filters", "default")
def _cast(filters: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    results = _empty_casts(filters, dtype)
    pairs = [*zip(results, filters, strict=True)]
    # PyTorch takes one launch for tensors of equal strides, which those of axes of 1 may not be.
    flat = [(to.view(-1), one.view(-1)) for to, one in pairs if one.is_contiguous()]
    if flat:
        torch._foreach_copy_([to for to, _ in flat], [one for _, one in flat])
    for to, one in pairs:
        if not one.is_contiguous():
            to.copy_(one)
    return results


class _Cast(torch.autograd.Function):
    """The same, whose gradients come back in the types of the filters."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *filters: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple(torch.ops.dscore.cast_filters(filters, dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        return None, *(None if one is None else one.to(torch.float32) for one in gradients)


_together: Any = _Cast.apply


class _Casts(threading.local):
    """Casts of a thread: what was made of each filter, and the filter's version then."""

    of: Mapping[Tensor, tuple[Tensor, int]] = {}


_CASTS = _Casts()


@contextmanager
def filters_cast(filters: Iterable[Any]) -> Iterator[None]:
    """Context in which `cast_of` knows the casts of those of *filters* that autocast would cast."""
    before = _CASTS.of
    _CASTS.of = {**before, **_casts_of(filters)}
    try:
        yield
    finally:
        _CASTS.of = before


def _casts_of(filters: Iterable[Any]) -> Mapping[Tensor, tuple[Tensor, int]]:
    """The casts of *filters* by autocast; none of those that are no plain float32 parameters."""
    plain = [one for one in dict.fromkeys(filters) if type(one) is Parameter and one.dim() == 4
             and one.dtype is torch.float32 and one.device.type in ("cuda", "cpu")
             and (_compiling() or not one.is_inference())]  # of which no version is known
    device = plain[0].device if plain else None
    plain = [one for one in plain if one.device == device]
    if device is None or len(plain) < 2 or not torch.is_autocast_enabled(device.type) \
            or _transforming() or torch.autograd.forward_ad._current_level >= 0:
        return {}
    dtype = torch.get_autocast_dtype(device.type)
    if dtype not in _SHORT:
        return {}
    if _compiling():  # by whose operators the gradient goes to the filter itself
        with torch.no_grad():
            return {one: (cast, _OF_A_PROGRAM) for one, cast in zip(
                plain, torch.ops.dscore.cast_filters(plain, dtype), strict=True)}
    return {one: (cast, one._version) for one, cast in zip(
        plain, _together(dtype, *plain), strict=True)}


def cast_of(w: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """The cast of a filter that was made in this pass; None where there is none."""
    if not (_CASTS.of and isinstance(w, Parameter)):
        return None
    cast, version = _CASTS.of.get(w, (None, 0))
    if cast is None or cast.dtype is not dtype:
        return None
    return cast if _compiling() or version == w._version else None
