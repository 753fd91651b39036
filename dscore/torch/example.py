"""Example of a model's inputs: what its modules are called with, by values or by shapes alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves, tree_map

from dscore.torch.attributes import Attributes

# Elements of the arguments, of some ten images for ImageNet.
_MUCH = 2**21


def is_much(arguments: tuple[Any, ...]) -> bool:
    """Whether a model takes longer to compute on these than PyTorch does to find shapes."""
    return sum(one.numel() for one in tree_leaves(arguments)
               if isinstance(one, Tensor) and not one.is_cuda) > _MUCH


@contextmanager
def shapes_alone(model: nn.Module, arguments: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Context in which nothing is computed but shapes, with the arguments for it; the model keeps
    none of what it sets attributes to. Parameters that have no shape yet cannot be found so."""
    from torch._subclasses.fake_tensor import FakeTensorMode  # takes long

    if any(map(is_lazy, chain(model.parameters(), model.buffers()))):
        raise ValueError("lazy parameters")
    attributes = Attributes(model)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            yield tree_map(lambda one: mode.from_tensor(one) if isinstance(one, Tensor) else one,
                           arguments)
    finally:
        attributes.put_back()


def copied(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments that a model may overwrite, as an activation in place does, without a change of the
    caller's tensors."""
    return tuple(tree_map(lambda one: one.clone() if isinstance(one, Tensor) else one, arguments))


def arguments_seen(model: nn.Module, arguments: tuple[Any, ...]
                   ) -> tuple[dict[str, tuple[Any, ...]], Any]:
    """The arguments of each module at its first call without named ones; and the result."""
    seen: dict[str, tuple[Any, ...]] = {}

    def see(name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if not named:
            seen.setdefault(name, arguments)

    handles = [module.register_forward_pre_hook(
        lambda _, args, named, name=name: see(name, args, named), with_kwargs=True)
        for name, module in model.named_modules() if not isinstance(module, torch.jit.ScriptModule)]
    try:
        result = model(*copied(arguments))
    finally:
        for handle in handles:
            handle.remove()
    return seen, result
