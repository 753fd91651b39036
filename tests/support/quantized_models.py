"""Quantised models on a GPU, as `torch_gpu` has one, and their linked programs."""

import copy
import functools
from contextlib import contextmanager

import tiny_networks
import torch
from torch_gpu import NAME, torch_gpu

import dscore.torch
from dscore.calling import quantise
from dscore.core import backend


@contextmanager
def quantized_gpu(monkeypatch, device="z100sm"):
    """`torch_gpu`, which quantises floats, too."""
    monkeypatch.setitem(backend._REGISTRY, "hip", NAME)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: True), raising=False)
    quantise._PREPARED.clear()
    with torch_gpu(monkeypatch, device) as launches:
        yield launches
    quantise._PREPARED.clear()


def images(batch=2, seed=0, size=12):
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(seed))


def copy_of(block=tiny_networks.GatedResidual, **options):
    """A model of its own, as `model_of` makes it; those of a block are quantised once."""
    return copy.deepcopy(_made_once(block, **options))


def model_of(block=tiny_networks.GatedResidual, **options):
    torch.manual_seed(0)
    plain = tiny_networks.with_statistics(tiny_networks.Network(block)).eval()
    return dscore.torch.quantize(plain, [images()], backend=NAME, error_limit=10,
                                 **options)


_made_once = functools.cache(model_of)


@torch.no_grad()
def by_modules(model, *given):
    """The result of a quantised model's own code."""
    return type(model).forward.__wrapped__(model, *given)


def program_of(model):
    return model._programs.program


def linked_of(model):
    return program_of(model)._linked


def agrees(model, *given):
    assert torch.equal(model(*given), by_modules(model, *given))


@torch.no_grad()
def link(model, *given):
    """Have a linked program made for inputs like *given*, and none of the general way be called."""
    given = given or (images(),)
    for _ in range(3):
        agrees(model, *given)
    assert linked_of(model)
    program_of(model)._general = refused


def refused(*arguments):
    raise AssertionError("the general way was taken")
