"""Tiny networks that are accelerated, and the exact results of their modules."""

import copy
import io

import tiny_networks
import torch

import dscore.torch

X = torch.randn(2, 3, 12, 10, generator=torch.Generator().manual_seed(1))


def model_of(block=tiny_networks.InvertedResidual):
    torch.manual_seed(0)
    return tiny_networks.with_statistics(tiny_networks.Network(block)).eval()


def accelerated(block=tiny_networks.InvertedResidual, **options):
    model = model_of(block)
    dscore.torch.accelerate(model, X, **options)
    return model


def program_of(model):
    return model._dscore_folded.program


def exact(model, x=X):
    """The result in float64 of the modules that a model has, as PyTorch computes it."""
    twin = copy.deepcopy(model)
    dscore.torch.restore(twin)
    assert not any(isinstance(one, dscore.torch.Conv2d) for one in twin.modules())
    with torch.no_grad():
        return twin.double()(x.double())


def assert_exact(model, x=X):
    with torch.no_grad():
        result = model(x)
    expected = exact(model, x)
    assert result.dtype is torch.float32
    assert (result - expected).abs().max() <= 1e-5 * expected.abs().max()


def stored(model):
    """The model as it is loaded from a file that it was saved to."""
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)
