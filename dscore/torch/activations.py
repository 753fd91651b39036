"""Activations in place, which cost a training one pass over memory more than others."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from dscore.torch.tracing import has_hooks, is_conv

# Those whose gradient is computed from what they were applied to: in place, PyTorch copies that
# first and overwrites the original then.
_COPYING = (nn.ReLU6, nn.Hardtanh, nn.SiLU, nn.Hardswish, nn.Hardsigmoid, nn.Mish)
# Marks a module that was in place.
_WAS_IN_PLACE = "_dscore_was_in_place"


def write_elsewhere(model: nn.Module) -> int:
    """Take activations of *model* out of place where that changes no value; how many.

    Such an activation stands in an `nn.Sequential` right after a convolution or a batch norm, whose
    result nothing else reads, and nowhere else.
    """
    safe: dict[nn.Module, bool] = {}
    for parent in model.modules():
        for before, module in pairwise([None, *parent._modules.values()]):
            if type(module) in _COPYING and module is not None and module.inplace:
                safe[module] = safe.get(module, True) and _is_alone(parent, before, module)
    moved = [module for module, alone in safe.items() if alone]
    for module in moved:
        module.inplace = False  # type: ignore[assignment]
        vars(module)[_WAS_IN_PLACE] = True
    return len(moved)


def _is_alone(parent: nn.Module, before: nn.Module | None, module: nn.Module) -> bool:
    """Whether *module*, a child of *parent*, alone reads a tensor that *before* has made."""
    sequence = isinstance(parent, nn.Sequential) and type(parent).forward is nn.Sequential.forward
    made = before is not None and (
        is_conv(before) or isinstance(before, nn.modules.batchnorm._BatchNorm))
    return sequence and made and not any(
        one is not None and has_hooks(one) for one in (parent, before, module))


def write_in_place(module: nn.Module) -> None:
    """Undo it for a module of which that was done."""
    if vars(module).pop(_WAS_IN_PLACE, False):
        module.inplace = True  # type: ignore[assignment]
