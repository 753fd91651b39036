"""Models by name: ``module:factory``, or the short name of one of torchvision's."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from dscore.core.errors import SpecError, UnavailableError, shown

# torchvision's depthwise-separable networks: those of the first paper's ablation, and MobileNetV3.
NETWORKS = ("mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "mnasnet1_0",
            "shufflenet_v2_x1_0")
_FORM = "it is written as module:factory, as torchvision.models:mobilenet_v2, or as one of "
_SHAPE = re.compile(r"[1-9][0-9]{0,6}(?:x[1-9][0-9]{0,6})*", re.ASCII)


def short_name(name: str) -> str:
    """The name under which a network is known: the short one, where it has one.

    >>> short_name("torchvision.models:mobilenet_v2"), short_name("mine:Net")
    ('mobilenet_v2', 'mine:Net')
    """
    short = name.removeprefix("torchvision.models:")
    return short if short in NETWORKS else name


def factory_of(name: str) -> Callable[[], nn.Module]:
    """The function that makes the model called *name*.

    It is a function or a class that takes no arguments, or a model. Modules are looked for in the
    working folder, too. Raises SpecError where there is none, UnavailableError where its module
    cannot be imported.

    >>> factory_of("torch.nn:Identity")()
    Identity()
    """
    module_name, _, path = (f"torchvision.models:{name}" if name in NETWORKS else name
                            ).partition(":")
    if not module_name or not path:
        raise SpecError(f"unknown network {shown(name)}; {_FORM}{', '.join(NETWORKS)}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        made = reduce(getattr, path.split("."), importlib.import_module(module_name))
    except AttributeError as absent:
        raise SpecError(f"{name}: {absent}") from None
    except Exception as failed:  # whatever a module raises while it is imported
        fix = "; pip install torchvision" if module_name.startswith("torchvision") else ""
        raise UnavailableError(f"{name}: {module_name} cannot be imported: {failed}{fix}"
                               ) from failed
    if isinstance(made, nn.Module):
        return lambda: made
    if not callable(made):
        raise SpecError(f"{name} is a {type(made).__name__}, and no factory of a model")
    return lambda: _model(name, made)


def _model(name: str, factory: Callable[[], Any]) -> nn.Module:
    try:
        model = factory()
    except TypeError as failed:
        raise SpecError(f"{name} cannot be called without arguments: {failed}") from failed
    if not isinstance(model, nn.Module):
        raise SpecError(f"{name} returns a {type(model).__name__}, and no torch.nn.Module")
    return model


def shapes_of(text: str) -> tuple[tuple[int, ...], ...]:
    """The shapes of a model's inputs, of a text such as ``1x3x224x224`` or ``1x3x64x64,1x8``.

    >>> shapes_of("1x3x224x224,1x8")
    ((1, 3, 224, 224), (1, 8))
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(map(_SHAPE.fullmatch, parts)):
        raise SpecError(f"{shown(text)} is no shape; inputs are written as 1x3x224x224, several "
                        "with commas between them")
    return tuple(tuple(map(int, part.split("x"))) for part in parts)


def inputs_of(shapes: tuple[tuple[int, ...], ...], device: Any = "cpu",
              seed: int = 0) -> tuple[Tensor, ...]:
    """Normal random inputs of these shapes, the same for a seed on every device."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator).to(device) for shape in shapes)
