"""Networks that hypothesis draws: accelerated, trained or quantised they compute what they did."""

import copy
import re
from contextlib import contextmanager

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from profiles import DEEP

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tiny_networks  # noqa: E402
from quantized_models import quantized_gpu  # noqa: E402
from random_networks import networks  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402
from torch_gpu import NAME, torch_gpu  # noqa: E402

import dscore.torch  # noqa: E402
from dscore.core.errors import SpecError  # noqa: E402

# What results may be off by: a share of the greatest value, or so many times PyTorch's own error.
SHARES = {torch.float32: 2e-4, torch.float16: 0.01, torch.bfloat16: 0.08}
TIMES_PYTORCHS = 8
# What `quantize` refuses some networks for.
UNQUANTISED = "no torch.nn.Conv2d|comes to a convolution in a graph"
COUNT = 400 if DEEP else 10


@contextmanager
def gpu(make):
    """The GPU that *make* patches in, and its launches, for one example: a fixture lasts for all.
    """
    with pytest.MonkeyPatch.context() as monkeypatch, make(monkeypatch) as launches:
        yield launches


@st.composite
def models(draw):
    """A model in eval mode, and what makes images for it from a seed."""
    torch.manual_seed(0)  # of the weights, so that an example fails again
    network, channels = draw(networks())
    size, batch = (draw(st.integers(5, 14)), draw(st.integers(5, 14))), draw(st.integers(1, 3))
    last = torch.channels_last if draw(st.booleans()) else torch.contiguous_format

    def images(seed):
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(batch, channels, *size, generator=generator).to(memory_format=last)
    tiny_networks.with_statistics(network)
    try:
        with torch.no_grad():
            results = tree_leaves(copy.deepcopy(network).eval()(images(0)))
    except (RuntimeError, ValueError):  # images of no pixels
        results = [torch.full((1,), torch.nan)]
    assume(all(one.isfinite().all() and one.abs().max() < 1e4 for one in results))
    return network.eval().to(memory_format=last), images


def agree(results, exact, of_torch, share):
    """Results are off by a *share* of the greatest exact value at most, or as little as PyTorch's.
    """
    for one, wanted, other in zip(*map(tree_leaves, (results, exact, of_torch)), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        greatest = wanted.abs().max().clamp_min(1e-3)
        error, usual = ((each.double() - wanted).abs().max() / greatest for each in (one, other))
        assert error <= max(share, TIMES_PYTORCHS * usual), (error, usual)


@settings(max_examples=COUNT)
@given(models(), st.sampled_from([torch.float32, torch.float32, torch.float16, torch.bfloat16]))
@torch.no_grad()
def test_an_accelerated_network_computes_the_same(drawn, dtype):
    model, images = drawn
    exact, model = copy.deepcopy(model).double(), model.to(dtype)
    of_torch = copy.deepcopy(model)
    with gpu(torch_gpu) as launches:
        report = dscore.torch.accelerate(model, images(0).to(dtype), backend=NAME)
        launches.clear()
        for seed in range(4):  # a program is linked at the second call, and then called
            x = images(seed).to(dtype)
            agree(model(x.clone()), exact(x.double()), of_torch(x.clone()), SHARES[dtype])
        assert launches or not report.replaced


def gradients_of(model, x, autocast):
    """Gradients of the mean square of all results, by the input and the parameters."""
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        results = tree_leaves(model(x * 1))
    sum(one.double().square().mean() for one in results).backward()
    return [x.grad, *(one.grad for one in model.parameters() if one.grad is not None)]


@pytest.mark.deep
@settings(max_examples=COUNT)
@given(models(), st.booleans())
def test_an_accelerated_network_has_the_same_gradients(drawn, autocast):
    model, images = drawn
    exact, of_torch = copy.deepcopy(model).double(), copy.deepcopy(model)
    try:
        wanted = gradients_of(exact, images(1).double(), False)
    except RuntimeError:  # what a gradient needs is changed in place
        assume(False)
    with gpu(torch_gpu) as launches:
        report = dscore.torch.accelerate(model, images(0), backend=NAME)
        launches.clear()
        own = gradients_of(model, images(1), autocast)
        assert launches or not report.replaced
    greatest = max(one.abs().max() for one in wanted)
    # What cancels is off by as much as anything.
    counted = [place for place, one in enumerate(wanted) if one.abs().max() > 0.01 * greatest]
    usual = gradients_of(of_torch, images(1), autocast)
    agree(*([gradients[place] for place in counted] for gradients in (own, wanted, usual)),
          0.3 if autocast else 5e-3)


@pytest.mark.deep
@settings(max_examples=COUNT)
@given(models(), st.sampled_from(["nhwc", "nchw"]))
@torch.no_grad()
def test_a_quantised_network_gives_the_same_integers_linked_and_on_the_cpu(drawn, layout):
    model, images = drawn
    with gpu(quantized_gpu) as launches:
        try:
            quantised = dscore.torch.quantize(model, [images(0), images(1)], backend=NAME,
                                              layout=layout, error_limit=1000)
        except SpecError as refused:
            if not re.search(UNQUANTISED, str(refused)):
                raise
            assume(False)
        launches.clear()
        in_turn = [tree_leaves(quantised(images(0))) for _ in range(4)]
        assert launches or all(layer.reason for layer in quantised.report.layers)  # in floats
    on_cpu = tree_leaves(quantised(images(0)))
    for results in in_turn:
        for one, other in zip(results, on_cpu, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4,
                                       atol=1e-4 * float(other.abs().max()))
